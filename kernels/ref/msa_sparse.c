/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The specification of kvk_msa_sparse(): the selection is a set of logical blocks, read in the order given.
 */
#include "ref.h"

/* Where one query head reads. */
struct view {
	const int32_t *table;
	int32_t g; /* KV head */
	int32_t visible;
};

static void add_block(const struct kvk_msa_sparse_params *p, const struct view *view, const double *query,
		      int32_t block, struct kvk_ref_softmax *softmax)
{
	const int64_t begin = (int64_t)block * p->block_tokens;
	const int64_t end = begin + p->block_tokens < view->visible ? begin + p->block_tokens : view->visible;
	double key[KVK_MAX_HEAD_DIM];
	double value[KVK_MAX_HEAD_DIM];

	for (int64_t j = begin; j < end; j++) {
		int64_t k = kvk_ref_token(view->table, p->page_tokens, p->k_stride_page, p->k_stride_token,
					  (int32_t)j);
		int64_t v = kvk_ref_token(view->table, p->page_tokens, p->v_stride_page, p->v_stride_token,
					  (int32_t)j);

		kvk_ref_row(key, p->k, p->kv_dtype, k + view->g * p->k_stride_head, p->head_dim);
		kvk_ref_row(value, p->v, p->kv_dtype, v + view->g * p->v_stride_head, p->head_dim);
		kvk_ref_softmax_add(softmax, p->scale * kvk_ref_dot(query, key, p->head_dim), value);
	}
}

static int listed_before(const int32_t *ids, int32_t n)
{
	for (int32_t i = 0; i < n; i++)
		if (ids[i] == ids[n])
			return 1;
	return 0;
}

static void attend(const struct kvk_msa_sparse_params *p, const int32_t *table, int32_t row, int32_t h,
		   int32_t visible)
{
	const struct view view = {.table = table, .g = h / (p->heads / p->kv_heads), .visible = visible};
	const int32_t *ids = p->selected + view.g * p->selected_stride_head + row * p->selected_stride_row;
	struct kvk_ref_softmax softmax;
	double query[KVK_MAX_HEAD_DIM];

	kvk_ref_row(query, p->q, p->q_dtype, row * p->q_stride_row + h * p->q_stride_head, p->head_dim);
	kvk_ref_softmax_begin(&softmax, p->head_dim);
	for (int32_t n = 0; n < p->topk; n++)
		if (ids[n] >= 0 && !listed_before(ids, n))
			add_block(p, &view, query, ids[n], &softmax);
	kvk_ref_softmax_store(&softmax, NULL, p->out, p->out_dtype,
			      row * p->out_stride_row + h * p->out_stride_head);
	if (p->lse)
		p->lse[row * p->lse_stride_row + h] = (float)kvk_ref_softmax_lse(&softmax);
}

/* A padding row has no table, and no key whose page would be looked up in it. */
static void attend_row(const void *op, int32_t sequence, int32_t row, int32_t visible)
{
	const struct kvk_msa_sparse_params *p = op;
	const int32_t *table = sequence < 0 ? NULL : p->block_table + sequence * p->table_stride;

	for (int32_t h = 0; h < p->heads; h++)
		attend(p, table, row, h, visible);
}

int kvk_msa_sparse_ref(const struct kvk_msa_sparse_params *params)
{
	struct kvk_msa_sparse_params p;
	int ret = kvk_prepare_msa_sparse(params, &p);

	if (ret <= 0)
		return ret;
	kvk_ref_each_row(&(const struct kvk_ref_rows){.op = &p,
						      .cu_q = p.cu_q,
						      .lens = p.lens,
						      .s_q = p.s_q,
						      .batch = p.batch,
						      .rows = p.rows,
						      .causal = 1,
						      .visit = attend_row});
	return 0;
}
