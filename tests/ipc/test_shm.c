/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layouts of the segments: areas do not touch each other, begin on pages, and stay within the limits; the
 * index key.
 */
#include "support.h"

#include "ipc/shm.h"

#include <errno.h>
#include <string.h>

#include "kvpool/error.h"

/* ------------------------------------------------------------------ directory */

static void check_directory(uint32_t blocks)
{
	struct kvw_directory_layout layout;
	uint64_t words_end, buckets_end;

	kvw_directory_layout(blocks, &layout);
	words_end = layout.block_words + (uint64_t)blocks * 8;
	buckets_end = layout.buckets + (uint64_t)layout.bucket_count * sizeof(struct kvw_bucket);
	assert_int_equal(layout.block_words, 8192); /* behind header and counters */
	assert_int_equal(layout.buckets % KVW_PAGE_BYTES, 0);
	assert_int_equal(layout.bytes % KVW_PAGE_BYTES, 0);
	assert_true(words_end <= layout.buckets && buckets_end <= layout.bytes);
	assert_true(layout.buckets - words_end < KVW_PAGE_BYTES &&
		    layout.bytes - buckets_end < KVW_PAGE_BYTES);
	/* A power of two, the smallest with at most 4 blocks a bucket. */
	assert_true(layout.bucket_count > 0 && (layout.bucket_count & (layout.bucket_count - 1)) == 0);
	assert_true((uint64_t)layout.bucket_count * 4 >= blocks);
	assert_true(layout.bucket_count == 1 || (uint64_t)layout.bucket_count * 2 < blocks);
}

