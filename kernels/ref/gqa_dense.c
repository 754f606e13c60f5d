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

static void attend_sequence(const struct kvk_gqa_dense_params *p, int32_t r)
{
	const int32_t *table = p->block_table + r * p->table_stride;
	const int32_t first = kvk_first_row(p->cu_q, p->s_q, r);
	const int32_t count = kvk_first_row(p->cu_q, p->s_q, r + 1) - first;

	for (int32_t i = 0; i < count; i++)
		for (int32_t h = 0; h < p->heads; h++)
			attend(p, table, first + i, h,
			       kvk_visible(p->lens[r], count, i, (p->flags & KVK_CAUSAL) != 0));
}

static void empty_rows(const struct kvk_gqa_dense_params *p, int32_t begin, int32_t end)
{
	for (int32_t row = begin; row < end; row++)
		for (int32_t h = 0; h < p->heads; h++)
			attend(p, NULL, row, h, 0);
}

int kvk_gqa_dense_ref(const struct kvk_gqa_dense_params *params)
{
	struct kvk_gqa_dense_params p;
	int ret = kvk_prepare_gqa_dense(params, &p);

	if (ret <= 0)
		return ret;
	empty_rows(&p, 0, kvk_first_row(p.cu_q, p.s_q, 0));
	for (int32_t r = 0; r < p.batch; r++)
		attend_sequence(&p, r);
	empty_rows(&p, kvk_first_row(p.cu_q, p.s_q, p.batch), p.rows);
	return 0;
}
