/* SPDX-License-Identifier: Apache-2.0 */
/* The parameter of every kernel in planted_boxes.cu. C and C++. */
#ifndef KVPOOL_TEST_SIMT_PLANTED_BOXES_H
#define KVPOOL_TEST_SIMT_PLANTED_BOXES_H

#include "cuda/args.h"

#define BOXES_THREADS 64
#define BOXES_ROUNDS 3 /* each fetches two boxes side by side to one place */
#define BOXES_WIDTH (2 * KVK_CUDA_BOX)
#define BOXES_SHARED_BYTES (KVK_CUDA_BOX * BOXES_WIDTH * 2 + 1024)

struct boxes_args {
	struct kvk_cuda_tensor tensor;
	uint16_t *to; /* [BOXES_ROUNDS, KVK_CUDA_BOX, BOXES_WIDTH] */
	int32_t column;
	int32_t token[BOXES_ROUNDS], page[BOXES_ROUNDS];
	uint32_t reserved[7];
};

#endif
