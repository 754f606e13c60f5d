/* SPDX-License-Identifier: Apache-2.0 */
/* Flat page list, and the blocks that each query token may attend to. */
#include "prep.h"

#include "../check.h"

#include <errno.h>
#include <string.h>

/* ------------------------------------------------------------------ page list */

static int check_list(const struct kvk_prep_page_list_params *p)
{
	int ret = kvk_prep_flags(p->fault, p->flags, 0);

	ret = ret ? ret : kvk_prep_at_least(p->fault, "batch", p->batch, 0);
	ret = ret ? ret : kvk_prep_at_least(p->fault, "table_width", p->table_width, 0);
	ret = ret ? ret : kvk_prep_at_least(p->fault, "page_tokens", p->page_tokens, 1);
	return ret ? ret : kvk_prep_at_least(p->fault, "room", p->room, 0);
}

static int count_pages(const struct kvk_prep_page_list_params *p, int64_t *out_pages)
{
	int64_t pages = 0;

	for (int32_t r = 0; r < p->batch; r++) {
		int32_t count = kvk_prep_pages(p->kv_lens[r], p->page_tokens);

		if (count > p->table_width)
			return kvk_prep_refuse(p->fault, -ERANGE, "kv_lens", r, p->kv_lens[r],
					       (int64_t)p->table_width * p->page_tokens);
		pages += count;
	}
	if (pages > INT32_MAX)
		return kvk_prep_refuse(p->fault, -EOVERFLOW, "kv_lens", -1, pages, INT32_MAX);
	if (p->out && pages > p->room)
		return kvk_prep_refuse(p->fault, -ENOSPC, "room", -1, pages, p->room);
	*out_pages = pages;
	return 0;
}

static int check_list_arrays(struct kvk_prep_page_list_params *p, int64_t *out_pages)
{
	int ret = kvk_prep_given(p->fault, "kv_lens", p->kv_lens);

	if (!ret && !p->out && p->room)
		ret = kvk_prep_given(p->fault, "out", p->out);
	if (!ret)
		ret = count_pages(p, out_pages);
	if (ret || !*out_pages || !p->out)
		return ret;
	return kvk_prep_table(p->fault, "block_ids", p->block_ids, p->batch, p->table_width,
			      &p->table_stride);
}

static void write_list(const struct kvk_prep_page_list_params *p)
{
	int64_t at = 0;

	for (int32_t r = 0; r < p->batch; r++) {
		size_t count = (size_t)kvk_prep_pages(p->kv_lens[r], p->page_tokens);

		if (p->out && count)
			memcpy(p->out + at, p->block_ids + r * p->table_stride, count * sizeof(*p->out));
		if (p->indptr)
			p->indptr[r] = (int32_t)at;
		at += (int64_t)count;
	}
	if (p->indptr)
		p->indptr[p->batch] = (int32_t)at;
}

int kvk_prep_page_list(const struct kvk_prep_page_list_params *params)
{
	struct kvk_prep_page_list_params p;
	int64_t pages = 0;
	int ret = kvk_take_params(&p, sizeof(p), params);

	if (ret)
		return ret;
	ret = check_list(&p);
	if (!ret && p.batch)
		ret = check_list_arrays(&p, &pages);
	if (ret)
		return ret;
	write_list(&p);
	if (p.out_pages)
		*p.out_pages = (int32_t)pages;
	return 0;
}

/* ------------------------------------------------------------------ valid blocks */

static int check_valid(const struct kvk_prep_valid_blocks_params *p)
{
	int ret = kvk_prep_flags(p->fault, p->flags, 0);

	ret = ret ? ret : kvk_prep_at_least(p->fault, "batch", p->batch, 0);
	ret = ret ? ret : kvk_prep_at_least(p->fault, "block_tokens", p->block_tokens, 1);
	ret = ret ? ret : kvk_prep_at_least(p->fault, "room", p->room, 0);
	if (!ret && p->reserved)
		ret = kvk_prep_refuse(p->fault, -EINVAL, "reserved", -1, p->reserved, 0);
	return ret;
}

/* Tokens that see one key more each come in groups that end at a block's end. */
void kvk_prep_valid_write(const struct kvk_prep_ops *ops, const struct kvk_prep_valid *valid, int32_t *out)
{
	const int64_t block = valid->block_tokens;
	int64_t visible = valid->visible;
	int64_t left = valid->count;

	while (left > 0) {
		int64_t seen = visible < valid->most ? visible : valid->most;
		int64_t blocks = seen > 0 ? (seen - 1) / block + 1 : 0;
		int64_t count = visible >= valid->most ? left : blocks * block - visible + 1;

		count = count < left ? count : left;
		if (count == 1)
			*out = (int32_t)(seen > 0 ? blocks : valid->least);
		else
			ops->fill(out, (int32_t)(seen > 0 ? blocks : valid->least), count);
		out += count;
		visible += count;
		left -= count;
	}
}

static struct kvk_prep_valid valid_of(const struct kvk_prep_valid_blocks_params *p, int32_t r)
{
	int64_t offset = p->qo_offset ? p->qo_offset[r] : (int64_t)p->kv_lens[r] - p->qo_lens[r];

	return (struct kvk_prep_valid){.visible = offset + 1,
				       .most = p->kv_lens[r],
				       .block_tokens = p->block_tokens,
				       .count = p->qo_lens[r]};
}

int kvk_prep_valid_blocks(const struct kvk_prep_valid_blocks_params *params)
{
	const struct kvk_prep_ops *ops = kvk_prep_ops();
	struct kvk_prep_valid_blocks_params p;
	int32_t tokens = 0;
	int32_t *out;
	int ret = kvk_take_params(&p, sizeof(p), params);

	if (ret)
		return ret;
	ret = check_valid(&p);
	if (!ret && p.batch)
		ret = kvk_prep_given(p.fault, "qo_lens", p.qo_lens);
	if (!ret && p.batch)
		ret = kvk_prep_sum(p.fault, "qo_lens", p.qo_lens, p.batch, "room", p.room, &tokens);
	if (!ret && tokens)
		ret = kvk_prep_given(p.fault, "kv_lens", p.kv_lens);
	if (!ret && tokens)
		ret = kvk_prep_given(p.fault, "out", p.out);
	if (ret)
		return ret;
	out = p.out;
	for (int32_t r = 0; tokens && r < p.batch; r++) {
		struct kvk_prep_valid valid = valid_of(&p, r);

		kvk_prep_valid_write(ops, &valid, out);
		out += valid.count;
	}
	if (p.out_tokens)
		*p.out_tokens = tokens;
	return 0;
}
