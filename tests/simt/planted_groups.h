/* SPDX-License-Identifier: Apache-2.0 */
/* The parameter of every kernel in planted_groups.cu. C and C++. */
#ifndef KVPOOL_TEST_SIMT_PLANTED_GROUPS_H
#define KVPOOL_TEST_SIMT_PLANTED_GROUPS_H

#include <stdint.h>

#define GROUPS_THREADS 128
#define GROUPS_ROWS 64
#define GROUPS_STEPS 64  /* of the sum */
#define GROUPS_NARROW 32 /* columns of the result, B by columns */
#define GROUPS_WIDE 256  /* B by rows */
#define GROUPS_SHARED_BYTES (2 * GROUPS_STEPS * (GROUPS_ROWS + GROUPS_WIDE))

struct groups_args {
	const uint16_t *a; /* bf16 [GROUPS_ROWS, GROUPS_STEPS] */
	const uint16_t *b; /* [GROUPS_NARROW, GROUPS_STEPS], or [GROUPS_STEPS, GROUPS_WIDE] */
	float *c;          /* [GROUPS_ROWS, columns] */
};

#endif
