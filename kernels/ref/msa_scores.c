/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The specification of kvk_msa_scores(): the largest product of each block, over the keys the query may see.
 */
#include "ref.h"

/* Keys [begin, end) of one table row against one query. A NaN product stays, whatever follows it. */
static double block_score(const struct kvk_msa_scores_params *p, const int32_t *table, const double *query,
			  int32_t begin, int32_t end)
{
	double key[KVK_MAX_HEAD_DIM];
	double best = -INFINITY;

	for (int32_t j = begin; j < end; j++) {
		double product;

		kvk_ref_row(key, p->index_k, p->k_dtype,
			    kvk_ref_token(table, p->page_tokens, p->k_stride_page, p->k_stride_token, j),
			    p->dim);
		product = kvk_ref_dot(query, key, p->dim);
		if (isnan(product))
			return product;
		if (product > best)
			best = product;
	}
	return best;
}

static void score_row(const struct kvk_msa_scores_params *p, const int32_t *table, int32_t row, int32_t h,
		      int32_t visible)
{
	float *score = p->score + h * p->score_stride_head + row * p->score_stride_row;
	double query[KVK_MAX_HEAD_DIM];

	kvk_ref_row(query, p->index_q, p->q_dtype, row * p->q_stride_row + h * p->q_stride_head, p->dim);
	for (int32_t block = 0; block < p->blocks; block++) {
		int64_t begin = (int64_t)block * p->block_tokens;
		int64_t end = begin + p->block_tokens;

		score[block] = -INFINITY;
		if (begin < visible)
			score[block] = (float)block_score(p, table, query, (int32_t)begin,
							  (int32_t)(end < visible ? end : visible));
	}
}

static void score_query(const void *op, int32_t sequence, int32_t row, int32_t visible)
{
	const struct kvk_msa_scores_params *p = op;
	const int32_t *table = sequence < 0 ? NULL : p->block_table + sequence * p->table_stride;

	for (int32_t h = 0; h < p->index_heads; h++)
		score_row(p, table, row, h, visible);
	if (p->n_valid)
		p->n_valid[row] = visible ? (visible - 1) / p->block_tokens + 1 : 0;
}

int kvk_msa_scores_ref(const struct kvk_msa_scores_params *params)
{
	struct kvk_msa_scores_params p;
	int ret = kvk_prepare_msa_scores(params, &p);

	if (ret <= 0)
		return ret;
	kvk_ref_each_row(&(const struct kvk_ref_rows){.op = &p,
						      .cu_q = p.cu_q,
						      .lens = p.lens,
						      .s_q = p.s_q,
						      .batch = p.batch,
						      .rows = p.rows,
						      .causal = 1,
						      .visit = score_query});
	return 0;
}
