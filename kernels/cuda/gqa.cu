/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decode attention with grouped heads: dense, and MSA's over selected blocks. Grid: units of (query row, KV
 * head, tile of 16 heads of its group, piece of its keys), the piece fastest. Pieces have a fixed number of
 * keys, so that a row's bits don't depend on its neighbours; with more than one they are partials for
 * combine.cu. K and V are read once for each tile of heads. Relies on 16-byte aligned rows of q, k and v.
 */
#include "args.h"
#include "rows.h"
#include "tile.h"

#define KEYS 64

template <class FORMAT, int DIM> struct gqa_shape : kvk_shape<FORMAT, 1, 4, KEYS, DIM, DIM, true, false> {
};

template <class S> struct gqa_shared {
	kvk_tile_shared<S> tile;
	int32_t block[KVK_CUDA_MAX_TOPK]; /* selected blocks, each once; -1: none */
};

static_assert(sizeof(gqa_shared<gqa_shape<kvk_bf16_format, 64>>) == KVK_CUDA_GQA_64_SHARED,
	      "what the launcher asks for");
static_assert(sizeof(gqa_shared<gqa_shape<kvk_bf16_format, 128>>) == KVK_CUDA_GQA_128_SHARED,
	      "what the launcher asks for");

/* Up to 16 heads of one query row and KV head. */
struct gqa_source {
	const kvk_cuda_gqa_args *p;
	int64_t row;
	int32_t sequence, kv_head;
	int32_t first_head, heads; /* of all; how many */
	int32_t seen;              /* keys that the row sees */
	const int32_t *block;      /* sparse: selected, in shared memory; dense: NULL */

	KVK_METHOD bool exists(int32_t i) const
	{
		return i < heads;
	}
	KVK_METHOD const void *queries() const
	{
		return p->q;
	}
	KVK_METHOD const uint16_t *query(int32_t i) const
	{
		if (!exists(i))
			return nullptr;
		return static_cast<const uint16_t *>(p->q) + row * p->q_stride_row +
		       (first_head + i) * p->q_stride_head;
	}
	KVK_METHOD const void *keys() const
	{
		return p->k;
	}
	KVK_METHOD const void *values() const
	{
		return p->v;
	}
	KVK_METHOD float scale() const
	{
		return p->scale * KVK_LOG2E;
	}
	/* Which of the sequence's keys the i-th to attend to is; negative: none. */
	KVK_METHOD int64_t position(int32_t i) const
	{
		const int32_t selected = block ? block[i / p->block_tokens] : 0;

		if (!block)
			return i;
		return selected < 0 ? -1
				    : static_cast<int64_t>(selected) * p->block_tokens + i % p->block_tokens;
	}
	KVK_METHOD void find(int32_t i, int64_t &k, int64_t &v) const
	{
		const int64_t at = position(i);
		int32_t page, token;

		if (at < 0 || at >= seen || at >= static_cast<int64_t>(p->table_width) * p->page_tokens)
			return;
		page = p->block_table[sequence * p->table_stride + at / p->page_tokens];
		token = static_cast<int32_t>(at % p->page_tokens);
		if (page < 0 || page >= p->pages)
			return;
		k = page * p->k_page_bytes + token * p->k_token_bytes + kv_head * p->k_head_bytes;
		v = page * p->v_page_bytes + token * p->v_token_bytes + kv_head * p->v_head_bytes;
	}
	KVK_METHOD int32_t visible(int32_t) const
	{
		return INT32_MAX; /* find() has left out what the row doesn't see */
	}
	KVK_METHOD int64_t seen_by_all() const
	{
		return INT64_MAX;
	}
};

/* The row's selected blocks to shared memory: without those out of bounds and without repetitions. */
KVK_DEVICE void take_selected(int32_t *block, const gqa_source &source)
{
	const kvk_cuda_gqa_args *p = source.p;
	const int32_t *list =
		p->selected + source.kv_head * p->selected_stride_head + source.row * p->selected_stride_row;

	for (int32_t i = kvk_thread(); i < p->topk; i += kvk_threads_of_block()) {
		int32_t id = list[i];

		for (int32_t n = 0; n < i; n++)
			if (list[n] == id)
				id = -1;
		block[i] = id < 0 || static_cast<int64_t>(id) * p->block_tokens >= source.seen ? -1 : id;
	}
	kvk_block_sync();
}

