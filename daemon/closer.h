/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors whose close a client can make dear, closed by a worker of their own. The kernel walks all locks of the
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
	int *waiting; /* [capacity], a ring */
	uint32_t capacity;
	uint32_t first;
	uint32_t count;
	uint32_t ripe; /* of them, those that were there a turn ago */
	/* The worker's while `in_flight`. */
	bool in_flight;
	int batch[KVD_CLOSER_BATCH];
	uint32_t batch_count;
};

/* -ENOMEM. `capacity`: when so many wait, the next is closed at once. */
int kvd_closer_init(struct kvd_closer *closer, uint32_t capacity);
/* Takes `fd` over, which nothing watches any more. -1 is a no-op. */
void kvd_closer_add(struct kvd_closer *closer, int fd);
/*
 * Gives the worker what waited at the last call, unless it has some. A turn lies between, since only then the loop has let go of a
 * descriptor that it forgot: else the last reference would be the loop's. Call once a turn; true: call again soon.
 */
bool kvd_closer_submit(struct kvd_closer *closer, struct kvd_worker *worker);
/* The worker has stopped: closes the rest. */
void kvd_closer_destroy(struct kvd_closer *closer);

#endif
