/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool alone: its formats, granting, and the directory.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <kvpool/error.h>

#include "books.h"
#include "daemon/directory.h"
#include "daemon/record.h"

static void create_refuses_bad_parameters(void **unused)
{
	uint8_t memory[8];
	struct kvd_pool_params good = {
		.data_blocks = 4,
		.policy = &kvd_policy_lru,
		.state = memory,
		.directory = memory,
	};
	struct kvd_pool_params params;
	struct kvd_pool *pool = NULL;

	(void)unused;
	params = good;
	params.policy = NULL;
	assert_int_equal(kvd_pool_create(&params, &pool), -EINVAL);
	params = good;
	params.state = NULL;
	assert_int_equal(kvd_pool_create(&params, &pool), -EINVAL);
	params = good;
	params.directory = NULL;
	assert_int_equal(kvd_pool_create(&params, &pool), -EINVAL);
	params = good;
	params.data_blocks = 0;
	assert_int_equal(kvd_pool_create(&params, &pool), -EINVAL);
	params.data_blocks = KVW_MAX_BLOCKS + 1;
	assert_int_equal(kvd_pool_create(&params, &pool), -EINVAL);
	params = good;
	params.sink_blocks = KVW_MAX_ENGINES + 1;
	assert_int_equal(kvd_pool_create(&params, &pool), -EINVAL);
	assert_null(pool);
	kvd_pool_destroy(NULL);
}

static void create_formats_both_segments(void **unused)
{
	struct books books;
	const struct kvw_state_header *state;
	const struct kvw_directory_header *directory;
	const struct kvw_block_record *records;
	const struct kvd_pool *pool;

	(void)unused;
	books_create(&books, 5, 2);
	pool = books.pool;
	state = (const struct kvw_state_header *)books.state;
	assert_int_equal(state->magic, KVW_MAGIC_STATE);
	assert_int_equal(state->blocks, 8);
	assert_int_equal(state->incarnation, pool->incarnation);
	assert_true(state->session_table + state->sessions * sizeof(struct kvw_session_record) <=
		    state->records);
	assert_true(state->records + 8 * sizeof(*records) <= books.state_bytes);
	records = (const struct kvw_block_record *)(books.state + state->records);
	assert_int_equal(records[0].flags, KVW_RECORD_NULL);
	assert_int_equal(records[2].flags, KVW_RECORD_SINK);
	assert_int_equal(records[3].flags, 0);
	directory = (const struct kvw_directory_header *)books.directory;
	assert_int_equal(directory->magic, KVW_MAGIC_DIRECTORY);
	assert_int_equal(directory->blocks, 8);
	assert_int_equal(directory->pool, 3);
	assert_int_equal(directory->bytes, books.directory_bytes);
	assert_int_equal(directory->epoch, pool->epoch);
	books_destroy(&books);
}

static void record_that_was_torn_is_told(void **unused)
{
	struct kvw_block_record body = {.generation = 7, .parent = -1, .state = KVW_BLOCK_LEASED};
	struct kvw_block_record slot = {0};
	struct kvw_block_record torn;

	(void)unused;
	kvd_record_write(&slot, &body, 5, 99);
	assert_true(kvd_record_intact(&slot, 5, 99));
	assert_int_equal(slot.generation, 7);
	assert_false(kvd_record_intact(&slot, 6, 99));
	assert_false(kvd_record_intact(&slot, 5, 98));
	torn = slot;
	torn.commit = 0;
	assert_false(kvd_record_intact(&torn, 5, 99));
	torn = slot;
	torn.timeline = 1;
	assert_false(kvd_record_intact(&torn, 5, 99));
}

static void grant_takes_each_block_once_with_a_higher_generation(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	bool seen[8] = {false};
	int32_t id;
	int i;

	(void)unused;
	books_create(&books, 5, 2);
	engine = books_engine(&books, 0);
	for (i = 0; i < 5; i++) {
		assert_int_equal(kvd_pool_grant(books.pool, engine, &id), 0);
		books_check(&books);
		assert_true(kvd_pool_is_data(books.pool, id));
		assert_false(seen[id]);
		seen[id] = true;
		assert_int_equal(books.pool->block[id].record.generation, 1);
	}
	assert_int_equal(kvd_pool_grant(books.pool, engine, &id), -KVP_ENOBLOCKS);
	kvd_pool_ungrant(books.pool, 4);
	books_check(&books);
	assert_state(&books, 4, FREE);
	assert_int_equal(kvd_pool_grant(books.pool, engine, &id), 0);
	assert_int_equal(id, 4);
	assert_int_equal(books.pool->block[4].record.generation, 2);
	assert_int_equal(atomic_load(&books.pool->block_words[4]), kvw_block_word(2, KVW_BLOCK_LEASED));
	books_destroy(&books);
}

