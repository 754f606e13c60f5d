/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening sequences and granting blocks: what is matched, what is granted, all or nothing, quotas.
 */
#include <errno.h>
#include <string.h>

#include <kvpool/error.h>

#include "books.h"

static void open_of_an_empty_cache_grants_everything(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	struct row row;
	uint32_t i;

	(void)unused;
	books_create(&books, 8, 1);
	engine = books_engine(&books, 0);
	assert_int_equal(row_open(&books, engine, &row, "abc", UINT32_MAX), 0);
	assert_int_equal(row.matched, 0);
	assert_int_equal(row.open.granted, 3);
	for (i = 0; i < 3; i++) {
		assert_state(&books, row.answers[i].id, LEASED);
		assert_int_equal(row.answers[i].flags, 0);
		assert_int_equal(row.answers[i].generation, 1);
		assert_int_equal(row.answers[i].writer, 0);
	}
	assert_int_equal(books.tenant[0].used_blocks, 3);
	assert_int_equal(books_counter(&books, KVW_COUNTER_lookup_blocks), 3);
	assert_int_equal(books_counter(&books, KVW_COUNTER_hit_blocks), 0);
	assert_int_equal(books_counter(&books, KVW_COUNTER_granted_blocks), 3);
	books_destroy(&books);
}

static void open_matches_the_longest_prefix(void **unused)
{
	struct books books;
	struct kvd_engine *writer;
	struct kvd_engine *reader;
	struct row row;

	(void)unused;
	books_create(&books, 8, 2);
	writer = books_engine(&books, 0);
	reader = books_engine(&books, 1);
	books_fill(&books, writer, "abc");
	assert_int_equal(row_open(&books, reader, &row, "abxy", UINT32_MAX), 0);
	assert_int_equal(row.matched, 2);
	assert_int_equal(row.open.granted, 2);
	assert_int_equal(row.answers[1].id, books_find(&books, writer, "ab"));
	assert_int_equal(row.answers[1].flags, KVW_ANSWER_MATCHED);
	assert_int_equal(row.answers[1].writer, writer->session);
	assert_int_equal(books_references(&books, row.answers[1].id), 1);
	assert_int_equal(row.open.hold->length, 2);
	assert_int_equal(books.tenant[1].used_blocks, 4);
	assert_int_equal(books.tenant[0].used_blocks, 0);
	assert_int_equal(books_counter(&books, KVW_COUNTER_hit_blocks), 2);
	books_destroy(&books);
}

static void open_takes_no_more_than_it_was_told(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	struct row row;

	(void)unused;
	books_create(&books, 8, 1);
	engine = books_engine(&books, 0);
	books_fill(&books, engine, "abc");
	assert_int_equal(row_open(&books, engine, &row, "abcdef", 1), 0);
	assert_int_equal(row.matched, 3);
	assert_int_equal(row.open.granted, 1);
	/* One more look, but at two blocks only, wanting fewer than it matches. */
	row.open = (struct kvd_open){
		.hashes = row.hashes[0],
		.count = 6,
		.max_match = 2,
		.want = 1,
		.max_new = 9,
		.answers = row.answers,
	};
	while (kvd_open_step(engine, &row.open, books.budget) == 0)
		books_check(&books);
	assert_int_equal(row.open.matched, 2);
	assert_int_equal(row.open.granted, 0);
	assert_int_equal(books_counter(&books, KVW_COUNTER_lookup_blocks), 3 + 6 + 2);
	books_destroy(&books);
}

static void open_of_nothing_makes_an_empty_hold(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	struct row row;

	(void)unused;
	books_create(&books, 2, 1);
	engine = books_engine(&books, 0);
	assert_int_equal(row_open(&books, engine, &row, "", 0), 0);
	assert_int_equal(row.open.hold->length, 0);
	assert_int_equal(row_release(&books, &row, 0, 0), 0);
	assert_int_equal(engine->hold_count, 0);
	books_destroy(&books);
}

