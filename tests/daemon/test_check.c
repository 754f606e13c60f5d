/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The deep check finds and names damage of what the daemon keeps beside the records: links, counts,
 * references, index, directory.
 */
#include <errno.h>
#include <string.h>

#include "check_scene.h"
#include "daemon/directory.h"
#include "daemon/index.h"

#define assert_damage(scene, id, target, value, what)                                                        \
	do {                                                                                                 \
		__typeof__(target) good_ = (target);                                                         \
		(target) = (value);                                                                          \
		assert_named(scene, id, what);                                                               \
		(target) = good_;                                                                            \
	} while (0)

#define assert_damage_in_full(scene, id, target, value, what)                                                \
	do {                                                                                                 \
		__typeof__(target) good_ = (target);                                                         \
		(target) = (value);                                                                          \
		assert_named_in_full(scene, id, what);                                                       \
		(target) = good_;                                                                            \
	} while (0)

static void damaged_block_is_named(void **unused)
{
	struct scene scene;
	struct scene *s = &scene;
	struct kvd_block *block;

	(void)unused;
	scene_create(s);
	block = s->books.pool->block;
	assert_damage(s, s->e, block[s->e].references, 2, "references is 2, should be 1");
	assert_damage(s, s->e, block[s->e].references, 0, "references is 0, should be 1");
	assert_damage(s, s->a, block[s->a].references, 1, "references");
	assert_damage(s, s->leased[0], block[s->leased[0]].references, 1, "references");
	assert_damage(s, s->a, block[s->a].children, 1, "children");
	assert_damage(s, s->a, block[s->a].busy_children, 1, "busy_children");
	assert_damage(s, s->a, block[s->a].first_child, -1, "children");
	assert_damage(s, s->a, block[s->a].first_child, 10000, "child 0 of its list");
	assert_damage(s, s->a, block[s->a].first_child, s->a, "child 0 of its list");
	assert_damage(s, s->leased[0], block[s->leased[0]].children, 1, "children");
	assert_damage(s, s->leased[0], block[s->leased[0]].children, 5000,
		      "children of a block that is not findable");
	assert_damage(s, s->leased[0], block[s->leased[0]].previous_sibling, 5, "previous_sibling");
	assert_damage(s, s->leased[0], block[s->leased[0]].next_sibling, 5, "next_sibling");
	assert_damage(s, s->b, block[s->b].previous_sibling, -1, "first_child of the parent");
	assert_damage(s, s->b, block[s->b].previous_sibling, s->b, "previous_sibling");
	assert_damage(s, s->b, block[s->b].previous_sibling, 10000, "previous_sibling");
	assert_damage(s, s->c, block[s->c].next_sibling, s->e, "next_sibling");
	assert_damage(s, s->c, block[s->c].next_sibling, s->c, "next_sibling");
	assert_damage(s, s->d, block[s->d].next_sibling, 5, "next_sibling");
	assert_damage(s, s->leased[0], block[s->leased[0]].next, -1, "next");
	assert_damage(s, s->leased[0], block[s->leased[0]].next, s->leased[0], "next");
	assert_damage(s, s->leased[1], block[s->leased[1]].previous, 10000, "previous");
	assert_damage(s, s->leased[1], block[s->leased[1]].previous, s->a, "previous");
	assert_damage(s, s->a, block[s->a].next, 3, "next");
	assert_damage(s, s->a, block[s->a].previous, 3, "previous");
	assert_damage(s, s->a, block[s->a].list, KVD_LIST_NONE, "list");
	assert_damage(s, s->a, block[s->a].list, KVD_LIST_KINDS, "list");
	assert_damage(s, s->leased[0], block[s->leased[0]].list, KVD_LIST_FREE, "list");
	assert_damage(s, s->leased[0], block[s->leased[0]].owner, NULL, "owner");
	assert_damage(s, s->a, block[s->a].owner, s->engine, "owner");
	assert_damage(s, s->a, block[s->a].indexed, 0, "indexed");
	assert_damage(s, s->leased[0], block[s->leased[0]].indexed, 1, "indexed");
	assert_damage(s, s->a, block[s->a].key, 5, "key");
	assert_damage(s, s->leased[0], block[s->leased[0]].key, 5, "key");
	assert_damage(s, s->g, block[s->g].queued, 0, "queued");
	assert_damage(s, s->draining, block[s->draining].queued, 0, "queued");
	assert_damage(s, s->leased[0], block[s->leased[0]].queued, 1, "queued");
	assert_damage(s, s->leased[0], block[s->leased[0]].listed, 1, "listed");
	assert_damage(s, -1, block[s->a].listed, 0, "bucket");
	books_destroy(&s->books);
}

