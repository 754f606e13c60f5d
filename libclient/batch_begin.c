/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Beginning a step. One pass reads the sequences, checks them and writes what has an entry a row or a token into a free slot; only when
 * it has come through all of them a second one stages them. What stays from step to step, table and page list, is then brought up to date
 * where the first pass has seen a difference.
 */
#include <errno.h>
#include <string.h>

#include "batch.h"
#include "batch_arrays.h"
#include "client.h"
#include "coming.h"
#include "error.h"
#include "mirror.h"
#include "params.h"
#include "reserve.h"
#include "stage_cuda.h"

struct gathered {
	uint32_t changed; /* entries of batch->changed[] */
	uint32_t tokens;  /* query tokens */
};

/* Makes the tail the block of position `staged`, which is reserved. */
static void find_tail(struct kvp_seq *seq)
{
	uint32_t index = seq->staged / seq->block_tokens;

	seq->tail_start = index * seq->block_tokens;
	seq->tail_pages = index + 1;
	seq->tail_id = seq->ids[index];
}

/*
 * Notes what a row's step comes to, `kv` tokens in `pages` blocks. 1 when its row or list differs from what the slot has: then
 * changed[at] names it.
 */
static inline uint32_t put_row(const struct kvp_batch *batch, const struct kvc_slot *slot, uint32_t i,
			       uint32_t kv, uint32_t pages, uint32_t at)
{
	const struct kvp_seq *seq = batch->seqs[i];
	const struct kvc_position *had = &slot->had[i];

	batch->kv[i] = kv;
	batch->pages[i] = pages;
	batch->changed[at] = i;
	return (seq->stamp != had->stamp) | (seq->blocks != had->blocks) | (pages != had->pages);
}

static void put_valid(const struct kvp_batch *batch, const struct kvc_slot *slot)
{
	uint32_t i;

	if (batch->valid_tokens == batch->block_tokens)
		memcpy(slot->n_valid, batch->pages, batch->count * sizeof(*slot->n_valid));
	else
		for (i = 0; i < batch->count; i++)
			slot->n_valid[i] = (int32_t)kvc_valid_blocks(batch, batch->kv[i]);
}

/* One token of each: the tail says where it goes, without a division. Whether every sequence is ready. */
static bool gather_ones(const struct kvp_batch *batch, const struct kvc_slot *slot, const struct kvc_use *use,
			struct gathered *out)
{
	uint32_t block_tokens = batch->block_tokens;
	uint32_t changed = 0;
	uint32_t i;

	for (i = 0; i < batch->count; i++) {
		struct kvp_seq *seq = batch->seqs[i];
		uint32_t at = seq->staged;

		if ((at >= seq->reserved) | (seq->blocks > batch->width) |
		    (seq->last_timeline != use->timeline) | (seq->last_step > use->step) | seq->coming)
			return false;
		if (!seq->tail_pages || at - seq->tail_start >= block_tokens)
			find_tail(seq);
		kvc_put_slot(batch, slot, i, (int64_t)seq->tail_id * block_tokens + (at - seq->tail_start));
		changed += put_row(batch, slot, i, at + 1, seq->tail_pages, changed);
	}
	put_valid(batch, slot);
	*out = (struct gathered){.changed = changed, .tokens = batch->count};
	return true;
}

static void gather_tokens(const struct kvp_batch *batch, const struct kvc_slot *slot,
			  const struct kvp_seq *seq, uint32_t count, uint32_t first)
{
	uint32_t index = seq->staged / batch->block_tokens;
	uint32_t offset = seq->staged % batch->block_tokens;
	uint32_t j;

	for (j = 0; j < count; j++) {
		kvc_put_slot(batch, slot, first + j, (int64_t)seq->ids[index] * batch->block_tokens + offset);
		slot->n_valid[first + j] = (int32_t)kvc_valid_blocks(batch, seq->staged + j + 1);
		if (++offset == batch->block_tokens) {
			offset = 0;
			index++;
		}
	}
}

/* Any count of each. All were checked. */
static void gather(const struct kvp_batch *batch, const struct kvc_slot *slot, const uint32_t *tokens,
		   struct gathered *out)
{
	uint32_t i;

	*out = (struct gathered){0};
	for (i = 0; i < batch->count; i++) {
		const struct kvp_seq *seq = batch->seqs[i];
		uint32_t count = kvc_tokens_of(tokens, i);
		uint32_t kv = seq->staged + count;

		gather_tokens(batch, slot, seq, count, out->tokens);
		out->tokens += count;
		out->changed +=
			put_row(batch, slot, i, kv, kvc_blocks_for(kv, batch->block_tokens), out->changed);
	}
}

static int check_totals(const struct kvp_batch *batch, uint64_t tokens, uint64_t attended)
{
	if (tokens > batch->max_tokens)
		return kvc_fail(KVP_ELIMIT, "%llu query tokens, the batch was made for %u: raise max_tokens",
				(unsigned long long)tokens, batch->max_tokens);
	if (attended > INT32_MAX)
		return kvc_fail(KVP_ELIMIT, "%llu tokens in all do not fit cu_kv's 32 bits: split the batch",
				(unsigned long long)attended);
	return 0;
}

