/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of MSA's index scores and selection. */
#include "enqueue.h"

#include "../internal.h"

#include <errno.h>

#define WARPS 4 /* of a block */
#define FAST_DIM 128

/* Rows of q are read 16 bytes at a time, keys 16 or, as e4m3, 8. */
static int is_fast(const struct kvk_msa_scores_params *p)
{
	const size_t key = p->k_dtype == KVK_E4M3 ? 8 : 16;

	if (p->dim != FAST_DIM || (p->q_dtype != KVK_BF16 && p->q_dtype != KVK_F16) ||
	    (p->k_dtype != p->q_dtype && p->k_dtype != KVK_E4M3))
		return 0;
	return !kvk_cuda_check_aligned(p->index_q, 16, 2,
				       (const int64_t[]){p->q_stride_row, p->q_stride_head}, 2) &&
	       !kvk_cuda_check_aligned(p->index_k, key, kvk_dtype_bytes(p->k_dtype),
				       (const int64_t[]){p->k_stride_page, p->k_stride_token}, 2);
}

static const char *scores_kernel(const struct kvk_msa_scores_params *p)
{
	if (!is_fast(p))
		return "kvk_cuda_msa_scores_plain";
	if (p->k_dtype == KVK_E4M3)
		return p->q_dtype == KVK_BF16 ? "kvk_cuda_msa_scores_bf16_e4m3"
					      : "kvk_cuda_msa_scores_f16_e4m3";
	return p->q_dtype == KVK_BF16 ? "kvk_cuda_msa_scores_bf16" : "kvk_cuda_msa_scores_f16";
}

static int check_scores(struct kvk_msa_scores_params *p)
{
	return KVK_ALL_OF(KVK_ARRAY(p->index_q, kvk_dtype_bytes(p->q_dtype), 3,
				    (p->rows, p->index_heads, p->dim), &p->q_stride_row, &p->q_stride_head),
			  KVK_ARRAY(p->index_k, kvk_dtype_bytes(p->k_dtype), 3,
				    (p->pages, p->page_tokens, p->dim), &p->k_stride_page,
				    &p->k_stride_token),
			  KVK_ARRAY(p->block_table, 4, 2, (p->batch, p->table_width), &p->table_stride),
			  KVK_ARRAY(p->lens, 4, 1, (p->batch), NULL),
			  KVK_ARRAY(p->score, 4, 3, (p->index_heads, p->rows, p->blocks),
				    &p->score_stride_head, &p->score_stride_row),
			  p->cu_q && p->s_q ? -EINVAL : 0);
}

int kvk_msa_scores_cuda(const struct kvk_cuda_device *device, const struct kvk_msa_scores_params *params)
{
	struct kvk_msa_scores_params p;
	struct kvk_cuda_scores_args args;
	int64_t units;
	int ret = kvk_shape_msa_scores(params, &p);

	ret = ret ? ret : kvk_cuda_check_device(device);
	if (ret || !p.rows)
		return ret;
	ret = check_scores(&p);
	if (ret)
		return ret;
	args = (struct kvk_cuda_scores_args){.index_q = p.index_q,
					     .index_k = p.index_k,
					     .block_table = p.block_table,
					     .lens = p.lens,
					     .cu_q = p.cu_q,
					     .score = p.score,
					     .n_valid = p.n_valid,
					     .q_stride_row = p.q_stride_row,
					     .q_stride_head = p.q_stride_head,
					     .k_stride_page = p.k_stride_page,
					     .k_stride_token = p.k_stride_token,
					     .table_stride = p.table_stride,
					     .score_stride_head = p.score_stride_head,
					     .score_stride_row = p.score_stride_row,
					     .batch = p.batch,
					     .s_q = p.s_q,
					     .rows = p.rows,
					     .index_heads = p.index_heads,
					     .dim = p.dim,
					     .block_tokens = p.block_tokens,
					     .blocks = p.blocks,
					     .page_tokens = p.page_tokens,
					     .pages = p.pages,
					     .table_width = p.table_width,
					     .q_dtype = p.q_dtype,
					     .k_dtype = p.k_dtype};
	/* A block at least: rows of no sequence are filled as well. */
	units = (int64_t)p.batch * p.blocks;
	return kvk_cuda_enqueue(device, scores_kernel(&p), units / WARPS + 1, 32 * WARPS, 0, &args,
				sizeof(args));
}

int kvk_msa_select_cuda(const struct kvk_cuda_device *device, const struct kvk_msa_select_params *params)
{
	struct kvk_msa_select_params p;
	struct kvk_cuda_select_args args;
	int ret = kvk_take_params(&p, sizeof(p), params);

	ret = ret ? ret : kvk_cuda_check_device(device);
	if (!ret && (p.flags || p.heads < 1 || p.rows < 0 || p.blocks < 0 || p.topk < 1 ||
		     p.init_blocks < 0 || p.local_blocks < 0))
		ret = -EINVAL;
	if (ret || !p.rows)
		return ret;
	ret = KVK_ALL_OF(KVK_ARRAY(p.score, 4, 3, (p.heads, p.rows, p.blocks), &p.score_stride_head,
				   &p.score_stride_row),
			 KVK_ARRAY(p.n_valid, 4, 1, (p.rows), NULL),
			 KVK_ARRAY(p.selected, 4, 3, (p.heads, p.rows, p.topk), &p.selected_stride_head,
				   &p.selected_stride_row));
	if (ret)
		return ret;
	args = (struct kvk_cuda_select_args){.score = p.score,
					     .n_valid = p.n_valid,
					     .selected = p.selected,
					     .score_stride_head = p.score_stride_head,
					     .score_stride_row = p.score_stride_row,
					     .selected_stride_head = p.selected_stride_head,
					     .selected_stride_row = p.selected_stride_row,
					     .heads = p.heads,
					     .rows = p.rows,
					     .blocks = p.blocks,
					     .topk = p.topk,
					     .init_blocks = p.init_blocks,
					     .local_blocks = p.local_blocks};
	return kvk_cuda_enqueue(device, "kvk_cuda_msa_select",
				((int64_t)p.heads * p.rows + WARPS - 1) / WARPS, 32 * WARPS, 0, &args,
				sizeof(args));
}
