/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See self_test.h. The questions are small, so that a process's first call is not held up, but reach each kind
 * of loop: conversions, products, weights, tails of every width. All memory is static and never touched where no
 * level needs the test.
 */
#include "self_test.h"

#include "../dtype.h"
#include "../internal.h"
#include "cpu.h"

#define KEYS 45
#define HEADS 5
#define PAGE_TOKENS 4
#define PAGES ((KEYS + PAGE_TOKENS - 1) / PAGE_TOKENS)
#define GQA_DIM 40
#define SCRATCH_BYTES (4u << 20)

#define MLA_QUERY (HEADS * KVK_MLA_WIDTH)
#define MLA_CACHE (PAGES * PAGE_TOKENS * KVK_MLA_WIDTH)

static struct {
	float query[MLA_QUERY];
	uint16_t codes[MLA_CACHE];
	float got[HEADS * KVK_MLA_LATENT], want[HEADS * KVK_MLA_LATENT];
	int32_t pages[PAGES];
	char scratch[SCRATCH_BYTES] __attribute__((aligned(KVK_SCRATCH_ALIGN)));
} memory;

static const int32_t lens[] = {KEYS};

/* Values in [-1, 1) from a fixed sequence. */
static float next_value(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return (float)(int32_t)*state * 0x1p-31f;
}

static void fill(uint32_t dtype)
{
	uint32_t state = 1;

	for (int i = 0; i < MLA_QUERY; i++)
		memory.query[i] = next_value(&state);
	for (int i = 0; i < MLA_CACHE; i++)
		kvk_store(memory.codes, dtype, i, next_value(&state));
	for (int i = 0; i < PAGES; i++)
		memory.pages[i] = PAGES - 1 - i;
}

static bool agree(int count)
{
	for (int i = 0; i < count; i++)
		if (!(fabsf(memory.got[i] - memory.want[i]) <= 1e-4f))
			return false;
	return true;
}

static bool mla_dense_agrees(enum kvk_level level, uint32_t dtype)
{
	struct kvk_mla_dense_params ready;
	struct kvk_mla_dense_params p = {.size = sizeof(p),
					 .batch = 1,
					 .s_q = 1,
					 .heads = HEADS,
					 .page_tokens = PAGE_TOKENS,
					 .pages = PAGES,
					 .table_width = PAGES,
					 .q_dtype = KVK_F32,
					 .kv_dtype = dtype,
					 .out_dtype = KVK_F32,
					 .scale = 0.0722f,
					 .q = memory.query,
					 .kv = memory.codes,
					 .block_table = memory.pages,
					 .lens = lens,
					 .out = memory.want,
					 .scratch = memory.scratch,
					 .scratch_bytes = SCRATCH_BYTES};

	fill(dtype);
	if (kvk_mla_dense_ref(&p))
		return false;
	p.out = memory.got;
	if (kvk_prepare_mla_dense(&p, &ready) <= 0 || kvk_mla_dense_cpu_scratch(&ready) > SCRATCH_BYTES)
		return false;
	kvk_mla_dense_cpu(&ready, level);
	return agree(HEADS * KVK_MLA_LATENT);
}

static bool gqa_dense_agrees(enum kvk_level level, uint32_t dtype)
{
	struct kvk_gqa_dense_params ready;
	struct kvk_gqa_dense_params p = {.size = sizeof(p),
					 .batch = 1,
					 .s_q = 1,
					 .rows = 1,
					 .heads = HEADS,
					 .kv_heads = 1,
					 .head_dim = GQA_DIM,
					 .page_tokens = PAGE_TOKENS,
					 .pages = PAGES,
					 .table_width = PAGES,
					 .q_dtype = KVK_F32,
					 .kv_dtype = dtype,
					 .out_dtype = KVK_F32,
					 .scale = 0.3f,
					 .q = memory.query,
					 .k = memory.codes,
					 .v = memory.codes + PAGES * PAGE_TOKENS * GQA_DIM,
					 .block_table = memory.pages,
					 .lens = lens,
					 .out = memory.want,
					 .scratch = memory.scratch,
					 .scratch_bytes = SCRATCH_BYTES};

	fill(dtype);
	if (kvk_gqa_dense_ref(&p))
		return false;
	p.out = memory.got;
	if (kvk_prepare_gqa_dense(&p, &ready) <= 0 || kvk_gqa_dense_cpu_scratch(&ready) > SCRATCH_BYTES)
		return false;
	kvk_gqa_dense_cpu(&ready, level);
	return agree(HEADS * GQA_DIM);
}

bool kvk_self_test(enum kvk_level level)
{
	static const uint32_t dtypes[] = {KVK_BF16, KVK_F16};

	for (size_t i = 0; i < sizeof(dtypes) / sizeof(*dtypes); i++)
		if (!mla_dense_agrees(level, dtypes[i]) || !gqa_dense_agrees(level, dtypes[i]))
			return false;
	return true;
}
