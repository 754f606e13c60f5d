/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every operation demands of its parameters, in one place, so that the kernels trust theirs. Order
 * within each operation: sizes and dtypes, then "nothing to do", then arrays, then the integer tables that
 * address memory.
 */
#include "check.h"
#include "internal.h"

#include <errno.h>
#include <math.h>

#define BIT(dtype) (1u << (dtype))
#define PLAIN (BIT(KVK_BF16) | BIT(KVK_F16) | BIT(KVK_F32))

/* Checks the array `base` of `rank` dimensions (a, b, ...); then the strides of all of them but the last. */
#define ARRAY(base_, element_bytes_, rank_, dimensions, ...)                                                 \
	kvk_check_array(&(const struct kvk_array){.base = (base_),                                           \
						  .element_bytes = (element_bytes_),                         \
						  .rank = (rank_),                                           \
						  .sizes = {LIST dimensions},                                \
						  .strides = {__VA_ARGS__}})
#define LIST(...) __VA_ARGS__

/* The block table and lengths of any operation that has them, strides filled in. */
#define CHECK_PAGING(p)                                                                                      \
	kvk_check_paging(&(const struct kvk_paging){.block_table = (p)->block_table,                         \
						    .lens = (p)->lens,                                       \
						    .table_stride = (p)->table_stride,                       \
						    .batch = (p)->batch,                                     \
						    .table_width = (p)->table_width,                         \
						    .page_tokens = (p)->page_tokens,                         \
						    .pages = (p)->pages})

/* The first error among the results given. */
#define FIRST_ERROR(...)                                                                                     \
	first_error((const int[]){__VA_ARGS__}, sizeof((const int[]){__VA_ARGS__}) / sizeof(int))

static int first_error(const int *results, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (results[i])
			return results[i];
	return 0;
}

size_t kvk_dtype_bytes(uint32_t dtype)
{
	static const unsigned char bytes[] = {
		[KVK_BF16] = 2, [KVK_F16] = 2, [KVK_F32] = 4, [KVK_E4M3] = 1, [KVK_MLA_FP8] = 1};

	return dtype < sizeof(bytes) ? bytes[dtype] : 0;
}

static int at_least(int32_t value, int32_t least)
{
	return value < least ? -EINVAL : 0;
}

static int in_range(int32_t value, int32_t least, int32_t most)
{
	return value < least || value > most ? -EINVAL : 0;
}

static int check_flags(uint32_t flags, uint32_t known)
{
	return flags & ~known ? -EINVAL : 0;
}

static int check_scale(float scale)
{
	return isfinite(scale) && scale > 0 ? 0 : -EINVAL;
}

static int64_t mla_row_elements(uint32_t dtype)
{
	return dtype == KVK_MLA_FP8 ? KVK_MLA_FP8_ROW_BYTES : KVK_MLA_WIDTH;
}

/* Queries, cache and results of both MLA attentions: fields of equal name in either struct. */
#define MLA_ARRAYS(p)                                                                                        \
	ARRAY((p)->q, kvk_dtype_bytes((p)->q_dtype), 4, ((p)->batch, (p)->s_q, (p)->heads, KVK_MLA_WIDTH),   \
	      &(p)->q_stride_batch, &(p)->q_stride_query, &(p)->q_stride_head),                              \
		ARRAY((p)->kv, kvk_dtype_bytes((p)->kv_dtype), 3,                                            \
		      ((p)->pages, (p)->page_tokens, mla_row_elements((p)->kv_dtype)), &(p)->kv_stride_page, \
		      &(p)->kv_stride_token),                                                                \
		ARRAY((p)->out, kvk_dtype_bytes((p)->out_dtype), 4,                                          \
		      ((p)->batch, (p)->s_q, (p)->heads, KVK_MLA_LATENT), &(p)->out_stride_batch,            \
		      &(p)->out_stride_query, &(p)->out_stride_head),                                        \
		(p)->lse ? ARRAY((p)->lse, 4, 3, ((p)->batch, (p)->heads, (p)->s_q), &(p)->lse_stride_batch, \
				 &(p)->lse_stride_head)                                                      \
			 : 0

static int check_mla_dense_arrays(struct kvk_mla_dense_params *p)
{
	return FIRST_ERROR(MLA_ARRAYS(p),
			   ARRAY(p->block_table, 4, 2, (p->batch, p->table_width), &p->table_stride),
			   ARRAY(p->lens, 4, 1, (p->batch), NULL));
}

