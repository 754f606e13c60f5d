/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels against what the machine allows: each repetition measures the limit, then the kernel, with one thread and
 * with two, pinned. A line is the repetition with the median ratio; the spread is that of the ratios.
 *
 *   bench_kernels [--quick] [--json] [--only NAME] [--check] [--cpu-time] [--no-peers]
 *   bench_kernels --smoke	every line once, and nothing judged: whether they run
 *
 * Ends with 1 when a ratio is above 1, which only a wrong limit can give, and with --check also when a target is missed.
 * $KVPOOL_KERNELS forces an instruction set level, for kernels and limits alike.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvpool/kvpool.h>

#include "bench.h"
#include "kernel_case.h"
#include "limits.h"
#include "peers/peers.h"
#include "pool.h"
#include "ratio.h"

#define MAX_PAIRS 400u
#define THREADS 2u /* at most */
#define FMA_NS 4000000u

struct options {
	const char *only;
	bool quick, json, check, cpu_time, no_peers, smoke;
};

struct run {
	struct options options;
	const struct kvk_threads *threads[THREADS]; /* NULL: the calling thread */
	uint32_t thread_counts;                     /* 1 to THREADS */
	uint64_t budget_ns;                         /* of a line */
	struct bench_lines lines;
};

static void fail(const char *name, int ret)
{
	fprintf(stderr, "benchmark: %s: %s\n", name, kvp_error_name(ret));
	exit(2);
}

/* ------------------------------------------------------------------ one line */

static double measure_limit(const struct bench_case *line, uint32_t set, const struct kvk_threads *threads)
{
	struct bench_pages pages = line->pages;

	switch (line->kind) {
	case BENCH_READ:
		pages.ids += (int64_t)set * pages.count;
		return bench_read_limit(threads, &pages);
	case BENCH_COPY:
		return bench_copy_limit(threads, line->copy_to, line->copy_from, line->copy_bytes);
	default:
		return bench_fma_limit(threads, FMA_NS);
	}
}

static double measure_kernel(const struct bench_case *line, uint32_t set, const struct kvk_threads *threads)
{
	const uint64_t begin = bench_clock_ns();
	const int ret = line->kernel->run(line, set, threads);
	const uint64_t took = bench_clock_ns() - begin;

	if (ret)
		fail(line->name, ret);
	return line->work / (double)(took ? took : 1);
}

/* For the most threads: it does for fewer too. */
static void give_scratch(struct bench_case *line, const struct run *run)
{
	for (uint32_t i = 0; i < run->thread_counts && line->kernel->scratch; i++) {
		size_t bytes;
		const int ret = line->kernel->scratch(line, run->threads[i], &bytes);

		if (ret)
			fail(line->name, ret);
		line->scratch_bytes = bytes > line->scratch_bytes ? bytes : line->scratch_bytes;
	}
	line->scratch = line->scratch_bytes ? bench_memory(line->scratch_bytes) : NULL;
}

/* Pairs of each thread count, and what they gain by the second thread. */
struct pairs {
	struct bench_pair of[THREADS][MAX_PAIRS];
	struct bench_pair gain[MAX_PAIRS];
	size_t count;
};

/* The limit takes the set on the other side of the round: neither finds what the other one has just read. */
static void measure_once(const struct bench_case *line, const struct run *run, struct pairs *pairs)
{
	for (uint32_t i = 0; i < run->thread_counts; i++) {
		const uint32_t turn = (uint32_t)(pairs->count * run->thread_counts) + i;
		struct bench_pair *pair = &pairs->of[i][pairs->count];

		pair->limit = measure_limit(line, (turn + line->sets / 2) % line->sets, run->threads[i]);
		pair->value = measure_kernel(line, turn % line->sets, run->threads[i]);
	}
	pairs->gain[pairs->count].value =
		(pairs->of[1][pairs->count].value / pairs->of[0][pairs->count].value) /
		(pairs->of[1][pairs->count].limit / pairs->of[0][pairs->count].limit);
	pairs->count++;
}

static void measure(const struct bench_case *line, const struct run *run, struct pairs *pairs)
{
	const uint64_t begin = bench_clock_ns();

	/* Not measured: first use of code, scratch and outputs. */
	measure_kernel(line, 0, run->threads[0]);
	pairs->count = 0;
	do
		measure_once(line, run, pairs);
	while (!run->options.smoke && pairs->count < MAX_PAIRS &&
	       (pairs->count < 3 || bench_clock_ns() - begin < run->budget_ns));
}

