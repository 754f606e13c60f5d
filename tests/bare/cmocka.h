/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of CMocka's interface that the kernels' tests use, for targets whose package it is not installed for: cross
 * builds. The first failure ends the program.
 */
#ifndef KVPOOL_TEST_BARE_CMOCKA_H
#define KVPOOL_TEST_BARE_CMOCKA_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CMUnitTest {
	const char *name;
	void (*test)(void **state);
};

#define cmocka_unit_test(function)                                                                           \
	{                                                                                                    \
		.name = #function, .test = (function)                                                        \
	}
#define cmocka_run_group_tests(tests, setup, teardown)                                                       \
	bare_run(tests, sizeof(tests) / sizeof((tests)[0]), setup, teardown)

static inline int bare_run(const struct CMUnitTest *tests, size_t count, const void *setup,
			   const void *teardown)
{
	if (setup || teardown)
		abort();
	for (size_t i = 0; i < count; i++) {
		void *state = NULL;

		tests[i].test(&state);
		printf("ok %s\n", tests[i].name);
	}
	return 0;
}

#define fail_msg(...)                                                                                        \
	do {                                                                                                 \
		fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                                              \
		fprintf(stderr, __VA_ARGS__);                                                                \
		fputc('\n', stderr);                                                                         \
		exit(1);                                                                                     \
	} while (0)
#define fail() fail_msg("failed")

#define assert_true(condition)                                                                               \
	do {                                                                                                 \
		if (!(condition))                                                                            \
			fail_msg("not true: %s", #condition);                                                \
	} while (0)
#define assert_false(condition) assert_true(!(condition))
#define assert_null(pointer) assert_true((pointer) == NULL)
#define assert_non_null(pointer) assert_true((pointer) != NULL)
#define assert_ptr_equal(a, b) assert_true((const void *)(a) == (const void *)(b))
#define assert_int_equal(a, b)                                                                               \
	do {                                                                                                 \
		const long long a_ = (long long)(a);                                                         \
		const long long b_ = (long long)(b);                                                         \
                                                                                                             \
		if (a_ != b_)                                                                                \
			fail_msg("%s is %lld, not %lld", #a, a_, b_);                                        \
	} while (0)
#define assert_int_not_equal(a, b) assert_true((long long)(a) != (long long)(b))
#define assert_memory_equal(a, b, bytes) assert_true(memcmp(a, b, bytes) == 0)
#define assert_string_equal(a, b) assert_true(strcmp(a, b) == 0)

#endif
