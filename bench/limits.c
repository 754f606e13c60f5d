/* SPDX-License-Identifier: Apache-2.0 */
#include "limits.h"

#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "../kernels/cpu/level.h"

KVK_LEVEL_TABLES(bench_limit_ops, bench_limit);

static const struct bench_limit_ops *ops(void)
{
	enum kvk_level level;

	return KVK_LEVEL_TABLE(bench_limit, kvk_level_choose(&level) ? KVK_LEVEL_SCALAR : level);
}

static clockid_t clock_id = CLOCK_MONOTONIC;

void bench_use_cpu_time(void)
{
	clock_id = CLOCK_THREAD_CPUTIME_ID;
}

uint64_t bench_clock_ns(void)
{
	struct timespec now;

	clock_gettime(clock_id, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint32_t count_of(const struct kvk_threads *threads)
{
	return threads ? threads->count : 1;
}

static void run(const struct kvk_threads *threads, kvk_task_fn task, void *arg)
{
	if (threads)
		threads->run(threads->context, task, arg);
	else
		task(arg, 0);
}

/* Results end here, so that no compiler can leave the work out. */
static void keep(const void *result)
{
	__asm__ volatile("" : : "r"(result) : "memory");
}

/* ------------------------------------------------------------------ multiply-add */

static void multiply_add(void *arg, uint32_t index)
{
	uint64_t rounds = *(const uint64_t *)arg;
	float kept;

	(void)index;
	ops()->multiply_add(rounds, &kept);
	keep(&kept);
}

static uint64_t cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Rounds that take one thread `ns` of its own time, whatever else the machine does. */
static uint64_t rounds_for(uint64_t ns)
{
	static uint64_t rounds = 4096;
	static uint64_t took;

	while (took < ns) {
		uint64_t begin;

		rounds *= 2;
		begin = cpu_ns();
		multiply_add(&rounds, 0);
		took = cpu_ns() - begin;
	}
	return (uint64_t)((double)rounds * (double)ns / (double)took);
}

double bench_fma_limit(const struct kvk_threads *threads, uint64_t ns)
{
	float kept;
	const double flop = ops()->multiply_add(1, &kept) * count_of(threads);
	uint64_t rounds = rounds_for(ns);
	const uint64_t begin = bench_clock_ns();

	run(threads, multiply_add, &rounds);
	return (double)rounds * flop / (double)(bench_clock_ns() - begin);
}

/* ------------------------------------------------------------------ read */

struct reading {
	const struct bench_pages *pages;
	uint32_t threads;
	int ahead;
};

static void read_part(void *arg, uint32_t index)
{
	const struct reading *reading = arg;
	const struct bench_pages *pages = reading->pages;
	const int32_t begin = (int32_t)((int64_t)pages->count * index / reading->threads);
	const int32_t end = (int32_t)((int64_t)pages->count * (index + 1) / reading->threads);
	const int32_t ahead =
		pages->page_bytes < BENCH_AHEAD_BYTES ? (int32_t)(BENCH_AHEAD_BYTES / pages->page_bytes) : 1;
	uint64_t sum = 0;

	for (int32_t i = begin; i < end; i++) {
		const char *page = pages->base + pages->ids[i] * (int64_t)pages->page_bytes;
		const char *next = pages->base +
				   pages->ids[i + ahead < end ? i + ahead : i] * (int64_t)pages->page_bytes;

		sum ^= ops()->read_page(page, pages->page_bytes, next, reading->ahead);
	}
	keep(&sum);
}

double bench_read_limit(const struct kvk_threads *threads, const struct bench_pages *pages)
{
	const double bytes = (double)pages->count * (double)pages->page_bytes;
	double best = 0;

	for (int ahead = 0; ahead < 2; ahead++) {
		struct reading reading = {.pages = pages, .threads = count_of(threads), .ahead = ahead};
		const uint64_t begin = bench_clock_ns();
		double rate;

		run(threads, read_part, &reading);
		rate = bytes / (double)(bench_clock_ns() - begin);
		best = rate > best ? rate : best;
	}
	return best;
}

/* ------------------------------------------------------------------ copy */

struct copying {
	char *to;
	const char *from;
	size_t bytes;
	uint32_t threads;
	bool past_cache;
};

static void copy_part(void *arg, uint32_t index)
{
	const struct copying *copying = arg;
	const size_t lines = copying->bytes / 4096;
	const size_t begin = lines * index / copying->threads * 4096;
	const size_t bytes = lines * (index + 1) / copying->threads * 4096 - begin;

	if (copying->past_cache)
		ops()->copy(copying->to + begin, copying->from + begin, bytes);
	else
		memcpy(copying->to + begin, copying->from + begin, bytes);
	keep(copying->to);
}

double bench_copy_limit(const struct kvk_threads *threads, char *to, const char *from, size_t bytes)
{
	double best = 0;

	for (int past_cache = 0; past_cache < 2; past_cache++) {
		struct copying copying = {.to = to,
					  .from = from,
					  .bytes = bytes,
					  .threads = count_of(threads),
					  .past_cache = past_cache};
		const uint64_t begin = bench_clock_ns();
		double rate;

		run(threads, copy_part, &copying);
		rate = (double)bytes / (double)(bench_clock_ns() - begin);
		best = rate > best ? rate : best;
	}
	return best;
}
