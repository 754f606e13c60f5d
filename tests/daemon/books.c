/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Helpers of the tests of the books. Segments are plain memory: the books neither map nor send anything.
 */
#include "books.h"

#include <stdlib.h>
#include <string.h>

uint32_t books_default_budget = UINT32_MAX;

void books_create(struct books *books, uint32_t data_blocks, uint32_t sink_blocks)
{
	struct kvw_directory_layout layout;
	struct kvd_pool_params params = {
		.pool = 3,
		.data_blocks = data_blocks,
		.sink_blocks = sink_blocks,
		.incarnation = 0x1122334455667788u,
		.seed = 42,
		.policy = &kvd_policy_lru,
	};

	memset(books, 0, sizeof(*books));
	kvw_directory_layout(1 + sink_blocks + data_blocks, &layout);
	books->state_bytes = kvd_pool_state_bytes(1 + sink_blocks + data_blocks);
	books->directory_bytes = layout.bytes;
	books->state = aligned_alloc(KVW_PAGE_BYTES, books->state_bytes);
	books->directory = aligned_alloc(KVW_PAGE_BYTES, books->directory_bytes);
	assert_non_null(books->state);
	assert_non_null(books->directory);
	memset(books->state, 0, books->state_bytes);
	memset(books->directory, 0, books->directory_bytes);
	params.state = books->state;
	params.directory = books->directory;
	assert_int_equal(kvd_pool_create(&params, &books->pool), 0);
	books->tenant[0].quota_blocks = UINT64_MAX;
	books->tenant[1].quota_blocks = UINT64_MAX;
	books->tenant[1].uid = 1;
	books->next_session = 1000;
	books->budget = books_default_budget;
	books_check(books);
}

void books_destroy(struct books *books)
{
	struct kvd_pool *pool = books->pool;

	while (pool->engines) {
		struct kvd_engine *engine = pool->engines;

		kvd_engine_prove_gone(engine);
		books_teardown(books, engine);
		assert_true(kvd_engine_empty(engine));
		kvd_engine_destroy(engine);
	}
	books_check(books);
	assert_int_equal(pool->counts[KVW_BLOCK_FREE] + pool->counts[KVW_BLOCK_CACHED], pool->data_blocks);
	assert_int_equal(pool->evictable, pool->counts[KVW_BLOCK_CACHED]);
	assert_int_equal(pool->sinks.length, pool->sink_blocks);
	assert_int_equal(books->tenant[0].used_blocks, 0);
	assert_int_equal(books->tenant[1].used_blocks, 0);
	kvd_pool_destroy(pool);
	free(books->state);
	free(books->directory);
}

struct kvd_engine *books_engine(struct books *books, uint32_t tenant)
{
	struct kvd_engine_params params = {
		.session = books->next_session,
		.engine = books->next_session + 1,
		.namespace_id = 9,
		.hash_bytes = HASH_BYTES,
		.max_holds = 16,
		.max_hold_blocks = ROW_BLOCKS,
		.tenant = &books->tenant[tenant],
	};
	struct kvd_engine *engine;

	books->next_session += 2;
	assert_int_equal(kvd_engine_create(books->pool, &params, &engine), 0);
	books_check(books);
	return engine;
}

void books_check(struct books *books)
{
	char text[160];

	if (kvd_check_now(books->pool, text, sizeof(text)) != 0)
		fail_msg("deep check: %s", text);
}

uint8_t *books_snapshot(const struct books *books)
{
	uint8_t *snapshot = malloc(books->state_bytes + books->directory_bytes);

	assert_non_null(snapshot);
	memcpy(snapshot, books->state, books->state_bytes);
	memcpy(snapshot + books->state_bytes, books->directory, books->directory_bytes);
	return snapshot;
}

void books_assert_unchanged(const struct books *books, uint8_t *snapshot)
{
	const uint8_t *directory = snapshot + books->state_bytes;
	size_t after_counters = (size_t)2 * KVW_PAGE_BYTES;

	assert_memory_equal(books->state, snapshot, books->state_bytes);
	assert_memory_equal(books->directory, directory, KVW_PAGE_BYTES);
	assert_memory_equal(books->directory + after_counters, directory + after_counters,
			    books->directory_bytes - after_counters);
	free(snapshot);
}

/* -------- sequences */

static void name_hash(const char *name, uint32_t letters, uint8_t out[HASH_BYTES])
{
	struct kvt_rng rng = {.state = 77};
	uint32_t i;

	for (i = 0; i < letters; i++)
		rng.state = kvt_rng_next(&rng) ^ (uint64_t)(uint8_t)name[i];
	for (i = 0; i < HASH_BYTES; i += 8) {
		uint64_t word = kvt_rng_next(&rng);

		memcpy(out + i, &word, sizeof(word));
	}
}

