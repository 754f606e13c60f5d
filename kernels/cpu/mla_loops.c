/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of MLA decode: one tile of query rows against one tile of keys that are f32 already.
 *
 *	for each group of rows, for each block of keys:		scores = Q K^T, 576 columns deep
 *	for each group of rows:					scores become weights 2^(scale * score - max)
 *	for each panel of columns, for each block of rows:	out = out * keep + P V, all keys deep
 *
 * Both products keep a block of results in registers. How Q K^T does is in mla_dots.h; it leaves the scores
 * of a key's rows side by side, so that softmax goes on in all lanes at once and P V can broadcast weights,
 * with columns across the lanes. An element of either product is one fixed sequence of operations whatever
 * block it falls into, so a row's bits do not depend on the rows beside it.
 *
 * Roofline: 2 * rows * (576 + 512) flop a key, for 2304 bytes of converted key that stay in L2; each
 * multiply-add instruction needs less than one load, from L1. The limit is the multiply-add units.
 */
#include "mla_loops.h"
#include "level.h"
#include "mla_dots.h"
#include "mla_keys.h"

/*
 * A block of rows and of three vectors of columns: with 32 registers 24 accumulators, with 16 registers 12.
 */
#if defined(KVK_SIMD_AVX512) || defined(KVK_SIMD_NEON)
#define SUM_ROWS 8
#else
#define SUM_ROWS 4
#endif
#define SUM_VECTORS 3

_Static_assert(PANEL % (SUM_VECTORS * L) == 0 || L == 16, "blocks of columns tile a panel");
_Static_assert(KVK_MLA_LATENT % PANEL % L == 0, "the last panel of values is whole vectors");

/* Scores of keys that a row does not see become -INF; `first` is the tile's first key. */
static void mask_tile(const struct kvk_mla_rows *rows, int first, int keys)
{
	for (int r = 0; r < rows->count; r++) {
		const int group = r / GROUP * GROUP;
		const int width = group_width(rows->count, group);
		float *score = rows->score + (int64_t)group * KVK_MLA_SCORE_KEYS + (r - group);

		for (int n = rows->visible[r] > first ? rows->visible[r] - first : 0; n < keys; n++)
			score[n * width] = -INFINITY;
	}
}

/*
 * 2^x, and 0 below 2^-64, which no f32 sum of these would show: smaller weights would make subnormal
 * products, and those take a hundred cycles each. NaN stays.
 */
KVK_INLINE vf weight_of(vf x)
{
	return (vf)(~(vi)(x < vf_set(-64)) & (vi)vf_exp2(x));
}

/* L rows' scores become weights; keep is what their older sums and results are to be multiplied with. */
KVK_INLINE void softmax_lanes(const struct kvk_mla_rows *rows, int r, float *score, int width, int keys)
{
	const vf scale = vf_set(rows->scale_log2);
	const vf old_max = vf_load(rows->max + r);
	vf largest = vf_load(score);
	vf total = vf_set(0);
	vf max, keep;

	for (int n = 1; n < keys; n++)
		largest = vf_max(vf_load(score + n * width), largest);
	max = vf_max(largest * scale, old_max);
	for (int n = 0; n < keys; n++) {
		const vf weight = weight_of(vf_fma(vf_load(score + n * width), scale, -max));

		vf_store(score + n * width, weight);
		total += weight;
	}
	keep = vf_exp2(old_max - max);
	vf_store(rows->max + r, max);
	vf_store(rows->sum + r, vf_fma(vf_load(rows->sum + r), keep, total));
	vf_store(rows->keep + r, keep);
}

static void softmax(const struct kvk_mla_rows *rows, int keys)
{
	for (int r = 0; r < rows->count; r += L) {
		const int group = r / GROUP * GROUP;

		softmax_lanes(rows, r, rows->score + (int64_t)group * KVK_MLA_SCORE_KEYS + (r - group),
			      group_width(rows->count, group), keys);
	}
}

