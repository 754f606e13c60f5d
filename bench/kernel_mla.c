/* SPDX-License-Identifier: Apache-2.0 */
/* Dense MLA decode: queries of a batch over pages in random order. */
#include "kernel_case.h"
#include "pool.h"

#define PAGES (BENCH_POOL_TOKENS / BENCH_MLA_PAGE)

void *bench_mla_pool(uint32_t dtype)
{
	static void *bf16, *fp8;
	void **pool = dtype == KVK_MLA_FP8 ? &fp8 : &bf16;

	if (!*pool && dtype == KVK_MLA_FP8)
		*pool = bench_fp8_rows(BENCH_POOL_TOKENS);
	else if (!*pool)
		*pool = bench_bf16((size_t)BENCH_POOL_TOKENS * KVK_MLA_WIDTH * 2);
	return *pool;
}

static const int32_t *lens_of(const struct bench_case *self)
{
	int32_t *lens = bench_memory((size_t)self->batch * sizeof(*lens));

	for (int32_t i = 0; i < self->batch; i++)
		lens[i] = self->context;
	return lens;
}

static void open_mla(struct bench_case *self)
{
	const int32_t width = self->context / BENCH_MLA_PAGE;
	const size_t rows = (size_t)self->batch * (size_t)self->heads;

	/* The shuffled ids are the tables of all sets, one behind the other. */
	self->sets = (uint32_t)(PAGES / (width * self->batch));
	self->work = 2.0 * (double)rows * self->context * (KVK_MLA_WIDTH + KVK_MLA_LATENT);
	self->params.mla = (struct kvk_mla_dense_params){.size = sizeof(self->params.mla),
							 .batch = self->batch,
							 .s_q = 1,
							 .heads = self->heads,
							 .page_tokens = BENCH_MLA_PAGE,
							 .pages = PAGES,
							 .table_width = width,
							 .q_dtype = KVK_BF16,
							 .kv_dtype = self->form,
							 .out_dtype = KVK_BF16,
							 .scale = 0.0722f,
							 .q = bench_bf16(rows * KVK_MLA_WIDTH * 2),
							 .kv = bench_mla_pool(self->form),
							 .block_table = bench_shuffle(PAGES),
							 .lens = lens_of(self),
							 .out = bench_memory(rows * KVK_MLA_LATENT * 2)};
}

static struct kvk_mla_dense_params params_of(const struct bench_case *self, uint32_t set,
					     const struct kvk_threads *threads)
{
	struct kvk_mla_dense_params p = self->params.mla;

	p.block_table += (int64_t)set * p.batch * p.table_width;
	p.threads = threads;
	p.scratch = self->scratch;
	p.scratch_bytes = self->scratch_bytes;
	return p;
}

static int run_mla(const struct bench_case *self, uint32_t set, const struct kvk_threads *threads)
{
	const struct kvk_mla_dense_params p = params_of(self, set, threads);

	return kvk_mla_dense(&p);
}

static int scratch_mla(const struct bench_case *self, const struct kvk_threads *threads, size_t *bytes)
{
	const struct kvk_mla_dense_params p = params_of(self, 0, threads);

	return kvk_mla_dense_scratch(&p, bytes);
}

const struct bench_kernel bench_mla = {.open = open_mla, .run = run_mla, .scratch = scratch_mla};
