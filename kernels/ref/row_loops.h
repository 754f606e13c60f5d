/* SPDX-License-Identifier: Apache-2.0 */
/* The references' loops over one row; see row_loops.c. */
#ifndef KVPOOL_KERNELS_REF_ROW_LOOPS_H
#define KVPOOL_KERNELS_REF_ROW_LOOPS_H

#include <stdint.h>

struct kvk_ref_ops {
	/* Elements [offset, offset + count) of an array. */
	void (*load)(double *row, const void *array, uint32_t dtype, int64_t offset, int count);
	double (*dot)(const double *a, const double *b, int count);
	/* sum[i] += weight * row[i] */
	void (*add)(double *sum, double weight, const double *row, int count);
};

#endif
