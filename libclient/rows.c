/* SPDX-License-Identifier: Apache-2.0 */
#include "rows.h"

#include <stddef.h>
#include <string.h>

#include "client.h"
#include "error.h"
#include "mirror.h"

static void reset_seq(struct kvp_seq *seq, uint64_t stamp)
{
	seq->stamp = stamp;
	seq->last_step = seq->row_step = 0;
	seq->last_timeline = 0;
	seq->staged = seq->settled = seq->known = seq->prompt = 0;
	seq->tail_start = seq->tail_pages = seq->member = 0;
	seq->full_end = seq->block_tokens;
	seq->coming = 0;
	atomic_store_explicit(&seq->inbox, 0, memory_order_relaxed);
	kvc_row_set_blocks(seq, 0);
}

static void reset_row(struct kvc_row *cold)
{
	struct kvw_hasher *hasher = cold->hasher;

	memset(cold, 0, offsetof(struct kvc_row, extras));
	cold->hasher = hasher;
	cold->owed_next = cold->open_next = -1;
}

static struct kvp_seq *take_row(struct kvc_engine *engine)
{
	uint32_t row = engine->free_rows[--engine->free_row_count];
	struct kvp_seq *seq = &engine->seqs[row];

	engine->open_seqs++;
	reset_row(&engine->rows[row]);
	reset_seq(seq, ++engine->stamp);
	seq->state = KVC_ROW_OPENING;
	return seq;
}

int kvc_row_claim(struct kvp_client *client, struct kvp_seq **out)
{
	struct kvc_engine *engine = client->engine;

	if (engine->open_seqs >= engine->max_seqs)
		return kvc_fail(
			KVP_ELIMIT,
			"%u sequences are open, the most that max_seqs allows: close one, or raise it",
			engine->open_seqs);
	if (!engine->free_row_count)
		return kvc_fail(
			KVP_EBACKLOG,
			"all %u rows are in use: closed sequences still wait for the daemon's last answers",
			engine->tables_params.rows);
	*out = take_row(engine);
	return 0;
}

void kvc_row_free(struct kvp_client *client, uint32_t row)
{
	struct kvc_engine *engine = client->engine;

	engine->seqs[row].state = KVC_ROW_FREE;
	engine->free_rows[engine->free_row_count++] = row;
}

void kvc_row_put(struct kvp_client *client, uint32_t row, uint32_t index, int32_t id, uint64_t generation)
{
	struct kvc_cell *cell = &kvc_row_cells(client, row)[index];

	cell->id = id;
	cell->generation = generation;
	client->engine->seqs[row].ids[index] = id;
	kvc_row_generations(client, row)[index] = generation;
}

void kvc_row_set(struct kvp_client *client, uint32_t row, uint32_t index, int32_t id, uint64_t generation,
		 uint16_t flags, uint64_t writer)
{
	struct kvc_cell *cell = &kvc_row_cells(client, row)[index];

	cell->flags = flags;
	cell->writer = writer;
	kvc_row_put(client, row, index, id, generation);
}

int kvc_row_grant(struct kvp_client *client, uint32_t row, uint32_t index, const struct kvw_answer *answer)
{
	int ret = kvc_lease_adopt(client, answer->id, answer->generation);

	if (!ret)
		kvc_row_set(client, row, index, answer->id, answer->generation, 0, client->session);
	return ret;
}

void kvc_row_set_blocks(struct kvp_seq *seq, uint32_t blocks)
{
	seq->blocks = blocks;
	seq->reserved = blocks * seq->block_tokens;
	kvc_mirror_lengths(seq);
}

void kvc_row_append(struct kvp_seq *seq, uint32_t count)
{
	uint64_t generation = 0;
	uint32_t i;

	for (i = seq->blocks; i < seq->blocks + count; i++) {
		int32_t id = kvc_lease_take(kvc_seq_engine(seq), &generation);

		kvc_row_set(seq->client, seq->row, i, id, generation, 0, seq->client->session);
	}
	kvc_row_set_blocks(seq, i);
}

static bool is_pools(const struct kvc_cell *cell)
{
	return cell->flags & (KVC_CELL_MATCHED | KVC_CELL_PUBLISHED) && !(cell->flags & KVC_CELL_DUPLICATE);
}

void kvc_row_give(struct kvp_seq *seq, uint32_t index)
{
	const struct kvc_cell *cell = &kvc_row_cells(seq->client, seq->row)[index];

	if (!is_pools(cell))
		kvc_lease_give(kvc_seq_engine(seq), cell->id, seq->last_timeline, seq->last_step);
}

bool kvc_row_frees_from(const struct kvp_seq *seq, uint32_t from)
{
	const struct kvc_cell *cells = kvc_row_cells(seq->client, seq->row);
	uint32_t i;

	if (kvc_reached(kvc_seq_engine(seq), seq->last_timeline) < seq->last_step)
		return false;
	for (i = from; i < seq->blocks; i++)
		if (!is_pools(&cells[i]))
			return true;
	return false;
}

int kvc_enter_seq(const struct kvp_seq *seq)
{
	int ret = kvc_enter(seq->client);

	if (!ret && seq->state != KVC_ROW_OPEN)
		ret = kvc_fail(KVP_ESTATE, seq->state == KVC_ROW_OPENING
						   ? "the sequence is not open yet: kvp_open_collect() first"
						   : "the sequence is not open");
	return ret;
}
