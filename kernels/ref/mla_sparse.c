/* SPDX-License-Identifier: Apache-2.0 */
/* The specification of kvk_mla_sparse(): the listed slots, one by one; a slot listed twice counts twice. */
#include "ref.h"

static int32_t list_length(const struct kvk_mla_sparse_params *p, int32_t b)
{
	int32_t length = p->topk_length ? p->topk_length[b] : p->topk;

	return length < p->topk ? length : p->topk;
}

static void attend(const struct kvk_mla_sparse_params *p, int32_t b, int32_t i, int32_t h)
{
	const int32_t *slots = p->indices + b * p->indices_stride_batch + i * p->indices_stride_query;
	const int64_t slot_count = (int64_t)p->pages * p->page_tokens;
	struct kvk_ref_softmax softmax;
	double query[KVK_MLA_WIDTH];
	double key[KVK_MLA_WIDTH];

	kvk_ref_row(query, p->q, p->q_dtype,
		    b * p->q_stride_batch + i * p->q_stride_query + h * p->q_stride_head, KVK_MLA_WIDTH);
	kvk_ref_softmax_begin(&softmax, KVK_MLA_LATENT);
	for (int32_t n = 0; n < list_length(p, b); n++) {
		if (slots[n] < 0 || slots[n] >= slot_count)
			continue;
		kvk_ref_mla_row(key, p->kv, p->kv_dtype,
				slots[n] / p->page_tokens * p->kv_stride_page +
					slots[n] % p->page_tokens * p->kv_stride_token);
		kvk_ref_softmax_add(&softmax, p->scale * kvk_ref_dot(query, key, KVK_MLA_WIDTH), key);
	}
	kvk_ref_softmax_store(&softmax, p->sink ? p->sink + h : NULL, p->out, p->out_dtype,
			      b * p->out_stride_batch + i * p->out_stride_query + h * p->out_stride_head);
	if (p->lse)
		p->lse[b * p->lse_stride_batch + h * p->lse_stride_head + i] =
			(float)kvk_ref_softmax_lse(&softmax);
}

int kvk_mla_sparse_ref(const struct kvk_mla_sparse_params *params)
{
	struct kvk_mla_sparse_params p;
	int ret = kvk_prepare_mla_sparse(params, &p);

	if (ret <= 0)
		return ret;
	for (int32_t b = 0; b < p.batch; b++)
		for (int32_t i = 0; i < p.s_q; i++)
			for (int32_t h = 0; h < p.heads; h++)
				attend(&p, b, i, h);
	return 0;
}
