/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One block's place: its list, its family, its index slot, its word and entry in the directory; and
 * the reverse, from slots and buckets to blocks.
 */
#include "check_internal.h"
#include "directory.h"

/* In a slice the check follows at most that many children of one block. */
#define CHILDREN_MAX 1024u

/* -------- lists */

/*
 * `neighbour` is the link's value; behind it the block must be found again, or else at that end of the
 * list.
 */
static void check_link(struct kvd_check *check, int32_t id, const char *what, int32_t neighbour, int32_t back,
		       int32_t end)
{
	if (neighbour < 0)
		kvd_check_same(check, id, what, (uint64_t)end, (uint64_t)id);
	else if (back != id)
		kvd_check_fault(check, "block %d: %s is block %d, whose link back is %d", id, what, neighbour,
				back);
}

static bool is_neighbour(struct kvd_check *check, int32_t id, const char *what, int32_t neighbour)
{
	if (neighbour < 0)
		return false;
	if (kvd_check_is_id(check, neighbour) &&
	    check->pool->block[neighbour].list == check->pool->block[id].list)
		return true;
	kvd_check_fault(check, "block %d: %s is %d, which is not on its list", id, what, neighbour);
	return false;
}

static void check_list(struct kvd_check *check, int32_t id, const struct kvd_block *block)
{
	struct kvd_pool *pool = check->pool;
	const struct kvd_list *list;

	if (block->list == KVD_LIST_OWNED && !block->owner)
		return;
	list = kvd_list_of(pool, block);
	if (!list) {
		kvd_check_same(check, id, "previous of a block on no list", (uint64_t)block->previous,
			       (uint64_t)-1);
		kvd_check_same(check, id, "next of a block on no list", (uint64_t)block->next, (uint64_t)-1);
		return;
	}
	if (is_neighbour(check, id, "previous", block->previous) || block->previous < 0)
		check_link(check, id,
			   block->previous < 0 ? "head of the list of a block without previous" : "previous",
			   block->previous, block->previous < 0 ? -1 : pool->block[block->previous].next,
			   list->head);
	if (is_neighbour(check, id, "next", block->next) || block->next < 0)
		check_link(check, id, block->next < 0 ? "tail of the list of a block without next" : "next",
			   block->next, block->next < 0 ? -1 : pool->block[block->next].previous, list->tail);
}

/* -------- family */

static bool is_child_of(const struct kvd_check *check, int32_t child, int32_t parent)
{
	return kvd_check_is_id(check, child) && check->pool->block[child].indexed &&
	       check->pool->block[child].record.parent == parent;
}

static void check_siblings(struct kvd_check *check, int32_t id, const struct kvd_block *block)
{
	struct kvd_pool *pool = check->pool;
	int32_t parent = block->record.parent;

	if (block->previous_sibling < 0)
		check_link(check, id, "first_child of the parent", -1, -1,
			   kvd_block(pool, parent)->first_child);
	else if (!is_child_of(check, block->previous_sibling, parent))
		kvd_check_fault(check, "block %d: previous_sibling is %d, which is none", id,
				block->previous_sibling);
	else
		check_link(check, id, "previous_sibling", block->previous_sibling,
			   pool->block[block->previous_sibling].next_sibling, -1);
	if (block->next_sibling < 0)
		return;
	if (!is_child_of(check, block->next_sibling, parent))
		kvd_check_fault(check, "block %d: next_sibling is %d, which is none", id,
				block->next_sibling);
	else
		check_link(check, id, "next_sibling", block->next_sibling,
			   pool->block[block->next_sibling].previous_sibling, -1);
}

static void check_parent(struct kvd_check *check, int32_t id, const struct kvd_block *block)
{
	const struct kvd_block *parent;

	if (!block->indexed || block->record.parent < 0) {
		kvd_check_same(check, id, "previous_sibling", (uint64_t)block->previous_sibling,
			       (uint64_t)-1);
		kvd_check_same(check, id, "next_sibling", (uint64_t)block->next_sibling, (uint64_t)-1);
		return;
	}
	if (!kvd_check_is_id(check, block->record.parent)) {
		kvd_check_fault(check, "block %d: parent is %d, which is no block", id, block->record.parent);
		return;
	}
	parent = kvd_block(check->pool, block->record.parent);
	if (!parent->indexed)
		kvd_check_fault(check, "block %d: parent is block %d, which is not findable", id,
				block->record.parent);
	kvd_check_same(check, id, "parent_generation", block->record.parent_generation,
		       parent->record.generation);
	check_siblings(check, id, block);
}

static void check_children(struct kvd_check *check, int32_t id, const struct kvd_block *block)
{
	uint32_t children = 0;
	uint32_t busy = 0;
	int32_t child;

	if (!block->indexed)
		kvd_check_same(check, id, "children of a block that is not findable", block->children, 0);
	if (block->children > CHILDREN_MAX && !check->full)
		return;
	for (child = block->first_child; child >= 0; child = check->pool->block[child].next_sibling) {
		if (!is_child_of(check, child, id) || children == check->pool->blocks) {
			kvd_check_fault(check, "block %d: child %u of its list is %d, which is none", id,
					children, child);
			return;
		}
		children++;
		busy += check->pool->block[child].list != KVD_LIST_POLICY;
	}
	kvd_check_same(check, id, "children", block->children, children);
	kvd_check_same(check, id, "busy_children", block->busy_children, busy);
}

