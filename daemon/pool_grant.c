/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking blocks and giving back what nobody was told of. Eviction happens here alone: one victim at a
 * time, and only when no block is free.
 */
#include <kvpool/error.h>

#include "books.h"

/* Makes the list of free blocks non-empty. */
static int ensure_free(struct kvd_pool *pool)
{
	int32_t victim;

	if (pool->free.length > 0)
		return 0;
	victim = kvd_idle_victim(pool);
	if (victim < 0)
		return -KVP_ENOBLOCKS;
	kvd_tree_evict(pool, victim);
	kvd_pool_count(pool, KVW_COUNTER_evicted_blocks, 1);
	return 0;
}

int kvd_pool_grant(struct kvd_pool *pool, struct kvd_engine *engine, int32_t *out_id)
{
	int32_t id;
	int ret;

	if (engine->tenant->used_blocks >= engine->tenant->quota_blocks)
		return -KVP_EQUOTA;
	ret = ensure_free(pool);
	if (ret)
		return ret;
	id = pool->free.head;
	kvd_block_lease(pool, id, engine);
	*out_id = id;
	return 0;
}

int kvd_pool_grant_sink(struct kvd_pool *pool, struct kvd_engine *engine, int32_t *out_id)
{
	int32_t id = pool->sinks.head;

	if (id < 0)
		return -KVP_ELIMIT;
	kvd_block_lease(pool, id, engine);
	*out_id = id;
	return 0;
}

void kvd_pool_ungrant(struct kvd_pool *pool, int32_t id)
{
	kvd_assert(kvd_block(pool, id)->record.state == KVW_BLOCK_LEASED);
	kvd_block_free(pool, id);
}

int kvd_pool_flush_one(struct kvd_pool *pool)
{
	int32_t victim = kvd_idle_victim(pool);

	if (victim < 0)
		return 0;
	kvd_tree_evict(pool, victim);
	kvd_pool_count(pool, KVW_COUNTER_flushed_blocks, 1);
	return 1;
}