int kvk_shape_mla_dense(const struct kvk_mla_dense_params *params, struct kvk_mla_dense_params *p)
{
	int ret = kvk_take_params(p, sizeof(*p), params);

	if (ret)
		return ret;
	return FIRST_ERROR(kvk_check_threads(p->threads), check_flags(p->flags, KVK_CAUSAL),
			   at_least(p->batch, 0), at_least(p->s_q, 1), at_least(p->heads, 1),
			   at_least(p->page_tokens, 1), at_least(p->pages, 0), at_least(p->table_width, 0),
			   kvk_check_dtype(p->q_dtype, PLAIN),
			   kvk_check_dtype(p->kv_dtype, PLAIN | BIT(KVK_MLA_FP8)),
			   kvk_check_dtype(p->out_dtype, PLAIN), check_scale(p->scale));
}

int kvk_prepare_mla_dense(const struct kvk_mla_dense_params *params, struct kvk_mla_dense_params *p)
{
	int ret = kvk_shape_mla_dense(params, p);

	if (ret || !p->batch)
		return ret;
	ret = check_mla_dense_arrays(p);
	if (!ret)
		ret = CHECK_PAGING(p);
	return ret ? ret : 1;
}

static int check_mla_sparse_arrays(struct kvk_mla_sparse_params *p)
{
	return FIRST_ERROR(MLA_ARRAYS(p), ARRAY(p->indices, 4, 3, (p->batch, p->s_q, p->topk),
						&p->indices_stride_batch, &p->indices_stride_query));
}

int kvk_shape_mla_sparse(const struct kvk_mla_sparse_params *params, struct kvk_mla_sparse_params *p)
{
	int ret = kvk_take_params(p, sizeof(*p), params);

	if (ret)
		return ret;
	return FIRST_ERROR(kvk_check_threads(p->threads), check_flags(p->flags, 0), at_least(p->batch, 0),
			   at_least(p->s_q, 1), at_least(p->heads, 1), at_least(p->topk, 0),
			   at_least(p->page_tokens, 1), at_least(p->pages, 0),
			   kvk_check_dtype(p->q_dtype, PLAIN),
			   kvk_check_dtype(p->kv_dtype, PLAIN | BIT(KVK_MLA_FP8)),
			   kvk_check_dtype(p->out_dtype, PLAIN), check_scale(p->scale));
}

int kvk_prepare_mla_sparse(const struct kvk_mla_sparse_params *params, struct kvk_mla_sparse_params *p)
{
	int ret = kvk_shape_mla_sparse(params, p);

	if (ret || !p->batch)
		return ret;
	ret = check_mla_sparse_arrays(p);
	return ret ? ret : 1;
}

/* The rows of the sequences lie in [0, rows]. */
static int check_rows(const int32_t *cu_q, int32_t s_q, int32_t batch, int32_t rows)
{
	if (cu_q)
		return s_q ? -EINVAL : kvk_check_offsets(cu_q, batch, rows);
	return (int64_t)batch * s_q > rows ? -ERANGE : 0;
}

static int check_head_groups(int32_t heads, int32_t kv_heads)
{
	return heads < 1 || kv_heads < 1 || heads % kv_heads ? -EINVAL : 0;
}

/* Queries, caches, paging and results of dense and sparse grouped attention: fields of equal name. */
#define GQA_ARRAYS(p)                                                                                        \
	ARRAY((p)->q, kvk_dtype_bytes((p)->q_dtype), 3, ((p)->rows, (p)->heads, (p)->head_dim),              \
	      &(p)->q_stride_row, &(p)->q_stride_head),                                                      \
		ARRAY((p)->k, kvk_dtype_bytes((p)->kv_dtype), 4,                                             \
		      ((p)->pages, (p)->page_tokens, (p)->kv_heads, (p)->head_dim), &(p)->k_stride_page,     \
		      &(p)->k_stride_token, &(p)->k_stride_head),                                            \
		ARRAY((p)->v, kvk_dtype_bytes((p)->kv_dtype), 4,                                             \
		      ((p)->pages, (p)->page_tokens, (p)->kv_heads, (p)->head_dim), &(p)->v_stride_page,     \
		      &(p)->v_stride_token, &(p)->v_stride_head),                                            \
		ARRAY((p)->block_table, 4, 2, ((p)->batch, (p)->table_width), &(p)->table_stride),           \
		ARRAY((p)->lens, 4, 1, ((p)->batch), NULL),                                                  \
		ARRAY((p)->out, kvk_dtype_bytes((p)->out_dtype), 3, ((p)->rows, (p)->heads, (p)->head_dim),  \
		      &(p)->out_stride_row, &(p)->out_stride_head),                                          \
		(p)->lse ? ARRAY((p)->lse, 4, 2, ((p)->rows, (p)->heads), &(p)->lse_stride_row) : 0

