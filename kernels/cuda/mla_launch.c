/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches of MLA decode: plan, attention, combine. Which kernel depends on shapes alone, never on lengths.
 */
#include "enqueue.h"

#include "../internal.h"

#include <errno.h>

#define PLAN_TOKENS 64 /* keys per block of a plan */
#define PLAN_OVERHEAD 5
#define PLAN_THREADS 256
#define SMALL_BLOCKS_A_UNIT 2 /* blocks of few rows that fit a multiprocessor of Hopper */

/* A kernel's tile. */
struct tile {
	const char *suffix;
	int32_t rows;
	uint32_t threads;
	uint32_t shared_bytes, fp8_shared_bytes;
};

static const struct tile tiles[] = {
	{"r16", 16, 128, KVK_CUDA_MLA_R16_SHARED, KVK_CUDA_MLA_R16_FP8_SHARED},
	{"r32", 32, 256, KVK_CUDA_MLA_R32_SHARED, KVK_CUDA_MLA_R32_FP8_SHARED},
	{"r64", 64, 256, KVK_CUDA_MLA_R64_SHARED, KVK_CUDA_MLA_R64_FP8_SHARED},
};

/* As large as r64's, so that a plan for one is one for the other. */
static const struct tile group_tile = {"g64", 64, 256, KVK_CUDA_MLA_G64_SHARED, 0};

static const struct tile *tile_for(int64_t rows)
{
	return rows <= 16 ? &tiles[0] : rows <= 32 ? &tiles[1] : &tiles[2];
}

#define KERNELS(op, format)                                                                                  \
	{                                                                                                    \
		"kvk_cuda_" #op "_" #format "_r16", "kvk_cuda_" #op "_" #format "_r32",                      \
			"kvk_cuda_" #op "_" #format "_r64"                                                   \
	}

static const char *const dense_kernels[][3] = {KERNELS(mla_dense, bf16), KERNELS(mla_dense, f16),
					       KERNELS(mla_dense, fp8)};
static const char *const sparse_kernels[][3] = {KERNELS(mla_sparse, bf16), KERNELS(mla_sparse, f16),
						KERNELS(mla_sparse, fp8)};

static const char *const group_kernels[] = {"kvk_cuda_mla_dense_bf16_g64", "kvk_cuda_mla_dense_f16_g64"};

/* Row of the tables above for a pair of dtypes, or -ENOTSUP. */
static int format_of(uint32_t q_dtype, uint32_t kv_dtype)
{
	if (q_dtype == kv_dtype && q_dtype == KVK_BF16)
		return 0;
	if (q_dtype == kv_dtype && q_dtype == KVK_F16)
		return 1;
	return q_dtype == KVK_BF16 && kv_dtype == KVK_MLA_FP8 ? 2 : -ENOTSUP;
}

static uint32_t shared_of(const struct tile *tile, uint32_t kv_dtype)
{
	return kv_dtype == KVK_MLA_FP8 ? tile->fp8_shared_bytes : tile->shared_bytes;
}

static int64_t row_elements(uint32_t kv_dtype)
{
	return kv_dtype == KVK_MLA_FP8 ? KVK_MLA_FP8_ROW_BYTES : KVK_MLA_WIDTH;
}

/* Fields of equal name in both structs. */
#define CHECK_ARRAYS(p)                                                                                      \
	KVK_ALL_OF(KVK_ARRAY((p)->q, 2, 4, ((p)->batch, (p)->s_q, (p)->heads, KVK_MLA_WIDTH),                \
			     &(p)->q_stride_batch, &(p)->q_stride_query, &(p)->q_stride_head),               \
		   KVK_ARRAY((p)->kv, kvk_dtype_bytes((p)->kv_dtype), 3,                                     \
			     ((p)->pages, (p)->page_tokens, row_elements((p)->kv_dtype)),                    \
			     &(p)->kv_stride_page, &(p)->kv_stride_token),                                   \
		   KVK_ARRAY((p)->out, kvk_dtype_bytes((p)->out_dtype), 4,                                   \
			     ((p)->batch, (p)->s_q, (p)->heads, KVK_MLA_LATENT), &(p)->out_stride_batch,     \
			     &(p)->out_stride_query, &(p)->out_stride_head),                                 \
		   (p)->lse ? KVK_ARRAY((p)->lse, 4, 3, ((p)->batch, (p)->heads, (p)->s_q),                  \
					&(p)->lse_stride_batch, &(p)->lse_stride_head)                       \
			    : 0,                                                                             \
		   (int64_t)(p)->s_q *(p)->heads > INT32_MAX ? -EOVERFLOW : 0)

