/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages on the socket: one SEQPACKET datagram a message, descriptors beside it by SCM_RIGHTS. Every
 * descriptor received is close-on-exec; those that were not asked for are closed at once.
 */
#ifndef KVPOOL_IPC_FRAME_H
#define KVPOOL_IPC_FRAME_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Sends without blocking. 0; -EAGAIN when the peer's queue is full; other negative errno. fd_count <=
 * KVW_MAX_FDS_PER_MESSAGE; an empty message is refused, because it would read as the end of file.
 */
int kvw_send(int socket_fd, const uint8_t *bytes, size_t length, const int *fds, uint32_t fd_count);

/*
 * Receives one message, waiting until `deadline_ns` (CLOCK_MONOTONIC; 0: without waiting). Returns its
 * length; 0 at end of file; -ETIMEDOUT, -EAGAIN, -EMSGSIZE (longer than capacity), -EPROTO (control data cut:
 * too many descriptors, or none left here), or another negative errno. *fd_count: in: room in fds; out:
 * received; the caller owns them; NULL: no room; unchanged on failure. Signals are survived with the rest of
 * the deadline.
 */
int kvw_receive(int socket_fd, uint64_t deadline_ns, uint8_t *bytes, size_t capacity, int *fds, uint32_t *fd_count);

/*
 * Connects to the daemon's socket at `path`: CLOEXEC, NONBLOCK, SEQPACKET. Returns the descriptor or a
 * negative errno; -EAGAIN: the daemon's backlog is full, try again within your deadline.
 */
int kvw_connect(const char *path);

uint64_t kvw_now_ns(void);
/* Deadline in `timeout_ms` from now; UINT64_MAX for UINT32_MAX. */
uint64_t kvw_deadline_ns(uint32_t timeout_ms);

#endif