static int check_gqa_dense_arrays(struct kvk_gqa_dense_params *p)
{
	return FIRST_ERROR(GQA_ARRAYS(p));
}

int kvk_shape_gqa_dense(const struct kvk_gqa_dense_params *params, struct kvk_gqa_dense_params *p)
{
	int ret = kvk_take_params(p, sizeof(*p), params);

	if (ret)
		return ret;
	return FIRST_ERROR(
		kvk_check_threads(p->threads), check_flags(p->flags, KVK_CAUSAL), at_least(p->batch, 0),
		at_least(p->s_q, 0), at_least(p->rows, 0), check_head_groups(p->heads, p->kv_heads),
		in_range(p->head_dim, 1, KVK_MAX_HEAD_DIM), at_least(p->page_tokens, 1),
		at_least(p->pages, 0), at_least(p->table_width, 0), kvk_check_dtype(p->q_dtype, PLAIN),
		kvk_check_dtype(p->kv_dtype, PLAIN), kvk_check_dtype(p->out_dtype, PLAIN),
		check_scale(p->scale), p->reserved ? -EINVAL : 0);
}

int kvk_prepare_gqa_dense(const struct kvk_gqa_dense_params *params, struct kvk_gqa_dense_params *p)
{
	int ret = kvk_shape_gqa_dense(params, p);

	if (ret || !p->rows)
		return ret;
	ret = check_gqa_dense_arrays(p);
	if (!ret)
		ret = FIRST_ERROR(check_rows(p->cu_q, p->s_q, p->batch, p->rows), CHECK_PAGING(p));
	return ret ? ret : 1;
}

/* The score array must have a column for every block that some query sees. */
static int check_score_width(const struct kvk_msa_scores_params *p)
{
	for (int32_t i = 0; i < p->batch; i++)
		if (p->lens[i] > 0 && (p->lens[i] - 1) / p->block_tokens >= p->blocks)
			return -ERANGE;
	return 0;
}

static int check_msa_scores_arrays(struct kvk_msa_scores_params *p)
{
	return FIRST_ERROR(ARRAY(p->index_q, kvk_dtype_bytes(p->q_dtype), 3,
				 (p->rows, p->index_heads, p->dim), &p->q_stride_row, &p->q_stride_head),
			   ARRAY(p->index_k, kvk_dtype_bytes(p->k_dtype), 3,
				 (p->pages, p->page_tokens, p->dim), &p->k_stride_page, &p->k_stride_token),
			   ARRAY(p->block_table, 4, 2, (p->batch, p->table_width), &p->table_stride),
			   ARRAY(p->lens, 4, 1, (p->batch), NULL),
			   ARRAY(p->score, 4, 3, (p->index_heads, p->rows, p->blocks), &p->score_stride_head,
				 &p->score_stride_row));
}

static int check_msa_scores_tables(const struct kvk_msa_scores_params *p)
{

	return FIRST_ERROR(check_rows(p->cu_q, p->s_q, p->batch, p->rows), CHECK_PAGING(p),
			   check_score_width(p));
}

int kvk_shape_msa_scores(const struct kvk_msa_scores_params *params, struct kvk_msa_scores_params *p)
{
	int ret = kvk_take_params(p, sizeof(*p), params);

	if (ret)
		return ret;
	return FIRST_ERROR(kvk_check_threads(p->threads), check_flags(p->flags, 0), at_least(p->batch, 0),
			   at_least(p->s_q, 0), at_least(p->rows, 0), at_least(p->index_heads, 1),
			   in_range(p->dim, 1, KVK_MAX_HEAD_DIM), at_least(p->block_tokens, 1),
			   at_least(p->blocks, 0), at_least(p->page_tokens, 1), at_least(p->pages, 0),
			   at_least(p->table_width, 0), kvk_check_dtype(p->q_dtype, PLAIN | BIT(KVK_E4M3)),
			   kvk_check_dtype(p->k_dtype, PLAIN | BIT(KVK_E4M3)));
}

int kvk_prepare_msa_scores(const struct kvk_msa_scores_params *params, struct kvk_msa_scores_params *p)
{
	int ret = kvk_shape_msa_scores(params, p);

	if (ret || !p->rows)
		return ret;
	ret = check_msa_scores_arrays(p);
	if (!ret)
		ret = check_msa_scores_tables(p);
	return ret ? ret : 1;
}

