/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The references' loops over one row, in plain C: a replay's checks spend their time here, so they are compiled
 * for AVX2 too (softmax.c takes no level above it, which would be one that has to prove itself by them).
 */
#include "row_loops.h"

#include "../cpu/level.h"
#include "../dtype.h"

static inline __attribute__((always_inline)) void load_as(double *row, const void *array, uint32_t dtype,
							  int64_t offset, int count)
{
	for (int i = 0; i < count; i++)
		row[i] = (double)kvk_load(array, dtype, offset + i);
}

/* The dtype is a constant of each loop. */
static void load(double *row, const void *array, uint32_t dtype, int64_t offset, int count)
{
	if (dtype == KVK_BF16)
		load_as(row, array, KVK_BF16, offset, count);
	else if (dtype == KVK_F32)
		load_as(row, array, KVK_F32, offset, count);
	else
		load_as(row, array, dtype, offset, count);
}

static double dot(const double *a, const double *b, int count)
{
	enum { LANES = 16 }; /* independent sums, so that none waits for the one before */
	double lane[LANES] = {0};
	double sum = 0;
	int i = 0;

	for (; i + LANES <= count; i += LANES)
		for (int n = 0; n < LANES; n++)
			lane[n] += a[i + n] * b[i + n];
	for (; i < count; i++)
		sum += a[i] * b[i];
	for (int n = 0; n < LANES; n++)
		sum += lane[n];
	return sum;
}

static void add(double *restrict sum, double weight, const double *restrict row, int count)
{
	for (int i = 0; i < count; i++)
		sum[i] += weight * row[i];
}

const struct kvk_ref_ops KVK_OPS(kvk_ref) = {.load = load, .dot = dot, .add = add};
