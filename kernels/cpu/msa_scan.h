/* SPDX-License-Identifier: Apache-2.0 */
/* The inner step of MSA's block scores: four index queries over a tile of keys. msa_loops.c explains. */
#ifndef KVPOOL_KERNELS_MSA_SCAN_H
#define KVPOOL_KERNELS_MSA_SCAN_H

#include <stdint.h>

#define KVK_MSA_QUERIES 4     /* that share a converted key */
#define KVK_MSA_KEYS 32       /* of a tile */
#define KVK_MSA_LANES 16      /* the most of any level */
#define KVK_MSA_WIDTH 512     /* KVK_MAX_HEAD_DIM */
#define KVK_MSA_WIDTH_STEP 32 /* widths are padded with zeros to a multiple: two vectors at every level */

#define KVK_MSA_ALIGNED __attribute__((aligned(64)))

/* Where the rows of a tile of keys lie. */
struct kvk_msa_keys {
	int count;
	const char *row[KVK_MSA_KEYS];
};

struct kvk_msa_scan {
	int dim;        /* elements of a row in memory */
	int width;      /* of a converted row */
	uint32_t dtype; /* of the keys */
	const float *q; /* [4][width], in the order of a converted key; 64-byte aligned */
	int packed;     /* they are bf16, [4][width] in order, in as much of that memory as they need */

	/*
	 * Over the keys so far, lane by lane; lane i is query i % 4. Those that a level doesn't have are
	 * not touched.
	 */
	float best[KVK_MSA_LANES] KVK_MSA_ALIGNED;
	int32_t bad[KVK_MSA_LANES] KVK_MSA_ALIGNED; /* not 0: a product was NaN */
};

struct kvk_msa_ops {
	/*
	 * Four queries, each `width` elements in order, are brought into the order of a converted key. Returns 1
	 * where they are packed instead: a level that multiplies bf16 does so where nothing is lost by it.
	 */
	int (*order_queries)(float *ordered, const float *q, int width, uint32_t key_dtype);
	/* Goes over the first `count` of `now`, at least one, fetching `next` into the caches meanwhile. */
	void (*scan)(struct kvk_msa_scan *scan, const struct kvk_msa_keys *now, int count,
		     const struct kvk_msa_keys *next);
};

#endif
