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
#include "mla_few.h"

#define KEYS 77
#define HEADS 5
#define PAGE_TOKENS 4
#define PAGES ((KEYS + PAGE_TOKENS - 1) / PAGE_TOKENS)
#define DIM 40
#define SPARSE_BLOCK 8
#define WRITTEN 4 /* tokens */
#define SCRATCH_BYTES (8u << 20)
#define QUERY (HEADS * KVK_MLA_WIDTH)
#define CACHE (PAGES * PAGE_TOKENS * KVK_MLA_WIDTH) /* elements */
#define OUT (HEADS * KVK_MLA_LATENT)

static struct {
	float query[QUERY];
	float cache[CACHE]; /* of any dtype: none is wider */
	float got[OUT], want[OUT];
	int32_t pages[PAGES], slots[KEYS];
	char scratch[SCRATCH_BYTES] __attribute__((aligned(KVK_SCRATCH_ALIGN)));
} memory;

static const int32_t lens[] = {KEYS};
static const int32_t selected[] = {1, 4, 9};

/* Values in [-1, 1) from a fixed sequence. */
static float next_value(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return (float)(int32_t)*state * 0x1p-31f;
}

static void fill_fp8_rows(uint32_t *state)
{
	unsigned char *row = (unsigned char *)memory.cache;

	for (int n = 0; n < PAGES * PAGE_TOKENS; n++, row += KVK_MLA_FP8_ROW_BYTES) {
		for (int i = 0; i < KVK_MLA_LATENT; i++)
			kvk_store(row, KVK_E4M3, i, next_value(state) * 448);
		for (int i = 0; i < 4; i++)
			kvk_store(row + KVK_MLA_LATENT, KVK_F32, i, 0x1p-9f * (float)(i + 1));
		for (int i = 0; i < KVK_MLA_ROPE; i++)
			kvk_store(row + KVK_MLA_LATENT + 16, KVK_BF16, i, next_value(state));
	}
}

static void fill(uint32_t dtype)
{
	uint32_t state = 1;

	for (int i = 0; i < QUERY; i++)
		memory.query[i] = next_value(&state);
	for (int i = 0; i < PAGES; i++)
		memory.pages[i] = PAGES - 1 - i;
	for (int i = 0; i < KEYS; i++)
		memory.slots[i] = i % 7 ? KEYS - 1 - i : -1;
	if (dtype == KVK_MLA_FP8)
		fill_fp8_rows(&state);
	else
		for (int i = 0; i < CACHE; i++)
			kvk_store(memory.cache, dtype, i, next_value(&state));
	memset(memory.got, 0xff, sizeof(memory.got));
}

static bool agree(int count)
{
	for (int i = 0; i < count; i++)
		if (!(fabsf(memory.got[i] - memory.want[i]) <= 1e-4f) && memory.got[i] != memory.want[i])
			return false;
	return true;
}

/*
 * The operation `op`, whose result is `field` with `count` values, as the reference and the level have it: `call` is a
 * complete call but for that field.
 */
