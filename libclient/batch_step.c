/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A batch's step: reserve, begin, settle. Each first looks at every sequence and changes none, then changes them all.
 */
#include <errno.h>

#include "batch.h"
#include "batch_arrays.h"
#include "client.h"
#include "error.h"
#include "mirror.h"
#include "params.h"
#include "publish.h"
#include "pump.h"
#include "reserve.h"
#include "rows.h"
#include "settle.h"

static uint32_t tokens_of(const uint32_t *tokens, uint32_t i)
{
	return tokens ? tokens[i] : 1;
}

static int not_member(uint32_t i)
{
	return kvc_fail(KVP_ESTATE,
			"sequence %u of the batch was closed or taken into another: kvp_batch_set()", i);
}

/* ------------------------------------------------------------------ reserve */

static void read_inboxes(const struct kvp_batch *batch)
{
	uint32_t i;

	for (i = 0; i < batch->count; i++)
		if (atomic_load_explicit(&batch->seqs[i]->inbox, memory_order_relaxed))
			kvc_read_inbox(batch->seqs[i]);
}

/* Blocks that each lacks: batch->lacking[] lists who, batch->kv[] how many. Under the lock. */
static int count_needs(struct kvp_batch *batch, const uint32_t *tokens, uint32_t *out_short,
		       uint32_t *out_need)
{
	uint32_t lacking = 0;
	uint32_t total = 0;
	uint32_t i, need;
	int ret;

	for (i = 0; i < batch->count; i++) {
		struct kvp_seq *seq = batch->seqs[i];

		if (seq->batch != batch->serial)
			return not_member(i);
		if (tokens_of(tokens, i) <= seq->reserved - seq->staged)
			continue;
		ret = kvc_reserve_check(seq, tokens_of(tokens, i), &need);
		if (ret)
			return ret;
		batch->lacking[lacking] = seq;
		batch->kv[lacking++] = need;
		total += need;
	}
	*out_short = lacking;
	*out_need = total;
	return 0;
}

int kvp_batch_reserve(struct kvp_batch *batch, const uint32_t *tokens)
{
	struct kvp_client *client = batch->client;
	uint32_t lacking = 0;
	uint32_t need = 0;
	int ret = kvc_enter(client);

	if (ret)
		return ret;
	read_inboxes(batch);
	pthread_mutex_lock(&client->lock);
	kvc_pump(client);
	ret = count_needs(batch, tokens, &lacking, &need);
	if (!ret && need > client->engine->lease.free_count)
		ret = kvc_reserve_fail(client->engine, need);
	if (!ret)
		kvc_reserve_append(batch->lacking, batch->kv, lacking);
	pthread_mutex_unlock(&client->lock);
	return ret;
}

/* ------------------------------------------------------------------ begin */

/* Makes the tail the block of position `staged`, which is reserved. */
static void find_tail(struct kvp_seq *seq)
{
	uint32_t index = seq->staged / seq->block_tokens;

	seq->tail_start = index * seq->block_tokens;
	seq->tail_pages = index + 1;
	seq->tail_id = seq->ids[index];
}

static void put_slot(const struct kvp_batch *batch, const struct kvc_slot *slot, uint32_t at, int64_t value)
{
	if (batch->slot_bytes == sizeof(int32_t))
		((int32_t *)slot->slot_mapping)[at] = (int32_t)value;
	else
		((int64_t *)slot->slot_mapping)[at] = value;
}

/* One token of each: the tail says where it goes, without a division. Returns the first sequence that is not ready, or count. */
static uint32_t gather_ones(struct kvp_batch *batch, const struct kvc_slot *slot, uint32_t timeline,
			    uint64_t step)
{
	uint32_t block_tokens = batch->block_tokens;
	uint32_t i;

	for (i = 0; i < batch->count; i++) {
		struct kvp_seq *seq = batch->seqs[i];
		uint32_t at = seq->staged;
		int other = (seq->last_timeline != timeline) | (seq->last_step > step);

		if ((at >= seq->reserved) | (seq->batch != batch->serial) | (seq->blocks > batch->width) |
		    other)
			break;
		if (!seq->tail_pages || at - seq->tail_start >= block_tokens)
			find_tail(seq);
		batch->kv[i] = at + 1;
		batch->now.stamp[i] = seq->stamp;
		batch->now.blocks[i] = seq->blocks;
		batch->now.pages[i] = seq->tail_pages;
		put_slot(batch, slot, i, (int64_t)seq->tail_id * block_tokens + (at - seq->tail_start));
		slot->n_valid[i] = (int32_t)kvc_valid_blocks(batch, at + 1);
	}
	return i;
}

