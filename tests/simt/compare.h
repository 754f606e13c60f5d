/* SPDX-License-Identifier: Apache-2.0 */
/* What the device's answers are compared by, and random cases for it. */
#ifndef KVPOOL_TEST_SIMT_COMPARE_H
#define KVPOOL_TEST_SIMT_COMPARE_H

#include "device.h"
#include "fixture.h"
#include "measure.h"

/*
 * Rows of f32 outputs, relative to the row's largest magnitude. P is rounded to the values' format, by at most
 * 2^-8 of each term in bf16 and 2^-11 in f16; twice that is allowed, as the terms may outweigh their sum. With
 * FP8 rows P goes in two parts, which leaves 2^-16.
 */
static inline double simt_row_limit(uint32_t kv_dtype)
{
	return kv_dtype == KVK_BF16 ? 0x1p-7 : kv_dtype == KVK_F16 ? 0x1p-10 : 2e-5;
}

#define ASSERT_MEASURE(measure_)                                                                             \
	do {                                                                                                 \
		const struct measure m = (measure_);                                                         \
                                                                                                             \
		if (!m.pass)                                                                                 \
			fail_msg("error %g, limit %g", m.error, m.limit);                                    \
	} while (0)

/* One of the `count` given. */
#define PICK(rng, ...)                                                                                       \
	((const int32_t[]){__VA_ARGS__})[kvt_between(                                                        \
		rng, 0, (int32_t)(sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t)) - 1)]

#endif
