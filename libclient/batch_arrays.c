/* SPDX-License-Identifier: Apache-2.0 */
#include "batch_arrays.h"

#include <string.h>

#include "client.h"

#include "batch.h"

static void fill(int32_t *at, int32_t value, uint32_t count)
{
	uint32_t i;

	for (i = 0; i < count; i++)
		at[i] = value;
}

void kvc_arrays_reset(const struct kvp_batch *batch, struct kvc_slot *slot)
{
	uint32_t i;

	for (i = 0; i < batch->max_seqs; i++)
		fill(slot->block_table + (uint64_t)i * batch->width, batch->pad_id, batch->width);
	memset(slot->had.stamp, 0, batch->max_seqs * sizeof(*slot->had.stamp));
	memset(slot->had.blocks, 0, batch->max_seqs * sizeof(*slot->had.blocks));
	memset(slot->had.pages, 0, batch->max_seqs * sizeof(*slot->had.pages));
	memset(slot->page_start, 0, ((size_t)batch->max_seqs + 1) * sizeof(*slot->page_start));
	memset(slot->page_indptr, 0, ((size_t)batch->max_seqs + 1) * sizeof(*slot->page_indptr));
	slot->pages = 0;
	slot->uniform_rows = 0;
}

/* ------------------------------------------------------------------ block table */

/* The row as it is, then padding as far as something else stood there. */
static void rewrite_row(const struct kvp_batch *batch, struct kvc_slot *slot, uint32_t i)
{
	int32_t *row = slot->block_table + (uint64_t)i * batch->width;
	uint32_t blocks = batch->now.blocks[i];
	uint32_t had = slot->had.blocks[i];

	if (blocks)
		memcpy(row, batch->seqs[i]->ids, blocks * sizeof(*row));
	if (had > blocks)
		fill(row + blocks, batch->pad_id, had - blocks);
}

static void grow_row(const struct kvp_batch *batch, struct kvc_slot *slot, uint32_t i)
{
	int32_t *row = slot->block_table + (uint64_t)i * batch->width;
	uint32_t j;

	for (j = slot->had.blocks[i]; j < batch->now.blocks[i]; j++)
		row[j] = batch->seqs[i]->ids[j];
}

void kvc_arrays_table(const struct kvp_batch *batch, struct kvc_slot *slot)
{
	uint32_t i;

	for (i = 0; i < batch->max_seqs; i++) {
		if (batch->now.stamp[i] != slot->had.stamp[i]) {
			rewrite_row(batch, slot, i);
		} else if (batch->now.blocks[i] > slot->had.blocks[i]) {
			grow_row(batch, slot, i);
		} else {
			continue;
		}
		slot->had.blocks[i] = batch->now.blocks[i];
	}
}

/* ------------------------------------------------------------------ page list */

static void copy_pages(const struct kvp_batch *batch, int32_t *to, uint32_t i, uint32_t from, uint32_t count)
{
	uint32_t j;

	for (j = 0; j < count; j++)
		to[j] = batch->seqs[i]->ids[from + j];
}

/* Everything from position `from` on. */
static void rebuild_pages(const struct kvp_batch *batch, struct kvc_slot *slot, uint32_t from)
{
	uint32_t at = slot->page_start[from];
	uint32_t i;

	for (i = from; i < batch->max_seqs; i++) {
		uint32_t pages = batch->now.pages[i];

		if (pages)
			memcpy(slot->page_list + at, batch->seqs[i]->ids, pages * sizeof(int32_t));
		slot->page_start[i] = at;
		slot->had.pages[i] = pages;
		at += pages;
	}
	slot->page_start[i] = at;
	slot->pages = at;
}

/*
 * Rows only grew: from the end, move each run of unchanged rows by what the rows before it have grown, then put the grown row's new ids
 * before it. changed[0..count) ascends.
 */
static void shift_pages(const struct kvp_batch *batch, struct kvc_slot *slot, uint32_t count)
{
	const uint32_t *changed = batch->changed;
	uint32_t end = slot->pages;
	uint32_t shift = 0;
	uint32_t j, i, grown, from;

	for (j = 0; j < count; j++)
		shift += batch->now.pages[changed[j]] - slot->had.pages[changed[j]];
	slot->pages += shift;
	for (j = count; j > 0; j--) {
		i = changed[j - 1];
		grown = batch->now.pages[i] - slot->had.pages[i];
		from = slot->page_start[i] + slot->had.pages[i];
		memmove(slot->page_list + from + shift, slot->page_list + from,
			(end - from) * sizeof(int32_t));
		shift -= grown;
		copy_pages(batch, slot->page_list + from + shift, i, slot->had.pages[i], grown);
		end = from;
	}
}

