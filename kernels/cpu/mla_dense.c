/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dense MLA decode, portable: for each query, tiles of up to 16 heads go over tiles of 32 keys. A key row is
 * converted to f32 once per tile and serves every head of the tile, as the key and, its first 512 elements,
 * as the value. Tiles hold heads of one query only: all of them see the same keys, so no key is masked, and
 * none past the last is read.
 *
 * Working set on the stack: 16 queries (36 KiB), 16 results (32 KiB), 32 keys (72 KiB).
 */
#include "cpu.h"

#include "../internal.h"
#include "tile.h"

#include <string.h>

#define LOG2_E 1.44269504088896341

struct buffers {
	float q[KVK_TILE_ROWS * KVK_MLA_WIDTH];
	float out[KVK_TILE_ROWS * KVK_MLA_LATENT];
	float keys[KVK_TILE_KEYS * KVK_MLA_WIDTH];
} __attribute__((aligned(64)));

/* One tile of heads of one query. */
struct job {
	int32_t b, i; /* sequence and query */
	int32_t head; /* first of the tile */
	int32_t rows; /* heads in the tile */
	int32_t visible;
};

static void load_queries(const struct kvk_mla_dense_params *p, const struct kvk_tile_ops *ops,
			 const struct job *job, float *q)
{
	const int64_t bytes = (int64_t)kvk_dtype_bytes(p->q_dtype);
	const int64_t first =
		job->b * p->q_stride_batch + job->i * p->q_stride_query + job->head * p->q_stride_head;

	for (int r = 0; r < job->rows; r++)
		kvk_tile_load(ops, q + r * KVK_MLA_WIDTH,
			      (const char *)p->q + (first + r * p->q_stride_head) * bytes, p->q_dtype,
			      KVK_MLA_WIDTH, KVK_MLA_WIDTH);
	for (int r = job->rows; r % KVK_TILE_GROUP; r++)
		memset(q + r * KVK_MLA_WIDTH, 0, KVK_MLA_WIDTH * sizeof(*q));
}

static void load_keys(const struct kvk_mla_dense_params *p, const struct kvk_tile_ops *ops,
		      const int32_t *table, int32_t first, int keys, float *rows)
{
	const int64_t bytes = (int64_t)kvk_dtype_bytes(p->kv_dtype);

	for (int n = 0; n < keys; n++) {
		const int32_t j = first + n;
		const char *row = (const char *)p->kv + (table[j / p->page_tokens] * p->kv_stride_page +
							 j % p->page_tokens * p->kv_stride_token) *
								bytes;

		if (p->kv_dtype == KVK_MLA_FP8)
			kvk_tile_load_fp8(ops, rows + n * KVK_MLA_WIDTH, row);
		else
			kvk_tile_load(ops, rows + n * KVK_MLA_WIDTH, row, p->kv_dtype, KVK_MLA_WIDTH,
				      KVK_MLA_WIDTH);
	}
	if (keys % 2)
		memset(rows + keys * KVK_MLA_WIDTH, 0, KVK_MLA_WIDTH * sizeof(*rows));
}

static void store(const struct kvk_mla_dense_params *p, const struct job *job, const struct kvk_tile *tile)
{
	const int64_t out = job->b * p->out_stride_batch + job->i * p->out_stride_query;
	float *lse = p->lse ? p->lse + job->b * p->lse_stride_batch + job->i : NULL;

	for (int r = 0; r < job->rows; r++) {
		const int32_t h = job->head + r;

		kvk_tile_store(tile, r, p->sink ? p->sink + h : NULL, p->out, p->out_dtype,
			       out + h * p->out_stride_head, KVK_MLA_LATENT);
		if (lse)
			lse[h * p->lse_stride_head] = kvk_tile_lse(tile, r);
	}
}

static void attend(const struct kvk_mla_dense_params *p, const struct kvk_tile_ops *ops,
		   const struct job *job)
{
	const int32_t *table = p->block_table + job->b * p->table_stride;
	struct buffers buffers;
	struct kvk_tile tile = {.rows = job->rows,
				.key_width = KVK_MLA_WIDTH,
				.value_width = KVK_MLA_LATENT,
				.value_stride = KVK_MLA_WIDTH,
				.scale_log2 = (float)(p->scale * LOG2_E),
				.q = buffers.q,
				.out = buffers.out};

	load_queries(p, ops, job, buffers.q);
	kvk_tile_begin(&tile);
	for (int32_t first = 0; first < job->visible; first += KVK_TILE_KEYS) {
		const int32_t left = job->visible - first;
		const int keys = left < KVK_TILE_KEYS ? left : KVK_TILE_KEYS;

		load_keys(p, ops, table, first, keys, buffers.keys);
		ops->attend(&tile, buffers.keys, buffers.keys, keys);
	}
	store(p, job, &tile);
}

size_t kvk_mla_dense_cpu_scratch(const struct kvk_mla_dense_params *p)
{
	(void)p;
	return 0;
}

void kvk_mla_dense_cpu(const struct kvk_mla_dense_params *p, enum kvk_level level)
{
	const struct kvk_tile_ops *ops = kvk_tile_ops(level);

	for (int32_t b = 0; b < p->batch; b++)
		for (int32_t i = 0; i < p->s_q; i++)
			for (int32_t head = 0; head < p->heads; head += KVK_TILE_ROWS) {
				const int32_t left = p->heads - head;

				attend(p, ops,
				       &(const struct job){.b = b,
							   .i = i,
							   .head = head,
							   .rows = left < KVK_TILE_ROWS ? left
											: KVK_TILE_ROWS,
							   .visible = kvk_visible(p->lens[b], p->s_q, i,
										  p->flags & KVK_CAUSAL)});
			}
}
