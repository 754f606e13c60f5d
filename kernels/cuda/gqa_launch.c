/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of grouped attention, dense and over selected blocks: the fields that both have bear one name. */
#include "enqueue.h"

#include "../internal.h"

#include <errno.h>

#define TILE_ROWS 16
#define THREADS 128
#define LEAST_PIECE 256 /* keys; less isn't worth a partial */

static const char *const dense_kernels[2][2] = {{"kvk_cuda_gqa_dense_bf16_64", "kvk_cuda_gqa_dense_bf16_128"},
						{"kvk_cuda_gqa_dense_f16_64", "kvk_cuda_gqa_dense_f16_128"}};
static const char *const sparse_kernels[2][2] = {
	{"kvk_cuda_msa_sparse_bf16_64", "kvk_cuda_msa_sparse_bf16_128"},
	{"kvk_cuda_msa_sparse_f16_64", "kvk_cuda_msa_sparse_f16_128"}};

/* How a row's keys are cut, and where in the scratch the partials lie. */
struct layout {
	int64_t splits, split_keys;
	int64_t out, lse;
	int64_t bytes;
};

/* `keys` is the most that a row can have, `work` the units there are without cutting. */
static void cut(const struct kvk_cuda_device *device, int64_t keys, int64_t work, struct layout *l)
{
	int64_t wanted = 2ll * device->units / (work > 0 ? work : 1);

	l->split_keys = device->split_keys;
	if (!l->split_keys) {
		wanted = wanted < keys / LEAST_PIECE ? wanted : keys / LEAST_PIECE;
		wanted = wanted > 1 ? wanted : 1;
		l->split_keys = ((keys + wanted - 1) / wanted + 63) / 64 * 64;
	}
	l->split_keys = l->split_keys > 64 ? l->split_keys : 64;
	l->splits = keys > l->split_keys ? (keys + l->split_keys - 1) / l->split_keys : 1;
}

static int lay_out(const struct kvk_cuda_device *device, int64_t keys, int32_t rows, int32_t heads,
		   int32_t kv_heads, int32_t head_dim, struct layout *l)
{
	const int32_t tiles = (heads / kv_heads + TILE_ROWS - 1) / TILE_ROWS;
	int64_t places;

	*l = (struct layout){0};
	if (keys > INT32_MAX - 64)
		return -EOVERFLOW;
	cut(device, keys, (int64_t)rows * kv_heads * tiles, l);
	if (l->splits == 1)
		return 0;
	if (rows * l->splits > INT32_MAX || __builtin_mul_overflow(rows * l->splits, (int64_t)heads, &places))
		return -EOVERFLOW;
	l->out = kvk_cuda_place(&l->bytes, places, head_dim * (int64_t)sizeof(float));
	l->lse = kvk_cuda_place(&l->bytes, places, sizeof(float));
	return 0;
}

#define LAY_OUT(device, keys, p, l)                                                                          \
	lay_out(device, keys, (p)->rows, (p)->heads, (p)->kv_heads, (p)->head_dim, l)

static int64_t dense_keys(const struct kvk_gqa_dense_params *p)
{
	return (int64_t)p->table_width * p->page_tokens;
}

static int64_t sparse_keys(const struct kvk_msa_sparse_params *p)
{
	return (int64_t)p->topk * p->block_tokens;
}

#define CHECK_ARRAYS(p)                                                                                      \
	KVK_ALL_OF(KVK_ARRAY((p)->q, 2, 3, ((p)->rows, (p)->heads, (p)->head_dim), &(p)->q_stride_row,       \
			     &(p)->q_stride_head),                                                           \
		   KVK_ARRAY((p)->k, 2, 4, ((p)->pages, (p)->page_tokens, (p)->kv_heads, (p)->head_dim),     \
			     &(p)->k_stride_page, &(p)->k_stride_token, &(p)->k_stride_head),                \
		   KVK_ARRAY((p)->v, 2, 4, ((p)->pages, (p)->page_tokens, (p)->kv_heads, (p)->head_dim),     \
			     &(p)->v_stride_page, &(p)->v_stride_token, &(p)->v_stride_head),                \
		   KVK_ARRAY((p)->block_table, 4, 2, ((p)->batch, (p)->table_width), &(p)->table_stride),    \
		   KVK_ARRAY((p)->lens, 4, 1, ((p)->batch), NULL),                                           \
		   KVK_ARRAY((p)->out, kvk_dtype_bytes((p)->out_dtype), 3,                                   \
			     ((p)->rows, (p)->heads, (p)->head_dim), &(p)->out_stride_row,                   \
			     &(p)->out_stride_head),                                                         \
		   (p)->lse ? KVK_ARRAY((p)->lse, 4, 2, ((p)->rows, (p)->heads), &(p)->lse_stride_row) : 0,  \
		   (p)->cu_q && (p)->s_q ? -EINVAL : 0)