template <class S>
KVK_DEVICE void store(const gqa_source &source, const kvk_tile_state<S> &state, int32_t piece, int h)
{
	const kvk_cuda_gqa_args *p = source.p;
	const kvk_tile_place<S> at;
	const int32_t head = source.first_head + at.row(h);
	const float sum = state.sum[h], lse2 = kvk_log2(sum) + state.max[h];
	const float factor = sum == 0 ? 0 : 1 / sum;
	const bool whole = p->splits == 1;
	const int64_t place = (source.row * p->splits + piece) * p->heads + head;
	const int64_t out =
		(whole ? source.row * p->out_stride_row + head * p->out_stride_head : place * S::DV) +
		S::WARP_VALUES * at.c + at.lane % 4 * 2;

	KVK_UNROLL
	for (int n = 0; n < S::WARP_VALUES / 8; n++)
		kvk_store_pair(whole ? p->out : p->partial_out, whole ? p->out_dtype : KVK_F32, out + 8 * n,
			       state.out[n][2 * h] * factor, state.out[n][2 * h + 1] * factor);
	if (at.c || at.lane % 4)
		return;
	if (!whole)
		p->partial_lse[place] = sum == 0 ? -KVK_INFINITY : lse2;
	else if (p->lse)
		p->lse[source.row * p->lse_stride_row + head] = sum == 0 ? KVK_INFINITY : lse2 * KVK_LN2;
}

template <class S, bool SPARSE>
KVK_DEVICE void run_unit(gqa_shared<S> &sm, const kvk_cuda_gqa_args &p, gqa_source &source, int32_t piece)
{
	const kvk_row where = kvk_find_row(p.cu_q, p.s_q, p.batch, static_cast<int32_t>(source.row));
	const int64_t begin = static_cast<int64_t>(piece) * p.split_keys;
	const kvk_tile_place<S> at;
	kvk_tile_state<S> state;
	int64_t end;

	source.sequence = where.sequence;
	source.seen =
		where.sequence < 0 ? 0 : kvk_visible_keys(p.lens[where.sequence], where, SPARSE || p.causal);
	source.block = SPARSE ? sm.block : nullptr;
	if (SPARSE)
		take_selected(sm.block, source);
	end = SPARSE && source.seen ? static_cast<int64_t>(p.topk) * p.block_tokens : source.seen;
	end = end < begin + p.split_keys ? end : begin + p.split_keys;
	end = end > begin ? end : begin;
	kvk_tile_attend(sm.tile, state, source, static_cast<int32_t>(begin), static_cast<int32_t>(end));
	for (int h = 0; h < 2; h++)
		if (source.exists(at.row(h)))
			store<S>(source, state, piece, h);
}

template <class S, bool SPARSE> KVK_DEVICE void gqa(const kvk_cuda_gqa_args &p)
{
	const int32_t group = p.heads / p.kv_heads;
	const int32_t tiles = (group + S::ROWS - 1) / S::ROWS;
	const int64_t units = static_cast<int64_t>(p.rows) * p.kv_heads * tiles * p.splits;
	gqa_source source;
	KVK_SHARED(gqa_shared<S>, sm);

	source.p = &p;
	for (int64_t unit = kvk_block(); unit < units; unit += kvk_blocks()) {
		const int32_t tile = static_cast<int32_t>(unit / p.splits % tiles);

		source.kv_head = static_cast<int32_t>(unit / p.splits / tiles % p.kv_heads);
		source.row = unit / p.splits / tiles / p.kv_heads;
		source.first_head = source.kv_head * group + tile * S::ROWS;
		source.heads = group - tile * S::ROWS;
		run_unit<S, SPARSE>(sm, p, source, static_cast<int32_t>(unit % p.splits));
	}
}

#define GQA(name, format, dim)                                                                               \
	KVK_KERNEL(kvk_cuda_gqa_dense_##name##_##dim, kvk_cuda_gqa_args, 128, 2)                             \
	{                                                                                                    \
		gqa<gqa_shape<format, dim>, false>(p);                                                       \
	}                                                                                                    \
	KVK_KERNEL(kvk_cuda_msa_sparse_##name##_##dim, kvk_cuda_gqa_args, 128, 2)                            \
	{                                                                                                    \
		gqa<gqa_shape<format, dim>, true>(p);                                                        \
	}

GQA(bf16, kvk_bf16_format, 64)
GQA(bf16, kvk_bf16_format, 128)
GQA(f16, kvk_f16_format, 64)
GQA(f16, kvk_f16_format, 128)