static void restart_pages(const struct kvp_batch *batch, struct kvc_slot *slot, uint32_t count)
{
	uint32_t shift = 0;
	uint32_t j, k;

	for (j = 0; j < count; j++) {
		uint32_t i = batch->changed[j];
		uint32_t until = j + 1 < count ? batch->changed[j + 1] : batch->max_seqs;

		shift += batch->now.pages[i] - slot->had.pages[i];
		slot->had.pages[i] = batch->now.pages[i];
		for (k = i + 1; k <= until; k++)
			slot->page_start[k] += shift;
	}
}

static void write_indptr(const struct kvp_batch *batch, struct kvc_slot *slot, uint32_t from)
{
	uint32_t i;

	for (i = from; i <= batch->max_seqs; i++)
		slot->page_indptr[i] = (int32_t)slot->page_start[i];
}

void kvc_arrays_pages(const struct kvp_batch *batch, struct kvc_slot *slot)
{
	uint32_t count = 0;
	uint32_t i;

	for (i = 0; i < batch->max_seqs; i++) {
		if (batch->now.stamp[i] == slot->had.stamp[i] && batch->now.pages[i] == slot->had.pages[i])
			continue;
		if (batch->now.stamp[i] != slot->had.stamp[i] || batch->now.pages[i] < slot->had.pages[i])
			break;
		batch->changed[count++] = i;
	}
	if (i < batch->max_seqs) {
		i = count ? batch->changed[0] : i;
		rebuild_pages(batch, slot, i);
		write_indptr(batch, slot, i);
	} else if (count) {
		shift_pages(batch, slot, count);
		restart_pages(batch, slot, count);
		write_indptr(batch, slot, batch->changed[0] + 1);
	}
	memcpy(slot->had.stamp, batch->now.stamp, batch->max_seqs * sizeof(*slot->had.stamp));
}

/* ------------------------------------------------------------------ lengths */

/* A padding row attends nothing and has one query token, whose slot is -1. */
static uint32_t pad_lengths(const struct kvp_batch *batch, struct kvc_slot *slot, uint32_t tokens)
{
	uint32_t rows = kvc_batch_rows(batch);
	uint32_t i;

	for (i = batch->count; i < rows; i++) {
		slot->kv_lens[i] = 0;
		slot->qo_lens[i] = 1;
		slot->qo_offset[i] = -1;
		slot->cu_q[i + 1] = (int32_t)++tokens;
		slot->cu_kv[i + 1] = slot->cu_kv[i];
	}
	return tokens;
}

static uint32_t lengths_of_ones(const struct kvp_batch *batch, struct kvc_slot *slot)
{
	uint32_t n = batch->count;
	int32_t sum = 0;
	uint32_t i;

	for (i = 0; i < n; i++)
		slot->kv_lens[i] = (int32_t)batch->kv[i];
	for (i = 0; i < n; i++)
		slot->qo_offset[i] = (int32_t)batch->kv[i] - 1;
	for (i = 0; i < n; i++) {
		slot->cu_kv[i] = sum;
		sum += (int32_t)batch->kv[i];
	}
	slot->cu_kv[n] = sum;
	if (slot->uniform_rows == n + 1)
		return n;
	fill(slot->qo_lens, 1, n);
	for (i = 0; i <= n; i++)
		slot->cu_q[i] = (int32_t)i;
	slot->uniform_rows = n + 1;
	return n;
}

uint32_t kvc_arrays_lengths(const struct kvp_batch *batch, struct kvc_slot *slot, const uint32_t *tokens)
{
	uint32_t all = 0;
	uint32_t i;

	if (!tokens)
		return pad_lengths(batch, slot, lengths_of_ones(batch, slot));
	slot->uniform_rows = 0;
	slot->cu_q[0] = slot->cu_kv[0] = 0;
	for (i = 0; i < batch->count; i++) {
		all += tokens[i];
		slot->kv_lens[i] = (int32_t)batch->kv[i];
		slot->qo_lens[i] = (int32_t)tokens[i];
		slot->qo_offset[i] = (int32_t)(batch->kv[i] - tokens[i]);
		slot->cu_q[i + 1] = (int32_t)all;
		slot->cu_kv[i + 1] = slot->cu_kv[i] + slot->kv_lens[i];
	}
	return pad_lengths(batch, slot, all);
}
