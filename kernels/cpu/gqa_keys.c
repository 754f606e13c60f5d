/* SPDX-License-Identifier: Apache-2.0 */
/* See gqa_keys.h. Pages are looked up once for each run of tokens within one, not for each token. */
#include "gqa_keys.h"

static int32_t smaller(int64_t a, int64_t b)
{
	return (int32_t)(a < b ? a : b);
}

void kvk_gqa_cursor_begin(struct kvk_gqa_cursor *c, int32_t split, int32_t split_items)
{
	const int64_t begin = (int64_t)split * split_items;
	const int64_t end = begin + split_items;

	c->position = 0;
	c->end = 0;
	c->highest = -1;
	if (!c->ids) {
		c->position = smaller(begin, c->visible);
		c->end = smaller(end, c->visible);
		return;
	}
	c->last = smaller(end, c->call->topk);
	for (c->entry = 0; c->entry < smaller(begin, c->last); c->entry++)
		if (c->ids[c->entry] > c->highest)
			c->highest = c->ids[c->entry];
}

void kvk_gqa_cursor_pass(struct kvk_gqa_cursor *c)
{
	if (c->ids)
		c->last = c->call->topk;
	else
		c->end = c->visible;
}

/* Whether the id at `entry` stands in the list before. Ascending lists are never searched. */
static int listed_before(const struct kvk_gqa_cursor *c, int32_t id)
{
	if (id > c->highest)
		return 0;
	for (int32_t n = 0; n < c->entry; n++)
		if (c->ids[n] == id)
			return 1;
	return 0;
}

/* On to the next selected block that has a visible key and was not there before; 0 when none is left. */
static int next_block(struct kvk_gqa_cursor *c)
{
	for (; c->entry < c->last; c->entry++) {
		const int32_t id = c->ids[c->entry];
		const int64_t begin = (int64_t)id * c->call->block_tokens;

		if (id < 0 || begin >= c->visible || listed_before(c, id))
			continue;
		c->position = (int32_t)begin;
		c->end = smaller(begin + c->call->block_tokens, c->visible);
		if (id > c->highest)
			c->highest = id;
		c->entry++;
		return 1;
	}
	return 0;
}

/* `count` keys from `k` on and their values from `v` on. */
static void list_rows(const char **row, const char *k, const char *v, int64_t k_step, int64_t v_step,
		      int32_t count)
{
	for (int32_t i = 0; i < count; i++, k += k_step, v += v_step) {
		row[2 * i] = k;
		row[2 * i + 1] = v;
	}
}

static void repeat_last(struct kvk_gqa_keys *keys)
{
	const char **end = &keys->row[2 * keys->count];

	for (int i = 0; keys->count && i < 2 * KVK_GQA_VALUES_AHEAD; i++)
		end[i] = end[i % 2 - 2];
}

void kvk_gqa_cursor_next(struct kvk_gqa_cursor *c, struct kvk_gqa_keys *keys)
{
	const struct kvk_gqa_call *call = c->call;
	const int64_t bytes = (int64_t)kvk_dtype_bytes(call->kv_dtype);

	keys->count = 0;
	keys->mixed = 0;
	while (keys->count < KVK_GQA_KEYS && (c->position < c->end || (c->ids && next_block(c)))) {
		const int64_t page = c->table[c->position / call->page_tokens];
		const int32_t token = c->position % call->page_tokens;
		const int32_t room = smaller(c->end - c->position, KVK_GQA_KEYS - keys->count);
		const int32_t run = smaller(room, call->page_tokens - token);

		list_rows(&keys->row[2 * keys->count],
			  c->k + (page * call->k_stride_page + token * call->k_stride_token) * bytes,
			  c->v + (page * call->v_stride_page + token * call->v_stride_token) * bytes,
			  call->k_stride_token * bytes, call->v_stride_token * bytes, run);
		keys->count += run;
		c->position += run;
	}
	repeat_last(keys);
}
