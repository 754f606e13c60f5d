/* SPDX-License-Identifier: Apache-2.0 */
/* For gqa_loops.c: a tile's scores become weights, and the rows' maxima and sums go on. */
#ifndef KVPOOL_KERNELS_GQA_SOFTMAX_H
#define KVPOOL_KERNELS_GQA_SOFTMAX_H

#include "gqa_tile.h"
#include "simd.h"

/* Scores of keys that a row does not see, or that are not there, become -INF. */
static void mask_scores(struct kvk_gqa_tile *tile, const struct kvk_gqa_keys *keys)
{
	for (int row = 0; row < tile->rows; row++)
		for (int n = keys->mixed ? keys->seen[row] : keys->count; n < KEYS; n++)
			tile->score[row * KEYS + n] = -INFINITY;
}

/* The largest lane, in all lanes. */
KVK_INLINE vf spread_largest(vf a)
{
#if KVK_LANES == 16
	a = vf_max(a, KVK_SHUFFLE(a, a, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
	a = vf_max(a, KVK_SHUFFLE(a, a, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
	a = vf_max(a, KVK_SHUFFLE(a, a, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13));
	return vf_max(a, KVK_SHUFFLE(a, a, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14));
#elif KVK_LANES == 8
	a = vf_max(a, KVK_SHUFFLE(a, a, 4, 5, 6, 7, 0, 1, 2, 3));
	a = vf_max(a, KVK_SHUFFLE(a, a, 2, 3, 0, 1, 6, 7, 4, 5));
	return vf_max(a, KVK_SHUFFLE(a, a, 1, 0, 3, 2, 5, 4, 7, 6));
#else
	a = vf_max(a, KVK_SHUFFLE(a, a, 2, 3, 0, 1));
	return vf_max(a, KVK_SHUFFLE(a, a, 1, 0, 3, 2));
#endif
}

/* The largest score of a row, in all lanes. */
KVK_INLINE vf row_largest(const float *score)
{
	vf part[4];

	KVK_UNROLL
	for (int i = 0; i < 4; i++)
		part[i] = vf_load(score + i * KVK_LANES);
	for (int n = 4 * KVK_LANES; n < KEYS; n += 4 * KVK_LANES)
		KVK_UNROLL
	for (int i = 0; i < 4; i++)
		part[i] = vf_max(vf_load(score + n + i * KVK_LANES), part[i]);
	return spread_largest(vf_max(vf_max(part[0], part[1]), vf_max(part[2], part[3])));
}

/* A row's scores become weights; returns their sums. */
KVK_INLINE vf row_weights(float *score, vf top)
{
	vf part[4];

	KVK_UNROLL
	for (int i = 0; i < 4; i++)
		part[i] = (vf){0};
	for (int n = 0; n < KEYS; n += 4 * KVK_LANES)
		KVK_UNROLL
	for (int i = 0; i < 4; i++) {
		float *place = score + n + i * KVK_LANES;
		const vf weight = vf_exp2(vf_load(place) - top);

		part[i] += weight;
		vf_store(place, weight);
	}
	return (part[0] + part[1]) + (part[2] + part[3]);
}

/* In three passes, so that no row waits for another step of its own. */
static void softmax(struct kvk_gqa_tile *tile, const struct kvk_gqa_state *state)
{
	float fall[KVK_GQA_ROWS] KVK_GQA_ALIGNED = {0}; /* from the old maximum to the new one */

	for (int row = 0; row < tile->rows; row++) {
		const float old = state->max[row];
		const float top = vf_max(row_largest(tile->score + row * KEYS), vf_set(old))[0];

		fall[row] = old - top;
		state->max[row] = top;
	}
	for (int row = 0; row < tile->rows; row += KVK_LANES)
		vf_store(tile->keep + row, vf_exp2(vf_load(fall + row)));
	for (int row = 0; row < tile->rows; row++) {
		float *sum = state->sum + row * KVK_GQA_MAX_LANES;
		const vf more = row_weights(tile->score + row * KEYS, vf_set(state->max[row]));

		vf_store(sum, vf_fma(vf_load(sum), vf_set(tile->keep[row]), more));
	}
}

#endif