static void gather_tokens(const struct kvp_batch *batch, const struct kvc_slot *slot,
			  const struct kvp_seq *seq, uint32_t count, uint32_t first)
{
	uint32_t index = seq->staged / batch->block_tokens;
	uint32_t offset = seq->staged % batch->block_tokens;
	uint32_t j;

	for (j = 0; j < count; j++) {
		put_slot(batch, slot, first + j, (int64_t)seq->ids[index] * batch->block_tokens + offset);
		slot->n_valid[first + j] = (int32_t)kvc_valid_blocks(batch, seq->staged + j + 1);
		if (++offset == batch->block_tokens) {
			offset = 0;
			index++;
		}
	}
}

/* Any count of each, from sequence `from` on. All were checked. */
static void gather(struct kvp_batch *batch, const struct kvc_slot *slot, const uint32_t *tokens)
{
	uint32_t all = 0;
	uint32_t i;

	for (i = 0; i < batch->count; i++) {
		const struct kvp_seq *seq = batch->seqs[i];
		uint32_t count = tokens_of(tokens, i);

		batch->kv[i] = seq->staged + count;
		batch->now.stamp[i] = seq->stamp;
		batch->now.blocks[i] = seq->blocks;
		batch->now.pages[i] = kvc_blocks_for(batch->kv[i], batch->block_tokens);
		gather_tokens(batch, slot, seq, count, all);
		all += count;
	}
}

/* Why a step can't begin: the whole of the checks, in order. */
static int check_all(const struct kvp_batch *batch, const uint32_t *tokens, uint32_t timeline, uint64_t step)
{
	uint64_t attended = 0;
	uint64_t all = 0;
	uint32_t i;
	int ret;

	for (i = 0; i < batch->count; i++) {
		const struct kvp_seq *seq = batch->seqs[i];

		if (seq->batch != batch->serial)
			return not_member(i);
		ret = kvc_stage_check(seq, tokens_of(tokens, i), timeline, step);
		if (ret)
			return ret;
		if (seq->blocks > batch->width)
			return kvc_fail(KVP_ELIMIT, "sequence %u has %u blocks, the batch is %u wide", i,
					seq->blocks, batch->width);
		all += tokens_of(tokens, i);
		attended += seq->staged + tokens_of(tokens, i);
	}
	if (all > batch->max_tokens)
		return kvc_fail(KVP_ELIMIT, "%llu query tokens, the batch was made for %u",
				(unsigned long long)all, batch->max_tokens);
	if (attended > INT32_MAX)
		return kvc_fail(KVP_ELIMIT, "%llu tokens in all do not fit cu_kv's 32 bits",
				(unsigned long long)attended);
	return 0;
}

/* Fills batch->now and the arrays that have an entry a token. Changes no sequence but for its tail. */
static int gather_all(struct kvp_batch *batch, const struct kvc_slot *slot, const uint32_t *tokens,
		      uint32_t timeline, uint64_t step)
{
	int ret;

	/* The common step needs no second look; whatever it stumbles over is then looked at in full. */
	if (!tokens && batch->count <= batch->max_tokens &&
	    (uint64_t)batch->count * batch->width * batch->block_tokens <= INT32_MAX &&
	    gather_ones(batch, slot, timeline, step) == batch->count)
		return 0;
	ret = check_all(batch, tokens, timeline, step);
	if (!ret)
		gather(batch, slot, tokens);
	return ret;
}

static void commit(struct kvp_batch *batch, uint32_t timeline, uint64_t step)
{
	uint32_t i;

	for (i = 0; i < batch->count; i++) {
		kvc_seq_launch(batch->seqs[i], batch->kv[i], timeline, step);
		batch->staged_mirror[batch->seqs[i]->row] = batch->kv[i];
	}
}

/* The next free slot in turn; with one timeline it is the one whose step is oldest. */
static int find_slot(const struct kvp_batch *batch, uint32_t *out)
{
	const struct kvc_engine *engine = batch->client->engine;
	uint32_t i, at;

	for (i = 0; i < batch->slots; i++) {
		at = (batch->next_slot + i) % batch->slots;
		if (batch->slot[at].step <= kvc_reached(engine, batch->slot[at].timeline)) {
			*out = at;
			return 0;
		}
	}
	return kvc_fail(KVP_ESLOTS, "all %u slots are in use: a step must end first, or attach with more",
			batch->slots);
}

static uint32_t longest(const struct kvp_batch *batch)
{
	uint32_t max = 0;
	uint32_t i;

	for (i = 0; i < batch->count; i++)
		max = batch->kv[i] > max ? batch->kv[i] : max;
	return max;
}

static void pad_tokens(const struct kvp_batch *batch, const struct kvc_slot *slot, uint32_t rows,
		       uint32_t tokens)
{
	uint32_t i;

	for (i = tokens - (rows - batch->count); i < tokens; i++) {
		put_slot(batch, slot, i, -1);
		slot->n_valid[i] = 0;
	}
}