/* One line of each of the next tile's rows, asked for while a block is summed. */
struct ask {
	const void *const *row;
	int count;
	int offset;
};

/* out[m] = out[m] * keep[m] + sum over keys of weight[key][m] * value[key], `count` rows, `vectors` wide. */
KVK_INLINE void sum_block(float *out, const float *keep, const float *weight, int width, const float *value,
			  int keys, bool first, const struct ask *ask, int count, int vectors)
{
	vf sum[SUM_ROWS][SUM_VECTORS];

	KVK_UNROLL
	for (int m = 0; m < count; m++)
		KVK_UNROLL
	for (int v = 0; v < vectors; v++) {
		sum[m][v] = vf_set(0);
		if (!first)
			sum[m][v] = vf_load(out + m * KVK_MLA_LATENT + v * L) * vf_set(keep[m]);
	}
	for (int n = 0; n < keys; n++) {
		vf column[SUM_VECTORS];

		if (n < ask->count)
			__builtin_prefetch((const char *)ask->row[n] + ask->offset, 0, 2);
		KVK_UNROLL
		for (int v = 0; v < vectors; v++)
			column[v] = vf_load(value + n * PANEL + v * L);
		KVK_UNROLL
		for (int m = 0; m < count; m++) {
			const vf w = vf_set(weight[n * width + m]);

			KVK_UNROLL
			for (int v = 0; v < vectors; v++)
				sum[m][v] = vf_fma(w, column[v], sum[m][v]);
		}
	}
	KVK_UNROLL
	for (int m = 0; m < count; m++)
		KVK_UNROLL
	for (int v = 0; v < vectors; v++)
		vf_store(out + m * KVK_MLA_LATENT + v * L, sum[m][v]);
}

/* A run of rows that see the same `keys` of the tile, and one block of columns. */
struct sum_job {
	const struct kvk_mla_rows *rows;
	int row, end; /* of the run */
	int keys;
	bool first; /* nothing was summed before */
	const struct kvk_mla_keys *next;
	int next_bytes; /* of a row of them */
	int blocks;     /* summed so far */
	int every;      /* so many blocks, a line is asked for */
};

/*
 * What to ask for during the next block: the lines behind those that the dots asked for, one after the
 * other.
 */
KVK_INLINE struct ask next_ask(struct sum_job *job)
{
	const int block = job->blocks++;
	const int offset = first_half(job->next_bytes) + block / job->every * 64;
	const bool wanted = block % job->every == 0 && offset < job->next_bytes;

	return (struct ask){.row = job->next->row, .count = wanted ? job->next->count : 0, .offset = offset};
}

KVK_INLINE void sum_columns(struct sum_job *job, const float *value, int column, int vectors)
{
	const struct kvk_mla_rows *rows = job->rows;

	for (int r = job->row; r < job->end;) {
		const int group = r / GROUP * GROUP;
		const int width = group_width(rows->count, group);
		const int left = (job->end < group + width ? job->end : group + width) - r;
		const float *weight = rows->score + (int64_t)group * KVK_MLA_SCORE_KEYS + (r - group);
		float *out = rows->out + (int64_t)r * KVK_MLA_LATENT + column;
		const float *keep = rows->keep + r;
		const int count = left >= SUM_ROWS ? SUM_ROWS : left >= 4 ? 4 : left >= 2 ? 2 : 1;
		const struct ask ask = next_ask(job);

		if (count == SUM_ROWS)
			sum_block(out, keep, weight, width, value, job->keys, job->first, &ask, SUM_ROWS,
				  vectors);
		else if (count == 4)
			sum_block(out, keep, weight, width, value, job->keys, job->first, &ask, 4, vectors);
		else if (count == 2)
			sum_block(out, keep, weight, width, value, job->keys, job->first, &ask, 2, vectors);
		else
			sum_block(out, keep, weight, width, value, job->keys, job->first, &ask, 1, vectors);
		r += count;
	}
}

