/* SPDX-License-Identifier: Apache-2.0 */
/* Cache writes, a row a token at random slots, bytes read and written counted; and the correction of a step's lengths. */
#include "gpu_case.h"

#define MLA_PAGE 64
#define KV_PAGE 128
#define KV_HEADS 4
#define DIM 128

static void open_mla_write(struct gpu_case *self, struct bench_gpu *gpu)
{
	const int32_t tokens = bench_gpu_size(gpu, self->batch, 2 * MLA_PAGE);
	const size_t row = self->dtype == KVK_MLA_FP8 ? KVK_MLA_FP8_ROW_BYTES : 2 * KVK_MLA_WIDTH;
	struct kvk_mla_write_params *p = &self->params.mla_write;

	*p = (struct kvk_mla_write_params){.size = sizeof(*p),
					   .tokens = tokens,
					   .page_tokens = MLA_PAGE,
					   .pages = 2 * tokens / MLA_PAGE,
					   .slot_bytes = 4,
					   .src_dtype = KVK_BF16,
					   .kv_dtype = self->dtype};
	p->latent = bench_gpu_bf16(gpu, (size_t)tokens * KVK_MLA_LATENT * 2);
	p->rope = bench_gpu_bf16(gpu, (size_t)tokens * (KVK_MLA_WIDTH - KVK_MLA_LATENT) * 2);
	p->slots = gpu_random_ids(gpu, tokens, 2 * tokens);
	p->kv = (void *)(uintptr_t)bench_gpu_memory(gpu, 2 * (size_t)tokens * row);
	self->bytes = (double)tokens * (2 * KVK_MLA_WIDTH + (double)row);
}

static int run_mla_write(const struct gpu_case *self, const struct kvk_cuda_device *device)
{
	return kvk_mla_write_cuda(device, &self->params.mla_write);
}

const struct gpu_op gpu_mla_write = {.open = open_mla_write, .run = run_mla_write};

static void open_kv_write(struct gpu_case *self, struct bench_gpu *gpu)
{
	const int32_t tokens = bench_gpu_size(gpu, self->batch, 2 * KV_PAGE);
	const size_t bytes = (size_t)tokens * KV_HEADS * DIM * 2;
	struct kvk_kv_write_params *p = &self->params.kv_write;

	*p = (struct kvk_kv_write_params){.size = sizeof(*p),
					  .tokens = tokens,
					  .heads = KV_HEADS,
					  .head_dim = DIM,
					  .page_tokens = KV_PAGE,
					  .pages = 2 * tokens / KV_PAGE,
					  .slot_bytes = 4,
					  .src_dtype = KVK_BF16,
					  .cache_dtype = self->dtype};
	p->k = bench_gpu_bf16(gpu, bytes);
	p->v = bench_gpu_bf16(gpu, bytes);
	p->slots = gpu_random_ids(gpu, tokens, 2 * tokens);
	p->k_cache = (void *)(uintptr_t)bench_gpu_memory(gpu, 2 * bytes);
	p->v_cache = (void *)(uintptr_t)bench_gpu_memory(gpu, 2 * bytes);
	self->bytes = 4 * (double)bytes;
}

static int run_kv_write(const struct gpu_case *self, const struct kvk_cuda_device *device)
{
	return kvk_kv_write_cuda(device, &self->params.kv_write);
}

const struct gpu_op gpu_kv_write = {.open = open_kv_write, .run = run_kv_write};

/* Speculative decoding: four tokens a request, of which one was rejected. */
static void open_correct(struct gpu_case *self, struct bench_gpu *gpu)
{
	const int32_t tokens = 4, width = self->context / MLA_PAGE;
	struct kvk_prep_correct_params *p = &self->params.correct;

	*p = (struct kvk_prep_correct_params){.size = sizeof(*p),
					      .flags = KVK_PREP_NEWEST,
					      .batch = self->batch,
					      .page_tokens = MLA_PAGE,
					      .table_width = width,
					      .room = self->batch * tokens,
					      .slot_bytes = 8};
	p->qo_lens = gpu_constant(gpu, self->batch, tokens);
	p->staged = gpu_constant(gpu, self->batch, self->context);
	p->corrected = gpu_constant(gpu, self->batch, self->context - 1);
	p->table = gpu_random_ids(gpu, (int64_t)self->batch * width, self->batch * width);
	p->slots = (void *)(uintptr_t)bench_gpu_memory(gpu, (size_t)p->room * 8);
	p->n_valid = gpu_constant(gpu, p->room, 0);
	p->seq_lens = gpu_constant(gpu, self->batch, 0);
	p->cu_kv = gpu_constant(gpu, self->batch + 1, 0);
}

static int run_correct(const struct gpu_case *self, const struct kvk_cuda_device *device)
{
	return kvk_prep_correct_cuda(device, &self->params.correct, 0, NULL);
}

const struct gpu_op gpu_correct = {.open = open_correct, .run = run_correct};