/* After CHECK_ARRAYS(): strides are there. */
#define CHECK_ALIGNED(p)                                                                                     \
	KVK_ALL_OF(kvk_cuda_check_aligned(                                                                   \
			   (p)->q, 16, 2,                                                                    \
			   (const int64_t[]){(p)->q_stride_batch, (p)->q_stride_query, (p)->q_stride_head},  \
			   3),                                                                               \
		   kvk_cuda_check_aligned((p)->kv, 16, kvk_dtype_bytes((p)->kv_dtype),                       \
					  (const int64_t[]){(p)->kv_stride_page, (p)->kv_stride_token}, 2),  \
		   kvk_cuda_check_aligned((p)->out, 2 * kvk_dtype_bytes((p)->out_dtype),                     \
					  kvk_dtype_bytes((p)->out_dtype),                                   \
					  (const int64_t[]){(p)->out_stride_batch, (p)->out_stride_query,    \
							    (p)->out_stride_head},                           \
					  3))

/* Fields of equal name. */
#define COMMON_ARGS(p)                                                                                       \
	.q = (p)->q, .kv = (p)->kv, .sink = (p)->sink, .out = (p)->out, .lse = (p)->lse,                     \
	.q_stride_batch = (p)->q_stride_batch, .q_stride_query = (p)->q_stride_query,                        \
	.q_stride_head = (p)->q_stride_head,                                                                 \
	.kv_page_bytes = (p)->kv_stride_page * (int64_t)kvk_dtype_bytes((p)->kv_dtype),                      \
	.kv_token_bytes = (p)->kv_stride_token * (int64_t)kvk_dtype_bytes((p)->kv_dtype),                    \
	.out_stride_batch = (p)->out_stride_batch, .out_stride_query = (p)->out_stride_query,                \
	.out_stride_head = (p)->out_stride_head, .lse_stride_batch = (p)->lse_stride_batch,                  \
	.lse_stride_head = (p)->lse_stride_head, .batch = (p)->batch, .s_q = (p)->s_q, .heads = (p)->heads,  \
	.page_tokens = (p)->page_tokens, .pages = (p)->pages, .out_dtype = (p)->out_dtype,                   \
	.scale = (p)->scale

static struct kvk_cuda_combine_args combine_args(const struct kvk_cuda_mla_args *a)
{
	return (struct kvk_cuda_combine_args){.partial_out = a->partial_out,
					      .partial_lse = a->partial_lse,
					      .num_splits = a->num_splits,
					      .sink = a->sink,
					      .out = a->out,
					      .lse = a->lse,
					      .out_stride_batch = a->out_stride_batch,
					      .out_stride_query = a->out_stride_query,
					      .out_stride_head = a->out_stride_head,
					      .lse_stride_batch = a->lse_stride_batch,
					      .lse_stride_head = a->lse_stride_head,
					      .batch = a->batch,
					      .s_q = a->s_q,
					      .heads = a->heads,
					      .dim = KVK_MLA_LATENT,
					      .splits = a->splits,
					      .partials = a->partials,
					      .out_dtype = a->out_dtype};
}

/* ------------------------------------------------------------------ plan */

static int enqueue_plan(const struct kvk_cuda_device *device, const struct kvk_cuda_plan_args *args)
{
	return kvk_cuda_enqueue(device, "kvk_cuda_mla_plan", 1, PLAN_THREADS, KVK_CUDA_PLAN_SHARED, args,
				sizeof(*args));
}

int kvk_mla_plan_cuda(const struct kvk_cuda_device *device, const struct kvk_mla_plan_params *params)
{
	struct kvk_mla_plan_params p;
	int ret = kvk_take_params(&p, sizeof(p), params);
	struct kvk_cuda_plan_args args;

	if (!ret)
		ret = kvk_cuda_check_device(device);
	if (ret)
		return ret;
	if (p.flags || p.batch < 0 || p.parts < 1 || p.block_tokens < 1 || p.overhead < 0 || !p.plan ||
	    !p.num_splits || (p.batch && !p.lens) || device->split_keys % p.block_tokens)
		return -EINVAL;
	args = (struct kvk_cuda_plan_args){.lens = p.lens,
					   .plan = p.plan,
					   .num_splits = p.num_splits,
					   .batch = p.batch,
					   .parts = p.parts,
					   .block_tokens = p.block_tokens,
					   .overhead = p.overhead,
					   .split_blocks = device->split_keys / p.block_tokens,
					   .most_blocks = INT32_MAX};
	return enqueue_plan(device, &args);
}

/* ------------------------------------------------------------------ dense */

