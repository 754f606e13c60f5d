/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors whose close a client can make dear, closed by the worker. The kernel walks all locks of the
 * inode at each close, and eventfds (all of a kernel's share one inode), pidfds, and whatever lies unread in a
 * socket can be given such locks by the hundred thousand. A socket is drained first: unread messages at its
 * close would reset the connection, and the peer would see that instead of our answer.
 */
#ifndef KVPOOL_DAEMON_CLOSER_H
#define KVPOOL_DAEMON_CLOSER_H

#include <stdbool.h>
#include <stdint.h>

#include "worker.h"

#define KVD_CLOSER_BATCH 64u

struct kvd_closer {
	int *waiting; /* [capacity] */
	uint32_t capacity;
	uint32_t count;
	/* The worker's while `in_flight`. */
	bool in_flight;
	int batch[KVD_CLOSER_BATCH];
	uint32_t batch_count;
};

/* -ENOMEM. `capacity`: when so many wait, the next is closed at once. */
int kvd_closer_init(struct kvd_closer *closer, uint32_t capacity);
/* Takes `fd` over, which nothing watches any more. -1 is a no-op. */
void kvd_closer_add(struct kvd_closer *closer, int fd);
/* Gives the worker what waits, unless it has some. Call once a turn. */
void kvd_closer_submit(struct kvd_closer *closer, struct kvd_worker *worker);
/* The worker has stopped: closes the rest. */
void kvd_closer_destroy(struct kvd_closer *closer);

#endif
