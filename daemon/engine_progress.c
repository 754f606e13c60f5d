/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens when a step is reached: pending blocks are complete, draining ones free, holds dropped.
 *
 * Of a frozen engine only the pending blocks go on: they are the others' too. Its process may still
 * read and write whatever it had, so the rest of its queue is void and waits for its end.
 */
#include "books.h"
#include "wait.h"

static void reach_block(struct kvd_engine *engine, int32_t id)
{
	struct kvd_pool *pool = engine->pool;
	struct kvd_block *block = kvd_block(pool, id);

	kvd_assert(block->queued && block->owner == engine);
	block->queued = 0;
	switch (block->record.state) {
	case KVW_BLOCK_PENDING:
		kvd_block_complete(pool, id);
		kvd_idle_consider(pool, id);
		break;
	case KVW_BLOCK_DRAINING:
		if (engine->state == KVD_ENGINE_FROZEN)
			kvd_block_freeze(pool, id);
		else
			kvd_block_free(pool, id);
		break;
	case KVW_BLOCK_ORPHAN:
		kvd_block_settle(pool, id);
		break;
	default:
		/* Frozen since it was queued. */
		kvd_assert(block->record.state == KVW_BLOCK_FROZEN);
		break;
	}
}

/* False: the budget ended before the hold did. */
static bool reach_hold(struct kvd_engine *engine, uint32_t slot, uint32_t *budget)
{
	struct kvd_hold *hold = engine->holds[slot];

	if (engine->state == KVD_ENGINE_FROZEN)
		return true;
	kvd_assert(hold && hold->releasing);
	if (!kvd_hold_drop(hold, budget))
		return false;
	kvd_hold_destroy(hold);
	return true;
}

/* Empties a queue as far as its steps are reached; false: the budget ended before. */
static bool progress_queue(struct kvd_engine *engine, struct kvd_wait_queue *queue, uint64_t reached,
			   uint32_t *budget)
{
	const struct kvd_wait *first;

	while ((first = kvd_wait_first(queue)) && first->step <= reached) {
		if (*budget == 0)
			return false;
		if (first->kind == KVD_WAIT_BLOCK)
			reach_block(engine, (int32_t)first->id);
		else if (!reach_hold(engine, first->id, budget))
			return false;
		kvd_wait_pop(queue);
		/* A hold took its blocks off already; its end counts as one too, but not below nothing. */
		*budget -= *budget > 0;
	}
	return true;
}

int kvd_engine_progress(struct kvd_engine *engine, uint32_t budget)
{
	uint32_t timeline;

	if (engine->state > KVD_ENGINE_FROZEN)
		return 1;
	kvd_idle_settle(engine->pool, budget);
	for (timeline = 0; timeline < KVW_TIMELINES; timeline++)
		if (!progress_queue(engine, &engine->waits[timeline], engine->reached[timeline], &budget))
			return 0;
	return progress_queue(engine, &engine->waits[KVD_WAIT_READY], UINT64_MAX, &budget);
}
