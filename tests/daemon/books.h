/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool in plain memory, and sequences with readable names: each letter of "abc" is a block, and its
 * hash is that of the whole prefix, so "abc" and "abd" share two blocks. Every helper runs the deep
 * check afterwards.
 */
#ifndef KVPOOL_TEST_BOOKS_H
#define KVPOOL_TEST_BOOKS_H

#include "daemon/check.h"
#include "daemon/engine.h"
#include "support.h"

#define ROW_BLOCKS 96u
#define HASH_BYTES 32u

struct books {
	struct kvd_pool *pool;
	uint8_t *state;
	size_t state_bytes;
	uint8_t *directory;
	size_t directory_bytes;
	struct kvd_tenant tenant[2];
	uint64_t next_session;
	uint32_t budget; /* of every step of a job */
};

/* One sequence as its client knows it. */
struct row {
	struct kvd_engine *engine;
	const char *name;
	uint64_t hold;
	uint32_t length;    /* blocks in the row */
	uint32_t matched;   /* by the open */
	uint32_t published; /* length of the hold, truncations aside */
	uint8_t hashes[ROW_BLOCKS][HASH_BYTES];
	struct kvd_open open;
	struct kvw_answer answers[ROW_BLOCKS]; /* canonical blocks where they are published */
	struct kvw_block_ref own[ROW_BLOCKS];  /* what is presented */
};

/* Budget of books created from here on: every suite runs once in big steps and once block by block. */
extern uint32_t books_default_budget;
#define books_run_suite(tests)                                                                               \
	(cmocka_run_group_tests_name("in one step", tests, NULL, NULL) +                                     \
	 (books_default_budget = 1, cmocka_run_group_tests_name("block by block", tests, NULL, NULL)))

void books_create(struct books *books, uint32_t data_blocks, uint32_t sink_blocks);
/* Proves every engine gone, checks that nothing is left behind, and frees all. */
void books_destroy(struct books *books);
struct kvd_engine *books_engine(struct books *books, uint32_t tenant);
/* Fails the test with the first fault of the deep check. */
void books_check(struct books *books);

/*
 * Everything clients and later daemons can see, counters left out: to show that a refusal changed
 * nothing.
 */
uint8_t *books_snapshot(const struct books *books);
/* Compares and frees. */
void books_assert_unchanged(const struct books *books, uint8_t *snapshot);

/* Runs to the end: 0 or the error. */
int row_open(struct books *books, struct kvd_engine *engine, struct row *row, const char *name,
	     uint32_t max_new);
int row_open_coming(struct books *books, struct kvd_engine *engine, struct row *row, const char *name,
		    uint32_t max_new);
/* Publishes from the end of what is published up to block `end`. */
int row_publish(struct books *books, struct row *row, uint32_t end, uint32_t timeline, uint64_t step);
/* Opens and publishes all of it. */
void row_write(struct books *books, struct kvd_engine *engine, struct row *row, const char *name,
	       uint32_t timeline, uint64_t step);
int row_release(struct books *books, struct row *row, uint32_t timeline, uint64_t step);
/* Written, complete and released: the pool's cache has it. */
void books_fill(struct books *books, struct kvd_engine *engine, const char *name);

void books_reach(struct books *books, struct kvd_engine *engine, uint32_t timeline, uint64_t step);
void books_progress(struct books *books, struct kvd_engine *engine);
void books_teardown(struct books *books, struct kvd_engine *engine);

/* The findable block of the last letter of `name`, or -1. */
int32_t books_find(const struct books *books, const struct kvd_engine *engine, const char *name);
uint32_t books_state(const struct books *books, int32_t id);
uint32_t books_references(const struct books *books, int32_t id);
uint64_t books_counter(const struct books *books, enum kvw_counter counter);

#define assert_state(books, id, expected) assert_int_equal(books_state(books, id), KVW_BLOCK_##expected)

#endif
