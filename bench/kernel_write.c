/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cache writes, one row a token at random slots, beside a sequential copy of the same source to a place of the same
 * size. A run writes more than any cache holds.
 */
#include "kernel_case.h"
#include "pool.h"

#define MLA_TOKENS (BENCH_POOL_TOKENS / 2)
#define KV_TOKENS (BENCH_POOL_TOKENS / 4)

/* Slots of all sets, one behind the other. */
static const int64_t *slots(void)
{
	const int32_t *order = bench_shuffle(BENCH_POOL_TOKENS);
	int64_t *slot = bench_memory(BENCH_POOL_TOKENS * sizeof(*slot));

	for (int32_t i = 0; i < BENCH_POOL_TOKENS; i++)
		slot[i] = order[i];
	return slot;
}

static void open_copy(struct bench_case *self, const void *from, size_t bytes)
{
	self->work = (double)bytes;
	self->copy_from = from;
	self->copy_to = bench_memory(bytes);
	self->copy_bytes = bytes;
}

static void open_mla_write(struct bench_case *self)
{
	const size_t latents = (size_t)MLA_TOKENS * KVK_MLA_LATENT * 2;
	const size_t bytes = (size_t)MLA_TOKENS * KVK_MLA_WIDTH * 2;
	char *source = bench_bf16(bytes);

	self->sets = BENCH_POOL_TOKENS / MLA_TOKENS;
	open_copy(self, source, bytes);
	self->params.mla_write = (struct kvk_mla_write_params){.size = sizeof(self->params.mla_write),
							       .tokens = MLA_TOKENS,
							       .page_tokens = BENCH_MLA_PAGE,
							       .pages = BENCH_POOL_TOKENS / BENCH_MLA_PAGE,
							       .slot_bytes = 8,
							       .src_dtype = KVK_BF16,
							       .kv_dtype = KVK_BF16,
							       .latent = source,
							       .rope = source + latents,
							       .slots = slots(),
							       .kv = bench_mla_pool(KVK_BF16)};
}

static int run_mla_write(const struct bench_case *self, uint32_t set, const struct kvk_threads *threads)
{
	struct kvk_mla_write_params p = self->params.mla_write;

	p.slots = (const int64_t *)p.slots + (int64_t)set * MLA_TOKENS;
	p.threads = threads;
	return kvk_mla_write(&p);
}

const struct bench_kernel bench_mla_write = {.open = open_mla_write, .run = run_mla_write};

static void open_kv_write(struct bench_case *self)
{
	const int64_t row = BENCH_HEAD_DIM;
	const size_t half = (size_t)KV_TOKENS * BENCH_KV_HEADS * BENCH_HEAD_DIM * 2;
	char *source = bench_bf16(2 * half);
	const struct bench_kv kv = bench_kv_pool();
	struct kvk_kv_write_params *p = &self->params.kv_write;

	self->sets = BENCH_POOL_TOKENS / KV_TOKENS;
	open_copy(self, source, 2 * half);
	*p = (struct kvk_kv_write_params){.size = sizeof(*p),
					  .tokens = KV_TOKENS,
					  .heads = BENCH_KV_HEADS,
					  .head_dim = BENCH_HEAD_DIM,
					  .page_tokens = BENCH_KV_PAGE,
					  .pages = BENCH_POOL_TOKENS / BENCH_KV_PAGE,
					  .slot_bytes = 8,
					  .src_dtype = KVK_BF16,
					  .cache_dtype = KVK_BF16,
					  .k = source,
					  .v = source + half,
					  .slots = slots(),
					  .k_cache = kv.k,
					  .v_cache = kv.v,
					  .k_cache_stride_page = row * BENCH_KV_HEADS * BENCH_KV_PAGE};
	p->k_cache_stride_token = self->form == BENCH_NHD ? row * BENCH_KV_HEADS : row;
	p->k_cache_stride_head = self->form == BENCH_NHD ? row : row * BENCH_KV_PAGE;
	p->v_cache_stride_page = p->k_cache_stride_page;
	p->v_cache_stride_token = p->k_cache_stride_token;
	p->v_cache_stride_head = p->k_cache_stride_head;
}

static int run_kv_write(const struct bench_case *self, uint32_t set, const struct kvk_threads *threads)
{
	struct kvk_kv_write_params p = self->params.kv_write;

	p.slots = (const int64_t *)p.slots + (int64_t)set * KV_TOKENS;
	p.threads = threads;
	return kvk_kv_write(&p);
}

const struct bench_kernel bench_kv_write = {.open = open_kv_write, .run = run_kv_write};
