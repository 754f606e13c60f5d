/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lock byte of a memfd as the proof that nobody has a session's descriptor any more: an OFD lock belongs to
 * an open file description, which lives in every process that inherited or mapped it, across fork, PID
 * namespaces and the daemon's death.
 */
#ifndef KVPOOL_DAEMON_LOCK_BYTE_H
#define KVPOOL_DAEMON_LOCK_BYTE_H

#include <stdint.h>

/* A description of its own of the memfd `fd`, with the lock on `lock_byte`. */
int kvd_lock_byte_open(int fd, uint64_t lock_byte, int *out_fd);
/* 1: nobody has it; 0: somebody does; negative errno. */
int kvd_lock_byte_free(int fd, uint64_t lock_byte);

#endif
