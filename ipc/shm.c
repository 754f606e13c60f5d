/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Offsets inside the segments whose size depends on parameters. Both sides compute them from the same numbers
 * instead of believing offsets that the other wrote.
 */
#include "shm.h"

#include <errno.h>
#include <stdbool.h>

#include <xxhash.h>

#include <kvpool/error.h>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the segments are little endian");

static uint64_t page_up(uint64_t bytes)
{
	return (bytes + KVW_PAGE_BYTES - 1) & ~(uint64_t)(KVW_PAGE_BYTES - 1);
}

uint64_t kvw_index_key(uint32_t namespace_id, uint64_t epoch, uint32_t group, const uint8_t *hash,
		       uint32_t hash_bytes)
{
	/* Fixed order and width: the key is the same in every process. */
	const uint32_t scope[4] = {namespace_id, group, (uint32_t)epoch, (uint32_t)(epoch >> 32)};

	return XXH3_64bits_withSeed(hash, hash_bytes, XXH64(scope, sizeof(scope), 0));
}

/*
 * Half-full buckets at most: at a mean of 4 of 8, one bucket in 20 has no empty entry and sends its readers
 * to the daemon.
 */
static uint32_t bucket_count_for(uint32_t blocks)
{
	uint32_t count = 1;

	while ((uint64_t)count * (KVW_BUCKET_ENTRIES / 2) < blocks)
		count *= 2;
	return count;
}

void kvw_directory_layout(uint32_t blocks, struct kvw_directory_layout *out)
{
	uint64_t header_and_counters = 2 * (uint64_t)KVW_PAGE_BYTES;

	out->block_words = header_and_counters;
	out->buckets = out->block_words + page_up((uint64_t)blocks * sizeof(uint64_t));
	out->bucket_count = bucket_count_for(blocks);
	out->bytes = out->buckets + page_up((uint64_t)out->bucket_count * sizeof(struct kvw_bucket));
}

static int check_range(uint64_t value, uint64_t min, uint64_t max)
{
	if (value < min)
		return -EINVAL;
	return value > max ? -KVP_ELIMIT : 0;
}

static int check_tables_params(const struct kvw_tables_params *params)
{
	int ret = check_range(params->rows, 1, KVW_MAX_SEQS);

	if (!ret)
		ret = check_range(params->row_blocks, 1, KVW_MAX_ROW_BLOCKS);
	if (!ret)
		ret = check_range(params->block_tokens, 1, KVW_MAX_BLOCK_TOKENS);
	if (!ret)
		ret = check_range(params->hash_bytes, 1, KVW_MAX_HASH_BYTES);
	if (!ret)
		ret = check_range(params->slots, KVW_MIN_SLOTS, KVW_MAX_SLOTS);
	if (!ret)
		ret = check_range(params->slot_bytes, 1, KVW_MAX_SLOT_BYTES);
	if (!ret && params->slot_bytes % KVW_PAGE_BYTES)
		ret = -EINVAL;
	return ret;
}

/* Where the next area goes; `overflow` is kept until the end. */
struct placer {
	uint64_t end;
	bool overflow;
};

static uint64_t place(struct placer *placer, uint64_t count, uint64_t element_bytes)
{
	uint64_t start = placer->end;
	uint64_t bytes;

	if (__builtin_mul_overflow(count, element_bytes, &bytes) || bytes > KVW_MAX_TABLES_BYTES ||
	    start + page_up(bytes) > KVW_MAX_TABLES_BYTES) {
		placer->overflow = true;
		return 0;
	}
	placer->end = start + page_up(bytes);
	return start;
}

int kvw_tables_layout(const struct kvw_tables_params *params, struct kvw_tables_layout *out)
{
	uint64_t cells = (uint64_t)params->rows * params->row_blocks;
	struct kvw_tables_layout layout;
	struct placer placer = {0};
	int ret = check_tables_params(params);

	if (ret)
		return ret;
	layout.ids = place(&placer, cells, sizeof(int32_t));
	layout.generations = place(&placer, cells, sizeof(uint64_t));
	layout.hashes = place(&placer, cells, params->hash_bytes);
	layout.tokens = place(&placer, cells, params->block_tokens * sizeof(uint32_t));
	layout.lengths = place(&placer, params->rows, 4 * sizeof(uint32_t));
	layout.returns = place(&placer, KVW_RETURN_ENTRIES, sizeof(struct kvw_block_ref));
	layout.counters = place(&placer, 1, KVW_PAGE_BYTES);
	layout.oplog = place(&placer, 0, 1);
	layout.slots = place(&placer, params->slots, params->slot_bytes);
	layout.bytes = placer.end;
	if (placer.overflow)
		return -KVP_ELIMIT;
	*out = layout;
	return 0;
}
