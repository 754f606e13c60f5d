/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the inner loops of MLA decode (mla_loops.c, mla_rows_loops.c) and the code around them (mla.c) agree
 * on.
 *
 * A tile is up to KVK_MLA_TILE_ROWS query rows against up to KVK_MLA_TILE_KEYS keys, whose columns are taken
 * in panels of 64. Layouts, all f32:
 *
 *	keys	[9 panels][KVK_MLA_TILE_KEYS + 12][64]: a key's columns are contiguous enough to be broadcast
 *		(Q K^T) and to be loaded as vectors (P V)
 *	score	rows in groups of KVK_MLA_GROUP(), the last one narrower perhaps; a group is
 *		[KVK_MLA_SCORE_KEYS][its width], the group of row r starts at score + r * KVK_MLA_SCORE_KEYS
 *	q	the same groups, [576][width], from q + r * 576 on; 16 lanes and not wide: [rows][576]
 *	out	[rows][512]
 *
 * Rows are padded to a multiple of the level's lanes, at most KVK_MLA_PAD; padding rows have zero queries and
 * nothing of them is read afterwards.
 */
#ifndef KVPOOL_KERNELS_MLA_LOOPS_H
#define KVPOOL_KERNELS_MLA_LOOPS_H

#include <kvpool/kernels.h>

#include <stdbool.h>

#define KVK_MLA_TILE_ROWS 128
#define KVK_MLA_TILE_KEYS 64
#define KVK_MLA_SCORE_KEYS (KVK_MLA_TILE_KEYS + 4) /* blocks of keys may reach over the end */
#define KVK_MLA_PAD 16
#define KVK_MLA_WIDE 64 /* rows of a group in the wide form */
#define KVK_MLA_PANEL 64
#define KVK_MLA_PANELS (KVK_MLA_WIDTH / KVK_MLA_PANEL)
/*
 * Floats from panel to panel of a tile of keys: 12 keys more than a multiple of 4 KiB, so that the panels of 12
 * keys cover the sets of L1 evenly.
 */
#define KVK_MLA_PANEL_STRIDE ((KVK_MLA_TILE_KEYS + 12) * KVK_MLA_PANEL)
#define KVK_MLA_FOLD 64          /* partials merged at a time */
#define KVK_MLA_MIN_MAX (-1e30f) /* running maximum before the first key: finite, below every real one */

/* Rows in a group at a level of so many lanes, and in the group that starts at row r of `rows`. */
#define KVK_MLA_GROUP(lanes, wide) ((lanes) != 16 ? 2 * (lanes) : (wide) ? KVK_MLA_WIDE : 16)
#define KVK_MLA_GROUP_WIDTH(lanes, wide, rows, r)                                                            \
	((rows) - (r) > (lanes) ? KVK_MLA_GROUP(lanes, wide) : (lanes))

/* Rows of queries on their way over the keys of a split. Arrays are 64-byte aligned. */
struct kvk_mla_rows {
	int count;
	bool wide;              /* heads are a multiple of KVK_MLA_WIDE, and so is count */
	float scale_log2;       /* of the logits, times log2(e) */
	const float *q;         /* packed queries */
	const int32_t *visible; /* [count] keys of the split that a row sees, does not decrease; NULL: all */
	float *keys;            /* [KVK_MLA_PANELS][KVK_MLA_PANEL_STRIDE], room for a tile's keys */
	float *score;           /* room for one tile of scores */
	float *keep;            /* room for [count padded] */
	float *out;             /* [count][512], not normalised */
	float *max;             /* [count padded], in units of log2 */
	float *sum;             /* [count padded], of 2^(score - max) */
};

/* A tile's keys where they lie in the cache. */
struct kvk_mla_keys {
	int count;
	const void *row[KVK_MLA_TILE_KEYS];
};

/* Partial results of one row, to be merged in the order given. */
struct kvk_mla_fold {
	int partials;
	int64_t out_stride;  /* between the partials' rows of out, in floats */
	int64_t stat_stride; /* between their max and sum */
	const float *out;
	const float *max, *sum;
	float *acc_out; /* [512], what was merged before; only read when *acc_sum is not 0 */
	float *acc_max, *acc_sum;
};

/* mla_rows_loops.c */
struct kvk_mla_row_ops {
	/* rows[0, count) at q_dtype become packed queries. */
	void (*pack_queries)(float *q, const void *const *rows, int count, bool wide, uint32_t q_dtype);
	/* Merges at most KVK_MLA_FOLD partials into the accumulator. */
	void (*fold)(const struct kvk_mla_fold *fold);
	/* 512 results times factor, at any address; zeros for row NULL. */
	void (*store_row)(void *out, uint32_t dtype, const float *row, float factor);
};

/* mla_loops.c */
struct kvk_mla_ops {
	/*
	 * Adds one tile of keys, the first of which is key `first` of the split. The rows of `next` (or
	 * NULL) are brought near meanwhile.
	 */
	void (*attend)(const struct kvk_mla_rows *rows, int first, const struct kvk_mla_keys *keys,
		       const struct kvk_mla_keys *next, uint32_t kv_dtype);
};

#endif
