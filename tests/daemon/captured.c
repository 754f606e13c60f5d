/* SPDX-License-Identifier: Apache-2.0 */
/* Puts a memfd in the place of standard error. */
#include "captured.h"

#include "support.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static int kept = -1;

void captured_start(void)
{
	int fd = memfd_create("captured", MFD_CLOEXEC);

	fflush(stderr);
	kept = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	assert_true(fd >= 0 && kept >= 0);
	assert_int_equal(dup2(fd, STDERR_FILENO), STDERR_FILENO);
	close(fd);
}

void captured_end(char *out, size_t capacity)
{
	ssize_t got;

	fflush(stderr);
	got = pread(STDERR_FILENO, out, capacity - 1, 0);
	dup2(kept, STDERR_FILENO);
	close(kept);
	assert_true(got >= 0);
	out[got] = '\0';
}
