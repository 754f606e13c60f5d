/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Q K^T of a tile, for mla_loops.c. Two forms, by what the level's loads can feed:
 *
 * Rows across the lanes, keys broadcast: no sum over lanes, keys need no transposition. With up to 8 lanes a
 * block of 6 keys and two vectors of rows has 8 loads for 12 multiply-adds, with 16 lanes and groups of 64
 * rows one of 6 keys and four vectors 10 loads for 24. Blocks of scores are carried from panel to panel, so
 * that a panel of the keys and one of a group's queries stay in L1:
 *
 *	for each chunk of 48 keys, for each panel:	widen it; for each group, for each block of keys
 *
 * Columns across the lanes (16 lanes and fewer rows): 16 rows, one rank's share of 128 heads, are a single
 * vector there, and every broadcast would serve one multiply-add only: the load ports would set the pace. A
 * block of 6 keys and 4 rows has 10 loads for 24 multiply-adds, and its results leave it through trees of
 * additions, 8 % of the work. All columns of fewer keys stay in L1:
 *
 *	for each chunk of 12 keys:	widen it; for each 4 rows, for each block of keys
 */
#ifndef KVPOOL_KERNELS_MLA_DOTS_H
#define KVPOOL_KERNELS_MLA_DOTS_H

#include "mla_keys.h"
#include "mla_loops.h"
#include "quads.h"
#include "simd.h"

#define KEYS KVK_MLA_TILE_KEYS
#define L KVK_LANES

/* Vectors of rows and keys in a block of a whole group, and keys in one of a single vector. */
#if defined(KVK_SIMD_AVX512)
#define DOT_VECTORS 4
#else
#define DOT_VECTORS 2
#endif
#if defined(KVK_SIMD_NEON)
#define DOT_KEYS 12
#define DOT_KEYS_NARROW 24
#else
#define DOT_KEYS 6
#define DOT_KEYS_NARROW 12
#endif
#define DOT_ROWS 4 /* rows in a block with columns across the lanes */
#define ROWS_CHUNK 48
#define COLUMNS_CHUNK 12

/* Lines of the next tile's rows, to be asked for at an even pace: faster than memory delivers, they stall. */
struct ask {
	const struct kvk_mla_keys *keys;
	int bytes;       /* of a row */
	int key, offset; /* of the next line */
	int lines;       /* to ask for in ... */
	int turns;       /* ... so many turns */
	int credit;
};

static int row_bytes(uint32_t dtype)
{
	return dtype == KVK_MLA_FP8 ? KVK_MLA_FP8_ROW_BYTES : KVK_MLA_WIDTH * (dtype == KVK_F32 ? 4 : 2);
}

/* Lines that were not asked for yet. */
static int lines_left(const struct ask *at)
{
	return (at->keys->count - at->key) * (at->bytes / 64 + 1);
}

/* At most one line a turn. */
static void set_pace(struct ask *at, int lines, int turns)
{
	at->lines = lines < turns ? lines : turns;
	at->turns = turns;
	at->credit = 0;
}

/* One turn. */
KVK_INLINE void ask_turn(struct ask *at)
{
	at->credit += at->lines;
	if (at->credit < at->turns || at->key >= at->keys->count)
		return;
	at->credit -= at->turns;
	__builtin_prefetch((const char *)at->keys->row[at->key] + at->offset, 0, 2);
	at->offset += 64;
	if (at->offset >= at->bytes) {
		at->offset = 0;
		at->key++;
	}
}

/* Which form the dots take. */
KVK_INLINE bool lanes_are_columns(const struct kvk_mla_rows *rows)
{
	return L == 16 && !rows->wide;
}

KVK_INLINE int group_rows(const struct kvk_mla_rows *rows)
{
	return KVK_MLA_GROUP(L, rows->wide);
}

KVK_INLINE int group_width(const struct kvk_mla_rows *rows, int r)
{
	return KVK_MLA_GROUP_WIDTH(L, rows->wide, rows->count, r);
}

/* Where the scores of row r begin. */
KVK_INLINE float *row_score(const struct kvk_mla_rows *rows, int r)
{
	const int group = r / group_rows(rows) * group_rows(rows);

	return rows->score + (int64_t)group * KVK_MLA_SCORE_KEYS + (r - group);
}

/* ------------------------------------------------------------------ rows across the lanes */

