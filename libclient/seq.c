/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sequence between open and close: what it holds, more room, the next step.
 */
#include <errno.h>

#include "client.h"
#include "coming.h"
#include "error.h"
#include "extend.h"
#include "mirror.h"
#include "params.h"
#include "publish.h"
#include "pump.h"
#include "reserve.h"
#include "rows.h"

static void fill_info(const struct kvp_seq *seq, struct kvp_seq_info *out)
{
	const struct kvc_row *cold = kvc_seq_row(seq);

	*out = (struct kvp_seq_info){
		.row = seq->row,
		.prompt_tokens = seq->prompt,
		.cached_tokens = cold->prompt_cached,
		.reserved = seq->reserved,
		.staged = seq->staged,
		.settled = seq->settled,
		.committed = cold->posted * seq->block_tokens,
		.blocks = seq->blocks,
		.duplicates = cold->duplicates,
	};
}

int kvp_seq_info(const struct kvp_seq *seq, struct kvp_seq_info *out)
{
	struct kvp_seq_info info;
	int ret = kvc_enter_seq(seq);

	if (ret)
		return ret;
	pthread_mutex_lock(&seq->client->lock);
	kvc_pump(seq->client);
	fill_info(seq, &info);
	pthread_mutex_unlock(&seq->client->lock);
	return kvc_params_write(out, &info, sizeof(info), "kvp_seq_info");
}

/* A duplicate's writer is the canonical block's, which the row does not have yet. */
static struct kvp_block_info block_info(const struct kvp_seq *seq, uint32_t index)
{
	const struct kvc_cell *cell = &kvc_row_cells(seq->client, seq->row)[index];

	return (struct kvp_block_info){
		.id = cell->id,
		.generation = cell->generation,
		.writer = cell->flags & KVC_CELL_DUPLICATE ? seq->client->session : cell->writer,
		.flags = cell->flags & (KVP_BLOCK_MATCHED | KVP_BLOCK_COMING | KVP_BLOCK_PUBLISHED),
	};
}

int kvp_seq_block(const struct kvp_seq *seq, uint32_t index, struct kvp_block_info *out)
{
	struct kvp_block_info info;
	int ret = kvc_enter_seq(seq);

	if (ret)
		return ret;
	if (index >= seq->blocks)
		return kvc_fail(EINVAL, "block %u of a sequence of %u blocks", index, seq->blocks);
	pthread_mutex_lock(&seq->client->lock);
	info = block_info(seq, index);
	pthread_mutex_unlock(&seq->client->lock);
	return kvc_params_write(out, &info, sizeof(info), "kvp_block_info");
}
_Static_assert(KVC_CELL_MATCHED == KVP_BLOCK_MATCHED && KVC_CELL_COMING == KVP_BLOCK_COMING &&
		       KVC_CELL_PUBLISHED == KVP_BLOCK_PUBLISHED,
	       "cells keep the public flags");

const int32_t *kvp_seq_blocks(const struct kvp_seq *seq)
{
	return kvc_enter_seq(seq) ? NULL : seq->ids;
}

int kvp_seq_ready(const struct kvp_seq *seq)
{
	int ret = kvc_enter_seq(seq);

	return ret ? ret : kvc_coming_look(seq);
}

/* ------------------------------------------------------------------ room */

int kvc_reserve_check(struct kvp_seq *seq, uint32_t tokens, uint32_t *out_need)
{
	uint64_t end = (uint64_t)seq->staged + tokens;
	uint32_t row_blocks = kvc_seq_engine(seq)->tables_params.row_blocks;

	*out_need = 0;
	/* Blocks of an extend that was answered only now have the positions behind the row's. */
	kvc_extend_take(seq);
	if (end <= seq->reserved)
		return 0;
	if (end > (uint64_t)row_blocks * seq->block_tokens)
		return kvc_fail(
			KVP_ELIMIT,
			"%u tokens behind %u, rows have room for %u blocks of %u: raise max_seq_tokens",
			tokens, seq->staged, row_blocks, seq->block_tokens);
	if (kvc_extend_runs(seq))
		return kvc_fail(KVP_ELEASE, "an extend of the sequence is still on its way: kvp_seq_extend() "
					    "again waits for it");
	*out_need = kvc_blocks_for((uint32_t)end, seq->block_tokens) - seq->blocks;
	return 0;
}

