/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dense GQA decode, portable: for each query and KV head, tiles of up to 16 heads of the group go over tiles
 * of 32 keys. Key and value rows are converted to f32 once per tile and serve every head of it. See
 * mla_dense.c for why no key is masked.
 *
 * Working set on the stack, at the largest head: 16 queries, 16 results, 32 keys and 32 values (192 KiB).
 */
#include "cpu.h"

#include "../internal.h"
#include "tile.h"

#include <string.h>

#define LOG2_E 1.44269504088896341

struct buffers {
	float q[KVK_TILE_ROWS * KVK_MAX_HEAD_DIM];
	float out[KVK_TILE_ROWS * KVK_MAX_HEAD_DIM];
	float keys[KVK_TILE_KEYS * KVK_MAX_HEAD_DIM];
	float values[KVK_TILE_KEYS * KVK_MAX_HEAD_DIM];
} __attribute__((aligned(64)));

/* One tile of heads of one query row. */
struct job {
	const int32_t *table;
	int32_t row;
	int32_t kv_head;
	int32_t head; /* first of the tile */
	int32_t rows; /* heads in the tile */
	int32_t visible;
};

static void load_queries(const struct kvk_gqa_dense_params *p, const struct kvk_tile_ops *ops,
			 const struct job *job, int width, float *q)
{
	const int64_t bytes = (int64_t)kvk_dtype_bytes(p->q_dtype);
	const int64_t first = job->row * p->q_stride_row + job->head * p->q_stride_head;

	for (int r = 0; r < job->rows; r++)
		kvk_tile_load(ops, q + r * width, (const char *)p->q + (first + r * p->q_stride_head) * bytes,
			      p->q_dtype, p->head_dim, width);
	for (int r = job->rows; r % KVK_TILE_GROUP; r++)
		memset(q + r * width, 0, (size_t)width * sizeof(*q));
}

static void load_tokens(const struct kvk_gqa_dense_params *p, const struct kvk_tile_ops *ops,
			const struct job *job, int32_t first, int keys, int width, struct buffers *to)
{
	const int64_t bytes = (int64_t)kvk_dtype_bytes(p->kv_dtype);

	for (int n = 0; n < keys; n++) {
		const int64_t page = job->table[(first + n) / p->page_tokens];
		const int64_t token = (first + n) % p->page_tokens;
		const int64_t k =
			page * p->k_stride_page + token * p->k_stride_token + job->kv_head * p->k_stride_head;
		const int64_t v =
			page * p->v_stride_page + token * p->v_stride_token + job->kv_head * p->v_stride_head;

		kvk_tile_load(ops, to->keys + n * width, (const char *)p->k + k * bytes, p->kv_dtype,
			      p->head_dim, width);
		kvk_tile_load(ops, to->values + n * width, (const char *)p->v + v * bytes, p->kv_dtype,
			      p->head_dim, width);
	}
	if (keys % 2)
		memset(to->keys + keys * width, 0, (size_t)width * sizeof(*to->keys));
}

static void store(const struct kvk_gqa_dense_params *p, const struct job *job, const struct kvk_tile *tile)
{
	for (int r = 0; r < job->rows; r++) {
		const int32_t h = job->head + r;

		kvk_tile_store(tile, r, NULL, p->out, p->out_dtype,
			       job->row * p->out_stride_row + h * p->out_stride_head, p->head_dim);
		if (p->lse)
			p->lse[job->row * p->lse_stride_row + h] = kvk_tile_lse(tile, r);
	}
}

static void attend(const struct kvk_gqa_dense_params *p, const struct kvk_tile_ops *ops,
		   const struct job *job)
{
	const int width = KVK_TILE_WIDTH(p->head_dim);
	struct buffers buffers;
	struct kvk_tile tile = {.rows = job->rows,
				.key_width = width,
				.value_width = width,
				.value_stride = width,
				.scale_log2 = (float)(p->scale * LOG2_E),
				.q = buffers.q,
				.out = buffers.out};

	load_queries(p, ops, job, width, buffers.q);
	kvk_tile_begin(&tile);
	for (int32_t first = 0; first < job->visible; first += KVK_TILE_KEYS) {
		const int32_t left = job->visible - first;
		const int keys = left < KVK_TILE_KEYS ? left : KVK_TILE_KEYS;

		load_tokens(p, ops, job, first, keys, width, &buffers);
		ops->attend(&tile, buffers.keys, buffers.values, keys);
	}
	store(p, job, &tile);
}

/* All heads of one row over the first `visible` keys. */
static void attend_row(const struct kvk_gqa_dense_params *p, const struct kvk_tile_ops *ops,
		       const int32_t *table, int32_t row, int32_t visible)
{
	const int32_t group = p->heads / p->kv_heads;

	for (int32_t g = 0; g < p->kv_heads; g++)
		for (int32_t first = 0; first < group; first += KVK_TILE_ROWS) {
			const int32_t left = group - first;

			attend(p, ops,
			       &(const struct job){.table = table,
						   .row = row,
						   .kv_head = g,
						   .head = g * group + first,
						   .rows = left < KVK_TILE_ROWS ? left : KVK_TILE_ROWS,
						   .visible = visible});
		}
}

size_t kvk_gqa_dense_cpu_scratch(const struct kvk_gqa_dense_params *p)
{
	(void)p;
	return 0;
}

void kvk_gqa_dense_cpu(const struct kvk_gqa_dense_params *p, enum kvk_level level)
{
	const struct kvk_tile_ops *ops = kvk_tile_ops(level);

	for (int32_t row = 0; row < kvk_first_row(p->cu_q, p->s_q, 0); row++)
		attend_row(p, ops, NULL, row, 0);
	for (int32_t r = 0; r < p->batch; r++) {
		const int32_t first = kvk_first_row(p->cu_q, p->s_q, r);
		const int32_t count = kvk_first_row(p->cu_q, p->s_q, r + 1) - first;

		for (int32_t i = 0; i < count; i++)
			attend_row(p, ops, p->block_table + r * p->table_stride, first + i,
				   kvk_visible(p->lens[r], count, i, p->flags & KVK_CAUSAL));
	}
	for (int32_t row = kvk_first_row(p->cu_q, p->s_q, p->batch); row < p->rows; row++)
		attend_row(p, ops, NULL, row, 0);
}