static void damaged_total_is_named(void **unused)
{
	struct scene scene;
	struct scene *s = &scene;
	struct kvd_pool *pool;
	uint32_t state;

	(void)unused;
	scene_create(s);
	pool = s->books.pool;
	for (state = 0; state < KVW_BLOCK_STATES; state++) {
		assert_damage(s, -1, pool->counts[state], 7, "count of");
		assert_damage(s, -1, s->engine->owned[state].length, 7, "engine 1001: length of the list");
	}
	assert_damage(s, -1, pool->evictable, 1, "count of evictable blocks is 1, should be 3");
	assert_damage(s, -1, pool->free.length, 1, "length of the free list");
	assert_damage(s, -1, pool->sinks.length, 0, "length of the list of sinks");
	assert_damage(s, -1, pool->orphans.length, 1, "length of the list of orphans");
	assert_damage(s, -1, pool->ripe.length, 1, "length of the list of ripe blocks");
	assert_damage(s, -1, pool->index->count, 3, "count of indexed blocks");
	assert_damage(s, -1, s->books.tenant[0].used_blocks, 3, "tenant of uid 0: used_blocks is 3");
	assert_damage(s, -1, s->engine->references, 3, "engine 1001: references");
	assert_damage(s, -1, s->engine->hold_count, 3, "engine 1001: hold_count");
	books_destroy(&s->books);
}

static void damaged_hold_is_named(void **unused)
{
	struct scene scene;
	struct scene *s = &scene;
	struct kvd_hold *hold;

	(void)unused;
	scene_create(s);
	hold = s->held.open.hold;
	assert_damage(s, s->e, hold->blocks[1], s->d, "references is 1, should be 0");
	assert_damage(s, -1, hold->blocks[1], 10000, "names block 10000");
	assert_damage(s, s->e, hold->length, 1, "references");
	books_destroy(&s->books);
}

/* Block and hold agree, and both are wrong. */
static void reference_to_an_unpublished_block_is_named(void **unused)
{
	struct scene scene;
	struct scene *s = &scene;
	struct kvd_block *block;
	struct kvd_hold *hold;

	(void)unused;
	scene_create(s);
	block = s->books.pool->block;
	hold = s->held.open.hold;
	hold->blocks[1] = s->leased[0];
	block[s->e].references = 0;
	block[s->leased[0]].references = 1;
	assert_named(s, s->leased[0], "references is 1 in state 1");
	hold->blocks[1] = s->e;
	block[s->e].references = 1;
	block[s->leased[0]].references = 0;
	books_check(&s->books);
	books_destroy(&s->books);
}

/* A pending block that was replaced by a complete one. */
static void damaged_orphan_is_named(void **unused)
{
	struct scene scene;
	struct scene *s = &scene;
	struct kvd_pool *pool;
	struct kvd_engine *other;
	struct row row;
	struct kvd_hold *hold;

	(void)unused;
	scene_create(s);
	pool = s->books.pool;
	other = books_engine(&s->books, 1);
	assert_int_equal(row_open(&s->books, other, &row, "f", 1), 0);
	assert_int_equal(row_publish(&s->books, &row, 1, 0, 0), 0);
	assert_state(&s->books, s->f, ORPHAN);
	hold = s->pending.open.hold;
	pool->block[s->f].references = 0;
	hold->blocks[0] = s->d;
	assert_named(s, s->f, "references is 0, should be above");
	pool->block[s->f].references = 1;
	hold->blocks[0] = s->f;
	pool->block[s->f].queued = 0;
	assert_named(s, s->f, "step of an orphan that waits for none");
	pool->block[s->f].queued = 1;
	assert_damage_in_full(s, -1, pool->orphans.head, s->f, "list of orphans: block");
	books_check(&s->books);
	books_destroy(&s->books);
}

static void damaged_list_is_named(void **unused)
{
	struct scene scene;
	struct scene *s = &scene;
	struct kvd_pool *pool;
	struct kvd_list *leased;

	(void)unused;
	scene_create(s);
	pool = s->books.pool;
	leased = &s->engine->owned[KVW_BLOCK_LEASED];
	assert_damage(s, -1, pool->free.head, -1, "head");
	assert_damage(s, -1, pool->free.tail, 5, "tail");
	assert_damage(s, -1, leased->head, s->leased[1], "head");
	assert_damage_in_full(s, -1, pool->free.head, s->a, "free list: block");
	assert_damage_in_full(s, -1, pool->free.head, 10000, "free list: block 10000");
	assert_damage_in_full(s, -1, pool->sinks.head, s->a, "list of sinks: block");
	assert_damage_in_full(s, -1, pool->ripe.head, s->a, "list of ripe blocks: block");
	assert_damage_in_full(s, -1, leased->tail, s->leased[0], "list of state 1: tail");
	books_destroy(&s->books);
}

