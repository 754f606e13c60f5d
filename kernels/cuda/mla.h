/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What dense and sparse MLA decode share: the shapes, and how a tile's rows are stored. The packed rows of
 * a sequence are its s_q * heads queries, head fastest; a tile takes 16, 32 or 64 of them, so that few
 * heads waste little of the matrix unit. One key of 1152 bytes (656 in FP8) is read once for all rows of a
 * tile.
 */
#ifndef KVPOOL_KERNELS_CUDA_MLA_H
#define KVPOOL_KERNELS_CUDA_MLA_H

#include "args.h"
#include "tile.h"

#define KVK_MLA_TILE_KEYS 32

template <class FORMAT, int RW, int CW, bool FP8_ROWS>
struct kvk_mla_shape
    : kvk_shape<FORMAT, RW, CW, KVK_MLA_TILE_KEYS, KVK_MLA_WIDTH, KVK_MLA_LATENT, false, FP8_ROWS> {
};

/* 64 rows by warpgroups, with 64 keys at a time: all of a multiprocessor's shared memory. */
template <class FORMAT>
using kvk_mla_group_shape = kvk_group_shape<FORMAT, KVK_COLUMN, KVK_MLA_WIDTH, KVK_MLA_LATENT>;

#define KVK_MLA_SHARED(RW, CW, FP8_ROWS, bytes)                                                              \
	static_assert(sizeof(kvk_tile_shared<kvk_mla_shape<kvk_bf16_format, RW, CW, FP8_ROWS>>) == bytes,    \
		      "what the launcher asks for")

KVK_MLA_SHARED(1, 4, false, KVK_CUDA_MLA_R16_SHARED);
KVK_MLA_SHARED(2, 4, false, KVK_CUDA_MLA_R32_SHARED);
KVK_MLA_SHARED(4, 2, false, KVK_CUDA_MLA_R64_SHARED);
KVK_MLA_SHARED(1, 4, true, KVK_CUDA_MLA_R16_FP8_SHARED);
KVK_MLA_SHARED(2, 4, true, KVK_CUDA_MLA_R32_FP8_SHARED);
KVK_MLA_SHARED(4, 2, true, KVK_CUDA_MLA_R64_FP8_SHARED);

static_assert(sizeof(kvk_tile_shared<kvk_mla_group_shape<kvk_bf16_format>>) == KVK_CUDA_MLA_G64_SHARED,
	      "what the launcher asks for");

/* Rows of one sequence (dense) or of one query (sparse), from `first_row` on. */
struct kvk_mla_rows {
	const kvk_cuda_mla_args *p;
	int32_t sequence;
	int32_t first_query; /* of row 0 */
	int32_t first_row;
	int32_t rows; /* in all */

	KVK_METHOD int32_t query_of(int32_t row) const
	{
		return first_query + (first_row + row) / p->heads;
	}
	KVK_METHOD int32_t head_of(int32_t row) const
	{
		return (first_row + row) % p->heads;
	}
	KVK_METHOD bool exists(int32_t row) const
	{
		return first_row + row < rows;
	}
	KVK_METHOD const void *queries() const
	{
		return p->q;
	}
	KVK_METHOD const uint16_t *query(int32_t row) const
	{
		if (!exists(row))
			return nullptr;
		return static_cast<const uint16_t *>(p->q) + sequence * p->q_stride_batch +
		       query_of(row) * p->q_stride_query + head_of(row) * p->q_stride_head;
	}
	KVK_METHOD const void *keys() const
	{
		return p->kv;
	}
	KVK_METHOD const void *values() const
	{
		return nullptr;
	}
	KVK_METHOD float scale() const
	{
		return p->scale * KVK_LOG2E;
	}
	KVK_METHOD int64_t key_at(int32_t page, int32_t token) const
	{
		return page * p->kv_page_bytes + token * p->kv_token_bytes;
	}
};

/* Row `h` of a thread, whole: out and lse as the caller sees them. */
template <class S>
KVK_DEVICE void kvk_mla_store_whole(const kvk_mla_rows &rows, const kvk_tile_state<S> &state,
				    const kvk_tile_place<S> &at, int h)
{
	const kvk_cuda_mla_args *p = rows.p;
	const int32_t row = at.row(h), head = rows.head_of(row), query = rows.query_of(row);
	const float sum = state.sum[h], lse2 = kvk_log2(sum) + state.max[h];
	const float factor = sum == 0 ? 0 : kvk_sink_factor(p->sink, head, lse2) / sum;
	const int64_t out = rows.sequence * p->out_stride_batch + query * p->out_stride_query +
			    head * p->out_stride_head + S::WARP_VALUES * at.c + at.lane % 4 * 2;

	KVK_UNROLL
	for (int n = 0; n < S::WARP_VALUES / 8; n++)
		kvk_store_pair(p->out, p->out_dtype, out + 8 * n, state.out[n][2 * h] * factor,
			       state.out[n][2 * h + 1] * factor);
	if (p->lse && at.c == 0 && at.lane % 4 == 0)
		p->lse[rows.sequence * p->lse_stride_batch + head * p->lse_stride_head + query] =
			sum == 0 ? KVK_INFINITY : lse2 * KVK_LN2;
}

/* The same as partial `slot`: f32, normalised, lse in units of log2, -INF for a row that saw nothing. */
template <class S>
KVK_DEVICE void kvk_mla_store_partial(const kvk_mla_rows &rows, const kvk_tile_state<S> &state,
				      const kvk_tile_place<S> &at, int h, int64_t slot)
{
	const kvk_cuda_mla_args *p = rows.p;
	const int32_t row = at.row(h);
	const int64_t place = (slot * p->s_q + rows.query_of(row)) * p->heads + rows.head_of(row);
	const float sum = state.sum[h];
	const float factor = sum == 0 ? 0 : 1 / sum;

	KVK_UNROLL
	for (int n = 0; n < S::WARP_VALUES / 8; n++)
		kvk_store_pair(p->partial_out, KVK_F32,
			       place * KVK_MLA_LATENT + S::WARP_VALUES * at.c + 8 * n + at.lane % 4 * 2,
			       state.out[n][2 * h] * factor, state.out[n][2 * h + 1] * factor);
	if (at.c == 0 && at.lane % 4 == 0)
		p->partial_lse[place] = sum == 0 ? -KVK_INFINITY : kvk_log2(sum) + state.max[h];
}

/* `slot` < 0: the result is whole. */
template <class S>
KVK_DEVICE void kvk_mla_store(const kvk_mla_rows &rows, const kvk_tile_state<S> &state, int64_t slot)
{
	const kvk_tile_place<S> at;

	KVK_UNROLL
	for (int h = 0; h < 2; h++) {
		if (!rows.exists(at.row(h)))
			continue;
		if (slot < 0)
			kvk_mla_store_whole(rows, state, at, h);
		else
			kvk_mla_store_partial(rows, state, at, h, slot);
	}
}

#endif
