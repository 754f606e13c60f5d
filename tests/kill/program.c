/* SPDX-License-Identifier: Apache-2.0 */
#include "program.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support.h"

static void (*the_body)(void *arg);
static void *the_arg;

static void run(void **state)
{
	(void)state;
	the_body(the_arg);
}

/* What CMocka said while standard output was elsewhere. */
static void show(int said)
{
	char bytes[4096];
	ssize_t got;

	lseek(said, 0, SEEK_SET);
	while ((got = read(said, bytes, sizeof(bytes))) > 0)
		(void)!write(STDERR_FILENO, bytes, (size_t)got);
}

int kvt_run_body(void (*body)(void *arg), void *arg)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(run)};
	int output = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 10);
	int said = memfd_create("said", MFD_CLOEXEC);
	int failed;

	the_body = body;
	the_arg = arg;
	/* The one format that says nothing on standard error. */
	cmocka_set_message_output(CM_OUTPUT_SUBUNIT);
	fflush(stdout);
	dup2(said, STDOUT_FILENO);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	fflush(stdout);
	dup2(output, STDOUT_FILENO);
	if (failed)
		show(said);
	close(output);
	close(said);
	return failed != 0;
}