static void sinks_are_counted_apart(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	struct kvd_engine_params params;
	struct kvd_engine *other = NULL;
	int32_t id;

	(void)unused;
	books_create(&books, 2, 1);
	engine = books_engine(&books, 0);
	assert_int_equal(engine->sink, 1);
	assert_state(&books, 1, LEASED);
	assert_int_equal(books.pool->counts[KVW_BLOCK_LEASED], 0);
	assert_int_equal(books.tenant[0].used_blocks, 0);
	assert_int_equal(kvd_pool_grant_sink(books.pool, engine, &id), -KVP_ELIMIT);
	params = (struct kvd_engine_params){
		.hash_bytes = 8, .max_holds = 1, .max_hold_blocks = 1, .tenant = &books.tenant[0]};
	assert_int_equal(kvd_engine_create(books.pool, &params, &other), -KVP_ELIMIT);
	assert_null(other);
	books_check(&books);
	/* Not even its owner can give a sink back by naming it. */
	assert_int_equal(kvd_engine_return(engine, 1, 1, 0, 0), -KVP_ESTALE);
	books_destroy(&books);
}

static void find_refuses_impossible_hashes(void **unused)
{
	struct books books;
	uint8_t hash[KVW_MAX_HASH_BYTES + 1] = {0};

	(void)unused;
	books_create(&books, 2, 1);
	assert_int_equal(kvd_pool_find(books.pool, 9, hash, 0), -1);
	assert_int_equal(kvd_pool_find(books.pool, 9, hash, KVW_MAX_HASH_BYTES + 1), -1);
	assert_int_equal(kvd_pool_find(books.pool, 9, hash, 32), -1);
	books_destroy(&books);
}

static void another_namespace_finds_nothing(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	struct kvd_engine *other;
	struct row row;

	(void)unused;
	books_create(&books, 8, 2);
	engine = books_engine(&books, 0);
	books_fill(&books, engine, "ab");
	other = books_engine(&books, 0);
	other->namespace_id = 10;
	assert_int_equal(row_open(&books, other, &row, "ab", UINT32_MAX), 0);
	assert_int_equal(row.matched, 0);
	assert_int_equal(row_publish(&books, &row, 2, 0, 0), 0);
	assert_int_not_equal(books_find(&books, engine, "ab"), books_find(&books, other, "ab"));
	books_destroy(&books);
}

/* -------- directory */

static bool bucket_has(const struct kvd_pool *pool, int32_t id)
{
	uint64_t entry;
	const struct kvw_bucket *bucket = kvd_directory_bucket(pool, id, &entry);
	uint32_t i;

	for (i = 0; i < KVW_BUCKET_ENTRIES; i++)
		if (atomic_load(&bucket->entries[i]) == entry)
			return true;
	return false;
}

static void directory_follows_the_index(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	struct row row;
	int32_t id;

	(void)unused;
	books_create(&books, 4, 1);
	engine = books_engine(&books, 0);
	row_write(&books, engine, &row, "a", 0, 5);
	id = row.answers[0].id;
	assert_true(bucket_has(books.pool, id));
	assert_int_equal(atomic_load(&books.pool->block_words[id]), kvw_block_word(1, KVW_BLOCK_PENDING));
	books_reach(&books, engine, 0, 5);
	assert_int_equal(atomic_load(&books.pool->block_words[id]), kvw_block_word(1, KVW_BLOCK_CACHED));
	assert_int_equal(row_release(&books, &row, 0, 0), 0);
	assert_int_equal(kvd_pool_flush_one(books.pool), 1);
	assert_int_equal(atomic_load(&books.pool->block_words[id]), kvw_block_word(1, KVW_BLOCK_FREE));
	for (id = 0; id < (int32_t)books.pool->bucket_count; id++)
		assert_int_equal(atomic_load(&books.pool->buckets[id].entries[0]), 0);
	books_destroy(&books);
}

