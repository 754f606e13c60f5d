/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Giving up: references (truncate, release) and leased blocks (return), each from the step on that the
 * library filled in. References always go through a queue, because dropping a long row takes more than
 * one turn.
 */
#include <errno.h>

#include <kvpool/error.h>

#include "books.h"
#include "wait.h"

static struct kvd_wait_queue *queue_for(struct kvd_engine *engine, uint32_t timeline, uint64_t step)
{
	bool reached = kvd_engine_reached(engine, timeline, step);

	return &engine->waits[reached ? KVD_WAIT_READY : timeline];
}

static void queue_hold(struct kvd_wait_queue *queue, struct kvd_hold *hold, uint64_t step)
{
	hold->releasing = true;
	kvd_wait_push(queue, KVD_WAIT_HOLD, hold->slot, step);
}

int kvd_engine_truncate(struct kvd_engine *engine, uint64_t hold_id, uint32_t keep, uint32_t timeline,
			uint64_t step)
{
	int ret = kvd_engine_check_use(engine, timeline, step);
	struct kvd_hold *hold = kvd_hold_find(engine, hold_id);
	struct kvd_wait_queue *queue;
	struct kvd_hold *tail;

	if (ret)
		return ret;
	if (!hold)
		return -EINVAL;
	if (keep >= hold->length)
		return 0;
	queue = queue_for(engine, timeline, step);
	ret = kvd_wait_reserve(queue);
	if (!ret)
		ret = kvd_hold_split(hold, keep, &tail);
	if (ret)
		return ret;
	queue_hold(queue, tail, step);
	return 0;
}

int kvd_engine_release(struct kvd_engine *engine, uint64_t hold_id, uint32_t timeline, uint64_t step)
{
	int ret = kvd_engine_check_use(engine, timeline, step);
	struct kvd_hold *hold = kvd_hold_find(engine, hold_id);
	struct kvd_wait_queue *queue;

	if (ret)
		return ret;
	if (!hold)
		return -EINVAL;
	queue = queue_for(engine, timeline, step);
	ret = kvd_wait_reserve(queue);
	if (ret)
		return ret;
	queue_hold(queue, hold, step);
	return 0;
}

static int drain(struct kvd_engine *engine, int32_t id, uint32_t timeline, uint64_t step)
{
	struct kvd_wait_queue *queue = &engine->waits[timeline];
	int ret = kvd_wait_reserve(queue);

	if (ret)
		return ret;
	step = kvd_wait_push(queue, KVD_WAIT_BLOCK, (uint32_t)id, step);
	kvd_block_drain(engine->pool, id, timeline, step);
	return 0;
}

int kvd_engine_return(struct kvd_engine *engine, int32_t id, uint64_t generation, uint32_t timeline,
		      uint64_t step)
{
	int ret = kvd_engine_check_use(engine, timeline, step);

	if (ret)
		return ret;
	if (!kvd_engine_owns(engine, id, generation)) {
		kvd_pool_count(engine->pool, KVW_COUNTER_stale_refusals, 1);
		return -KVP_ESTALE;
	}
	if (kvd_engine_reached(engine, timeline, step))
		kvd_block_free(engine->pool, id);
	else
		ret = drain(engine, id, timeline, step);
	if (!ret)
		kvd_pool_count(engine->pool, KVW_COUNTER_returned_blocks, 1);
	return ret;
}
