/* SPDX-License-Identifier: Apache-2.0 */
/* What probe.cu finds out about the matrix instructions; the same program can run on a GPU. C and C++. */
#ifndef KVPOOL_TEST_SIMT_PROBE_H
#define KVPOOL_TEST_SIMT_PROBE_H

#include <stdint.h>

#define PROBE_SHARED_BYTES 512

/* By lane. Loaded elements are the halves of the registers, low first. */
struct probe_result {
	uint16_t a[32][8];          /* ldmatrix.x4, addressed as for A */
	uint16_t transposed[32][8]; /* ldmatrix.x4.trans, at the same addresses */
	uint16_t b[32][4];          /* B of 16 x 8, by ldmatrix.trans */
	float c_bf16[32][4];
	float c_f16[32][4];
};

struct probe_args {
	const uint16_t *matrix; /* [16, 16] */
	struct probe_result *result;
};

#endif
