/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sparse MLA decode over lists of physical slots. Grid: units of (sequence, query, tile of heads, piece of
 * the list), the piece fastest. Pieces have a fixed number of entries, so that a query's bits don't depend
 * on its neighbours; with more than one they are partials for combine.cu. An entry outside the cache is
 * skipped and nothing is read for it.
 */
#include "mla.h"

struct kvk_mla_sparse_source : kvk_mla_rows {
	const int32_t *list;

	KVK_METHOD void find(int32_t key, int64_t &k, int64_t &) const
	{
		const int32_t slot = list[key];

		if (slot >= 0 && slot < static_cast<int64_t>(p->pages) * p->page_tokens)
			k = key_at(slot / p->page_tokens, slot % p->page_tokens);
	}
	KVK_METHOD int32_t visible(int32_t) const
	{
		return INT32_MAX;
	}
	KVK_METHOD int64_t seen_by_all() const
	{
		return INT64_MAX;
	}
};

KVK_DEVICE int32_t entries_of(const kvk_cuda_mla_args &p, int32_t sequence)
{
	const int32_t length = p.topk_length ? p.topk_length[sequence] : p.topk;

	return length < 0 ? 0 : length > p.topk ? p.topk : length;
}

template <class S> KVK_DEVICE void mla_sparse(const kvk_cuda_mla_args &p)
{
	const int32_t tiles = (p.heads + S::ROWS - 1) / S::ROWS;
	const int64_t units = static_cast<int64_t>(p.batch) * p.s_q * tiles * p.splits;
	kvk_mla_sparse_source source;
	KVK_SHARED(kvk_tile_shared<S>, sm);

	source.p = &p;
	source.rows = p.heads;
	for (int64_t unit = kvk_block(); unit < units; unit += kvk_blocks()) {
		const int32_t piece = static_cast<int32_t>(unit % p.splits);
		const int64_t query = unit / p.splits / tiles;
		const int64_t begin = static_cast<int64_t>(piece) * p.split_keys;
		kvk_tile_state<S> state;
		int32_t end;

		source.sequence = static_cast<int32_t>(query / p.s_q);
		source.first_query = static_cast<int32_t>(query % p.s_q);
		source.first_row = static_cast<int32_t>(unit / p.splits % tiles) * S::ROWS;
		source.list = p.indices + source.sequence * p.indices_stride_batch +
			      source.first_query * p.indices_stride_query;
		end = entries_of(p, source.sequence);
		if (begin + p.split_keys < end)
			end = static_cast<int32_t>(begin + p.split_keys);
		kvk_tile_attend(sm, state, source, static_cast<int32_t>(begin < end ? begin : end), end);
		kvk_mla_store<S>(source, state,
				 p.splits > 1 ? static_cast<int64_t>(source.sequence) * p.splits + piece
					      : -1);
	}
}

#define SPARSE(name, format, fp8)                                                                            \
	KVK_KERNEL(kvk_cuda_mla_sparse_##name##_r16, kvk_cuda_mla_args, 128, 1)                              \
	{                                                                                                    \
		mla_sparse<kvk_mla_shape<format, 1, 4, fp8>>(p);                                             \
	}                                                                                                    \
	KVK_KERNEL(kvk_cuda_mla_sparse_##name##_r64, kvk_cuda_mla_args, 256, 1)                              \
	{                                                                                                    \
		mla_sparse<kvk_mla_shape<format, 4, 2, fp8>>(p);                                             \
	}

SPARSE(bf16, kvk_bf16_format, false)
SPARSE(f16, kvk_f16_format, false)
SPARSE(fp8, kvk_bf16_format, true)