static void row_name(struct row *row, struct kvd_engine *engine, const char *name)
{
	uint32_t i;

	memset(row, 0, sizeof(*row));
	row->engine = engine;
	row->name = name;
	row->length = (uint32_t)strlen(name);
	assert_true(row->length <= ROW_BLOCKS);
	for (i = 0; i < row->length; i++)
		name_hash(name, i + 1, row->hashes[i]);
}

static int run_open(struct books *books, struct row *row)
{
	int ret;
	uint32_t i;

	do {
		ret = kvd_open_step(row->engine, &row->open, books->budget);
		books_check(books);
	} while (ret == 0);
	if (ret < 0)
		return ret;
	assert_int_equal(ret, 1);
	row->hold = row->open.hold->id;
	row->matched = row->open.matched;
	row->published = row->open.matched;
	for (i = 0; i < row->matched + row->open.granted; i++)
		row->own[i] = (struct kvw_block_ref){
			.id = row->answers[i].id,
			.generation = row->answers[i].generation,
		};
	return 0;
}

static int open_row(struct books *books, struct kvd_engine *engine, struct row *row, const char *name,
		    uint32_t max_new, bool coming)
{
	row_name(row, engine, name);
	row->open = (struct kvd_open){
		.hashes = row->hashes[0],
		.count = row->length,
		.max_match = row->length,
		.want = row->length,
		.max_new = max_new,
		.coming = coming,
		.answers = row->answers,
	};
	return run_open(books, row);
}

int row_open(struct books *books, struct kvd_engine *engine, struct row *row, const char *name,
	     uint32_t max_new)
{
	return open_row(books, engine, row, name, max_new, false);
}

int row_open_coming(struct books *books, struct kvd_engine *engine, struct row *row, const char *name,
		    uint32_t max_new)
{
	return open_row(books, engine, row, name, max_new, true);
}

int row_publish(struct books *books, struct row *row, uint32_t end, uint32_t timeline, uint64_t step)
{
	struct kvd_publish job = {
		.hold = row->hold,
		.first = row->published,
		.count = end - row->published,
		.timeline = timeline,
		.step = step,
		.plane_set = 1,
		.blocks = row->own + row->published,
		.hashes = row->hashes[row->published],
		.answers = row->answers + row->published,
	};
	int ret;

	do {
		ret = kvd_publish_step(row->engine, &job, books->budget);
		books_check(books);
	} while (ret == 0);
	row->published += job.done;
	return ret < 0 ? ret : 0;
}

void row_write(struct books *books, struct kvd_engine *engine, struct row *row, const char *name,
	       uint32_t timeline, uint64_t step)
{
	assert_int_equal(row_open(books, engine, row, name, UINT32_MAX), 0);
	assert_int_equal(row_publish(books, row, row->length, timeline, step), 0);
}

int row_release(struct books *books, struct row *row, uint32_t timeline, uint64_t step)
{
	int ret = kvd_engine_release(row->engine, row->hold, timeline, step);

	books_check(books);
	books_progress(books, row->engine);
	return ret;
}

void books_fill(struct books *books, struct kvd_engine *engine, const char *name)
{
	struct row row;

	row_write(books, engine, &row, name, 0, 0);
	assert_int_equal(row_release(books, &row, 0, 0), 0);
}

void books_reach(struct books *books, struct kvd_engine *engine, uint32_t timeline, uint64_t step)
{
	kvd_engine_latch(engine, timeline, step);
	books_progress(books, engine);
}

void books_progress(struct books *books, struct kvd_engine *engine)
{
	while (!kvd_engine_progress(engine, books->budget))
		books_check(books);
	books_check(books);
}

void books_teardown(struct books *books, struct kvd_engine *engine)
{
	while (!kvd_engine_teardown_step(engine, books->budget))
		books_check(books);
	books_check(books);
}

int32_t books_find(const struct books *books, const struct kvd_engine *engine, const char *name)
{
	uint8_t hash[HASH_BYTES];

	name_hash(name, (uint32_t)strlen(name), hash);
	return kvd_pool_find(books->pool, engine->namespace_id, hash, HASH_BYTES);
}

uint32_t books_state(const struct books *books, int32_t id)
{
	return books->pool->block[id].record.state;
}

uint32_t books_references(const struct books *books, int32_t id)
{
	return books->pool->block[id].references;
}

uint64_t books_counter(const struct books *books, enum kvw_counter counter)
{
	return kvd_pool_counter(books->pool, counter);
}
