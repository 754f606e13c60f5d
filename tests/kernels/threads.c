/* SPDX-License-Identifier: Apache-2.0 */
#include "threads.h"

#include <pthread.h>
#include <stdlib.h>

#define MAX_COUNT 16

struct job {
	kvk_task_fn task;
	void *arg;
	uint32_t index;
	pthread_t thread;
};

static void *do_job(void *arg)
{
	const struct job *job = arg;

	job->task(job->arg, job->index);
	return NULL;
}

/* The count is the context. */
static uint32_t count_of(const void *context)
{
	return (uint32_t)(uintptr_t)context;
}

static void run_at_once(void *context, kvk_task_fn task, void *arg)
{
	const uint32_t count = count_of(context);
	struct job jobs[MAX_COUNT];

	for (uint32_t i = 1; i < count; i++) {
		jobs[i] = (struct job){.task = task, .arg = arg, .index = i};
		if (pthread_create(&jobs[i].thread, NULL, do_job, &jobs[i]))
			abort();
	}
	task(arg, 0);
	for (uint32_t i = 1; i < count; i++)
		pthread_join(jobs[i].thread, NULL);
}

static void run_backwards(void *context, kvk_task_fn task, void *arg)
{
	for (uint32_t i = count_of(context); i > 0; i--)
		task(arg, i - 1);
}

static struct kvk_threads threads_of(uint32_t count, void (*run)(void *context, kvk_task_fn task, void *arg))
{
	if (count < 1 || count > MAX_COUNT)
		abort();
	return (struct kvk_threads){.size = sizeof(struct kvk_threads),
				    .count = count,
				    .context = (void *)(uintptr_t)count,
				    .run = run};
}

struct kvk_threads kvt_threads_at_once(uint32_t count)
{
	return threads_of(count, run_at_once);
}

struct kvk_threads kvt_threads_backwards(uint32_t count)
{
	return threads_of(count, run_backwards);
}
