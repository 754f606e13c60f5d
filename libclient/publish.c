/* SPDX-License-Identifier: Apache-2.0 */
#include "publish.h"

#include <errno.h>
#include <string.h>

#include "ipc/hash.h"

#include "client.h"
#include "close.h"
#include "error.h"
#include "extend.h"
#include "mirror.h"
#include "post.h"
#include "pump.h"
#include "rows.h"

int kvc_publish_hash(struct kvp_seq *seq, uint32_t from, uint32_t to)
{
	const struct kvc_row *cold = kvc_seq_row(seq);
	uint8_t *hashes = kvc_row_hashes(seq->client, seq->row);
	uint32_t i;
	int ret;

	for (i = from; i < to; i++) {
		const uint8_t *parent = i ? hashes + (uint64_t)(i - 1) * KVW_SHA256_BYTES : NULL;

		ret = kvw_hash_block(cold->hasher, parent, seq->tokens + (uint64_t)i * seq->block_tokens,
				     seq->block_tokens, cold->extras, cold->extra_count,
				     hashes + (uint64_t)i * KVW_SHA256_BYTES);
		if (ret)
			return kvc_fail(EIO, "OpenSSL failed to hash block %u of a sequence", i);
	}
	return 0;
}

/* The next blocks that one record can name: consecutive ones of one timeline, at the latest of their steps. */
static uint32_t next_run(const struct kvc_row *cold, const struct kvc_cell *cells, struct kvw_request *record)
{
	uint32_t i = cold->posted;

	record->timeline = cells[i].timeline;
	record->step = 0;
	for (; i < cold->full && cells[i].timeline == record->timeline; i++)
		if (record->step < cells[i].step)
			record->step = cells[i].step;
	return i - cold->posted;
}

void kvc_publish_post(struct kvp_client *client, uint32_t row)
{
	struct kvc_engine *engine = client->engine;
	struct kvc_row *cold = &engine->rows[row];
	const struct kvc_cell *cells = kvc_row_cells(client, row);
	struct kvw_request record = {.type = KVW_REQUEST_PUBLISH, .row = row, .hold = cold->hold};

	while (!cold->stopped && cold->posted < cold->full) {
		record.first = cold->posted;
		record.count = next_run(cold, cells, &record);
		if (kvc_post_asking(client, &record)) {
			kvc_owe(client, row, KVC_OWES_PUBLISH);
			break;
		}
		cold->posted += record.count;
		cold->pending++;
		if (engine->published[record.timeline] < record.step)
			engine->published[record.timeline] = record.step;
	}
	kvc_mirror_committed(engine, row, cold->posted);
}

void kvc_publish_full(struct kvp_client *client, uint32_t row, uint32_t to, uint32_t timeline, uint64_t step)
{
	struct kvc_row *cold = &client->engine->rows[row];
	struct kvc_cell *cells = kvc_row_cells(client, row);

	for (; cold->full < to; cold->full++) {
		cells[cold->full].timeline = (uint8_t)timeline;
		cells[cold->full].step = step;
	}
	if (!cold->owes)
		kvc_publish_post(client, row);
}

/* ------------------------------------------------------------------ answers */

/* Whether a position of a publish was a duplicate; then of which block. */
static int read_duplicate(struct kvp_client *client, const struct kvw_answer *answer, struct kvw_answer *out)
{
	int ret;

	*out = kvc_load_answer(answer);
	if (!(out->flags & KVW_ANSWER_DUPLICATE))
		return 0;
	ret = kvc_lease_check_foreign(client, out->id, out->generation,
				      "a canonical block that is not the pool's");
	return ret ? ret : 1;
}

static void note_duplicate(struct kvc_row *cold, struct kvc_cell *cell, uint32_t index,
			   const struct kvw_answer *duplicate)
{
	cell->flags |= KVC_CELL_DUPLICATE;
	cell->canonical_id = duplicate->id;
	cell->canonical_generation = duplicate->generation;
	cell->writer = duplicate->writer;
	cold->duplicates++;
	if (!cold->swaps++ || cold->swap_first > index)
		cold->swap_first = index;
}

static void note_published(struct kvp_client *client, uint32_t row, uint32_t index,
			   const struct kvw_answer *duplicate)
{
	struct kvc_cell *cell = &kvc_row_cells(client, row)[index];

	cell->flags |= KVC_CELL_PUBLISHED;
	if (duplicate)
		note_duplicate(&client->engine->rows[row], cell, index, duplicate);
	else
		kvc_lease_forget(client->engine, cell->id);
}

static int note_position(struct kvp_client *client, uint32_t row, uint32_t index,
			 const struct kvw_answer *answer, uint32_t *duplicates)
{
	struct kvw_answer duplicate;
	int ret = read_duplicate(client, answer, &duplicate);

	if (ret < 0)
		return ret;
	*duplicates += (uint32_t)ret;
	note_published(client, row, index, ret ? &duplicate : NULL);
	return 0;
}

