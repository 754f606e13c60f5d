/* SPDX-License-Identifier: Apache-2.0 */
/*
 * References under a name. An id is serial << 16 | slot: found in O(1), never reused.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <kvpool/error.h>

#include "books.h"

#define SLOT_BITS 16u
static_assert(KVW_MAX_SEQS * KVD_HOLDS_PER_SEQUENCE <= 1u << SLOT_BITS, "a slot fits an id");

static struct kvd_hold *allocate(struct kvd_engine *engine, uint32_t capacity)
{
	struct kvd_hold *hold = calloc(1, sizeof(*hold));

	if (!hold)
		return NULL;
	hold->capacity = capacity ? capacity : 1;
	hold->blocks = malloc(hold->capacity * sizeof(*hold->blocks));
	if (!hold->blocks) {
		free(hold);
		return NULL;
	}
	hold->engine = engine;
	return hold;
}

static void link_after(struct kvd_hold *hold, struct kvd_hold *previous)
{
	struct kvd_pool *pool = hold->engine->pool;
	struct kvd_hold **link = previous ? &previous->next : &pool->holds;

	hold->previous = previous;
	hold->next = *link;
	if (*link)
		(*link)->previous = hold;
	*link = hold;
}

static void unlink_hold(struct kvd_hold *hold)
{
	if (hold->previous)
		hold->previous->next = hold->next;
	else
		hold->engine->pool->holds = hold->next;
	if (hold->next)
		hold->next->previous = hold->previous;
}

static int create(struct kvd_engine *engine, uint32_t capacity, struct kvd_hold *previous,
		  struct kvd_hold **out)
{
	struct kvd_hold *hold;

	if (engine->hold_count == engine->max_holds)
		return -KVP_ELIMIT;
	hold = allocate(engine, capacity);
	if (!hold)
		return -ENOMEM;
	engine->hold_count++;
	hold->slot = engine->free_slots[engine->max_holds - engine->hold_count];
	hold->id = engine->pool->next_hold++ << SLOT_BITS | hold->slot;
	engine->holds[hold->slot] = hold;
	link_after(hold, previous);
	*out = hold;
	return 0;
}

int kvd_hold_create(struct kvd_engine *engine, uint32_t capacity, struct kvd_hold **out)
{
	int ret = create(engine, capacity, NULL, out);

	if (!ret)
		kvd_check_hold_created(*out);
	return ret;
}

void kvd_hold_destroy(struct kvd_hold *hold)
{
	struct kvd_engine *engine = hold->engine;

	kvd_assert(hold->length == 0);
	kvd_check_hold_destroyed(hold);
	unlink_hold(hold);
	engine->holds[hold->slot] = NULL;
	engine->free_slots[engine->max_holds - engine->hold_count] = hold->slot;
	engine->hold_count--;
	free(hold->blocks);
	free(hold);
}

struct kvd_hold *kvd_hold_find(const struct kvd_engine *engine, uint64_t id)
{
	uint64_t slot = id & ((1u << SLOT_BITS) - 1);
	struct kvd_hold *hold = slot < engine->max_holds ? engine->holds[slot] : NULL;

	return hold && hold->id == id && !hold->releasing ? hold : NULL;
}

int kvd_hold_reserve(struct kvd_hold *hold)
{
	uint64_t capacity = 2 * (uint64_t)hold->capacity;
	int32_t *blocks;

	if (hold->length < hold->capacity)
		return 0;
	if (hold->length >= hold->engine->max_hold_blocks)
		return -KVP_ELIMIT;
	if (capacity > hold->engine->max_hold_blocks)
		capacity = hold->engine->max_hold_blocks;
	blocks = realloc(hold->blocks, capacity * sizeof(*blocks));
	if (!blocks)
		return -ENOMEM;
	hold->blocks = blocks;
	hold->capacity = (uint32_t)capacity;
	return 0;
}

void kvd_hold_push(struct kvd_hold *hold, int32_t id)
{
	struct kvd_engine *engine = hold->engine;

	kvd_assert(hold->length < hold->capacity);
	kvd_block_reference(engine->pool, id);
	hold->blocks[hold->length++] = id;
	engine->references++;
	engine->tenant->used_blocks++;
	kvd_check_hold_pushed(hold);
}

void kvd_hold_pop(struct kvd_hold *hold)
{
	struct kvd_engine *engine = hold->engine;
	int32_t id;

	kvd_assert(hold->length > 0);
	id = hold->blocks[--hold->length];
	engine->references--;
	engine->tenant->used_blocks--;
	kvd_check_hold_popped(hold, id);
	kvd_block_unreference(engine->pool, id);
}

bool kvd_hold_drop(struct kvd_hold *hold, uint32_t *budget)
{
	for (; hold->length > 0 && *budget > 0; --*budget)
		kvd_hold_pop(hold);
	return hold->length == 0;
}

int kvd_hold_split(struct kvd_hold *hold, uint32_t keep, struct kvd_hold **out)
{
	uint32_t moved = hold->length - keep;
	struct kvd_hold *tail;
	int ret = create(hold->engine, moved, hold, &tail);

	if (ret)
		return ret;
	memcpy(tail->blocks, hold->blocks + keep, moved * sizeof(*tail->blocks));
	tail->length = moved;
	hold->length = keep;
	kvd_check_hold_split(hold, tail);
	*out = tail;
	return 0;
}
