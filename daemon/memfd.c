/* SPDX-License-Identifier: Apache-2.0 */
/* memfds: made, sealed, opened again, read and written by system call. */
#include "memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

static int create_fd(const char *name, unsigned flags)
{
	int fd = memfd_create(name, flags | MFD_NOEXEC_SEAL);

	if (fd < 0 && errno == EINVAL)
		fd = memfd_create(name, flags);
	return fd < 0 ? -errno : fd;
}

int kvd_memfd_create(const char *name, unsigned flags, uint64_t bytes, int *out_fd)
{
	int fd;
	int ret;

	if (!bytes || bytes > INT64_MAX)
		return -EINVAL;
	fd = create_fd(name, flags | MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return fd;
	if (fchmod(fd, 0600) < 0 || ftruncate(fd, (off_t)bytes) < 0) {
		ret = -errno;
		goto err_close;
	}
	*out_fd = fd;
	return 0;

err_close:
	close(fd);
	return ret;
}

int kvd_memfd_seal_size(int fd)
{
	return fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0 ? -errno : 0;
}

int kvd_memfd_seal(int fd, int more)
{
	return fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | more) < 0 ? -errno : 0;
}

int kvd_memfd_reopen(int fd, int access, int *out_fd)
{
	char path[32];
	int again;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, access | O_CLOEXEC);
	if (again < 0)
		return -errno;
	*out_fd = again;
	return 0;
}

static bool in_range(uint64_t bytes, uint64_t offset, size_t length)
{
	return offset <= bytes && length <= bytes - offset;
}

int kvd_memfd_read(int fd, uint64_t bytes, uint64_t offset, void *out, size_t length)
{
	uint8_t *to = out;

	if (!in_range(bytes, offset, length))
		return -ERANGE;
	while (length) {
		ssize_t moved = pread(fd, to, length, (off_t)offset);

		if (moved < 0 && errno == EINTR)
			continue;
		if (moved <= 0)
			return -EIO;
		to += moved;
		offset += (uint64_t)moved;
		length -= (size_t)moved;
	}
	return 0;
}

int kvd_memfd_write(int fd, uint64_t bytes, uint64_t offset, const void *from, size_t length)
{
	const uint8_t *at = from;

	if (!in_range(bytes, offset, length))
		return -ERANGE;
	while (length) {
		ssize_t moved = pwrite(fd, at, length, (off_t)offset);

		if (moved < 0 && errno == EINTR)
			continue;
		if (moved <= 0)
			return -EIO;
		at += moved;
		offset += (uint64_t)moved;
		length -= (size_t)moved;
	}
	return 0;
}
