/* SPDX-License-Identifier: Apache-2.0 */
/* The vector loads of cpu/simd.h, as each level has them. */
#ifndef KVPOOL_TEST_VECTOR_LOADS_H
#define KVPOOL_TEST_VECTOR_LOADS_H

#include "cpu/level.h"

/* Codes at a time, a multiple of every level's lanes. */
#define KVT_LOAD_CODES 16

/* KVT_LOAD_CODES codes at any address become f32. */
struct kvt_loads {
	void (*bf16)(float *values, const void *codes);
	void (*f16)(float *values, const void *codes);
	void (*e4m3)(float *values, const void *codes);
};

#endif
