/* SPDX-License-Identifier: Apache-2.0 */
/* What the device's answers are compared by, and random cases for it. */
#ifndef KVPOOL_TEST_SIMT_COMPARE_H
#define KVPOOL_TEST_SIMT_COMPARE_H

#include "device.h"
#include "fixture.h"
#include "measure.h"

#include <stdlib.h>

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

/* Runs the call on the device and by the reference, and compares. */
static inline void simt_check_mla_dense(struct kvt_mla *mla, struct simt_device *device)
{
	float *want = kvt_poison(mla->out_count, sizeof(float));
	float *want_lse = kvt_poison(mla->lse_count, sizeof(float));
	struct kvk_mla_dense_params p = mla->params;

	p.out = want;
	p.lse = want_lse;
	assert_int_equal(kvk_mla_dense_ref(&p), 0);
	assert_int_equal(simt_mla_dense(device, &mla->params), 0);
	ASSERT_MEASURE(measure_rows(mla->out, want, mla->lse_count, KVK_MLA_LATENT,
				    simt_row_limit(mla->params.kv_dtype)));
	ASSERT_MEASURE(measure_values(mla->lse, want_lse, mla->lse_count));
	free(want);
	free(want_lse);
}

/* One of the `count` given. */
#define PICK(rng, ...)                                                                                       \
	((const int32_t[]){__VA_ARGS__})[kvt_between(                                                        \
		rng, 0, (int32_t)(sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t)) - 1)]

#endif
