/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue of what touches the locks of a pool's file.
 */
#include "lock_queue.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

#include "assert.h"
#include "turn.h"

void kvd_lock_queue_init(struct kvd_lock_queue *queue, const struct kvd_device_ops *device,
			 struct kvd_memory *memory)
{
	*queue = (struct kvd_lock_queue){.device = device, .memory = memory};
}

void kvd_lock_queue_add(struct kvd_lock_queue *queue, struct kvd_lock_job *job, enum kvd_lock_kind kind)
{
	struct kvd_lock_list *list = &queue->waiting[kind];

	kvd_assert(!job->queued);
	job->kind = kind;
	job->queued = true;
	job->next = NULL;
	if (list->last)
		list->last->next = job;
	else
		list->first = job;
	list->last = job;
}

static void put_first(struct kvd_lock_queue *queue, struct kvd_lock_job *job)
{
	struct kvd_lock_list *list = &queue->waiting[job->kind];

	job->next = list->first;
	list->first = job;
	if (!list->last)
		list->last = job;
}

static struct kvd_lock_job *take(struct kvd_lock_queue *queue)
{
	unsigned kind;

	for (kind = 0; kind < KVD_LOCK_KINDS; kind++) {
		struct kvd_lock_list *list = &queue->waiting[kind];
		struct kvd_lock_job *job = list->first;

		if (!job)
			continue;
		list->first = job->next;
		if (!list->first)
			list->last = NULL;
		return job;
	}
	return NULL;
}

/* -------------------------------------------------------------- on the worker's thread */

/* The kernel walks the locks on the caller's time, so it is the thread's that counts. */
static uint64_t thread_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int run_one(struct kvd_lock_queue *queue, struct kvd_lock_job *job)
{
	switch (job->kind) {
	case KVD_LOCK_CLOSE:
		close(job->fd);
		job->fd = -1;
		return 0;
	case KVD_LOCK_MAKE:
		return queue->device->session_fd(queue->memory, job->lock_byte, &job->fd);
	default:
		return queue->device->proved_gone(queue->memory, job->lock_byte);
	}
}

static int run_batch(void *arg, const _Atomic int *cancel)
{
	struct kvd_lock_queue *queue = arg;
	uint64_t begin_ns = thread_ns();

	do {
		struct kvd_lock_job *job = queue->batch[queue->done];

		job->result = run_one(queue, job);
		queue->done++;
		queue->spent_ns = thread_ns() - begin_ns;
	} while (queue->done < queue->count && queue->spent_ns < KVD_PROOFS_BURST_NS && !*cancel);
	return *cancel ? -ECANCELED : 0;
}

/* -------------------------------------------------------------- on the loop's thread */

static void put_back(struct kvd_lock_queue *queue)
{
	while (queue->count > queue->done)
		put_first(queue, queue->batch[--queue->count]);
}

/* A job that is told may be added again at once. */
static void tell(struct kvd_lock_job *job)
{
	job->queued = false;
	job->told(job);
}

static void cancel_all(struct kvd_lock_queue *queue)
{
	struct kvd_lock_job *job;

	for (job = take(queue); job; job = take(queue)) {
		job->result = -ECANCELED;
		tell(job);
	}
}

static void told(void *arg, int result)
{
	struct kvd_lock_queue *queue = arg;
	uint32_t i;

	queue->in_flight = false;
	put_back(queue);
	if (queue->spent_ns)
		kvd_proofs_spent(&queue->proofs, kvd_now_us(), queue->spent_ns);
	for (i = 0; i < queue->count; i++)
		tell(queue->batch[i]);
	if (result == -ECANCELED)
		cancel_all(queue);
}

void kvd_lock_queue_submit(struct kvd_lock_queue *queue, struct kvd_worker *worker, uint64_t now_us)
{
	struct kvd_lock_job *job = NULL;

	if (queue->in_flight || !kvd_proofs_allowed(&queue->proofs, now_us))
		return;
	queue->done = 0;
	queue->spent_ns = 0;
	for (queue->count = 0; queue->count < KVD_LOCK_BATCH; queue->count++) {
		job = take(queue);
		if (!job)
			break;
		queue->batch[queue->count] = job;
	}
	if (!queue->count)
		return;
	queue->in_flight = true;
	if (kvd_worker_submit(worker, "look at a pool's locks", run_batch, told, queue)) {
		queue->in_flight = false;
		put_back(queue);
	}
}
