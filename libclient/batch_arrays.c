/* SPDX-License-Identifier: Apache-2.0 */
#include "batch_arrays.h"

#include <string.h>

#include "batch.h"
#include "client.h"

static void fill(int32_t *at, int32_t value, uint32_t count)
{
	uint32_t i;

	for (i = 0; i < count; i++)
		at[i] = value;
}

static int32_t *table_row(const struct kvp_batch *batch, const struct kvc_slot *slot, uint32_t i)
{
	return slot->block_table + (uint64_t)i * batch->width;
}

void kvc_arrays_reset(const struct kvp_batch *batch, struct kvc_slot *slot)
{
	uint32_t i;

	for (i = 0; i < batch->max_seqs; i++)
		fill(table_row(batch, slot, i), batch->pad_id, batch->width);
	/* `had` and page_start[] come zeroed, and count only below slot->rows. */
	memset(slot->page_indptr, 0, ((size_t)batch->max_seqs + 1) * sizeof(*slot->page_indptr));
}

/* ------------------------------------------------------------------ block table */

/* The row as it is, then padding as far as something else stood there. */
static void rewrite_row(const struct kvp_batch *batch, struct kvc_slot *slot, uint32_t i)
{
	const struct kvp_seq *seq = batch->seqs[i];
	int32_t *row = table_row(batch, slot, i);

	if (seq->blocks)
		memcpy(row, seq->ids, seq->blocks * sizeof(*row));
	if (slot->had[i].blocks > seq->blocks)
		fill(row + seq->blocks, batch->pad_id, slot->had[i].blocks - seq->blocks);
}

static void grow_row(const struct kvp_batch *batch, struct kvc_slot *slot, uint32_t i)
{
	const struct kvp_seq *seq = batch->seqs[i];
	int32_t *row = table_row(batch, slot, i);
	uint32_t j;

	for (j = slot->had[i].blocks; j < seq->blocks; j++)
		row[j] = seq->ids[j];
}

static void update_table(const struct kvp_batch *batch, struct kvc_slot *slot, uint32_t changed)
{
	uint32_t j;

	for (j = 0; j < changed; j++) {
		uint32_t i = batch->changed[j];

		if (batch->seqs[i]->stamp == slot->had[i].stamp)
			grow_row(batch, slot, i);
		else
			rewrite_row(batch, slot, i);
		slot->had[i].blocks = batch->seqs[i]->blocks;
	}
}

/* Rows that were sequences and are padding now. */
static void drop_rows(const struct kvp_batch *batch, struct kvc_slot *slot)
{
	uint32_t i;

	for (i = batch->count; i < slot->rows; i++) {
		fill(table_row(batch, slot, i), batch->pad_id, slot->had[i].blocks);
		slot->had[i] = (struct kvc_position){0};
	}
}

/* ------------------------------------------------------------------ page list */

static bool grew(const struct kvp_batch *batch, const struct kvc_slot *slot, uint32_t i)
{
	return batch->seqs[i]->stamp == slot->had[i].stamp && batch->pages[i] >= slot->had[i].pages;
}

static bool only_grew(const struct kvp_batch *batch, const struct kvc_slot *slot, uint32_t changed)
{
	uint32_t j;

	for (j = 0; j < changed; j++)
		if (!grew(batch, slot, batch->changed[j]))
			return false;
	return true;
}

/* Everything from position `from` on. */
static void rebuild_pages(const struct kvp_batch *batch, struct kvc_slot *slot, uint32_t from)
{
	uint32_t at = slot->page_start[from];
	uint32_t i;

	for (i = from; i < batch->count; i++) {
		uint32_t pages = batch->pages[i];

		memcpy(slot->page_list + at, batch->seqs[i]->ids, pages * sizeof(int32_t));
		slot->page_start[i] = at;
		slot->had[i].pages = pages;
		at += pages;
	}
	slot->page_start[i] = at;
}

/* Puts the ids of a row's new pages, [from, to) of the row. */
static void put_pages(int32_t *list, const struct kvp_seq *seq, uint32_t from, uint32_t to)
{
	uint32_t j;

	for (j = from; j < to; j++)
		*list++ = seq->ids[j];
}

static uint32_t growth(const struct kvp_batch *batch, const struct kvc_slot *slot, uint32_t changed)
{
	uint32_t sum = 0;
	uint32_t j;

	for (j = 0; j < changed; j++)
		sum += batch->pages[batch->changed[j]] - slot->had[batch->changed[j]].pages;
	return sum;
}

/*
 * Rows only grew: from the end, move each run of unchanged rows by what the rows before it have grown, then put the grown row's new ids
 * before it.
 */
