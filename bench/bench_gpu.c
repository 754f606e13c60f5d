/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA kernels against what the GPU allows: each repetition measures the ceiling, a plain read or cuBLAS, then the
 * kernel, both with cold caches and random data, by the driver's events. A line is the repetition with the median ratio;
 * the spread is that of the ratios. The host's time for staging and the device's for a correction have limits in us.
 *
 *   bench_gpu [--quick] [--json] [--only NAME] [--check] [--no-peers] [--rehearse]
 *
 * Ends with 77 and one sentence where there is no device, with 1 when a kernel leaves an output unwritten, and with
 * --check also when a target is missed. --rehearse makes every call with small sizes and measures nothing; on the driver
 * double that is so without asking: GPU times come from a GPU only.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvpool/kvpool.h>

#include "bench.h"
#include "gpu_case.h"
#include "peers/gpu_peers.h"
#include "ratio.h"

#define MAX_ROUNDS 60u
#define STAGED_SEQS 128u

struct options {
	const char *only;
	bool quick, json, check, no_peers, rehearse;
};

struct run {
	struct options options;
	struct bench_gpu gpu;
	struct bench_lines lines;
	uint32_t rounds;
	bool sound;
};

static bool is_wanted(const struct run *run, const char *name)
{
	return !run->options.only || !strcmp(run->options.only, name);
}

/* ------------------------------------------------------------------ one line */

static void launch(struct bench_gpu *gpu, void *context)
{
	const struct gpu_case *line = context;
	const int ret = line->op->run(line, &gpu->kernels.device);

	if (ret)
		bench_gpu_fail(line->name,
			       ret == -ENOTSUP ? "there is no kernel for this" : kvp_last_error());
}

static bool is_nan(const void *values, size_t i, uint32_t dtype)
{
	if (dtype == KVK_F32)
		return isnan(((const float *)values)[i]);
	return (((const uint16_t *)values)[i] & 0x7fff) > 0x7f80;
}

/* Memory was full of NaN before, and nothing that goes in is. */
static void check_written(struct run *run, const struct gpu_case *line)
{
	const size_t count = line->out_bytes / (line->out_dtype == KVK_F32 ? 4 : 2);
	void *values = line->out ? malloc(line->out_bytes) : NULL;
	size_t missing = 0;

	if (!values)
		return;
	GPU_CALL(&run->gpu, cuMemcpyDtoHAsync, values, (uint64_t)(uintptr_t)line->out, line->out_bytes,
		 run->gpu.stream);
	GPU_CALL(&run->gpu, cuStreamSynchronize, run->gpu.stream);
	for (size_t i = 0; i < count; i++)
		missing += is_nan(values, i, line->out_dtype);
	free(values);
	if (!missing)
		return;
	fprintf(stderr, "bench_gpu: %s: %zu of %zu outputs are NaN\n", line->name, missing, count);
	run->sound = false;
}

static double limit_of(struct run *run, const struct gpu_case *line)
{
	switch (line->against) {
	case GPU_READ:
		return bench_gpu_read_limit(&run->gpu);
	case GPU_GEMM:
		return bench_gpu_gemm_limit(&run->gpu);
	default:
		return line->limit_us;
	}
}

/* GB/s, TFLOP/s or us; 0 in a rehearsal. */
static double value_of(const struct gpu_case *line, double us)
{
	if (us <= 0 || line->against == GPU_TIME)
		return us;
	return line->against == GPU_READ ? line->bytes / us * 1e-3 : line->flop / us * 1e-6;
}

static void measure(struct run *run, struct gpu_case *line, struct bench_line *result)
{
	static struct bench_pair pairs[MAX_ROUNDS];

	for (uint32_t i = 0; i < run->rounds; i++) {
		pairs[i].limit = limit_of(run, line);
		pairs[i].value = value_of(line, bench_gpu_time(&run->gpu, launch, line));
	}
	bench_median_pair(pairs, run->rounds, result);
}

