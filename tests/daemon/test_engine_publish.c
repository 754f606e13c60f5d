/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Publishing: fresh blocks, the four kinds of duplicates, and every refusal.
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

/* -------- the same hash twice */

/* Both engines have leased blocks for `name` before either publishes. */
static void open_both(struct books *books, struct kvd_engine *engine[2], struct row row[2], const char *name)
{
	int i;

	for (i = 0; i < 2; i++) {
		engine[i] = books_engine(books, (uint32_t)i);
		assert_int_equal(row_open(books, engine[i], &row[i], name, UINT32_MAX), 0);
		assert_int_equal(row[i].matched, 0);
	}
}

static void duplicate_of_a_complete_block_stays_leased(void **unused)
{
	struct books books;
	struct kvd_engine *engine[2];
	struct row row[2];
	int32_t canonical;

	(void)unused;
	books_create(&books, 8, 2);
	open_both(&books, engine, row, "ab");
	assert_int_equal(row_publish(&books, &row[0], 2, 0, 0), 0);
	canonical = row[0].answers[1].id;
	assert_int_equal(row_publish(&books, &row[1], 2, 0, 4), 0);
	assert_int_equal(row[1].answers[1].id, canonical);
	assert_int_equal(row[1].answers[1].flags, KVW_ANSWER_DUPLICATE);
	assert_int_equal(row[1].answers[1].writer, engine[0]->session);
	assert_int_equal(row[1].answers[1].generation, row[0].answers[1].generation);
	assert_int_equal(books_references(&books, canonical), 2);
	assert_state(&books, row[1].own[1].id, LEASED);
	assert_int_equal(books_counter(&books, KVW_COUNTER_duplicate_blocks), 2);
	assert_int_equal(books_counter(&books, KVW_COUNTER_published_blocks), 2);
	assert_int_equal(kvd_engine_return(engine[1], row[1].own[1].id, 1, 0, 0), 0);
	books_check(&books);
	books_destroy(&books);
}

static void duplicate_of_a_pending_block_waits_for_it(void **unused)
{
	struct books books;
	struct kvd_engine *engine[2];
	struct row row[2];
	int32_t canonical;

	(void)unused;
	books_create(&books, 8, 2);
	open_both(&books, engine, row, "ab");
	assert_int_equal(row_publish(&books, &row[0], 2, 0, 6), 0);
	canonical = row[0].answers[1].id;
	assert_int_equal(row_publish(&books, &row[1], 2, 0, 4), 0);
	assert_int_equal(row[1].answers[1].id, canonical);
	assert_int_equal(row[1].answers[1].flags, KVW_ANSWER_DUPLICATE | KVW_ANSWER_COMING);
	assert_int_equal(row[1].answers[1].step, 6);
	assert_state(&books, row[1].own[1].id, LEASED);
	assert_state(&books, canonical, PENDING);
	books_reach(&books, engine[1], 0, 4);
	assert_state(&books, canonical, PENDING);
	books_reach(&books, engine[0], 0, 6);
	assert_state(&books, canonical, CACHED);
	books_destroy(&books);
}

static void complete_copy_replaces_a_pending_block_and_takes_its_children(void **unused)
{
	struct books books;
	struct kvd_engine *engine[2];
	struct row row[2], child;
	int32_t old, fresh, c;

	(void)unused;
	books_create(&books, 12, 2);
	open_both(&books, engine, row, "ab");
	assert_int_equal(row_publish(&books, &row[0], 2, 0, 6), 0);
	old = row[0].answers[0].id;
	/* A second child of "a", of the engine that will replace "a". */
	assert_int_equal(row_open_coming(&books, engine[1], &child, "ac", UINT32_MAX), 0);
	assert_int_equal(child.matched, 1);
	assert_int_equal(row_publish(&books, &child, 2, 1, 3), 0);
	c = child.answers[1].id;
	assert_int_equal(row_publish(&books, &row[1], 1, 0, 0), 0);
	fresh = row[1].own[0].id;
	assert_int_equal(row[1].answers[0].id, fresh);
	assert_int_equal(row[1].answers[0].flags, 0);
	assert_state(&books, fresh, CACHED);
	assert_state(&books, old, ORPHAN);
	assert_int_equal(books_references(&books, old), 2);
	assert_int_equal(books_find(&books, engine[0], "a"), fresh);
	assert_int_equal(books.pool->block[fresh].children, 2);
	assert_int_equal(books.pool->block[c].record.parent, fresh);
	assert_int_equal(books.pool->records[c].parent, fresh);
	assert_int_equal(books.pool->block[row[0].answers[1].id].record.parent_generation,
			 row[1].own[0].generation);
	assert_int_equal(books_counter(&books, KVW_COUNTER_orphaned_blocks), 1);
	/* The replacement is held back while those children are in use, though nobody refers to it. */
	assert_int_equal(row_release(&books, &row[1], 0, 0), 0);
	assert_int_equal(books.pool->evictable, 0);
	books_reach(&books, engine[0], 0, 6);
	books_reach(&books, engine[1], 1, 3);
	assert_int_equal(row_release(&books, &row[0], 0, 0), 0);
	assert_int_equal(row_release(&books, &child, 0, 0), 0);
	assert_int_equal(books.pool->evictable, 3);
	assert_state(&books, old, FREE);
	books_destroy(&books);
}

