/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tells the model what a slice of the daemon's work has done. The model lists what is due; what the daemon
 * shows as done is done in the model too, one block after the other, until nothing more is. Whatever is left
 * over is a difference for world_compare().
 */
#include "world.h"

struct kvd_hold *seen_hold(const struct world *w, uint64_t id)
{
	struct kvd_hold *hold;

	for (hold = w->pool->holds; hold; hold = hold->next)
		if (hold->id == id)
			return hold;
	return NULL;
}

static const struct kvd_block *seen(const struct world *w, int id)
{
	return &w->pool->block[id];
}

static bool seen_in(const struct world *w, int id, enum kvw_block_state state)
{
	return seen(w, id)->record.state == state &&
	       seen(w, id)->record.generation == w->model.block[id].generation;
}

/* ---------------------------------------- grants */

static bool was_granted(const struct world *w, int id)
{
	return seen(w, id)->record.generation != w->model.block[id].generation;
}

static int next_granted(const struct world *w)
{
	int id;

	for (id = 1; id < w->model.blocks; id++)
		if (was_granted(w, id) && w->model.block[id].state == KVW_BLOCK_FREE)
			return id;
	for (id = 1; id < w->model.blocks; id++)
		if (was_granted(w, id) && mdl_is_victim(&w->model, id))
			return id;
	for (id = 1; id < w->model.blocks; id++)
		if (was_granted(w, id))
			return id;
	return -1;
}

int follow_grants(struct world *w, int e, int *out)
{
	int count = 0;
	int id;

	while (!w->model.fault[0] && (id = next_granted(w)) >= 0) {
		mdl_grant(&w->model, e, id, seen(w, id)->record.generation);
		out[count++] = id;
	}
	return count;
}

/* ---------------------------------------- what is due */

/* What is counted as done, and what is still to do. */
struct due {
	uint32_t done;
	uint32_t left;
};

/* What a frozen engine gave up stays as it is: only what it wrote still becomes complete. */
static bool waits(const struct mdl *m, const struct mdl_block *b)
{
	return b->state == KVW_BLOCK_PENDING ||
	       (b->state == KVW_BLOCK_DRAINING && m->engine[b->owner].state != MDL_FROZEN);
}

static bool complete_is_due(const struct mdl *m, int e, int id)
{
	const struct mdl_block *b = &m->block[id];

	return b->owner == e && waits(m, b) && mdl_reached(m, e, b->timeline, b->step);
}

static bool seen_complete(const struct world *w, int id)
{
	if (w->model.block[id].state == KVW_BLOCK_PENDING)
		return !seen_in(w, id, KVW_BLOCK_PENDING);
	return seen_in(w, id, KVW_BLOCK_FREE);
}

/*
 * The last reference of an orphan whose step is reached frees it at once when the daemon has seen the step.
 * Else it goes by its turn in the queue, or, of a frozen engine, with its owner.
 */
void follow_drop(struct world *w, struct mdl_hold *hold)
{
	int id = hold->blocks[hold->length - 1];
	const struct mdl_block *b = &w->model.block[id];
	int owner = b->owner;

	mdl_drop(&w->model, hold);
	if (owner < 0 || !seen_in(w, id, KVW_BLOCK_FREE) ||
	    !mdl_reached(&w->model, owner, b->timeline, b->step))
		return;
	if (b->state == KVW_BLOCK_DRAINING)
		mdl_complete(&w->model, id);
	else if (b->state == KVW_BLOCK_FROZEN)
		mdl_free(&w->model, id);
}

static bool complete_one(struct world *w, int e, struct due *due)
{
	int id;

	for (id = 1; id < w->model.blocks; id++) {
		if (!complete_is_due(&w->model, e, id) || !seen_complete(w, id))
			continue;
		mdl_complete(&w->model, id);
		due->done++;
		return true;
	}
	return false;
}

static bool drop_is_due(const struct mdl *m, int e, const struct mdl_hold *hold)
{
	if (!hold->used || hold->engine != e)
		return false;
	if (m->engine[e].state >= MDL_DEAD)
		return true;
	return m->engine[e].state == MDL_LIVE && hold->releasing &&
	       mdl_reached(m, e, hold->timeline, hold->step);
}

static bool drop_one(struct world *w, int e, struct due *due)
{
	int h;

	for (h = 0; h < MDL_HOLDS; h++) {
		struct mdl_hold *hold = &w->model.hold[h];
		const struct kvd_hold *there = hold->used ? seen_hold(w, hold->id) : NULL;

		if (!drop_is_due(&w->model, e, hold) || (there && (int)there->length >= hold->length))
			continue;
		if (hold->length > 0) {
			follow_drop(w, hold);
			due->done++;
		} else {
			mdl_close(hold);
		}
		return true;
	}
	return false;
}

static bool is_writable(enum kvw_block_state state)
{
	return state == KVW_BLOCK_LEASED || state == KVW_BLOCK_DRAINING;
}

/* Writable blocks of an engine that has lost its session. */
static bool freeze_one(struct world *w, int e, struct due *due)
{
	struct mdl *m = &w->model;
	int id;

	for (id = 1; id < m->blocks; id++) {
		if (m->engine[e].state != MDL_FROZEN || m->block[id].owner != e ||
		    !is_writable(m->block[id].state) || !seen_in(w, id, KVW_BLOCK_FROZEN))
			continue;
		m->block[id].state = KVW_BLOCK_FROZEN;
		due->done++;
		return true;
	}
	return false;
}

