/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker: one ring of jobs under one mutex. A job keeps its place until its completion was told, so that the ring bounds what
 * waits on either side:
 *
 *   told <= finished <= submitted, all free-running; submitted - told <= 64
 *   [told, finished) done, to be delivered; [finished] running when `started_ns`; the rest waits
 */
#include "worker.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
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
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	_Atomic int cancel;
	int event_fd;
	/* Under the mutex. */
	bool stopping;
	uint32_t told;
	uint32_t finished;
	uint32_t submitted;
	uint64_t started_ns; /* 0: idle */
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

/* A full counter would block the writer: it is non-blocking, and then it is readable anyway. */
static void ring_event(struct kvd_worker *worker)
{
	uint64_t one = 1;
	ssize_t written = write(worker->event_fd, &one, sizeof(one));

	(void)written;
}

/* Called and returns with the mutex held; it is free while the job runs. Its slot can't move or be reused meanwhile. */
static void run_next(struct kvd_worker *worker)
{
	struct job *job = job_at(worker, worker->finished);
	int result;

	worker->started_ns = now_ns();
	pthread_mutex_unlock(&worker->mutex);
	result = job->run(job->arg, &worker->cancel);
	pthread_mutex_lock(&worker->mutex);
	job->result = result;
	worker->started_ns = 0;
	worker->finished++;
	ring_event(worker);
}

static void *work(void *arg)
{
	struct kvd_worker *worker = arg;

	pthread_mutex_lock(&worker->mutex);
	while (!worker->stopping) {
		if (worker->finished == worker->submitted)
			pthread_cond_wait(&worker->changed, &worker->mutex);
		else
			run_next(worker);
	}
	pthread_mutex_unlock(&worker->mutex);
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
	pthread_mutex_init(&worker->mutex, NULL);
	pthread_cond_init(&worker->changed, NULL);
	ret = start_thread(worker);
	if (ret < 0)
		goto err_destroy;
	*out = worker;
	return 0;

err_destroy:
	pthread_cond_destroy(&worker->changed);
	pthread_mutex_destroy(&worker->mutex);
	close(worker->event_fd);
err_free:
	free(worker);
	return ret;
}

/* The oldest job whose completion was not told. `all`: also one that never ran. */
static bool take(struct kvd_worker *worker, bool all, struct job *out)
{
	bool found;

	pthread_mutex_lock(&worker->mutex);
	found = worker->told != (all ? worker->submitted : worker->finished);
	if (found) {
		*out = *job_at(worker, worker->told);
		if (worker->told == worker->finished) {
			out->result = -ECANCELED;
			worker->finished++;
		}
		worker->told++;
	}
	pthread_mutex_unlock(&worker->mutex);
	return found;
}

void kvd_worker_stop(struct kvd_worker *worker)
{
	struct job job;

	if (!worker)
		return;
	worker->cancel = 1;
	pthread_mutex_lock(&worker->mutex);
	worker->stopping = true;
	pthread_cond_signal(&worker->changed);
	pthread_mutex_unlock(&worker->mutex);
	pthread_join(worker->thread, NULL);
	while (take(worker, true, &job))
		job.done(job.arg, job.result);
	pthread_cond_destroy(&worker->changed);
	pthread_mutex_destroy(&worker->mutex);
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
	uint64_t rings;
	ssize_t got = read(worker->event_fd, &rings, sizeof(rings));
	struct job job;

	(void)got;
	while (take(worker, false, &job))
		job.done(job.arg, job.result);
}

int kvd_worker_submit(struct kvd_worker *worker, const char *name, kvd_job_fn run, kvd_job_done_fn done,
		      void *arg)
{
	int ret = 0;

	pthread_mutex_lock(&worker->mutex);
	if (worker->stopping)
		ret = -ECANCELED;
	else if (worker->submitted - worker->told == MAX_JOBS)
		ret = -EAGAIN;
	if (!ret) {
		*job_at(worker, worker->submitted) =
			(struct job){.name = name, .run = run, .done = done, .arg = arg};
		worker->submitted++;
		pthread_cond_signal(&worker->changed);
	}
	pthread_mutex_unlock(&worker->mutex);
	return ret;
}

uint64_t kvd_worker_busy_ms(const struct kvd_worker *worker, const char **out_name)
{
	/* The mutex is the only thing that a look changes. */
	struct kvd_worker *mutable = (struct kvd_worker *)(uintptr_t)worker;
	uint64_t busy_ms = 0;

	pthread_mutex_lock(&mutable->mutex);
	if (mutable->started_ns) {
		busy_ms = (now_ns() - mutable->started_ns) / 1000000u + 1;
		*out_name = job_at(mutable, mutable->finished)->name;
	}
	pthread_mutex_unlock(&mutable->mutex);
	return busy_ms;
}
