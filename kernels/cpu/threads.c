/* SPDX-License-Identifier: Apache-2.0 */
/* See threads.h. */
#include "threads.h"

#include <stdatomic.h>

/* One kvk_each(). `next` is on a line of its own: every thread writes it. */
struct round {
	kvk_visit_fn visit;
	void *arg;
	int64_t items;
	_Alignas(64) _Atomic int64_t next;
};

void kvk_run(const struct kvk_threads *threads, kvk_task_fn task, void *arg)
{
	if (kvk_thread_count(threads) == 1)
		task(arg, 0);
	else
		threads->run(threads->context, task, arg);
}

/* Relaxed: the counter only hands out numbers; run() orders what the visits write. */
static void take_items(void *arg, uint32_t thread)
{
	struct round *round = arg;

	for (;;) {
		int64_t item = atomic_fetch_add_explicit(&round->next, 1, memory_order_relaxed);

		if (item >= round->items)
			return;
		round->visit(round->arg, thread, item);
	}
}

void kvk_each(const struct kvk_threads *threads, int64_t items, kvk_visit_fn visit, void *arg)
{
	struct round round = {.visit = visit, .arg = arg, .items = items};

	if (items > 1)
		kvk_run(threads, take_items, &round);
	else if (items == 1)
		visit(arg, 0, 0);
}