#define CHECK_ALIGNED(p)                                                                                     \
	KVK_ALL_OF(                                                                                          \
		kvk_cuda_check_aligned((p)->q, 16, 2,                                                        \
				       (const int64_t[]){(p)->q_stride_row, (p)->q_stride_head}, 2),         \
		kvk_cuda_check_aligned(                                                                      \
			(p)->k, 16, 2,                                                                       \
			(const int64_t[]){(p)->k_stride_page, (p)->k_stride_token, (p)->k_stride_head}, 3),  \
		kvk_cuda_check_aligned(                                                                      \
			(p)->v, 16, 2,                                                                       \
			(const int64_t[]){(p)->v_stride_page, (p)->v_stride_token, (p)->v_stride_head}, 3),  \
		kvk_cuda_check_aligned((p)->out, 2 * kvk_dtype_bytes((p)->out_dtype),                        \
				       kvk_dtype_bytes((p)->out_dtype),                                      \
				       (const int64_t[]){(p)->out_stride_row, (p)->out_stride_head}, 2))

#define CHECK_KERNEL(p)                                                                                      \
	((p)->q_dtype != (p)->kv_dtype || ((p)->q_dtype != KVK_BF16 && (p)->q_dtype != KVK_F16) ||           \
			 ((p)->head_dim != 64 && (p)->head_dim != 128)                                       \
		 ? -ENOTSUP                                                                                  \
		 : 0)

#define COMMON_ARGS(p, l)                                                                                    \
	.q = (p)->q, .k = (p)->k, .v = (p)->v, .block_table = (p)->block_table, .lens = (p)->lens,           \
	.cu_q = (p)->cu_q, .out = (p)->out, .lse = (p)->lse,                                                 \
	.partial_out = kvk_cuda_at((p)->scratch, (l)->out),                                                  \
	.partial_lse = kvk_cuda_at((p)->scratch, (l)->lse), .q_stride_row = (p)->q_stride_row,               \
	.q_stride_head = (p)->q_stride_head, .k_page_bytes = 2 * (p)->k_stride_page,                         \
	.k_token_bytes = 2 * (p)->k_stride_token, .k_head_bytes = 2 * (p)->k_stride_head,                    \
	.v_page_bytes = 2 * (p)->v_stride_page, .v_token_bytes = 2 * (p)->v_stride_token,                    \
	.v_head_bytes = 2 * (p)->v_stride_head, .table_stride = (p)->table_stride,                           \
	.out_stride_row = (p)->out_stride_row, .out_stride_head = (p)->out_stride_head,                      \
	.lse_stride_row = (p)->lse_stride_row, .batch = (p)->batch, .s_q = (p)->s_q, .rows = (p)->rows,      \
	.heads = (p)->heads, .kv_heads = (p)->kv_heads, .head_dim = (p)->head_dim,                           \
	.page_tokens = (p)->page_tokens, .pages = (p)->pages, .table_width = (p)->table_width,               \
	.splits = (int32_t)(l)->splits, .split_keys = (int32_t)(l)->split_keys, .q_dtype = (p)->q_dtype,     \
	.kv_dtype = (p)->kv_dtype, .out_dtype = (p)->out_dtype, .scale = (p)->scale

/* Every row is a sequence of its own to the merge. */
static int enqueue_merge(const struct kvk_cuda_device *device, const struct kvk_cuda_gqa_args *a)
{
	const struct kvk_cuda_combine_args merge = {.partial_out = a->partial_out,
						    .partial_lse = a->partial_lse,
						    .out = a->out,
						    .lse = a->lse,
						    .out_stride_batch = a->out_stride_row,
						    .out_stride_head = a->out_stride_head,
						    .lse_stride_batch = a->lse_stride_row,
						    .lse_stride_head = 1,
						    .batch = a->rows,
						    .s_q = 1,
						    .heads = a->heads,
						    .dim = a->head_dim,
						    .splits = a->splits,
						    .partials = a->rows * a->splits,
						    .out_dtype = a->out_dtype};

	return a->splits == 1 ? 0 : kvk_cuda_enqueue_combine(device, &merge);
}

