/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is said of a block that cannot be evicted.
 */
#include <string.h>

#include "books.h"

static void assert_explained(const struct books *books, int32_t id, const char *part)
{
	char text[160];

	kvd_pool_explain(books->pool, id, text, sizeof(text));
	if (part ? !strstr(text, part) : text[0] != '\0')
		fail_msg("'%s' does not say '%s'", text, part ? part : "");
}

static void explain_names_what_is_no_data_block(void **unused)
{
	struct books books;
	struct kvd_engine *engine;

	(void)unused;
	books_create(&books, 4, 1);
	engine = books_engine(&books, 0);
	assert_explained(&books, -1, "no block");
	assert_explained(&books, 999, "ids go up to 5");
	assert_explained(&books, 0, "null block");
	assert_explained(&books, engine->sink, "sink");
	kvd_pool_explain(books.pool, 0, NULL, 0);
	books_destroy(&books);
}

static void explain_says_nothing_of_what_can_go(void **unused)
{
	struct books books;
	struct kvd_engine *engine;

	(void)unused;
	books_create(&books, 4, 1);
	engine = books_engine(&books, 0);
	books_fill(&books, engine, "a");
	assert_explained(&books, books_find(&books, engine, "a"), NULL);
	assert_explained(&books, books.pool->free.head, NULL);
	books_destroy(&books);
}

static void explain_says_what_a_cached_block_waits_for(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	struct row held, early;

	(void)unused;
	books_create(&books, 8, 1);
	engine = books_engine(&books, 0);
	row_write(&books, engine, &held, "a", 0, 0);
	assert_explained(&books, held.answers[0].id, "1 references");
	assert_int_equal(row_open(&books, engine, &early, "bc", 2), 0);
	assert_int_equal(row_publish(&books, &early, 1, 0, 0), 0);
	assert_int_equal(row_publish(&books, &early, 2, 1, 50), 0);
	assert_int_equal(row_release(&books, &early, 0, 0), 0);
	assert_explained(&books, early.answers[0].id, "1 of its children");
	books_destroy(&books);
}

/* One engine's blocks through its end; another refers to what was pending. */
static void explain_says_what_an_owned_block_waits_for(void **unused)
{
	struct books books;
	struct kvd_engine *engine, *other;
	struct row pending, coming;
	int32_t leased, draining;

	(void)unused;
	books_create(&books, 8, 2);
	engine = books_engine(&books, 0);
	other = books_engine(&books, 1);
	row_write(&books, engine, &pending, "a", 0, 10);
	assert_int_equal(row_open_coming(&books, other, &coming, "a", 0), 0);
	assert_int_equal(kvd_pool_grant(books.pool, engine, &leased), 0);
	assert_int_equal(kvd_pool_grant(books.pool, engine, &draining), 0);
	assert_int_equal(kvd_engine_return(engine, draining, 1, 0, 12), 0);
	assert_explained(&books, leased, "leased by engine 1001");
	assert_explained(&books, draining, "draining until timeline 0 of engine 1001 reaches step 12");
	assert_explained(&books, pending.answers[0].id,
			 "pending until timeline 0 of engine 1001 reaches step 10");
	kvd_engine_freeze(engine);
	books_teardown(&books, engine);
	assert_explained(&books, leased, "frozen until");
	kvd_engine_die(engine);
	books_teardown(&books, engine);
	assert_explained(&books, leased, "quarantined until");
	assert_explained(&books, pending.answers[0].id, "not findable");
	kvd_engine_prove_gone(engine);
	books_teardown(&books, engine);
	assert_explained(&books, leased, NULL);
	books_destroy(&books);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(explain_names_what_is_no_data_block),
		cmocka_unit_test(explain_says_nothing_of_what_can_go),
		cmocka_unit_test(explain_says_what_a_cached_block_waits_for),
		cmocka_unit_test(explain_says_what_an_owned_block_waits_for),
	};

	kvt_watchdog(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
