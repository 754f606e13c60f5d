/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of an engine: frozen, dead, proved gone. The state changes at once; the blocks and holds
 * follow in steps, and every stop between two of them leaves whole books.
 */
#include "books.h"
#include "wait.h"

void kvd_engine_freeze(struct kvd_engine *engine)
{
	if (engine->state < KVD_ENGINE_FROZEN)
		engine->state = KVD_ENGINE_FROZEN;
}

void kvd_engine_die(struct kvd_engine *engine)
{
	uint32_t i;

	if (engine->state >= KVD_ENGINE_DEAD)
		return;
	engine->state = KVD_ENGINE_DEAD;
	/* The teardown goes by the records; `queued` of the blocks is void from here on. */
	for (i = 0; i <= KVW_TIMELINES; i++)
		kvd_wait_clear(&engine->waits[i]);
}

void kvd_engine_prove_gone(struct kvd_engine *engine)
{
	kvd_engine_die(engine);
	engine->state = KVD_ENGINE_GONE;
}

/* -------- pending blocks that nobody will complete */

/*
 * Where to go on below `root`: where the last step ended, if that block is still what it was.
 * Otherwise at the root, whose descendants are fewer by then.
 */
static int32_t resume_below(struct kvd_engine *engine, int32_t root)
{
	const struct kvd_block *block;

	if (engine->doomed < 0 || engine->doomed_root != root)
		return root;
	block = kvd_block(engine->pool, engine->doomed);
	return block->indexed && block->record.generation == engine->doomed_generation ? engine->doomed
										       : root;
}

static void remember_below(struct kvd_engine *engine, int32_t root, int32_t id)
{
	engine->doomed = id;
	engine->doomed_root = root;
	if (id >= 0)
		engine->doomed_generation = kvd_block(engine->pool, id)->record.generation;
}

/*
 * Orphans `root` and all below it, leaves first: down to a leaf, away with it, on from its parent. A
 * step down costs as much as a block, so that a long chain of others' blocks takes many turns and not
 * one long one.
 */
static void orphan_below(struct kvd_engine *engine, int32_t root, uint32_t *budget)
{
	struct kvd_pool *pool = engine->pool;
	int32_t id = resume_below(engine, root);

	while (*budget > 0) {
		const struct kvd_block *block = kvd_block(pool, id);
		int32_t next = block->children ? block->first_child : block->record.parent;

		--*budget;
		if (!block->children)
			kvd_tree_orphan(pool, id);
		if (!block->indexed && id == root) {
			remember_below(engine, root, -1);
			return;
		}
		id = next;
	}
	remember_below(engine, root, id);
}

/* The youngest first: a block's own descendants of this engine were published after it. */
static void resolve_pending(struct kvd_engine *engine, uint32_t *budget)
{
	struct kvd_pool *pool = engine->pool;

	while (*budget > 0 && engine->owned[KVW_BLOCK_PENDING].length > 0) {
		int32_t id = engine->owned[KVW_BLOCK_PENDING].tail;
		const struct kvw_block_record *record = &kvd_block(pool, id)->record;

		if (kvd_engine_reached(engine, record->timeline, record->step)) {
			kvd_block_complete(pool, id);
			kvd_idle_consider(pool, id);
			--*budget;
		} else {
			orphan_below(engine, id, budget);
		}
	}
}

/* -------- the rest */

static void move_all(struct kvd_engine *engine, enum kvw_block_state from,
		     void (*move)(struct kvd_pool *pool, int32_t id), uint32_t *budget)
{
	struct kvd_list *list = &engine->owned[from];

	for (; *budget > 0 && list->length > 0; --*budget)
		move(engine->pool, list->head);
}

static void drop_holds(struct kvd_engine *engine, uint32_t *budget)
{
	while (*budget > 0 && engine->hold_count > 0) {
		struct kvd_hold *hold = engine->holds[engine->teardown_slot];

		if (hold && !kvd_hold_drop(hold, budget))
			return;
		if (hold)
			kvd_hold_destroy(hold);
		engine->teardown_slot = (engine->teardown_slot + 1) % engine->max_holds;
		*budget -= *budget > 0;
	}
}

static bool owns_none(const struct kvd_engine *engine, uint32_t states)
{
	uint32_t state;

	for (state = 0; state < KVW_BLOCK_STATES; state++)
		if (states & 1u << state && engine->owned[state].length)
			return false;
	return true;
}

#define WRITABLE (1u << KVW_BLOCK_LEASED | 1u << KVW_BLOCK_DRAINING)
#define UNPROVED (1u << KVW_BLOCK_PENDING | WRITABLE | 1u << KVW_BLOCK_FROZEN)

static int teardown_frozen(struct kvd_engine *engine, uint32_t budget)
{
	move_all(engine, KVW_BLOCK_LEASED, kvd_block_freeze, &budget);
	move_all(engine, KVW_BLOCK_DRAINING, kvd_block_freeze, &budget);
	return owns_none(engine, WRITABLE);
}

static void teardown_dead(struct kvd_engine *engine, uint32_t *budget)
{
	bool gone = engine->state == KVD_ENGINE_GONE;
	void (*move)(struct kvd_pool * pool, int32_t id) = gone ? kvd_block_free : kvd_block_quarantine;

	resolve_pending(engine, budget);
	move_all(engine, KVW_BLOCK_LEASED, move, budget);
	move_all(engine, KVW_BLOCK_DRAINING, move, budget);
	move_all(engine, KVW_BLOCK_FROZEN, move, budget);
	drop_holds(engine, budget);
}

static void teardown_gone(struct kvd_engine *engine, uint32_t *budget)
{
	move_all(engine, KVW_BLOCK_QUARANTINED, kvd_block_free, budget);
	move_all(engine, KVW_BLOCK_ORPHAN, kvd_block_disown, budget);
}

int kvd_engine_teardown_step(struct kvd_engine *engine, uint32_t budget)
{
	kvd_idle_settle(engine->pool, budget);
	switch (engine->state) {
	case KVD_ENGINE_LIVE:
		return 1;
	case KVD_ENGINE_FROZEN:
		return teardown_frozen(engine, budget);
	case KVD_ENGINE_DEAD:
		teardown_dead(engine, &budget);
		return owns_none(engine, UNPROVED) && engine->hold_count == 0;
	case KVD_ENGINE_GONE:
	default:
		teardown_dead(engine, &budget);
		teardown_gone(engine, &budget);
		return kvd_engine_empty(engine);
	}
}
