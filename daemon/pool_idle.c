/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which cached blocks may go. A block is evictable when it is CACHED, nobody refers to it, and every
 * findable child is in the policy already. It enters at the young end, with a new last_use.
 *
 * A hold refers to a whole prefix and is dropped from its last block on, so a child is nearly always
 * inside before its parent loses its last reference. Where it is not, the parent is held back, and the
 * child's entry lets it in, then its parent's parent and so on: as long a way as the chain. So blocks
 * that became evictable go through a list, `ripe`, from which each step of a job takes a bounded number:
 * its allowance. What is ripe counts as evictable; what the cascade has not come to yet does not, so who
 * finds too few blocks lets the cascade go on before it says so (kvd_idle_ripen).
 */
#include "books.h"

/* Beyond a step's budget, so that a cascade goes on in every step: some microseconds. */
#define CASCADE_BLOCKS 64u

static bool is_evictable(const struct kvd_block *block)
{
	return block->record.state == KVW_BLOCK_CACHED && block->references == 0 && block->busy_children == 0;
}

static struct kvd_block *parent_of(struct kvd_pool *pool, const struct kvd_block *block)
{
	return block->record.parent < 0 ? NULL : kvd_block(pool, block->record.parent);
}

static void ripen(struct kvd_pool *pool, int32_t id)
{
	struct kvd_block *block = kvd_block(pool, id);

	if (!is_evictable(block) || block->list != KVD_LIST_NONE)
		return;
	kvd_books_before(pool, id);
	block->list = KVD_LIST_RIPE;
	kvd_list_push_back(pool, &pool->ripe, id);
	pool->evictable++;
	kvd_books_after(pool, id);
}

static void enter(struct kvd_pool *pool, int32_t id)
{
	struct kvd_block *block = kvd_block(pool, id);
	struct kvd_block *parent = parent_of(pool, block);

	kvd_assert(is_evictable(block));
	kvd_books_before(pool, id);
	kvd_list_remove(pool, &pool->ripe, id);
	block->list = KVD_LIST_POLICY;
	kvd_books_after(pool, id);
	pool->policy_ops->insert(pool->policy, id);
	block->record.last_use = ++pool->clock;
	kvd_block_record(pool, id);
	if (!parent)
		return;
	kvd_assert(parent->busy_children > 0);
	parent->busy_children--;
	ripen(pool, block->record.parent);
}

static void settle(struct kvd_pool *pool)
{
	for (; pool->ripe.head >= 0 && pool->settle_allowance > 0; pool->settle_allowance--)
		enter(pool, pool->ripe.head);
}

void kvd_idle_begin(struct kvd_pool *pool, uint32_t budget)
{
	pool->settle_allowance = (uint64_t)budget + CASCADE_BLOCKS;
}

void kvd_idle_settle(struct kvd_pool *pool, uint32_t budget)
{
	kvd_idle_begin(pool, budget);
	settle(pool);
}

bool kvd_idle_ripen(struct kvd_pool *pool)
{
	if (pool->ripe.head < 0)
		return false;
	enter(pool, pool->ripe.head);
	pool->settle_allowance -= pool->settle_allowance > 0;
	return true;
}

void kvd_idle_consider(struct kvd_pool *pool, int32_t id)
{
	ripen(pool, id);
	settle(pool);
}

static void leave_policy(struct kvd_pool *pool, int32_t id)
{
	struct kvd_block *block = kvd_block(pool, id);
	struct kvd_block *parent = parent_of(pool, block);

	pool->policy_ops->remove(pool->policy, id);
	if (!parent)
		return;
	/* Whoever takes the first reference to a block has one to its parent. */
	kvd_assert(parent->references > 0);
	parent->busy_children++;
}

void kvd_idle_leave(struct kvd_pool *pool, int32_t id)
{
	struct kvd_block *block = kvd_block(pool, id);

	if (block->list != KVD_LIST_RIPE && block->list != KVD_LIST_POLICY)
		return;
	kvd_books_before(pool, id);
	if (block->list == KVD_LIST_RIPE)
		kvd_list_remove(pool, &pool->ripe, id);
	else
		leave_policy(pool, id);
	block->list = KVD_LIST_NONE;
	pool->evictable--;
	kvd_books_after(pool, id);
}

int32_t kvd_idle_victim(struct kvd_pool *pool)
{
	int32_t victim = pool->policy_ops->victim(pool->policy);

	/* What is ripe enters at the young end, so it is the next one only when nothing else is there. */
	if (victim < 0 && kvd_idle_ripen(pool))
		victim = pool->policy_ops->victim(pool->policy);
	return victim;
}

void kvd_block_reference(struct kvd_pool *pool, int32_t id)
{
	struct kvd_block *block = kvd_block(pool, id);

	kvd_assert(block->indexed && block->references < UINT32_MAX);
	if (block->references++ == 0)
		kvd_idle_leave(pool, id);
}

void kvd_block_unreference(struct kvd_pool *pool, int32_t id)
{
	struct kvd_block *block = kvd_block(pool, id);

	kvd_assert(block->references > 0);
	if (--block->references > 0)
		return;
	if (block->record.state == KVW_BLOCK_CACHED)
		kvd_idle_consider(pool, id);
	else if (block->record.state == KVW_BLOCK_ORPHAN)
		kvd_block_lose(pool, id);
}
