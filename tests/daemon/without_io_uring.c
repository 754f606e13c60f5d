/* SPDX-License-Identifier: Apache-2.0 */
/*
 * without_io_uring ERROR COMMAND [ARGUMENT...]
 * Runs COMMAND where io_uring fails with ERROR: EPERM, ENOSYS, EACCES or a number.
 */
#include "seccomp.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* 0: not an error. */
static int error_of(const char *text)
{
	static const struct {
		const char *name;
		int error;
	} known[] = {{"EPERM", EPERM}, {"ENOSYS", ENOSYS}, {"EACCES", EACCES}};
	char *rest;
	long number = strtol(text, &rest, 10);

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strcmp(text, known[i].name))
			return known[i].error;
	return *text && !*rest && number > 0 && number < 4096 ? (int)number : 0;
}

int main(int argc, char **argv)
{
	int error = argc > 2 ? error_of(argv[1]) : 0;
	int ret;

	if (!error) {
		fprintf(stderr, "usage: without_io_uring EPERM|ENOSYS|EACCES|NUMBER COMMAND [ARGUMENT...]\n");
		return 125;
	}
	ret = kvt_forbid_io_uring(error);
	if (ret < 0) {
		fprintf(stderr, "without_io_uring: cannot install the filter: %s\n", strerror(-ret));
		return 125;
	}
	execvp(argv[2], &argv[2]);
	fprintf(stderr, "without_io_uring: cannot run '%s': %s\n", argv[2], strerror(errno));
	return 127;
}
