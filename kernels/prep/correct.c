/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Length correction. Everything is derived from the staged snapshot and the corrected lengths, nothing from what an
 * earlier correction left, so that it can run again. Every part of a plan is looked at before anything is written: a
 * part that lacks an array would otherwise keep lengths of tokens that were rejected, silently.
 */
#include "prep.h"

#include "../check.h"

#include <errno.h>

/* One request of a step: its length and where its query tokens stand. */
struct request {
	int32_t kv;
	int32_t queries;
	int64_t first; /* position of the first query token; may be negative */
};

static struct request request_of(const struct kvk_prep_correct_params *p, int32_t r)
{
	int32_t kv = p->corrected[r] < p->staged[r] ? p->corrected[r] : p->staged[r];

	return (struct request){.kv = kv, .queries = p->qo_lens[r], .first = (int64_t)kv - p->qo_lens[r]};
}

static int32_t not_negative(int64_t value)
{
	return value > 0 ? (int32_t)value : 0;
}

/* ------------------------------------------------------------------ checks */

static int check_params(const struct kvk_prep_correct_params *p)
{
	int ret = kvk_prep_flags(p->fault, p->flags, KVK_PREP_NEWEST);

	ret = ret ? ret : kvk_prep_at_least(p->fault, "batch", p->batch, 0);
	ret = ret ? ret : kvk_prep_at_least(p->fault, "page_tokens", p->page_tokens, 1);
	ret = ret ? ret : kvk_prep_at_least(p->fault, "table_width", p->table_width, 0);
	ret = ret ? ret : kvk_prep_at_least(p->fault, "room", p->room, 0);
	ret = ret ? ret : kvk_prep_at_least(p->fault, "part_count", p->part_count, 0);
	ret = ret ? ret : kvk_prep_slot_bytes(p->fault, p->slot_bytes);
	if (!ret && p->flags & KVK_PREP_NEWEST && p->part_count)
		ret = kvk_prep_refuse(p->fault, -EINVAL, "part_count", -1, p->part_count, 0);
	if (!ret && p->part_count)
		ret = kvk_prep_given(p->fault, "parts", p->parts);
	return ret;
}

static int check_arrays(struct kvk_prep_correct_params *p)
{
	int ret = kvk_prep_given(p->fault, "staged", p->staged);

	ret = ret ? ret : kvk_prep_given(p->fault, "corrected", p->corrected);
	ret = ret ? ret : kvk_prep_given(p->fault, "slots", p->slots);
	ret = ret ? ret : kvk_prep_given(p->fault, "n_valid", p->n_valid);
	ret = ret ? ret : kvk_prep_given(p->fault, "seq_lens", p->seq_lens);
	if (!ret && !p->table_width)
		ret = kvk_prep_refuse(p->fault, -ERANGE, "table_width", -1, 0, 1);
	return ret ? ret
		   : kvk_prep_table(p->fault, "table", p->table, p->batch, p->table_width, &p->table_stride);
}

static int check_lens_sum(const struct kvk_prep_correct_params *p)
{
	int64_t sum = 0;

	for (int32_t r = 0; p->cu_kv && r < p->batch; r++)
		sum += not_negative(request_of(p, r).kv);
	return sum > INT32_MAX ? kvk_prep_refuse(p->fault, -EOVERFLOW, "cu_kv", -1, sum, INT32_MAX) : 0;
}

static int64_t tokens_of(const struct kvk_prep_correct_params *p, const struct kvk_prep_plan_part *part)
{
	int64_t tokens = 0;

	for (int32_t r = part->first; r < part->last; r++)
		tokens += p->qo_lens[r];
	return tokens;
}

/* An array that a part must have, with one row a request or one a token. */
static int check_target(const struct kvk_prep_correct_params *p, int32_t at, const char *name,
			const int32_t *array, int32_t rows)
{
	const struct kvk_prep_plan_part *part = &p->parts[at];
	const int64_t tokens = tokens_of(p, part);

	if (array && (rows == part->last - part->first || rows == tokens))
		return 0;
	if (p->fault)
		*p->fault = (struct kvk_prep_fault){.name = name,
						    .index = at,
						    .value = array ? rows : 0,
						    .limit = part->last - part->first,
						    .other_limit = tokens,
						    .first = part->first,
						    .last = part->last};
	return array ? -ERANGE : -ENOENT;
}

static int check_part(const struct kvk_prep_correct_params *p, int32_t at)
{
	const struct kvk_prep_plan_part *part = &p->parts[at];
	int ret;

	if (part->sparse_flavour > 1)
		return kvk_prep_refuse(p->fault, -EINVAL, "sparse_flavour", at, part->sparse_flavour, 1);
	if (part->first < 0 || part->first > part->last)
		return kvk_prep_refuse(p->fault, -ERANGE, "first", at, part->first, part->last);
	if (part->last > p->batch)
		return kvk_prep_refuse(p->fault, -ERANGE, "last", at, part->last, p->batch);
	if (part->sparse_flavour)
		return check_target(p, at, "seqused_k", part->seqused_k, part->seqused_rows);
	ret = check_target(p, at, "kv_segment_lens", part->kv_segment_lens, part->kv_segment_rows);
	return ret ? ret : check_target(p, at, "qo_offset", part->qo_offset, part->qo_offset_rows);
}

/* ------------------------------------------------------------------ slots */

static struct kvk_prep_run run_of(const struct kvk_prep_correct_params *p, int32_t r)
{
	const struct request request = request_of(p, r);