static void shift_pages(const struct kvp_batch *batch, struct kvc_slot *slot, uint32_t changed)
{
	uint32_t shift = growth(batch, slot, changed);
	uint32_t end = slot->page_start[batch->count];
	uint32_t j;

	for (j = changed; j > 0 && shift; j--) {
		uint32_t i = batch->changed[j - 1];
		uint32_t had = slot->had[i].pages;
		int32_t *run = slot->page_list + slot->page_start[i] + had;

		memmove(run + shift, run, (end - slot->page_start[i] - had) * sizeof(*run));
		end = slot->page_start[i] + had;
		shift -= batch->pages[i] - had;
		put_pages(run + shift, batch->seqs[i], had, batch->pages[i]);
	}
}

/* And where each row's pages begin then. */
static void shift_starts(const struct kvp_batch *batch, struct kvc_slot *slot, uint32_t changed)
{
	uint32_t shift = 0;
	uint32_t j, k;

	for (j = 0; j < changed; j++) {
		uint32_t i = batch->changed[j];
		uint32_t until = j + 1 < changed ? batch->changed[j + 1] : batch->count;

		shift += batch->pages[i] - slot->had[i].pages;
		slot->had[i].pages = batch->pages[i];
		for (k = i + 1; shift && k <= until; k++)
			slot->page_start[k] += shift;
	}
}

static void update_pages(const struct kvp_batch *batch, struct kvc_slot *slot, uint32_t changed)
{
	if (only_grew(batch, slot, changed)) {
		shift_pages(batch, slot, changed);
		shift_starts(batch, slot, changed);
	} else {
		rebuild_pages(batch, slot, batch->changed[0]);
	}
}

/* Padding rows have no pages. */
static void write_indptr(const struct kvp_batch *batch, struct kvc_slot *slot, uint32_t from)
{
	uint32_t end = kvc_batch_rows(batch);
	uint32_t i;

	for (i = from; i < batch->count; i++)
		slot->page_indptr[i] = (int32_t)slot->page_start[i];
	for (; i <= end; i++)
		slot->page_indptr[i] = (int32_t)slot->page_start[batch->count];
}

void kvc_arrays_rows(const struct kvp_batch *batch, struct kvc_slot *slot, uint32_t changed)
{
	uint32_t j;

	if (!changed && slot->rows == batch->count)
		return;
	drop_rows(batch, slot);
	update_table(batch, slot, changed);
	if (changed)
		update_pages(batch, slot, changed);
	write_indptr(batch, slot, changed ? batch->changed[0] : batch->count);
	for (j = 0; j < changed; j++)
		slot->had[batch->changed[j]].stamp = batch->seqs[batch->changed[j]]->stamp;
	slot->rows = batch->count;
}

/* ------------------------------------------------------------------ lengths */

static void write_ones(const struct kvp_batch *batch, struct kvc_slot *slot)
{
	uint32_t i;

	fill(slot->qo_lens, 1, batch->count);
	for (i = 0; i <= batch->count; i++)
		slot->cu_q[i] = (int32_t)i;
	slot->ones = batch->count + 1;
}

static void ones(const struct kvp_batch *batch, struct kvc_slot *slot)
{
	uint32_t i;

	for (i = 0; i < batch->count; i++)
		slot->qo_offset[i] = (int32_t)batch->kv[i] - 1;
	if (slot->ones != batch->count + 1)
		write_ones(batch, slot);
}

static void any(const struct kvp_batch *batch, struct kvc_slot *slot, const uint32_t *tokens)
{
	uint32_t i;

	slot->ones = 0;
	slot->cu_q[0] = 0;
	for (i = 0; i < batch->count; i++) {
		slot->qo_lens[i] = (int32_t)tokens[i];
		slot->qo_offset[i] = (int32_t)(batch->kv[i] - tokens[i]);
		slot->cu_q[i + 1] = slot->cu_q[i] + (int32_t)tokens[i];
	}
}

uint32_t kvc_arrays_pad(const struct kvp_batch *batch, struct kvc_slot *slot, uint32_t first, uint32_t end,
			uint32_t tokens, uint32_t attended)
{
	uint32_t i;

	for (i = first; i < end; i++) {
		slot->kv_lens[i] = 0;
		slot->qo_lens[i] = 1;
		slot->qo_offset[i] = -1;
		kvc_put_slot(batch, slot, tokens, -1);
		slot->n_valid[tokens] = 0;
		slot->cu_q[i + 1] = (int32_t)++tokens;
		slot->cu_kv[i + 1] = (int32_t)attended;
	}
	return tokens;
}

uint32_t kvc_arrays_lengths(const struct kvp_batch *batch, struct kvc_slot *slot, const uint32_t *tokens,
			    uint32_t count)
{
	uint32_t attended = 0;
	uint32_t i;

	if (tokens)
		any(batch, slot, tokens);
	else
		ones(batch, slot);
	for (i = 0; i < batch->count; i++)
		slot->kv_lens[i] = (int32_t)batch->kv[i];
	for (i = 0; i < batch->count; i++) {
		slot->cu_kv[i] = (int32_t)attended;
		attended += batch->kv[i];
	}
	slot->cu_kv[i] = (int32_t)attended;
	return kvc_arrays_pad(batch, slot, batch->count, kvc_batch_rows(batch), count, attended);
}
