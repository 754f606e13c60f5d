/* SPDX-License-Identifier: Apache-2.0 */
/* How far an answer is from the right one: the measures of tests/golden/kernels/README.md. */
#ifndef KVPOOL_TEST_MEASURE_H
#define KVPOOL_TEST_MEASURE_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Worst error found and the limit it is held to; `pass` is false too when an infinity or NaN is out of
 * place.
 */
struct measure {
	double error;
	double limit;
	bool pass;
};

/*
 * Rows of `width`: the error relative to the row's largest expected magnitude. A row of zeros must be zero.
 */
struct measure measure_rows(const float *got, const float *want, int64_t rows, int64_t width, double limit);

/* Single values: |error| / (1e-5 + 1e-5 * |want|), limit 1; infinities must agree. */
struct measure measure_values(const float *got, const float *want, int64_t count);

/*
 * bf16 output: elements by 8e-4 absolute or 2.01/128 relative, and the cosine difference, limit 5e-6 (the
 * error given).
 */
struct measure measure_bf16(const uint16_t *got, const float *want, int64_t count);

/* Integers: the number that differ, limit 0. */
struct measure measure_equal(const int32_t *got, const int32_t *want, int64_t count);

#endif