int kvk_prepare_msa_select(const struct kvk_msa_select_params *params, struct kvk_msa_select_params *p)
{
	int ret = kvk_take_params(p, sizeof(*p), params);

	if (ret)
		return ret;
	ret = FIRST_ERROR(kvk_check_threads(p->threads), check_flags(p->flags, 0), at_least(p->heads, 1),
			  at_least(p->rows, 0), at_least(p->blocks, 0), at_least(p->topk, 1),
			  at_least(p->init_blocks, 0), at_least(p->local_blocks, 0));
	if (ret || !p->rows)
		return ret;
	ret = FIRST_ERROR(ARRAY(p->score, 4, 3, (p->heads, p->rows, p->blocks), &p->score_stride_head,
				&p->score_stride_row),
			  ARRAY(p->n_valid, 4, 1, (p->rows), NULL),
			  ARRAY(p->selected, 4, 3, (p->heads, p->rows, p->topk), &p->selected_stride_head,
				&p->selected_stride_row));
	return ret ? ret : 1;
}

static int check_msa_sparse_arrays(struct kvk_msa_sparse_params *p)
{
	return FIRST_ERROR(GQA_ARRAYS(p), ARRAY(p->selected, 4, 3, (p->kv_heads, p->rows, p->topk),
						&p->selected_stride_head, &p->selected_stride_row));
}

int kvk_shape_msa_sparse(const struct kvk_msa_sparse_params *params, struct kvk_msa_sparse_params *p)
{
	int ret = kvk_take_params(p, sizeof(*p), params);

	if (ret)
		return ret;
	return FIRST_ERROR(kvk_check_threads(p->threads), check_flags(p->flags, 0), at_least(p->batch, 0),
			   at_least(p->s_q, 0), at_least(p->rows, 0),
			   check_head_groups(p->heads, p->kv_heads),
			   in_range(p->head_dim, 1, KVK_MAX_HEAD_DIM), at_least(p->block_tokens, 1),
			   at_least(p->topk, 0), at_least(p->page_tokens, 1), at_least(p->pages, 0),
			   at_least(p->table_width, 0), kvk_check_dtype(p->q_dtype, PLAIN),
			   kvk_check_dtype(p->kv_dtype, PLAIN), kvk_check_dtype(p->out_dtype, PLAIN),
			   check_scale(p->scale), p->reserved ? -EINVAL : 0);
}

int kvk_prepare_msa_sparse(const struct kvk_msa_sparse_params *params, struct kvk_msa_sparse_params *p)
{
	int ret = kvk_shape_msa_sparse(params, p);

	if (ret || !p->rows)
		return ret;
	ret = check_msa_sparse_arrays(p);
	if (!ret)
		ret = FIRST_ERROR(check_rows(p->cu_q, p->s_q, p->batch, p->rows), CHECK_PAGING(p));
	return ret ? ret : 1;
}

static int check_slot_bytes(uint32_t slot_bytes)
{
	return slot_bytes == 4 || slot_bytes == 8 ? 0 : -EINVAL;
}

int kvk_prepare_mla_write(const struct kvk_mla_write_params *params, struct kvk_mla_write_params *p)
{
	int ret = kvk_take_params(p, sizeof(*p), params);

	if (ret)
		return ret;
	ret = FIRST_ERROR(kvk_check_threads(p->threads), check_flags(p->flags, 0), at_least(p->tokens, 0),
			  at_least(p->page_tokens, 1), at_least(p->pages, 0), check_slot_bytes(p->slot_bytes),
			  kvk_check_dtype(p->src_dtype, PLAIN),
			  kvk_check_dtype(p->kv_dtype, PLAIN | BIT(KVK_MLA_FP8)));
	if (ret || !p->tokens)
		return ret;
	ret = FIRST_ERROR(
		ARRAY(p->latent, kvk_dtype_bytes(p->src_dtype), 2, (p->tokens, KVK_MLA_LATENT),
		      &p->latent_stride),
		ARRAY(p->rope, kvk_dtype_bytes(p->src_dtype), 2, (p->tokens, KVK_MLA_ROPE), &p->rope_stride),
		ARRAY(p->slots, p->slot_bytes, 1, (p->tokens), NULL),
		ARRAY(p->kv, kvk_dtype_bytes(p->kv_dtype), 3,
		      (p->pages, p->page_tokens, mla_row_elements(p->kv_dtype)), &p->kv_stride_page,
		      &p->kv_stride_token));
	if (!ret)
		ret = kvk_check_slots(p->slots, p->slot_bytes, p->tokens, (int64_t)p->pages * p->page_tokens);
	return ret ? ret : 1;
}

