/* SPDX-License-Identifier: Apache-2.0 */
/* The specification of kvk_gqa_dense(). */
#include "ref.h"

/* Query row `row`, head `h`, over the first `visible` keys of the table row. */
static void attend(const struct kvk_gqa_dense_params *p, const int32_t *table, int32_t row, int32_t h,
		   int32_t visible)
{
	const int32_t g = h / (p->heads / p->kv_heads);
	struct kvk_ref_softmax softmax;
	double query[KVK_MAX_HEAD_DIM];
	double key[KVK_MAX_HEAD_DIM];
	double value[KVK_MAX_HEAD_DIM];

	kvk_ref_row(query, p->q, p->q_dtype, row * p->q_stride_row + h * p->q_stride_head, p->head_dim);
	kvk_ref_softmax_begin(&softmax, p->head_dim);
	for (int32_t j = 0; j < visible; j++) {
		kvk_ref_row(key, p->k, p->kv_dtype,
			    kvk_ref_token(table, p->page_tokens, p->k_stride_page, p->k_stride_token, j) +
				    g * p->k_stride_head,
			    p->head_dim);
		kvk_ref_row(value, p->v, p->kv_dtype,
			    kvk_ref_token(table, p->page_tokens, p->v_stride_page, p->v_stride_token, j) +
				    g * p->v_stride_head,
			    p->head_dim);
		kvk_ref_softmax_add(&softmax, p->scale * kvk_ref_dot(query, key, p->head_dim), value);
	}
	kvk_ref_softmax_store(&softmax, NULL, p->out, p->out_dtype,
			      row * p->out_stride_row + h * p->out_stride_head);
	if (p->lse)
		p->lse[row * p->lse_stride_row + h] = (float)kvk_ref_softmax_lse(&softmax);
}

/* A padding row has no table, and no key whose page would be looked up in it. */
static void attend_row(const void *op, int32_t sequence, int32_t row, int32_t visible)
{
	const struct kvk_gqa_dense_params *p = op;
	const int32_t *table = sequence < 0 ? NULL : p->block_table + sequence * p->table_stride;

	for (int32_t h = 0; h < p->heads; h++)
		attend(p, table, row, h, visible);
}

int kvk_gqa_dense_ref(const struct kvk_gqa_dense_params *params)
{
	struct kvk_gqa_dense_params p;
	int ret = kvk_prepare_gqa_dense(params, &p);

	if (ret <= 0)
		return ret;
	kvk_ref_each_row(&(const struct kvk_ref_rows){.op = &p,
						      .cu_q = p.cu_q,
						      .lens = p.lens,
						      .s_q = p.s_q,
						      .batch = p.batch,
						      .rows = p.rows,
						      .causal = (p.flags & KVK_CAUSAL) != 0,
						      .visit = attend_row});
	return 0;
}
