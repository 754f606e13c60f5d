/* SPDX-License-Identifier: Apache-2.0 */
#include "random.h"

#include "dtype.h"
#include "threads.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void poison(const struct subject *subject)
{
	for (int i = 0; i < 2; i++)
		if (subject->outputs[i].bytes)
			memset(subject->outputs[i].at, 0xff, subject->outputs[i].bytes);
}

static void expect_same(const struct subject *subject, const struct version *version, void *const first[2],
			const char *what)
{
	for (int i = 0; i < 2; i++)
		if (subject->outputs[i].bytes &&
		    memcmp(subject->outputs[i].at, first[i], subject->outputs[i].bytes) != 0)
			fail_msg("%s: %s: other bits %s", subject->text, version->name, what);
}

static void run_again(const struct subject *subject, const struct version *version, void *const first[2],
		      const struct kvk_threads *threads, const char *what)
{
	poison(subject);
	assert_int_equal(subject->call(subject->context, version, threads), 0);
	expect_same(subject, version, first, what);
}

static void check_version(struct kvt_rng *rng, const struct subject *subject, const struct version *version)
{
	const struct kvk_threads at_once = kvt_threads_at_once((uint32_t)kvt_between(rng, 2, 4));
	const struct kvk_threads backwards = kvt_threads_backwards((uint32_t)kvt_between(rng, 2, 4));
	void *first[2];
	int ret;

	poison(subject);
	ret = subject->call(subject->context, version, NULL);
	if (ret == -ENOSYS)
		return;
	if (ret)
		fail_msg("%s: %s: refused with %d", subject->text, version->name, ret);
	subject->judge(subject->context, version);
	for (int i = 0; i < 2; i++) {
		first[i] = kvt_poison((int64_t)subject->outputs[i].bytes, 1);
		if (subject->outputs[i].bytes)
			memcpy(first[i], subject->outputs[i].at, subject->outputs[i].bytes);
	}
	run_again(subject, version, first, NULL, "the second time");
	run_again(subject, version, first, &at_once, "on several threads");
	run_again(subject, version, first, &backwards, "with tasks in reverse order");
	if (subject->alone)
		subject->alone(subject->context, version);
	free(first[0]);
	free(first[1]);
}

void random_check(struct kvt_rng *rng, const struct subject *subject)
{
	for (int v = 1; v < version_count; v++)
		check_version(rng, subject, &versions[v]);
}

int random_cases(int usual)
{
	const char *times = getenv("KVP_CASES");

	if (times)
		return usual * (int)strtol(times, NULL, 10);
	return KVT_INSTRUMENTED ? usual / 4 + 1 : usual;
}

int32_t random_lens(struct kvt_rng *rng, int32_t lens[4], int32_t most)
{
	const int32_t batch = kvt_between(rng, 1, 4);

	for (int32_t r = 0; r < batch; r++) {
		/* Short ones as often as long ones: their ends are where loops go wrong. */
		const int32_t limit = kvt_between(rng, 0, 1) ? most : most < 300 ? most : 300;

		lens[r] = kvt_between(rng, 0, 3) ? kvt_between(rng, 0, limit) : kvt_between(rng, -1, 0);
	}
	return batch;
}

int32_t random_page_tokens(struct kvt_rng *rng)
{
	static const int32_t usual[] = {1, 16, 32, 64, 128, 256};

	return kvt_between(rng, 0, 1) ? usual[kvt_between(rng, 0, 5)] : kvt_between(rng, 1, 256);
}

uint32_t random_plain_dtype(struct kvt_rng *rng)
{
	static const uint32_t dtypes[] = {KVK_BF16, KVK_BF16, KVK_F16, KVK_F32};

	return dtypes[kvt_between(rng, 0, 3)];
}

uint32_t random_out_dtype(struct kvt_rng *rng)
{
	return kvt_between(rng, 0, 2) ? KVK_F32 : random_plain_dtype(rng);
}

void random_load_row(float *to, const void *out, uint32_t dtype, int64_t row, int32_t dim)
{
	for (int32_t i = 0; i < dim; i++)
		to[i] = kvk_load(out, dtype, row * dim + i);
}

/* Half a unit in the last place of the largest element on top of f32's limit. */
double random_row_limit(uint32_t out_dtype)
{
	return 1e-4 + (out_dtype == KVK_BF16 ? 0x1p-8 : out_dtype == KVK_F16 ? 0x1p-11 : 0);
}

static struct kvt_rng rng;

#define RANDOM_TEST(op)                                                                                      \
	static void op##_on_random_calls(void **state)                                                       \
	{                                                                                                    \
		(void)state;                                                                                 \
		random_##op(&rng);                                                                           \
	}

RANDOM_TEST(mla_dense)
RANDOM_TEST(mla_sparse)
RANDOM_TEST(gqa_dense)
RANDOM_TEST(msa_sparse)
RANDOM_TEST(msa_scores)
RANDOM_TEST(msa_select)
RANDOM_TEST(mla_write)
RANDOM_TEST(kv_write)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(mla_dense_on_random_calls),  cmocka_unit_test(mla_sparse_on_random_calls),
		cmocka_unit_test(gqa_dense_on_random_calls),  cmocka_unit_test(msa_sparse_on_random_calls),
		cmocka_unit_test(msa_scores_on_random_calls), cmocka_unit_test(msa_select_on_random_calls),
		cmocka_unit_test(mla_write_on_random_calls),  cmocka_unit_test(kv_write_on_random_calls),
	};

	kvt_watchdog(300);
	rng.state = kvt_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
