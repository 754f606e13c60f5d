/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A chain that was held back by its last block becomes evictable all at once, from its tail on: whoever
 * asks for blocks meanwhile must get them, and no step may do it all. How much a step lets into the
 * policy is seen by the pool's clock, which each entry raises.
 */
#include <stdlib.h>
#include <string.h>

#include <kvpool/error.h>

#include "books.h"

#define CHAIN_MAX 5000u
#define SPARE 100u /* free blocks beside the chain */
#define STEP 100u  /* budget of a step */
#define EXTRA 64u  /* what a step may let in beyond its budget */

struct chain {
	struct books books;
	struct kvd_engine *writer;
	struct kvd_engine *other;
	uint32_t blocks;
	uint64_t hashes[CHAIN_MAX + SPARE];
	struct kvw_answer answers[CHAIN_MAX + SPARE];
	struct kvw_block_ref own[CHAIN_MAX + SPARE];
};

static struct chain *chain;

static struct kvd_engine *make_engine(struct books *books)
{
	struct kvd_engine_params params = {
		.session = books->next_session,
		.engine = books->next_session,
		.namespace_id = 9,
		.hash_bytes = sizeof(uint64_t),
		.max_holds = 4,
		.max_hold_blocks = CHAIN_MAX + SPARE,
		.tenant = &books->tenant[0],
	};
	struct kvd_engine *engine;

	books->next_session++;
	assert_int_equal(kvd_engine_create(books->pool, &params, &engine), 0);
	return engine;
}

/* Of the row that the engine has opened last; its hashes begin at `hashes`. */
static void publish(struct kvd_engine *engine, const uint64_t *hashes, uint32_t first, uint32_t count,
		    uint64_t step)
{
	struct kvd_publish job = {
		.hold = chain->books.pool->holds->id,
		.first = first,
		.count = count,
		.step = step,
		.plane_set = 1,
		.blocks = chain->own + first,
		.hashes = (const uint8_t *)(hashes + first),
		.answers = chain->answers + first,
	};

	assert_int_equal(kvd_publish_step(engine, &job, UINT32_MAX), 1);
}

static struct kvd_open open_of(uint32_t want)
{
	return (struct kvd_open){
		.hashes = (const uint8_t *)chain->hashes,
		.want = want,
		.max_new = want,
		.answers = chain->answers,
	};
}

static void open_row(struct kvd_engine *engine, uint32_t blocks)
{
	struct kvd_open open = open_of(blocks);
	uint32_t i;

	assert_int_equal(kvd_open_step(engine, &open, UINT32_MAX), 1);
	for (i = 0; i < blocks; i++)
		chain->own[i] = (struct kvw_block_ref){
			.id = chain->answers[i].id,
			.generation = chain->answers[i].generation,
		};
}

static void release_row(struct kvd_engine *engine)
{
	assert_int_equal(kvd_engine_release(engine, chain->books.pool->holds->id, 0, 0), 0);
}

/* Complete but for the last block, and released: nothing is evictable. */
static void write_chain(void)
{
	open_row(chain->writer, chain->blocks);
	publish(chain->writer, chain->hashes, 0, chain->blocks - 1, 0);
	publish(chain->writer, chain->hashes, chain->blocks - 1, 1, 10);
	release_row(chain->writer);
	books_progress(&chain->books, chain->writer);
	assert_int_equal(chain->books.pool->evictable, 0);
}

/* The last block is complete, and the cascade has just begun. */
static void start(uint32_t blocks)
{
	uint32_t i;

	chain = calloc(1, sizeof(*chain));
	assert_non_null(chain);
	books_create(&chain->books, blocks + SPARE, 2);
	chain->blocks = blocks;
	for (i = 0; i < CHAIN_MAX + SPARE; i++)
		chain->hashes[i] = 1000 + i;
	chain->writer = make_engine(&chain->books);
	chain->other = make_engine(&chain->books);
	write_chain();
	kvd_engine_latch(chain->writer, 0, 10);
	assert_int_equal(kvd_engine_progress(chain->writer, 1), 1);
	assert_true(chain->books.pool->evictable < blocks);
	assert_int_equal(chain->books.pool->counts[KVW_BLOCK_CACHED], blocks);
	books_check(&chain->books);
}

static void finish(void)
{
	books_destroy(&chain->books);
	free(chain);
}

