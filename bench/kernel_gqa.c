/* SPDX-License-Identifier: Apache-2.0 */
/* MSA as MiniMax-M3 has it: index scores, sparse and dense decode; 4 KV heads of 128, groups of 16, blocks of 128. */
#include "kernel_case.h"
#include "pool.h"

#define PAGES (BENCH_POOL_TOKENS / BENCH_KV_PAGE)
#define TOPK 16
#define SELECTIONS 32 /* sets of msa_sparse: 128 MiB of blocks */
#define INDEX_SETS 4  /* contexts of 32 MiB */

struct bench_kv bench_kv_pool(void)
{
	static struct bench_kv kv;
	const size_t bytes = (size_t)BENCH_POOL_TOKENS * BENCH_KV_HEADS * BENCH_HEAD_DIM * 2;

	if (!kv.k) {
		kv.k = bench_bf16(bytes);
		kv.v = bench_bf16(bytes);
	}
	return kv;
}

/*
 * Of the parameters of either kernel: each head's rows of a page behind one another, 32 KiB in a run, as in
 * TensorRT-LLM's MSA caches; NHD, which is what the strides say without this, has 256 bytes of each KiB.
 */
#define LAY_OUT_BY_HEADS(p)                                                                                  \
	do {                                                                                                 \
		(p)->k_stride_token = (p)->v_stride_token = BENCH_HEAD_DIM;                                  \
		(p)->k_stride_head = (p)->v_stride_head = BENCH_KV_PAGE * BENCH_HEAD_DIM;                    \
		(p)->k_stride_page = (p)->v_stride_page = BENCH_KV_HEADS * BENCH_KV_PAGE * BENCH_HEAD_DIM;   \
	} while (0)

static const int32_t *one_length(int32_t context)
{
	int32_t *len = bench_memory(sizeof(*len));

	*len = context;
	return len;
}

/*
 * run_<name>() and scratch_<name>() of kvk_<op>(): the case's own parameters, of which `advance` picks those of
 * the set, with the threads and the scratch of the run.
 */
#define CALLS(name, op, advance)                                                                             \
	static struct kvk_##op##_params name##_params(const struct bench_case *self, uint32_t set,           \
						      const struct kvk_threads *threads)                     \
	{                                                                                                    \
		struct kvk_##op##_params p = self->params.name;                                              \
                                                                                                             \
		p.advance;                                                                                   \
		p.threads = threads;                                                                         \
		p.scratch = self->scratch;                                                                   \
		p.scratch_bytes = self->scratch_bytes;                                                       \
		return p;                                                                                    \
	}                                                                                                    \
                                                                                                             \
	static int run_##name(const struct bench_case *self, uint32_t set,                                   \
			      const struct kvk_threads *threads)                                             \
	{                                                                                                    \
		const struct kvk_##op##_params p = name##_params(self, set, threads);                        \
                                                                                                             \
		return kvk_##op(&p);                                                                         \
	}                                                                                                    \
                                                                                                             \
	static int scratch_##name(const struct bench_case *self, const struct kvk_threads *threads,          \
				  size_t *bytes)                                                             \
	{                                                                                                    \
		const struct kvk_##op##_params p = name##_params(self, 0, threads);                          \
                                                                                                             \
		return kvk_##op##_scratch(&p, bytes);                                                        \
	}

/* ------------------------------------------------------------------ dense */

static void open_gqa(struct bench_case *self)
{
	const size_t elements = (size_t)self->heads * BENCH_HEAD_DIM;
	const struct bench_kv kv = bench_kv_pool();

	self->sets = (uint32_t)(BENCH_POOL_TOKENS / self->context);
	self->work = 2.0 * self->heads * self->context * 2 * BENCH_HEAD_DIM;
	self->params.gqa = (struct kvk_gqa_dense_params){.size = sizeof(self->params.gqa),
							 .batch = 1,
							 .s_q = 1,
							 .rows = 1,
							 .heads = self->heads,
							 .kv_heads = BENCH_KV_HEADS,
							 .head_dim = BENCH_HEAD_DIM,
							 .page_tokens = BENCH_KV_PAGE,
							 .pages = PAGES,
							 .table_width = self->context / BENCH_KV_PAGE,
							 .q_dtype = KVK_BF16,
							 .kv_dtype = KVK_BF16,
							 .out_dtype = KVK_BF16,
							 .scale = 0.0884f,
							 .q = bench_bf16(elements * 2),
							 .k = kv.k,
							 .v = kv.v,
							 .block_table = bench_shuffle(PAGES),
							 .lens = one_length(self->context),
							 .out = bench_memory(elements * 2)};
	if (self->form == BENCH_HND)
		LAY_OUT_BY_HEADS(&self->params.gqa);
}

CALLS(gqa, gqa_dense, block_table += (int64_t)set * p.table_width)

const struct bench_kernel bench_gqa = {.open = open_gqa, .run = run_gqa, .scratch = scratch_gqa};

/* ------------------------------------------------------------------ sparse */

/* Ascending ids, the last block among them, another choice for each set and KV head. */
static const int32_t *selections(int32_t blocks)
{
	int32_t *selected = bench_memory((size_t)SELECTIONS * BENCH_KV_HEADS * TOPK * sizeof(*selected));
	const int32_t stretch = blocks / TOPK;

	for (int32_t i = 0; i < SELECTIONS * BENCH_KV_HEADS; i++)
		for (int32_t n = 0; n < TOPK; n++)
			selected[i * TOPK + n] =
				n == TOPK - 1 ? blocks - 1
					      : n * stretch + (int32_t)bench_random((uint32_t)stretch);
	return selected;
}