/*
 * A ring apart from the list: each link agrees with its neighbours, and only the walk finds too few
 * blocks.
 */
static void ring_apart_from_its_list_is_named(void **unused)
{
	struct scene scene;
	struct kvd_pool *pool;
	struct kvd_block *block;
	int32_t last, middle, first;

	(void)unused;
	scene_create(&scene);
	pool = scene.books.pool;
	block = pool->block;
	last = pool->free.tail;
	middle = block[last].previous;
	first = block[middle].previous;
	block[first].next = -1;
	pool->free.tail = first;
	block[middle].previous = last;
	block[last].next = middle;
	assert_named_in_full(&scene, -1, "free list: length is 6, should be 4");
	block[first].next = middle;
	pool->free.tail = last;
	block[middle].previous = first;
	block[last].next = -1;
	books_check(&scene.books);
	books_destroy(&scene.books);
}

static void damaged_queue_is_named(void **unused)
{
	struct scene scene;
	struct scene *s = &scene;
	struct kvd_wait *waits;

	(void)unused;
	scene_create(s);
	waits = s->engine->waits[2].entries;
	assert_damage_in_full(s, -1, waits[0].step, 99, "step in queue 2 is 10, should be at least 99");
	assert_damage_in_full(s, -1, waits[0].id, (uint32_t)s->a, "is in queue 2, but does not wait");
	assert_damage_in_full(s, -1, waits[0].id, 99999, "is in queue 2, but does not wait");
	assert_damage_in_full(s, -1, s->engine->waits[2].head, 1, "count of queued blocks");
	books_destroy(&s->books);
}

static void damaged_index_is_named(void **unused)
{
	struct scene scene;
	struct scene *s = &scene;
	struct kvd_index *index;
	struct kvd_index_slot *slot;
	uint32_t empty = 0;

	(void)unused;
	scene_create(s);
	index = s->books.pool->index;
	slot = &index->slots[kvd_index_slot_of(index, s->a)];
	while (index->slots[empty].id)
		empty++;
	assert_damage(s, s->a, slot->id, 0, "slot of the index");
	assert_damage(s, s->a, slot->id, s->b, "slot of the index");
	assert_damage(s, -1, slot->id, s->leased[0], "index slot");
	assert_damage(s, -1, slot->id, 10000, "index slot");
	assert_damage(s, -1, slot->id, -1, "index slot");
	assert_damage(s, s->a, slot->key_low, slot->key_low + 1, "key_low");
	assert_damage(s, -1, index->slots[empty].id, s->b, "index slot");
	assert_damage(s, -1, index->slots[empty].id, s->leased[0], "index slot");
	books_destroy(&s->books);
}

static void damaged_directory_is_named(void **unused)
{
	struct scene scene;
	struct scene *s = &scene;
	struct kvd_pool *pool;
	struct kvw_bucket *bucket;
	_Atomic uint64_t *place = NULL;
	_Atomic uint64_t *empty = NULL;
	uint64_t entry;
	uint32_t i;
	int32_t id;

	(void)unused;
	scene_create(s);
	pool = s->books.pool;
	for (id = 0; id < (int32_t)pool->blocks; id++) {
		atomic_fetch_xor(&pool->block_words[id], 1);
		assert_named(s, id, "word in the directory");
		atomic_fetch_xor(&pool->block_words[id], 1);
	}
	bucket = kvd_directory_bucket(pool, s->a, &entry);
	for (i = 0; i < KVW_BUCKET_ENTRIES; i++) {
		if (atomic_load(&bucket->entries[i]) == entry)
			place = &bucket->entries[i];
		if (atomic_load(&bucket->entries[i]) == 0)
			empty = &bucket->entries[i];
	}
	assert_non_null(place);
	assert_non_null(empty);
	atomic_store(place, 0);
	assert_named(s, s->a, "count of entries in its bucket");
	atomic_store(place, entry ^ 1ull << 40);
	assert_named(s, -1, "does not belong there");
	atomic_store(place, entry);
	atomic_store(empty, entry);
	assert_named(s, s->a, "count of entries in its bucket");
	atomic_store(empty, (uint32_t)s->leased[0]);
	assert_named(s, -1, "does not belong there");
	atomic_store(empty, UINT32_MAX);
	assert_named(s, -1, "does not belong there");
	atomic_store(empty, KVD_DIRECTORY_KEPT);
	assert_named(s, -1, "kept while it has left out 0 blocks");
	atomic_store(empty, 0);
	books_check(&s->books);
	books_destroy(&s->books);
}

