/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Q K^T of a tile, for mla_loops.c. Two forms, by what the level's loads can feed:
 *
 * Rows across the lanes, keys broadcast (up to 8 lanes): no sum over lanes, keys need no transposition. A
 * block of 6 keys and two vectors of rows has 8 loads for 12 multiply-adds.
 *
 * Columns across the lanes (16 lanes): 16 rows, one rank's share of 128 heads, are a single vector there,
 * and every broadcast would serve one multiply-add only: the load ports would set the pace. A block of 6
 * keys and 4 rows has 10 loads for 24 multiply-adds, and its results leave it through trees of additions, 6
 * % of the work.
 */
#ifndef KVPOOL_KERNELS_MLA_DOTS_H
#define KVPOOL_KERNELS_MLA_DOTS_H

#include "mla_loops.h"
#include "simd.h"

#define KEYS KVK_MLA_TILE_KEYS
#define PANEL KVK_MLA_PANEL
#define L KVK_LANES
#define GROUP KVK_MLA_GROUP(L)

/* Keys in a block of two vectors of rows, and of one. */
#if defined(KVK_SIMD_NEON)
#define DOT_KEYS 12
#define DOT_KEYS_NARROW 24
#else
#define DOT_KEYS 6
#define DOT_KEYS_NARROW 12
#endif
#define DOT_ROWS 4 /* rows in a block of 16 lanes */
/* Lines at a time, at each panel of a block: with 16 rows that is about enough for half of the next tile. */
#define PREFETCH_LINES (L == 16 ? 1 : 5)
#define DOT_CHUNK 12 /* keys that are worth a visit of all rows */

/*
 * Which lines of the next tile's rows the dots are to ask for. Faster than memory delivers, they would
 * stall.
 */
struct prefetch {
	const struct kvk_mla_keys *keys;
	int key;
	int offset;
	int half_bytes;
};

static int row_bytes(uint32_t dtype)
{
	return dtype == KVK_MLA_FP8 ? KVK_MLA_FP8_ROW_BYTES : KVK_MLA_WIDTH * (dtype == KVK_F32 ? 4 : 2);
}

/* Bytes of a row that dots ask for; the rest is left to the sums, so that memory is kept busy evenly. */
static int first_half(int bytes)
{
	return (bytes / 64 + 1) / 2 * 64;
}

/* Asks for the next few lines. */
KVK_INLINE void prefetch_some(struct prefetch *at)
{
	const char *line;

	if (at->key >= at->keys->count)
		return;
	line = (const char *)at->keys->row[at->key] + at->offset;
	KVK_UNROLL
	for (int i = 0; i < PREFETCH_LINES; i++)
		__builtin_prefetch(line + 64 * i, 0, 2);
	at->offset += 64 * PREFETCH_LINES;
	if (at->offset >= at->half_bytes) {
		at->offset = 0;
		at->key++;
	}
}

KVK_INLINE int group_width(int rows, int r)
{
	return KVK_MLA_GROUP_WIDTH(L, rows, r);
}

#if KVK_LANES == 16

/*
 * Sums of the lanes of `count` vectors, 8 or 16: lane i of the result, or with 8 lane 2 * i, is that of
 * vector i. The additions are in vf_sum()'s order.
 */
KVK_INLINE vf sum_each(vf *part, int count)
{
	KVK_UNROLL
	for (int half = count / 2; half > 0; half /= 2)
		KVK_UNROLL
	for (int i = 0; i < half; i++)
		part[i] = vf_interleave_low(part[i], part[i + half]) +
			  vf_interleave_high(part[i], part[i + half]);
	if (count == 8)
		part[0] = vf_interleave_low(part[0], part[0]) + vf_interleave_high(part[0], part[0]);
	return part[0];
}

/* Four sums of a key each; six keys are four and two. */
KVK_INLINE void store_sums(float *score, int width, vf *sum, int keys)
{
	float lane[L];

	vf_storeu(lane, sum_each(sum, 16));
	KVK_UNROLL
	for (int m = 0; m < 4; m++)
		memcpy(score + m * width, lane + 4 * m, 4 * sizeof(float));
	if (keys == 4)
		return;
	vf_storeu(lane, KVK_SHUFFLE(sum_each(sum + 16, 8), sum[0], 0, 2, 4, 6, 8, 10, 12, 14, 0, 2, 4, 6, 8,
				    10, 12, 14));
	KVK_UNROLL
	for (int m = 4; m < 6; m++)
		memcpy(score + m * width, lane + 4 * (m - 4), 4 * sizeof(float));
}

/* score[key][row] of 4 or 6 keys and 4 rows; columns lie across the lanes. */
KVK_INLINE void dot_block(float *score, int width, const float *k, const float *q, int keys,
			  struct prefetch *prefetch)
{
	vf sum[6 * DOT_ROWS];