/* Where the parts of the scratch lie. */
struct dense_layout {
	int64_t parts, partials;
	int64_t plan, num_splits, out, lse; /* byte offsets */
	int64_t bytes;
};

static int64_t blocks_of_row(const struct kvk_mla_dense_params *p)
{
	const int64_t blocks = ((int64_t)p->table_width * p->page_tokens + PLAN_TOKENS - 1) / PLAN_TOKENS;

	return blocks > 0 ? blocks : 1;
}

/*
 * Equal parts: one for each block that the device runs at a time. Fixed pieces: as many as full tables
 * would make.
 */
static void count_parts(const struct kvk_cuda_device *device, const struct kvk_mla_dense_params *p,
			struct dense_layout *l)
{
	const int64_t rows = (int64_t)p->s_q * p->heads;
	const struct tile *tile = tile_for(rows);
	const int64_t units = (int64_t)device->units * (tile->rows == 16 ? SMALL_BLOCKS_A_UNIT : 1);
	const int64_t split_blocks = device->split_keys / PLAN_TOKENS;

	l->parts = units / ((rows + tile->rows - 1) / tile->rows);
	l->parts = l->parts > 0 ? l->parts : 1;
	l->partials = p->batch + l->parts;
	if (split_blocks) {
		l->parts = p->batch * ((blocks_of_row(p) + split_blocks - 1) / split_blocks);
		l->partials = l->parts;
	}
}

static int lay_out_dense(const struct kvk_cuda_device *device, const struct kvk_mla_dense_params *p,
			 struct dense_layout *l)
{
	int64_t rows = 0;

	*l = (struct dense_layout){0};
	count_parts(device, p, l);
	if (l->partials > INT32_MAX || __builtin_mul_overflow(l->partials, (int64_t)p->s_q * p->heads, &rows))
		return -EOVERFLOW;
	l->plan = kvk_cuda_place(&l->bytes, l->parts, sizeof(struct kvk_mla_plan_part));
	l->num_splits = kvk_cuda_place(&l->bytes, p->batch + 1ll, sizeof(int32_t));
	l->out = kvk_cuda_place(&l->bytes, rows, KVK_MLA_LATENT * (int64_t)sizeof(float));
	l->lse = kvk_cuda_place(&l->bytes, rows, sizeof(float));
	return 0;
}

int kvk_mla_dense_cuda_scratch(const struct kvk_cuda_device *device,
			       const struct kvk_mla_dense_params *params, size_t *out_bytes)
{
	struct kvk_mla_dense_params p;
	struct dense_layout layout;
	int ret = kvk_shape_mla_dense(params, &p);

	if (!ret)
		ret = kvk_cuda_check_device(device);
	if (!ret)
		ret = lay_out_dense(device, &p, &layout);
	return ret ? ret : kvk_cuda_scratch_size(layout.bytes, out_bytes);
}

static struct kvk_cuda_mla_args dense_args(const struct kvk_mla_dense_params *p, const struct dense_layout *l)
{
	return (struct kvk_cuda_mla_args){
		COMMON_ARGS(p),
		.block_table = p->block_table,
		.lens = p->lens,
		.table_stride = p->table_stride,
		.table_width = p->table_width,
		.causal = (p->flags & KVK_CAUSAL) != 0,
		.plan = kvk_cuda_at(p->scratch, l->plan),
		.num_splits = kvk_cuda_at(p->scratch, l->num_splits),
		.partial_out = kvk_cuda_at(p->scratch, l->out),
		.partial_lse = kvk_cuda_at(p->scratch, l->lse),
		.parts = (int32_t)l->parts,
		.plan_tokens = PLAN_TOKENS,
		.partials = (int32_t)l->partials,
	};
}

static int enqueue_dense_plan(const struct kvk_cuda_device *device, const struct kvk_mla_dense_params *p,
			      const struct dense_layout *l)
{
	const struct kvk_cuda_plan_args args = {.lens = p->lens,
						.plan = kvk_cuda_at(p->scratch, l->plan),
						.num_splits = kvk_cuda_at(p->scratch, l->num_splits),
						.batch = p->batch,
						.parts = (int32_t)l->parts,
						.block_tokens = PLAN_TOKENS,
						.overhead = PLAN_OVERHEAD,
						.split_blocks = device->split_keys / PLAN_TOKENS,
						.most_blocks = (int32_t)blocks_of_row(p)};

	return device->flags & KVK_CUDA_PLAN_READY ? 0 : enqueue_plan(device, &args);
}

