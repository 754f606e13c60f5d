/* SPDX-License-Identifier: Apache-2.0 */
/* MSA as MiniMax-M3 has it: 4 KV heads of 128, groups of 16, blocks and pages of 128 tokens, 4 index heads. */
#include "gpu_case.h"
#include "pool.h"

#include <stdlib.h>

#define PAGE 128
#define DIM 128
#define KV_HEADS 4
#define HEADS (16 * KV_HEADS)
#define INDEX_HEADS 4
#define SCALE 0.0884f

struct shape {
	int32_t batch, context, width, pages;
};

static struct shape shape_of(const struct gpu_case *self, const struct bench_gpu *gpu)
{
	struct shape s = {.batch = bench_gpu_size(gpu, self->batch, 2),
			  .context = bench_gpu_size(gpu, self->context, 32 * PAGE)};

	s.width = s.context / PAGE;
	s.pages = s.width * s.batch;
	return s;
}

static size_t cache_bytes(const struct shape *s)
{
	return (size_t)s->pages * PAGE * KV_HEADS * DIM * 2;
}

/* ------------------------------------------------------------------ index scores */

static void open_scores(struct gpu_case *self, struct bench_gpu *gpu)
{
	const struct shape s = shape_of(self, gpu);
	const size_t element = self->dtype == KVK_E4M3 ? 1 : 2;
	const size_t scores = (size_t)INDEX_HEADS * (size_t)s.pages;
	struct kvk_msa_scores_params *p = &self->params.scores;

	*p = (struct kvk_msa_scores_params){.size = sizeof(*p),
					    .batch = s.batch,
					    .s_q = 1,
					    .rows = s.batch,
					    .index_heads = INDEX_HEADS,
					    .dim = DIM,
					    .block_tokens = PAGE,
					    .blocks = s.width,
					    .page_tokens = PAGE,
					    .pages = s.pages,
					    .table_width = s.width,
					    .q_dtype = KVK_BF16,
					    .k_dtype = self->dtype};
	p->index_q = bench_gpu_bf16(gpu, (size_t)s.batch * INDEX_HEADS * DIM * 2);
	p->index_k = bench_gpu_bf16(gpu, (size_t)s.pages * PAGE * DIM * element);
	p->block_table = gpu_random_ids(gpu, s.pages, s.pages);
	p->lens = gpu_constant(gpu, s.batch, s.context);
	p->score = gpu_output(self, gpu, scores, KVK_F32);
	if (self->dtype == KVK_E4M3)
		self->out = NULL; /* random bytes may be NaN */
	self->bytes = (double)s.pages * PAGE * DIM * (double)element + 4 * (double)scores +
		      (double)s.batch * INDEX_HEADS * DIM * 2;
	self->flop = 2.0 * INDEX_HEADS * DIM * s.batch * s.context;
}

static int run_scores(const struct gpu_case *self, const struct kvk_cuda_device *device)
{
	return kvk_msa_scores_cuda(device, &self->params.scores);
}

const struct gpu_op gpu_scores = {.open = open_scores, .run = run_scores};

/* ------------------------------------------------------------------ sparse */

/* [KV_HEADS, batch, topk]: ascending ids, the last block among them, another choice for each row and KV head. */
static const int32_t *selections(struct bench_gpu *gpu, const struct shape *s, int32_t topk)
{
	const int32_t lists = KV_HEADS * s->batch, stretch = s->width / topk;
	int32_t *selected = bench_memory((size_t)lists * (size_t)topk * sizeof(*selected));
	const int32_t *there;

	for (int32_t i = 0; i < lists; i++)
		for (int32_t n = 0; n < topk; n++)
			selected[i * topk + n] =
				n == topk - 1 ? s->width - 1
					      : n * stretch + (int32_t)bench_random((uint32_t)stretch);
	there = bench_gpu_copy_of(gpu, selected, (size_t)lists * (size_t)topk * sizeof(*selected));
	free(selected);
	return there;
}