static void replaced_block_drains_until_its_step(void **unused)
{
	struct books books;
	struct kvd_engine *engine[2];
	struct row row[2];
	int32_t old;

	(void)unused;
	books_create(&books, 8, 2);
	open_both(&books, engine, row, "a");
	assert_int_equal(row_publish(&books, &row[0], 1, 0, 6), 0);
	old = row[0].answers[0].id;
	assert_int_equal(row_publish(&books, &row[1], 1, 0, 0), 0);
	assert_state(&books, old, ORPHAN);
	/* Released on another timeline, before the step that writes it is reached. */
	assert_int_equal(row_release(&books, &row[0], 1, 0), 0);
	assert_state(&books, old, DRAINING);
	books_reach(&books, engine[0], 0, 5);
	assert_state(&books, old, DRAINING);
	books_reach(&books, engine[0], 0, 6);
	assert_state(&books, old, FREE);
	books_destroy(&books);
}

static void replaced_block_without_references_drains_at_once(void **unused)
{
	struct books books;
	struct kvd_engine *engine[2];
	struct row row[2];

	(void)unused;
	books_create(&books, 8, 2);
	open_both(&books, engine, row, "a");
	assert_int_equal(row_publish(&books, &row[0], 1, 0, 6), 0);
	assert_int_equal(row_release(&books, &row[0], 1, 0), 0);
	assert_int_equal(row_publish(&books, &row[1], 1, 0, 0), 0);
	assert_state(&books, row[0].answers[0].id, DRAINING);
	books_reach(&books, engine[0], 0, 6);
	assert_state(&books, row[0].answers[0].id, FREE);
	books_destroy(&books);
}

static void replaced_block_behind_its_step_is_free_with_its_last_reference(void **unused)
{
	struct books books;
	struct kvd_engine *engine[2];
	struct row row[2];
	int32_t old;

	(void)unused;
	books_create(&books, 8, 2);
	open_both(&books, engine, row, "a");
	assert_int_equal(row_publish(&books, &row[0], 1, 0, 6), 0);
	old = row[0].answers[0].id;
	assert_int_equal(row_publish(&books, &row[1], 1, 0, 0), 0);
	books_reach(&books, engine[0], 0, 6);
	assert_state(&books, old, ORPHAN);
	assert_int_equal(row_release(&books, &row[0], 0, 0), 0);
	assert_state(&books, old, FREE);
	books_destroy(&books);
}

static void publish_behind_a_replaced_block_is_lost(void **unused)
{
	struct books books;
	struct kvd_engine *engine[2];
	struct row row[2];
	uint8_t *before;

	(void)unused;
	books_create(&books, 8, 2);
	open_both(&books, engine, row, "ab");
	assert_int_equal(row_publish(&books, &row[0], 1, 0, 6), 0);
	assert_int_equal(row_publish(&books, &row[1], 1, 0, 0), 0);
	before = books_snapshot(&books);
	assert_int_equal(row_publish(&books, &row[0], 2, 0, 6), -KVP_ELOST);
	books_assert_unchanged(&books, before);
	books_destroy(&books);
}

static void own_pending_block_can_be_replaced_too(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	struct row one, two;

	(void)unused;
	books_create(&books, 8, 1);
	engine = books_engine(&books, 0);
	assert_int_equal(row_open(&books, engine, &one, "a", 1), 0);
	assert_int_equal(row_open(&books, engine, &two, "a", 1), 0);
	assert_int_equal(row_publish(&books, &one, 1, 0, 6), 0);
	assert_int_equal(row_publish(&books, &two, 1, 0, 0), 0);
	assert_state(&books, one.answers[0].id, ORPHAN);
	assert_int_equal(books_find(&books, engine, "a"), two.own[0].id);
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
		cmocka_unit_test(duplicate_of_a_complete_block_stays_leased),
		cmocka_unit_test(duplicate_of_a_pending_block_waits_for_it),
		cmocka_unit_test(complete_copy_replaces_a_pending_block_and_takes_its_children),
		cmocka_unit_test(replaced_block_drains_until_its_step),
		cmocka_unit_test(replaced_block_without_references_drains_at_once),
		cmocka_unit_test(replaced_block_behind_its_step_is_free_with_its_last_reference),
		cmocka_unit_test(publish_behind_a_replaced_block_is_lost),
		cmocka_unit_test(own_pending_block_can_be_replaced_too),
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
