/* SPDX-License-Identifier: Apache-2.0 */
/* Which sequence a query row belongs to; see "Query rows" in kvpool/kernels.h. */
#ifndef KVPOOL_KERNELS_CUDA_ROWS_H
#define KVPOOL_KERNELS_CUDA_ROWS_H

#include "ptx.h"

struct kvk_row {
	int32_t sequence; /* -1: padding */
	int32_t index;    /* in the sequence's rows */
	int32_t count;    /* of them */
};

/* The last sequence that begins at or before `row`; those without rows are passed over. */
KVK_DEVICE int32_t kvk_find_sequence(const int32_t *cu_q, int32_t batch, int32_t row)
{
	int32_t low = 0, high = batch; /* cu_q[low] <= row < cu_q[high] */

	while (high - low > 1) {
		const int32_t middle = low + (high - low) / 2;

		if (cu_q[middle] <= row)
			low = middle;
		else
			high = middle;
	}
	return low;
}

KVK_DEVICE kvk_row kvk_find_row(const int32_t *cu_q, int32_t s_q, int32_t batch, int32_t row)
{
	int32_t sequence;

	if (!cu_q) {
		if (!s_q || row / s_q >= batch)
			return {-1, 0, 0};
		return {row / s_q, row % s_q, s_q};
	}
	if (!batch || row < cu_q[0] || row >= cu_q[batch])
		return {-1, 0, 0};
	sequence = kvk_find_sequence(cu_q, batch, row);
	return {sequence, row - cu_q[sequence], cu_q[sequence + 1] - cu_q[sequence]};
}

/* Keys that the row sees of a sequence of length `len`: bottom-right aligned when causal. */
KVK_DEVICE int32_t kvk_visible_keys(int32_t len, kvk_row row, bool causal)
{
	int32_t seen = len > 0 ? len : 0;

	if (causal)
		seen -= row.count - 1 - row.index;
	return seen > 0 ? seen : 0;
}

#endif
