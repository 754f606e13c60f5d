/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole lists and queues, from end to end. Only for a check that runs without a stop: between two
 * slices any list may change.
 */
#include <stdio.h>

#include "check_internal.h"

static void walk_list(struct kvd_check *check, const char *what, const struct kvd_list *list)
{
	struct kvd_pool *pool = check->pool;
	int32_t previous = -1;
	uint32_t length = 0;
	int32_t id;

	for (id = list->head; id >= 0; id = pool->block[id].next) {
		if (!kvd_check_is_id(check, id) || pool->block[id].list >= KVD_LIST_KINDS ||
		    pool->block[id].record.state >= KVW_BLOCK_STATES ||
		    (pool->block[id].list == KVD_LIST_OWNED && !pool->block[id].owner) ||
		    kvd_list_of(pool, &pool->block[id]) != list || length == pool->blocks) {
			kvd_check_fault(check, "%s: block %d behind block %d does not belong there", what, id,
					previous);
			return;
		}
		previous = id;
		length++;
	}
	if (list->tail != previous)
		kvd_check_fault(check, "%s: tail is %d, should be %d", what, list->tail, previous);
	if (list->length != length)
		kvd_check_fault(check, "%s: length is %u, should be %u", what, list->length, length);
}

static uint32_t walk_queue(struct kvd_check *check, const struct kvd_engine *engine, uint32_t number)
{
	const struct kvd_wait_queue *queue = &engine->waits[number];
	uint64_t step = 0;
	uint32_t blocks = 0;
	uint32_t at;

	for (at = queue->head; at != queue->tail; at++) {
		const struct kvd_wait *wait = &queue->entries[at & (queue->capacity - 1)];
		const struct kvd_block *block = &check->pool->block[wait->id];

		if (number != KVD_WAIT_READY && wait->step < step)
			kvd_check_fault(check,
					"engine %llu: step in queue %u is %llu, should be at least %llu",
					(unsigned long long)engine->engine, number,
					(unsigned long long)wait->step, (unsigned long long)step);
		step = wait->step;
		if (wait->kind != KVD_WAIT_BLOCK)
			continue;
		blocks++;
		if (!kvd_check_is_id(check, (int32_t)wait->id) || block->owner != engine || !block->queued)
			kvd_check_fault(check, "engine %llu: block %u is in queue %u, but does not wait",
					(unsigned long long)engine->engine, wait->id, number);
	}
	return blocks;
}

static uint32_t count_queued(const struct kvd_check *check, const struct kvd_engine *engine)
{
	uint32_t count = 0;
	uint32_t state;
	int32_t id;

	for (state = 0; state < KVW_BLOCK_STATES; state++)
		for (id = engine->owned[state].head; id >= 0; id = check->pool->block[id].next)
			count += check->pool->block[id].queued;
	return count;
}

static void walk_engine(struct kvd_check *check, const struct kvd_engine *engine)
{
	uint64_t faults = check->result.faults;
	uint32_t queued = 0;
	char what[96];
	uint32_t i;

	for (i = 0; i < KVW_BLOCK_STATES; i++) {
		snprintf(what, sizeof(what), "engine %llu: list of state %u",
			 (unsigned long long)engine->engine, i);
		walk_list(check, what, &engine->owned[i]);
	}
	if (engine->state > KVD_ENGINE_FROZEN || check->result.faults > faults)
		return;
	for (i = 0; i <= KVW_TIMELINES; i++)
		queued += walk_queue(check, engine, i);
	snprintf(what, sizeof(what), "engine %llu: count of queued blocks",
		 (unsigned long long)engine->engine);
	kvd_check_total(check, what, queued, count_queued(check, engine));
}

static void sum_left_out(struct kvd_check *check)
{
	const struct kvd_pool *pool = check->pool;
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < pool->bucket_count; i++)
		sum += pool->left_out[i];
	kvd_check_total(check, "sum of the blocks that buckets have left out", sum, pool->left_out_blocks);
}

void kvd_check_lists(struct kvd_check *check)
{
	const struct kvd_pool *pool = check->pool;
	const struct kvd_engine *engine;

	walk_list(check, "free list", &pool->free);
	walk_list(check, "list of sinks", &pool->sinks);
	walk_list(check, "list of orphans", &pool->orphans);
	walk_list(check, "list of ripe blocks", &pool->ripe);
	for (engine = pool->engines; engine; engine = engine->next)
		walk_engine(check, engine);
	sum_left_out(check);
	if (pool->policy_ops->check(pool->policy, check->lists[KVD_LIST_POLICY]))
		kvd_check_fault(check, "policy %s: its own check fails with %u members",
				pool->policy_ops->name, check->lists[KVD_LIST_POLICY]);
}
