/* SPDX-License-Identifier: Apache-2.0 */
/* The caller's threads as the kernels use them: `threads` NULL is the calling thread alone. */
#ifndef KVPOOL_KERNELS_THREADS_H
#define KVPOOL_KERNELS_THREADS_H

#include <kvpool/kernels.h>

static inline uint32_t kvk_thread_count(const struct kvk_threads *threads)
{
	return threads ? threads->count : 1;
}

/*
 * task(arg, i) for each i below kvk_thread_count(), most likely at the same time; returns when all have returned. A
 * task waits for no other one: two phases are two runs.
 */
void kvk_run(const struct kvk_threads *threads, kvk_task_fn task, void *arg);

/*
 * visit(arg, thread, item) once for each item in [0, items): threads take the next one as they come free, in
 * ascending order. `thread` is below kvk_thread_count(), and one thread visits one item at a time, so that it
 * selects working memory; nothing else may depend on it.
 */
typedef void (*kvk_visit_fn)(void *arg, uint32_t thread, int64_t item);
void kvk_each(const struct kvk_threads *threads, int64_t items, kvk_visit_fn visit, void *arg);

#endif
