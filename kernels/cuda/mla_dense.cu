/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dense MLA decode over a plan (mla_plan.cu). Grid: units of (part, tile of rows), the tile fastest, in any
 * number of blocks. A part is a run of keys of one or several sequences; what it has only a piece of
 * becomes a partial, which combine.cu merges. Reads each key once for each tile of rows, and the lengths
 * anew: a plan made for other lengths gives other pieces, never an access out of bounds. Relies on 16-byte
 * aligned rows of q and kv.
 */
#include "mla.h"

struct kvk_mla_dense_source : kvk_mla_rows {
	int32_t len;
	const void *map; /* of the keys, page_tokens a multiple of KVK_CUDA_BOX; or NULL */

	/* KVK_NO_KEY for what is none. */
	KVK_METHOD int32_t page_of(int32_t key) const
	{
		const int32_t page = p->block_table[sequence * p->table_stride + key / p->page_tokens];

		return page >= 0 && page < p->pages ? page : KVK_NO_KEY;
	}
	KVK_METHOD void find(int32_t key, int64_t &k, int64_t &) const
	{
		const int32_t page = page_of(key);

		if (page != KVK_NO_KEY)
			k = key_at(page, key % p->page_tokens);
	}
	KVK_METHOD kvk_tile_box box(int32_t key) const
	{
		return {map ? page_of(key) : KVK_NO_KEY, key % p->page_tokens};
	}
	KVK_METHOD int32_t visible(int32_t row) const
	{
		return p->causal ? len - (p->s_q - 1 - query_of(row)) : len;
	}
	KVK_METHOD int64_t seen_by_all() const
	{
		return p->causal && p->s_q > 1 ? len - (p->s_q - 1) : INT64_MAX;
	}
};

/* A length as the table can hold it. */
KVK_DEVICE int32_t length_of(const kvk_cuda_mla_args &p, int32_t sequence)
{
	const int64_t room = static_cast<int64_t>(p.table_width) * p.page_tokens;
	const int32_t len = p.lens[sequence];

	return len < 0 ? 0 : len > room ? static_cast<int32_t>(room) : len;
}

KVK_DEVICE int32_t smaller(int64_t a, int32_t b)
{
	return a < b ? static_cast<int32_t>(a) : b;
}

/* The part's share of one sequence. */
template <class S>
KVK_DEVICE void visit(kvk_tile_shared<S> &sm, const kvk_cuda_mla_args &p, const void *map, uint32_t &phases,
		      const kvk_mla_plan_part &part, int32_t sequence, int32_t first_row)
{
	const bool first = sequence == part.begin_seq, last = sequence == part.end_seq;
	const bool split = (first && part.first_is_split) || (last && part.last_is_split);
	const int64_t slot =
		split ? static_cast<int64_t>(p.num_splits[sequence]) + (first ? part.begin_split : 0) : -1;
	kvk_mla_dense_source source;
	kvk_tile_state<S> state;
	int32_t begin, end;

	source.p = &p;
	source.sequence = sequence;
	source.first_query = 0;
	source.first_row = first_row;
	source.rows = p.s_q * p.heads;
	source.len = length_of(p, sequence);
	source.map = map;
	begin = first ? smaller(static_cast<int64_t>(part.begin_block) * p.plan_tokens, source.len) : 0;
	end = last ? smaller(static_cast<int64_t>(part.end_block) * p.plan_tokens, source.len) : source.len;
	if (slot >= p.partials)
		return;
	state.phases = phases;
	kvk_tile_attend(sm, state, source, begin, end);
	phases = state.phases;
	kvk_mla_store<S>(source, state, slot);
}

template <class S> KVK_DEVICE void mla_dense(const kvk_cuda_mla_args &p, const void *map)
{
	const int32_t tiles = (p.s_q * p.heads + S::ROWS - 1) / S::ROWS;
	const int64_t units = static_cast<int64_t>(p.parts) * tiles;
	uint32_t phases = 0;
	KVK_SHARED(kvk_tile_shared<S>, sm);

	kvk_tile_open(sm);
	for (int64_t unit = kvk_block(); unit < units; unit += kvk_blocks()) {
		const kvk_mla_plan_part part = p.plan[unit / tiles];
		const int32_t last = part.end_seq < p.batch ? part.end_seq : p.batch - 1;

		for (int32_t sequence = part.begin_seq; sequence >= 0 && sequence <= last; sequence++)
			visit<S>(sm, p, map, phases, part, sequence,
				 static_cast<int32_t>(unit % tiles) * S::ROWS);
	}
}

#define DENSE(name, format, fp8)                                                                             \
	KVK_KERNEL(kvk_cuda_mla_dense_##name##_r16, kvk_cuda_mla_args, 128, 1)                               \
	{                                                                                                    \
		mla_dense<kvk_mla_shape<format, 1, 4, fp8>>(p, nullptr);                                     \
	}                                                                                                    \
	KVK_KERNEL(kvk_cuda_mla_dense_##name##_r32, kvk_cuda_mla_args, 256, 1)                               \
	{                                                                                                    \
		mla_dense<kvk_mla_shape<format, 2, 4, fp8>>(p, nullptr);                                     \
	}                                                                                                    \
	KVK_KERNEL(kvk_cuda_mla_dense_##name##_r64, kvk_cuda_mla_args, 256, 1)                               \
	{                                                                                                    \
		mla_dense<kvk_mla_shape<format, 4, 2, fp8>>(p, nullptr);                                     \
	}

DENSE(bf16, kvk_bf16_format, false)
DENSE(f16, kvk_f16_format, false)
DENSE(fp8, kvk_bf16_format, true)

/* Of 64 rows, on a device with warpgroups. */
#define DENSE_GROUPS(name, format)                                                                           \
	KVK_KERNEL(kvk_cuda_mla_dense_##name##_g64, kvk_cuda_mla_group_args, 256, 1)                         \
	{                                                                                                    \
		mla_dense<kvk_mla_group_shape<format>>(p.mla, p.boxed ? &p.keys : nullptr);                  \
	}

DENSE_GROUPS(bf16, kvk_bf16_format)
DENSE_GROUPS(f16, kvk_f16_format)
