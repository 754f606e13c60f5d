/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inner step of the portable attention kernels: a tile of query rows against a tile of keys, all in f32.
 *
 * Keys come in tiles of KVK_TILE_KEYS counted from the sequence's first key, whatever the page size, and a
 * query row never meets another one: so a row's result depends on its own inputs alone, not on its batch
 * mates (bitwise). The softmax is online, in powers of two, with a finite start of the running maximum: no
 * (-INF) - (-INF) can arise.
 */
#ifndef KVPOOL_KERNELS_TILE_H
#define KVPOOL_KERNELS_TILE_H

#include "level.h"

#include <stdint.h>

#define KVK_TILE_ROWS 16 /* query rows that share a converted key */
#define KVK_TILE_KEYS 32
#define KVK_TILE_LANES 16 /* row widths are padded with zeros to a multiple of this */
#define KVK_TILE_GROUP 4  /* rows computed together: rows are padded with zero queries to a multiple */

#define KVK_TILE_WIDTH(n) (((n) + KVK_TILE_LANES - 1) / KVK_TILE_LANES * KVK_TILE_LANES)

#define KVK_TILE_START_MAX (-1e30f) /* running maximum before the first key */
#define KVK_TILE_MASKED (-1e33f)    /* a score so far below it that its weight is 0 */

/* A tile of query rows on its way over the keys. The arrays are the caller's, 64-byte aligned. */
struct kvk_tile {
	int rows;         /* in use */
	int key_width;    /* of q and of the key rows, a multiple of KVK_TILE_LANES */
	int value_width;  /* of out and used of the value rows, a multiple of KVK_TILE_LANES */
	int value_stride; /* between value rows */
	float scale_log2; /* of the logits, times log2(e) */
	const float *q;   /* [rows padded][key_width] */
	float *out;       /* [rows padded][value_width], not yet normalised */
	float max[KVK_TILE_ROWS];
	float sum[KVK_TILE_ROWS];
};

/* The inner loops as built for one instruction set level. */
struct kvk_tile_ops {
	/*
	 * Adds `keys` keys (1 to KVK_TILE_KEYS): k [KVK_TILE_KEYS][key_width], v
	 * [KVK_TILE_KEYS][value_stride]. With `keys` odd the key row behind the last is read too and must be
	 * finite; value rows there are not touched.
	 */
	void (*attend)(struct kvk_tile *tile, const float *k, const float *v, int keys);
	/* `count` codes, at any address, become f32. */
	void (*load_bf16)(float *dst, const void *codes, int count);
	void (*load_f16)(float *dst, const void *codes, int count);
	void (*load_e4m3)(float *dst, const void *codes, float scale, int count);
};

/* The loops of a level. */
const struct kvk_tile_ops *kvk_tile_ops(enum kvk_level level);

/* Clears max, sum and out for the rows padded to KVK_TILE_GROUP. */
void kvk_tile_begin(struct kvk_tile *tile);

/* Natural logarithm of row's sum; +INF when no key had weight. */
float kvk_tile_lse(const struct kvk_tile *tile, int row);

/* Writes `count` normalised elements of `row` to element `offset` of an array; `sink` or NULL. */
void kvk_tile_store(const struct kvk_tile *tile, int row, const float *sink, void *array, uint32_t dtype,
		    int64_t offset, int count);

/* `count` elements at `src` (bf16, f16, f32) become f32, followed by zeros up to `width`. */
void kvk_tile_load(const struct kvk_tile_ops *ops, float *dst, const void *src, uint32_t dtype, int count,
		   int width);

/* A KVK_MLA_FP8 row becomes 576 f32. */
void kvk_tile_load_fp8(const struct kvk_tile_ops *ops, float *dst, const void *src);

#endif
