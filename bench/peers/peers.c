/* SPDX-License-Identifier: Apache-2.0 */
#include "peers.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../kernel_case.h"

#define SCRIPT KVP_BENCH_DIR "/peers/attention.py"

/* OpenBLAS starts its threads when it is loaded, with the pinning of who loads it. */
static void unpin(void)
{
	cpu_set_t all;

	memset(&all, 0xff, sizeof(all));
	sched_setaffinity(0, sizeof(all), &all);
}

static void openblas_lines(const struct bench_case *of, struct bench_lines *lines, uint64_t budget_ns)
{
	const struct bench_peer_shape shape = {
		.heads = of->heads, .batch = of->batch, .context = of->context};

	for (uint32_t threads = 1; threads <= 2; threads++) {
		struct bench_line *line = bench_add_line(lines, of->name, "_openblas", threads, "GFLOP/s");

		line->value = bench_openblas_mla(&shape, threads, budget_ns);
		line->low = line->high = line->value;
	}
}

/* The script prints one number, GFLOP/s, or nothing when the library is not there. */
static void script_line(const struct bench_case *of, struct bench_lines *lines, const char *library,
			uint32_t threads, uint64_t budget_ns)
{
	char suffix[16], command[512], text[64];
	struct bench_line *line;
	FILE *script;

	snprintf(suffix, sizeof(suffix), "_%s", library);
	line = bench_add_line(lines, of->name, suffix, threads, "GFLOP/s");
	snprintf(command, sizeof(command),
		 "OMP_NUM_THREADS=%u OPENBLAS_NUM_THREADS=%u timeout 60 /usr/bin/python3 %s %s %d %d %d %.3f "
		 "2>/dev/null",
		 threads, threads, SCRIPT, library, of->heads, of->batch, of->context,
		 (double)budget_ns / 1e9);
	script = popen(command, "r");
	if (!script)
		return;
	if (fgets(text, sizeof(text), script))
		line->value = line->low = line->high = strtod(text, NULL);
	pclose(script);
}

void bench_peers(struct bench_lines *lines, const char *only, bool quick)
{
	const uint64_t budget_ns = quick ? 300000000u : 2000000000u;

	unpin();
	for (size_t i = 0; i < bench_case_count; i++) {
		const struct bench_case *of = &bench_cases[i];

		if (of->kernel != &bench_mla || of->form != KVK_BF16 || (only && strcmp(only, of->name)))
			continue;
		openblas_lines(of, lines, budget_ns);
		/* One request is enough to place a script, and the reference BLAS takes a second for it. */
		if (of->batch > 1)
			continue;
		for (uint32_t threads = 1; threads <= (quick ? 1 : 2); threads++) {
			script_line(of, lines, "numpy", threads, budget_ns);
			script_line(of, lines, "torch", threads, budget_ns);
		}
	}
}
