/* SPDX-License-Identifier: Apache-2.0 */
/* The choices of a random operation. */
#include "ops.h"

uint32_t some_budget(struct world *w)
{
	static const uint32_t budgets[] = {1, 1, 2, 3, 8, 1000};

	return budgets[world_below(w, sizeof(budgets) / sizeof(budgets[0]))];
}

uint32_t some_timeline(struct world *w)
{
	static const uint32_t timelines[] = {0, 0, 1, KVW_TIMELINES - 1};

	return timelines[world_below(w, sizeof(timelines) / sizeof(timelines[0]))];
}

uint64_t some_step(struct world *w, int e, uint32_t timeline)
{
	uint64_t reached = w->model.engine[e].reached[timeline % KVW_TIMELINES];
	uint64_t step = reached + world_below(w, 6);

	if (world_chance(w, 1))
		return world_chance(w, 30) ? KVW_TIMELINE_POISON | reached : 1ull << 62;
	return step < 2 ? 0 : step - 2 + world_below(w, 2);
}

int some_engine(struct world *w, bool (*condition)(const struct world *, int))
{
	int found = -1;
	int e, n = 0;

	for (e = 0; e < MDL_ENGINES; e++) {
		if (!w->model.engine[e].used || w->untouched[e] || !condition(w, e))
			continue;
		if (world_below(w, (uint64_t)++n) == 0)
			found = e;
	}
	return found;
}

struct mdl_hold *some_hold(struct world *w, int e)
{
	struct mdl_hold *found = NULL;
	int h, n = 0;

	for (h = 0; h < MDL_HOLDS; h++) {
		struct mdl_hold *hold = &w->model.hold[h];

		if (!hold->used || hold->engine != e || (hold->releasing && !world_chance(w, 1)))
			continue;
		if (world_below(w, (uint64_t)++n) == 0)
			found = hold;
	}
	return found;
}

int some_leased(struct world *w, int e)
{
	int found = 1 + (int)world_below(w, (uint64_t)w->model.blocks - 1);
	int id, n = 0;

	if (world_chance(w, 1))
		return (int)world_below(w, 100) - 20;
	if (world_chance(w, 3))
		return found;
	for (id = 1; id < w->model.blocks; id++)
		if (mdl_is_data(&w->model, id) && w->model.block[id].owner == e &&
		    w->model.block[id].state == KVW_BLOCK_LEASED && world_below(w, (uint64_t)++n) == 0)
			found = id;
	return found;
}

uint64_t some_generation(struct world *w, int id)
{
	uint64_t generation = id >= 0 && id < w->model.blocks ? w->model.block[id].generation : 1;

	return world_chance(w, 3) ? generation - 1 : generation;
}

static int child_hash(struct world *w, int parent)
{
	int found = -1;
	int i, n = 0;

	for (i = 0; i < w->hashes; i++)
		if (w->hash_parent[i] == parent && world_below(w, (uint64_t)++n) == 0)
			found = i;
	return found;
}

int next_hash(struct world *w, int last)
{
	int child = w->unchained && world_chance(w, 15) ? -1 : child_hash(w, last);

	return child >= 0 ? child : (int)world_below(w, (uint64_t)w->hashes);
}

int last_hash(const struct world *w, const struct mdl_hold *hold)
{
	return hold && hold->length > 0 ? w->model.block[hold->blocks[hold->length - 1]].hash : -1;
}

bool can_grow(const struct world *w, const struct mdl_hold *hold)
{
	int last = last_hash(w, hold);
	int i;

	if (hold->releasing || hold->length == w->model.engine[hold->engine].max_hold_blocks)
		return false;
	for (i = 0; i < w->hashes; i++)
		if (w->hash_parent[i] == last)
			return true;
	return false;
}