/* Why a step can't begin: the whole of the checks, in order. */
static int check_all(const struct kvp_batch *batch, const uint32_t *tokens, const struct kvc_use *use)
{
	uint64_t attended = 0;
	uint64_t all = 0;
	uint32_t i;
	int ret;

	for (i = 0; i < batch->count; i++) {
		const struct kvp_seq *seq = batch->seqs[i];

		ret = kvc_stage_check(seq, kvc_tokens_of(tokens, i), use->timeline, use->step);
		if (ret)
			return ret;
		if (seq->blocks > batch->width)
			return kvc_fail(KVP_ELIMIT,
					"sequence %u has %u blocks, the batch is %u wide: raise "
					"kvp_batch_params.width",
					i, seq->blocks, batch->width);
		all += kvc_tokens_of(tokens, i);
		attended += seq->staged + kvc_tokens_of(tokens, i);
	}
	return check_totals(batch, all, attended);
}

/* Whether no count of tokens that one each may come to is too much for the slot. */
static bool ones_fit(const struct kvp_batch *batch)
{
	return batch->count <= batch->max_tokens &&
	       (uint64_t)batch->count * batch->width * batch->block_tokens <= INT32_MAX;
}

/* Changes no sequence but for its tail. */
static int gather_all(struct kvp_batch *batch, struct kvc_slot *slot, const uint32_t *tokens,
		      const struct kvc_use *use, struct gathered *out)
{
	int ret;

	/* The common step needs no second look; whatever it stumbles over is then looked at in full. */
	if (!tokens && ones_fit(batch) && gather_ones(batch, slot, use, out))
		return 0;
	ret = check_all(batch, tokens, use);
	if (!ret)
		gather(batch, slot, tokens, out);
	return ret;
}

static void launch(const struct kvp_batch *batch, const struct kvc_use *use)
{
	uint32_t i;

	for (i = 0; i < batch->count; i++) {
		struct kvp_seq *seq = batch->seqs[i];

		kvc_seq_launch(seq, batch->kv[i], use->timeline, use->step);
		batch->staged_mirror[seq->row] = batch->kv[i];
	}
}

/* The next free slot in turn; with one timeline it is the one whose step is oldest. */
static int find_slot(const struct kvp_batch *batch, uint32_t *out)
{
	uint32_t i, at;

	for (i = 0; i < batch->slots; i++) {
		at = (batch->next_slot + i) % batch->slots;
		if (kvc_slot_is_free(batch->client->engine, &batch->slot[at])) {
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

static void fill_view(const struct kvp_batch *batch, const struct kvc_slot *slot, uint32_t tokens,
		      struct kvp_batch_view *out)
{
	*out = (struct kvp_batch_view){
		.slot = (uint32_t)(slot - batch->slot),
		.rows = kvc_batch_rows(batch),
		.tokens = tokens,
		.pages = slot->page_start[batch->count],
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

/* The members, whose rows the arrays are copies of, may be others when the step is staged. */
static void keep_for_staging(struct kvp_batch *batch, struct kvc_slot *slot,
			     const struct kvp_batch_view *view)
{
	struct kvc_awaits *awaits = &batch->client->engine->staging->awaits;
	uint32_t i;

	awaits->count = 0;
	awaits->more = false;
	for (i = 0; i < batch->count; i++) {
		slot->row_of[i] = batch->seqs[i]->row;
		if (batch->seqs[i]->coming)
			kvc_coming_collect(batch->seqs[i], awaits);
	}
	slot->view = *view;
	kvc_stage_note(batch->client->engine->staging, view);
	batch->begun = slot;
}

static int check_begin(const struct kvp_batch *batch, const struct kvc_use *use,
		       const struct kvp_batch_view *out)
{
	int ret = kvc_batch_check(batch);

	if (!ret)
		ret = kvc_step_check(use->timeline, use->step);
	return ret ? ret : kvc_params_check(out, "kvp_batch_view");
}

int kvp_batch_begin(struct kvp_batch *batch, const uint32_t *tokens, uint32_t timeline, uint64_t step,
		    struct kvp_batch_view *out)
{
	const struct kvc_use use = {.timeline = timeline, .step = step};
	struct kvp_batch_view view;
	struct gathered gathered;
	struct kvc_slot *slot;
	uint32_t at = 0;
	uint32_t all;
	int ret = check_begin(batch, &use, out);

	if (!ret)
		ret = find_slot(batch, &at);
	if (ret)
		return ret;
	slot = &batch->slot[at];
	kvc_batch_read_inboxes(batch);
	ret = gather_all(batch, slot, tokens, &use, &gathered);
	if (ret)
		return ret;
	launch(batch, &use);
	kvc_arrays_rows(batch, slot, gathered.changed);
	all = kvc_arrays_lengths(batch, slot, tokens, gathered.tokens);
	slot->use = use;
	slot->staged = 0;
	batch->next_slot = (at + 1) % batch->slots;
	fill_view(batch, slot, all, &view);
	if (batch->staging)
		keep_for_staging(batch, slot, &view);
	return kvc_params_write(out, &view, sizeof(view), "kvp_batch_view");
}