/* The same time in the other unit: both ceilings concern a kernel that does much of both. */
static void add_other_unit(struct run *run, const struct gpu_case *line, const struct bench_line *result)
{
	const bool reads = line->against == GPU_READ;
	struct bench_line *other;

	if (line->op != &gpu_mla && line->op != &gpu_mla_sparse)
		return;
	other = bench_add_line(&run->lines, line->name, reads ? "_tflops" : "_gbs", 0,
			       reads ? "TFLOP/s" : "GB/s");
	other->value = reads ? result->value * line->flop / line->bytes * 1e-3
			     : result->value * line->bytes / line->flop * 1e3;
	other->low = other->high = other->value;
}

static void run_line(struct run *run, struct gpu_case *line)
{
	static const char *const units[] = {"GB/s", "TFLOP/s", "us"};
	struct bench_line *result = bench_add_line(&run->lines, line->name, "", 0, units[line->against]);

	line->op->open(line, &run->gpu);
	launch(&run->gpu, line);
	check_written(run, line);
	measure(run, line, result);
	result->target = line->target;
	result->lower_is_better = line->against == GPU_TIME;
	add_other_unit(run, line, result);
	bench_gpu_free_all(&run->gpu);
}

/* ------------------------------------------------------------------ lines without a kernel */

static void ceiling_line(struct run *run, const char *name, const char *unit,
			 double (*ceiling)(struct bench_gpu *gpu))
{
	struct bench_line *line = bench_add_line(&run->lines, name, "", 0, unit);
	struct bench_pair pairs[MAX_ROUNDS];

	for (uint32_t i = 0; i < run->rounds; i++)
		pairs[i] = (struct bench_pair){ceiling(&run->gpu), 0};
	bench_median_pair(pairs, run->rounds, line);
}

/* Of the context too, which the staging needs none of the kernels' work in. */
static void staging_line(struct run *run)
{
	struct bench_line *line;

	if (!is_wanted(run, "staging_b128_host"))
		return;
	line = bench_add_line(&run->lines, "staging_b128_host", "", 1, "us");
	line->value = gpu_staging_us(&run->gpu, STAGED_SEQS);
	line->limit = 10;
	line->target = 1;
	line->lower_is_better = true;
	line->low = line->high = line->value / line->limit;
}

/* ------------------------------------------------------------------ set-up */

static void read_options(struct options *options, int argc, char **argv)
{
	const struct bench_flag flags[] = {{"--quick", &options->quick},
					   {"--json", &options->json},
					   {"--check", &options->check},
					   {"--no-peers", &options->no_peers},
					   {"--rehearse", &options->rehearse}};

	bench_read_options(argc, argv, flags, sizeof(flags) / sizeof(*flags), &options->only);
}

/* What the numbers are of; apart from them, so that --json stays one array. */
static void print_device(const struct bench_gpu *gpu)
{
	fprintf(stderr, "bench_gpu: %s, sm_%d%d, %d multiprocessors, L2 %zu MiB, driver %d%s\n", gpu->name,
		gpu->major, gpu->minor, gpu->kernels.device.units, gpu->l2_bytes >> 20, gpu->driver,
		gpu->rehearsal ? "; a rehearsal: no times" : "");
}

int main(int argc, char **argv)
{
	static struct run run = {.sound = true};

	read_options(&run.options, argc, argv);
	bench_gpu_open(&run.gpu, run.options.rehearse);
	run.rounds = run.gpu.rehearsal ? 1 : run.options.quick ? 15 : MAX_ROUNDS;
	print_device(&run.gpu);
	if (!run.options.only) {
		ceiling_line(&run, "read_4gib", "GB/s", bench_gpu_read_limit);
		ceiling_line(&run, "cublas_bf16_8192", "TFLOP/s", bench_gpu_gemm_limit);
	}
	for (size_t i = 0; i < gpu_case_count; i++)
		if (is_wanted(&run, gpu_cases[i].name))
			run_line(&run, &gpu_cases[i]);
	staging_line(&run);
	bench_gpu_close(&run.gpu);
	if (!run.options.no_peers && !run.options.only)
		bench_gpu_peers(&run.lines);
	bench_print_lines(&run.lines, run.options.json);
	run.sound &= bench_limits_hold(&run.lines);
	if (run.options.check)
		run.sound &= bench_targets_reached(&run.lines);
	return run.sound ? 0 : 1;
}
