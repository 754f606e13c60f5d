/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of MLA decode: one tile of query rows against one tile of keys.
 *
 *	for each chunk of keys:		widen to f32; scores = Q K^T, 576 columns deep (mla_dots.h)
 *	for each group of rows:		scores become weights 2^(scale * score - max)
 *	for each panel of columns:	widen to f32, unless kept; for each block of rows:
 *						out = out * keep + P V, all keys deep
 *
 * Both products keep a block of results in registers. Q K^T leaves the scores of a key's rows side by side, so
 * that softmax goes on in all lanes at once and P V can broadcast weights, with columns across the lanes. An
 * element of either product is one fixed sequence of operations whatever block it falls into, so a row's bits
 * do not depend on the rows beside it. Meanwhile the next tile's rows are asked for.
 *
 * Roofline: 2 * rows * (576 + 512) flop a key; a multiply-add instruction needs 10/24 of a load, from L1. The
 * limit is the multiply-add units, and with few rows L2, where 2304 bytes of widened key go and come back.
 */
#include "mla_loops.h"
#include "level.h"
#include "mla_dots.h"
#include "mla_keys.h"

/* A block of rows and of vectors of columns: with 32 registers 24 accumulators, with 16 registers 12. */
#define SUM_ROWS 6
#if defined(KVK_SIMD_AVX512) || defined(KVK_SIMD_NEON)
#define SUM_VECTORS 4
#else
#define SUM_VECTORS 2
#endif

#define KEPT_ROWS 32 /* up to so many, a tile of keys is kept as f32 */

_Static_assert(PANEL % (SUM_VECTORS * L) == 0, "blocks of columns tile a panel");

/* Scores of keys that a row does not see become -INF; `first` is the tile's first key. */
static void mask_tile(const struct kvk_mla_rows *rows, int first, int keys)
{
	for (int r = 0; r < rows->count; r++) {
		const int width = group_width(rows, r / group_rows(rows) * group_rows(rows));
		float *score = row_score(rows, r);

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
	for (int r = 0; r < rows->count; r += L)
		softmax_lanes(rows, r, row_score(rows, r),
			      group_width(rows, r / group_rows(rows) * group_rows(rows)), keys);
}

/* A run of rows that see the same `keys` of the tile. */
struct sum_job {
	const struct kvk_mla_rows *rows;
	const struct tile *tile;
	int row, end; /* of the run */
	int keys;
	bool first; /* nothing was summed before */
	struct ask *ask;
};

/*
 * out[m] = out[m] * keep[m] + sum over keys of weight[key][m] * value[key], `count` rows and `vectors` of
 * columns from `column` on, of the job's row r on.
 */
KVK_INLINE void sum_block(const struct sum_job *job, int r, int column, int count)
{
	const struct kvk_mla_rows *rows = job->rows;
	const int width = group_width(rows, r / group_rows(rows) * group_rows(rows));
	const float *weight = row_score(rows, r);
	const float *values = tile_panel(job->tile, column / PANEL, 0) + column % PANEL;
	float *out = rows->out + (int64_t)r * KVK_MLA_LATENT + column;
	struct ask ask = *job->ask; /* in registers */
	vf sum[SUM_ROWS][SUM_VECTORS];

	KVK_UNROLL
	for (int m = 0; m < count; m++)
		KVK_UNROLL
	for (int v = 0; v < SUM_VECTORS; v++) {
		sum[m][v] = vf_set(0);
		if (!job->first)
			sum[m][v] = vf_load(out + m * KVK_MLA_LATENT + v * L) * vf_set(rows->keep[r + m]);
	}
	KVK_NO_UNROLL
	for (int n = 0; n < job->keys; n++) {
		vf value[SUM_VECTORS];

		ask_turn(&ask);
		KVK_UNROLL
		for (int v = 0; v < SUM_VECTORS; v++)
			value[v] = vf_load(values + n * PANEL + v * L);
		KVK_UNROLL
		for (int m = 0; m < count; m++) {
			const vf w = vf_set(weight[n * width + m]);

			KVK_UNROLL
			for (int v = 0; v < SUM_VECTORS; v++)
				sum[m][v] = vf_fma(w, value[v], sum[m][v]);
		}
	}
	KVK_UNROLL
	for (int m = 0; m < count; m++)
		KVK_UNROLL
	for (int v = 0; v < SUM_VECTORS; v++)
		vf_store(out + m * KVK_MLA_LATENT + v * L, sum[m][v]);
	*job->ask = ask;
}

/* Rows of the job that lie in the group of row r, from there on. */
KVK_INLINE int rows_left(const struct sum_job *job, int r)
{
	const int next = (r / group_rows(job->rows) + 1) * group_rows(job->rows);

	return (job->end < next ? job->end : next) - r;
}

/* SUM_VECTORS vectors of columns of all the job's rows, in blocks as even as SUM_ROWS allows. */
static void sum_columns(const struct sum_job *job, int column)
{
	for (int r = job->row; r < job->end;) {
		const int left = rows_left(job, r);
		const int blocks = (left + SUM_ROWS - 1) / SUM_ROWS;
		const int count = (left + blocks - 1) / blocks;

		if (count == 6)
			sum_block(job, r, column, 6);
		else if (count == 5)
			sum_block(job, r, column, 5);
		else if (count == 4)
			sum_block(job, r, column, 4);
		else if (count == 3)
			sum_block(job, r, column, 3);
		else if (count == 2)
			sum_block(job, r, column, 2);
		else
			sum_block(job, r, column, 1);
		r += count;
	}
}

/* Panel by panel: the keys' columns become f32 unless they are, then all blocks of them are summed. */
static void sum_values(const struct sum_job *job)
{
	for (int column = 0; column < KVK_MLA_LATENT; column += SUM_VECTORS * L) {
		if (column % PANEL == 0 && !job->tile->kept)
			load_keys(job->tile, 0, job->keys, column / PANEL, 1);
		sum_columns(job, column);
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
static void sum_runs(const struct kvk_mla_rows *rows, const struct tile *tile, int first, struct ask *ask)
{
	const int keys = tile->keys->count;
	struct sum_job job = {.rows = rows, .tile = tile, .first = first == 0, .ask = ask};

	set_pace(ask, lines_left(ask),
		 (rows->count + SUM_ROWS - 1) / SUM_ROWS * (KVK_MLA_LATENT / (SUM_VECTORS * L)) * keys);
	for (; job.row < rows->count; job.row = job.end) {
		job.keys = tile_keys(rows, job.row, first, keys);
		job.end = job.row + 1;
		while (job.end < rows->count && tile_keys(rows, job.end, first, keys) == job.keys)
			job.end++;
		if (job.keys > 0)
			sum_values(&job);
	}
}

static void attend(const struct kvk_mla_rows *rows, int first, const struct kvk_mla_keys *keys,
		   const struct kvk_mla_keys *next, uint32_t dtype)
{
	static const struct kvk_mla_keys none;
	const struct tile tile = {.keys = keys,
				  .dtype = dtype,
				  .kept = lanes_are_columns(rows) || rows->count <= KEPT_ROWS,
				  .at = rows->keys};
	struct ask ask = {.keys = next ? next : &none, .bytes = row_bytes(dtype)};

	all_dots(rows, &tile, &ask);
	if (tile_keys(rows, 0, first, keys->count) < keys->count)
		mask_tile(rows, first, keys->count);
	softmax(rows, keys->count);
	sum_runs(rows, &tile, first, &ask);
}

const struct kvk_mla_ops KVK_OPS(kvk_mla) = {.attend = attend};