static void sum_wide(struct sum_job *job, const float *value, int column)
{
	sum_columns(job, value, column, SUM_VECTORS);
}

static void sum_narrow(struct sum_job *job, const float *value, int column)
{
	sum_columns(job, value, column, 2);
}

/* Columns in blocks of three vectors, and of two where three would leave a single one. */
static void sum_values(struct sum_job *job)
{
	for (int column = 0; column < KVK_MLA_LATENT;) {
		const int panel = column / PANEL;
		const int end = (panel + 1) * PANEL < KVK_MLA_LATENT ? (panel + 1) * PANEL : KVK_MLA_LATENT;
		const float *value =
			job->rows->keys + (int64_t)panel * KVK_MLA_PANEL_STRIDE + (column - panel * PANEL);

		if (end - column >= SUM_VECTORS * L && end - column != 4 * L) {
			sum_wide(job, value, column);
			column += SUM_VECTORS * L;
		} else {
			sum_narrow(job, value, column);
			column += 2 * L;
		}
	}
}

/* Keys of the tile that row r sees. */
KVK_INLINE int tile_keys(const struct kvk_mla_rows *rows, int r, int first, int keys)
{
	const int visible = rows->visible ? rows->visible[r] - first : keys;

	return visible < keys ? visible : keys;
}

/*
 * Rows that see equally many keys are summed together: no weight, be it 0, meets a key that its row does
 * not see.
 */
static void sum_runs(const struct kvk_mla_rows *rows, int first, int keys, const struct kvk_mla_keys *next,
		     int next_bytes)
{
	const int blocks = (rows->count + SUM_ROWS - 1) / SUM_ROWS * (KVK_MLA_LATENT / (SUM_VECTORS * L));
	const int lines = (next_bytes - first_half(next_bytes)) / 64 + 1;
	struct sum_job job = {.rows = rows,
			      .first = first == 0,
			      .next = next,
			      .next_bytes = next_bytes,
			      .every = blocks > lines ? blocks / lines : 1};

	for (; job.row < rows->count; job.row = job.end) {
		job.keys = tile_keys(rows, job.row, first, keys);
		job.end = job.row + 1;
		while (job.end < rows->count && tile_keys(rows, job.end, first, keys) == job.keys)
			job.end++;
		if (job.keys > 0)
			sum_values(&job);
	}
}

/*
 * With few rows the loads of keys weigh: a chunk of keys is widened right before its dots, so that the
 * stores drain while they run. With many rows the queries weigh, and all keys are widened first.
 */
static void load_and_dot(const struct kvk_mla_rows *rows, const struct kvk_mla_keys *keys, uint32_t dtype,
			 struct prefetch *prefetch)
{
	const int chunk = L == 16 || rows->count <= 32 ? DOT_CHUNK : KEYS;

	for (int n = 0; n < keys->count; n += chunk) {
		const int end = n + chunk < keys->count ? n + chunk : keys->count;

		load_keys(rows->keys, keys, n, end, dtype);
		all_dots(rows, n, end - n, prefetch);
	}
}

static void attend(const struct kvk_mla_rows *rows, int first, const struct kvk_mla_keys *keys,
		   const struct kvk_mla_keys *next, uint32_t dtype)
{
	static const struct kvk_mla_keys none;
	const int bytes = row_bytes(dtype);
	struct prefetch prefetch = {.keys = next ? next : &none, .half_bytes = first_half(bytes)};

	load_and_dot(rows, keys, dtype, &prefetch);
	if (tile_keys(rows, 0, first, keys->count) < keys->count)
		mask_tile(rows, first, keys->count);
	softmax(rows, keys->count);
	sum_runs(rows, first, keys->count, prefetch.keys, bytes);
}

const struct kvk_mla_ops KVK_OPS(kvk_mla) = {.attend = attend};
