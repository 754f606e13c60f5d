/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same hash published twice: which copy is found, and what becomes of the other.
 */
#include <string.h>

#include <kvpool/error.h>

#include "books.h"

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
	assert_int_equal(books_counter(&books, KVW_COUNTER_orphaned_blocks), 0);
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

/* -------- the writer of the pending block has lost its session: its step may never come */

static void end_writer(struct books *books, struct kvd_engine *engine, bool dead)
{
	if (dead)
		kvd_engine_die(engine);
	else
		kvd_engine_freeze(engine);
	books_check(books);
}

static void open_misses_what_an_ended_writer_left_pending(bool dead)
{
	struct books books;
	struct kvd_engine *engine[2];
	struct row row, other;

	books_create(&books, 8, 2);
	engine[0] = books_engine(&books, 0);
	engine[1] = books_engine(&books, 1);
	assert_int_equal(row_open(&books, engine[0], &row, "abc", 3), 0);
	assert_int_equal(row_publish(&books, &row, 1, 0, 0), 0);
	assert_int_equal(row_publish(&books, &row, 3, 0, 6), 0);
	end_writer(&books, engine[0], dead);
	assert_int_equal(row_open_coming(&books, engine[1], &other, "abc", 3), 0);
	assert_int_equal(other.matched, 1);
	assert_int_equal(other.open.granted, 2);
	books_destroy(&books);
}

static void pending_block_of_an_ended_writer_is_not_matched(void **unused)
{
	(void)unused;
	open_misses_what_an_ended_writer_left_pending(false);
	open_misses_what_an_ended_writer_left_pending(true);
}

/* With a step of its own, while the old one is held by its writer and a reader, and has a child. */
static void copy_replaces_what_an_ended_writer_left_pending(bool dead)
{
	struct books books;
	struct kvd_engine *engine[2];
	struct row row[2], child;
	int32_t old, fresh;

	books_create(&books, 12, 2);
	open_both(&books, engine, row, "ab");
	assert_int_equal(row_publish(&books, &row[0], 2, 0, 6), 0);
	old = row[0].answers[0].id;
	assert_int_equal(row_open_coming(&books, engine[1], &child, "ac", 1), 0);
	assert_int_equal(row_publish(&books, &child, 2, 1, 3), 0);
	end_writer(&books, engine[0], dead);
	assert_int_equal(row_publish(&books, &row[1], 1, 1, 4), 0);
	fresh = row[1].own[0].id;
	assert_int_equal(row[1].answers[0].id, fresh);
	assert_int_equal(row[1].answers[0].flags, KVW_ANSWER_COMING);
	assert_int_equal(row[1].answers[0].step, 4);
	assert_int_equal(row[1].answers[0].writer, engine[1]->session);
	assert_state(&books, fresh, PENDING);
	assert_state(&books, old, ORPHAN);
	assert_int_equal(books_find(&books, engine[1], "a"), fresh);
	assert_int_equal(books.pool->records[child.answers[1].id].parent, fresh);
	/* The next one of the chain replaces the old one's child, which was unreferenced by anybody living. */
	assert_int_equal(row_publish(&books, &row[1], 2, 1, 5), 0);
	assert_int_equal(row[1].answers[1].id, row[1].own[1].id);
	books_reach(&books, engine[1], 1, 5);
	assert_state(&books, fresh, CACHED);
	assert_state(&books, row[1].own[1].id, CACHED);
	assert_state(&books, child.answers[1].id, CACHED);
	/* The end of the old writer takes nothing of that along. */
	kvd_engine_die(engine[0]);
	books_teardown(&books, engine[0]);
	assert_int_equal(books_find(&books, engine[1], "ab"), row[1].own[1].id);
	assert_int_equal(books_find(&books, engine[1], "ac"), child.answers[1].id);
	assert_state(&books, old, ORPHAN);
	assert_state(&books, row[0].answers[1].id, QUARANTINED);
	assert_int_equal(row_release(&books, &child, 0, 0), 0);
	assert_state(&books, old, QUARANTINED);
	books_destroy(&books);
}

static void copy_replaces_a_pending_block_of_an_ended_writer(void **unused)
{
	(void)unused;
	copy_replaces_what_an_ended_writer_left_pending(false);
	copy_replaces_what_an_ended_writer_left_pending(true);
}

/* The children of one pending block, each one block of a chain of two; hashes made by hand. */
static void publish_children(struct books *books, struct kvd_engine *engine, struct row *parent,
			     uint32_t count)
{
	struct row child;
	uint32_t i;

	for (i = 0; i < count; i++) {
		struct kvd_open open = {
			.hashes = parent->hashes[0],
			.count = 1,
			.max_match = 1,
			.want = 2,
			.max_new = 1,
			.coming = true,
			.answers = child.answers,
		};
		struct kvd_publish job = {
			.first = 1, .count = 1, .blocks = child.own, .answers = child.answers};

		assert_int_equal(kvd_open_step(engine, &open, UINT32_MAX), 1);
		memset(child.hashes[0], 0x55, HASH_BYTES);
		memcpy(child.hashes[0], &i, sizeof(i));
		child.own[0] = (struct kvw_block_ref){
			.id = child.answers[1].id,
			.generation = child.answers[1].generation,
		};
		job.hold = open.hold->id;
		job.hashes = child.hashes[0];
		assert_int_equal(kvd_publish_step(engine, &job, UINT32_MAX), 1);
		assert_int_equal(kvd_engine_release(engine, job.hold, 0, 0), 0);
		assert_int_equal(kvd_engine_progress(engine, UINT32_MAX), 1);
	}
	books_check(books);
}

static void replace_with_children(uint32_t children, uint32_t expected_flags)
{
	struct books books;
	struct kvd_engine *engine[2];
	struct row row[2];

	books_create(&books, 1100, 2);
	open_both(&books, engine, row, "a");
	assert_int_equal(row_publish(&books, &row[0], 1, 0, 6), 0);
	publish_children(&books, engine[1], &row[0], children);
	assert_int_equal(books.pool->block[row[0].answers[0].id].children, children);
	assert_int_equal(row_publish(&books, &row[1], 1, 0, 0), 0);
	assert_int_equal(row[1].answers[0].flags, expected_flags);
	assert_int_equal(books.pool->block[row[1].answers[0].id].children, children);
	books_destroy(&books);
}

/* To move children takes as long as there are many; so there is an end to it. */
static void too_many_children_make_a_copy_a_duplicate(void **unused)
{
	(void)unused;
	replace_with_children(1024, 0);
	replace_with_children(1025, KVW_ANSWER_DUPLICATE | KVW_ANSWER_COMING);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(duplicate_of_a_complete_block_stays_leased),
		cmocka_unit_test(duplicate_of_a_pending_block_waits_for_it),
		cmocka_unit_test(complete_copy_replaces_a_pending_block_and_takes_its_children),
		cmocka_unit_test(replaced_block_drains_until_its_step),
		cmocka_unit_test(replaced_block_without_references_drains_at_once),
		cmocka_unit_test(replaced_block_behind_its_step_is_free_with_its_last_reference),
		cmocka_unit_test(publish_behind_a_replaced_block_is_lost),
		cmocka_unit_test(own_pending_block_can_be_replaced_too),
		cmocka_unit_test(pending_block_of_an_ended_writer_is_not_matched),
		cmocka_unit_test(copy_replaces_a_pending_block_of_an_ended_writer),
		cmocka_unit_test(too_many_children_make_a_copy_a_duplicate),
	};

	kvt_watchdog(60);
	return books_run_suite(tests);
}
