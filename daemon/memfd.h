/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory without a name: what pools and segments have in common. Only the daemon makes it; its inode is 0600, since a memfd's
 * own mode lets whoever got a read-only descriptor open it again for writing.
 */
#ifndef KVPOOL_DAEMON_MEMFD_H
#define KVPOOL_DAEMON_MEMFD_H

#include <stddef.h>
#include <stdint.h>

/* `flags` on top of CLOEXEC, ALLOW_SEALING and NOEXEC_SEAL (dropped on kernels before 6.3). Negative errno. */
int kvd_memfd_create(const char *name, unsigned flags, uint64_t bytes, int *out_fd);
/* F_ADD_SEALS: SHRINK and GROW; more may follow. */
int kvd_memfd_seal_size(int fd);
/* F_ADD_SEALS: SHRINK, GROW, `more`, and SEAL last. */
int kvd_memfd_seal(int fd, int more);
/* An open file description of its own, O_CLOEXEC, by /proc/self/fd. `access`: O_RDONLY or O_RDWR. */
int kvd_memfd_reopen(int fd, int access, int *out_fd);

/* All bytes by pread/pwrite. -ERANGE outside of `bytes`; -EIO when the kernel moved fewer. */
int kvd_memfd_read(int fd, uint64_t bytes, uint64_t offset, void *out, size_t length);
int kvd_memfd_write(int fd, uint64_t bytes, uint64_t offset, const void *from, size_t length);

#endif