	return (struct kvk_prep_run){.row = p->table + r * p->table_stride,
				     .end = (int64_t)p->table_width * p->page_tokens,
				     .first = request.first,
				     .count = request.queries,
				     .page_tokens = p->page_tokens,
				     .turn = true};
}

static int check_slots(const struct kvk_prep_correct_params *p)
{
	int64_t column = 0;

	for (int32_t r = 0; p->flags & KVK_PREP_NEWEST && r < p->batch; r++) {
		struct kvk_prep_run run = run_of(p, r);

		if (kvk_prep_run_check(&run, p->slot_bytes, &column))
			return kvk_prep_refuse(p->fault, -EOVERFLOW, "table",
					       (int64_t)r * p->table_width + column, run.row[column],
					       INT32_MAX / p->page_tokens);
	}
	return 0;
}

/* From a table of slots a position. */
static void look_up_slots(const struct kvk_prep_correct_params *p, int32_t r, int64_t at)
{
	const struct request request = request_of(p, r);
	const int32_t *row = p->table + r * p->table_stride;

	for (int32_t i = 0; i < request.queries; i++) {
		int64_t pos = request.first + i;
		int32_t slot = row[pos < 0 ? 0 : pos < p->table_width ? pos : p->table_width - 1];

		if (p->slot_bytes == 4)
			((int32_t *)p->slots)[at + i] = slot;
		else
			((int64_t *)p->slots)[at + i] = slot;
	}
}

static void write_tokens(const struct kvk_prep_correct_params *p, const struct kvk_prep_ops *ops)
{
	const bool newest = p->flags & KVK_PREP_NEWEST;
	int64_t at = 0;

	for (int32_t r = 0; r < p->batch; r++) {
		const struct request request = request_of(p, r);
		const struct kvk_prep_valid valid = {.visible = request.first + 1,
						     .most = request.kv,
						     .block_tokens = p->page_tokens,
						     .count = request.queries,
						     .least = newest ? 0 : 1};
		const struct kvk_prep_run run = run_of(p, r);

		if (newest)
			kvk_prep_run_write(ops, &run, p->slot_bytes, p->slots, at);
		else
			look_up_slots(p, r, at);
		kvk_prep_valid_write(ops, &valid, p->n_valid + at);
		at += request.queries;
	}
}

/* ------------------------------------------------------------------ plans */

enum key { KV_SEGMENT_LENS, QO_OFFSET, SEQUSED_K };

/* What a key says of the query token at pos, or of the request (pos: that of its first token). */
static int32_t value_of(enum key key, const struct request *request, int64_t pos, bool per_token)
{
	if (key == QO_OFFSET)
		return not_negative(pos);
	if (key == SEQUSED_K && per_token)
		return not_negative(pos + 1);
	return request->kv;
}

/* One row a request where the counts leave the choice. */
static void write_key(const struct kvk_prep_correct_params *p, const struct kvk_prep_plan_part *part,
		      enum key key, int32_t *array, int32_t rows)
{
	const bool per_token = rows != part->last - part->first;

	for (int32_t r = part->first; r < part->last; r++) {
		const struct request request = request_of(p, r);
		int32_t count = per_token ? request.queries : 1;

		for (int32_t i = 0; i < count; i++)
			*array++ = value_of(key, &request, request.first + i, per_token);
	}
}

static void write_part(const struct kvk_prep_correct_params *p, const struct kvk_prep_plan_part *part)
{
	if (part->sparse_flavour) {
		write_key(p, part, SEQUSED_K, part->seqused_k, part->seqused_rows);
		return;
	}
	write_key(p, part, KV_SEGMENT_LENS, part->kv_segment_lens, part->kv_segment_rows);
	write_key(p, part, QO_OFFSET, part->qo_offset, part->qo_offset_rows);
}

/* Last, as seq_lens may be what the rest is derived from. */
static void write_lens(const struct kvk_prep_correct_params *p)
{
	int32_t sum = 0;

	for (int32_t r = 0; r < p->batch; r++) {
		int32_t kv = request_of(p, r).kv;

		if (p->cu_kv)
			p->cu_kv[r] = sum;
		sum += p->cu_kv ? not_negative(kv) : 0;
		p->seq_lens[r] = kv;
	}
	if (p->cu_kv)
		p->cu_kv[p->batch] = sum;
}

static int check_all(struct kvk_prep_correct_params *p, int32_t *out_tokens)
{
	int ret = check_params(p);

	if (ret || !p->batch)
		return ret;
	ret = kvk_prep_given(p->fault, "qo_lens", p->qo_lens);
	if (!ret)
		ret = kvk_prep_sum(p->fault, "qo_lens", p->qo_lens, p->batch, "room", p->room, out_tokens);
	if (ret || !*out_tokens)
		return ret;
	ret = check_arrays(p);
	ret = ret ? ret : check_lens_sum(p);
	for (int32_t i = 0; i < p->part_count && !ret; i++)
		ret = check_part(p, i);
	return ret ? ret : check_slots(p);
}

int kvk_prep_correct(const struct kvk_prep_correct_params *params)
{
	struct kvk_prep_correct_params p;
	int32_t tokens = 0;
	int ret = kvk_take_params(&p, sizeof(p), params);

	if (!ret)
		ret = check_all(&p, &tokens);
	if (ret || !tokens)
		return ret;
	write_tokens(&p, kvk_prep_ops());
	for (int32_t i = 0; i < p.part_count; i++)
		write_part(&p, &p.parts[i]);
	write_lens(&p);
	return 0;
}
