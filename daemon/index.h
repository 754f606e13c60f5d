/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The private prefix index: from (namespace, epoch, group, hash) to the block that holds it. Linear
 * probing over slots of 8 bytes, never more than half full. The key is seeded at random, so that no
 * client can make the probes of others long. What clients read is the directory (directory.h); this
 * one decides.
 */
#ifndef KVPOOL_DAEMON_INDEX_H
#define KVPOOL_DAEMON_INDEX_H

#include <stdint.h>

struct kvd_block;

/* id 0: empty. key_low, the key's low half, gives the slot's home without a look at the block. */
struct kvd_index_slot {
	uint32_t key_low;
	int32_t id;
};

struct kvd_index {
	const struct kvd_block *blocks; /* the pool's: for hashes and keys */
	uint64_t seed;
	uint32_t mask;
	uint32_t count;
	struct kvd_index_slot *slots; /* [mask + 1] */
};

/* What is looked for. */
struct kvd_index_name {
	uint64_t key;
	uint32_t namespace_id;
	uint32_t hash_bytes;
	const uint8_t *hash;
};

/* Writes every page once: later each first write would be a fault in the middle of an operation. */
void kvd_make_present(void *memory, uint64_t bytes);

int kvd_index_create(const struct kvd_block *blocks, uint32_t block_count, uint64_t seed,
		     struct kvd_index **out);
void kvd_index_destroy(struct kvd_index *index);

uint64_t kvd_index_key(const struct kvd_index *index, uint32_t namespace_id, uint64_t epoch,
		       const uint8_t *hash, uint32_t hash_bytes);
/* The block, or -1. */
int32_t kvd_index_find(const struct kvd_index *index, const struct kvd_index_name *name);
/* blocks[id].key must be set, and the name not be there. */
void kvd_index_insert(struct kvd_index *index, int32_t id);
void kvd_index_remove(struct kvd_index *index, int32_t id);
/* The slot where a probe from the block's key comes to the block, or -1. Bounded on a damaged table too. */
int64_t kvd_index_slot_of(const struct kvd_index *index, int32_t id);

#endif
