/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The deep check finds every damage and names it. Each field of a record is corrupted in turn, in the segment and in the daemon's copy;
 * then what the daemon keeps beside the records: links, counts, references, index, directory.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "books.h"
#include "daemon/directory.h"
#include "daemon/index.h"
#include "daemon/record.h"

/* "ab" and "ac" are cached and unreferenced, "de" is held and complete, "fg" pending; two blocks leased, one draining. */
struct scene {
	struct books books;
	struct kvd_engine *engine;
	struct row held;
	struct row pending;
	int32_t a, b, c, d, e, f, g;
	int32_t leased[2];
	int32_t draining;
};

static void scene_create(struct scene *scene)
{
	struct books *books = &scene->books;
	struct kvd_engine *engine;
	int i;

	books_create(books, 16, 2);
	engine = books_engine(books, 0);
	scene->engine = engine;
	books_fill(books, engine, "ab");
	books_fill(books, engine, "ac");
	row_write(books, engine, &scene->held, "de", 0, 0);
	row_write(books, engine, &scene->pending, "fg", 2, 10);
	for (i = 0; i < 2; i++)
		assert_int_equal(kvd_pool_grant(books->pool, engine, &scene->leased[i]), 0);
	assert_int_equal(kvd_pool_grant(books->pool, engine, &scene->draining), 0);
	assert_int_equal(kvd_engine_return(engine, scene->draining, 1, 1, 5), 0);
	scene->a = books_find(books, engine, "a");
	scene->b = books_find(books, engine, "ab");
	scene->c = books_find(books, engine, "ac");
	scene->d = books_find(books, engine, "d");
	scene->e = books_find(books, engine, "de");
	scene->f = books_find(books, engine, "f");
	scene->g = books_find(books, engine, "fg");
	books_check(books);
}

/* Whether some fault contains all of `parts` (NULL ends them). */
static bool is_named(const struct kvd_check_result *result, const char *const *parts)
{
	uint32_t i;

	for (i = 0; i < result->texts; i++) {
		uint32_t part = 0;

		while (parts[part] && strstr(result->text[i], parts[part]))
			part++;
		if (!parts[part])
			return true;
	}
	return false;
}

/* Runs a whole check, in one go or in slices, and wants a fault that names block (unless it is < 0) and `what`. */
static void assert_named_by(struct scene *scene, uint32_t budget, int32_t id, const char *what)
{
	char block[32] = "pool 3";
	const char *const parts[] = {block, what, NULL};
	struct kvd_check *check;

	if (id >= 0)
		snprintf(block, sizeof(block), "pool 3 block %d:", id);
	assert_int_equal(kvd_check_start(scene->books.pool, &check), 0);
	while (!kvd_check_step(check, budget))
		;
	if (!kvd_check_result(check)->faults)
		fail_msg("damage of '%s' of %s was not found", what, block);
	if (!is_named(kvd_check_result(check), parts))
		fail_msg("'%s' of %s is not named, but: %s", what, block, kvd_check_result(check)->text[0]);
	kvd_check_end(check);
}

static void assert_named(struct scene *scene, int32_t id, const char *what)
{
	assert_named_by(scene, UINT32_MAX, id, what);
	assert_named_by(scene, 3, id, what);
}

/* What only a check that runs without a stop can see. */
static void assert_named_in_full(struct scene *scene, int32_t id, const char *what)
{
	assert_named_by(scene, UINT32_MAX, id, what);
}

/* -------- records */

struct field {
	const char *name;
	size_t offset;
	size_t bytes;
};

#define FIELD(field)                                                                                         \
	{                                                                                                    \
		"record." #field, offsetof(struct kvw_block_record, field),                                  \
			sizeof(((struct kvw_block_record *)NULL)->field)                                     \
	}

static const struct field fields[] = {
	FIELD(hash),    FIELD(generation), FIELD(parent_generation), FIELD(parent),    FIELD(namespace_id),
	FIELD(session), FIELD(step),       FIELD(last_use),          FIELD(state),     FIELD(tier),
	FIELD(group),   FIELD(hash_bytes), FIELD(timeline),          FIELD(plane_set), FIELD(flags),
	FIELD(commit),
};
#define FIELD_COUNT (sizeof(fields) / sizeof(fields[0]))

static void fields_are_the_whole_record(void **unused)
{
	size_t bytes = 0;
	size_t i;

	(void)unused;
	for (i = 0; i < FIELD_COUNT; i++)
		bytes += fields[i].bytes;
	assert_int_equal(bytes, sizeof(struct kvw_block_record));
}

static int32_t block_of(const struct scene *scene, uint32_t kind)
{
	const int32_t ids[] = {
		scene->a, scene->e, scene->g, scene->leased[0], scene->draining, 0, scene->engine->sink, 18};

	return kind < sizeof(ids) / sizeof(ids[0]) ? ids[kind] : -1;
}

/* Flips one bit of each byte of each field of one block of each kind. */
static void every_byte_of_every_record_field_is_named(void **unused)
{
	struct scene scene;
	uint32_t kind;
	size_t i, j;

	(void)unused;
	scene_create(&scene);
	for (kind = 0; block_of(&scene, kind) >= 0; kind++) {
		int32_t id = block_of(&scene, kind);

		for (i = 0; i < FIELD_COUNT; i++) {
			for (j = 0; j < fields[i].bytes; j++) {
				uint8_t *byte =
					(uint8_t *)&scene.books.pool->records[id] + fields[i].offset + j;

				*byte ^= (uint8_t)(1u << (j % 8));
				assert_named(&scene, id, fields[i].name);
				*byte ^= (uint8_t)(1u << (j % 8));
			}
		}
	}
	books_check(&scene.books);
	books_destroy(&scene.books);
}

