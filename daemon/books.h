/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the books share among themselves: lists, the moves of one block between states,
 * the family tree of the index, the evictable set, holds, and the hooks of the deep check. Everything
 * here is O(1) unless it says otherwise.
 *
 * Layers, each on those before it:
 *   pool_list.c    lists of blocks
 *   directory.c    what clients read
 *   pool_state.c   one block from one state to another: its record, word, list, owner, counts, quota
 *   pool_idle.c    which cached blocks may go; references
 *   pool_tree.c    findable blocks and their parents; how a block stops being findable
 *   pool_grant.c   taking and giving back
 *   hold.c         references under a name
 *   engine_*.c     what a session asks for, and how it ends
 */
#ifndef KVPOOL_DAEMON_BOOKS_H
#define KVPOOL_DAEMON_BOOKS_H

#include <stdbool.h>
#include <stdint.h>

#include "assert.h"
#include "engine.h"
#include "index.h"
#include "pool.h"

static inline struct kvd_block *kvd_block(struct kvd_pool *pool, int32_t id)
{
	return &pool->block[id];
}

/* -------- pool_list.c */

void kvd_list_init(struct kvd_list *list);
void kvd_list_push_front(struct kvd_pool *pool, struct kvd_list *list, int32_t id);
void kvd_list_push_back(struct kvd_pool *pool, struct kvd_list *list, int32_t id);
void kvd_list_remove(struct kvd_pool *pool, struct kvd_list *list, int32_t id);
/* The list that a block's `list`, owner and state say it is on; NULL for NONE and POLICY. */
struct kvd_list *kvd_list_of(struct kvd_pool *pool, const struct kvd_block *block);

/* -------- pool_state.c. Each writes the record, then the block word. */

/* Whether a block of that state counts against the quota of its owner. */
static inline bool kvd_state_is_owned(uint32_t state)
{
	return state != KVW_BLOCK_FREE && state != KVW_BLOCK_CACHED;
}
/* The record alone: for fields that clients do not see. */
void kvd_block_record(struct kvd_pool *pool, int32_t id);
/* FREE -> LEASED, with a higher generation. */
void kvd_block_lease(struct kvd_pool *pool, int32_t id, struct kvd_engine *engine);
/* Any unreferenced, unfindable block -> FREE. */
void kvd_block_free(struct kvd_pool *pool, int32_t id);
/* -> CACHED, nobody's, complete. */
void kvd_block_complete(struct kvd_pool *pool, int32_t id);
/* LEASED -> PENDING until the step, which the caller has queued. */
void kvd_block_wait(struct kvd_pool *pool, int32_t id, uint32_t timeline, uint64_t step);
/* LEASED, or ORPHAN with its step still queued -> DRAINING. */
void kvd_block_drain(struct kvd_pool *pool, int32_t id, uint32_t timeline, uint64_t step);
/* -> FROZEN, QUARANTINED: the owner stays. */
void kvd_block_freeze(struct kvd_pool *pool, int32_t id);
void kvd_block_quarantine(struct kvd_pool *pool, int32_t id);
/* An unfindable, referenced block -> ORPHAN: its owner's, or nobody's when it was complete. */
void kvd_block_orphan(struct kvd_pool *pool, int32_t id);
/* An ORPHAN whose owner is proved gone becomes nobody's. */
void kvd_block_disown(struct kvd_pool *pool, int32_t id);
/* The step of an ORPHAN was reached: nothing is awaited any more. */
void kvd_block_settle(struct kvd_pool *pool, int32_t id);
/*
 * An unfindable block that nobody refers to goes where its owner's state sends it: DRAINING, FROZEN,
 * QUARANTINED or FREE.
 */
void kvd_block_lose(struct kvd_pool *pool, int32_t id);

/* -------- pool_idle.c */

/* The block may have become evictable: its references, its state or its busy children changed. */
void kvd_idle_consider(struct kvd_pool *pool, int32_t id);
/* An evictable block, if it is one, is not any more. */
void kvd_idle_leave(struct kvd_pool *pool, int32_t id);
/*
 * A step of `budget` begins: until the next one that many ripe blocks may be given to the policy, and a
 * few more. Without it what became evictable stays ripe, which is no harm.
 */
void kvd_idle_begin(struct kvd_pool *pool, uint32_t budget);
/* The same, and gives it those that are ripe already. */
void kvd_idle_settle(struct kvd_pool *pool, uint32_t budget);
/*
 * Gives it the first ripe block, whatever the allowance is; that may make the parent ripe. False: there
 * is none.
 */
