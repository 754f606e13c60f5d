/* SPDX-License-Identifier: Apache-2.0 */
#include "pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <kvpool/kernels.h>

#define HUGE_PAGE ((size_t)2 << 20)

static uint64_t state = 0x9e3779b97f4a7c15u;

static uint64_t next_word(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

void *bench_memory(size_t bytes)
{
	const size_t whole = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
	void *memory = aligned_alloc(HUGE_PAGE, whole);

	if (!memory) {
		fprintf(stderr, "benchmark: no memory for %zu MiB\n", whole >> 20);
		exit(2);
	}
	madvise(memory, whole, MADV_HUGEPAGE);
	return memset(memory, 0, whole);
}

void *bench_bf16(size_t bytes)
{
	uint64_t *words = bench_memory(bytes);

	/* Sign, mantissa and the exponent's last two bits at random. */
	for (size_t i = 0; i < bytes / sizeof(*words); i++)
		words[i] = (next_word() & 0x81ff81ff81ff81ffu) | 0x3e003e003e003e00u;
	return words;
}

static void fill_fp8_row(unsigned char *row)
{
	const float scale = 0x1p-8f;

	for (size_t i = 0; i < KVK_MLA_LATENT; i += sizeof(uint64_t)) {
		/* Never the code of NaN: the last exponent bit stays 0. */
		const uint64_t codes = next_word() & 0xf7f7f7f7f7f7f7f7u;

		memcpy(row + i, &codes, sizeof(codes));
	}
	for (size_t i = 0; i < 4; i++)
		memcpy(row + KVK_MLA_LATENT + i * sizeof(scale), &scale, sizeof(scale));
	for (size_t i = KVK_MLA_LATENT + 4 * sizeof(scale); i < KVK_MLA_FP8_ROW_BYTES; i += 8) {
		const uint64_t codes = (next_word() & 0x81ff81ff81ff81ffu) | 0x3e003e003e003e00u;

		memcpy(row + i, &codes, sizeof(codes));
	}
}

void *bench_fp8_rows(size_t rows)
{
	unsigned char *memory = bench_memory(rows * KVK_MLA_FP8_ROW_BYTES);

	for (size_t i = 0; i < rows; i++)
		fill_fp8_row(memory + i * KVK_MLA_FP8_ROW_BYTES);
	return memory;
}

uint32_t bench_random(uint32_t bound)
{
	return (uint32_t)((next_word() >> 32) * bound >> 32);
}

int32_t *bench_shuffle(int32_t count)
{
	int32_t *ids = bench_memory((size_t)count * sizeof(*ids));

	for (int32_t i = 0; i < count; i++) {
		const int32_t at = (int32_t)bench_random((uint32_t)i + 1);

		ids[i] = ids[at];
		ids[at] = i;
	}
	return ids;
}