/* The kernel for so many rows, and its tile. */
static const char *dense_kernel(const struct kvk_cuda_device *device, const struct kvk_mla_dense_params *p,
				int64_t rows, const struct tile **out_tile)
{
	const int format = format_of(p->q_dtype, p->kv_dtype);

	*out_tile = tile_for(rows);
	if (!(device->flags & KVK_CUDA_WARPGROUPS) || (*out_tile)->rows < group_tile.rows ||
	    p->kv_dtype == KVK_MLA_FP8)
		return dense_kernels[format][*out_tile - tiles];
	*out_tile = &group_tile;
	return group_kernels[format];
}

/*
 * A tile of keys must lie in one page. The manual wants each stride to be a multiple of the one before it; both layouts
 * of a pool have such.
 */
static bool comes_in_boxes(const struct kvk_cuda_mla_args *a)
{
	return a->pages > 0 && a->page_tokens % KVK_CUDA_BOX == 0 &&
	       a->kv_token_bytes >= KVK_MLA_WIDTH * (int64_t)sizeof(uint16_t) &&
	       a->kv_page_bytes >= a->kv_token_bytes && a->kv_page_bytes % a->kv_token_bytes == 0 &&
	       a->kv_page_bytes < (int64_t)1 << 40;
}

static int enqueue_groups(const struct kvk_cuda_device *device, const char *kernel, int64_t units,
			  const struct kvk_cuda_mla_args *a)
{
	const bool boxed = comes_in_boxes(a);
	const struct kvk_cuda_mla_group_args args = {.keys = {.base = a->kv,
							      .width = KVK_MLA_WIDTH,
							      .tokens = (uint64_t)a->page_tokens,
							      .pages = (uint64_t)a->pages,
							      .token_bytes = (uint64_t)a->kv_token_bytes,
							      .page_bytes = (uint64_t)a->kv_page_bytes},
						     .mla = *a,
						     .boxed = boxed};
	const struct kvk_cuda_launch launch = {.kernel = kernel,
					       .threads = group_tile.threads,
					       .shared_bytes = group_tile.shared_bytes,
					       .args_bytes = sizeof(args),
					       .args = &args,
					       .tensor = boxed};

	return kvk_cuda_enqueue_launch(device, units, &launch);
}

static int enqueue_dense(const struct kvk_cuda_device *device, const struct kvk_mla_dense_params *p,
			 const struct dense_layout *l)
{
	const struct kvk_cuda_mla_args args = dense_args(p, l);
	const struct kvk_cuda_combine_args merge = combine_args(&args);
	const int64_t rows = (int64_t)p->s_q * p->heads;
	const struct tile *tile;
	const char *kernel = dense_kernel(device, p, rows, &tile);
	const int64_t units = l->parts * ((rows + tile->rows - 1) / tile->rows);
	int ret = enqueue_dense_plan(device, p, l);

	if (!ret && tile == &group_tile)
		ret = enqueue_groups(device, kernel, units, &args);
	else if (!ret)
		ret = kvk_cuda_enqueue(device, kernel, units, tile->threads, shared_of(tile, p->kv_dtype),
				       &args, sizeof(args));
	return ret ? ret : kvk_cuda_enqueue_combine(device, &merge);
}

int kvk_mla_dense_cuda(const struct kvk_cuda_device *device, const struct kvk_mla_dense_params *params)
{
	struct kvk_mla_dense_params p;
	struct dense_layout layout;
	int ret = kvk_shape_mla_dense(params, &p);

	if (!ret)
		ret = kvk_cuda_check_device(device);
	if (ret || !p.batch)
		return ret;
	if (format_of(p.q_dtype, p.kv_dtype) < 0)
		return -ENOTSUP;
	ret = KVK_ALL_OF(CHECK_ARRAYS(&p),
			 KVK_ARRAY(p.block_table, 4, 2, (p.batch, p.table_width), &p.table_stride),
			 KVK_ARRAY(p.lens, 4, 1, (p.batch), NULL));
	ret = ret ? ret : CHECK_ALIGNED(&p);
	ret = ret ? ret : lay_out_dense(device, &p, &layout);
	ret = ret ? ret : kvk_cuda_check_scratch(p.scratch, p.scratch_bytes, layout.bytes);
	return ret ? ret : enqueue_dense(device, &p, &layout);
}

/* ------------------------------------------------------------------ sparse */

struct sparse_layout {
	int64_t splits, split_keys;
	int64_t out, lse;
	int64_t bytes;
};

