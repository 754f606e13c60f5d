/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Publishing fresh blocks, and every refusal.
 */
#include <errno.h>
#include <string.h>

#include <kvpool/error.h>

#include "books.h"

static void publish_of_a_reached_step_is_cached(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	struct row row;
	const struct kvd_block *block;

	(void)unused;
	books_create(&books, 4, 1);
	engine = books_engine(&books, 0);
	row_write(&books, engine, &row, "ab", 0, 0);
	block = &books.pool->block[row.answers[1].id];
	assert_state(&books, row.answers[1].id, CACHED);
	assert_int_equal(row.answers[1].flags, 0);
	assert_int_equal(block->references, 1);
	assert_int_equal(block->record.parent, row.answers[0].id);
	assert_int_equal(block->record.parent_generation, row.answers[0].generation);
	assert_int_equal(block->record.session, engine->session);
	assert_int_equal(block->record.namespace_id, 9);
	assert_int_equal(block->record.hash_bytes, HASH_BYTES);
	assert_int_equal(block->record.plane_set, 1);
	assert_int_equal(books_find(&books, engine, "ab"), row.answers[1].id);
	assert_int_equal(books_counter(&books, KVW_COUNTER_published_blocks), 2);
	books_destroy(&books);
}

static void publish_of_a_later_step_is_pending_until_then(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	struct row row;

	(void)unused;
	books_create(&books, 4, 1);
	engine = books_engine(&books, 0);
	row_write(&books, engine, &row, "a", 3, 8);
	assert_state(&books, row.answers[0].id, PENDING);
	assert_int_equal(row.answers[0].flags, KVW_ANSWER_COMING);
	assert_int_equal(row.answers[0].step, 8);
	books_reach(&books, engine, 3, 7);
	books_reach(&books, engine, 2, 9);
	assert_state(&books, row.answers[0].id, PENDING);
	books_reach(&books, engine, 3, 8);
	assert_state(&books, row.answers[0].id, CACHED);
	books_destroy(&books);
}

static void smaller_step_waits_for_the_one_before_it(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	struct row row;

	(void)unused;
	books_create(&books, 4, 1);
	engine = books_engine(&books, 0);
	assert_int_equal(row_open(&books, engine, &row, "ab", 2), 0);
	assert_int_equal(row_publish(&books, &row, 1, 0, 9), 0);
	assert_int_equal(row_publish(&books, &row, 2, 0, 4), 0);
	assert_int_equal(row.answers[1].step, 9);
	books_reach(&books, engine, 0, 4);
	assert_state(&books, row.answers[1].id, PENDING);
	books_reach(&books, engine, 0, 9);
	assert_state(&books, row.answers[1].id, CACHED);
	books_destroy(&books);
}

static void pending_block_completes_without_references_too(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	struct row row;

	(void)unused;
	books_create(&books, 4, 1);
	engine = books_engine(&books, 0);
	row_write(&books, engine, &row, "a", 1, 5);
	assert_int_equal(row_release(&books, &row, 0, 0), 0);
	assert_state(&books, row.answers[0].id, PENDING);
	books_reach(&books, engine, 1, 5);
	assert_state(&books, row.answers[0].id, CACHED);
	assert_int_equal(books.pool->evictable, 1);
	books_destroy(&books);
}

/* -------- refusals: none changes anything */

static void refused_publish_changes_nothing(void **unused)
{
	struct books books;
	struct kvd_engine *engine, *other;
	struct row row, foreign, good;
	uint8_t *before;

	(void)unused;
	books_create(&books, 8, 2);
	engine = books_engine(&books, 0);
	other = books_engine(&books, 0);
	assert_int_equal(row_open(&books, other, &foreign, "z", 1), 0);
	assert_int_equal(row_open(&books, engine, &row, "abc", 3), 0);
	assert_int_equal(row_publish(&books, &row, 1, 0, 0), 0);
	good = row;
	before = books_snapshot(&books);
	/* Not the hold's length. */
	row.published = 2;
	assert_int_equal(row_publish(&books, &row, 3, 0, 0), -EINVAL);
	row = good;
	row.published = 0;
	assert_int_equal(row_publish(&books, &row, 3, 0, 0), -EINVAL);
	/* No such timeline, step, hold; another's hold. */
	row = good;
	assert_int_equal(row_publish(&books, &row, 3, KVW_TIMELINES, 0), -EINVAL);
	assert_int_equal(row_publish(&books, &row, 3, 0, KVW_TIMELINE_POISON | 5), -EINVAL);
	row.hold += 1;
	assert_int_equal(row_publish(&books, &row, 3, 0, 0), -EINVAL);
	row.hold = UINT64_MAX;
	assert_int_equal(row_publish(&books, &row, 3, 0, 0), -EINVAL);
	row.hold = foreign.hold;
	assert_int_equal(row_publish(&books, &row, 3, 0, 0), -EINVAL);
	/* Stale, foreign, published, null, negative, beyond the pool, a sink. */
	row = good;
	row.own[1].generation++;
	assert_int_equal(row_publish(&books, &row, 3, 0, 0), -KVP_ESTALE);
	row = good;
	row.own[1] = foreign.own[0];
	assert_int_equal(row_publish(&books, &row, 3, 0, 0), -KVP_ESTALE);
	row.own[1] = good.own[0];
	assert_int_equal(row_publish(&books, &row, 3, 0, 0), -KVP_ESTALE);
	row.own[1].id = 0;
	assert_int_equal(row_publish(&books, &row, 3, 0, 0), -KVP_ESTALE);
	row.own[1].id = -5;
	assert_int_equal(row_publish(&books, &row, 3, 0, 0), -KVP_ESTALE);
	row.own[1].id = INT32_MAX;
	assert_int_equal(row_publish(&books, &row, 3, 0, 0), -KVP_ESTALE);
	row.own[1].id = engine->sink;
	assert_int_equal(row_publish(&books, &row, 3, 0, 0), -KVP_ESTALE);
	books_assert_unchanged(&books, before);
	assert_int_equal(books_counter(&books, KVW_COUNTER_stale_refusals), 7);
	assert_int_equal(books.tenant[0].used_blocks, 4);
	books_destroy(&books);
}

