/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directory segment: what clients read without asking. It is derived from the books and never read
 * back, but by the deep check.
 */
#ifndef KVPOOL_DAEMON_DIRECTORY_H
#define KVPOOL_DAEMON_DIRECTORY_H

#include <stdint.h>

#include "pool.h"

/* Formats the segment and points the pool at its parts. */
void kvd_directory_format(struct kvd_pool *pool, void *memory);
/* The block's word: after its record. */
void kvd_directory_word(struct kvd_pool *pool, int32_t id);
/*
 * Enters a findable block into its bucket and sets `listed`, unless the bucket is full: then readers
 * of that bucket ask the daemon.
 */
void kvd_directory_add(struct kvd_pool *pool, int32_t id);
void kvd_directory_remove(struct kvd_pool *pool, int32_t id);

/* The bucket a block belongs to, and its entry there. */
struct kvw_bucket *kvd_directory_bucket(const struct kvd_pool *pool, int32_t id, uint64_t *out_entry);

#endif
