/* SPDX-License-Identifier: Apache-2.0 */
/* See vector_loads.h. */
#include "vector_loads.h"

#include "cpu/simd.h"

static void load_bf16(float *values, const void *codes)
{
	for (int i = 0; i < KVT_LOAD_CODES; i += KVK_LANES)
		vf_storeu(values + i, vf_load_bf16((const char *)codes + 2 * i));
}

static void load_f16(float *values, const void *codes)
{
	for (int i = 0; i < KVT_LOAD_CODES; i += KVK_LANES)
		vf_storeu(values + i, vf_load_f16((const char *)codes + 2 * i));
}

static void load_e4m3(float *values, const void *codes)
{
	for (int i = 0; i < KVT_LOAD_CODES; i += KVK_LANES)
		vf_storeu(values + i, vf_load_e4m3((const char *)codes + i));
}

const struct kvt_loads KVK_OPS(kvt_loads) = {.bf16 = load_bf16, .f16 = load_f16, .e4m3 = load_e4m3};