/* -------- index and directory */

static bool is_findable(const struct kvw_block_record *record)
{
	return record->state == KVW_BLOCK_PENDING || record->state == KVW_BLOCK_CACHED;
}

static void check_indexed(struct kvd_check *check, int32_t id, const struct kvd_block *block)
{
	const struct kvw_block_record *record = &block->record;
	uint64_t key = 0;

	kvd_check_same(check, id, "indexed", block->indexed, is_findable(record));
	if (is_findable(record) && record->hash_bytes <= KVW_MAX_HASH_BYTES)
		key = kvd_index_key(check->pool->index, record->namespace_id, check->pool->epoch,
				    record->hash, record->hash_bytes);
	kvd_check_same(check, id, "key", block->key, key);
	if (block->indexed && kvd_index_slot_of(check->pool->index, id) < 0)
		kvd_check_fault(check, "block %d: slot of the index is -1, should be where its key leads",
				id);
}

static uint32_t count_entries(const struct kvw_bucket *bucket, uint64_t entry)
{
	uint32_t count = 0;
	uint32_t i;

	for (i = 0; i < KVW_BUCKET_ENTRIES; i++)
		count += atomic_load_explicit(&bucket->entries[i], memory_order_relaxed) == entry;
	return count;
}

static void check_directory(struct kvd_check *check, int32_t id, const struct kvd_block *block)
{
	struct kvd_pool *pool = check->pool;
	uint64_t word = atomic_load_explicit(&pool->block_words[id], memory_order_relaxed);
	const struct kvw_bucket *bucket;
	uint64_t entry;

	kvd_check_same(check, id, "word in the directory", word,
		       kvw_block_word(block->record.generation, block->record.state));
	if (block->listed)
		kvd_check_same(check, id, "listed", block->listed, block->indexed);
	if (!(block->listed || block->indexed) || block->record.hash_bytes > KVW_MAX_HASH_BYTES)
		return;
	bucket = kvd_directory_bucket(pool, id, &entry);
	kvd_check_same(check, id, "count of entries in its bucket of the directory",
		       count_entries(bucket, entry), block->listed);
	if (!block->listed)
		kvd_check_same(check, id, "count of empty entries in the bucket that it was left out of",
			       count_entries(bucket, 0), 0);
}

void kvd_check_links(struct kvd_check *check, int32_t id)
{
	const struct kvd_block *block = kvd_block(check->pool, id);

	check_list(check, id, block);
	kvd_check_same(check, id, "membership in the policy",
		       check->pool->policy_ops->contains(check->pool->policy, id) != 0,
		       block->list == KVD_LIST_POLICY);
	check_parent(check, id, block);
	check_children(check, id, block);
	check_indexed(check, id, block);
	check_directory(check, id, block);
}

void kvd_check_slot(struct kvd_check *check, uint32_t slot)
{
	const struct kvd_index *index = check->pool->index;
	struct kvd_index_slot found = index->slots[slot];

	if (!found.id)
		return;
	if (!kvd_check_is_id(check, found.id) || !index->blocks[found.id].indexed)
		kvd_check_fault(check, "index slot %u: block is %d, which is not findable", slot, found.id);
	else if (kvd_index_slot_of(index, found.id) != slot)
		kvd_check_fault(check, "index slot %u: block is %d, whose slot is %lld", slot, found.id,
				(long long)kvd_index_slot_of(index, found.id));
	else
		kvd_check_same(check, found.id, "key_low in the index", found.key_low,
			       (uint32_t)index->blocks[found.id].key);
}

static void check_entry(struct kvd_check *check, uint32_t number, uint64_t found)
{
	struct kvd_pool *pool = check->pool;
	int32_t id = (int32_t)(found & UINT32_MAX);
	const struct kvw_bucket *bucket = NULL;
	uint64_t entry = 0;

	if (kvd_check_is_id(check, id) && pool->block[id].listed &&
	    pool->block[id].record.hash_bytes <= KVW_MAX_HASH_BYTES)
		bucket = kvd_directory_bucket(pool, id, &entry);
	if (bucket != &pool->buckets[number] || entry != found)
		kvd_check_fault(check, "bucket %u: entry is %016llx, block %d, which does not belong there",
				number, (unsigned long long)found, id);
}

/* Places are kept, and none is empty, exactly while a block is left out. */
static void check_kept(struct kvd_check *check, uint32_t number)
{
	const struct kvw_bucket *bucket = &check->pool->buckets[number];
	uint32_t left_out = check->pool->left_out[number];
	uint32_t wrong = count_entries(bucket, left_out ? 0 : KVD_DIRECTORY_KEPT);

	if (wrong)
		kvd_check_fault(check, "bucket %u: %u of its entries are %s while it has left out %u blocks",
				number, wrong, left_out ? "empty" : "kept", left_out);
}

void kvd_check_bucket(struct kvd_check *check, uint32_t number)
{
	const struct kvw_bucket *bucket = &check->pool->buckets[number];
	uint32_t i;

	for (i = 0; i < KVW_BUCKET_ENTRIES; i++) {
		uint64_t found = atomic_load_explicit(&bucket->entries[i], memory_order_relaxed);

		if (found && found != KVD_DIRECTORY_KEPT)
			check_entry(check, number, found);
	}
	check_kept(check, number);
}