static void run_line(struct bench_case *line, struct run *run)
{
	static struct pairs pairs;
	const char *unit = line->kind == BENCH_FMA ? "GFLOP/s" : "GB/s";

	line->kernel->open(line);
	give_scratch(line, run);
	measure(line, run, &pairs);
	for (uint32_t i = 0; i < run->thread_counts; i++) {
		struct bench_line *result = bench_add_line(&run->lines, line->name, "", i + 1, unit);

		bench_median_pair(pairs.of[i], pairs.count, result);
		result->target = i ? 0 : line->target;
	}
	if (run->thread_counts == THREADS && line->kind == BENCH_FMA) {
		struct bench_line *result =
			bench_add_line(&run->lines, line->name, "_gain", THREADS, "x limit's");

		bench_median_pair(pairs.gain, pairs.count, result);
		result->target = 0.9;
	}
}

/* ------------------------------------------------------------------ lines between lines */

static const struct bench_line *find(const struct bench_lines *lines, const char *name)
{
	for (size_t i = 0; i < lines->count; i++)
		if (!strcmp(lines->line[i].name, name) && lines->line[i].threads == 1)
			return &lines->line[i];
	return NULL;
}

/* FP8 rows against bf16 rows: what each makes of the multiply-adds that were there in its own time. */
static void fp8_line(struct run *run, const char *fp8_name, const char *bf16_name, const char *name)
{
	const struct bench_line *fp8 = find(&run->lines, fp8_name);
	const struct bench_line *bf16 = find(&run->lines, bf16_name);
	struct bench_line *result;

	if (!fp8 || !bf16)
		return;
	result = bench_add_line(&run->lines, name, "", 1, "x bf16");
	result->value = fp8->value / fp8->limit / (bf16->value / bf16->limit);
	result->low = result->high = result->value;
	result->target = 0.9;
}

/* ------------------------------------------------------------------ set-up */

static bool is_wanted(const struct run *run, const char *name)
{
	return !run->options.only || !strcmp(run->options.only, name);
}

/* The first CPUs that the process may use: the caller on the first, the second thread on the next. */
static void pin(struct run *run)
{
	struct kvp_threads_params params = {.size = sizeof(params), .count = THREADS, .spin_us = 100000};
	uint32_t cpus[THREADS];
	uint32_t found = 0;
	cpu_set_t usable, own;
	int ret;

	if (sched_getaffinity(0, sizeof(usable), &usable))
		fail("CPUs", -errno);
	for (uint32_t cpu = 0; cpu < CPU_SETSIZE && found < THREADS; cpu++)
		if (CPU_ISSET(cpu, &usable))
			cpus[found++] = cpu;
	CPU_ZERO(&own);
	CPU_SET(cpus[0], &own);
	sched_setaffinity(0, sizeof(own), &own);
	run->thread_counts = run->options.cpu_time ? 1 : found;
	if (run->thread_counts < THREADS)
		return;
	params.cpus = &cpus[1];
	ret = kvp_threads_create(&params, &run->threads[1]);
	if (ret)
		fail("threads", ret);
}

static void read_options(struct options *options, int argc, char **argv)
{
	const struct bench_flag flags[] = {
		{"--quick", &options->quick},       {"--json", &options->json},
		{"--check", &options->check},       {"--cpu-time", &options->cpu_time},
		{"--no-peers", &options->no_peers}, {"--smoke", &options->smoke}};

	bench_read_options(argc, argv, flags, sizeof(flags) / sizeof(*flags), &options->only);
}

int main(int argc, char **argv)
{
	static struct run run;
	bool good;

	read_options(&run.options, argc, argv);
	if (kvk_level_error()) {
		fprintf(stderr, "benchmark: %s\n", kvk_level_error());
		return 2;
	}
	if (run.options.cpu_time)
		bench_use_cpu_time();
	run.budget_ns = run.options.quick ? 1000000000u : 6000000000u;
	pin(&run);
	if (!run.options.json)
		printf("kernels and limits at level %s\n", kvk_level_name());
	for (size_t i = 0; i < bench_case_count; i++)
		if (is_wanted(&run, bench_cases[i].name))
			run_line(&bench_cases[i], &run);
	fp8_line(&run, "mla_fp8_h16_b1", "mla_bf16_h16_b1", "mla_fp8_h16_b1_vs_bf16");
	fp8_line(&run, "mla_fp8_h128_b1", "mla_bf16_h128_b1", "mla_fp8_h128_b1_vs_bf16");
	kvp_threads_destroy(run.threads[1]);
	if (!run.options.no_peers && !run.options.cpu_time)
		bench_peers(&run.lines, run.options.only, run.options.quick);
	bench_print_lines(&run.lines, run.options.json);
	if (run.options.smoke)
		return 0;
	good = bench_limits_hold(&run.lines);
	if (run.options.check)
		good &= bench_targets_reached(&run.lines);
	return good ? 0 : 1;
}
