/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stores to the directory. Readers load each word with acquire and never see a half: every change here
 * is one aligned store with release, made after what it announces. Entries never move, so a reader
 * that walks a bucket misses none that stays.
 *
 * A block that finds its bucket full is left out, and readers of that bucket ask the daemon. That must
 * not change when another leaves the bucket: its place is kept (KVD_DIRECTORY_KEPT) as long as a block
 * is left out, and the next block that is added takes it.
 */
#include "directory.h"

#include <errno.h>
#include <stdlib.h>

#include "assert.h"
#include "index.h"

void kvd_directory_format(struct kvd_pool *pool, void *memory)
{
	struct kvw_directory_layout layout;
	struct kvw_directory_header *header = memory;
	uint8_t *bytes = memory;

	kvw_directory_layout(pool->blocks, &layout);
	header->magic = KVW_MAGIC_DIRECTORY;
	header->layout_version = KVW_LAYOUT_VERSION;
	header->incarnation = pool->incarnation;
	header->bytes = layout.bytes;
	header->pool = pool->number;
	header->blocks = pool->blocks;
	header->block_words = layout.block_words;
	header->buckets = layout.buckets;
	header->bucket_count = layout.bucket_count;
	atomic_store_explicit(&header->epoch, pool->epoch, memory_order_release);
	pool->directory = header;
	pool->counters = (_Atomic uint64_t *)(bytes + KVW_PAGE_BYTES);
	pool->block_words = (_Atomic uint64_t *)(bytes + layout.block_words);
	pool->buckets = (struct kvw_bucket *)(bytes + layout.buckets);
	pool->bucket_count = layout.bucket_count;
}

int kvd_directory_create(struct kvd_pool *pool)
{
	struct kvw_directory_layout layout;

	kvw_directory_layout(pool->blocks, &layout);
	pool->left_out = calloc(layout.bucket_count, sizeof(*pool->left_out));
	if (!pool->left_out)
		return -ENOMEM;
	kvd_make_present(pool->left_out, layout.bucket_count * sizeof(*pool->left_out));
	return 0;
}

void kvd_directory_destroy(struct kvd_pool *pool)
{
	free(pool->left_out);
}

void kvd_directory_word(struct kvd_pool *pool, int32_t id)
{
	const struct kvw_block_record *record = &pool->block[id].record;

	atomic_store_explicit(&pool->block_words[id], kvw_block_word(record->generation, record->state),
			      memory_order_release);
}

struct kvw_bucket *kvd_directory_bucket(const struct kvd_pool *pool, int32_t id, uint64_t *out_entry)
{
	const struct kvw_block_record *record = &pool->block[id].record;
	uint64_t key = kvw_index_key(record->namespace_id, pool->epoch, record->group, record->hash,
				     record->hash_bytes);

	*out_entry = (key >> 32 << 32) | (uint32_t)id;
	return &pool->buckets[key & (pool->bucket_count - 1)];
}

/*
 * Where a bucket holds `entry`, 0 being an empty place; -1: nowhere. The only writer reads its own
 * stores.
 */
static int place_of(const struct kvw_bucket *bucket, uint64_t entry)
{
	int i;

	for (i = 0; i < (int)KVW_BUCKET_ENTRIES; i++)
		if (atomic_load_explicit(&bucket->entries[i], memory_order_relaxed) == entry)
			return i;
	return -1;
}

static void store(struct kvw_bucket *bucket, int at, uint64_t entry)
{
	atomic_store_explicit(&bucket->entries[at], entry, memory_order_release);
}

static uint32_t *left_out_of(struct kvd_pool *pool, const struct kvw_bucket *bucket)
{
	return &pool->left_out[bucket - pool->buckets];
}

static void leave_out(struct kvd_pool *pool, const struct kvw_bucket *bucket)
{
	++*left_out_of(pool, bucket);
	pool->left_out_blocks++;
}

void kvd_directory_add(struct kvd_pool *pool, int32_t id)
{
	uint64_t entry;
	struct kvw_bucket *bucket = kvd_directory_bucket(pool, id, &entry);
	int at = place_of(bucket, KVD_DIRECTORY_KEPT);

	if (at < 0)
		at = place_of(bucket, 0);
	if (at < 0) {
		leave_out(pool, bucket);
		return;
	}
	store(bucket, at, entry);
	pool->block[id].listed = 1;
}

static void take_out(struct kvd_pool *pool, struct kvw_bucket *bucket, uint64_t entry)
{
	int at = place_of(bucket, entry);

	kvd_assert(at >= 0);
	store(bucket, at, *left_out_of(pool, bucket) ? KVD_DIRECTORY_KEPT : 0);
}

/* One that was left out is gone; with the last of them the kept places are empty ones. */
static void forget_left_out(struct kvd_pool *pool, struct kvw_bucket *bucket)
{
	uint32_t *left_out = left_out_of(pool, bucket);
	int at;

	kvd_assert(*left_out > 0);
	--*left_out;
	pool->left_out_blocks--;
	if (*left_out)
		return;
	while ((at = place_of(bucket, KVD_DIRECTORY_KEPT)) >= 0)
		store(bucket, at, 0);
}

void kvd_directory_remove(struct kvd_pool *pool, int32_t id)
{
	uint64_t entry;
	struct kvw_bucket *bucket = kvd_directory_bucket(pool, id, &entry);

	if (pool->block[id].listed)
		take_out(pool, bucket, entry);
	else
		forget_left_out(pool, bucket);
	pool->block[id].listed = 0;
}
