/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker: one ring of jobs between two threads, without a lock: a worker that is preempted while it holds one would hold up the
 * loop. A job keeps its place until its completion was told, so that the ring bounds what waits on either side:
 *
 *   told <= finished <= submitted, all free-running; submitted - told <= 64
 *   [told, finished) done, to be delivered; [finished] running when `running`; the rest waits
 *
 * The loop writes a place, then `submitted` (release); the worker its result, then `finished` (release).
 */
#include "worker.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define MAX_JOBS 64u

struct job {
	const char *name;
	kvd_job_fn run;
	kvd_job_done_fn done;
	void *arg;
	int result;
};

struct kvd_worker {
	pthread_t thread;
	_Atomic int cancel; /* also: begin no further job */
	int event_fd;       /* for the loop: something is finished */
	int wake_fd;        /* for the worker, which sleeps in reading it */
	uint32_t told;      /* the loop's own */
	_Atomic uint32_t finished;
	_Atomic uint32_t submitted;
	/* For health. */
	_Atomic uint64_t started_ns;
	_Atomic(const char *) running; /* NULL: idle */
	struct job jobs[MAX_JOBS];
};

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static struct job *job_at(struct kvd_worker *worker, uint32_t index)
{
	return &worker->jobs[index % MAX_JOBS];
}

/* Rings never come near the most that a counter holds. */
static void ring(int fd)
{
	uint64_t one = 1;
	ssize_t written = write(fd, &one, sizeof(one));

	(void)written;
}

static void take_rings(int fd)
{
	uint64_t rings;
	ssize_t got = read(fd, &rings, sizeof(rings));

	(void)got;
}

static void run_next(struct kvd_worker *worker, uint32_t index)
{
	struct job *job = job_at(worker, index);

	atomic_store_explicit(&worker->started_ns, now_ns(), memory_order_relaxed);
	atomic_store_explicit(&worker->running, job->name, memory_order_release);
	job->result = job->run(job->arg, &worker->cancel);
	atomic_store_explicit(&worker->running, NULL, memory_order_relaxed);
	atomic_store_explicit(&worker->finished, index + 1, memory_order_release);
	ring(worker->event_fd);
}

static void *work(void *arg)
{
	struct kvd_worker *worker = arg;

	while (!worker->cancel) {
		uint32_t next = atomic_load_explicit(&worker->finished, memory_order_relaxed);

		if (next == atomic_load_explicit(&worker->submitted, memory_order_acquire))
			take_rings(worker->wake_fd);
		else
			run_next(worker, next);
	}
	return NULL;
}

/* Signals are the loop's: the thread, and what it starts, inherits a mask without any. */
static int start_thread(struct kvd_worker *worker)
{
	sigset_t all;
	sigset_t before;
	int ret;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	ret = pthread_create(&worker->thread, NULL, work, worker);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -ret;
}

int kvd_worker_start(struct kvd_worker **out)
{
	struct kvd_worker *worker = calloc(1, sizeof(*worker));
	int ret;

	if (!worker)
		return -ENOMEM;
	worker->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (worker->event_fd < 0) {
		ret = -errno;
		goto err_free;
	}
	worker->wake_fd = eventfd(0, EFD_CLOEXEC);
	if (worker->wake_fd < 0) {
		ret = -errno;
		goto err_close_event;
	}
	ret = start_thread(worker);
	if (ret < 0)
		goto err_close_wake;
	*out = worker;
	return 0;

err_close_wake:
	close(worker->wake_fd);
err_close_event:
	close(worker->event_fd);
err_free:
	free(worker);
	return ret;
}

/* The oldest job whose completion was not told. */
static bool take(struct kvd_worker *worker, struct job *out)
{
	if (worker->told == atomic_load_explicit(&worker->finished, memory_order_acquire))
		return false;
	*out = *job_at(worker, worker->told);
	worker->told++;
	return true;
}

/* The worker's thread has ended: what it did not begin never will be. */
static void cancel_rest(struct kvd_worker *worker)
{
	for (; worker->finished != worker->submitted; worker->finished++)
		job_at(worker, worker->finished)->result = -ECANCELED;
}

void kvd_worker_stop(struct kvd_worker *worker)
{
	struct job job;

	if (!worker)
		return;
	worker->cancel = 1;
	ring(worker->wake_fd);
	pthread_join(worker->thread, NULL);
	cancel_rest(worker);
	while (take(worker, &job))
		job.done(job.arg, job.result);
	close(worker->wake_fd);
	close(worker->event_fd);
	free(worker);
}

int kvd_worker_fd(const struct kvd_worker *worker)
{
	return worker->event_fd;
}

/* The event is taken before the jobs: one that ends in between rings again. */
void kvd_worker_deliver(struct kvd_worker *worker)
{
	struct job job;

	take_rings(worker->event_fd);
	while (take(worker, &job))
		job.done(job.arg, job.result);
}

int kvd_worker_submit(struct kvd_worker *worker, const char *name, kvd_job_fn run, kvd_job_done_fn done,
		      void *arg)
{
	uint32_t next = atomic_load_explicit(&worker->submitted, memory_order_relaxed);

	if (worker->cancel)
		return -ECANCELED;
	if (next - worker->told == MAX_JOBS)
		return -EAGAIN;
	*job_at(worker, next) = (struct job){.name = name, .run = run, .done = done, .arg = arg};
	atomic_store_explicit(&worker->submitted, next + 1, memory_order_release);
	ring(worker->wake_fd);
	return 0;
}

/* The beginning is read before the clock: a job that begins in between would else begin in the future. */
uint64_t kvd_worker_busy_ms(const struct kvd_worker *worker, const char **out_name)
{
	const char *name = atomic_load_explicit(&worker->running, memory_order_acquire);
	uint64_t started_ns = atomic_load_explicit(&worker->started_ns, memory_order_acquire);

	if (!name)
		return 0;
	*out_name = name;
	return (now_ns() - started_ns) / 1000000u + 1;
}
