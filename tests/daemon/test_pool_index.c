/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The private index alone, against an array that is searched from end to end. Keys are chosen, not
 * computed: all in few homes, many the same, so that probes are long, wrap, and meet other blocks of
 * their key.
 */
#include <stdlib.h>
#include <string.h>

#include "books.h"
#include "daemon/index.h"

#define BLOCKS 40u

static struct kvd_block blocks[BLOCKS];
static bool inside[BLOCKS];

static void name_block(struct kvt_rng *rng, int32_t id)
{
	struct kvd_block *block = &blocks[id];

	memset(block, 0, sizeof(*block));
	/* Homes around the table's end; the high half tells some keys apart whose homes are the same. */
	block->key = (124 + kvt_rng_below(rng, 8)) | kvt_rng_below(rng, 2) << 32;
	block->record.namespace_id = (uint32_t)kvt_rng_below(rng, 2);
	block->record.hash_bytes = (uint8_t)(8 + kvt_rng_below(rng, 2));
	block->record.hash[0] = (uint8_t)kvt_rng_below(rng, 3);
}

static bool is_same_name(const struct kvd_block *one, const struct kvd_block *two)
{
	return one->key == two->key && one->record.namespace_id == two->record.namespace_id &&
	       one->record.hash_bytes == two->record.hash_bytes &&
	       memcmp(one->record.hash, two->record.hash, KVW_MAX_HASH_BYTES) == 0;
}

static int32_t naive_find(const struct kvd_block *sought)
{
	int32_t id;

	for (id = 1; id < (int32_t)BLOCKS; id++)
		if (inside[id] && is_same_name(&blocks[id], sought))
			return id;
	return -1;
}

static int32_t find(const struct kvd_index *index, const struct kvd_block *sought)
{
	struct kvd_index_name name = {
		.key = sought->key,
		.namespace_id = sought->record.namespace_id,
		.hash_bytes = sought->record.hash_bytes,
		.hash = sought->record.hash,
	};

	return kvd_index_find(index, &name);
}

static void assert_same(const struct kvd_index *index)
{
	uint32_t count = 0;
	int32_t id;

	for (id = 1; id < (int32_t)BLOCKS; id++) {
		count += inside[id];
		assert_int_equal(kvd_index_slot_of(index, id) >= 0, inside[id]);
		if (inside[id])
			assert_int_equal(find(index, &blocks[id]), id);
	}
	assert_int_equal(index->count, count);
}

static void index_finds_what_an_array_finds(void **unused)
{
	struct kvd_index *index;
	struct kvt_rng rng = {.state = kvt_seed()};
	uint32_t i;

	(void)unused;
	assert_int_equal(kvd_index_create(blocks, BLOCKS, 7, &index), 0);
	assert_int_equal(index->mask, 127);
	for (i = 0; i < 50000; i++) {
		int32_t id = 1 + (int32_t)kvt_rng_below(&rng, BLOCKS - 1);

		if (inside[id]) {
			kvd_index_remove(index, id);
			inside[id] = false;
			assert_int_equal(find(index, &blocks[id]), -1);
		} else {
			name_block(&rng, id);
			assert_int_equal(find(index, &blocks[id]), naive_find(&blocks[id]));
			if (naive_find(&blocks[id]) < 0) {
				kvd_index_insert(index, id);
				inside[id] = true;
			}
		}
		assert_same(index);
	}
	kvd_index_destroy(index);
	kvd_index_destroy(NULL);
}

static void keys_depend_on_every_part_of_the_name(void **unused)
{
	struct kvd_index *index, *other;
	uint8_t hash[KVW_MAX_HASH_BYTES] = {1};
	uint64_t key;

	(void)unused;
	assert_int_equal(kvd_index_create(blocks, BLOCKS, 7, &index), 0);
	assert_int_equal(kvd_index_create(blocks, BLOCKS, 8, &other), 0);
	key = kvd_index_key(index, 1, 2, hash, 32);
	assert_true(key == kvd_index_key(index, 1, 2, hash, 32));
	assert_true(key != kvd_index_key(other, 1, 2, hash, 32));
	assert_true(key != kvd_index_key(index, 2, 2, hash, 32));
	assert_true(key != kvd_index_key(index, 1, 3, hash, 32));
	assert_true(key != kvd_index_key(index, 1, 2, hash, 33));
	hash[31] = 1;
	assert_true(key != kvd_index_key(index, 1, 2, hash, 32));
	kvd_index_destroy(index);
	kvd_index_destroy(other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(index_finds_what_an_array_finds),
		cmocka_unit_test(keys_depend_on_every_part_of_the_name),
	};

	kvt_watchdog(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
