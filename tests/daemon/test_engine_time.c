/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Giving up references and blocks, and the steps that this waits for.
 */
#include <errno.h>

#include <kvpool/error.h>

#include "books.h"

static void returned_block_drains_until_its_step(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	int32_t id;

	(void)unused;
	books_create(&books, 2, 1);
	engine = books_engine(&books, 0);
	assert_int_equal(kvd_pool_grant(books.pool, engine, &id), 0);
	assert_int_equal(kvd_engine_return(engine, id, 1, 4, 10), 0);
	books_check(&books);
	assert_state(&books, id, DRAINING);
	assert_int_equal(books.tenant[0].used_blocks, 1);
	books_reach(&books, engine, 4, 9);
	assert_state(&books, id, DRAINING);
	books_reach(&books, engine, 4, 11);
	assert_state(&books, id, FREE);
	assert_int_equal(books.tenant[0].used_blocks, 0);
	assert_int_equal(books_counter(&books, KVW_COUNTER_returned_blocks), 1);
	books_destroy(&books);
}

static void returned_block_behind_its_step_is_free_at_once(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	int32_t one, two;

	(void)unused;
	books_create(&books, 2, 1);
	engine = books_engine(&books, 0);
	books_reach(&books, engine, 0, 5);
	assert_int_equal(kvd_pool_grant(books.pool, engine, &one), 0);
	assert_int_equal(kvd_pool_grant(books.pool, engine, &two), 0);
	assert_int_equal(kvd_engine_return(engine, one, 1, 0, 6), 0);
	/* Also while a later step is being waited for. */
	assert_int_equal(kvd_engine_return(engine, two, 1, 0, 5), 0);
	books_check(&books);
	assert_state(&books, one, DRAINING);
	assert_state(&books, two, FREE);
	books_destroy(&books);
}

static void refused_return_changes_nothing(void **unused)
{
	struct books books;
	struct kvd_engine *engine, *other;
	struct row row;
	uint8_t *before;
	int32_t id;

	(void)unused;
	books_create(&books, 8, 2);
	engine = books_engine(&books, 0);
	other = books_engine(&books, 0);
	row_write(&books, engine, &row, "a", 0, 0);
	assert_int_equal(kvd_pool_grant(books.pool, engine, &id), 0);
	before = books_snapshot(&books);
	assert_int_equal(kvd_engine_return(engine, id, 1, KVW_TIMELINES, 0), -EINVAL);
	assert_int_equal(kvd_engine_return(engine, id, 1, 0, KVW_TIMELINE_POISON), -EINVAL);
	assert_int_equal(kvd_engine_return(engine, id, 0, 0, 0), -KVP_ESTALE);
	assert_int_equal(kvd_engine_return(other, id, 1, 0, 0), -KVP_ESTALE);
	assert_int_equal(kvd_engine_return(engine, row.answers[0].id, 1, 0, 0), -KVP_ESTALE);
	assert_int_equal(kvd_engine_return(engine, 0, 0, 0, 0), -KVP_ESTALE);
	assert_int_equal(kvd_engine_return(engine, -1, 0, 0, 0), -KVP_ESTALE);
	assert_int_equal(kvd_engine_return(engine, 1 << 30, 0, 0, 0), -KVP_ESTALE);
	books_assert_unchanged(&books, before);
	assert_int_equal(books_counter(&books, KVW_COUNTER_stale_refusals), 6);
	assert_int_equal(kvd_engine_return(engine, id, 1, 0, 3), 0);
	assert_int_equal(kvd_engine_return(engine, id, 1, 0, 3), -KVP_ESTALE);
	books_check(&books);
	books_destroy(&books);
}

/* A block's generation tells two grants of the same id apart. */
static void stale_generation_is_refused(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	int32_t id;

	(void)unused;
	books_create(&books, 1, 1);
	engine = books_engine(&books, 0);
	assert_int_equal(kvd_pool_grant(books.pool, engine, &id), 0);
	assert_int_equal(kvd_engine_return(engine, id, 1, 0, 0), 0);
	assert_int_equal(kvd_pool_grant(books.pool, engine, &id), 0);
	assert_int_equal(kvd_engine_return(engine, id, 1, 0, 0), -KVP_ESTALE);
	assert_int_equal(kvd_engine_return(engine, id, 2, 0, 0), 0);
	books_check(&books);
	books_destroy(&books);
}