static void damaged_count_of_left_out_blocks_is_named(void **unused)
{
	struct scene scene;
	struct scene *s = &scene;
	struct kvd_pool *pool;
	struct kvw_bucket *bucket;
	uint64_t entry;
	uint32_t number;

	(void)unused;
	scene_create(s);
	pool = s->books.pool;
	bucket = kvd_directory_bucket(pool, s->a, &entry);
	number = (uint32_t)(bucket - pool->buckets);
	assert_damage(s, -1, pool->left_out[number], 1, "empty while it has left out 1 blocks");
	assert_damage_in_full(s, -1, pool->left_out[number], 1,
			      "sum of the blocks that buckets have left out is 1, should be 0");
	assert_damage(s, -1, pool->left_out_blocks, 1, "count of blocks left out of their buckets is 1");
	assert_damage(s, s->a, pool->block[s->a].listed, 0,
		      "count of empty entries in the bucket that it was left out of");
	books_check(&s->books);
	books_destroy(&s->books);
}

static void damaged_policy_is_named(void **unused)
{
	struct scene scene;
	struct scene *s = &scene;
	struct kvd_pool *pool;

	(void)unused;
	scene_create(s);
	pool = s->books.pool;
	pool->policy_ops->remove(pool->policy, s->b);
	assert_named(s, s->b, "membership in the policy");
	pool->policy_ops->insert(pool->policy, s->b);
	pool->policy_ops->insert(pool->policy, s->leased[0]);
	assert_named(s, s->leased[0], "membership in the policy");
	assert_named_in_full(s, -1, "policy lru");
	pool->policy_ops->remove(pool->policy, s->leased[0]);
	books_check(&s->books);
	books_destroy(&s->books);
}

/* -------- the check itself */

static void one_check_at_a_time(void **unused)
{
	struct scene scene;
	struct kvd_check *check;
	struct kvd_check *second = NULL;

	(void)unused;
	scene_create(&scene);
	assert_int_equal(kvd_check_start(scene.books.pool, &check), 0);
	assert_ptr_equal(scene.books.pool->check, check);
	assert_int_equal(kvd_check_start(scene.books.pool, &second), -EBUSY);
	assert_int_equal(kvd_check_now(scene.books.pool, NULL, 0), -EBUSY);
	kvd_check_end(check);
	assert_null(scene.books.pool->check);
	kvd_check_end(NULL);
	books_destroy(&scene.books);
}

static void result_counts_all_and_keeps_the_first_texts(void **unused)
{
	struct books books;
	struct kvd_check *check;
	const struct kvd_check_result *result;
	int32_t id;

	(void)unused;
	books_create(&books, 100, 1);
	assert_int_equal(kvd_check_start(books.pool, &check), 0);
	for (id = 0; id < 102; id++)
		books.pool->records[id].commit ^= 1;
	assert_int_equal(kvd_check_step(check, UINT32_MAX), 1);
	result = kvd_check_result(check);
	assert_int_equal(result->blocks, 102);
	assert_int_equal(result->faults, 102);
	assert_int_equal(result->texts, KVD_CHECK_TEXTS);
	assert_non_null(strstr(result->text[KVD_CHECK_TEXTS - 1], "block 63: record.commit"));
	kvd_check_end(check);
	for (id = 0; id < 102; id++)
		books.pool->records[id].commit ^= 1;
	books_destroy(&books);
}

static void budget_bounds_each_step(void **unused)
{
	struct scene scene;
	struct kvd_check *check;
	uint32_t steps = 1;

	(void)unused;
	scene_create(&scene);
	assert_int_equal(kvd_check_start(scene.books.pool, &check), 0);
	while (!kvd_check_step(check, 1))
		steps++;
	/* References, blocks, slots and buckets at least. */
	assert_true(steps > 4 + 19 + scene.books.pool->index->mask + scene.books.pool->bucket_count);
	assert_int_equal(kvd_check_step(check, 1), 1);
	assert_int_equal(kvd_check_result(check)->faults, 0);
	kvd_check_end(check);
	books_destroy(&scene.books);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(damaged_block_is_named),
		cmocka_unit_test(damaged_total_is_named),
		cmocka_unit_test(damaged_hold_is_named),
		cmocka_unit_test(reference_to_an_unpublished_block_is_named),
		cmocka_unit_test(damaged_orphan_is_named),
		cmocka_unit_test(damaged_list_is_named),
		cmocka_unit_test(ring_apart_from_its_list_is_named),
		cmocka_unit_test(damaged_queue_is_named),
		cmocka_unit_test(damaged_index_is_named),
		cmocka_unit_test(damaged_directory_is_named),
		cmocka_unit_test(damaged_count_of_left_out_blocks_is_named),
		cmocka_unit_test(damaged_policy_is_named),
		cmocka_unit_test(one_check_at_a_time),
		cmocka_unit_test(result_counts_all_and_keeps_the_first_texts),
		cmocka_unit_test(budget_bounds_each_step),
	};

	kvt_watchdog(120);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