static void open_sparse(struct gpu_case *self, struct bench_gpu *gpu)
{
	const struct shape s = shape_of(self, gpu);
	const size_t elements = (size_t)s.batch * HEADS * DIM;
	struct kvk_msa_sparse_params *p = &self->params.sparse;

	*p = (struct kvk_msa_sparse_params){.size = sizeof(*p),
					    .batch = s.batch,
					    .s_q = 1,
					    .rows = s.batch,
					    .heads = HEADS,
					    .kv_heads = KV_HEADS,
					    .head_dim = DIM,
					    .block_tokens = PAGE,
					    .topk = self->topk,
					    .page_tokens = PAGE,
					    .pages = s.pages,
					    .table_width = s.width,
					    .q_dtype = KVK_BF16,
					    .kv_dtype = KVK_BF16,
					    .out_dtype = KVK_BF16,
					    .scale = SCALE};
	p->q = bench_gpu_bf16(gpu, elements * 2);
	p->k = bench_gpu_bf16(gpu, cache_bytes(&s));
	p->v = bench_gpu_bf16(gpu, cache_bytes(&s));
	p->selected = selections(gpu, &s, self->topk);
	p->block_table = gpu_random_ids(gpu, s.pages, s.pages);
	p->lens = gpu_constant(gpu, s.batch, s.context);
	p->out = gpu_output(self, gpu, elements, KVK_BF16);
	p->scratch = gpu_scratch(gpu, kvk_msa_sparse_cuda_scratch(&gpu->kernels.device, p, &p->scratch_bytes),
				 &p->scratch_bytes);
	self->bytes = (double)s.batch * KV_HEADS * self->topk * PAGE * DIM * 4 + 4 * (double)elements;
	self->flop = 4.0 * (double)elements * self->topk * PAGE;
}

static int run_sparse(const struct gpu_case *self, const struct kvk_cuda_device *device)
{
	return kvk_msa_sparse_cuda(device, &self->params.sparse);
}

const struct gpu_op gpu_sparse = {.open = open_sparse, .run = run_sparse};

/* ------------------------------------------------------------------ dense */

static void open_gqa(struct gpu_case *self, struct bench_gpu *gpu)
{
	const struct shape s = shape_of(self, gpu);
	const size_t elements = (size_t)s.batch * HEADS * DIM;
	struct kvk_gqa_dense_params *p = &self->params.gqa;

	*p = (struct kvk_gqa_dense_params){.size = sizeof(*p),
					   .batch = s.batch,
					   .s_q = 1,
					   .rows = s.batch,
					   .heads = HEADS,
					   .kv_heads = KV_HEADS,
					   .head_dim = DIM,
					   .page_tokens = PAGE,
					   .pages = s.pages,
					   .table_width = s.width,
					   .q_dtype = KVK_BF16,
					   .kv_dtype = KVK_BF16,
					   .out_dtype = KVK_BF16,
					   .scale = SCALE};
	p->q = bench_gpu_bf16(gpu, elements * 2);
	p->k = bench_gpu_bf16(gpu, cache_bytes(&s));
	p->v = bench_gpu_bf16(gpu, cache_bytes(&s));
	p->block_table = gpu_random_ids(gpu, s.pages, s.pages);
	p->lens = gpu_constant(gpu, s.batch, s.context);
	p->out = gpu_output(self, gpu, elements, KVK_BF16);
	p->scratch = gpu_scratch(gpu, kvk_gqa_dense_cuda_scratch(&gpu->kernels.device, p, &p->scratch_bytes),
				 &p->scratch_bytes);
	self->bytes = 2 * (double)cache_bytes(&s) + 4 * (double)elements;
	self->flop = 4.0 * (double)elements * s.context;
}

static int run_gqa(const struct gpu_case *self, const struct kvk_cuda_device *device)
{
	return kvk_gqa_dense_cuda(device, &self->params.gqa);
}

const struct gpu_op gpu_gqa = {.open = open_gqa, .run = run_gqa};
