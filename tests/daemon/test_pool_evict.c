/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is evicted, in which order, and what never is.
 */
#include <string.h>

#include <kvpool/error.h>

#include "books.h"

/* The ids of a cached sequence, read by name. */
static void find_all(struct books *books, struct kvd_engine *engine, const char *name, int32_t *ids)
{
	char prefix[ROW_BLOCKS + 1] = "";
	size_t i;

	for (i = 0; i < strlen(name); i++) {
		prefix[i] = name[i];
		ids[i] = books_find(books, engine, prefix);
		assert_true(ids[i] > 0);
	}
}

static void assert_next_evicted(struct books *books, struct kvd_engine *engine, int32_t expected)
{
	int32_t id;

	assert_int_equal(kvd_pool_grant(books->pool, engine, &id), 0);
	books_check(books);
	assert_int_equal(id, expected);
}

static void chain_goes_from_its_tail_and_oldest_release_first(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	int32_t abc[3];
	int32_t de[2];
	uint32_t i;

	(void)unused;
	books_create(&books, 5, 1);
	engine = books_engine(&books, 0);
	books_fill(&books, engine, "abc");
	books_fill(&books, engine, "de");
	find_all(&books, engine, "abc", abc);
	find_all(&books, engine, "de", de);
	assert_int_equal(books.pool->evictable, 5);
	/* The clock of a later daemon's list: the same order. */
	assert_true(books.pool->records[abc[2]].last_use > 0);
	assert_true(books.pool->records[abc[1]].last_use > books.pool->records[abc[2]].last_use);
	assert_true(books.pool->records[de[1]].last_use > books.pool->records[abc[0]].last_use);
	for (i = 3; i-- > 0;)
		assert_next_evicted(&books, engine, abc[i]);
	for (i = 2; i-- > 0;)
		assert_next_evicted(&books, engine, de[i]);
	assert_int_equal(books_counter(&books, KVW_COUNTER_evicted_blocks), 5);
	assert_int_equal(kvd_pool_grant(books.pool, engine, &abc[0]), -KVP_ENOBLOCKS);
	books_destroy(&books);
}

static void use_makes_a_block_young_again(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	struct row row;
	int32_t ab[2];
	int32_t cd[2];

	(void)unused;
	books_create(&books, 4, 1);
	engine = books_engine(&books, 0);
	books_fill(&books, engine, "ab");
	books_fill(&books, engine, "cd");
	find_all(&books, engine, "ab", ab);
	find_all(&books, engine, "cd", cd);
	assert_int_equal(row_open(&books, engine, &row, "a", 0), 0);
	assert_int_equal(row.matched, 1);
	assert_int_equal(row_release(&books, &row, 0, 0), 0);
	/* "ab" keeps its age, "a" is younger than "cd" now. */
	assert_next_evicted(&books, engine, ab[1]);
	assert_next_evicted(&books, engine, cd[1]);
	assert_next_evicted(&books, engine, cd[0]);
	assert_next_evicted(&books, engine, ab[0]);
	books_destroy(&books);
}

/* It was asked for, and who was refused asks again: as after any release, "a" is the youngest. */
static void refused_open_makes_what_it_matched_young(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	struct row row;
	int32_t ab[2];
	int32_t cd[2];

	(void)unused;
	books_create(&books, 4, 1);
	engine = books_engine(&books, 0);
	books_fill(&books, engine, "ab");
	books_fill(&books, engine, "cd");
	find_all(&books, engine, "ab", ab);
	find_all(&books, engine, "cd", cd);
	assert_int_equal(row_open(&books, engine, &row, "avwxyz", UINT32_MAX), -KVP_ENOBLOCKS);
	assert_int_equal(books_counter(&books, KVW_COUNTER_evicted_blocks), 0);
	assert_next_evicted(&books, engine, ab[1]);
	assert_next_evicted(&books, engine, cd[1]);
	assert_next_evicted(&books, engine, cd[0]);
	assert_next_evicted(&books, engine, ab[0]);
	books_destroy(&books);
}

static void free_blocks_are_taken_before_any_is_evicted(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	int32_t id;

	(void)unused;
	books_create(&books, 4, 1);
	engine = books_engine(&books, 0);
	books_fill(&books, engine, "ab");
	assert_int_equal(kvd_pool_grant(books.pool, engine, &id), 0);
	assert_int_equal(kvd_pool_grant(books.pool, engine, &id), 0);
	assert_int_equal(books_counter(&books, KVW_COUNTER_evicted_blocks), 0);
	assert_int_equal(kvd_pool_grant(books.pool, engine, &id), 0);
	assert_int_equal(books_counter(&books, KVW_COUNTER_evicted_blocks), 1);
	books_destroy(&books);
}

static void referenced_blocks_are_never_evicted(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	struct row row;
	int32_t id;

	(void)unused;
	books_create(&books, 3, 1);
	engine = books_engine(&books, 0);
	row_write(&books, engine, &row, "abc", 0, 0);
	assert_int_equal(books.pool->evictable, 0);
	assert_int_equal(kvd_pool_grant(books.pool, engine, &id), -KVP_ENOBLOCKS);
	assert_int_equal(kvd_pool_flush_one(books.pool), 0);
	books_destroy(&books);
}

