/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Block ids of sequences. The two divisions are one, as floor(floor(x / a) / b) = floor(x / (a * b)) for what is not
 * negative, and scale and divisor are brought to their lowest terms: what remains is mostly a small factor and a shift,
 * or a multiplication by a reciprocal, in 32 bits. One pass over the rows does that and finds the largest id on the way.
 * Only then is it known whether 32 bits were enough, which they are but for ids that nearly fill them: those are done
 * again in 64.
 */
#include "prep.h"

#include "../check.h"

#include <errno.h>

static int64_t gcd(int64_t a, int64_t b)
{
	while (b) {
		int64_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

static struct kvk_prep_ratio ratio_of(const struct kvk_prep_block_ids_params *p)
{
	const int64_t divisor = (int64_t)p->divisor * p->layers;
	const int64_t common = gcd(p->scale, divisor);
	struct kvk_prep_ratio ratio = {.scale = p->scale / common,
				       .divisor = divisor / common,
				       .none = p->flags & KVK_PREP_KEEP_BAD ? -1 : 0};
	uint32_t bits = 0;

	while (bits < 31 && ratio.divisor > INT64_C(1) << bits)
		bits++;
	ratio.shift = bits;
	if (ratio.divisor == INT64_C(1) << bits)
		return ratio;
	ratio.shift = 31 + bits;
	ratio.magic = (uint32_t)((UINT64_C(1) << ratio.shift) / (uint64_t)ratio.divisor + 1);
	return ratio;
}

static int check_params(const struct kvk_prep_block_ids_params *p)
{
	int ret = kvk_prep_flags(p->fault, p->flags, KVK_PREP_FLAT | KVK_PREP_KEEP_BAD);

	ret = ret ? ret : kvk_prep_at_least(p->fault, "batch", p->batch, 0);
	ret = ret ? ret : kvk_prep_at_least(p->fault, "rows", p->rows, 0);
	ret = ret ? ret : kvk_prep_at_least(p->fault, "row_width", p->row_width, 0);
	ret = ret ? ret : kvk_prep_at_least(p->fault, "width", p->width, 0);
	ret = ret ? ret : kvk_prep_at_least(p->fault, "scale", p->scale, 1);
	ret = ret ? ret : kvk_prep_at_least(p->fault, "divisor", p->divisor, 1);
	ret = ret ? ret : kvk_prep_at_least(p->fault, "layers", p->layers, 1);
	if (!ret && p->reserved)
		ret = kvk_prep_refuse(p->fault, -EINVAL, "reserved", -1, p->reserved, 0);
	if (!ret && p->flags & KVK_PREP_FLAT && p->width)
		ret = kvk_prep_refuse(p->fault, -EINVAL, "width", -1, p->width, 0);
	if (!ret && !(p->flags & KVK_PREP_FLAT) && p->indptr)
		ret = kvk_prep_refuse(p->fault, -EINVAL, "indptr", -1, 1, 0);
	return ret;
}

/* What one sequence asks for: a row that exists, a count that it has. */
static int check_count(const struct kvk_prep_block_ids_params *p, int32_t i)
{
	int64_t row = kvk_prep_row(p, i);
	int32_t count = kvk_prep_count(p, i);

	if (row < 0 || row >= p->rows)
		return kvk_prep_refuse(p->fault, -ERANGE, p->row_of ? "row_of" : "batch", i, row, p->rows);
	if (count < 0)
		return kvk_prep_refuse(p->fault, -ERANGE,
				       p->num_blocks && p->num_blocks[i] < 0 ? "num_blocks" : "most", i,
				       count, 0);
	if (count > p->row_width)
		return kvk_prep_refuse(p->fault, -ERANGE, "num_blocks", i, count, p->row_width);
	return 0;
}

/* All counts: the largest, and their sum. */
static int measure(const struct kvk_prep_block_ids_params *p, int32_t *out_largest, int64_t *out_sum)
{
	int32_t largest = 0;
	int64_t sum = 0;

	for (int32_t i = 0; i < p->batch; i++) {
		int32_t count = kvk_prep_count(p, i);
		int ret = check_count(p, i);

		if (ret)
			return ret;
		largest = count > largest ? count : largest;
		sum += count;
	}
	*out_largest = largest;
	*out_sum = sum;
	return 0;
}

/* Takes the width as it comes out, and checks that out can hold it all. */
static int fit(struct kvk_prep_block_ids_params *p, int32_t largest, int64_t sum)
{
	int64_t needed = sum;
	int ret;

	if (p->flags & KVK_PREP_FLAT) {
		if (sum > INT32_MAX)
			return kvk_prep_refuse(p->fault, -EOVERFLOW, "num_blocks", -1, sum, INT32_MAX);
		p->width = (int32_t)sum;
	} else {
		if (p->width && largest > p->width)
			return kvk_prep_refuse(p->fault, -ERANGE, "width", -1, p->width, largest);
		p->width = p->width ? p->width : largest;
		ret = kvk_prep_table(p->fault, "out", p->out ? (const void *)p->out : "", p->batch, p->width,
				     &p->out_stride);
		if (ret)
			return ret;
		if (p->out_stride < p->width && p->batch > 1)
			return kvk_prep_refuse(p->fault, -EINVAL, "out_stride", -1, p->out_stride, p->width);
		needed = p->width ? (p->batch - 1) * p->out_stride + p->width : 0;
	}
	if (needed > p->out_room)
		return kvk_prep_refuse(p->fault, -ENOSPC, "out", -1, needed, p->out_room);
	return needed ? kvk_prep_given(p->fault, "out", p->out) : 0;
}

/* Where in slots the first id outside [-1, most] stands, as if they were contiguous. */
static int refuse_id(const struct kvk_prep_block_ids_params *p, int code, int64_t most)
{
	for (int32_t i = 0; i < p->batch; i++)
		for (int32_t j = 0; j < kvk_prep_count(p, i); j++) {
			int32_t id = p->slots[kvk_prep_row(p, i) * p->slots_stride + j];

			if (id < -1 || id > most)
				return kvk_prep_refuse(p->fault, code, "slots",
						       kvk_prep_row(p, i) * p->row_width + j, id,
						       id < -1 ? -1 : most);
		}
	return code;
}

/* What the pass has found: `most` is the largest id. */
static int check_ids(const struct kvk_prep_block_ids_params *p, const struct kvk_prep_ratio *ratio,
		     int64_t most)
{
	if (most > INT32_MAX)
		return refuse_id(p, -ERANGE, INT32_MAX);
	if (most * ratio->scale / ratio->divisor > INT32_MAX)
		return refuse_id(p, -EOVERFLOW, ((INT64_C(1) << 31) * ratio->divisor - 1) / ratio->scale);
	return 0;
}

/* Any ids and ratio, in 64 bits. The padding is there. */
static void convert_large(const struct kvk_prep_block_ids_params *p, const struct kvk_prep_ratio *ratio)
{
	int32_t *out = p->out;

	for (int32_t i = 0; i < p->batch; i++) {
		const int32_t *row = p->slots + kvk_prep_row(p, i) * p->slots_stride;
		int32_t count = kvk_prep_count(p, i);

		for (int32_t j = 0; j < count; j++)
			out[j] = row[j] < 0 ? ratio->none : (int32_t)(row[j] * ratio->scale / ratio->divisor);
		out += p->flags & KVK_PREP_FLAT ? count : p->out_stride;
	}
}

static int convert(const struct kvk_prep_block_ids_params *p)
{
	const struct kvk_prep_ratio ratio = ratio_of(p);
	const int64_t most = (int64_t)kvk_prep_ops()->block_ids(p, &ratio) - 1;
	int ret = check_ids(p, &ratio, most);

	if (!ret && (most * ratio.scale > INT32_MAX || ratio.divisor > INT32_MAX))
		convert_large(p, &ratio);
	return ret;
}

static void write_indptr(const struct kvk_prep_block_ids_params *p)
{
	int32_t sum = 0;

	for (int32_t i = 0; i < p->batch; i++) {
		p->indptr[i] = sum;
		sum += kvk_prep_count(p, i);
	}
	p->indptr[p->batch] = sum;
}

int kvk_prep_block_ids(const struct kvk_prep_block_ids_params *params)
{
	struct kvk_prep_block_ids_params p;
	int32_t largest = 0;
	int64_t sum = 0;
	int ret = kvk_take_params(&p, sizeof(p), params);

	if (ret)
		return ret;
	ret = check_params(&p);
	if (!ret && p.batch)
		ret = kvk_prep_table(p.fault, "slots", p.slots, p.rows, p.row_width, &p.slots_stride);
	if (!ret)
		ret = measure(&p, &largest, &sum);
	if (!ret && p.batch)
		ret = fit(&p, largest, sum);
	if (!ret && sum + p.width)
		ret = convert(&p);
	if (ret)
		return ret;
	if (p.indptr)
		write_indptr(&p);
	if (p.out_width)
		*p.out_width = p.batch ? p.width : 0;
	return 0;
}
