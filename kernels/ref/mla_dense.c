/* SPDX-License-Identifier: Apache-2.0 */
/* The specification of kvk_mla_dense(): every head of every query by itself, key by key. */
#include "ref.h"

/* Query `i` of sequence `b`, head `h`, over its first `visible` keys. */
static void attend(const struct kvk_mla_dense_params *p, int32_t b, int32_t i, int32_t h, int32_t visible)
{
	const int32_t *table = p->block_table + b * p->table_stride;
	struct kvk_ref_softmax softmax;
	double query[KVK_MLA_WIDTH];
	double key[KVK_MLA_WIDTH];

	kvk_ref_row(query, p->q, p->q_dtype,
		    b * p->q_stride_batch + i * p->q_stride_query + h * p->q_stride_head, KVK_MLA_WIDTH);
	kvk_ref_softmax_begin(&softmax, KVK_MLA_LATENT);
	for (int32_t j = 0; j < visible; j++) {
		kvk_ref_mla_row(
			key, p->kv, p->kv_dtype,
			kvk_ref_token(table, p->page_tokens, p->kv_stride_page, p->kv_stride_token, j));
		kvk_ref_softmax_add(&softmax, p->scale * kvk_ref_dot(query, key, KVK_MLA_WIDTH), key);
	}
	kvk_ref_softmax_store(&softmax, p->sink ? p->sink + h : NULL, p->out, p->out_dtype,
			      b * p->out_stride_batch + i * p->out_stride_query + h * p->out_stride_head);
	if (p->lse)
		p->lse[b * p->lse_stride_batch + h * p->lse_stride_head + i] =
			(float)kvk_ref_softmax_lse(&softmax);
}

int kvk_mla_dense_ref(const struct kvk_mla_dense_params *params)
{
	struct kvk_mla_dense_params p;
	int ret = kvk_prepare_mla_dense(params, &p);

	if (ret <= 0)
		return ret;
	for (int32_t b = 0; b < p.batch; b++)
		for (int32_t i = 0; i < p.s_q; i++)
			for (int32_t h = 0; h < p.heads; h++)
				attend(&p, b, i, h,
				       kvk_visible(p.lens[b], p.s_q, i, (p.flags & KVK_CAUSAL) != 0));
	return 0;
}
