/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the machine allows, measured with the vectors of the level that the kernels use, on the same threads, in
 * turn with the kernels: multiply-adds, a plain read of the same pages in the same order, and a sequential copy.
 * Each is the best of its forms, so that nothing can be better than its limit.
 */
#ifndef KVPOOL_BENCH_LIMITS_H
#define KVPOOL_BENCH_LIMITS_H

#include <stddef.h>
#include <stdint.h>

#include <kvpool/kernels.h>

/* How far a read with requests ahead asks ahead. */
#define BENCH_AHEAD_BYTES 1536

/* As built for one level. */
struct bench_limit_ops {
	/* Flop done; *kept depends on all of them. */
	double (*multiply_add)(uint64_t rounds, float *kept);
	/* `bytes` a multiple of 256, 64-byte aligned; `next` is what BENCH_AHEAD_BYTES ahead leads to. */
	uint64_t (*read_page)(const char *page, size_t bytes, const char *next, int ahead);
	/* Past the cache; `bytes` a multiple of 64, both 64-byte aligned. */
	void (*copy)(char *to, const char *from, size_t bytes);
};

/*
 * What kernels and limits are timed by: the wall clock, or the calling thread's CPU time, which says more on a busy
 * machine, for one thread.
 */
uint64_t bench_clock_ns(void);
void bench_use_cpu_time(void);

/* GFLOP/s of all threads together, over about `ns`. */
double bench_fma_limit(const struct kvk_threads *threads, uint64_t ns);

/* Pages of `page_bytes` in the order of their ids. */
struct bench_pages {
	const char *base;
	size_t page_bytes;
	const int32_t *ids;
	int32_t count;
};
/* GB/s, the better of with and without requests ahead, each over every page. */
double bench_read_limit(const struct kvk_threads *threads, const struct bench_pages *pages);

/* GB/s copied, the better of memcpy() and a copy past the cache; `bytes` a multiple of 4096. */
double bench_copy_limit(const struct kvk_threads *threads, char *to, const char *from, size_t bytes);

#endif