static void flush_frees_the_victim_only(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	int32_t ab[2];

	(void)unused;
	books_create(&books, 4, 1);
	engine = books_engine(&books, 0);
	books_fill(&books, engine, "ab");
	find_all(&books, engine, "ab", ab);
	assert_int_equal(kvd_pool_flush_one(books.pool), 1);
	books_check(&books);
	assert_state(&books, ab[1], FREE);
	assert_state(&books, ab[0], CACHED);
	assert_int_equal(kvd_pool_flush_one(books.pool), 1);
	assert_int_equal(kvd_pool_flush_one(books.pool), 0);
	books_check(&books);
	assert_int_equal(books_counter(&books, KVW_COUNTER_flushed_blocks), 2);
	assert_int_equal(books_counter(&books, KVW_COUNTER_evicted_blocks), 0);
	books_destroy(&books);
}

/* The writer gives up its references before the step of the last block is reached, on another timeline. */
static void parent_is_held_back_while_a_child_is_pending(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	struct row row;
	int32_t a, b, c;

	(void)unused;
	books_create(&books, 3, 1);
	engine = books_engine(&books, 0);
	assert_int_equal(row_open(&books, engine, &row, "abc", 3), 0);
	assert_int_equal(row_publish(&books, &row, 2, 0, 0), 0);
	assert_int_equal(row_publish(&books, &row, 3, 1, 7), 0);
	a = books_find(&books, engine, "a");
	b = books_find(&books, engine, "ab");
	c = books_find(&books, engine, "abc");
	assert_int_equal(row_release(&books, &row, 0, 0), 0);
	assert_state(&books, a, CACHED);
	assert_state(&books, c, PENDING);
	assert_int_equal(
		books_references(&books, a) + books_references(&books, b) + books_references(&books, c), 0);
	assert_int_equal(books.pool->evictable, 0);
	assert_int_equal(kvd_pool_flush_one(books.pool), 0);
	books_reach(&books, engine, 1, 7);
	assert_int_equal(books.pool->evictable, 3);
	assert_next_evicted(&books, engine, c);
	assert_next_evicted(&books, engine, b);
	assert_next_evicted(&books, engine, a);
	books_destroy(&books);
}

/* A chain longer than what one operation lets into the policy. */
static void long_chain_ripens_over_several_operations(void **unused)
{
	char name[91];
	struct books books;
	struct kvd_engine *engine;
	struct row row;
	int i;

	(void)unused;
	for (i = 0; i < 90; i++)
		name[i] = (char)('!' + i);
	name[90] = '\0';
	books_create(&books, 90, 1);
	engine = books_engine(&books, 0);
	assert_int_equal(row_open(&books, engine, &row, name, 90), 0);
	assert_int_equal(row_publish(&books, &row, 89, 0, 0), 0);
	assert_int_equal(row_publish(&books, &row, 90, 1, 1), 0);
	assert_int_equal(row_release(&books, &row, 0, 0), 0);
	assert_int_equal(books.pool->evictable, 0);
	kvd_engine_latch(engine, 1, 1);
	assert_int_equal(kvd_engine_progress(engine, 1), 1);
	books_check(&books);
	assert_true(books.pool->evictable < 90);
	books_progress(&books, engine);
	assert_int_equal(books.pool->evictable, 90);
	for (i = 0; i < 90; i++)
		assert_int_equal(kvd_pool_flush_one(books.pool), 1);
	books_check(&books);
	assert_int_equal(books.pool->free.length, 90);
	books_destroy(&books);
}

static void parent_with_two_children_outlives_both(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	int32_t a;
	int i;

	(void)unused;
	books_create(&books, 3, 1);
	engine = books_engine(&books, 0);
	books_fill(&books, engine, "ab");
	books_fill(&books, engine, "ac");
	a = books_find(&books, engine, "a");
	assert_int_equal(books.pool->block[a].children, 2);
	for (i = 0; i < 2; i++) {
		assert_int_equal(kvd_pool_flush_one(books.pool), 1);
		books_check(&books);
		assert_state(&books, a, CACHED);
	}
	assert_int_equal(kvd_pool_flush_one(books.pool), 1);
	assert_state(&books, a, FREE);
	books_destroy(&books);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(chain_goes_from_its_tail_and_oldest_release_first),
		cmocka_unit_test(use_makes_a_block_young_again),
		cmocka_unit_test(refused_open_makes_what_it_matched_young),
		cmocka_unit_test(free_blocks_are_taken_before_any_is_evicted),
		cmocka_unit_test(referenced_blocks_are_never_evicted),
		cmocka_unit_test(flush_frees_the_victim_only),
		cmocka_unit_test(parent_is_held_back_while_a_child_is_pending),
		cmocka_unit_test(long_chain_ripens_over_several_operations),
		cmocka_unit_test(parent_with_two_children_outlives_both),
	};

	kvt_watchdog(120);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
