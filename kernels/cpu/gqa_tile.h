/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inner step of grouped attention: a tile of query rows that read one KV head against a tile of its
 * keys. Heads of a band, which gqa_call.c explains, take turns with one tile. Each key and value row is
 * converted to f32 once a tile, whatever the number of query rows.
 * gqa_loops.c holds the loops and explains them.
 *
 * A row never meets another one, and keys come in the tiles and splits that gqa_call.c counts from the
 * row's own first key: so a row's bits depend on its own inputs alone.
 */
#ifndef KVPOOL_KERNELS_GQA_TILE_H
#define KVPOOL_KERNELS_GQA_TILE_H

#include "level.h"

#include <stdint.h>

#define KVK_GQA_KEYS 64        /* keys of a tile */
#define KVK_GQA_ROWS 64        /* query rows of a tile, at most */
#define KVK_GQA_ELEMENTS 8192  /* rows * width of a tile, at most: 32 KiB */
#define KVK_GQA_PANEL 64       /* elements of a row that are converted at a time */
#define KVK_GQA_WIDTH_STEP 32  /* widths are padded with zeros to a multiple: two vectors at every level */
#define KVK_GQA_MAX_WIDTH 512  /* KVK_MAX_HEAD_DIM, padded */
#define KVK_GQA_MAX_LANES 16   /* of any level */
#define KVK_GQA_PIECE 256      /* bytes of a row that are fetched at a time */
#define KVK_GQA_ROW_PIECES 32  /* of four heads of 512 f32 */
#define KVK_GQA_PIECES 1088    /* of a tile: 8 of each key and value, some of them repeated */
#define KVK_GQA_REPEATED 16    /* a visit takes fewer: see gqa_fetch.h */
#define KVK_GQA_VALUES_AHEAD 6 /* keys whose rows are repeated behind the last one, to be asked for */
/* The running maximum before the first key: finite, so that no INF - INF arises. */
#define KVK_GQA_START_MAX -1e30f

#define KVK_GQA_ALIGNED __attribute__((aligned(64)))

/* What a tile of rows knows after some of its keys: the result is out / (the sum of the row's sums). */
struct kvk_gqa_state {
	float *out; /* [rows][width] weighted values, in the order of a converted row; aligned, as `sum` */
	float *sum; /* [rows][KVK_GQA_MAX_LANES] of the weights 2^(score - max), lane by lane */
	float *max; /* [rows] largest score */
};

/* A tile of keys: where their rows lie, key and value of each in turn, and how many each query row sees. */
struct kvk_gqa_keys {
	int count;
	int mixed;              /* not all rows see all keys */
	int seen[KVK_GQA_ROWS]; /* leading keys of the tile; with `mixed` */
	const char *row[2 * (KVK_GQA_KEYS + KVK_GQA_VALUES_AHEAD)];
};

/* The working memory of one thread, on its stack. */
struct kvk_gqa_tile {
	int rows;              /* of a head of the band, 1 to KVK_GQA_ROWS */
	int head, heads;       /* of the band: the one in turn, and how many */
	int64_t head_bytes[2]; /* in memory from a head to the next one, of keys and of values */
	int row_pieces;        /* that the band's heads have of a row in memory */
	int64_t piece_offset[2][KVK_GQA_ROW_PIECES];
	int width;        /* of converted rows */
	int dim;          /* elements of a row in memory */
	uint32_t dtype;   /* of the keys and values */
	float scale_log2; /* of the logits, times log2(e) */

	float q[KVK_GQA_ELEMENTS] KVK_GQA_ALIGNED; /* [heads][width][rows], times scale_log2 */
	float panel[KVK_GQA_KEYS *
		    KVK_GQA_PANEL] KVK_GQA_ALIGNED; /* of keys [elements][keys], of values [keys][elements] */
	float some[KVK_GQA_MAX_LANES * KVK_GQA_PANEL] KVK_GQA_ALIGNED; /* of key rows on their way */
	float score[KVK_GQA_ROWS * KVK_GQA_KEYS] KVK_GQA_ALIGNED;      /* [rows][keys], then the weights */
	float keep[KVK_GQA_ROWS] KVK_GQA_ALIGNED; /* what old values are multiplied with */
	struct kvk_gqa_keys keys[2];
	const char *piece[KVK_GQA_PIECES]; /* of the next keys, in the order they are asked for */
};

struct kvk_gqa_ops {
	/* Row `row` of the tile's head gets the query at `q`, of `dtype`. */
	void (*load_query)(struct kvk_gqa_tile *tile, int row, const void *q, uint32_t dtype);
	/* Goes over `now`, at least one key, fetching `next` into the caches meanwhile. */
	void (*attend)(struct kvk_gqa_tile *tile, const struct kvk_gqa_state *state,
		       const struct kvk_gqa_keys *now, const struct kvk_gqa_keys *next);
	/* Adds the keys of `more`, which come behind those of `state`. */
	void (*merge)(const struct kvk_gqa_tile *tile, const struct kvk_gqa_state *state,
		      const struct kvk_gqa_state *more);
	/* Writes row `row`, divided by `sum`, to `out` of `dtype`. */
	void (*store)(const struct kvk_gqa_tile *tile, const struct kvk_gqa_state *state, int row, float sum,
		      void *out, uint32_t dtype);
};

#endif
