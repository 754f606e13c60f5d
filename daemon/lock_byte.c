/* SPDX-License-Identifier: Apache-2.0 */
/* Setting a lock byte on a new description, and asking whether it is still set. */
#include "lock_byte.h"

#include "memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static int lock_of(uint64_t lock_byte, short type, struct flock *out)
{
	if (lock_byte > INT64_MAX)
		return -EINVAL;
	*out = (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)lock_byte, .l_len = 1};
	return 0;
}

int kvd_lock_byte_open(int fd, uint64_t lock_byte, int *out_fd)
{
	struct flock lock;
	int own;
	int ret = lock_of(lock_byte, F_RDLCK, &lock);

	if (ret < 0)
		return ret;
	ret = kvd_memfd_reopen(fd, O_RDWR, &own);
	if (ret < 0)
		return ret;
	if (fcntl(own, F_OFD_SETLK, &lock) < 0) {
		ret = -errno;
		close(own);
		return ret;
	}
	*out_fd = own;
	return 0;
}

int kvd_lock_byte_free(int fd, uint64_t lock_byte)
{
	struct flock lock;
	int ret = lock_of(lock_byte, F_WRLCK, &lock);

	if (ret < 0)
		return ret;
	if (fcntl(fd, F_OFD_GETLK, &lock) < 0)
		return -errno;
	return lock.l_type == F_UNLCK;
}