static void released_references_are_held_until_the_step(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	struct row row;

	(void)unused;
	books_create(&books, 4, 1);
	engine = books_engine(&books, 0);
	row_write(&books, engine, &row, "abc", 0, 0);
	assert_int_equal(row_release(&books, &row, 2, 5), 0);
	assert_int_equal(books_references(&books, row.answers[2].id), 1);
	assert_int_equal(books.pool->evictable, 0);
	books_reach(&books, engine, 2, 4);
	assert_int_equal(books.pool->evictable, 0);
	books_reach(&books, engine, 2, 5);
	assert_int_equal(books.pool->evictable, 3);
	assert_int_equal(engine->hold_count, 0);
	assert_int_equal(engine->references, 0);
	assert_int_equal(books.pool->policy_ops->victim(books.pool->policy), row.answers[2].id);
	books_destroy(&books);
}

static void release_behind_its_step_does_not_wait_for_others(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	struct row one, two;

	(void)unused;
	books_create(&books, 4, 1);
	engine = books_engine(&books, 0);
	row_write(&books, engine, &one, "a", 0, 0);
	row_write(&books, engine, &two, "b", 0, 0);
	assert_int_equal(row_release(&books, &one, 0, 100), 0);
	assert_int_equal(row_release(&books, &two, 0, 0), 0);
	assert_int_equal(engine->hold_count, 1);
	assert_int_equal(books_references(&books, two.answers[0].id), 0);
	books_destroy(&books);
}

static void release_with_a_smaller_step_waits_for_the_one_before_it(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	struct row one, two;

	(void)unused;
	books_create(&books, 4, 1);
	engine = books_engine(&books, 0);
	row_write(&books, engine, &one, "a", 0, 0);
	row_write(&books, engine, &two, "b", 0, 0);
	assert_int_equal(row_release(&books, &one, 0, 100), 0);
	assert_int_equal(row_release(&books, &two, 0, 50), 0);
	books_reach(&books, engine, 0, 50);
	assert_int_equal(engine->hold_count, 2);
	books_reach(&books, engine, 0, 100);
	assert_int_equal(engine->hold_count, 0);
	books_destroy(&books);
}

static void truncate_drops_the_tail_at_its_step(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	struct row row;

	(void)unused;
	books_create(&books, 8, 1);
	engine = books_engine(&books, 0);
	row_write(&books, engine, &row, "abcd", 0, 0);
	assert_int_equal(kvd_engine_truncate(engine, row.hold, 2, 0, 5), 0);
	books_progress(&books, engine);
	assert_int_equal(books_references(&books, row.answers[3].id), 1);
	/* The row is shorter at once: it can be published into from there. */
	row.published = 2;
	row.name = "ab";
	assert_int_equal(kvd_pool_grant(books.pool, engine, &row.own[2].id), 0);
	row.own[2].generation = 1;
	row.hashes[2][0] ^= 1;
	assert_int_equal(row_publish(&books, &row, 3, 0, 0), 0);
	assert_int_equal(row.answers[2].flags, 0);
	books_reach(&books, engine, 0, 5);
	assert_int_equal(books.pool->evictable, 2);
	assert_int_equal(engine->references, 3);
	assert_int_equal(row_release(&books, &row, 0, 0), 0);
	assert_int_equal(books.pool->evictable, 5);
	books_destroy(&books);
}

static void truncate_of_nothing_changes_nothing(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	struct row row;
	uint8_t *before;

	(void)unused;
	books_create(&books, 8, 1);
	engine = books_engine(&books, 0);
	row_write(&books, engine, &row, "ab", 0, 0);
	before = books_snapshot(&books);
	assert_int_equal(kvd_engine_truncate(engine, row.hold, 2, 0, 0), 0);
	assert_int_equal(kvd_engine_truncate(engine, row.hold, 7, 0, 0), 0);
	assert_int_equal(kvd_engine_truncate(engine, row.hold, 0, KVW_TIMELINES, 0), -EINVAL);
	assert_int_equal(kvd_engine_truncate(engine, row.hold, 0, 0, UINT64_MAX), -EINVAL);
	assert_int_equal(kvd_engine_truncate(engine, row.hold + 1, 0, 0, 0), -EINVAL);
	assert_int_equal(kvd_engine_release(engine, row.hold ^ 1, 0, 0), -EINVAL);
	assert_int_equal(kvd_engine_release(engine, row.hold, KVW_TIMELINES, 0), -EINVAL);
	books_progress(&books, engine);
	books_assert_unchanged(&books, before);
	assert_int_equal(engine->hold_count, 1);
	books_destroy(&books);
}

