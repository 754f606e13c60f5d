/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a block cannot be evicted now, for the person who asks where the pool's room went.
 */
#include <stdio.h>

#include "books.h"

static void explain_cached(const struct kvd_pool *pool, int32_t id, char *out, size_t capacity)
{
	const struct kvd_block *block = &pool->block[id];
	int32_t child = block->first_child;

	if (block->references > 0) {
		snprintf(out, capacity, "block %d is cached and %u references hold it", id,
			 block->references);
		return;
	}
	if (block->busy_children == 0)
		return;
	while (child >= 0 && pool->block[child].list == KVD_LIST_POLICY)
		child = pool->block[child].next_sibling;
	snprintf(out, capacity,
		 "block %d is cached and %u of its children cannot be evicted yet, among them block %d", id,
		 block->busy_children, child);
}

static void explain_orphan(const struct kvd_block *block, int32_t id, char *out, size_t capacity)
{
	snprintf(out, capacity, "block %d is not findable any more and %u references hold it", id,
		 block->references);
}

static void explain_end(const struct kvd_block *block, int32_t id, const char *state, char *out,
			size_t capacity)
{
	snprintf(out, capacity,
		 "block %d is %s until nothing of engine %llu, which has ended, maps the pool any more", id,
		 state, (unsigned long long)block->owner->engine);
}

static void explain_step(const struct kvd_block *block, int32_t id, const char *state, char *out,
			 size_t capacity)
{
	snprintf(out, capacity, "block %d is %s until timeline %u of engine %llu reaches step %llu", id,
		 state, block->record.timeline, (unsigned long long)block->owner->engine,
		 (unsigned long long)block->record.step);
}

static void explain_data(const struct kvd_pool *pool, int32_t id, char *out, size_t capacity)
{
	const struct kvd_block *block = &pool->block[id];

	switch (block->record.state) {
	case KVW_BLOCK_LEASED:
		snprintf(out, capacity, "block %d is leased by engine %llu", id,
			 (unsigned long long)block->owner->engine);
		break;
	case KVW_BLOCK_PENDING:
		explain_step(block, id, "pending", out, capacity);
		break;
	case KVW_BLOCK_DRAINING:
		explain_step(block, id, "draining", out, capacity);
		break;
	case KVW_BLOCK_CACHED:
		explain_cached(pool, id, out, capacity);
		break;
	case KVW_BLOCK_ORPHAN:
		explain_orphan(block, id, out, capacity);
		break;
	case KVW_BLOCK_FROZEN:
		explain_end(block, id, "frozen", out, capacity);
		break;
	case KVW_BLOCK_QUARANTINED:
		explain_end(block, id, "quarantined", out, capacity);
		break;
	default:
		break;
	}
}

void kvd_pool_explain(const struct kvd_pool *pool, int32_t id, char *out, size_t capacity)
{
	if (capacity == 0)
		return;
	out[0] = '\0';
	if (id < 0 || (uint32_t)id >= pool->blocks)
		snprintf(out, capacity, "pool %u has no block %d; its ids go up to %u", pool->number, id,
			 pool->blocks - 1);
	else if (id == 0)
		snprintf(out, capacity, "block 0 is the null block");
	else if (!kvd_pool_is_data(pool, id))
		snprintf(out, capacity, "block %d is a sink block", id);
	else
		explain_data(pool, id, out, capacity);
}
