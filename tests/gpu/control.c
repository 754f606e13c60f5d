/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/fakecuda/control.h on a real device, so that the double's tests ask the driver whether the double is like it. A
 * device keeps no books and fails nothing on demand: tests end as skipped where they want that. The program's arguments
 * are the tests that a device can run; the others are about the double.
 */
#include "control.h"

#include "real_device.h"
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int __real__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t count,
				   CMFixtureFunction setup, CMFixtureFunction teardown);
int __wrap__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t count,
				   CMFixtureFunction setup, CMFixtureFunction teardown);

static char *const *wanted;

void kvt_cuda_start(char **argv)
{
	wanted = argv + 1;
	if (!kvt_cuda_role())
		kvw_cuda_close(gpu_open_or_skip());
}

bool kvt_cuda_is_double(void)
{
	return false;
}

/* ------------------------------------------------------------------ the chosen tests */

static const struct CMUnitTest *find(const struct CMUnitTest *tests, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (!strcmp(tests[i].name, name))
			return &tests[i];
	return NULL;
}

/* A name that is no test's is a mistake and fails the run. */
int __wrap__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t count,
				   CMFixtureFunction setup, CMFixtureFunction teardown)
{
	struct CMUnitTest *chosen = calloc(count, sizeof(*chosen));
	size_t used = 0;

	if (!*wanted && !kvt_cuda_role()) {
		fprintf(stderr, "usage: name the tests that a device can run\n");
		exit(2);
	}
	for (char *const *at = wanted; chosen && *at && used < count; at++) {
		const struct CMUnitTest *test = find(tests, count, *at);

		if (!test) {
			fprintf(stderr, "there is no test '%s'\n", *at);
			exit(2);
		}
		chosen[used++] = *test;
	}
	return __real__cmocka_run_group_tests(name, chosen, used, setup, teardown);
}

/* ------------------------------------------------------------------ what only the double has */

static void skip_here(const char *what)
{
	print_message("a real device has no %s\n", what);
	skip();
}

struct fake_machine *kvt_cuda_machine(void)
{
	skip_here("books");
	return NULL;
}

struct fake_process *kvt_cuda_process(pid_t pid)
{
	(void)pid;
	skip_here("books");
	return NULL;
}

uint64_t kvt_cuda_calls(pid_t pid, const char *function)
{
	(void)pid;
	(void)function;
	skip_here("counts of calls");
	return 0;
}

/* Asked for at the end of every test; what is left shows as memory that is gone, to nobody here. */
int64_t kvt_cuda_live(pid_t pid, char *text, size_t bytes)
{
	(void)pid;
	if (text && bytes)
		text[0] = 0;
	return 0;
}

void kvt_cuda_fail_in(pid_t pid, const char *function, uint64_t call, unsigned code)
{
	(void)pid;
	(void)function;
	(void)call;
	(void)code;
	skip_here("failures on demand");
}

void kvt_cuda_fail(const char *function, uint64_t call, unsigned code)
{
	kvt_cuda_fail_in(0, function, call, code);
}

void kvt_cuda_hang(pid_t pid, const char *function)
{
	(void)pid;
	(void)function;
	skip_here("calls that hang on demand");
}

unsigned kvt_cuda_hanging(pid_t pid)
{
	kvt_cuda_hang(pid, NULL);
	return 0;
}
