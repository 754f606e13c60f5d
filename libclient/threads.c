/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads for the kernels: the only ones that the library ever starts, and only on request.
 *
 * A round: the caller writes task and argument, raises `round`, does task 0 itself and waits until `unfinished` is 0.
 * Both sides first spin, since the rounds of a decode step follow each other within microseconds, then sleep on a futex,
 * since an engine that waits for requests must cost nothing.
 *
 *   caller: write the task; round += 1; if sleepers: wake them          worker: sleepers += 1; sleep while round is the old one
 *   worker: unfinished -= 1; if it is 0 and the caller waits: wake it   caller: waiting = 1; sleep while unfinished is the old one
 *
 * Each pair is a store followed by a load on both sides, hence sequentially consistent: one of the two sees the other.
 */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <kvpool/kernels.h>
#include <kvpool/kvpool.h>

#include "client.h"
#include "error.h"
#include "fork.h"
#include "ipc/ring.h"
#include "params.h"

#define DEFAULT_SPIN_US 100u
#define MAX_SPIN_US 1000000u
#define SPINS_A_LOOK 64        /* at the clock */
#define SLEEP_MS 1000u         /* a wake-up can't be lost; should one be, this is what it costs */
#define STACK_BYTES (1u << 20) /* kernels promise to need a quarter of it */

struct worker {
	struct pool *pool;
	uint32_t index;
	pthread_t thread;
};

struct pool {
	struct kvk_threads threads; /* what the caller has */
	struct kvc_mark *mark;
	uint32_t spin_us;
	uint32_t started; /* workers, [1, started] of them; the caller is 0 */
	kvk_task_fn task; /* of the round */
	void *arg;
	atomic_flag busy; /* while a round runs */
	_Alignas(KVW_CACHE_LINE) _Atomic uint32_t round;
	_Atomic uint32_t sleepers;
	_Atomic bool stop;
	_Alignas(KVW_CACHE_LINE) _Atomic uint32_t unfinished; /* workers, of this round */
	_Atomic bool waiting;
	_Alignas(KVW_CACHE_LINE) struct worker workers[];
};

/* ------------------------------------------------------------------ waiting */

static void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static uint64_t now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

/* Spins while *word is `old`, `spin_us` at most. Whether it changed. */
static bool spin_while(_Atomic uint32_t *word, uint32_t old, uint32_t spin_us)
{
	const uint64_t end_us = now_us() + spin_us;

	do {
		for (int i = 0; i < SPINS_A_LOOK; i++) {
			if (atomic_load_explicit(word, memory_order_acquire) != old)
				return true;
			relax();
		}
	} while (now_us() < end_us);
	return false;
}

static void wait_for_round(struct pool *pool, uint32_t seen)
{
	if (spin_while(&pool->round, seen, pool->spin_us))
		return;
	atomic_fetch_add(&pool->sleepers, 1);
	while (atomic_load(&pool->round) == seen)
		kvw_futex_wait(&pool->round, seen, SLEEP_MS);
	atomic_fetch_sub(&pool->sleepers, 1);
}

static void wait_for_workers(struct pool *pool)
{
	uint32_t left;

	while ((left = atomic_load(&pool->unfinished)) != 0) {
		if (spin_while(&pool->unfinished, left, pool->spin_us))
			continue;
		atomic_store(&pool->waiting, true);
		left = atomic_load(&pool->unfinished);
		if (left)
			kvw_futex_wait(&pool->unfinished, left, SLEEP_MS);
		atomic_store(&pool->waiting, false);
	}
}

/* ------------------------------------------------------------------ rounds */

static void raise_round(struct pool *pool)
{
	atomic_fetch_add(&pool->round, 1);
	if (atomic_load(&pool->sleepers))
		kvw_futex_wake(&pool->round, INT_MAX);
}

static void *work(void *arg)
{
	struct worker *worker = arg;
	struct pool *pool = worker->pool;
	uint32_t seen = 0;

	for (;;) {
		wait_for_round(pool, seen);
		seen++;
		if (atomic_load_explicit(&pool->stop, memory_order_relaxed))
			return NULL;
		pool->task(pool->arg, worker->index);
		if (atomic_fetch_sub(&pool->unfinished, 1) == 1 && atomic_load(&pool->waiting))
			kvw_futex_wake(&pool->unfinished, INT_MAX);
	}
}

static void run_alone(const struct pool *pool, kvk_task_fn task, void *arg)
{
	for (uint32_t i = 0; i < pool->threads.count; i++)
		task(arg, i);
}

/*
 * kvk_threads.run. Tasks never wait for each other, so that one thread may do all: in a forked child, where the workers
 * are not, and where a round already runs, be it another thread's or the very one that calls from inside.
 */
static void run(void *context, kvk_task_fn task, void *arg)
{
	struct pool *pool = context;

	if (!atomic_load_explicit(&pool->mark->alive, memory_order_relaxed) ||
	    atomic_flag_test_and_set_explicit(&pool->busy, memory_order_acquire)) {
		run_alone(pool, task, arg);
		return;
	}
	pool->task = task;
	pool->arg = arg;
	atomic_store_explicit(&pool->unfinished, pool->started, memory_order_relaxed);
	raise_round(pool);
	task(arg, 0);
	wait_for_workers(pool);
	atomic_flag_clear_explicit(&pool->busy, memory_order_release);
}

/* ------------------------------------------------------------------ life */

static uint32_t usable_cpus(void)
{
	cpu_set_t set;
	long online;

	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		return (uint32_t)CPU_COUNT(&set);
	/* More CPUs than the set has room for. */
	online = sysconf(_SC_NPROCESSORS_ONLN);
	return online > 0 ? (uint32_t)online : 1;
}