static void directory_areas_follow_each_other(void **state)
{
	static const uint32_t counts[] = {511,   512,   513,      60002,
					  65536, 65537, 1u << 26, KVW_MAX_BLOCKS + KVW_MAX_ENGINES + 1};
	uint32_t blocks;
	size_t i;

	(void)state;
	for (blocks = 1; blocks < 300; blocks++)
		check_directory(blocks);
	for (i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		check_directory(counts[i]);
	check_directory(UINT32_MAX);
}

/* ------------------------------------------------------------------ tables */

struct area {
	uint64_t start;
	uint64_t bytes;
};
#define AREAS 9

static const struct kvw_tables_params usual = {
	.rows = 8,
	.row_blocks = 100,
	.block_tokens = 64,
	.hash_bytes = 32,
	.slots = 3,
	.slot_bytes = 8192,
};

/* The table in shm.h, in its order. */
static void list_areas(const struct kvw_tables_params *p, const struct kvw_tables_layout *l,
		       struct area out[AREAS])
{
	const struct area areas[AREAS] = {
		{l->ids, 4ull * p->rows * p->row_blocks},
		{l->generations, 8ull * p->rows * p->row_blocks},
		{l->hashes, 1ull * p->rows * p->row_blocks * p->hash_bytes},
		{l->tokens, 4ull * p->rows * p->row_blocks * p->block_tokens},
		{l->lengths, 4ull * 4 * p->rows},
		{l->returns, 16ull * KVW_RETURN_ENTRIES},
		{l->counters, 4096},
		{l->oplog, 0},
		{l->slots, p->slots * p->slot_bytes},
	};

	memcpy(out, areas, sizeof(areas));
}

static void check_tables(const struct kvw_tables_params *params)
{
	struct kvw_tables_layout layout;
	struct area areas[AREAS];
	uint64_t end = 0;
	size_t i;

	assert_int_equal(kvw_tables_layout(params, &layout), 0);
	list_areas(params, &layout, areas);
	for (i = 0; i < AREAS; i++) {
		assert_int_equal(areas[i].start % KVW_PAGE_BYTES, 0);
		assert_true(areas[i].start >= end && areas[i].start - end < KVW_PAGE_BYTES);
		end = areas[i].start + areas[i].bytes;
	}
	assert_true(layout.bytes >= end && layout.bytes - end < KVW_PAGE_BYTES);
	assert_int_equal(layout.bytes % KVW_PAGE_BYTES, 0);
	assert_true(layout.bytes <= KVW_MAX_TABLES_BYTES);
}

static void tables_areas_follow_each_other(void **state)
{
	struct kvt_rng rng = {.state = kvt_seed()};
	uint32_t i;

	(void)state;
	check_tables(&usual);
	for (i = 0; i < 2000; i++) {
		const struct kvw_tables_params params = {
			.rows = 1 + (uint32_t)kvt_rng_below(&rng, 200),
			.row_blocks = 1 + (uint32_t)kvt_rng_below(&rng, 2000),
			.block_tokens = 1 + (uint32_t)kvt_rng_below(&rng, 300),
			.hash_bytes = 1 + (uint32_t)kvt_rng_below(&rng, 64),
			.slots = 2 + (uint32_t)kvt_rng_below(&rng, 15),
			.slot_bytes = 4096 * (1 + kvt_rng_below(&rng, 64)),
		};

		check_tables(&params);
	}
}

/* What another build of version 1 must compute too. */
static void tables_offsets_of_version_1(void **state)
{
	struct kvw_tables_layout layout;

	(void)state;
	assert_int_equal(kvw_tables_layout(&usual, &layout), 0);
	assert_int_equal(layout.ids, 0);
	assert_int_equal(layout.generations, 4096); /* 3,200 bytes of ids */
	assert_int_equal(layout.hashes, 12288);     /* 6,400 */
	assert_int_equal(layout.tokens, 40960);     /* 25,600 */
	assert_int_equal(layout.lengths, 245760);   /* 204,800: whole pages */
	assert_int_equal(layout.returns, 249856);   /* 128 */
	assert_int_equal(layout.counters, 512000);  /* 256 KiB */
	assert_int_equal(layout.oplog, 516096);
	assert_int_equal(layout.slots, 516096);
	assert_int_equal(layout.bytes, 540672); /* 3 * 8,192 */
}

static int layout_with(uint32_t rows, uint32_t row_blocks, uint32_t block_tokens, uint32_t hash_bytes,
		       uint32_t slots, uint64_t slot_bytes)
{
	const struct kvw_tables_params params = {rows,       row_blocks, block_tokens,
						 hash_bytes, slots,      slot_bytes};
	struct kvw_tables_layout layout, before;
	int ret;

	memset(&layout, 0x5a, sizeof(layout));
	before = layout;
	ret = kvw_tables_layout(&params, &layout);
	if (ret)
		assert_memory_equal(&layout, &before, sizeof(layout));
	return ret;
}

static void tables_refuse_zero_and_what_is_above_a_limit(void **state)
{
	(void)state;
	assert_int_equal(layout_with(1, 1, 1, 1, 2, 4096), 0);
	assert_int_equal(layout_with(0, 1, 1, 1, 2, 4096), -EINVAL);
	assert_int_equal(layout_with(1, 0, 1, 1, 2, 4096), -EINVAL);
	assert_int_equal(layout_with(1, 1, 0, 1, 2, 4096), -EINVAL);
	assert_int_equal(layout_with(1, 1, 1, 0, 2, 4096), -EINVAL);
	assert_int_equal(layout_with(1, 1, 1, 1, 1, 4096), -EINVAL);
	assert_int_equal(layout_with(1, 1, 1, 1, 2, 0), -EINVAL);
	assert_int_equal(layout_with(1, 1, 1, 1, 2, 4097), -EINVAL);
	assert_int_equal(layout_with(KVW_MAX_SEQS, 1, 1, 1, 2, 4096), 0);
	assert_int_equal(layout_with(KVW_MAX_SEQS + 1, 1, 1, 1, 2, 4096), -KVP_ELIMIT);
	assert_int_equal(layout_with(1, KVW_MAX_ROW_BLOCKS, 1, 1, 2, 4096), 0);
	assert_int_equal(layout_with(1, KVW_MAX_ROW_BLOCKS + 1, 1, 1, 2, 4096), -KVP_ELIMIT);
	assert_int_equal(layout_with(1, 1, KVW_MAX_BLOCK_TOKENS, 1, 2, 4096), 0);
	assert_int_equal(layout_with(1, 1, KVW_MAX_BLOCK_TOKENS + 1, 1, 2, 4096), -KVP_ELIMIT);
	assert_int_equal(layout_with(1, 1, 1, KVW_MAX_HASH_BYTES, 2, 4096), 0);
	assert_int_equal(layout_with(1, 1, 1, KVW_MAX_HASH_BYTES + 1, 2, 4096), -KVP_ELIMIT);
	assert_int_equal(layout_with(1, 1, 1, 1, KVW_MAX_SLOTS, 4096), 0);
	assert_int_equal(layout_with(1, 1, 1, 1, KVW_MAX_SLOTS + 1, 4096), -KVP_ELIMIT);
	assert_int_equal(layout_with(1, 1, 1, 1, 2, KVW_MAX_SLOT_BYTES), 0);
	assert_int_equal(layout_with(1, 1, 1, 1, 2, (uint64_t)KVW_MAX_SLOT_BYTES + 4096), -KVP_ELIMIT);
}

/*
 * Every parameter allowed, the segment too large: by its tokens, by many areas together, by everything at
 * once.
 */
static void tables_refuse_more_than_the_whole_segment(void **state)
{
	(void)state;
	assert_int_equal(layout_with(8192, 65536, 32, 1, 2, 4096), -KVP_ELIMIT);
	assert_int_equal(layout_with(4096, 65536, 32, 64, 16, 1u << 30), -KVP_ELIMIT);
	assert_int_equal(layout_with(KVW_MAX_SEQS, KVW_MAX_ROW_BLOCKS, KVW_MAX_BLOCK_TOKENS,
				     KVW_MAX_HASH_BYTES, KVW_MAX_SLOTS, KVW_MAX_SLOT_BYTES),
			 -KVP_ELIMIT);
}

/* The segment's limit is met exactly: 64 GiB go, one slot page more does not. */
static void tables_may_fill_the_segment(void **state)
{
	struct kvw_tables_params params = usual;
	struct kvw_tables_layout layout;

	(void)state;
	params.rows = 8192;
	params.row_blocks = 4096;
	params.block_tokens = 384;
	params.slots = 2;
	params.slot_bytes = 4096;
	assert_int_equal(kvw_tables_layout(&params, &layout), 0);
	params.slots = 16;
	params.slot_bytes = (KVW_MAX_TABLES_BYTES - layout.slots) / 16 / 4096 * 4096;
	if (params.slot_bytes > KVW_MAX_SLOT_BYTES)
		fail_msg("the test's numbers leave %llu bytes a slot", (unsigned long long)params.slot_bytes);
	assert_int_equal(kvw_tables_layout(&params, &layout), 0);
	assert_true(KVW_MAX_TABLES_BYTES - layout.bytes < 16 * 4096);
	params.slot_bytes += 4096;
	assert_int_equal(kvw_tables_layout(&params, &layout), -KVP_ELIMIT);
}

/* ------------------------------------------------------------------ index key */

static uint64_t key_of(uint32_t namespace_id, uint64_t epoch, uint32_t group, const char *hash)
{
	return kvw_index_key(namespace_id, epoch, group, (const uint8_t *)hash, (uint32_t)strlen(hash));
}

/* Values of make_hash_golden.py: the key is the same in every build and process. */
static void index_keys_of_version_1(void **state)
{
	uint8_t hash[64];
	uint32_t i;

	(void)state;
	for (i = 0; i < 64; i++)
		hash[i] = (uint8_t)(3 * i + 1);
#define KEY(namespace_id, epoch, group, bytes, value)                                                        \
	assert_true(kvw_index_key(namespace_id, epoch, group, hash, bytes) == value);
#include "index_key_golden.h"
#undef KEY
}

static void every_part_of_a_key_counts(void **state)
{
	uint64_t key = key_of(1, 2, 3, "hash");

	(void)state;
	assert_true(key == key_of(1, 2, 3, "hash"));
	assert_true(key != key_of(2, 2, 3, "hash"));
	assert_true(key != key_of(1, 3, 3, "hash"));
	assert_true(key != key_of(1, 2 | 1ull << 32, 3, "hash"));
	assert_true(key != key_of(1, 2, 4, "hash"));
	assert_true(key != key_of(3, 2, 1, "hash"));
	assert_true(key != key_of(1, 2, 3, "hasi"));
	assert_true(key != key_of(1, 2, 3, "hash "));
}

/* Buckets are chosen by the low bits, tags by the high ones: both must spread. */
static void keys_spread_over_buckets(void **state)
{
	enum { BUCKETS = 1024, BLOCKS = 4096 };
	static uint32_t load[BUCKETS];
	uint32_t full = 0, i;

	(void)state;
	for (i = 0; i < BLOCKS; i++)
		load[kvw_index_key(1, 1, 0, (const uint8_t *)&i, sizeof(i)) & (BUCKETS - 1)]++;
	for (i = 0; i < BUCKETS; i++)
		full += load[i] >= KVW_BUCKET_ENTRIES;
	/* 5.1 % are expected of a random function at 4 a bucket (Poisson): 52, with a deviation of 7. */
	assert_in_range(full, 10, 95);
}

static void block_words_keep_both_parts(void **state)
{
	uint64_t word = kvw_block_word(0x00ffffffffffffff, KVW_BLOCK_QUARANTINED);

	(void)state;
	assert_int_equal(word & 0xff, KVW_BLOCK_QUARANTINED);
	assert_true(word >> 8 == 0x00ffffffffffffff);
	assert_true(kvw_block_word(0, KVW_BLOCK_FREE) == 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(directory_areas_follow_each_other),
		cmocka_unit_test(tables_areas_follow_each_other),
		cmocka_unit_test(tables_offsets_of_version_1),
		cmocka_unit_test(tables_refuse_zero_and_what_is_above_a_limit),
		cmocka_unit_test(tables_refuse_more_than_the_whole_segment),
		cmocka_unit_test(tables_may_fill_the_segment),
		cmocka_unit_test(index_keys_of_version_1),
		cmocka_unit_test(every_part_of_a_key_counts),
		cmocka_unit_test(keys_spread_over_buckets),
		cmocka_unit_test(block_words_keep_both_parts),
	};

	kvt_watchdog(60);
	return cmocka_run_group_tests_name("unit.shm", tests, NULL, NULL);
}
