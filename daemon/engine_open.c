/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening a sequence: matches the prefix, refers to it, takes the missing blocks; all of it or
 * nothing. A job that fails gives back what it took, also within its budget, before it tells the
 * error.
 */
#include <kvpool/error.h>

#include "books.h"

enum open_phase {
	OPEN_START,
	OPEN_MATCH,
	OPEN_GRANT,
	OPEN_DONE,
	/* Giving everything back, and then this error. */
	OPEN_UNDO_BLOCKS,
	OPEN_UNDO_QUOTA,
	OPEN_ABORT
};

static uint32_t smaller(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static uint32_t match_limit(const struct kvd_open *job)
{
	return smaller(job->count, job->max_match);
}

static uint32_t blocks_needed(const struct kvd_open *job)
{
	return job->want > job->matched ? smaller(job->want - job->matched, job->max_new) : 0;
}

static void undo_open(struct kvd_open *job, int error)
{
	job->phase = error == -KVP_EQUOTA ? OPEN_UNDO_QUOTA : OPEN_UNDO_BLOCKS;
}

static int start_open(struct kvd_engine *engine, struct kvd_open *job)
{
	uint32_t capacity = job->want > match_limit(job) ? job->want : match_limit(job);
	int ret;

	if (engine->state != KVD_ENGINE_LIVE)
		return -KVP_EREVOKED;
	if (capacity > engine->max_hold_blocks)
		return -KVP_ELIMIT;
	ret = kvd_hold_create(engine, capacity, &job->hold);
	if (!ret)
		job->phase = OPEN_MATCH;
	return ret;
}

static bool is_matchable(const struct kvd_engine *engine, const struct kvd_block *block, bool coming)
{
	if (block->record.state != KVW_BLOCK_PENDING)
		return true;
	return !kvd_block_is_doubtful(block) && (coming || block->owner == engine);
}

/*
 * The next block of the chain, or -1. Its parent must be the block before it: then a hold always
 * refers to a whole prefix.
 */
static int32_t next_match(const struct kvd_engine *engine, const struct kvd_open *job)
{
	const uint8_t *hash = job->hashes + (size_t)job->matched * engine->hash_bytes;
	int32_t id = kvd_pool_find(engine->pool, engine->namespace_id, hash, engine->hash_bytes);
	const struct kvd_block *block;

	if (id < 0)
		return -1;
	block = &engine->pool->block[id];
	if (block->record.parent != (job->matched ? job->hold->blocks[job->matched - 1] : -1))
		return -1;
	return is_matchable(engine, block, job->coming) ? id : -1;
}

static struct kvw_answer match_answer(const struct kvd_block *block, int32_t id)
{
	bool coming = block->record.state == KVW_BLOCK_PENDING;

	return (struct kvw_answer){
		.id = id,
		.flags = KVW_ANSWER_MATCHED |
			 (coming ? KVW_ANSWER_COMING | (uint32_t)block->record.timeline
							       << KVW_ANSWER_TIMELINE_SHIFT
				 : 0),
		.generation = block->record.generation,
		.writer = block->record.session,
		.step = coming ? block->record.step : 0,
	};
}

static void end_matching(struct kvd_engine *engine, struct kvd_open *job)
{
	int ret = kvd_check_room(engine, blocks_needed(job));

	if (ret < 0)
		undo_open(job, ret);
	else if (ret == 0)
		job->phase = OPEN_GRANT;
}

static void match_one(struct kvd_engine *engine, struct kvd_open *job)
{
	int32_t id = job->matched < match_limit(job) ? next_match(engine, job) : -1;

	if (id < 0) {
		end_matching(engine, job);
		return;
	}
	if (engine->tenant->used_blocks >= engine->tenant->quota_blocks) {
		undo_open(job, -KVP_EQUOTA);
		return;
	}
	kvd_hold_push(job->hold, id);
	job->answers[job->matched++] = match_answer(&engine->pool->block[id], id);
}

static void end_open(struct kvd_engine *engine, struct kvd_open *job)
{
	kvd_pool_count(engine->pool, KVW_COUNTER_lookup_blocks, match_limit(job));
	kvd_pool_count(engine->pool, KVW_COUNTER_hit_blocks, job->matched);
	kvd_pool_count(engine->pool, KVW_COUNTER_granted_blocks, job->granted);
	job->phase = OPEN_DONE;
}

static void open_one(struct kvd_engine *engine, struct kvd_open *job)
{
	int ret;

	if (job->granted == blocks_needed(job)) {
		end_open(engine, job);
		return;
	}
	ret = kvd_grant_one(engine, &job->answers[job->matched + job->granted]);
	if (ret)
		undo_open(job, ret);
	else
		job->granted++;
}

/* Last to first, so that the matched prefix ages as after any release. False: the budget is spent. */
static bool undo_step(struct kvd_engine *engine, struct kvd_open *job, uint32_t budget)
{
	for (; job->granted > 0 && budget > 0; budget--)
		kvd_pool_ungrant(engine->pool, job->answers[job->matched + --job->granted].id);
	if (job->granted > 0 || !kvd_hold_drop(job->hold, &budget))
		return false;
	kvd_hold_destroy(job->hold);
	job->hold = NULL;
	job->matched = 0;
	return true;
}

static int undo_result(struct kvd_engine *engine, struct kvd_open *job, uint32_t budget)
{
	int error = job->phase == OPEN_UNDO_QUOTA ? -KVP_EQUOTA : -KVP_ENOBLOCKS;

	if (!undo_step(engine, job, budget))
		return 0;
	if (job->phase != OPEN_ABORT)
		kvd_count_refusal(engine->pool, error);
	job->phase = OPEN_START;
	return error;
}

int kvd_open_step(struct kvd_engine *engine, struct kvd_open *job, uint32_t budget)
{
	int ret = job->phase == OPEN_START ? start_open(engine, job) : 0;

	if (ret)
		return ret;
	kvd_idle_begin(engine->pool, budget);
	for (; budget > 0; budget--) {
		if (job->phase == OPEN_MATCH)
			match_one(engine, job);
		else if (job->phase == OPEN_GRANT)
			open_one(engine, job);
		else if (job->phase == OPEN_DONE)
			return 1;
		else
			return undo_result(engine, job, budget);
	}
	return job->phase == OPEN_DONE ? 1 : 0;
}

void kvd_open_abort(struct kvd_engine *engine, struct kvd_open *job)
{
	if (job->phase == OPEN_START || job->phase == OPEN_DONE)
		return;
	job->phase = OPEN_ABORT;
	kvd_idle_begin(engine->pool, job->matched);
	undo_result(engine, job, UINT32_MAX);
}