/* Pieces of the lists: fixed, or so many that the device has something to do, of at least 128 entries. */
static void count_pieces(const struct kvk_cuda_device *device, const struct kvk_mla_sparse_params *p,
			 struct sparse_layout *l)
{
	const struct tile *tile = tile_for(p->heads > 16 ? 64 : 16);
	const int64_t units = (int64_t)p->batch * p->s_q * ((p->heads + tile->rows - 1) / tile->rows);
	int64_t wanted = device->units / (units > 0 ? units : 1);

	l->split_keys = device->split_keys;
	if (!l->split_keys) {
		wanted = wanted < p->topk / 128 ? wanted : p->topk / 128;
		wanted = wanted > 1 ? wanted : 1;
		l->split_keys = (p->topk / wanted + 63) / 64 * 64;
	}
	l->split_keys = l->split_keys > 64 ? l->split_keys : 64;
	l->splits = p->topk > 0 ? (p->topk + l->split_keys - 1) / l->split_keys : 1;
}

static int lay_out_sparse(const struct kvk_cuda_device *device, const struct kvk_mla_sparse_params *p,
			  struct sparse_layout *l)
{
	int64_t rows = 0;

	*l = (struct sparse_layout){0};
	count_pieces(device, p, l);
	if (l->splits == 1)
		return 0;
	if (p->batch * l->splits > INT32_MAX ||
	    __builtin_mul_overflow(p->batch * l->splits, (int64_t)p->s_q * p->heads, &rows))
		return -EOVERFLOW;
	l->out = kvk_cuda_place(&l->bytes, rows, KVK_MLA_LATENT * (int64_t)sizeof(float));
	l->lse = kvk_cuda_place(&l->bytes, rows, sizeof(float));
	return 0;
}

int kvk_mla_sparse_cuda_scratch(const struct kvk_cuda_device *device,
				const struct kvk_mla_sparse_params *params, size_t *out_bytes)
{
	struct kvk_mla_sparse_params p;
	struct sparse_layout layout;
	int ret = kvk_shape_mla_sparse(params, &p);

	if (!ret)
		ret = kvk_cuda_check_device(device);
	if (!ret)
		ret = lay_out_sparse(device, &p, &layout);
	return ret ? ret : kvk_cuda_scratch_size(layout.bytes, out_bytes);
}

static int enqueue_sparse(const struct kvk_cuda_device *device, const struct kvk_mla_sparse_params *p,
			  const struct sparse_layout *l)
{
	const struct tile *tile = tile_for(p->heads > 16 ? 64 : 16);
	const int64_t queries = (int64_t)p->batch * p->s_q;
	const char *kernel = sparse_kernels[format_of(p->q_dtype, p->kv_dtype)][tile - tiles];
	const struct kvk_cuda_mla_args args = {
		COMMON_ARGS(p),
		.indices = p->indices,
		.topk_length = p->topk_length,
		.indices_stride_batch = p->indices_stride_batch,
		.indices_stride_query = p->indices_stride_query,
		.topk = p->topk,
		.splits = (int32_t)l->splits,
		.split_keys = (int32_t)l->split_keys,
		.partial_out = kvk_cuda_at(p->scratch, l->out),
		.partial_lse = kvk_cuda_at(p->scratch, l->lse),
		.partials = (int32_t)(p->batch * l->splits),
	};
	const struct kvk_cuda_combine_args merge = combine_args(&args);
	int ret = kvk_cuda_enqueue(device, kernel,
				   queries * ((p->heads + tile->rows - 1) / tile->rows) * l->splits,
				   tile->threads, shared_of(tile, p->kv_dtype), &args, sizeof(args));

	return ret || l->splits == 1 ? ret : kvk_cuda_enqueue_combine(device, &merge);
}

int kvk_mla_sparse_cuda(const struct kvk_cuda_device *device, const struct kvk_mla_sparse_params *params)
{
	struct kvk_mla_sparse_params p;
	struct sparse_layout layout;
	int ret = kvk_shape_mla_sparse(params, &p);

	if (!ret)
		ret = kvk_cuda_check_device(device);
	if (ret || !p.batch)
		return ret;
	if (format_of(p.q_dtype, p.kv_dtype) < 0)
		return -ENOTSUP;
	ret = KVK_ALL_OF(CHECK_ARRAYS(&p), KVK_ARRAY(p.indices, 4, 3, (p.batch, p.s_q, p.topk),
						     &p.indices_stride_batch, &p.indices_stride_query));
	ret = ret ? ret : CHECK_ALIGNED(&p);
	ret = ret ? ret : lay_out_sparse(device, &p, &layout);
	ret = ret ? ret : kvk_cuda_check_scratch(p.scratch, p.scratch_bytes, layout.bytes);
	return ret ? ret : enqueue_sparse(device, &p, &layout);
}