static int open_step(struct kvd_open *open)
{
	uint64_t clock = chain->books.pool->clock;
	int ret = kvd_open_step(chain->other, open, STEP);

	assert_in_range(chain->books.pool->clock - clock, 0, STEP + EXTRA);
	return ret;
}

static int open_all(uint32_t want)
{
	struct kvd_open open = open_of(want);
	int ret;

	do
		ret = open_step(&open);
	while (ret == 0);
	books_check(&chain->books);
	return ret;
}

static void open_gets_the_chain(uint32_t blocks)
{
	start(blocks);
	assert_int_equal(open_all(blocks + SPARE), 1);
	assert_int_equal(books_counter(&chain->books, KVW_COUNTER_no_blocks), 0);
	assert_int_equal(books_counter(&chain->books, KVW_COUNTER_evicted_blocks), blocks);
	finish();
}

static void open_waits_for_a_chain_that_becomes_evictable(void **unused)
{
	(void)unused;
	open_gets_the_chain(200);
	open_gets_the_chain(5000);
}

static void grant_gets_the_chain(uint32_t blocks)
{
	struct kvd_grant grant = {.count = blocks + SPARE};
	uint64_t clock;
	int ret;

	start(blocks);
	grant.answers = chain->answers;
	do {
		clock = chain->books.pool->clock;
		ret = kvd_grant_step(chain->other, &grant, STEP);
		assert_in_range(chain->books.pool->clock - clock, 0, STEP + EXTRA);
	} while (ret == 0);
	assert_int_equal(ret, 1);
	assert_int_equal(grant.granted, blocks + SPARE);
	books_check(&chain->books);
	finish();
}

static void grant_waits_for_a_chain_that_becomes_evictable(void **unused)
{
	(void)unused;
	grant_gets_the_chain(200);
	grant_gets_the_chain(5000);
}

static void refusal_comes_when_the_whole_chain_is_not_enough(void **unused)
{
	(void)unused;
	start(200);
	/* Beyond by what the other engine has taken before. */
	assert_int_equal(open_all(1), 1);
	assert_int_equal(open_all(200 + SPARE), -KVP_ENOBLOCKS);
	assert_int_equal(books_counter(&chain->books, KVW_COUNTER_no_blocks), 1);
	assert_int_equal(books_counter(&chain->books, KVW_COUNTER_evicted_blocks), 0);
	assert_int_equal(chain->books.pool->evictable, 200);
	finish();
}

static void abort_while_waiting_for_a_chain_gives_the_hold_back(void **unused)
{
	struct kvd_open open;

	(void)unused;
	start(5000);
	open = open_of(5000 + SPARE);
	assert_int_equal(open_step(&open), 0);
	kvd_open_abort(chain->other, &open);
	books_check(&chain->books);
	assert_int_equal(chain->other->hold_count, 0);
	finish();
}

/* Each reference that is dropped may let something in; all of them together must not let all in. */
static void release_lets_in_a_bounded_number_of_blocks(void **unused)
{
	struct kvd_pool *pool;
	uint64_t clock;

	(void)unused;
	start(5000);
	pool = chain->books.pool;
	open_row(chain->other, STEP);
	publish(chain->other, chain->hashes + CHAIN_MAX, 0, STEP, 0);
	release_row(chain->other);
	clock = pool->clock;
	kvd_engine_progress(chain->other, STEP);
	assert_in_range(pool->clock - clock, 1, STEP + EXTRA);
	books_check(&chain->books);
	/* With nothing else to do the chain ripens all the same, so many blocks a step. */
	while (pool->evictable < 5000 + STEP) {
		clock = pool->clock;
		kvd_engine_progress(chain->writer, 1);
		assert_in_range(pool->clock - clock, 1, 1 + EXTRA);
	}
	books_check(&chain->books);
	finish();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(open_waits_for_a_chain_that_becomes_evictable),
		cmocka_unit_test(grant_waits_for_a_chain_that_becomes_evictable),
		cmocka_unit_test(refusal_comes_when_the_whole_chain_is_not_enough),
		cmocka_unit_test(abort_while_waiting_for_a_chain_gives_the_hold_back),
		cmocka_unit_test(release_lets_in_a_bounded_number_of_blocks),
	};

	kvt_watchdog(120);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
