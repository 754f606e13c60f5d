/* SPDX-License-Identifier: Apache-2.0 */
#include "program.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "support.h"

static void (*the_body)(void *arg);
static void *the_arg;

static void run(void **state)
{
	(void)state;
	the_body(the_arg);
}

int kvt_run_body(void (*body)(void *arg), void *arg)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(run)};
	int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
	int output = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 10);
	int failed;

	the_body = body;
	the_arg = arg;
	fflush(stdout);
	dup2(nowhere, STDOUT_FILENO);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	fflush(stdout);
	dup2(output, STDOUT_FILENO);
	close(output);
	close(nowhere);
	return failed != 0;
}