/*
 * Many blocks in the two buckets of a small pool: some find no place, and the index finds them all the
 * same.
 */
static void full_bucket_leaves_a_block_out(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	struct row rows[10];
	static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"};
	uint32_t listed = 0;
	uint32_t i;

	(void)unused;
	books_create(&books, 10, 1);
	/* One bucket serves all: a directory of a smaller pool. */
	books.pool->bucket_count = 1;
	engine = books_engine(&books, 0);
	for (i = 0; i < 10; i++) {
		row_write(&books, engine, &rows[i], names[i], 0, 0);
		assert_int_equal(books_find(&books, engine, names[i]), rows[i].answers[0].id);
		listed += bucket_has(books.pool, rows[i].answers[0].id);
	}
	assert_int_equal(listed, KVW_BUCKET_ENTRIES);
	for (i = 0; i < 10; i++)
		assert_int_equal(row_release(&books, &rows[i], 0, 0), 0);
	for (i = 0; i < 10; i++) {
		assert_int_equal(kvd_pool_flush_one(books.pool), 1);
		books_check(&books);
	}
	books_destroy(&books);
}

static bool bucket_says_ask(const struct kvd_pool *pool, int32_t id)
{
	uint64_t entry;
	const struct kvw_bucket *bucket = kvd_directory_bucket(pool, id, &entry);
	uint32_t i;

	for (i = 0; i < KVW_BUCKET_ENTRIES; i++)
		if (atomic_load(&bucket->entries[i]) == 0)
			return false;
	return true;
}

/* No client must read "not there" of a block that is findable. */
static void assert_none_missing(const struct kvd_pool *pool)
{
	int32_t id;

	for (id = 0; id < (int32_t)pool->blocks; id++)
		if (pool->block[id].indexed)
			assert_true(bucket_has(pool, id) || bucket_says_ask(pool, id));
}

static void bucket_says_ask_while_a_block_of_it_is_left_out(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	struct row held, row;
	uint32_t i;

	(void)unused;
	books_create(&books, 12, 1);
	books.pool->bucket_count = 1;
	engine = books_engine(&books, 0);
	for (i = 0; i < 8; i++)
		books_fill(&books, engine, (const char *[]){"a", "b", "c", "d", "e", "f", "g", "h"}[i]);
	row_write(&books, engine, &held, "i", 0, 0);
	books_fill(&books, engine, "j");
	for (i = 0; i < 3; i++) {
		assert_int_equal(kvd_pool_flush_one(books.pool), 1);
		books_check(&books);
		assert_none_missing(books.pool);
	}
	/* A place that was kept serves the next block. */
	row_write(&books, engine, &row, "k", 0, 0);
	assert_true(bucket_has(books.pool, row.answers[0].id));
	assert_int_equal(row_release(&books, &row, 0, 0), 0);
	while (kvd_pool_flush_one(books.pool)) {
		books_check(&books);
		assert_none_missing(books.pool);
	}
	/* With the last one left out the bucket has room again. */
	assert_true(bucket_says_ask(books.pool, held.answers[0].id));
	assert_int_equal(row_release(&books, &held, 0, 0), 0);
	assert_int_equal(kvd_pool_flush_one(books.pool), 1);
	for (i = 0; i < KVW_BUCKET_ENTRIES; i++)
		assert_int_equal(atomic_load(&books.pool->buckets[0].entries[i]), 0);
	books_destroy(&books);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(create_refuses_bad_parameters),
		cmocka_unit_test(create_formats_both_segments),
		cmocka_unit_test(record_that_was_torn_is_told),
		cmocka_unit_test(grant_takes_each_block_once_with_a_higher_generation),
		cmocka_unit_test(sinks_are_counted_apart),
		cmocka_unit_test(find_refuses_impossible_hashes),
		cmocka_unit_test(another_namespace_finds_nothing),
		cmocka_unit_test(directory_follows_the_index),
		cmocka_unit_test(full_bucket_leaves_a_block_out),
		cmocka_unit_test(bucket_says_ask_while_a_block_of_it_is_left_out),
	};

	kvt_watchdog(120);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
