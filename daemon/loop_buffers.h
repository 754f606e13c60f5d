/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The buffers that io_uring receives messages into: one ring of them for all connections,
 * from which the kernel takes one when a message is there, not before.
 */
#ifndef KVPOOL_DAEMON_LOOP_BUFFERS_H
#define KVPOOL_DAEMON_LOOP_BUFFERS_H

#include <liburing.h>
#include <stddef.h>
#include <stdint.h>

/* Also the most messages one peer gets delivered in a turn. A power of two. */
#define KVD_BUFFERS 128u
#define KVD_BUFFER_GROUP 0

struct kvd_buffers {
	struct io_uring_buf_ring *ring; /* with the buffers behind it: one mapping */
	uint8_t *bytes;
	size_t mapped_bytes;
	uint32_t each_bytes;
};

/* Registers KVD_BUFFERS buffers with `ring`, each larger than a message of `max_message_bytes`. */
int kvd_buffers_open(struct kvd_buffers *buffers, struct io_uring *ring, uint32_t max_message_bytes);
/* No request of `ring` may use them any more. */
void kvd_buffers_close(struct kvd_buffers *buffers, struct io_uring *ring);

/* The buffer that a completion with these flags filled. */
const uint8_t *kvd_buffers_filled(const struct kvd_buffers *buffers, uint32_t cqe_flags);
/* Gives it back to the kernel; nothing when the completion filled none. */
void kvd_buffers_return(struct kvd_buffers *buffers, uint32_t cqe_flags);

#endif
