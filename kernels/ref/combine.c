/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The specification of kvk_combine(). An empty partial (lse -INF) is skipped before any arithmetic with it.
 */
#include "ref.h"

/* The partials of one (sequence, query, head). */
struct group {
	const float *lse;
	const float *out;
	int64_t lse_step; /* from one partial to the next */
	int64_t out_step;
	int32_t count;
};

/* log2 of the sum of 2^lse; -INF when all are empty. */
static double log2_sum(const struct group *group)
{
	double max = -INFINITY;
	double sum = 0;

	for (int32_t n = 0; n < group->count; n++)
		if (group->lse[n * group->lse_step] > max)
			max = group->lse[n * group->lse_step];
	if (max == -INFINITY)
		return max;
	for (int32_t n = 0; n < group->count; n++)
		sum += exp2(group->lse[n * group->lse_step] - max);
	return log2(sum) + max;
}

/* Sum of the partial rows, each weighing 2^(its lse - total). */
static void weighted_rows(const struct group *group, double total, int32_t dim, double *row)
{
	for (int32_t d = 0; d < dim; d++)
		row[d] = 0;
	for (int32_t n = 0; n < group->count; n++) {
		double weight = exp2(group->lse[n * group->lse_step] - total);

		if (group->lse[n * group->lse_step] == -INFINITY)
			continue;
		for (int32_t d = 0; d < dim; d++)
			row[d] += weight * group->out[n * group->out_step + d];
	}
}

static void merge(const struct kvk_combine_params *p, int32_t b, int32_t i, int32_t h)
{
	const int64_t first = ((int64_t)p->num_splits[b] * p->s_q + i) * p->heads + h;
	const struct group group = {.lse = p->partial_lse + first,
				    .out = p->partial_out + first * p->dim,
				    .lse_step = (int64_t)p->s_q * p->heads,
				    .out_step = (int64_t)p->s_q * p->heads * p->dim,
				    .count = p->num_splits[b + 1] - p->num_splits[b]};
	const int64_t to = b * p->out_stride_batch + i * p->out_stride_query + h * p->out_stride_head;
	const double total = log2_sum(&group);
	const double lse = total == -INFINITY ? INFINITY : total * log(2);
	double row[KVK_MAX_HEAD_DIM];
	double keep = 1; /* what the sink leaves */

	if (p->sink)
		keep = 1 / (1 + exp((double)p->sink[h] - lse));
	weighted_rows(&group, total, p->dim, row);
	for (int32_t d = 0; d < p->dim; d++)
		kvk_store(p->out, p->out_dtype, to + d, (float)(total == -INFINITY ? 0 : row[d] * keep));
	if (p->lse)
		p->lse[b * p->lse_stride_batch + h * p->lse_stride_head + i] = (float)lse;
}

int kvk_combine_ref(const struct kvk_combine_params *params)
{
	struct kvk_combine_params p;
	int ret = kvk_prepare_combine(params, &p);

	if (ret <= 0)
		return ret;
	for (int32_t b = 0; b < p.batch; b++)
		for (int32_t i = 0; p.num_splits[b + 1] - p.num_splits[b] > 1 && i < p.s_q; i++)
			for (int32_t h = 0; h < p.heads; h++)
				merge(&p, b, i, h);
	return 0;
}
