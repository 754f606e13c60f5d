/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine's books from its creation to its end; what each of its operations checks first.
 */
#include "engine.h"

#include <errno.h>
#include <stdlib.h>

#include <kvpool/error.h>

#include "books.h"
#include "wait.h"

static int check_params(const struct kvd_engine_params *params)
{
	if (!params->tenant || params->hash_bytes == 0 || params->hash_bytes > KVW_MAX_HASH_BYTES)
		return -EINVAL;
	if (params->max_holds == 0 || params->max_holds > 65536)
		return -EINVAL;
	if (params->max_hold_blocks == 0 || params->max_hold_blocks > KVW_MAX_ROW_BLOCKS)
		return -EINVAL;
	return 0;
}

static void release_memory(struct kvd_engine *engine)
{
	uint32_t i;

	for (i = 0; i <= KVW_TIMELINES; i++)
		kvd_wait_clear(&engine->waits[i]);
	free(engine->holds);
	free(engine->free_slots);
	free(engine);
}

static struct kvd_engine *allocate(struct kvd_pool *pool, const struct kvd_engine_params *params)
{
	struct kvd_engine *engine = calloc(1, sizeof(*engine));
	uint32_t i;

	if (!engine)
		return NULL;
	engine->pool = pool;
	engine->tenant = params->tenant;
	engine->session = params->session;
	engine->engine = params->engine;
	engine->namespace_id = params->namespace_id;
	engine->hash_bytes = params->hash_bytes;
	engine->max_holds = params->max_holds;
	engine->max_hold_blocks = params->max_hold_blocks;
	engine->doomed = -1;
	for (i = 0; i < KVW_BLOCK_STATES; i++)
		kvd_list_init(&engine->owned[i]);
	engine->holds = calloc(params->max_holds, sizeof(struct kvd_hold *));
	engine->free_slots = calloc(params->max_holds, sizeof(*engine->free_slots));
	if (!engine->holds || !engine->free_slots) {
		release_memory(engine);
		return NULL;
	}
	for (i = 0; i < params->max_holds; i++)
		engine->free_slots[i] = params->max_holds - 1 - i;
	return engine;
}

int kvd_engine_create(struct kvd_pool *pool, const struct kvd_engine_params *params, struct kvd_engine **out)
{
	struct kvd_engine *engine;
	int ret = check_params(params);

	if (ret)
		return ret;
	engine = allocate(pool, params);
	if (!engine)
		return -ENOMEM;
	ret = kvd_pool_grant_sink(pool, engine, &engine->sink);
	if (ret) {
		release_memory(engine);
		return ret;
	}
	engine->next = pool->engines;
	pool->engines = engine;
	*out = engine;
	return 0;
}

void kvd_engine_destroy(struct kvd_engine *engine)
{
	struct kvd_engine **link;

	if (!engine)
		return;
	kvd_assert(kvd_engine_empty(engine) && engine->references == 0);
	link = &engine->pool->engines;
	while (*link != engine)
		link = &(*link)->next;
	*link = engine->next;
	release_memory(engine);
}

bool kvd_engine_empty(const struct kvd_engine *engine)
{
	uint32_t state;

	for (state = 0; state < KVW_BLOCK_STATES; state++)
		if (engine->owned[state].length)
			return false;
	return engine->hold_count == 0;
}

uint32_t kvd_engine_waiting(const struct kvd_engine *engine)
{
	uint32_t blocks =
		engine->owned[KVW_BLOCK_FROZEN].length + engine->owned[KVW_BLOCK_QUARANTINED].length;
	const struct kvd_block *sink = &engine->pool->block[engine->sink];

	if (sink->owner != engine)
		return blocks;
	return blocks -
	       (sink->record.state == KVW_BLOCK_FROZEN || sink->record.state == KVW_BLOCK_QUARANTINED);
}

int kvd_engine_check_use(const struct kvd_engine *engine, uint32_t timeline, uint64_t step)
{
	if (engine->state != KVD_ENGINE_LIVE)
		return -KVP_EREVOKED;
	return timeline >= KVW_TIMELINES || (step & KVW_TIMELINE_POISON) ? -EINVAL : 0;
}

bool kvd_engine_owns(const struct kvd_engine *engine, int32_t id, uint64_t generation)
{
	const struct kvd_block *block;

	if (!kvd_pool_is_data(engine->pool, id))
		return false;
	block = &engine->pool->block[id];
	return block->record.state == KVW_BLOCK_LEASED && block->owner == engine &&
	       block->record.generation == generation;
}

void kvd_engine_latch(struct kvd_engine *engine, uint32_t timeline, uint64_t step)
{
	kvd_assert(timeline < KVW_TIMELINES);
	step &= ~KVW_TIMELINE_POISON;
	if (step > engine->reached[timeline])
		engine->reached[timeline] = step;
}
