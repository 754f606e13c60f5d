/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every allocation of the books fails once: the operation says -ENOMEM, nothing has changed, and the
 * same operation works afterwards.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "books.h"

/* Linked with --wrap: the n-th allocation from now fails; 0: none does. */
static uint32_t fail_at;
static uint32_t failures;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);

static bool fails_now(void)
{
	if (fail_at == 0 || --fail_at > 0)
		return false;
	failures++;
	return true;
}

void *__wrap_malloc(size_t bytes)
{
	return fails_now() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
	return fails_now() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *memory, size_t bytes)
{
	return fails_now() ? NULL : __real_realloc(memory, bytes);
}

static struct books books;
static struct kvd_engine *engine;
static struct row row;

typedef int operation_fn(void);

/* Runs the operation with its first, second, ... allocation failing, until none fails. */
static void fail_each_allocation(operation_fn *operation, uint32_t expected)
{
	uint8_t *before;
	uint32_t n;
	int ret;

	failures = 0;
	for (n = 1;; n++) {
		uint64_t used = books.tenant[0].used_blocks;

		before = books_snapshot(&books);
		fail_at = n;
		ret = operation();
		if (fail_at > 0)
			break;
		assert_int_equal(ret, -ENOMEM);
		books_assert_unchanged(&books, before);
		assert_int_equal(books.tenant[0].used_blocks, used);
		books_check(&books);
	}
	fail_at = 0;
	free(before);
	assert_int_equal(ret, 0);
	assert_int_equal(failures, expected);
	books_check(&books);
}

static void start(void)
{
	books_create(&books, 16, 2);
	engine = books_engine(&books, 0);
}

static int create_pool(void)
{
	struct kvd_pool_params params = {
		.data_blocks = 4,
		.policy = &kvd_policy_lru,
		.state = __real_calloc(1, kvd_pool_state_bytes(5)),
		.directory = __real_calloc(8, KVW_PAGE_BYTES),
	};
	struct kvd_pool *pool = NULL;
	int ret = kvd_pool_create(&params, &pool);

	assert_int_equal(ret == 0, pool != NULL);
	kvd_pool_destroy(pool);
	free(params.state);
	free(params.directory);
	return ret;
}

static int create_engine(void)
{
	struct kvd_engine_params params = {
		.hash_bytes = 8, .max_holds = 2, .max_hold_blocks = 2, .tenant = &books.tenant[0]};
	struct kvd_engine *other;

	return kvd_engine_create(books.pool, &params, &other);
}

static int open_row(void)
{
	row.open.phase = 0;
	return kvd_open_step(engine, &row.open, UINT32_MAX) == 1 ? 0 : -ENOMEM;
}

static int publish_first(void)
{
	struct kvd_publish job = {
		.hold = row.hold,
		.count = 1,
		.step = 5,
		.blocks = row.own,
		.hashes = row.hashes[0],
		.answers = row.answers,
	};
	int ret = kvd_publish_step(engine, &job, UINT32_MAX);

	return ret == 1 ? 0 : ret;
}

static int truncate_row(void)
{
	return kvd_engine_truncate(engine, row.hold, 1, 3, 5);
}

static int release_row(void)
{
	return kvd_engine_release(engine, row.hold, 4, 5);
}

static int return_block(void)
{
	return kvd_engine_return(engine, row.own[1].id, row.own[1].generation, 5, 5);
}

static int start_check(void)
{
	struct kvd_check *check;
	int ret = kvd_check_start(books.pool, &check);

	if (!ret)
		kvd_check_end(check);
	return ret;
}

static void creation_survives_every_failed_allocation(void **unused)
{
	(void)unused;
	start();
	/* The pool, its blocks, the index and its slots, the policy. */
	fail_each_allocation(create_pool, 6);
	/* The engine, its holds, the free slots. */
	fail_each_allocation(create_engine, 3);
	fail_each_allocation(start_check, 2);
	books_destroy(&books);
}

static void open_survives_every_failed_allocation(void **unused)
{
	(void)unused;
	start();
	assert_int_equal(row_open(&books, engine, &row, "abc", 0), 0);
	row.open.max_new = 3;
	fail_each_allocation(open_row, 2);
	books_destroy(&books);
}

static void publish_survives_every_failed_allocation(void **unused)
{
	(void)unused;
	start();
	assert_int_equal(row_open(&books, engine, &row, "a", 1), 0);
	/* A queue; the hold has room for what the row wants. */
	fail_each_allocation(publish_first, 1);
	books_destroy(&books);
}

static void publish_beyond_the_wanted_blocks_grows_the_hold(void **unused)
{
	struct kvd_grant grant = {.count = 3, .answers = row.answers};
	uint32_t i;

	(void)unused;
	start();
	assert_int_equal(row_open(&books, engine, &row, "", 0), 0);
	assert_int_equal(kvd_grant_step(engine, &grant, UINT32_MAX), 1);
	for (i = 0; i < 3; i++) {
		row.own[i] = (struct kvw_block_ref){.id = row.answers[i].id, .generation = 1};
		memset(row.hashes[i], (int)i + 1, HASH_BYTES);
	}
	assert_int_equal(row_publish(&books, &row, 1, 0, 0), 0);
	fail_at = 1;
	assert_int_equal(row_publish(&books, &row, 3, 0, 0), -ENOMEM);
	books_check(&books);
	assert_int_equal(row.published, 1);
	assert_int_equal(row_publish(&books, &row, 3, 0, 0), 0);
	books_destroy(&books);
}

static void giving_up_survives_every_failed_allocation(void **unused)
{
	(void)unused;
	start();
	assert_int_equal(row_open(&books, engine, &row, "abc", 3), 0);
	fail_each_allocation(return_block, 1);
	books_destroy(&books);
	start();
	row_write(&books, engine, &row, "abc", 0, 0);
	/* A queue; it stays, so that the hold of the tail is next. */
	fail_each_allocation(truncate_row, 2);
	books_destroy(&books);
	start();
	assert_int_equal(row_open(&books, engine, &row, "", 0), 0);
	assert_int_equal(row_release(&books, &row, 3, 5), 0);
	row_write(&books, engine, &row, "abc", 0, 0);
	/* The queue is there: the hold of the tail, and its blocks. */
	fail_each_allocation(truncate_row, 2);
	fail_each_allocation(release_row, 1);
	books_destroy(&books);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(creation_survives_every_failed_allocation),
		cmocka_unit_test(open_survives_every_failed_allocation),
		cmocka_unit_test(publish_survives_every_failed_allocation),
		cmocka_unit_test(publish_beyond_the_wanted_blocks_grows_the_hold),
		cmocka_unit_test(giving_up_survives_every_failed_allocation),
	};

	kvt_watchdog(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