/* Also where the commit was made to fit: only the copy can tell. */
static void field_with_a_fitting_commit_is_named(void **unused)
{
	struct scene scene;
	size_t i;

	(void)unused;
	scene_create(&scene);
	for (i = 0; i + 1 < FIELD_COUNT; i++) {
		struct kvw_block_record *record = &scene.books.pool->records[scene.e];
		struct kvw_block_record good = *record;

		((uint8_t *)record)[fields[i].offset] ^= 1;
		record->commit = kvd_record_seal(record, (uint32_t)scene.e, scene.books.pool->incarnation);
		assert_named(&scene, scene.e, fields[i].name);
		*record = good;
	}
	books_destroy(&scene.books);
}

/* The same damage in the record and in the copy, commit and all: what is left are the rules of the state. */
static void assert_rule(struct scene *scene, int32_t id, const struct kvw_block_record *bad, const char *what)
{
	struct kvd_pool *pool = scene->books.pool;
	struct kvw_block_record good = pool->block[id].record;
	struct kvw_block_record good_slot = pool->records[id];

	pool->block[id].record = *bad;
	kvd_record_write(&pool->records[id], bad, (uint32_t)id, pool->incarnation);
	assert_named(scene, id, what);
	pool->block[id].record = good;
	pool->records[id] = good_slot;
}

#define assert_rule_of(scene, id, field, value, what)                                                        \
	do {                                                                                                 \
		struct kvw_block_record bad_ = (scene)->books.pool->block[id].record;                        \
		bad_.field = value;                                                                          \
		assert_rule(scene, id, &bad_, what);                                                         \
	} while (0)

static void rules_of_the_states_are_held(void **unused)
{
	struct scene scene;
	struct scene *s = &scene;

	(void)unused;
	scene_create(s);
	assert_rule_of(s, s->leased[0], hash[3], 1, "hash");
	assert_rule_of(s, s->leased[0], hash_bytes, 8, "hash_bytes");
	assert_rule_of(s, s->leased[0], parent, 4, "parent");
	assert_rule_of(s, s->leased[0], parent_generation, 4, "parent_generation");
	assert_rule_of(s, s->leased[0], namespace_id, 4, "namespace_id");
	assert_rule_of(s, s->leased[0], plane_set, 4, "plane_set");
	assert_rule_of(s, s->leased[0], step, 4, "step");
	assert_rule_of(s, s->leased[0], timeline, 4, "timeline");
	assert_rule_of(s, s->leased[0], last_use, 4, "last_use");
	assert_rule_of(s, s->leased[0], tier, 1, "tier");
	assert_rule_of(s, s->leased[0], group, 1, "group");
	assert_rule_of(s, s->leased[0], flags, KVW_RECORD_SINK, "flags");
	assert_rule_of(s, s->leased[0], generation, 0, "generation");
	assert_rule_of(s, s->leased[0], session, 1, "session");
	assert_rule_of(s, s->leased[0], state, KVW_BLOCK_STATES, "state");
	assert_rule_of(s, s->leased[0], state, KVW_BLOCK_QUARANTINED, "state");
	assert_rule_of(s, s->leased[0], state, KVW_BLOCK_FROZEN, "state");
	assert_rule_of(s, s->a, hash_bytes, 0, "hash_bytes");
	assert_rule_of(s, s->a, hash_bytes, KVW_MAX_HASH_BYTES + 1, "hash_bytes");
	assert_rule_of(s, s->a, hash[40], 1, "hash");
	assert_rule_of(s, s->a, hash[0], (uint8_t)~bad_.hash[0], "key");
	assert_rule_of(s, s->a, namespace_id, 8, "key");
	assert_rule_of(s, s->a, plane_set, 0, "plane_set");
	assert_rule_of(s, s->a, last_use, UINT64_MAX, "last_use");
	assert_rule_of(s, s->a, generation, 9, "word in the directory");
	assert_rule_of(s, s->b, parent, 500, "parent");
	assert_rule_of(s, s->b, parent, s->leased[0], "parent");
	assert_rule_of(s, s->b, parent_generation, 9, "parent_generation");
	assert_rule_of(s, s->g, timeline, KVW_TIMELINES, "timeline");
	assert_rule_of(s, 18, session, 4, "session");
	assert_rule_of(s, 0, generation, 4, "generation");
	books_destroy(&s->books);
}

/* -------- what is beside the records */

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
	assert_damage_in_full(s, -1, pool->ripe.head, s->a, "list of ripe blocks: block");
	assert_damage_in_full(s, -1, leased->tail, s->leased[0], "list of state 1: tail");
	books_destroy(&s->books);
}

/* A ring apart from the list: each link agrees with its neighbours, and only the walk finds too few blocks. */
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
	atomic_store(empty, 0);
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
		cmocka_unit_test(fields_are_the_whole_record),
		cmocka_unit_test(every_byte_of_every_record_field_is_named),
		cmocka_unit_test(field_with_a_fitting_commit_is_named),
		cmocka_unit_test(rules_of_the_states_are_held),
		cmocka_unit_test(damaged_block_is_named),
		cmocka_unit_test(damaged_total_is_named),
		cmocka_unit_test(damaged_hold_is_named),
		cmocka_unit_test(damaged_list_is_named),
		cmocka_unit_test(ring_apart_from_its_list_is_named),
		cmocka_unit_test(damaged_queue_is_named),
		cmocka_unit_test(damaged_index_is_named),
		cmocka_unit_test(damaged_directory_is_named),
		cmocka_unit_test(damaged_policy_is_named),
		cmocka_unit_test(one_check_at_a_time),
		cmocka_unit_test(result_counts_all_and_keeps_the_first_texts),
		cmocka_unit_test(budget_bounds_each_step),
	};

	kvt_watchdog(120);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