static void open_sparse(struct bench_case *self)
{
	const size_t elements = (size_t)self->heads * BENCH_HEAD_DIM;
	const struct bench_kv kv = bench_kv_pool();

	self->sets = SELECTIONS;
	self->work = 2.0 * self->heads * TOPK * BENCH_KV_PAGE * 2 * BENCH_HEAD_DIM;
	self->params.sparse =
		(struct kvk_msa_sparse_params){.size = sizeof(self->params.sparse),
					       .batch = 1,
					       .s_q = 1,
					       .rows = 1,
					       .heads = self->heads,
					       .kv_heads = BENCH_KV_HEADS,
					       .head_dim = BENCH_HEAD_DIM,
					       .block_tokens = BENCH_KV_PAGE,
					       .topk = TOPK,
					       .page_tokens = BENCH_KV_PAGE,
					       .pages = PAGES,
					       .table_width = PAGES,
					       .q_dtype = KVK_BF16,
					       .kv_dtype = KVK_BF16,
					       .out_dtype = KVK_BF16,
					       .scale = 0.0884f,
					       .q = bench_bf16(elements * 2),
					       .k = kv.k,
					       .v = kv.v,
					       .selected = selections(self->context / BENCH_KV_PAGE),
					       .block_table = bench_shuffle(PAGES),
					       .lens = one_length(self->context),
					       .out = bench_memory(elements * 2)};
	if (self->form == BENCH_HND)
		LAY_OUT_BY_HEADS(&self->params.sparse);
}

#define ROW_BYTES (BENCH_HEAD_DIM * 2) /* of one head */

/* The rows of one selected block, keys and values in turn as the kernel takes them, as ids from k on. */
static int32_t *list_block(const struct kvk_msa_sparse_params *p, int32_t head, int32_t block, int32_t *id)
{
	const int64_t values = ((const char *)p->v - (const char *)p->k) / ROW_BYTES;
	const int64_t first = (int64_t)p->block_table[block] * BENCH_KV_PAGE * BENCH_KV_HEADS + head;

	for (int32_t i = 0; i < 2 * BENCH_KV_PAGE; i++)
		*id++ = (int32_t)(first + i / 2 * BENCH_KV_HEADS + i % 2 * values);
	return id;
}

/* What msa_sparse reads, to be held against a plain read of the same rows in the same order. */
static void open_sparse_read(struct bench_case *self)
{
	const int32_t rows = BENCH_KV_HEADS * TOPK * BENCH_KV_PAGE * 2;
	int32_t *ids = bench_memory((size_t)SELECTIONS * (size_t)rows * sizeof(*ids));
	int32_t *id = ids;

	open_sparse(self);
	for (int32_t i = 0; i < SELECTIONS * BENCH_KV_HEADS * TOPK; i++)
		id = list_block(&self->params.sparse, i / TOPK % BENCH_KV_HEADS,
				self->params.sparse.selected[i], id);
	self->work = (double)rows * ROW_BYTES;
	self->pages = (struct bench_pages){
		.base = self->params.sparse.k, .page_bytes = ROW_BYTES, .ids = ids, .count = rows};
}

CALLS(sparse, msa_sparse, selected += (int64_t)set * BENCH_KV_HEADS * TOPK)

const struct bench_kernel bench_sparse = {.open = open_sparse, .run = run_sparse, .scratch = scratch_sparse};
const struct bench_kernel bench_sparse_read = {
	.open = open_sparse_read, .run = run_sparse, .scratch = scratch_sparse};

/* ------------------------------------------------------------------ index scores */

static void open_scores(struct bench_case *self)
{
	const int32_t pages = self->context / BENCH_KV_PAGE;
	const size_t page_bytes = (size_t)BENCH_KV_PAGE * BENCH_HEAD_DIM * 2;
	const int32_t *ids = bench_shuffle(pages * INDEX_SETS);
	const void *keys = bench_bf16((size_t)pages * INDEX_SETS * page_bytes);

	self->sets = INDEX_SETS;
	self->work = (double)pages * (double)page_bytes;
	self->pages =
		(struct bench_pages){.base = keys, .page_bytes = page_bytes, .ids = ids, .count = pages};
	self->params.scores = (struct kvk_msa_scores_params){
		.size = sizeof(self->params.scores),
		.batch = 1,
		.s_q = 1,
		.rows = 1,
		.index_heads = self->heads,
		.dim = BENCH_HEAD_DIM,
		.block_tokens = BENCH_KV_PAGE,
		.blocks = pages,
		.page_tokens = BENCH_KV_PAGE,
		.pages = pages * INDEX_SETS,
		.table_width = pages,
		.q_dtype = KVK_BF16,
		.k_dtype = KVK_BF16,
		.index_q = bench_bf16((size_t)self->heads * BENCH_HEAD_DIM * 2),
		.index_k = keys,
		.block_table = ids,
		.lens = one_length(self->context),
		.score = bench_memory((size_t)self->heads * (size_t)pages * sizeof(float))};
}

CALLS(scores, msa_scores, block_table += (int64_t)set * p.table_width)

const struct bench_kernel bench_scores = {.open = open_scores, .run = run_scores, .scratch = scratch_scores};