static void truncations_in_flight_are_limited(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	struct row row;
	uint32_t i;

	(void)unused;
	books_create(&books, 32, 1);
	engine = books_engine(&books, 0);
	row_write(&books, engine, &row, "abcdefghijklmnopqrst", 0, 0);
	for (i = 1; i < engine->max_holds; i++)
		assert_int_equal(kvd_engine_truncate(engine, row.hold, 20 - i, 0, 5), 0);
	assert_int_equal(kvd_engine_truncate(engine, row.hold, 1, 0, 5), -KVP_ELIMIT);
	books_check(&books);
	books_reach(&books, engine, 0, 5);
	assert_int_equal(engine->hold_count, 1);
	assert_int_equal(kvd_engine_truncate(engine, row.hold, 1, 0, 5), 0);
	books_destroy(&books);
}

/* The head of a row is dropped while its tail still waits: no parent goes before its child. */
static void release_before_a_truncation_keeps_the_order(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	struct row row;

	(void)unused;
	books_create(&books, 8, 1);
	engine = books_engine(&books, 0);
	row_write(&books, engine, &row, "abcd", 0, 0);
	assert_int_equal(kvd_engine_truncate(engine, row.hold, 2, 0, 5), 0);
	assert_int_equal(row_release(&books, &row, 0, 0), 0);
	assert_int_equal(books_references(&books, row.answers[1].id), 0);
	assert_int_equal(books_references(&books, row.answers[2].id), 1);
	assert_int_equal(books.pool->evictable, 0);
	books_reach(&books, engine, 0, 5);
	assert_int_equal(books.pool->evictable, 4);
	assert_int_equal(books.pool->policy_ops->victim(books.pool->policy), row.answers[3].id);
	books_destroy(&books);
}

static void reached_steps_only_grow(void **unused)
{
	struct books books;
	struct kvd_engine *engine;

	(void)unused;
	books_create(&books, 1, 1);
	engine = books_engine(&books, 0);
	kvd_engine_latch(engine, 0, 7);
	kvd_engine_latch(engine, 0, 3);
	assert_int_equal(engine->reached[0], 7);
	kvd_engine_latch(engine, 0, KVW_TIMELINE_POISON | 8);
	assert_int_equal(engine->reached[0], 8);
	kvd_engine_latch(engine, 0, KVW_TIMELINE_POISON);
	assert_int_equal(engine->reached[0], 8);
	books_destroy(&books);
}

static void hold_ids_are_never_reused(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	struct row row;
	uint64_t last = 0;
	int i;

	(void)unused;
	books_create(&books, 1, 1);
	engine = books_engine(&books, 0);
	for (i = 0; i < 40; i++) {
		assert_int_equal(row_open(&books, engine, &row, "a", 0), 0);
		assert_true(row.hold > last);
		last = row.hold;
		assert_int_equal(row_release(&books, &row, 0, 0), 0);
		assert_int_equal(kvd_engine_release(engine, last, 0, 0), -EINVAL);
	}
	books_destroy(&books);
}

/* More waits than the queues hold at first. */
static void queues_grow_with_what_waits(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	int32_t id;
	uint32_t i;

	(void)unused;
	books_create(&books, 300, 1);
	engine = books_engine(&books, 0);
	/* Some are popped while others are pushed, so that the ring has wrapped when it grows. */
	for (i = 0; i < 300; i++) {
		assert_int_equal(kvd_pool_grant(books.pool, engine, &id), 0);
		assert_int_equal(
			kvd_engine_return(engine, id, books.pool->block[id].record.generation, 0, i / 2 + 1),
			0);
		if (i == 100)
			books_reach(&books, engine, 0, 20);
	}
	books_check(&books);
	assert_int_equal(books.pool->counts[KVW_BLOCK_DRAINING], 260);
	books_reach(&books, engine, 0, 100);
	assert_int_equal(books.pool->counts[KVW_BLOCK_DRAINING], 100);
	books_reach(&books, engine, 0, 150);
	assert_int_equal(books.pool->free.length, 300);
	books_destroy(&books);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(returned_block_drains_until_its_step),
		cmocka_unit_test(returned_block_behind_its_step_is_free_at_once),
		cmocka_unit_test(refused_return_changes_nothing),
		cmocka_unit_test(stale_generation_is_refused),
		cmocka_unit_test(released_references_are_held_until_the_step),
		cmocka_unit_test(release_behind_its_step_does_not_wait_for_others),
		cmocka_unit_test(release_with_a_smaller_step_waits_for_the_one_before_it),
		cmocka_unit_test(truncate_drops_the_tail_at_its_step),
		cmocka_unit_test(truncate_of_nothing_changes_nothing),
		cmocka_unit_test(truncations_in_flight_are_limited),
		cmocka_unit_test(release_before_a_truncation_keeps_the_order),
		cmocka_unit_test(reached_steps_only_grow),
		cmocka_unit_test(hold_ids_are_never_reused),
		cmocka_unit_test(queues_grow_with_what_waits),
	};

	kvt_watchdog(60);
	return books_run_suite(tests);
}