static int enqueue(const struct kvk_cuda_device *device, const char *const kernels[2][2],
		   const struct kvk_cuda_gqa_args *a)
{
	const int32_t tiles = (a->heads / a->kv_heads + TILE_ROWS - 1) / TILE_ROWS;
	int ret = kvk_cuda_enqueue(device, kernels[a->q_dtype == KVK_F16][a->head_dim == 128],
				   (int64_t)a->rows * a->kv_heads * tiles * a->splits, THREADS,
				   a->head_dim == 128 ? KVK_CUDA_GQA_128_SHARED : KVK_CUDA_GQA_64_SHARED, a,
				   sizeof(*a));

	return ret ? ret : enqueue_merge(device, a);
}

int kvk_gqa_dense_cuda_scratch(const struct kvk_cuda_device *device,
			       const struct kvk_gqa_dense_params *params, size_t *out_bytes)
{
	struct kvk_gqa_dense_params p;
	struct layout layout;
	int ret = kvk_shape_gqa_dense(params, &p);

	ret = ret ? ret : kvk_cuda_check_device(device);
	ret = ret ? ret : LAY_OUT(device, dense_keys(&p), &p, &layout);
	return ret ? ret : kvk_cuda_scratch_size(layout.bytes, out_bytes);
}

int kvk_gqa_dense_cuda(const struct kvk_cuda_device *device, const struct kvk_gqa_dense_params *params)
{
	struct kvk_gqa_dense_params p;
	struct kvk_cuda_gqa_args args;
	struct layout layout;
	int ret = kvk_shape_gqa_dense(params, &p);

	ret = ret ? ret : kvk_cuda_check_device(device);
	if (ret || !p.rows)
		return ret;
	ret = CHECK_KERNEL(&p);
	ret = ret ? ret : CHECK_ARRAYS(&p);
	ret = ret ? ret : CHECK_ALIGNED(&p);
	ret = ret ? ret : LAY_OUT(device, dense_keys(&p), &p, &layout);
	ret = ret ? ret : kvk_cuda_check_scratch(p.scratch, p.scratch_bytes, layout.bytes);
	if (ret)
		return ret;
	args = (struct kvk_cuda_gqa_args){COMMON_ARGS(&p, &layout), .causal = (p.flags & KVK_CAUSAL) != 0};
	return enqueue(device, dense_kernels, &args);
}

int kvk_msa_sparse_cuda_scratch(const struct kvk_cuda_device *device,
				const struct kvk_msa_sparse_params *params, size_t *out_bytes)
{
	struct kvk_msa_sparse_params p;
	struct layout layout;
	int ret = kvk_shape_msa_sparse(params, &p);

	ret = ret ? ret : kvk_cuda_check_device(device);
	ret = ret ? ret : LAY_OUT(device, sparse_keys(&p), &p, &layout);
	return ret ? ret : kvk_cuda_scratch_size(layout.bytes, out_bytes);
}

int kvk_msa_sparse_cuda(const struct kvk_cuda_device *device, const struct kvk_msa_sparse_params *params)
{
	struct kvk_msa_sparse_params p;
	struct kvk_cuda_gqa_args args;
	struct layout layout;
	int ret = kvk_shape_msa_sparse(params, &p);

	ret = ret ? ret : kvk_cuda_check_device(device);
	if (ret || !p.rows)
		return ret;
	ret = p.topk > KVK_CUDA_MAX_TOPK ? -ENOTSUP : CHECK_KERNEL(&p);
	ret = ret ? ret : CHECK_ARRAYS(&p);
	ret = ret ? ret
		  : KVK_ARRAY(p.selected, 4, 3, (p.kv_heads, p.rows, p.topk), &p.selected_stride_head,
			      &p.selected_stride_row);
	ret = ret ? ret : CHECK_ALIGNED(&p);
	ret = ret ? ret : LAY_OUT(device, sparse_keys(&p), &p, &layout);
	ret = ret ? ret : kvk_cuda_check_scratch(p.scratch, p.scratch_bytes, layout.bytes);
	if (ret)
		return ret;
	args = (struct kvk_cuda_gqa_args){COMMON_ARGS(&p, &layout),
					  .selected = p.selected,
					  .selected_stride_head = p.selected_stride_head,
					  .selected_stride_row = p.selected_stride_row,
					  .block_tokens = p.block_tokens,
					  .topk = p.topk,
					  .causal = 1};
	return enqueue(device, sparse_kernels, &args);
}
