/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directory segment: what clients read without asking. It is derived from the books and never read
 * back, but by the deep check.
 */
#ifndef KVPOOL_DAEMON_DIRECTORY_H
#define KVPOOL_DAEMON_DIRECTORY_H

#include <stdint.h>

#include "pool.h"

/*
 * An entry without a block, in a bucket that has left a block out: not empty, so that readers go on
 * asking, and no match, since no block has id 0.
 */
#define KVD_DIRECTORY_KEPT (1ull << 32)

/* What the daemon keeps beside the segment. -ENOMEM. */
int kvd_directory_create(struct kvd_pool *pool);
void kvd_directory_destroy(struct kvd_pool *pool);
/* Formats the segment and points the pool at its parts. */
void kvd_directory_format(struct kvd_pool *pool, void *memory);
/* The block's word: after its record. */
void kvd_directory_word(struct kvd_pool *pool, int32_t id);
/*
 * Enters a findable block into its bucket and sets `listed`, unless the bucket is full: then readers
 * of that bucket ask the daemon until the block is removed.
 */
void kvd_directory_add(struct kvd_pool *pool, int32_t id);
/* Of a block that was added, listed or left out. */
void kvd_directory_remove(struct kvd_pool *pool, int32_t id);

/* The bucket a block belongs to, and its entry there. */
struct kvw_bucket *kvd_directory_bucket(const struct kvd_pool *pool, int32_t id, uint64_t *out_entry);

#endif