static void pending_blocks_are_matched_by_their_writer_and_by_who_asks(void **unused)
{
	struct books books;
	struct kvd_engine *writer;
	struct kvd_engine *other;
	struct row written, own, patient, impatient;
	/* On timeline 2. */
	const uint32_t coming = KVW_ANSWER_MATCHED | KVW_ANSWER_COMING | 2u << KVW_ANSWER_TIMELINE_SHIFT;

	(void)unused;
	books_create(&books, 12, 2);
	writer = books_engine(&books, 0);
	other = books_engine(&books, 0);
	row_write(&books, writer, &written, "ab", 2, 7);
	assert_int_equal(row_open(&books, writer, &own, "ab", UINT32_MAX), 0);
	assert_int_equal(own.matched, 2);
	assert_int_equal(own.answers[0].flags, coming);
	assert_int_equal(row_open(&books, other, &impatient, "ab", UINT32_MAX), 0);
	assert_int_equal(impatient.matched, 0);
	assert_int_equal(row_open_coming(&books, other, &patient, "ab", UINT32_MAX), 0);
	assert_int_equal(patient.matched, 2);
	assert_int_equal(patient.answers[1].flags, coming);
	assert_int_equal(patient.answers[1].step, 7);
	assert_int_equal(patient.answers[1].writer, writer->session);
	books_reach(&books, writer, 2, 7);
	assert_state(&books, patient.answers[1].id, CACHED);
	assert_int_equal(books_references(&books, patient.answers[1].id), 3);
	books_destroy(&books);
}

/* Hashes of another chain behind a matching block: no hold may refer to a block without its parent. */
static void open_stops_where_the_parent_is_another(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	struct row row;

	(void)unused;
	books_create(&books, 8, 1);
	engine = books_engine(&books, 0);
	books_fill(&books, engine, "ab");
	books_fill(&books, engine, "xy");
	assert_int_equal(row_open(&books, engine, &row, "xy", 0), 0);
	assert_int_equal(row_release(&books, &row, 0, 0), 0);
	memcpy(row.hashes[0], row.hashes[1], HASH_BYTES);
	row.open.phase = 0;
	row.open.matched = 0;
	row.open.granted = 0;
	while (kvd_open_step(engine, &row.open, books.budget) == 0)
		books_check(&books);
	/* "xy" in first place, and its parent is not "none". */
	assert_int_equal(row.open.matched, 0);
	books_destroy(&books);
}

static void refused_open_holds_nothing(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	struct row row, other;
	uint8_t *before;

	(void)unused;
	books_create(&books, 4, 1);
	engine = books_engine(&books, 0);
	row_write(&books, engine, &row, "ab", 0, 0);
	before = books_snapshot(&books);
	assert_int_equal(row_open(&books, engine, &other, "abxyz", UINT32_MAX), -KVP_ENOBLOCKS);
	books_assert_unchanged(&books, before);
	assert_null(other.open.hold);
	assert_int_equal(engine->hold_count, 1);
	assert_int_equal(books_references(&books, row.answers[0].id), 1);
	assert_int_equal(books_counter(&books, KVW_COUNTER_no_blocks), 1);
	assert_int_equal(books_counter(&books, KVW_COUNTER_lookup_blocks), 2);
	books_destroy(&books);
}

/* Blocks that were there when the job began are taken by another engine while it runs. */
static void open_that_fails_midway_gives_all_back(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	struct kvd_engine *thief;
	struct row row;
	int32_t id;
	int ret;

	(void)unused;
	books_create(&books, 6, 2);
	engine = books_engine(&books, 0);
	thief = books_engine(&books, 1);
	books_fill(&books, engine, "ab");
	assert_int_equal(row_open(&books, engine, &row, "abcdef", 0), 0);
	assert_int_equal(row_release(&books, &row, 0, 0), 0);
	row.open.phase = 0;
	row.open.matched = 0;
	row.open.max_new = UINT32_MAX;
	while (row.open.granted < 2) {
		assert_int_equal(kvd_open_step(engine, &row.open, 1), 0);
		books_check(&books);
	}
	assert_int_equal(kvd_pool_grant(books.pool, thief, &id), 0);
	do {
		ret = kvd_open_step(engine, &row.open, books.budget);
		books_check(&books);
	} while (ret == 0);
	assert_int_equal(ret, -KVP_ENOBLOCKS);
	assert_null(row.open.hold);
	assert_int_equal(books.tenant[0].used_blocks, 0);
	assert_int_equal(books.pool->free.length, 3);
	assert_int_equal(books.pool->evictable, 2);
	assert_int_equal(engine->hold_count, 0);
	books_destroy(&books);
}

static void aborted_open_gives_all_back(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	struct row row;
	uint32_t steps;

	(void)unused;
	for (steps = 0; steps < 9; steps++) {
		uint32_t i;

		books_create(&books, 8, 1);
		engine = books_engine(&books, 0);
		books_fill(&books, engine, "ab");
		assert_int_equal(row_open(&books, engine, &row, "abcde", 0), 0);
		assert_int_equal(row_release(&books, &row, 0, 0), 0);
		row.open.phase = 0;
		row.open.matched = 0;
		row.open.max_new = UINT32_MAX;
		row.open.hold = NULL;
		for (i = 0; i < steps; i++)
			kvd_open_step(engine, &row.open, 1);
		kvd_open_abort(engine, &row.open);
		books_check(&books);
		assert_int_equal(engine->hold_count, steps < 7 ? 0 : 1);
		assert_int_equal(books.tenant[0].used_blocks, steps < 7 ? 0 : 5);
		books_destroy(&books);
	}
}

