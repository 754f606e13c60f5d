/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One block from one state to another. place() is the only code that changes a block's state, owner or
 * list; with it go the counts and the tenant's share. Each move ends with the record and then the
 * word, so that a reader of the word finds the record written.
 */
#include <string.h>

#include "books.h"
#include "directory.h"
#include "record.h"

void kvd_block_record(struct kvd_pool *pool, int32_t id)
{
	kvd_record_write(&pool->records[id], &kvd_block(pool, id)->record, (uint32_t)id, pool->incarnation);
}

static void commit(struct kvd_pool *pool, int32_t id)
{
	kvd_block_record(pool, id);
	kvd_directory_word(pool, id);
}

static uint8_t kind_for(const struct kvd_block *block, bool data)
{
	switch (block->record.state) {
	case KVW_BLOCK_FREE:
		return data ? KVD_LIST_FREE : KVD_LIST_SINKS;
	case KVW_BLOCK_CACHED:
		return KVD_LIST_NONE;
	default:
		return block->owner ? KVD_LIST_OWNED : KVD_LIST_ORPHANS;
	}
}

/* Takes the block out of (sign -1), or into, the counts of its state and of its owner's tenant. */
static void count(struct kvd_pool *pool, const struct kvd_block *block, int sign)
{
	pool->counts[block->record.state] += (uint32_t)sign;
	if (block->owner && kvd_state_is_owned(block->record.state))
		block->owner->tenant->used_blocks += (uint64_t)(int64_t)sign;
}

static void unlist(struct kvd_pool *pool, int32_t id)
{
	struct kvd_block *block = kvd_block(pool, id);
	struct kvd_list *list = kvd_list_of(pool, block);

	kvd_assert(block->list != KVD_LIST_RIPE && block->list != KVD_LIST_POLICY);
	if (list)
		kvd_list_remove(pool, list, id);
}

static void enlist(struct kvd_pool *pool, int32_t id, bool data)
{
	struct kvd_block *block = kvd_block(pool, id);
	struct kvd_list *list;

	block->list = kind_for(block, data);
	list = kvd_list_of(pool, block);
	/* The block that was free last is the one still in the caches of the machine. */
	if (block->list == KVD_LIST_FREE)
		kvd_list_push_front(pool, list, id);
	else if (list)
		kvd_list_push_back(pool, list, id);
}

static void place(struct kvd_pool *pool, int32_t id, enum kvw_block_state state, struct kvd_engine *owner)
{
	struct kvd_block *block = kvd_block(pool, id);
	bool data = kvd_pool_is_data(pool, id);

	kvd_books_before(pool, id);
	unlist(pool, id);
	if (data)
		count(pool, block, -1);
	block->record.state = (uint8_t)state;
	block->owner = owner;
	if (data)
		count(pool, block, 1);
	enlist(pool, id, data);
	kvd_books_after(pool, id);
}

static void forget_step(struct kvd_block *block)
{
	block->record.step = 0;
	block->record.timeline = 0;
}

void kvd_block_lease(struct kvd_pool *pool, int32_t id, struct kvd_engine *engine)
{
	struct kvd_block *block = kvd_block(pool, id);

	kvd_assert(block->record.state == KVW_BLOCK_FREE && id != 0);
	block->record.generation++;
	block->record.session = engine->session;
	place(pool, id, KVW_BLOCK_LEASED, engine);
	commit(pool, id);
}

void kvd_block_free(struct kvd_pool *pool, int32_t id)
{
	struct kvd_block *block = kvd_block(pool, id);

	kvd_assert(block->references == 0 && !block->indexed && block->children == 0);
	forget_step(block);
	block->record.session = 0;
	block->record.last_use = 0;
	block->queued = 0;
	place(pool, id, KVW_BLOCK_FREE, NULL);
	commit(pool, id);
}

void kvd_block_complete(struct kvd_pool *pool, int32_t id)
{
	struct kvd_block *block = kvd_block(pool, id);

	forget_step(block);
	block->queued = 0;
	place(pool, id, KVW_BLOCK_CACHED, NULL);
	commit(pool, id);
}

static void await_step(struct kvd_block *block, uint32_t timeline, uint64_t step)
{
	block->record.step = step;
	block->record.timeline = (uint8_t)timeline;
	block->queued = 1;
}

void kvd_block_wait(struct kvd_pool *pool, int32_t id, uint32_t timeline, uint64_t step)
{
	struct kvd_block *block = kvd_block(pool, id);

	kvd_assert(block->record.state == KVW_BLOCK_LEASED);
	await_step(block, timeline, step);
	place(pool, id, KVW_BLOCK_PENDING, block->owner);
	commit(pool, id);
}

void kvd_block_drain(struct kvd_pool *pool, int32_t id, uint32_t timeline, uint64_t step)
{
	struct kvd_block *block = kvd_block(pool, id);

	kvd_assert(block->references == 0 && !block->indexed);
	await_step(block, timeline, step);
	place(pool, id, KVW_BLOCK_DRAINING, block->owner);
	commit(pool, id);
}

void kvd_block_freeze(struct kvd_pool *pool, int32_t id)
{
	struct kvd_block *block = kvd_block(pool, id);

	kvd_assert(block->references == 0 && !block->indexed);
	forget_step(block);
	place(pool, id, KVW_BLOCK_FROZEN, block->owner);
	commit(pool, id);
}

void kvd_block_quarantine(struct kvd_pool *pool, int32_t id)
{
	struct kvd_block *block = kvd_block(pool, id);

	kvd_assert(block->references == 0 && !block->indexed);
	forget_step(block);
	block->queued = 0;
	place(pool, id, KVW_BLOCK_QUARANTINED, block->owner);
	commit(pool, id);
	if (kvd_pool_is_data(pool, id))
		kvd_pool_count(pool, KVW_COUNTER_quarantined_blocks, 1);
}

void kvd_block_orphan(struct kvd_pool *pool, int32_t id)
{
	struct kvd_block *block = kvd_block(pool, id);

	kvd_assert(block->references > 0 && !block->indexed);
	block->record.last_use = 0;
	place(pool, id, KVW_BLOCK_ORPHAN, block->owner);
	commit(pool, id);
}

void kvd_block_disown(struct kvd_pool *pool, int32_t id)
{
	struct kvd_block *block = kvd_block(pool, id);

	forget_step(block);
	block->queued = 0;
	place(pool, id, KVW_BLOCK_ORPHAN, NULL);
	commit(pool, id);
}

void kvd_block_settle(struct kvd_pool *pool, int32_t id)
{
	forget_step(kvd_block(pool, id));
	kvd_block_record(pool, id);
}

void kvd_block_lose(struct kvd_pool *pool, int32_t id)
{
	const struct kvd_block *block = kvd_block(pool, id);
	const struct kvd_engine *owner = block->owner;

	if (!owner || owner->state == KVD_ENGINE_GONE)
		kvd_block_free(pool, id);
	else if (owner->state == KVD_ENGINE_DEAD)
		kvd_block_quarantine(pool, id);
	else if (!block->queued)
		kvd_block_free(pool, id);
	else if (owner->state == KVD_ENGINE_FROZEN)
		kvd_block_freeze(pool, id);
	else
		kvd_block_drain(pool, id, block->record.timeline, block->record.step);
}