static int check_value_lane(struct kvk_kv_write_params *p)
{
	if (!p->v && !p->v_cache)
		return 0;
	return FIRST_ERROR(ARRAY(p->v, kvk_dtype_bytes(p->src_dtype), 3, (p->tokens, p->heads, p->head_dim),
				 &p->v_stride_token, &p->v_stride_head),
			   ARRAY(p->v_cache, kvk_dtype_bytes(p->cache_dtype), 4,
				 (p->pages, p->page_tokens, p->heads, p->head_dim), &p->v_cache_stride_page,
				 &p->v_cache_stride_token, &p->v_cache_stride_head));
}

int kvk_prepare_kv_write(const struct kvk_kv_write_params *params, struct kvk_kv_write_params *p)
{
	int ret = kvk_take_params(p, sizeof(*p), params);

	if (ret)
		return ret;
	ret = FIRST_ERROR(kvk_check_threads(p->threads), check_flags(p->flags, 0), at_least(p->tokens, 0),
			  at_least(p->heads, 1), at_least(p->head_dim, 1), at_least(p->page_tokens, 1),
			  at_least(p->pages, 0), check_slot_bytes(p->slot_bytes),
			  kvk_check_dtype(p->src_dtype, PLAIN),
			  kvk_check_dtype(p->cache_dtype, PLAIN | BIT(KVK_E4M3)));
	if (ret || !p->tokens)
		return ret;
	ret = FIRST_ERROR(ARRAY(p->k, kvk_dtype_bytes(p->src_dtype), 3, (p->tokens, p->heads, p->head_dim),
				&p->k_stride_token, &p->k_stride_head),
			  ARRAY(p->k_cache, kvk_dtype_bytes(p->cache_dtype), 4,
				(p->pages, p->page_tokens, p->heads, p->head_dim), &p->k_cache_stride_page,
				&p->k_cache_stride_token, &p->k_cache_stride_head),
			  check_value_lane(p), ARRAY(p->slots, p->slot_bytes, 1, (p->tokens), NULL));
	if (!ret)
		ret = kvk_check_slots(p->slots, p->slot_bytes, p->tokens, (int64_t)p->pages * p->page_tokens);
	return ret ? ret : 1;
}

int kvk_prepare_combine(const struct kvk_combine_params *params, struct kvk_combine_params *p)
{
	int64_t partial_stride[3] = {0};
	int64_t lse_stride[2] = {0};
	int ret = kvk_take_params(p, sizeof(*p), params);

	if (ret)
		return ret;
	ret = FIRST_ERROR(kvk_check_threads(p->threads), check_flags(p->flags, 0), at_least(p->batch, 0),
			  at_least(p->s_q, 1), at_least(p->heads, 1), in_range(p->dim, 1, KVK_MAX_HEAD_DIM),
			  at_least(p->partials, 0), kvk_check_dtype(p->out_dtype, PLAIN));
	if (ret || !p->batch)
		return ret;
	ret = FIRST_ERROR(
		ARRAY(p->partial_out, 4, 4, (p->partials, p->s_q, p->heads, p->dim), &partial_stride[0],
		      &partial_stride[1], &partial_stride[2]),
		ARRAY(p->partial_lse, 4, 3, (p->partials, p->s_q, p->heads), &lse_stride[0], &lse_stride[1]),
		ARRAY(p->num_splits, 4, 1, ((int64_t)p->batch + 1), NULL),
		ARRAY(p->out, kvk_dtype_bytes(p->out_dtype), 4, (p->batch, p->s_q, p->heads, p->dim),
		      &p->out_stride_batch, &p->out_stride_query, &p->out_stride_head),
		p->lse ? ARRAY(p->lse, 4, 3, (p->batch, p->heads, p->s_q), &p->lse_stride_batch,
			       &p->lse_stride_head)
		       : 0);
	if (!ret)
		ret = kvk_check_offsets(p->num_splits, p->batch, p->partials);
	return ret ? ret : 1;
}

int kvk_prepare_mla_plan(const struct kvk_mla_plan_params *params, struct kvk_mla_plan_params *p)
{
	int ret = kvk_take_params(p, sizeof(*p), params);

	if (ret)
		return ret;
	ret = FIRST_ERROR(check_flags(p->flags, 0), at_least(p->batch, 0), at_least(p->parts, 1),
			  at_least(p->block_tokens, 1), at_least(p->overhead, 0));
	if (ret || !p->batch)
		return ret;
	ret = FIRST_ERROR(ARRAY(p->lens, 4, 1, (p->batch), NULL),
			  ARRAY(p->plan, sizeof(*p->plan), 1, (p->parts), NULL),
			  ARRAY(p->num_splits, 4, 1, ((int64_t)p->batch + 1), NULL));
	return ret ? ret : 1;
}