static void open_refuses_too_many_holds_and_blocks(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	struct row row;
	uint32_t i;

	(void)unused;
	books_create(&books, 4, 1);
	engine = books_engine(&books, 0);
	for (i = 0; i < engine->max_holds; i++)
		assert_int_equal(row_open(&books, engine, &row, "a", 0), 0);
	assert_int_equal(row_open(&books, engine, &row, "a", 0), -KVP_ELIMIT);
	assert_int_equal(row_release(&books, &row, 0, 0), -EINVAL);
	row.open = (struct kvd_open){.want = ROW_BLOCKS + 1, .answers = row.answers};
	assert_int_equal(kvd_open_step(engine, &row.open, 1), -KVP_ELIMIT);
	row.open = (struct kvd_open){
		.count = ROW_BLOCKS + 1, .max_match = ROW_BLOCKS + 1, .answers = row.answers};
	assert_int_equal(kvd_open_step(engine, &row.open, 1), -KVP_ELIMIT);
	books_check(&books);
	books_destroy(&books);
}

/* -------- quota */

static void quota_counts_blocks_and_references(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	struct row first, second;
	uint8_t *before;

	(void)unused;
	books_create(&books, 12, 1);
	books.tenant[0].quota_blocks = 5;
	engine = books_engine(&books, 0);
	row_write(&books, engine, &first, "abc", 0, 0);
	assert_int_equal(books.tenant[0].used_blocks, 3);
	before = books_snapshot(&books);
	/* Three references more are too many, and so are two with one new block. */
	assert_int_equal(row_open(&books, engine, &second, "abc", 0), -KVP_EQUOTA);
	assert_int_equal(row_open(&books, engine, &second, "abxy", 1), -KVP_EQUOTA);
	books_assert_unchanged(&books, before);
	assert_int_equal(books.tenant[0].used_blocks, 3);
	assert_int_equal(books_counter(&books, KVW_COUNTER_quota_refusals), 2);
	assert_int_equal(row_open(&books, engine, &second, "ab", 1), 0);
	assert_int_equal(books.tenant[0].used_blocks, 5);
	books_destroy(&books);
}

static void quota_is_shared_by_the_engines_of_a_tenant(void **unused)
{
	struct books books;
	struct kvd_engine *one, *two, *foreign;
	int32_t id;

	(void)unused;
	books_create(&books, 12, 3);
	books.tenant[0].quota_blocks = 2;
	one = books_engine(&books, 0);
	two = books_engine(&books, 0);
	foreign = books_engine(&books, 1);
	assert_int_equal(kvd_pool_grant(books.pool, one, &id), 0);
	assert_int_equal(kvd_pool_grant(books.pool, two, &id), 0);
	assert_int_equal(kvd_pool_grant(books.pool, one, &id), -KVP_EQUOTA);
	assert_int_equal(kvd_pool_grant(books.pool, foreign, &id), 0);
	/* What a dead engine left counts until it is free. */
	kvd_engine_die(one);
	books_teardown(&books, one);
	assert_int_equal(kvd_pool_grant(books.pool, two, &id), -KVP_EQUOTA);
	kvd_engine_prove_gone(one);
	books_teardown(&books, one);
	assert_int_equal(kvd_pool_grant(books.pool, two, &id), 0);
	books_check(&books);
	books_destroy(&books);
}

static void pending_block_of_ones_own_counts_twice(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	struct row row;

	(void)unused;
	books_create(&books, 4, 1);
	engine = books_engine(&books, 0);
	row_write(&books, engine, &row, "a", 0, 3);
	assert_int_equal(books.tenant[0].used_blocks, 2);
	books_reach(&books, engine, 0, 3);
	assert_int_equal(books.tenant[0].used_blocks, 1);
	assert_int_equal(row_release(&books, &row, 0, 0), 0);
	assert_int_equal(books.tenant[0].used_blocks, 0);
	books_destroy(&books);
}

/* -------- grants without a row */

