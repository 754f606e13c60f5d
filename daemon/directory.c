/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stores to the directory. Readers load each word with acquire and never see a half: every change here
 * is one aligned store with release, made after what it announces. Entries never move, so a reader
 * that walks a bucket misses none that stays.
 */
#include "directory.h"

#include "assert.h"

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

void kvd_directory_add(struct kvd_pool *pool, int32_t id)
{
	uint64_t entry;
	struct kvw_bucket *bucket = kvd_directory_bucket(pool, id, &entry);
	int at = place_of(bucket, 0);

	if (at < 0)
		return;
	atomic_store_explicit(&bucket->entries[at], entry, memory_order_release);
	pool->block[id].listed = 1;
}

void kvd_directory_remove(struct kvd_pool *pool, int32_t id)
{
	uint64_t entry;
	struct kvw_bucket *bucket;
	int at;

	if (!pool->block[id].listed)
		return;
	bucket = kvd_directory_bucket(pool, id, &entry);
	at = place_of(bucket, entry);
	kvd_assert(at >= 0);
	atomic_store_explicit(&bucket->entries[at], 0, memory_order_release);
	pool->block[id].listed = 0;
}