static void publish_stops_at_the_first_refused_block(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	struct row row;

	(void)unused;
	books_create(&books, 8, 1);
	engine = books_engine(&books, 0);
	assert_int_equal(row_open(&books, engine, &row, "abc", 3), 0);
	row.own[1].generation = 99;
	assert_int_equal(row_publish(&books, &row, 3, 0, 0), -KVP_ESTALE);
	assert_int_equal(row.published, 1);
	assert_state(&books, row.own[0].id, CACHED);
	assert_state(&books, row.own[1].id, LEASED);
	row.own[1].generation = 1;
	assert_int_equal(row_publish(&books, &row, 3, 0, 0), 0);
	books_destroy(&books);
}

static void publish_refuses_more_than_a_row(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	struct row row;
	struct kvd_publish job = {0};

	(void)unused;
	books_create(&books, 8, 1);
	engine = books_engine(&books, 0);
	assert_int_equal(row_open(&books, engine, &row, "ab", 2), 0);
	job.hold = row.hold;
	job.count = ROW_BLOCKS + 1;
	assert_int_equal(kvd_publish_step(engine, &job, 1), -KVP_ELIMIT);
	job.count = UINT32_MAX;
	assert_int_equal(kvd_publish_step(engine, &job, 1), -KVP_ELIMIT);
	job.count = 0;
	assert_int_equal(kvd_publish_step(engine, &job, 1), 1);
	job.plane_set = 256;
	assert_int_equal(kvd_publish_step(engine, &job, 1), -EINVAL);
	books_check(&books);
	books_destroy(&books);
}

/* A hash that is indexed behind another block: the engine's hashes are not chained. */
static void publish_refuses_a_hash_of_another_chain(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	struct row one, two;
	uint8_t *before;

	(void)unused;
	books_create(&books, 8, 1);
	engine = books_engine(&books, 0);
	row_write(&books, engine, &one, "ab", 0, 0);
	assert_int_equal(row_open(&books, engine, &two, "xy", 2), 0);
	memcpy(two.hashes[1], one.hashes[1], HASH_BYTES);
	assert_int_equal(row_publish(&books, &two, 1, 0, 0), 0);
	before = books_snapshot(&books);
	assert_int_equal(row_publish(&books, &two, 2, 0, 0), -EINVAL);
	books_assert_unchanged(&books, before);
	books_destroy(&books);
}

/* One leased block, presented again and again as a duplicate, must not pin the cache beyond any bound. */
static void duplicates_are_bounded_by_the_quota(void **unused)
{
	struct books books;
	struct kvd_engine *engine[2];
	struct row full, thief;
	uint32_t i;

	(void)unused;
	books_create(&books, 16, 2);
	books.tenant[1].quota_blocks = 2;
	engine[0] = books_engine(&books, 0);
	engine[1] = books_engine(&books, 1);
	assert_int_equal(row_open(&books, engine[1], &thief, "abcdefgh", 1), 0);
	row_write(&books, engine[0], &full, "abcdefgh", 0, 0);
	for (i = 1; i < 8; i++)
		thief.own[i] = thief.own[0];
	assert_int_equal(row_publish(&books, &thief, 8, 0, 0), -KVP_EQUOTA);
	assert_int_equal(books.tenant[1].used_blocks, 4);
	assert_int_equal(books_counter(&books, KVW_COUNTER_quota_refusals), 1);
	books_destroy(&books);
}

static void released_hold_can_not_be_published_into(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	struct row row;

	(void)unused;
	books_create(&books, 8, 1);
	engine = books_engine(&books, 0);
	assert_int_equal(row_open(&books, engine, &row, "ab", 2), 0);
	assert_int_equal(kvd_engine_release(engine, row.hold, 0, 9), 0);
	assert_int_equal(row_publish(&books, &row, 1, 0, 0), -EINVAL);
	assert_int_equal(kvd_engine_release(engine, row.hold, 0, 9), -EINVAL);
	kvd_engine_freeze(engine);
	assert_int_equal(row_publish(&books, &row, 1, 0, 0), -KVP_EREVOKED);
	books_destroy(&books);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(publish_of_a_reached_step_is_cached),
		cmocka_unit_test(publish_of_a_later_step_is_pending_until_then),
		cmocka_unit_test(smaller_step_waits_for_the_one_before_it),
		cmocka_unit_test(pending_block_completes_without_references_too),
		cmocka_unit_test(refused_publish_changes_nothing),
		cmocka_unit_test(publish_stops_at_the_first_refused_block),
		cmocka_unit_test(publish_refuses_more_than_a_row),
		cmocka_unit_test(publish_refuses_a_hash_of_another_chain),
		cmocka_unit_test(duplicates_are_bounded_by_the_quota),
		cmocka_unit_test(released_hold_can_not_be_published_into),
	};

	kvt_watchdog(60);
	return books_run_suite(tests);
}