static int run_grant(struct books *books, struct kvd_engine *engine, struct kvd_grant *job)
{
	int ret;

	do {
		ret = kvd_grant_step(engine, job, books->budget);
		books_check(books);
	} while (ret == 0);
	return ret < 0 ? ret : 0;
}

static void grant_is_all_or_nothing(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	struct kvw_answer answers[8];
	struct kvd_grant job = {.count = 5, .answers = answers};
	uint8_t *before;

	(void)unused;
	books_create(&books, 4, 1);
	engine = books_engine(&books, 0);
	books_fill(&books, engine, "ab");
	before = books_snapshot(&books);
	assert_int_equal(run_grant(&books, engine, &job), -KVP_ENOBLOCKS);
	books_assert_unchanged(&books, before);
	job = (struct kvd_grant){.count = 3, .answers = answers};
	assert_int_equal(run_grant(&books, engine, &job), 0);
	assert_int_equal(books.tenant[0].used_blocks, 3);
	assert_int_equal(books_counter(&books, KVW_COUNTER_granted_blocks), 2 + 3);
	job = (struct kvd_grant){.count = 0, .answers = answers};
	assert_int_equal(run_grant(&books, engine, &job), 0);
	books.tenant[0].quota_blocks = 3;
	job = (struct kvd_grant){.count = 1, .answers = answers};
	assert_int_equal(run_grant(&books, engine, &job), -KVP_EQUOTA);
	books_destroy(&books);
}

static void grant_that_fails_midway_gives_all_back(void **unused)
{
	struct books books;
	struct kvd_engine *engine, *thief;
	struct kvw_answer answers[8];
	struct kvd_grant job = {.count = 4, .answers = answers};
	int32_t id;

	(void)unused;
	books_create(&books, 4, 2);
	engine = books_engine(&books, 0);
	thief = books_engine(&books, 1);
	assert_int_equal(kvd_grant_step(engine, &job, 2), 0);
	assert_int_equal(kvd_pool_grant(books.pool, thief, &id), 0);
	assert_int_equal(run_grant(&books, engine, &job), -KVP_ENOBLOCKS);
	assert_int_equal(books.tenant[0].used_blocks, 0);
	assert_int_equal(books.pool->free.length, 3);
	assert_int_equal(books_counter(&books, KVW_COUNTER_granted_blocks), 0);
	books_destroy(&books);
}

static void aborted_grant_gives_all_back(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	struct kvw_answer answers[8];
	struct kvd_grant job = {.count = 4, .answers = answers};

	(void)unused;
	books_create(&books, 4, 1);
	engine = books_engine(&books, 0);
	assert_int_equal(kvd_grant_step(engine, &job, 2), 0);
	kvd_grant_abort(engine, &job);
	books_check(&books);
	assert_int_equal(books.pool->free.length, 4);
	books_destroy(&books);
}

static void ended_engine_is_granted_nothing(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	struct kvw_answer answers[8];
	struct kvd_grant job = {.count = 1, .answers = answers};
	struct row row;

	(void)unused;
	books_create(&books, 4, 1);
	engine = books_engine(&books, 0);
	kvd_engine_freeze(engine);
	assert_int_equal(kvd_grant_step(engine, &job, 1), -KVP_EREVOKED);
	assert_int_equal(row_open(&books, engine, &row, "a", 1), -KVP_EREVOKED);
	books_destroy(&books);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(open_of_an_empty_cache_grants_everything),
		cmocka_unit_test(open_matches_the_longest_prefix),
		cmocka_unit_test(open_takes_no_more_than_it_was_told),
		cmocka_unit_test(open_of_nothing_makes_an_empty_hold),
		cmocka_unit_test(pending_blocks_are_matched_by_their_writer_and_by_who_asks),
		cmocka_unit_test(open_stops_where_the_parent_is_another),
		cmocka_unit_test(refused_open_holds_nothing),
		cmocka_unit_test(open_that_fails_midway_gives_all_back),
		cmocka_unit_test(aborted_open_gives_all_back),
		cmocka_unit_test(open_refuses_too_many_holds_and_blocks),
		cmocka_unit_test(quota_counts_blocks_and_references),
		cmocka_unit_test(quota_is_shared_by_the_engines_of_a_tenant),
		cmocka_unit_test(pending_block_of_ones_own_counts_twice),
		cmocka_unit_test(grant_is_all_or_nothing),
		cmocka_unit_test(grant_that_fails_midway_gives_all_back),
		cmocka_unit_test(aborted_grant_gives_all_back),
		cmocka_unit_test(ended_engine_is_granted_nothing),
	};

	kvt_watchdog(60);
	return books_run_suite(tests);
}
