/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear probing with backward shift on removal: no tombstones, so a table that has seen a billion
 * evictions probes as short as a fresh one.
 */
#include "index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "assert.h"
#include "pool.h"

static uint64_t slots_for(uint32_t block_count)
{
	uint64_t slots = 16;

	while (slots < 2 * (uint64_t)block_count)
		slots *= 2;
	return slots;
}

void kvd_make_present(void *memory, uint64_t bytes)
{
	volatile uint8_t *page = memory;
	uint64_t i;

	for (i = 0; i < bytes; i += KVW_PAGE_BYTES)
		page[i] = 0;
}

int kvd_index_create(const struct kvd_block *blocks, uint32_t block_count, uint64_t seed,
		     struct kvd_index **out)
{
	struct kvd_index *index = calloc(1, sizeof(*index));
	uint64_t slots = slots_for(block_count);

	if (!index)
		return -ENOMEM;
	index->slots = calloc(slots, sizeof(*index->slots));
	if (!index->slots) {
		free(index);
		return -ENOMEM;
	}
	kvd_make_present(index->slots, slots * sizeof(*index->slots));
	index->blocks = blocks;
	index->seed = seed;
	index->mask = (uint32_t)(slots - 1);
	*out = index;
	return 0;
}

void kvd_index_destroy(struct kvd_index *index)
{
	if (!index)
		return;
	free(index->slots);
	free(index);
}

uint64_t kvd_index_key(const struct kvd_index *index, uint32_t namespace_id, uint64_t epoch,
		       const uint8_t *hash, uint32_t hash_bytes)
{
	struct {
		uint64_t epoch;
		uint32_t namespace_id;
		uint32_t group;
		uint8_t hash[KVW_MAX_HASH_BYTES];
	} name = {.epoch = epoch, .namespace_id = namespace_id};

	memcpy(name.hash, hash, hash_bytes);
	return XXH3_64bits_withSeed(&name, 16 + (size_t)hash_bytes, index->seed);
}

static bool is_named(const struct kvd_block *block, const struct kvd_index_name *name)
{
	return block->key == name->key && block->record.namespace_id == name->namespace_id &&
	       block->record.hash_bytes == name->hash_bytes &&
	       memcmp(block->record.hash, name->hash, name->hash_bytes) == 0;
}

int32_t kvd_index_find(const struct kvd_index *index, const struct kvd_index_name *name)
{
	uint32_t low = (uint32_t)name->key;
	uint32_t at = low & index->mask;

	for (; index->slots[at].id; at = (at + 1) & index->mask)
		if (index->slots[at].key_low == low && is_named(&index->blocks[index->slots[at].id], name))
			return index->slots[at].id;
	return -1;
}

void kvd_index_insert(struct kvd_index *index, int32_t id)
{
	uint32_t low = (uint32_t)index->blocks[id].key;
	uint32_t at = low & index->mask;

	kvd_assert(index->count <= index->mask / 2);
	while (index->slots[at].id)
		at = (at + 1) & index->mask;
	index->slots[at] = (struct kvd_index_slot){.key_low = low, .id = id};
	index->count++;
}

int64_t kvd_index_slot_of(const struct kvd_index *index, int32_t id)
{
	uint32_t at = (uint32_t)index->blocks[id].key & index->mask;
	uint32_t probes;

	for (probes = 0; probes <= index->mask && index->slots[at].id; probes++, at = (at + 1) & index->mask)
		if (index->slots[at].id == id)
			return at;
	return -1;
}

void kvd_index_remove(struct kvd_index *index, int32_t id)
{
	int64_t slot = kvd_index_slot_of(index, id);
	uint32_t hole = (uint32_t)slot;
	uint32_t at = hole;

	kvd_assert(slot >= 0);
	for (;;) {
		uint32_t home;

		at = (at + 1) & index->mask;
		if (!index->slots[at].id)
			break;
		home = index->slots[at].key_low & index->mask;
		/* Its home is behind the hole, cyclically: a probe from there would stop at the hole. */
		if (((at - home) & index->mask) >= ((at - hole) & index->mask)) {
			index->slots[hole] = index->slots[at];
			hole = at;
		}
	}
	index->slots[hole] = (struct kvd_index_slot){0};
	index->count--;
}
