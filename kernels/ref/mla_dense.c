/* SPDX-License-Identifier: Apache-2.0 */
/* The specification of kvk_mla_dense(): every head of every query by itself, key by key. */
#include "ref.h"

#define SIDE 4 /* heads side by side, for which a key is converted once */

struct head {
	double query[KVK_MLA_WIDTH];
	struct kvk_ref_softmax softmax;
};

static void begin(const struct kvk_mla_dense_params *p, int32_t b, int32_t i, int32_t h, struct head *head)
{
	kvk_ref_row(head->query, p->q, p->q_dtype,
		    b * p->q_stride_batch + i * p->q_stride_query + h * p->q_stride_head, KVK_MLA_WIDTH);
	kvk_ref_softmax_begin(&head->softmax, KVK_MLA_LATENT);
}

static void end(const struct kvk_mla_dense_params *p, int32_t b, int32_t i, int32_t h,
		const struct head *head)
{
	kvk_ref_softmax_store(&head->softmax, p->sink ? p->sink + h : NULL, p->out, p->out_dtype,
			      b * p->out_stride_batch + i * p->out_stride_query + h * p->out_stride_head);
	if (p->lse)
		p->lse[b * p->lse_stride_batch + h * p->lse_stride_head + i] =
			(float)kvk_ref_softmax_lse(&head->softmax);
}

/* Query `i` of sequence `b`, `count` heads from `h` on, over its first `visible` keys. */
static void attend(const struct kvk_mla_dense_params *p, int32_t b, int32_t i, int32_t h, int32_t count,
		   int32_t visible)
{
	const int32_t *table = p->block_table + b * p->table_stride;
	struct head heads[SIDE];
	double key[KVK_MLA_WIDTH];

	for (int32_t n = 0; n < count; n++)
		begin(p, b, i, h + n, &heads[n]);
	for (int32_t j = 0; j < visible; j++) {
		kvk_ref_mla_row(
			key, p->kv, p->kv_dtype,
			kvk_ref_token(table, p->page_tokens, p->kv_stride_page, p->kv_stride_token, j));
		for (int32_t n = 0; n < count; n++)
			kvk_ref_softmax_add(&heads[n].softmax,
					    p->scale * kvk_ref_dot(heads[n].query, key, KVK_MLA_WIDTH), key);
	}
	for (int32_t n = 0; n < count; n++)
		end(p, b, i, h + n, &heads[n]);
}

int kvk_mla_dense_ref(const struct kvk_mla_dense_params *params)
{
	struct kvk_mla_dense_params p;
	int ret = kvk_prepare_mla_dense(params, &p);

	if (ret <= 0)
		return ret;
	for (int32_t b = 0; b < p.batch; b++)
		for (int32_t i = 0; i < p.s_q; i++)
			for (int32_t h = 0; h < p.heads; h += SIDE)
				attend(&p, b, i, h, p.heads - h < SIDE ? p.heads - h : SIDE,
				       kvk_visible(p.lens[b], p.s_q, i, (p.flags & KVK_CAUSAL) != 0));
	return 0;
}