static uint32_t progress_left(const struct mdl *m, int e)
{
	uint32_t left = 0;
	int id, h;

	for (id = 1; id < m->blocks; id++)
		left += complete_is_due(m, e, id);
	for (h = 0; h < MDL_HOLDS; h++)
		left += drop_is_due(m, e, &m->hold[h]);
	return left;
}

static void judge_slice(struct world *w, int e, uint32_t budget, int rc, struct due due)
{
	if (due.done > budget)
		mdl_fault(&w->model, "engine %d: %u blocks were done with a budget of %u", e, due.done,
			  budget);
	if (rc != 0 && rc != 1)
		mdl_fault(&w->model, "engine %d: a slice answered %d", e, rc);
	if (rc == 1 && due.left)
		mdl_fault(&w->model, "engine %d: %u things are left, and all was said to be done", e,
			  due.left);
	w->idle[e] = rc == 1 || due.done ? 0 : w->idle[e] + 1;
	if (w->idle[e] > 2 * MDL_BLOCKS)
		mdl_fault(&w->model, "engine %d: %u slices in a row have done nothing", e, w->idle[e]);
}

/* The order in which several due things are done is not the model's to know. */
static void begin_slice(struct world *w, uint32_t budget, uint32_t things)
{
	w->model.clock++;
	w->model.tie = budget > 1 && things > 1;
}

void follow_progress(struct world *w, int e, uint32_t budget, int rc)
{
	struct due due = {0, 0};

	begin_slice(w, budget, progress_left(&w->model, e));
	while (!w->model.fault[0] &&
	       (complete_one(w, e, &due) || drop_one(w, e, &due) || freeze_one(w, e, &due)))
		;
	w->model.tie = false;
	due.left = progress_left(&w->model, e);
	judge_slice(w, e, budget, rc, due);
}

/* ---------------------------------------- the end of an engine */

/* A pending block of e that can never be complete. */
static bool is_doomed(const struct mdl *m, int e, int id)
{
	const struct mdl_block *b = &m->block[id];

	return b->state == KVW_BLOCK_PENDING && b->owner == e && !mdl_reached(m, e, b->timeline, b->step);
}

static bool stands_on_doomed(const struct mdl *m, int e, int id)
{
	int steps;

	for (steps = 0; id >= 0 && m->block[id].indexed && steps <= m->blocks; steps++) {
		if (is_doomed(m, e, id))
			return true;
		id = m->block[id].parent;
	}
	return false;
}

static bool orphan_one(struct world *w, int e, struct due *due)
{
	struct mdl *m = &w->model;
	int id;

	for (id = 1; id < m->blocks; id++) {
		if (!m->block[id].indexed || mdl_has_children(m, id) || !stands_on_doomed(m, e, id))
			continue;
		if (seen(w, id)->indexed && seen(w, id)->record.generation == m->block[id].generation)
			continue;
		mdl_orphan(m, id);
		due->done++;
		return true;
	}
	return false;
}

/* Blocks that were never proved to be quiet. */
static bool quarantine_one(struct world *w, int e, struct due *due)
{
	struct mdl *m = &w->model;
	int id;

	for (id = 1; id < m->blocks; id++) {
		enum kvw_block_state state = m->block[id].state;

		if (m->block[id].owner != e || !(is_writable(state) || state == KVW_BLOCK_FROZEN) ||
		    seen_in(w, id, state))
			continue;
		if (m->engine[e].state == MDL_GONE)
			mdl_free(m, id);
		else
			mdl_quarantine(m, id);
		due->done++;
		return true;
	}
	return false;
}

static bool free_one(struct world *w, int e, struct due *due)
{
	struct mdl *m = &w->model;
	int id;

	for (id = 1; id < m->blocks; id++) {
		enum kvw_block_state state = m->block[id].state;

		if (m->block[id].owner != e)
			continue;
		if (state == KVW_BLOCK_QUARANTINED && seen_in(w, id, KVW_BLOCK_FREE))
			mdl_free(m, id);
		else if (state == KVW_BLOCK_ORPHAN && !seen(w, id)->owner)
			m->block[id].owner = -1;
		else
			continue;
		due->done++;
		return true;
	}
	return false;
}

static bool end_one(struct world *w, int e, struct due *due)
{
	enum mdl_engine_state state = w->model.engine[e].state;

	if (state == MDL_FROZEN)
		return freeze_one(w, e, due);
	if (complete_one(w, e, due) || orphan_one(w, e, due) || quarantine_one(w, e, due) ||
	    drop_one(w, e, due))
		return true;
	return state == MDL_GONE && free_one(w, e, due);
}

static uint32_t teardown_left(const struct mdl *m, int e)
{
	uint32_t left = 0;
	int id;

	for (id = 1; id < m->blocks; id++) {
		enum kvw_block_state state = m->block[id].state;

		if (m->block[id].owner != e)
			continue;
		left += is_writable(state) || m->engine[e].state == MDL_GONE;
		left += m->engine[e].state == MDL_DEAD &&
			(state == KVW_BLOCK_PENDING || state == KVW_BLOCK_FROZEN);
	}
	return left + (m->engine[e].state >= MDL_DEAD ? (uint32_t)mdl_holds_of(m, e) : 0);
}

void follow_teardown(struct world *w, int e, uint32_t budget, int rc)
{
	struct due due = {0, 0};

	begin_slice(w, budget, teardown_left(&w->model, e));
	while (!w->model.fault[0] && end_one(w, e, &due))
		;
	w->model.tie = false;
	due.left = teardown_left(&w->model, e);
	judge_slice(w, e, budget, rc, due);
}
