/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory that a test program has now: what it allocated (its allocation calls are wrapped by the linker), and the stack
 * of the calling thread. So a launch can tell which of its arguments' words point where, and how much lies there.
 */
#ifndef KVPOOL_TEST_GPU_BLOCKS_H
#define KVPOOL_TEST_GPU_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gpu_block {
	unsigned char *base;
	size_t bytes;
	bool sparse; /* a mapping, of which only some pages may be there */
};

/* What `word` points into, its end included; false: nothing of this program's. `frame`: the stack counts from there on. */
bool gpu_block_of(uint64_t word, void *frame, struct gpu_block *out);

#endif