static int check_params(struct kvp_threads_params *params)
{
	const uint32_t cpus = usable_cpus();

	if (params->flags)
		return kvc_fail(EINVAL, "kvp_threads_params.flags is %#x: 0", params->flags);
	if (params->count > KVK_MAX_THREADS)
		return kvc_fail(KVP_ELIMIT, "kvp_threads_params.count is %u, at most %u can be had",
				params->count, KVK_MAX_THREADS);
	if (params->spin_us > MAX_SPIN_US)
		return kvc_fail(KVP_ELIMIT,
				"kvp_threads_params.spin_us is %u, at most %u: sleeping costs less",
				params->spin_us, MAX_SPIN_US);
	if (params->cpus && !params->count)
		return kvc_fail(EINVAL,
				"kvp_threads_params.cpus is given without count: set it to entries + 1");
	if (!params->count)
		params->count = cpus < KVK_MAX_THREADS ? cpus : KVK_MAX_THREADS;
	/* Who spins on a CPU that another thread needs only delays it. */
	if (!params->spin_us)
		params->spin_us = params->count <= cpus ? DEFAULT_SPIN_US : 1;
	return 0;
}

static int set_attributes(pthread_attr_t *attributes, const struct kvp_threads_params *params, uint32_t index)
{
	cpu_set_t set;
	uint32_t cpu;

	pthread_attr_setstacksize(attributes, STACK_BYTES);
	if (!params->cpus)
		return 0;
	cpu = params->cpus[index - 1];
	if (cpu >= CPU_SETSIZE)
		return EINVAL;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return pthread_attr_setaffinity_np(attributes, sizeof(set), &set);
}

static int start_worker(struct pool *pool, const struct kvp_threads_params *params, uint32_t index)
{
	struct worker *worker = &pool->workers[index - 1];
	pthread_attr_t attributes;
	char name[32];
	int error = pthread_attr_init(&attributes);

	if (error)
		return error;
	*worker = (struct worker){.pool = pool, .index = index};
	error = set_attributes(&attributes, params, index);
	if (!error)
		error = pthread_create(&worker->thread, &attributes, work, worker);
	pthread_attr_destroy(&attributes);
	if (error)
		return error;
	snprintf(name, sizeof(name), "kvpool-%u", index);
	pthread_setname_np(worker->thread, name);
	return 0;
}

static int fail_to_start(const struct kvp_threads_params *params, uint32_t index, int error)
{
	if (params->cpus)
		return kvc_fail(
			error, "thread %u of %u on CPU %u: %s: is the CPU there and allowed to this process?",
			index, params->count, params->cpus[index - 1], kvp_error_text(error));
	return kvc_fail(error,
			"thread %u of %u: %s: ask for fewer, or raise the limit (RLIMIT_NPROC, pids.max)",
			index, params->count, kvp_error_text(error));
}

/* With all signals blocked, which a thread inherits: the engine's handlers run on its own threads. */
static int start_workers(struct pool *pool, const struct kvp_threads_params *params)
{
	sigset_t all, old;
	int error = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	while (pool->started + 1 < params->count && !error) {
		error = start_worker(pool, params, pool->started + 1);
		if (!error)
			pool->started++;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return error ? fail_to_start(params, pool->started + 1, error) : 0;
}

static void stop_workers(struct pool *pool)
{
	atomic_store_explicit(&pool->stop, true, memory_order_relaxed);
	raise_round(pool);
	for (uint32_t i = 0; i < pool->started; i++)
		pthread_join(pool->workers[i].thread, NULL);
}

static struct pool *allocate(const struct kvp_threads_params *params)
{
	const size_t bytes = sizeof(struct pool) + params->count * sizeof(struct worker);
	const size_t lines = (bytes + KVW_CACHE_LINE - 1) / KVW_CACHE_LINE;
	struct pool *pool = aligned_alloc(KVW_CACHE_LINE, lines * KVW_CACHE_LINE);

	if (!pool)
		return NULL;
	*pool = (struct pool){.threads = {.size = sizeof(pool->threads),
					  .count = params->count,
					  .context = pool,
					  .run = run},
			      .spin_us = params->spin_us,
			      .busy = ATOMIC_FLAG_INIT};
	return pool;
}

int kvp_threads_create(const struct kvp_threads_params *given, const struct kvk_threads **out)
{
	struct kvp_threads_params params = {0};
	struct pool *pool;
	int ret = given ? kvc_params_read(&params, sizeof(params), given, "kvp_threads_params") : 0;

	if (!ret)
		ret = check_params(&params);
	if (ret)
		return ret;
	pool = allocate(&params);
	if (!pool)
		return kvc_fail_plain(ENOMEM, "threads");
	ret = kvc_mark_create(&pool->mark);
	if (ret)
		goto err_free;
	ret = start_workers(pool, &params);
	if (ret)
		goto err_stop;
	*out = &pool->threads;
	return 0;

err_stop:
	stop_workers(pool);
	kvc_mark_destroy(pool->mark);
err_free:
	free(pool);
	return ret;
}

void kvp_threads_destroy(const struct kvk_threads *threads)
{
	struct pool *pool;

	if (!threads)
		return;
	pool = threads->context;
	/* In a forked child there is nobody to stop. */
	if (atomic_load_explicit(&pool->mark->alive, memory_order_relaxed))
		stop_workers(pool);
	kvc_mark_destroy(pool->mark);
	free(pool);
}
