/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MLA decode, dense and sparse. Pages lie in random order. In a block-major pool each is a block of all layers away from
 * the next: 61 layers, as in DeepSeek-V3, or as many as half of the memory holds.
 */
#include "gpu_case.h"
#include "pool.h"

#include <stdlib.h>

#define PAGE 64
#define LAYERS 61
#define SAMPLE_ROWS 65536
#define SCALE 0.0722f

static size_t row_bytes(uint32_t dtype)
{
	return dtype == KVK_MLA_FP8 ? KVK_MLA_FP8_ROW_BYTES : 2 * KVK_MLA_WIDTH;
}

static int32_t layers_of(const struct gpu_case *self, const struct bench_gpu *gpu, size_t layer_bytes)
{
	const size_t fit = gpu->free_bytes / 2 / layer_bytes;

	if (!self->block_major)
		return 1;
	if (gpu->rehearsal)
		return 2;
	return fit < 2 ? 2 : fit < LAYERS ? (int32_t)fit : LAYERS;
}

/* Pages of one layer, the others never touched. */
static void *make_pool(struct gpu_case *self, struct bench_gpu *gpu, int32_t pages)
{
	const size_t bytes = row_bytes(self->dtype) * PAGE;
	const size_t rows = (size_t)bench_gpu_size(gpu, SAMPLE_ROWS, 4 * PAGE);
	void *sample = self->dtype == KVK_MLA_FP8 ? bench_fp8_rows(rows) : bench_bf16(rows * bytes / PAGE);
	uint64_t pool, first;

	self->layers = layers_of(self, gpu, (size_t)pages * bytes);
	pool = bench_gpu_memory(gpu, (size_t)self->layers * (size_t)pages * bytes);
	first = pool + (uint64_t)(self->layers / 2) * bytes;
	bench_gpu_fill(gpu, first, (size_t)pages, bytes, (size_t)self->layers * bytes, sample,
		       rows * bytes / PAGE);
	free(sample);
	return (void *)(uintptr_t)first;
}

/* Of `rows` query rows that see `keys` keys each, and read `cached` of them between them. */
static void count(struct gpu_case *self, double rows, double keys, double cached)
{
	self->flop = 2 * rows * keys * (KVK_MLA_WIDTH + KVK_MLA_LATENT);
	self->bytes = rows * 2 * (KVK_MLA_WIDTH + KVK_MLA_LATENT) + cached * (double)row_bytes(self->dtype);
}

static void open_dense(struct gpu_case *self, struct bench_gpu *gpu)
{
	const int32_t batch = bench_gpu_size(gpu, self->batch, 2);
	const int32_t context = bench_gpu_size(gpu, self->context, 2 * PAGE);
	const int32_t width = context / PAGE, pages = width * batch;
	const size_t rows = (size_t)batch * (size_t)self->heads;
	const int64_t row = self->dtype == KVK_MLA_FP8 ? KVK_MLA_FP8_ROW_BYTES : KVK_MLA_WIDTH;
	struct kvk_mla_dense_params *p = &self->params.mla;

	*p = (struct kvk_mla_dense_params){.size = sizeof(*p),
					   .batch = batch,
					   .s_q = 1,
					   .heads = self->heads,
					   .page_tokens = PAGE,
					   .pages = pages,
					   .table_width = width,
					   .q_dtype = KVK_BF16,
					   .kv_dtype = self->dtype,
					   .out_dtype = KVK_BF16,
					   .scale = SCALE};
	p->q = bench_gpu_bf16(gpu, rows * KVK_MLA_WIDTH * 2);
	p->kv = make_pool(self, gpu, pages);
	p->kv_stride_page = self->layers * PAGE * row;
	p->block_table = gpu_random_ids(gpu, pages, pages);
	p->lens = gpu_constant(gpu, batch, context);
	p->out = gpu_output(self, gpu, rows * KVK_MLA_LATENT, KVK_BF16);
	p->scratch = gpu_scratch(gpu, kvk_mla_dense_cuda_scratch(&gpu->kernels.device, p, &p->scratch_bytes),
				 &p->scratch_bytes);
	count(self, (double)rows, context, (double)batch * context);
}

static int run_dense(const struct gpu_case *self, const struct kvk_cuda_device *device)
{
	struct kvk_cuda_device plain = *device;

	if (self->by_warps)
		plain.flags &= ~KVK_CUDA_WARPGROUPS;
	return kvk_mla_dense_cuda(&plain, &self->params.mla);
}

const struct gpu_op gpu_mla = {.open = open_dense, .run = run_dense};

static void open_sparse(struct gpu_case *self, struct bench_gpu *gpu)
{
	const int32_t batch = bench_gpu_size(gpu, self->batch, 2);
	const int32_t topk = bench_gpu_size(gpu, self->topk, PAGE);
	const int32_t pages = bench_gpu_size(gpu, self->context, 2 * PAGE) / PAGE * batch;
	const size_t rows = (size_t)batch * (size_t)self->s_q * (size_t)self->heads;
	const int64_t listed = (int64_t)batch * self->s_q * topk;
	struct kvk_mla_sparse_params *p = &self->params.mla_sparse;

	*p = (struct kvk_mla_sparse_params){.size = sizeof(*p),
					    .batch = batch,
					    .s_q = self->s_q,
					    .heads = self->heads,
					    .topk = topk,
					    .page_tokens = PAGE,
					    .pages = pages,
					    .q_dtype = KVK_BF16,
					    .kv_dtype = self->dtype,
					    .out_dtype = KVK_BF16,
					    .scale = SCALE};
	p->q = bench_gpu_bf16(gpu, rows * KVK_MLA_WIDTH * 2);
	p->kv = make_pool(self, gpu, pages);
	p->indices = gpu_random_ids(gpu, listed, pages * PAGE);
	p->out = gpu_output(self, gpu, rows * KVK_MLA_LATENT, KVK_BF16);
	p->scratch = gpu_scratch(gpu, kvk_mla_sparse_cuda_scratch(&gpu->kernels.device, p, &p->scratch_bytes),
				 &p->scratch_bytes);
	count(self, (double)rows, topk, (double)listed);
}

static int run_sparse(const struct gpu_case *self, const struct kvk_cuda_device *device)
{
	return kvk_mla_sparse_cuda(device, &self->params.mla_sparse);
}

const struct gpu_op gpu_mla_sparse = {.open = open_sparse, .run = run_sparse};
