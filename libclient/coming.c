/* SPDX-License-Identifier: Apache-2.0 */
#include "coming.h"

#include "client.h"
#include "error.h"

static int state_of(const struct kvc_engine *engine, int32_t id, uint64_t generation)
{
	uint64_t word = kvc_block_word(engine, id);

	if (word == kvw_block_word(generation, KVW_BLOCK_CACHED))
		return 1;
	return word == kvw_block_word(generation, KVW_BLOCK_PENDING) ? 0 : -KVP_ELOST;
}

static int fail_lost(int32_t id)
{
	return kvc_fail(
		KVP_ELOST,
		"the writer of matched block %d did not complete it: close the sequence, open it again", id);
}

int kvc_coming_look(const struct kvp_seq *seq)
{
	const struct kvc_cell *cells = kvc_row_cells(seq->client, seq->row);
	/* Matched positions come first; answers, which other threads take in, touch only what is behind them. */
	uint32_t matched = kvc_seq_row(seq)->matched;
	int ready = 1;
	uint32_t i;

	for (i = 0; seq->coming && i < matched; i++) {
		int state = cells[i].flags & KVC_CELL_COMING
				    ? state_of(kvc_seq_engine(seq), cells[i].id, cells[i].generation)
				    : 1;

		if (state < 0)
			return fail_lost(cells[i].id);
		ready &= state;
	}
	return ready;
}

int kvc_coming_settle(struct kvp_seq *seq)
{
	int ret = kvc_coming_look(seq);

	if (ret > 0)
		seq->coming = 0;
	return ret;
}

int kvc_awaited_look(const struct kvc_engine *engine, const struct kvc_awaited *awaited)
{
	int ret = state_of(engine, awaited->id, awaited->generation);

	return ret < 0 ? fail_lost(awaited->id) : ret;
}

static struct kvc_awaited *find(struct kvc_awaits *awaits, const struct kvc_cell *cell)
{
	uint32_t i;

	for (i = 0; i < awaits->count; i++)
		if (awaits->of[i].writer == cell->writer && awaits->of[i].timeline == cell->timeline)
			return &awaits->of[i];
	return NULL;
}

static void add(struct kvc_awaits *awaits, const struct kvc_cell *cell)
{
	struct kvc_awaited *awaited = find(awaits, cell);

	if (!awaited && awaits->count == KVC_AWAITED) {
		awaits->more = true;
		return;
	}
	if (!awaited)
		awaited = &awaits->of[awaits->count++];
	else if (awaited->step >= cell->step)
		return;
	*awaited = (struct kvc_awaited){.writer = cell->writer,
					.step = cell->step,
					.generation = cell->generation,
					.id = cell->id,
					.timeline = cell->timeline};
}

void kvc_coming_collect(const struct kvp_seq *seq, struct kvc_awaits *awaits)
{
	const struct kvc_cell *cells = kvc_row_cells(seq->client, seq->row);
	uint32_t matched = kvc_seq_row(seq)->matched;
	uint32_t i;

	for (i = 0; seq->coming && i < matched; i++)
		if (cells[i].flags & KVC_CELL_COMING && cells[i].writer != seq->client->session &&
		    state_of(kvc_seq_engine(seq), cells[i].id, cells[i].generation) <= 0)
			add(awaits, &cells[i]);
}
