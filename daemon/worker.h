/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One thread for what may block (populating pools, later a device's driver), so that the loop never does. Jobs run in order;
 * their completion is told on the loop's thread, through an eventfd. Health shows a job that takes long.
 *
 * All calls are the loop's thread's, and none of them waits for the worker, but kvd_worker_stop().
 */
#ifndef KVPOOL_DAEMON_WORKER_H
#define KVPOOL_DAEMON_WORKER_H

#include <stdatomic.h>
#include <stdint.h>

struct kvd_worker;

/* On the worker's thread. cancel: becomes 1 when the daemon ends. Returns the result that `done` gets. */
typedef int (*kvd_job_fn)(void *arg, const _Atomic int *cancel);
/* On the loop's thread. */
typedef void (*kvd_job_done_fn)(void *arg, int result);

int kvd_worker_start(struct kvd_worker **out);
/* Cancels and waits for the running job; jobs not begun are told done(-ECANCELED). */
void kvd_worker_stop(struct kvd_worker *worker);
/* The eventfd to watch; when it is ready call kvd_worker_deliver(). */
int kvd_worker_fd(const struct kvd_worker *worker);
void kvd_worker_deliver(struct kvd_worker *worker);
/* `name`: a static string for health. -EAGAIN when 64 jobs wait. */
int kvd_worker_submit(struct kvd_worker *worker, const char *name, kvd_job_fn run, kvd_job_done_fn done,
		      void *arg);
/* Milliseconds the running job has taken (0: idle) and its name. */
uint64_t kvd_worker_busy_ms(const struct kvd_worker *worker, const char **out_name);

#endif
