/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of a step: where they are split, and the lengths of their two flavours. */
#include "prep.h"

#include "../check.h"

#include <errno.h>

int kvk_prep_plan_split(const int32_t *qo_lens, int32_t batch, int32_t threshold, int32_t *out_split)
{
	int32_t split = 0;

	if (batch < 0 || !out_split || (batch && !qo_lens))
		return -EINVAL;
	while (split < batch && qo_lens[split] <= threshold)
		split++;
	*out_split = split == batch ? 0 : split;
	return 0;
}

/* ------------------------------------------------------------------ expansion */

static int check_expand(const struct kvk_prep_expand_params *p)
{
	int ret = kvk_prep_flags(p->fault, p->flags, 0);

	ret = ret ? ret : kvk_prep_at_least(p->fault, "batch", p->batch, 0);
	ret = ret ? ret : kvk_prep_at_least(p->fault, "page_tokens", p->page_tokens, 1);
	ret = ret ? ret : kvk_prep_at_least(p->fault, "room", p->room, 0);
	if (!ret && p->reserved)
		ret = kvk_prep_refuse(p->fault, -EINVAL, "reserved", -1, p->reserved, 0);
	return ret ? ret : kvk_prep_given(p->fault, "out_page_indptr", p->out_page_indptr);
}

/* The pages of all requests and the last offset of each fit their arrays. */
static int check_expand_values(const struct kvk_prep_expand_params *p)
{
	int64_t pages = 0;

	for (int32_t r = 0; r < p->batch; r++) {
		int64_t last = (int64_t)p->qo_offset[r] + p->qo_lens[r] - 1;

		if (last > INT32_MAX)
			return kvk_prep_refuse(p->fault, -EOVERFLOW, "qo_offset", r, last, INT32_MAX);
		pages += kvk_prep_pages(p->kv_lens[r], p->page_tokens);
	}
	if (pages > INT32_MAX)
		return kvk_prep_refuse(p->fault, -EOVERFLOW, "kv_lens", -1, pages, INT32_MAX);
	return 0;
}

static int check_expand_arrays(const struct kvk_prep_expand_params *p, int32_t *out_rows)
{
	int ret = kvk_prep_given(p->fault, "qo_lens", p->qo_lens);

	ret = ret ? ret : kvk_prep_given(p->fault, "kv_lens", p->kv_lens);
	ret = ret ? ret : kvk_prep_given(p->fault, "qo_offset", p->qo_offset);
	if (!ret)
		ret = kvk_prep_sum(p->fault, "qo_lens", p->qo_lens, p->batch, "room", p->room, out_rows);
	if (!ret && *out_rows)
		ret = kvk_prep_given(p->fault, "out_kv_lens", p->out_kv_lens);
	if (!ret && *out_rows)
		ret = kvk_prep_given(p->fault, "out_qo_offset", p->out_qo_offset);
	return ret ? ret : check_expand_values(p);
}

static void expand(const struct kvk_prep_ops *ops, const struct kvk_prep_expand_params *p)
{
	int32_t pages = 0;
	int64_t at = 0;

	for (int32_t r = 0; r < p->batch; r++) {
		int32_t count = p->qo_lens[r];

		if (count) {
			ops->fill(p->out_kv_lens + at, p->kv_lens[r], count);
			ops->count_up32(p->out_qo_offset + at, p->qo_offset[r], count);
			ops->fill(p->out_page_indptr + at, pages, count);
		}
		if (count && p->out_qo_lens)
			ops->fill(p->out_qo_lens + at, 1, count);
		at += count;
		pages += kvk_prep_pages(p->kv_lens[r], p->page_tokens);
	}
	p->out_page_indptr[at] = pages;
}

int kvk_prep_plan_expand(const struct kvk_prep_expand_params *params)
{
	struct kvk_prep_expand_params p;
	int32_t rows = 0;
	int ret = kvk_take_params(&p, sizeof(p), params);

	if (ret)
		return ret;
	ret = check_expand(&p);
	if (!ret && p.batch)
		ret = check_expand_arrays(&p, &rows);
	if (ret)
		return ret;
	expand(kvk_prep_ops(), &p);
	if (p.out_rows)
		*p.out_rows = rows;
	return 0;
}

/* ------------------------------------------------------------------ lengths */

static int check_lengths(const struct kvk_prep_lengths_params *p)
{
	int ret = kvk_prep_flags(p->fault, p->flags, 0);

	ret = ret ? ret : kvk_prep_at_least(p->fault, "batch", p->batch, 0);
	ret = ret ? ret : kvk_prep_at_least(p->fault, "page_tokens", p->page_tokens, 1);
	ret = ret ? ret : kvk_prep_given(p->fault, "cu_q", p->cu_q);
	ret = ret ? ret : kvk_prep_given(p->fault, "cu_k", p->cu_k);
	if (ret || !p->batch)
		return ret;
	ret = kvk_prep_given(p->fault, "qo_lens", p->qo_lens);
	ret = ret ? ret : kvk_prep_given(p->fault, "kv_lens", p->kv_lens);
	ret = ret ? ret : kvk_prep_given(p->fault, "qo_offset", p->qo_offset);
	return ret ? ret : kvk_prep_given(p->fault, "seqused_k", p->seqused_k);
}

/* Sums and maxima, once everything is known to fit. */
static int sum_up(const struct kvk_prep_lengths_params *p, struct kvk_prep_lengths *total)
{
	int ret = kvk_prep_sum(p->fault, "qo_lens", p->qo_lens, p->batch, "", INT32_MAX, &total->total_q);

	if (!ret)
		ret = kvk_prep_sum(p->fault, "kv_lens", p->kv_lens, p->batch, "", INT32_MAX, &total->total_k);
	for (int32_t r = 0; r < p->batch && !ret; r++) {
		int64_t used = (int64_t)p->qo_lens[r] + p->qo_offset[r];

		if (used > INT32_MAX)
			return kvk_prep_refuse(p->fault, -EOVERFLOW, "qo_offset", r, used, INT32_MAX);
		total->max_q = p->qo_lens[r] > total->max_q ? p->qo_lens[r] : total->max_q;
		total->max_k = p->kv_lens[r] > total->max_k ? p->kv_lens[r] : total->max_k;
		total->total_rows += kvk_prep_pages(p->kv_lens[r], p->page_tokens);
	}
	return ret;
}

int kvk_prep_plan_lengths(const struct kvk_prep_lengths_params *params, struct kvk_prep_lengths *out)
{
	struct kvk_prep_lengths_params p;
	struct kvk_prep_lengths total = {0};
	int ret = kvk_take_params(&p, sizeof(p), params);

	if (ret)
		return ret;
	ret = kvk_prep_given(p.fault, "out", out);
	ret = ret ? ret : check_lengths(&p);
	ret = ret ? ret : sum_up(&p, &total);
	if (ret)
		return ret;
	p.cu_q[0] = p.cu_k[0] = 0;
	for (int32_t r = 0; r < p.batch; r++) {
		p.cu_q[r + 1] = p.cu_q[r] + p.qo_lens[r];
		p.cu_k[r + 1] = p.cu_k[r] + p.kv_lens[r];
		p.seqused_k[r] = p.qo_lens[r] + p.qo_offset[r];
	}
	*out = total;
	return 0;
}