/* score[m][v] = dot(key m, rows v) over a panel, added to what is there unless it is the first panel. */
KVK_INLINE void dot_rows(float *score, const float *k, const float *q, int width, bool first, int keys,
			 int vectors)
{
	vf sum[DOT_KEYS_NARROW][DOT_VECTORS];

	KVK_UNROLL
	for (int m = 0; m < keys; m++)
		KVK_UNROLL
	for (int v = 0; v < vectors; v++)
		sum[m][v] = first ? vf_set(0) : vf_load(score + m * width + v * L);
	KVK_NO_UNROLL
	for (int d = 0; d < PANEL; d++) {
		vf row[DOT_VECTORS];

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
	KVK_UNROLL
	for (int m = 0; m < keys; m++)
		KVK_UNROLL
	for (int v = 0; v < vectors; v++)
		vf_store(score + m * width + v * L, sum[m][v]);
}

/* A panel of a group of `vectors` vectors against `keys` keys, in blocks of `most` of them. */
KVK_INLINE void dot_group(float *score, const float *k, const float *q, bool first, int keys, int most,
			  int vectors, struct ask *ask)
{
	const int width = vectors * L;

	for (int n = 0; n < keys;) {
		const int left = keys - n;
		int count = 4;

		if (left >= most && left != 8) {
			count = most;
			dot_rows(score + n * width, k + n * PANEL, q, width, first, most, vectors);
		} else if (most > 8 && left >= 8) {
			count = 8;
			dot_rows(score + n * width, k + n * PANEL, q, width, first, 8, vectors);
		} else {
			dot_rows(score + n * width, k + n * PANEL, q, width, first, 4, vectors);
		}
		ask_turn(ask);
		n += count;
	}
}

static void dot_wide(float *score, const float *k, const float *q, bool first, int keys, struct ask *ask)
{
	dot_group(score, k, q, first, keys, DOT_KEYS, DOT_VECTORS, ask);
}

static void dot_narrow(float *score, const float *k, const float *q, bool first, int keys, struct ask *ask)
{
	dot_group(score, k, q, first, keys, DOT_KEYS_NARROW, 1, ask);
}

static void dots_across_rows(const struct kvk_mla_rows *rows, const struct tile *tile, int from, int keys,
			     struct ask *ask)
{
	for (int panel = 0; panel < KVK_MLA_PANELS; panel++) {
		const float *k = tile_panel(tile, panel, from);

		load_keys(tile, from, from + keys, panel, 1);
		for (int r = 0; r < rows->count; r += group_rows(rows)) {
			const int width = group_width(rows, r);
			float *score = row_score(rows, r) + from * width;
			const float *q = rows->q + (int64_t)r * KVK_MLA_WIDTH + panel * PANEL * width;

			if (width == DOT_VECTORS * L)
				dot_wide(score, k, q, panel == 0, keys, ask);
			else
				dot_narrow(score, k, q, panel == 0, keys, ask);
		}
	}
}

/* ------------------------------------------------------------------ columns across the lanes */

#if KVK_LANES == 16

/* Lane i: the sum of the lanes of vector i; all additions are the same ones for each vector. */
KVK_INLINE vf sum_each(const vf *part, int count)
{
	vf quad[4], half[2];

	KVK_UNROLL
	for (int i = 0; i < count / 4; i++) {
		const vf *p = part + 4 * i;
		const vf low = LOW_WORDS(p[0], p[1]) + HIGH_WORDS(p[0], p[1]);
		const vf high = LOW_WORDS(p[2], p[3]) + HIGH_WORDS(p[2], p[3]);

		quad[i] = LOW_PAIRS(low, high) + HIGH_PAIRS(low, high);
	}
	KVK_UNROLL
	for (int i = 0; i < count / 8; i++)
		half[i] =
			LOW_HALVES(quad[2 * i], quad[2 * i + 1]) + HIGH_HALVES(quad[2 * i], quad[2 * i + 1]);
	if (count == 8)
		half[1] = half[0];
	return EVEN_QUADS(half[0], half[1]) + ODD_QUADS(half[0], half[1]);
}

/* Four sums of a key each; six keys are four and two. */
KVK_INLINE void store_sums(float *score, const vf *sum, int keys)
{
	const __m512 first = (__m512)sum_each(sum, 16);

	_mm_store_ps(score, _mm512_extractf32x4_ps(first, 0));
	_mm_store_ps(score + L, _mm512_extractf32x4_ps(first, 1));
	_mm_store_ps(score + 2 * L, _mm512_extractf32x4_ps(first, 2));
	_mm_store_ps(score + 3 * L, _mm512_extractf32x4_ps(first, 3));
	if (keys == 6) {
		const __m512 second = (__m512)sum_each(sum + 16, 8);

		_mm_store_ps(score + 4 * L, _mm512_extractf32x4_ps(second, 0));
		_mm_store_ps(score + 5 * L, _mm512_extractf32x4_ps(second, 1));
	}
}

/* score[key][row] of 4 or 6 keys and 4 rows. */
KVK_INLINE void dot_columns(float *score, const float *k, const float *q, int keys, struct ask *ask)
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
		ask_turn(ask);
		k += KVK_MLA_PANEL_STRIDE;
		q += PANEL;
	}
	store_sums(score, sum, keys);
}

static void dots_across_columns(const struct kvk_mla_rows *rows, const struct tile *tile, int from, int keys,
				struct ask *ask)
{
	load_keys(tile, from, from + keys, 0, KVK_MLA_PANELS);
	for (int r = 0; r < rows->count; r += DOT_ROWS) {
		const float *q = rows->q + (int64_t)r * KVK_MLA_WIDTH;
		const float *k = tile_panel(tile, 0, from);
		float *score = rows->score + r / L * L * KVK_MLA_SCORE_KEYS + from * L + r % L;
		int n = 0;

		for (; keys - n >= 6 && keys - n != 8; n += 6)
			dot_columns(score + n * L, k + n * PANEL, q, 6, ask);
		for (; n < keys; n += 4)
			dot_columns(score + n * L, k + n * PANEL, q, 4, ask);
	}
}

#endif

/* ------------------------------------------------------------------ either */

/*
 * Scores of all keys of the tile; up to 3 more may be met for nothing. Half of the lines that are to be asked
 * for are, evenly.
 */
static void all_dots(const struct kvk_mla_rows *rows, const struct tile *tile, struct ask *ask)
{
	const bool columns = lanes_are_columns(rows);
	const int chunk = columns ? COLUMNS_CHUNK : ROWS_CHUNK;
	const int height = columns ? DOT_ROWS : group_rows(rows);
	const int count = tile->keys->count;

	set_pace(ask, lines_left(ask) / 2,
		 (rows->count + height - 1) / height * KVK_MLA_PANELS * ((count + DOT_KEYS - 1) / DOT_KEYS));
	for (int n = 0; n < count; n += chunk) {
		const int keys = n + chunk < count ? chunk : count - n;

#if KVK_LANES == 16
		if (columns) {
			dots_across_columns(rows, tile, n, keys, ask);
			continue;
		}
#endif
		dots_across_rows(rows, tile, n, keys, ask);
	}
}

#endif
