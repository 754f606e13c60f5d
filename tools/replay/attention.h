/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of a replayed step: MLA over the first latent plane with the step's own arrays, and at sampled
 * rows the same by the fp64 reference. Everything is allocated beforehand, but for the kernel's scratch: that of
 * the first step with the widest table.
 */
#ifndef KVPOOL_TOOLS_REPLAY_ATTENTION_H
#define KVPOOL_TOOLS_REPLAY_ATTENTION_H

#include <stdbool.h>
#include <stdint.h>

#include <kvpool/kernels.h>
#include <kvpool/kvpool.h>

#include "plane.h"

/* Largest difference from the reference, as a part of the row's largest magnitude. */
#define REP_ATTENTION_TOLERANCE 1e-4

struct rep_attention {
	const struct rep_plane *plane; /* NULL: the pool has no latent plane; nothing is computed */
	struct kvk_mla_dense_params params;
	uint32_t heads;
	float *query;     /* [batch, heads, 576] */
	float *out;       /* [batch, heads, 512] */
	float *reference; /* [heads, 512] */
	void *scratch;    /* of the kernel */
	size_t scratch_bytes;
};

int rep_attention_init(struct rep_attention *attention, const struct rep_planes *planes,
		       const struct kvp_pool_info *pool, uint32_t batch, uint32_t heads);
void rep_attention_free(struct rep_attention *attention);

/* Queries of a row: a function of the request and the length. */
void rep_attention_query(struct rep_attention *attention, uint32_t row, uint64_t seed);
/* The kernel over all rows of the step. 0 or its error. */
int rep_attention_run(struct rep_attention *attention, const struct kvp_batch_view *view);

struct rep_attention_mismatch {
	uint32_t element; /* in [heads, 512] */
	double got;
	double wanted;
};
/* The reference of one row. 0: equal enough; 1 and *out; or a negative error. */
int rep_attention_compare(struct rep_attention *attention, const struct kvp_batch_view *view, uint32_t row,
			  struct rep_attention_mismatch *out);

#endif