/* From the first refused block on, all stay private. Publishes on their way will be refused too: each names the length that the hold should have. */
static void note_refusal(struct kvp_client *client, uint32_t row, uint32_t published_end, int status)
{
	struct kvc_row *cold = &client->engine->rows[row];

	if (!cold->status)
		cold->status = status;
	cold->stopped = true;
	cold->posted = kvc_min(cold->posted, published_end);
	kvc_mirror_committed(client->engine, row, cold->posted);
	kvc_note(client->engine, row, KVC_INBOX_REFUSED);
}

static void after_answer(struct kvp_client *client, uint32_t row)
{
	struct kvc_row *cold = &client->engine->rows[row];

	if (cold->swaps)
		kvc_note(client->engine, row, KVC_INBOX_DUPLICATE);
	if (!cold->pending)
		kvc_close_advance(client, row);
}

static int note_positions(struct kvp_client *client, const struct kvc_op *op, uint32_t count,
			  uint32_t *duplicates)
{
	const struct kvw_answer *answers = kvc_op_answers(client->engine, op);
	uint32_t i;
	int ret = 0;

	for (i = 0; !ret && i < count; i++)
		ret = note_position(client, op->row, op->first + i, &answers[i], duplicates);
	return ret;
}

int kvc_publish_answer(struct kvp_client *client, const struct kvc_op *op,
		       const struct kvw_completion *completion)
{
	struct kvc_engine *engine = client->engine;
	struct kvc_row *cold = &engine->rows[op->row];
	uint32_t done = completion->granted;
	uint32_t duplicates = 0;
	int ret;

	if (done > op->count || completion->matched > done || (!completion->status && done != op->count))
		return kvc_break(client, "a PUBLISH answer with impossible counts");
	cold->pending--;
	ret = note_positions(client, op, done, &duplicates);
	if (ret)
		return ret;
	if (duplicates != completion->matched)
		return kvc_break(client, "a PUBLISH answer with another count of duplicates than it lists");
	cold->acked += done;
	if (completion->status)
		note_refusal(client, op->row, op->first + done, completion->status);
	after_answer(client, op->row);
	return 0;
}

/* ------------------------------------------------------------------ canonical copies */

/*
 * The row's own copy goes, the canonical one takes its place: complete, and referenced by the hold since the publish. Batch slots of
 * steps that run still name the own copy, which is free again when the last of them is done.
 */
static void swap_one(struct kvp_seq *seq, struct kvc_cell *cell, uint32_t index)
{
	kvc_lease_give(kvc_seq_engine(seq), cell->id, seq->last_timeline, seq->last_step);
	kvc_row_put(seq->client, seq->row, index, cell->canonical_id, cell->canonical_generation);
	cell->flags &= (uint16_t)~KVC_CELL_DUPLICATE;
}

static bool is_canonical_complete(const struct kvc_engine *engine, const struct kvc_cell *cell)
{
	return kvc_block_word(engine, cell->canonical_id) ==
	       kvw_block_word(cell->canonical_generation, KVW_BLOCK_CACHED);
}

static void converge(struct kvp_seq *seq)
{
	struct kvc_engine *engine = kvc_seq_engine(seq);
	struct kvc_row *cold = kvc_seq_row(seq);
	struct kvc_cell *cells = kvc_row_cells(seq->client, seq->row);
	uint32_t before = cold->swaps;
	uint32_t i;

	for (i = cold->swap_first; cold->swaps && i < cold->acked; i++) {
		if (!(cells[i].flags & KVC_CELL_DUPLICATE))
			continue;
		/* In order: a block is complete no earlier than those before it. */
		if (!is_canonical_complete(engine, &cells[i]))
			break;
		swap_one(seq, &cells[i], i);
		cold->swaps--;
	}
	cold->swap_first = i;
	if (cold->swaps == before)
		return;
	seq->stamp = ++engine->stamp;
	kvc_seq_find_tail(seq);
}

void kvc_read_inbox(struct kvp_seq *seq)
{
	struct kvp_client *client = seq->client;
	struct kvc_row *cold = kvc_seq_row(seq);
	uint8_t notes;

	pthread_mutex_lock(&client->lock);
	notes = atomic_load_explicit(&seq->inbox, memory_order_relaxed);
	if (notes & KVC_INBOX_EXTENDED)
		kvc_extend_take(seq);
	if (notes & KVC_INBOX_REFUSED)
		kvc_fail(cold->status,
			 "a publish of row %u was refused (%s): nothing more of it is published", seq->row,
			 kvp_error_text(cold->status));
	/* Entries below staged stay while steps run that read the row; the note stays with them. */
	if (cold->swaps && kvc_reached(client->engine, seq->last_timeline) >= seq->row_step)
		converge(seq);
	atomic_store_explicit(&seq->inbox, cold->swaps ? KVC_INBOX_DUPLICATE : 0, memory_order_relaxed);
	pthread_mutex_unlock(&client->lock);
}

int kvc_enter_seq_and_read(struct kvp_seq *seq)
{
	int ret = kvc_enter_seq(seq);

	if (!ret && atomic_load_explicit(&seq->inbox, memory_order_relaxed))
		kvc_read_inbox(seq);
	return ret;
}
