/* SPDX-License-Identifier: Apache-2.0 */
/* What kvk_stage_cuda() copies: the host writes it, the device reads it. */
#ifndef KVPOOL_KERNELS_CUDA_STAGE_H
#define KVPOOL_KERNELS_CUDA_STAGE_H

#include <stdint.h>

#define KVK_STAGE_ARRAYS 12

struct kvk_stage_array {
	const int32_t *from;
	int32_t *to;
	int64_t words;
};

/* Entries [first, end) of a step's row `position` belong to the row `row` of those that stay. */
struct kvk_stage_run {
	int32_t position, row;
	int32_t first, end;
};

#endif