#define AGREES(op, call, field, count)                                                                       \
	do {                                                                                                 \
		struct kvk_##op##_params p_ = call;                                                          \
		struct kvk_##op##_params ready_;                                                             \
                                                                                                             \
		p_.field = memory.want;                                                                      \
		p_.scratch = memory.scratch;                                                                 \
		p_.scratch_bytes = SCRATCH_BYTES;                                                            \
		if (kvk_##op##_ref(&p_))                                                                     \
			return false;                                                                        \
		p_.field = memory.got;                                                                       \
		if (kvk_prepare_##op(&p_, &ready_) <= 0 || kvk_##op##_cpu_scratch(&ready_) > SCRATCH_BYTES)  \
			return false;                                                                        \
		kvk_##op##_cpu(&ready_, level);                                                              \
		return agree(count);                                                                         \
	} while (0)

static bool heads_agree(enum kvk_level level, uint32_t dtype, int32_t heads)
{
	const struct kvk_mla_dense_params call = {.size = sizeof(call),
						  .batch = 1,
						  .s_q = 1,
						  .heads = heads,
						  .page_tokens = PAGE_TOKENS,
						  .pages = PAGES,
						  .table_width = PAGES,
						  .q_dtype = KVK_F32,
						  .kv_dtype = dtype,
						  .out_dtype = KVK_F32,
						  .scale = 0.0722f,
						  .q = memory.query,
						  .kv = memory.cache,
						  .block_table = memory.pages,
						  .lens = lens};

	AGREES(mla_dense, call, out, heads * KVK_MLA_LATENT);
}

/* Few heads have loops of their own. */
static bool mla_dense_agrees(enum kvk_level level, uint32_t dtype)
{
	return heads_agree(level, dtype, HEADS) && heads_agree(level, dtype, KVK_MLA_FEW);
}

static bool gqa_dense_agrees(enum kvk_level level, uint32_t dtype)
{
	const struct kvk_gqa_dense_params call = {.size = sizeof(call),
						  .batch = 1,
						  .s_q = 1,
						  .rows = 1,
						  .heads = HEADS,
						  .kv_heads = 1,
						  .head_dim = DIM,
						  .page_tokens = PAGE_TOKENS,
						  .pages = PAGES,
						  .table_width = PAGES,
						  .q_dtype = KVK_F32,
						  .kv_dtype = dtype,
						  .out_dtype = KVK_F32,
						  .scale = 0.3f,
						  .q = memory.query,
						  .k = memory.cache,
						  .v = (char *)memory.cache + PAGES * PAGE_TOKENS * DIM * 4,
						  .block_table = memory.pages,
						  .lens = lens};

	AGREES(gqa_dense, call, out, HEADS * DIM);
}

static bool msa_sparse_agrees(enum kvk_level level, uint32_t dtype)
{
	const struct kvk_msa_sparse_params call = {.size = sizeof(call),
						   .batch = 1,
						   .s_q = 1,
						   .rows = 1,
						   .heads = HEADS,
						   .kv_heads = 1,
						   .head_dim = DIM,
						   .block_tokens = SPARSE_BLOCK,
						   .topk = sizeof(selected) / sizeof(*selected),
						   .page_tokens = PAGE_TOKENS,
						   .pages = PAGES,
						   .table_width = PAGES,
						   .q_dtype = KVK_F32,
						   .kv_dtype = dtype,
						   .out_dtype = KVK_F32,
						   .scale = 0.3f,
						   .q = memory.query,
						   .k = memory.cache,
						   .v = (char *)memory.cache + PAGES * PAGE_TOKENS * DIM * 4,
						   .selected = selected,
						   .block_table = memory.pages,
						   .lens = lens};

	AGREES(msa_sparse, call, out, HEADS * DIM);
}

static bool msa_scores_agrees(enum kvk_level level, uint32_t dtype)
{
	const struct kvk_msa_scores_params call = {.size = sizeof(call),
						   .batch = 1,
						   .s_q = 1,
						   .rows = 1,
						   .index_heads = HEADS,
						   .dim = DIM,
						   .block_tokens = SPARSE_BLOCK,
						   .blocks = KEYS / SPARSE_BLOCK + 1,
						   .page_tokens = PAGE_TOKENS,
						   .pages = PAGES,
						   .table_width = PAGES,
						   .q_dtype = KVK_F32,
						   .k_dtype = dtype,
						   .index_q = memory.query,
						   .index_k = memory.cache,
						   .block_table = memory.pages,
						   .lens = lens};

	AGREES(msa_scores, call, score, HEADS * (KEYS / SPARSE_BLOCK + 1));
}

static bool mla_sparse_agrees(enum kvk_level level, uint32_t dtype)
{
	const struct kvk_mla_sparse_params call = {.size = sizeof(call),
						   .batch = 1,
						   .s_q = 1,
						   .heads = HEADS,
						   .topk = KEYS,
						   .page_tokens = PAGE_TOKENS,
						   .pages = PAGES,
						   .q_dtype = KVK_F32,
						   .kv_dtype = dtype,
						   .out_dtype = KVK_F32,
						   .scale = 0.0722f,
						   .q = memory.query,
						   .kv = memory.cache,
						   .indices = memory.slots};

	AGREES(mla_sparse, call, out, OUT);
}

/*
 * The same of a write, which is the reference's bit for bit: `call` is complete but for `field`, the cache, whose other
 * bytes stay as they are.
 */
#define WRITES_AGREE(op, call, field)                                                                        \
	do {                                                                                                 \
		struct kvk_##op##_params p_ = call;                                                          \
		struct kvk_##op##_params ready_;                                                             \
                                                                                                             \
		memset(memory.want, 0xff, sizeof(memory.want));                                              \
		p_.field = memory.want;                                                                      \
		if (kvk_##op##_ref(&p_))                                                                     \
			return false;                                                                        \
		p_.field = memory.got;                                                                       \
		if (kvk_prepare_##op(&p_, &ready_) <= 0)                                                     \
			return false;                                                                        \
		kvk_##op##_cpu(&ready_, level);                                                              \
		return memcmp(memory.got, memory.want, sizeof(memory.want)) == 0;                            \
	} while (0)

/* Rows of f32 to a cache of another dtype. */
static bool mla_write_agrees(enum kvk_level level, uint32_t dtype)
{
	const struct kvk_mla_write_params call = {.size = sizeof(call),
						  .tokens = WRITTEN,
						  .page_tokens = 1,
						  .pages = WRITTEN,
						  .slot_bytes = 4,
						  .src_dtype = KVK_F32,
						  .kv_dtype = dtype,
						  .latent = memory.query,
						  .rope = memory.query + WRITTEN * KVK_MLA_LATENT,
						  .slots = memory.pages + PAGES - WRITTEN}; /* 3 to 0 */

	WRITES_AGREE(mla_write, call, kv);
}

static bool kv_write_agrees(enum kvk_level level, uint32_t dtype)
{
	const struct kvk_kv_write_params call = {.size = sizeof(call),
						 .tokens = WRITTEN,
						 .heads = 1,
						 .head_dim = KVK_MLA_LATENT,
						 .page_tokens = 1,
						 .pages = WRITTEN,
						 .slot_bytes = 4,
						 .src_dtype = KVK_F32,
						 .cache_dtype = dtype,
						 .k = memory.query,
						 .slots = memory.pages + PAGES - WRITTEN};

	WRITES_AGREE(kv_write, call, k_cache);
}

/* Of every operation with loops of its own, each dtype that it takes. */
static const struct {
	bool (*agrees)(enum kvk_level level, uint32_t dtype);
	uint32_t dtypes[4];
} questions[] = {
	{mla_dense_agrees, {KVK_BF16, KVK_F16, KVK_F32, KVK_MLA_FP8}},
	{gqa_dense_agrees, {KVK_BF16, KVK_F16, KVK_F32}},
	{msa_sparse_agrees, {KVK_BF16, KVK_F16, KVK_F32}},
	{mla_sparse_agrees, {KVK_BF16, KVK_F16, KVK_F32, KVK_MLA_FP8}},
	{mla_write_agrees, {KVK_BF16, KVK_F16, KVK_F32, KVK_MLA_FP8}},
	{kv_write_agrees, {KVK_BF16, KVK_F16, KVK_F32, KVK_E4M3}},
	{msa_scores_agrees, {KVK_BF16, KVK_F16, KVK_F32, KVK_E4M3}},
};

bool kvk_self_test(enum kvk_level level)
{
	for (size_t i = 0; i < sizeof(questions) / sizeof(*questions); i++)
		for (int d = 0; d < 4 && questions[i].dtypes[d]; d++) {
			fill(questions[i].dtypes[d]);
			if (!questions[i].agrees(level, questions[i].dtypes[d]))
				return false;
		}
	return true;
}
