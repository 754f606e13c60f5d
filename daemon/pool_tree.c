/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Findable blocks: index, directory, and the tree of parents and children. The parent of every
 * findable block is findable, at every moment: a block is added under a findable parent and removed
 * when it has no children. What is removed is unfindable first, then reusable.
 */
#include <string.h>

#include "books.h"
#include "directory.h"

static bool is_busy(const struct kvd_block *block)
{
	return block->list != KVD_LIST_POLICY;
}

static void link_child(struct kvd_pool *pool, int32_t parent_id, int32_t id)
{
	struct kvd_block *parent = kvd_block(pool, parent_id);
	struct kvd_block *child = kvd_block(pool, id);

	kvd_assert(parent->indexed);
	child->previous_sibling = -1;
	child->next_sibling = parent->first_child;
	if (parent->first_child >= 0)
		kvd_block(pool, parent->first_child)->previous_sibling = id;
	parent->first_child = id;
	parent->children++;
	parent->busy_children += is_busy(child);
}

static void unlink_child(struct kvd_pool *pool, int32_t id)
{
	struct kvd_block *child = kvd_block(pool, id);
	struct kvd_block *parent = kvd_block(pool, child->record.parent);

	if (child->previous_sibling < 0)
		parent->first_child = child->next_sibling;
	else
		kvd_block(pool, child->previous_sibling)->next_sibling = child->next_sibling;
	if (child->next_sibling >= 0)
		kvd_block(pool, child->next_sibling)->previous_sibling = child->previous_sibling;
	child->previous_sibling = -1;
	child->next_sibling = -1;
	parent->children--;
	parent->busy_children -= is_busy(child);
}

/* The reverse of show(). */
static void hide(struct kvd_pool *pool, int32_t id)
{
	struct kvd_block *block = kvd_block(pool, id);

	kvd_books_before(pool, id);
	kvd_directory_remove(pool, id);
	kvd_index_remove(pool->index, id);
	block->indexed = 0;
	block->key = 0;
	kvd_books_after(pool, id);
}

static void show(struct kvd_pool *pool, int32_t id)
{
	struct kvd_block *block = kvd_block(pool, id);
	const struct kvw_block_record *record = &block->record;

	kvd_books_before(pool, id);
	block->key = kvd_index_key(pool->index, record->namespace_id, pool->epoch, record->hash,
				   record->hash_bytes);
	kvd_index_insert(pool->index, id);
	block->indexed = 1;
	kvd_directory_add(pool, id);
	kvd_books_after(pool, id);
}

/* A name that is not in the record can't be found again by a later daemon either. */
static void forget(struct kvd_block *block)
{
	struct kvw_block_record *record = &block->record;

	memset(record->hash, 0, sizeof(record->hash));
	record->hash_bytes = 0;
	record->namespace_id = 0;
	record->plane_set = 0;
	record->parent = -1;
	record->parent_generation = 0;
}

/* Out of the tree; the parent may have lost its last busy child by that. */
static void detach(struct kvd_pool *pool, int32_t id)
{
	struct kvd_block *block = kvd_block(pool, id);
	int32_t parent = block->record.parent;

	kvd_assert(block->children == 0);
	if (parent >= 0)
		unlink_child(pool, id);
	forget(block);
	if (parent >= 0)
		kvd_idle_consider(pool, parent);
}

void kvd_tree_add(struct kvd_pool *pool, int32_t id)
{
	int32_t parent = kvd_block(pool, id)->record.parent;

	if (parent >= 0)
		link_child(pool, parent, id);
	show(pool, id);
}

void kvd_tree_remove(struct kvd_pool *pool, int32_t id)
{
	hide(pool, id);
	detach(pool, id);
}

static void move_child(struct kvd_pool *pool, int32_t id, int32_t to)
{
	struct kvd_block *child = kvd_block(pool, id);

	unlink_child(pool, id);
	child->record.parent = to;
	child->record.parent_generation = kvd_block(pool, to)->record.generation;
	link_child(pool, to, id);
	kvd_block_record(pool, id);
}

/* Away from those who refer to it, after it became unfindable. */
static void bereave(struct kvd_pool *pool, int32_t id)
{
	if (kvd_block(pool, id)->references == 0) {
		kvd_block_lose(pool, id);
		return;
	}
	kvd_block_orphan(pool, id);
	kvd_pool_count(pool, KVW_COUNTER_orphaned_blocks, 1);
}

void kvd_tree_replace(struct kvd_pool *pool, int32_t old_id, int32_t fresh_id)
{
	struct kvd_block *old = kvd_block(pool, old_id);

	hide(pool, old_id);
	kvd_tree_add(pool, fresh_id);
	while (old->first_child >= 0)
		move_child(pool, old->first_child, fresh_id);
	detach(pool, old_id);
	bereave(pool, old_id);
}

void kvd_tree_orphan(struct kvd_pool *pool, int32_t id)
{
	kvd_tree_remove(pool, id);
	kvd_idle_leave(pool, id);
	bereave(pool, id);
}

void kvd_tree_evict(struct kvd_pool *pool, int32_t id)
{
	const struct kvd_block *block = kvd_block(pool, id);

	kvd_assert(block->list == KVD_LIST_POLICY && block->references == 0 && block->children == 0);
	kvd_tree_remove(pool, id);
	kvd_idle_leave(pool, id);
	kvd_block_free(pool, id);
}
