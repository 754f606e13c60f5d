/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool from its creation to its end, its counters, and look-ups by hash.
 */
#include "pool.h"

#include <errno.h>
#include <stdlib.h>

#include "books.h"
#include "directory.h"

/* One an engine: what a session has is an engine in a pool. */
#define SESSION_ENTRIES KVW_MAX_ENGINES

static uint64_t page_up(uint64_t bytes)
{
	return (bytes + KVW_PAGE_BYTES - 1) & ~(uint64_t)(KVW_PAGE_BYTES - 1);
}

static uint64_t records_offset(void)
{
	return KVW_PAGE_BYTES + page_up(SESSION_ENTRIES * sizeof(struct kvw_session_record));
}

size_t kvd_pool_state_bytes(uint32_t blocks)
{
	return records_offset() + page_up(blocks * sizeof(struct kvw_block_record));
}

static void format_state(struct kvd_pool *pool, void *memory)
{
	struct kvw_state_header *header = memory;

	header->magic = KVW_MAGIC_STATE;
	header->layout_version = KVW_LAYOUT_VERSION;
	header->incarnation = pool->incarnation;
	header->blocks = pool->blocks;
	header->sessions = SESSION_ENTRIES;
	header->session_table = KVW_PAGE_BYTES;
	header->records = records_offset();
	header->epoch = pool->epoch;
	pool->records = (struct kvw_block_record *)((uint8_t *)memory + header->records);
}

static uint16_t flags_for(const struct kvd_pool *pool, int32_t id)
{
	if (id == 0)
		return KVW_RECORD_NULL;
	return kvd_pool_is_data(pool, id) ? 0 : KVW_RECORD_SINK;
}

static void format_block(struct kvd_pool *pool, int32_t id)
{
	struct kvd_block *block = kvd_block(pool, id);

	block->record.parent = -1;
	block->record.flags = flags_for(pool, id);
	block->first_child = -1;
	block->previous_sibling = -1;
	block->next_sibling = -1;
	block->previous = -1;
	block->next = -1;
	kvd_block_record(pool, id);
	kvd_directory_word(pool, id);
	if (id == 0)
		return;
	block->list = kvd_pool_is_data(pool, id) ? KVD_LIST_FREE : KVD_LIST_SINKS;
	kvd_list_push_back(pool, kvd_list_of(pool, block), id);
}

static void format_blocks(struct kvd_pool *pool)
{
	uint32_t id;

	kvd_list_init(&pool->free);
	kvd_list_init(&pool->sinks);
	kvd_list_init(&pool->orphans);
	kvd_list_init(&pool->ripe);
	for (id = 0; id < pool->blocks; id++)
		format_block(pool, (int32_t)id);
	pool->counts[KVW_BLOCK_FREE] = pool->data_blocks;
}

static int check_params(const struct kvd_pool_params *params)
{
	if (!params->policy || !params->state || !params->directory)
		return -EINVAL;
	if (params->data_blocks == 0 || params->data_blocks > KVW_MAX_BLOCKS)
		return -EINVAL;
	return params->sink_blocks > KVW_MAX_ENGINES ? -EINVAL : 0;
}

static int allocate(struct kvd_pool *pool, const struct kvd_pool_params *params)
{
	int ret;

	pool->block = calloc(pool->blocks, sizeof(*pool->block));
	if (!pool->block)
		return -ENOMEM;
	ret = kvd_index_create(pool->block, pool->blocks, params->seed, &pool->index);
	if (!ret)
		ret = kvd_directory_create(pool);
	if (ret)
		return ret;
	return pool->policy_ops->create(pool->blocks, &pool->policy);
}

int kvd_pool_create(const struct kvd_pool_params *params, struct kvd_pool **out)
{
	struct kvd_pool *pool;
	int ret = check_params(params);

	if (ret)
		return ret;
	pool = calloc(1, sizeof(*pool));
	if (!pool)
		return -ENOMEM;
	pool->number = params->pool;
	pool->data_blocks = params->data_blocks;
	pool->sink_blocks = params->sink_blocks;
	pool->blocks = 1 + params->sink_blocks + params->data_blocks;
	pool->incarnation = params->incarnation;
	pool->epoch = 1;
	pool->next_hold = 1;
	pool->policy_ops = params->policy;
	ret = allocate(pool, params);
	if (ret) {
		kvd_pool_destroy(pool);
		return ret;
	}
	format_state(pool, params->state);
	kvd_directory_format(pool, params->directory);
	format_blocks(pool);
	*out = pool;
	return 0;
}

void kvd_pool_destroy(struct kvd_pool *pool)
{
	if (!pool)
		return;
	kvd_assert(!pool->engines && !pool->check);
	if (pool->policy)
		pool->policy_ops->destroy(pool->policy);
	kvd_directory_destroy(pool);
	kvd_index_destroy(pool->index);
	free(pool->block);
	free(pool);
}

/* The daemon's one thread is the only writer; readers want whole values, nothing more. */
void kvd_pool_count(struct kvd_pool *pool, enum kvw_counter counter, uint64_t n)
{
	uint64_t value = atomic_load_explicit(&pool->counters[counter], memory_order_relaxed);

	atomic_store_explicit(&pool->counters[counter], value + n, memory_order_relaxed);
}

uint64_t kvd_pool_counter(const struct kvd_pool *pool, enum kvw_counter counter)
{
	return atomic_load_explicit(&pool->counters[counter], memory_order_relaxed);
}

int32_t kvd_pool_find(const struct kvd_pool *pool, uint32_t namespace_id, const uint8_t *hash,
		      uint32_t hash_bytes)
{
	struct kvd_index_name name = {
		.namespace_id = namespace_id,
		.hash_bytes = hash_bytes,
		.hash = hash,
	};

	if (hash_bytes == 0 || hash_bytes > KVW_MAX_HASH_BYTES)
		return -1;
	name.key = kvd_index_key(pool->index, namespace_id, pool->epoch, hash, hash_bytes);
	return kvd_index_find(pool->index, &name);
}