	KVK_UNROLL
	for (int i = 0; i < keys * DOT_ROWS; i++)
		sum[i] = vf_set(0);
	for (int panel = 0; panel < KVK_MLA_PANELS; panel++) {
		KVK_NO_UNROLL
		for (int d = 0; d < PANEL; d += L) {
			vf row[DOT_ROWS];

			KVK_UNROLL
			for (int r = 0; r < DOT_ROWS; r++)
				row[r] = vf_load(q + r * KVK_MLA_WIDTH + d);
			KVK_UNROLL
			for (int m = 0; m < keys; m++) {
				const vf key = vf_load(k + m * PANEL + d);

				KVK_UNROLL
				for (int r = 0; r < DOT_ROWS; r++)
					sum[m * DOT_ROWS + r] = vf_fma(key, row[r], sum[m * DOT_ROWS + r]);
			}
		}
		prefetch_some(prefetch);
		k += KVK_MLA_PANEL_STRIDE;
		q += PANEL;
	}
	store_sums(score, width, sum, keys);
}

/*
 * Scores of `keys` keys from key `from` of the tile on, all rows; up to 3 more keys are computed for
 * nothing.
 */
static void all_dots(const struct kvk_mla_rows *rows, int from, int keys, struct prefetch *prefetch)
{
	for (int r = 0; r < rows->count; r += DOT_ROWS) {
		const float *q = rows->q + (int64_t)r * KVK_MLA_WIDTH;
		float *score = rows->score + (int64_t)(r / GROUP * GROUP) * KVK_MLA_SCORE_KEYS + r % GROUP;
		int n = from;

		for (; n + 6 <= from + keys; n += 6)
			dot_block(score + n * GROUP, GROUP, rows->keys + n * PANEL, q, 6, prefetch);
		for (; n < from + keys; n += 4)
			dot_block(score + n * GROUP, GROUP, rows->keys + n * PANEL, q, 4, prefetch);
	}
}

#else

/*
 * score[m][v] = dot(key m, row v) for `keys` keys and `vectors` vectors of rows; `width` rows in the group.
 */
KVK_INLINE void dot_block(float *score, const float *k, const float *q, int width, int keys, int vectors,
			  struct prefetch *prefetch)
{
	vf sum[DOT_KEYS_NARROW][2];

	KVK_UNROLL
	for (int m = 0; m < keys; m++)
		KVK_UNROLL
	for (int v = 0; v < vectors; v++)
		sum[m][v] = vf_set(0);
	for (int panel = 0; panel < KVK_MLA_PANELS; panel++) {
		for (int d = 0; d < PANEL; d++) {
			vf row[2];

			KVK_UNROLL
			for (int v = 0; v < vectors; v++)
				row[v] = vf_load(q + d * width + v * L);
			KVK_UNROLL
			for (int m = 0; m < keys; m++) {
				const vf key = vf_set(k[m * PANEL + d]);

				KVK_UNROLL
				for (int v = 0; v < vectors; v++)
					sum[m][v] = vf_fma(key, row[v], sum[m][v]);
			}
		}
		prefetch_some(prefetch);
		k += KVK_MLA_PANEL_STRIDE;
		q += PANEL * width;
	}
	KVK_UNROLL
	for (int m = 0; m < keys; m++)
		KVK_UNROLL
	for (int v = 0; v < vectors; v++)
		vf_store(score + m * width + v * L, sum[m][v]);
}

/* A group of two vectors of rows against all keys; up to three more keys are computed for nothing. */
static void dot_wide(float *score, const float *k, const float *q, int keys, struct prefetch *prefetch)
{
	int n = 0;

	for (; n + DOT_KEYS <= keys; n += DOT_KEYS)
		dot_block(score + n * GROUP, k + n * PANEL, q, GROUP, DOT_KEYS, 2, prefetch);
	for (; DOT_KEYS > 8 && n + 8 <= keys; n += 8)
		dot_block(score + n * GROUP, k + n * PANEL, q, GROUP, 8, 2, prefetch);
	for (; n < keys; n += 4)
		dot_block(score + n * GROUP, k + n * PANEL, q, GROUP, 4, 2, prefetch);
}

static void dot_narrow(float *score, const float *k, const float *q, int keys, struct prefetch *prefetch)
{
	int n = 0;

	for (; n + DOT_KEYS_NARROW <= keys; n += DOT_KEYS_NARROW)
		dot_block(score + n * L, k + n * PANEL, q, L, DOT_KEYS_NARROW, 1, prefetch);
	for (; n + 8 <= keys; n += 8)
		dot_block(score + n * L, k + n * PANEL, q, L, 8, 1, prefetch);
	for (; n < keys; n += 4)
		dot_block(score + n * L, k + n * PANEL, q, L, 4, 1, prefetch);
}

/* Scores of `keys` keys from key `from` of the tile on, all rows. */
static void all_dots(const struct kvk_mla_rows *rows, int from, int keys, struct prefetch *prefetch)
{
	for (int r = 0; r < rows->count; r += GROUP) {
		const int width = group_width(rows->count, r);
		float *score = rows->score + (int64_t)r * KVK_MLA_SCORE_KEYS + from * width;
		const float *q = rows->q + (int64_t)r * KVK_MLA_WIDTH;
		const float *k = rows->keys + from * PANEL;

		if (width == GROUP)
			dot_wide(score, k, q, keys, prefetch);
		else
			dot_narrow(score, k, q, keys, prefetch);
	}
}

#endif

#endif
