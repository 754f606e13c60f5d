/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine most users have: a container whose system call filter refuses io_uring.
 */
#ifndef KVPOOL_TEST_SECCOMP_H
#define KVPOOL_TEST_SECCOMP_H

/*
 * From now on system call `number` fails with `error` (EPERM, ENOSYS, ...) in this process
 * and its children. Cannot be undone: fork first. Returns 0 or a negative errno.
 */
int kvt_forbid_syscall(long number, int error);
/* The same for all of io_uring_setup, io_uring_enter and io_uring_register. */
int kvt_forbid_io_uring(int error);

#endif
