/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is done to the locks of a pool's file, by the worker. The kernel walks a file's locks one by one, under
 * a spinlock, at each of these: setting the lock of a new session's descriptor, closing that descriptor, and
 * the question whether a lock is left. Who maps a pool can set locks on it by the ten thousand, and made a
 * question take 31 ms; so none of them is the loop's.
 *
 * A pool has one list with the worker at a time, and the worker gives it back as soon as it has become dear
 * (proofs.h); what was not come to is put first again. Answers are told on the loop's thread.
 */
#ifndef KVPOOL_DAEMON_LOCK_QUEUE_H
#define KVPOOL_DAEMON_LOCK_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "device.h"
#include "proofs.h"
#include "worker.h"

/* Jobs that the worker is given at once. */
#define KVD_LOCK_BATCH 16u

/* In the order in which they are taken: clients wait for the first two, and a lock that is ours proves nothing. */
enum kvd_lock_kind {
	KVD_LOCK_CLOSE, /* job->fd, which becomes -1 */
	KVD_LOCK_MAKE,  /* job->fd becomes a session's descriptor */
	KVD_LOCK_PROOF, /* result 1: nothing holds the lock any more */
	KVD_LOCK_KINDS
};

struct kvd_lock_job;
/* On the loop's thread. -ECANCELED in job->result: the daemon ends. */
typedef void (*kvd_lock_told_fn)(struct kvd_lock_job *job);

/* Embedded in what it is about. While `queued` it is the queue's: nothing may be changed or freed. */
struct kvd_lock_job {
	struct kvd_lock_job *next;
	enum kvd_lock_kind kind;
	bool queued;
	uint64_t lock_byte;
	int fd; /* -1: none */
	int result;
	kvd_lock_told_fn told;
	void *arg;
};

struct kvd_lock_list {
	struct kvd_lock_job *first;
	struct kvd_lock_job *last;
};

struct kvd_lock_queue {
	const struct kvd_device_ops *device;
	struct kvd_memory *memory;
	struct kvd_proofs proofs;
	struct kvd_lock_list waiting[KVD_LOCK_KINDS];
	/* The worker's while `in_flight`. */
	bool in_flight;
	struct kvd_lock_job *batch[KVD_LOCK_BATCH];
	uint32_t count;
	uint32_t done; /* of `count` */
	uint64_t spent_ns;
};

void kvd_lock_queue_init(struct kvd_lock_queue *queue, const struct kvd_device_ops *device,
			 struct kvd_memory *memory);
/* `job` is not queued; lock_byte, fd, told and arg are set. */
void kvd_lock_queue_add(struct kvd_lock_queue *queue, struct kvd_lock_job *job, enum kvd_lock_kind kind);
/* Gives the worker what waits, unless it has some or it was dear. Call once a turn. */
void kvd_lock_queue_submit(struct kvd_lock_queue *queue, struct kvd_worker *worker, uint64_t now_us);

#endif
