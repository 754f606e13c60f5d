/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slot mapping. The tokens of a request have consecutive positions, so their slots are consecutive inside a page: a
 * request is cut at page ends and each piece is a run of numbers that count up, written without a division a token.
 * Positions below 0 repeat the first slot, those past the row's end mostly the last one.
 */
#include "prep.h"

#include "../check.h"

#include <errno.h>

struct piece {
	int64_t column;
	int64_t slot; /* of its first token; -1: the page is none */
	int64_t count;
	int64_t step; /* 1; 0: every token has the same slot */
};

static int64_t min64(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* The tokens from the done-th on that share a page or a clamp. */
static struct piece next_piece(const struct kvk_prep_run *run, int64_t done)
{
	const int64_t left = run->count - done;
	const int64_t at = run->first + done;
	const int64_t last = run->end - 1;
	int64_t position = at < 0 ? 0 : run->turn ? at : min64(at, last);
	int64_t column = position / run->page_tokens;
	int64_t offset = position - column * run->page_tokens;
	struct piece piece = {.column = position > last ? last / run->page_tokens : column, .count = left};
	int32_t id = run->row[piece.column];

	if (at < 0) {
		piece.count = min64(left, -at);
	} else if (at <= last || run->turn) {
		piece.count = min64(left, run->page_tokens - offset);
		piece.step = 1;
	}
	piece.slot = id < 0 ? -1 : (int64_t)id * run->page_tokens + offset;
	piece.step = id < 0 ? 0 : piece.step;
	return piece;
}

int kvk_prep_run_check(const struct kvk_prep_run *run, uint32_t slot_bytes, int64_t *out_column)
{
	struct piece piece;

	if (slot_bytes == 8)
		return 0;
	for (int64_t done = 0; done < run->count; done += piece.count) {
		piece = next_piece(run, done);
		if (piece.slot + (piece.count - 1) * piece.step > INT32_MAX) {
			*out_column = piece.column;
			return -EOVERFLOW;
		}
	}
	return 0;
}

static void repeat(uint32_t slot_bytes, void *out, int64_t at, int64_t slot, int64_t count)
{
	for (int64_t i = at; i < at + count; i++)
		if (slot_bytes == 4)
			((int32_t *)out)[i] = (int32_t)slot;
		else
			((int64_t *)out)[i] = slot;
}

void kvk_prep_run_write(const struct kvk_prep_ops *ops, const struct kvk_prep_run *run, uint32_t slot_bytes,
			void *out, int64_t at)
{
	struct piece piece;

	for (int64_t done = 0; done < run->count; done += piece.count) {
		piece = next_piece(run, done);
		if (!piece.step || piece.count == 1)
			repeat(slot_bytes, out, at + done, piece.slot, piece.count);
		else if (slot_bytes == 4)
			ops->count_up32((int32_t *)out + at + done, piece.slot, piece.count);
		else
			ops->count_up64((int64_t *)out + at + done, piece.slot, piece.count);
	}
}

static int check_params(const struct kvk_prep_slots_params *p)
{
	int ret = kvk_prep_flags(p->fault, p->flags, 0);

	ret = ret ? ret : kvk_prep_at_least(p->fault, "batch", p->batch, 0);
	ret = ret ? ret : kvk_prep_at_least(p->fault, "table_width", p->table_width, 0);
	ret = ret ? ret : kvk_prep_at_least(p->fault, "page_tokens", p->page_tokens, 1);
	ret = ret ? ret : kvk_prep_at_least(p->fault, "room", p->room, 0);
	ret = ret ? ret : kvk_prep_slot_bytes(p->fault, p->slot_bytes);
	if (!ret && p->reserved)
		ret = kvk_prep_refuse(p->fault, -EINVAL, "reserved", -1, p->reserved, 0);
	return ret;
}

static int check_arrays(struct kvk_prep_slots_params *p, int32_t *out_tokens)
{
	int ret = kvk_prep_given(p->fault, "qo_lens", p->qo_lens);

	if (!ret)
		ret = kvk_prep_sum(p->fault, "qo_lens", p->qo_lens, p->batch, "room", p->room, out_tokens);
	if (ret || !*out_tokens)
		return ret;
	ret = kvk_prep_given(p->fault, "qo_offset", p->qo_offset);
	ret = ret ? ret : kvk_prep_given(p->fault, "out", p->out);
	if (!ret && !p->table_width)
		ret = kvk_prep_refuse(p->fault, -ERANGE, "table_width", -1, 0, 1);
	return ret ? ret
		   : kvk_prep_table(p->fault, "block_ids", p->block_ids, p->batch, p->table_width,
				    &p->table_stride);
}

static struct kvk_prep_run run_of(const struct kvk_prep_slots_params *p, int32_t r)
{
	return (struct kvk_prep_run){.row = p->block_ids + r * p->table_stride,
				     .end = (int64_t)p->table_width * p->page_tokens,
				     .first = p->qo_offset[r],
				     .count = p->qo_lens[r],
				     .page_tokens = p->page_tokens};
}

/* The slots of 32 bits that a table of ids can lead to. */
static int check_slots(const struct kvk_prep_slots_params *p)
{
	int64_t column = 0;

	for (int32_t r = 0; r < p->batch; r++) {
		struct kvk_prep_run run = run_of(p, r);

		if (kvk_prep_run_check(&run, p->slot_bytes, &column))
			return kvk_prep_refuse(p->fault, -EOVERFLOW, "block_ids",
					       (int64_t)r * p->table_width + column, run.row[column],
					       INT32_MAX / p->page_tokens);
	}
	return 0;
}

int kvk_prep_slots(const struct kvk_prep_slots_params *params)
{
	const struct kvk_prep_ops *ops = kvk_prep_ops();
	struct kvk_prep_slots_params p;
	int32_t tokens = 0;
	int64_t at = 0;
	int ret = kvk_take_params(&p, sizeof(p), params);

	if (ret)
		return ret;
	ret = check_params(&p);
	if (!ret && p.batch)
		ret = check_arrays(&p, &tokens);
	if (!ret && tokens)
		ret = check_slots(&p);
	if (ret)
		return ret;
	for (int32_t r = 0; tokens && r < p.batch; r++) {
		struct kvk_prep_run run = run_of(&p, r);

		kvk_prep_run_write(ops, &run, p.slot_bytes, p.out, at);
		at += run.count;
	}
	if (p.out_tokens)
		*p.out_tokens = tokens;
	return 0;
}