int kvc_reserve_fail(const struct kvc_engine *engine, uint32_t need)
{
	const struct kvc_lease *lease = &engine->lease;

	return kvc_fail(KVP_ELEASE,
			"%u blocks are needed, the lease holds %u, %u are draining, %u asked for%s%s", need,
			lease->free_count, lease->draining_count, lease->coming,
			lease->refusal ? "; the daemon said: " : "",
			lease->refusal ? kvp_error_text(lease->refusal) : "");
}

void kvc_reserve_append(struct kvp_seq *const *seqs, const uint32_t *needs, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		kvc_row_append(seqs[i], needs[i]);
	/* Now, not by the next call: what falls below a mark here is asked for here. */
	if (n)
		kvc_lease_pump(seqs[0]->client);
}

/* Under the lock. */
static int reserve(struct kvp_seq *seq, uint32_t tokens)
{
	uint32_t need;
	int ret = kvc_reserve_check(seq, tokens, &need);

	if (!ret && need > kvc_seq_engine(seq)->lease.free_count)
		return kvc_reserve_fail(kvc_seq_engine(seq), need);
	if (!ret && need)
		kvc_reserve_append(&seq, &need, 1);
	return ret;
}

int kvp_seq_reserve(struct kvp_seq *seq, uint32_t tokens)
{
	int ret = kvc_enter_seq_and_read(seq);

	if (ret)
		return ret;
	pthread_mutex_lock(&seq->client->lock);
	kvc_pump(seq->client);
	ret = reserve(seq, tokens);
	pthread_mutex_unlock(&seq->client->lock);
	return ret;
}

/* ------------------------------------------------------------------ steps */

int kvc_stage_check(const struct kvp_seq *seq, uint32_t tokens, uint32_t timeline, uint64_t step)
{
	int lost = seq->coming ? kvc_coming_look(seq) : 0;

	if (lost < 0)
		return lost;
	if (tokens > seq->reserved - seq->staged)
		return kvc_fail(KVP_ESTATE, "%u tokens behind %u, reserved are %u: kvp_seq_reserve() first",
				tokens, seq->staged, seq->reserved);
	if (timeline != seq->last_timeline &&
	    seq->last_step > kvc_reached(kvc_seq_engine(seq), seq->last_timeline))
		return kvc_fail(KVP_ESTATE,
				"step %llu of the sequence still runs on timeline %u: one must end before "
				"another begins",
				(unsigned long long)seq->last_step, seq->last_timeline);
	if (timeline == seq->last_timeline && step < seq->last_step)
		return kvc_fail(EINVAL, "step %llu comes before step %llu, which the sequence is staged for",
				(unsigned long long)step, (unsigned long long)seq->last_step);
	return 0;
}

int kvc_step_check(uint32_t timeline, uint64_t step)
{
	if (timeline >= KVW_TIMELINES)
		return kvc_fail(EINVAL, "timeline %u, the highest is %u: 0 to that", timeline,
				KVW_TIMELINES - 1);
	if (!step || step >= KVW_TIMELINE_POISON)
		return kvc_fail(EINVAL,
				"step %llu: steps count from 1 to 2^63 - 1, kvp_step_next() gives them",
				(unsigned long long)step);
	return 0;
}

int kvp_seq_stage(struct kvp_seq *seq, uint32_t tokens, uint32_t timeline, uint64_t step)
{
	int ret = kvc_enter_seq_and_read(seq);

	if (!ret)
		ret = kvc_step_check(timeline, step);
	if (!ret)
		ret = kvc_stage_check(seq, tokens, timeline, step);
	if (ret)
		return ret;
	kvc_seq_launch(seq, seq->staged + tokens, timeline, step);
	seq->row_step = step;
	kvc_mirror_lengths(seq);
	return 0;
}

int kvp_seq_stop_publish(struct kvp_seq *seq)
{
	int ret = kvc_enter_seq(seq);

	if (ret)
		return ret;
	pthread_mutex_lock(&seq->client->lock);
	kvc_seq_row(seq)->stopped = true;
	pthread_mutex_unlock(&seq->client->lock);
	return 0;
}