bool kvd_idle_ripen(struct kvd_pool *pool);
/* The next to be evicted; -1: none. */
int32_t kvd_idle_victim(struct kvd_pool *pool);
void kvd_block_reference(struct kvd_pool *pool, int32_t id);
void kvd_block_unreference(struct kvd_pool *pool, int32_t id);

/* -------- pool_tree.c */

/* Makes a block that carries hash, namespace and parent findable. */
void kvd_tree_add(struct kvd_pool *pool, int32_t id);
/* Makes a block without children unfindable and forgets its hash; the caller writes the record. */
void kvd_tree_remove(struct kvd_pool *pool, int32_t id);
/* Puts `fresh` into the place of `old`: name, parent, children. O(children). */
void kvd_tree_replace(struct kvd_pool *pool, int32_t old, int32_t fresh);
/* A findable block without children is taken away from those who refer to it: ORPHAN, else lost or FREE. */
void kvd_tree_orphan(struct kvd_pool *pool, int32_t id);
/* Frees the victim. */
void kvd_tree_evict(struct kvd_pool *pool, int32_t id);

/* -------- hold.c */

/* -KVP_ELIMIT: every slot is taken. -ENOMEM. */
int kvd_hold_create(struct kvd_engine *engine, uint32_t capacity, struct kvd_hold **out);
/* Must be empty. */
void kvd_hold_destroy(struct kvd_hold *hold);
/* Named by a client: NULL when there is none, or when it is being released. */
struct kvd_hold *kvd_hold_find(const struct kvd_engine *engine, uint64_t id);
/* Room for one reference more. -KVP_ELIMIT, -ENOMEM. */
int kvd_hold_reserve(struct kvd_hold *hold);
void kvd_hold_push(struct kvd_hold *hold, int32_t id);
void kvd_hold_pop(struct kvd_hold *hold);
/*
 * Drops at most *budget references, last to first, and takes them off the budget. True when none is
 * left.
 */
bool kvd_hold_drop(struct kvd_hold *hold, uint32_t *budget);
/*
 * Moves the references from `keep` on into a new hold. -KVP_ELIMIT, -ENOMEM. O(references moved), a
 * copy of ids.
 */
int kvd_hold_split(struct kvd_hold *hold, uint32_t keep, struct kvd_hold **out);

/* -------- engine.c */

/* 0; -KVP_EREVOKED when the session has ended, -EINVAL for a timeline or step that cannot be. */
int kvd_engine_check_use(const struct kvd_engine *engine, uint32_t timeline, uint64_t step);
bool kvd_engine_owns(const struct kvd_engine *engine, int32_t id, uint64_t generation);
static inline bool kvd_engine_reached(const struct kvd_engine *engine, uint32_t timeline, uint64_t step)
{
	return step <= engine->reached[timeline];
}

/*
 * PENDING, and its writer has lost its session, so that its step may never come: nobody is to wait for
 * it, and any copy is better.
 */
static inline bool kvd_block_is_doubtful(const struct kvd_block *block)
{
	return block->record.state == KVW_BLOCK_PENDING && block->owner->state != KVD_ENGINE_LIVE;
}

/* -------- engine_grant.c */

/*
 * Whether `count` blocks could be granted now, to find out before anything is evicted for nothing: 0,
 * -KVP_EQUOTA, -KVP_ENOBLOCKS; 1: not yet, but one block more has been let into the policy; ask again.
 */
int kvd_check_room(struct kvd_engine *engine, uint32_t count);
int kvd_grant_one(struct kvd_engine *engine, struct kvw_answer *answer);
/* A request that is refused for want of blocks or by a quota. */
void kvd_count_refusal(struct kvd_pool *pool, int error);

/* -------- check_hooks.c: around every change of a block's state, list, owner or membership, and of holds */

void kvd_check_before(struct kvd_pool *pool, int32_t id);
void kvd_check_after(struct kvd_pool *pool, int32_t id);
void kvd_check_hold_created(struct kvd_hold *hold);
void kvd_check_hold_destroyed(struct kvd_hold *hold);
void kvd_check_hold_pushed(struct kvd_hold *hold);
void kvd_check_hold_popped(struct kvd_hold *hold, int32_t id);
void kvd_check_hold_split(struct kvd_hold *from, struct kvd_hold *to);

static inline void kvd_books_before(struct kvd_pool *pool, int32_t id)
{
	if (pool->check)
		kvd_check_before(pool, id);
}

static inline void kvd_books_after(struct kvd_pool *pool, int32_t id)
{
	if (pool->check)
		kvd_check_after(pool, id);
}

#endif