static void fill_view(const struct kvp_batch *batch, const struct kvc_slot *slot, uint32_t tokens,
		      struct kvp_batch_view *out)
{
	*out = (struct kvp_batch_view){
		.slot = (uint32_t)(slot - batch->slot),
		.rows = kvc_batch_rows(batch),
		.tokens = tokens,
		.pages = slot->pages,
		.table_width = batch->width,
		.max_kv_len = longest(batch),
		.slot_bytes = batch->slot_bytes,
		.block_table = slot->block_table,
		.kv_lens = slot->kv_lens,
		.qo_lens = slot->qo_lens,
		.qo_offset = slot->qo_offset,
		.cu_q = slot->cu_q,
		.cu_kv = slot->cu_kv,
		.slot_mapping = slot->slot_mapping,
		.page_list = slot->page_list,
		.page_indptr = slot->page_indptr,
		.n_valid = slot->n_valid,
	};
}

int kvp_batch_begin(struct kvp_batch *batch, const uint32_t *tokens, uint32_t timeline, uint64_t step,
		    struct kvp_batch_view *out)
{
	struct kvp_batch_view view;
	struct kvc_slot *slot;
	uint32_t at = 0;
	uint32_t all;
	int ret = kvc_enter(batch->client);

	if (!ret)
		ret = kvc_step_check(timeline, step);
	if (!ret)
		ret = kvc_params_check(out, "kvp_batch_view");
	if (!ret)
		ret = find_slot(batch, &at);
	if (ret)
		return ret;
	slot = &batch->slot[at];
	read_inboxes(batch);
	ret = gather_all(batch, slot, tokens, timeline, step);
	if (ret)
		return ret;
	commit(batch, timeline, step);
	kvc_arrays_table(batch, slot);
	kvc_arrays_pages(batch, slot);
	all = kvc_arrays_lengths(batch, slot, tokens);
	pad_tokens(batch, slot, kvc_batch_rows(batch), all);
	slot->timeline = timeline;
	slot->step = step;
	batch->next_slot = (at + 1) % batch->slots;
	fill_view(batch, slot, all, &view);
	return kvc_params_write(out, &view, sizeof(view), "kvp_batch_view");
}

/* ------------------------------------------------------------------ settle */

static int check_settle(const struct kvp_batch *batch, const uint32_t *accepted, const uint32_t *tokens)
{
	uint32_t i;
	int ret;

	for (i = 0; i < batch->count; i++) {
		const struct kvp_seq *seq = batch->seqs[i];

		if (seq->batch != batch->serial)
			return not_member(i);
		ret = kvc_settle_check(seq, tokens_of(accepted, i), tokens != NULL);
		if (!ret)
			ret = kvc_settle_hashes_check(seq, tokens_of(accepted, i));
		if (ret)
			return ret;
	}
	return 0;
}

/* Lengths and tokens of all; batch->filled[] lists those in which a block became full. */
static uint32_t apply_settle(struct kvp_batch *batch, const uint32_t *accepted, const uint32_t *tokens,
			     uint32_t timeline, uint64_t step)
{
	uint32_t filled = 0;
	uint32_t i;

	for (i = 0; i < batch->count; i++) {
		struct kvp_seq *seq = batch->seqs[i];
		uint32_t count = tokens_of(accepted, i);
		bool last = seq->last_step == step && seq->last_timeline == timeline;

		kvc_settle_apply(seq, count, tokens, last);
		if (tokens)
			tokens += count;
		if (kvc_settle_is_full(seq->settled, seq->full_end))
			batch->filled[filled++] = i;
		kvc_mirror_lengths(seq);
	}
	return filled;
}

static int publish_filled(struct kvp_batch *batch, uint32_t filled, uint32_t timeline, uint64_t step)
{
	struct kvp_client *client = batch->client;
	uint32_t i;
	int failed = 0;

	for (i = 0; i < filled; i++)
		if (kvc_settle_hash(batch->seqs[batch->filled[i]]))
			failed = -EIO;
	pthread_mutex_lock(&client->lock);
	kvc_pump(client);
	for (i = 0; i < filled; i++)
		kvc_settle_publish(batch->seqs[batch->filled[i]], timeline, step);
	pthread_mutex_unlock(&client->lock);
	return failed;
}

int kvp_batch_settle(struct kvp_batch *batch, const uint32_t *accepted, const uint32_t *tokens,
		     uint32_t timeline, uint64_t step)
{
	uint32_t filled;
	int ret = kvc_enter(batch->client);

	if (!ret)
		ret = kvc_step_check(timeline, step);
	if (!ret)
		ret = check_settle(batch, accepted, tokens);
	if (ret)
		return ret;
	filled = apply_settle(batch, accepted, tokens, timeline, step);
	return filled ? publish_filled(batch, filled, timeline, step) : 0;
}
