/* SPDX-License-Identifier: Apache-2.0 */
/* Which instruction set level is taken: the best that the machine has and that proves itself, or the one named. */
#include "cpu/level.h"
#include "cpu/self_test.h"
#include "fixture.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int asked;

static bool agrees(enum kvk_level level)
{
	assert_true(kvk_level_usable(level));
	asked++;
	return true;
}

static bool disagrees(enum kvk_level level)
{
	assert_true(level == KVK_LEVEL_AVX512 || level == KVK_LEVEL_AVX512_BF16);
	asked++;
	return false;
}

static void every_level_that_the_machine_has_can_be_forced(void **state)
{
	(void)state;
	for (int i = 0; i < KVK_LEVELS; i++) {
		enum kvk_level level = KVK_LEVELS;
		const int ret = kvk_level_decide(kvk_level_text(i), agrees, &level);

		if (kvk_level_usable(i)) {
			assert_int_equal(ret, 0);
			assert_int_equal(level, i);
		} else {
			assert_int_equal(ret, -ENOTSUP);
			assert_int_equal(level, KVK_LEVELS);
		}
	}
	assert_true(kvk_level_usable(KVK_LEVEL_SCALAR));
	assert_null(kvk_level_text(KVK_LEVELS));
}

static void a_name_that_is_none_gets_nothing_in_its_place(void **state)
{
	static const char *const names[] = {"", "avx", "AVX2", "avx2 ", "sse", "none", "reference"};
	enum kvk_level level = KVK_LEVELS;

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		assert_int_equal(kvk_level_decide(names[i], agrees, &level), -ENOTSUP);
	assert_int_equal(level, KVK_LEVELS);
}

static void the_best_level_is_taken_unless_one_is_named(void **state)
{
	enum kvk_level level;

	(void)state;
	assert_int_equal(kvk_level_decide(NULL, agrees, &level), 0);
	for (int i = 0; i < KVK_LEVELS; i++)
		if (kvk_level_usable(i))
			assert_true((int)level >= i || level == KVK_LEVEL_NEON);
}

static void a_level_that_fails_its_self_test_is_not_taken_even_when_named(void **state)
{
	enum kvk_level level;

	(void)state;
	asked = 0;
	assert_int_equal(kvk_level_decide(NULL, disagrees, &level), 0);
	assert_true(level != KVK_LEVEL_AVX512 && level != KVK_LEVEL_AVX512_BF16);
	assert_int_equal(asked, kvk_level_usable(KVK_LEVEL_AVX512) + kvk_level_usable(KVK_LEVEL_AVX512_BF16));
	assert_int_equal(kvk_level_decide("avx512", disagrees, &level), -ENOTSUP);
	assert_int_equal(kvk_level_decide("avx512_bf16", disagrees, &level), -ENOTSUP);
	assert_int_equal(kvk_level_decide("scalar", disagrees, &level), 0);
}

static void every_level_passes_the_self_test(void **state)
{
	(void)state;
	for (int i = 0; i < KVK_LEVELS; i++)
		if (kvk_level_usable(i))
			assert_true(kvk_self_test(i));
}

/* In a process of its own, where the choice has not been made: the name, and what a kernel says. */
static int ask_in_child(const char *forced, const char *name, int result)
{
	const struct kvk_msa_select_params p = {
		.size = sizeof(p), .heads = 1, .rows = 1, .blocks = 1, .topk = 1};
	const float score = 1;
	const int32_t n_valid = 1;
	int32_t selected = -5;
	struct kvk_msa_select_params call = p;
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid) {
		assert_int_equal(waitpid(pid, &status, 0), pid);
		return status;
	}
	setenv("KVPOOL_KERNELS", forced, 1);
	call.score = &score;
	call.n_valid = &n_valid;
	call.selected = &selected;
	if (kvk_msa_select(&call) != result || strcmp(kvk_level_name(), name) != 0 ||
	    !kvk_level_error() != !result)
		_exit(1);
	if (selected != (result ? -5 : 0))
		_exit(2);
	_exit(kvk_msa_select_ref(&call) == 0 && selected == 0 ? 0 : 3);
}

static void assert_explained(const char *forced, bool (*self_test)(enum kvk_level level), const char *why,
			     const char *remedy)
{
	char text[320];
	char start[80];

	snprintf(start, sizeof(start), "$KVPOOL_KERNELS is '%s', ", forced);
	kvk_level_explain(forced, self_test, text, sizeof(text));
	if (strncmp(text, start, strlen(start)) != 0 || !strstr(text, why) || !strstr(text, remedy))
		fail_msg("'%s' does not say '%s'", text, why);
}

static void a_refusal_names_value_reason_and_remedy(void **state)
{
	char levels[80] = "set it to one of ";

	(void)state;
	for (int i = KVK_LEVELS - 1; i >= 0; i--)
		if (kvk_level_usable(i)) {
			strcat(levels, kvk_level_text(i));
			strcat(levels, i ? ", " : ", or unset it");
		}
	assert_explained("foo", agrees, "which is no level of kernels", levels);
	assert_explained("", agrees, "which is no level of kernels", levels);
	for (int i = 0; i < KVK_LEVELS; i++)
		if (!kvk_level_usable(i))
			assert_explained(kvk_level_text(i), agrees,
					 "which this machine, or this build of kvpool, lacks", levels);
	if (kvk_level_usable(KVK_LEVEL_AVX512))
		assert_explained("avx512", disagrees, "which fails its self-test on this machine",
				 "set it to one of avx2, scalar, or unset it");
}

/* This process has not chosen yet when its children begin: the tests above decide without choosing. */
static void the_environment_forces_a_level_or_makes_kernels_refuse(void **state)
{
	(void)state;
	assert_int_equal(ask_in_child("scalar", "scalar", 0), 0);
	assert_int_equal(ask_in_child("nonsense", "none", -ENOTSUP), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_level_that_the_machine_has_can_be_forced),
		cmocka_unit_test(a_name_that_is_none_gets_nothing_in_its_place),
		cmocka_unit_test(the_best_level_is_taken_unless_one_is_named),
		cmocka_unit_test(a_level_that_fails_its_self_test_is_not_taken_even_when_named),
		cmocka_unit_test(every_level_passes_the_self_test),
		cmocka_unit_test(a_refusal_names_value_reason_and_remedy),
		cmocka_unit_test(the_environment_forces_a_level_or_makes_kernels_refuse),
	};

	kvt_watchdog(120);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
