/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu_peers.h"

#include <stdio.h>
#include <stdlib.h>

#include <kvpool/kernels.h>

#define BATCH 128
#define CONTEXT 4096
#define SHAPES 3

static const int heads_of[SHAPES] = {16, 32, 128};

/* Counted as ours are. */
static double gigabytes(int heads)
{
	const double rows = (double)BATCH * heads;

	return 2e-9 * (rows * (KVK_MLA_WIDTH + KVK_MLA_LATENT) + (double)BATCH * CONTEXT * KVK_MLA_WIDTH);
}

static double teraflop(int heads)
{
	return 2e-12 * BATCH * heads * (double)CONTEXT * (KVK_MLA_WIDTH + KVK_MLA_LATENT);
}

/* us[i] stays 0 where the script has no answer. */
static void ask(const char *library, double us[SHAPES])
{
	const char *dir = getenv("KVP_BENCH_DIR"); /* of a bundle */
	char command[512], text[64];
	FILE *script;

	snprintf(command, sizeof(command),
		 "timeout 120 python3 %s/peers/gpu_attention.py %s %d %d %d %d %d 2>/dev/null",
		 dir ? dir : KVP_BENCH_DIR, library, BATCH, CONTEXT, heads_of[0], heads_of[1], heads_of[2]);
	script = popen(command, "r");
	if (!script)
		return;
	while (fgets(text, sizeof(text), script)) {
		char *end;
		const long heads = strtol(text, &end, 10);

		for (int i = 0; i < SHAPES; i++)
			if (heads == heads_of[i])
				us[i] = strtod(end, NULL);
	}
	pclose(script);
}

void bench_gpu_peers(struct bench_lines *lines)
{
	static const char *const libraries[] = {"torch", "flash_mla", "flashinfer"};

	for (size_t n = 0; n < sizeof(libraries) / sizeof(*libraries); n++) {
		double us[SHAPES] = {0};

		ask(libraries[n], us);
		for (int i = 0; i < SHAPES; i++) {
			const double work = heads_of[i] < 128 ? gigabytes(heads_of[i]) * 1e6
							      : teraflop(heads_of[i]) * 1e6;
			char name[48];
			struct bench_line *line;

			snprintf(name, sizeof(name), "mla_bf16_h%d_", heads_of[i]);
			line = bench_add_line(lines, name, libraries[n], 0,
					      heads_of[i] < 128 ? "GB/s" : "TFLOP/s");
			line->value = us[i] > 0 ? work / us[i] : 0;
			line->low = line->high = line->value;
		}
	}
}
