/* SPDX-License-Identifier: Apache-2.0 */
/* The wrapped functions: each asks whether its turn to fail has come. One thread only. */
#include "faults.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static unsigned left;
static int fault_error;
static bool hit;

void faults_arm(unsigned n, int error)
{
	left = n;
	fault_error = error;
	hit = false;
}

bool faults_hit(void)
{
	bool was = hit;

	faults_arm(0, 0);
	return was;
}

static bool due(void)
{
	if (!left || --left)
		return false;
	hit = true;
	errno = fault_error;
	return true;
}

int __real_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags)
{
	return due() ? -1 : __real_memfd_create(name, flags);
}

void *__real_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
	return due() ? MAP_FAILED : __real_mmap(address, length, protection, flags, fd, offset);
}

int __real_madvise(void *address, size_t length, int advice);
int __wrap_madvise(void *address, size_t length, int advice);
int __wrap_madvise(void *address, size_t length, int advice)
{
	return due() ? -1 : __real_madvise(address, length, advice);
}

int __real_fchmod(int fd, mode_t mode);
int __wrap_fchmod(int fd, mode_t mode);
int __wrap_fchmod(int fd, mode_t mode)
{
	return due() ? -1 : __real_fchmod(fd, mode);
}

int __real_ftruncate(int fd, off_t length);
int __wrap_ftruncate(int fd, off_t length);
int __wrap_ftruncate(int fd, off_t length)
{
	return due() ? -1 : __real_ftruncate(fd, length);
}

void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes)
{
	return due() ? NULL : __real_calloc(count, bytes);
}

int __real_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...)
{
	void *argument;
	va_list args;

	va_start(args, command);
	argument = va_arg(args, void *);
	va_end(args);
	return due() ? -1 : __real_fcntl(fd, command, argument);
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
	return due() ? -1 : __real_open(path, flags, 0);
}
