/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The books of one engine in one pool: what it owns, what it refers to (holds), what waits for its
 * steps, and what happens to all that when it ends. An engine outlives its session until the device
 * has proved that no mapping of it is left.
 *
 * Operations over many blocks are jobs: they do at most `budget` blocks and say whether they are done,
 * so that the loop looks at the kernel in between. Between two steps of a job other engines'
 * operations may run; a job of an engine runs to its end before the engine's next one begins.
 */
#ifndef KVPOOL_DAEMON_ENGINE_H
#define KVPOOL_DAEMON_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "pool.h"

enum kvd_engine_state {
	KVD_ENGINE_LIVE,
	KVD_ENGINE_FROZEN, /* its session ended, its process may live: blocks and references frozen */
	KVD_ENGINE_DEAD,   /* its process is gone: references dropped, blocks quarantined until the proof */
	KVD_ENGINE_GONE    /* proved: everything is being freed; kvd_engine_empty(): it may be destroyed */
};

/*
 * Holds of an engine for each sequence it may have open: those being released keep their place until
 * their step.
 */
#define KVD_HOLDS_PER_SEQUENCE 4u

/*
 * References under an id that is never reused. The order is the row's: blocks[i] is the canonical
 * block of row position i.
 */
struct kvd_hold {
	uint64_t id;
	uint32_t length;
	uint32_t capacity;
	int32_t *blocks;
	uint32_t slot;        /* in the engine's table */
	uint32_t check_round; /* of the deep check that has counted it */
	bool releasing;       /* by a release, or cut off: waits for its step, or is being dropped */
	struct kvd_engine *engine;
	struct kvd_hold *previous; /* of the pool */
	struct kvd_hold *next;
};

/* What waits for a step of a timeline, in order. */
struct kvd_wait {
	uint64_t step;
	uint32_t kind; /* enum kvd_wait_kind */
	uint32_t id;   /* block id, or slot of a hold */
};
enum kvd_wait_kind { KVD_WAIT_BLOCK, KVD_WAIT_HOLD };
struct kvd_wait_queue {
	struct kvd_wait *entries; /* a ring of `capacity`, a power of two */
	uint32_t capacity;
	uint32_t head;
	uint32_t tail;
};

/* Where what waits for no step, only for its turn, is queued. */
#define KVD_WAIT_READY KVW_TIMELINES

/* What the running deep check has counted of an engine. */
struct kvd_engine_sums {
	uint32_t owned[KVW_BLOCK_STATES];
	uint32_t holds;
	uint64_t references;
};

struct kvd_engine {
	struct kvd_pool *pool;
	struct kvd_tenant *tenant;
	uint64_t session; /* id in records: owner, writer */
	uint64_t engine;
	uint32_t namespace_id;
	uint32_t hash_bytes;
	uint32_t max_holds;
	uint32_t max_hold_blocks; /* row_blocks */
	enum kvd_engine_state state;
	int32_t sink;
	struct kvd_list owned[KVW_BLOCK_STATES];
	struct kvd_hold **holds; /* [max_holds] */
	uint32_t hold_count;
	uint32_t *free_slots;            /* [max_holds], the first max_holds - hold_count of them */
	uint64_t references;             /* of all holds */
	uint64_t reached[KVW_TIMELINES]; /* latched: only grows */
	struct kvd_wait_queue waits[KVW_TIMELINES + 1]; /* the last: KVD_WAIT_READY */
	uint32_t teardown_slot;                         /* next hold that the teardown looks at */
	int32_t doomed; /* where the teardown is below the block that it orphans; -1 */
	uint64_t doomed_generation;
	int32_t doomed_root;
	struct kvd_engine_sums check;
	struct kvd_engine *next; /* of the pool */
};

struct kvd_engine_params {
	uint64_t session;
	uint64_t engine;
	uint32_t namespace_id;
	uint32_t hash_bytes;
	uint32_t max_holds; /* sequences open or being released; <= 65536 */
	uint32_t max_hold_blocks;
	struct kvd_tenant *tenant;
};
/* Also takes the sink block. -ENOMEM, -KVP_ELIMIT (no sink left). */
int kvd_engine_create(struct kvd_pool *pool, const struct kvd_engine_params *params, struct kvd_engine **out);
/* The engine must be empty. NULL is a no-op. */
void kvd_engine_destroy(struct kvd_engine *engine);
/* No block and no hold is left. */
bool kvd_engine_empty(const struct kvd_engine *engine);
/* Blocks that wait for its end (FROZEN, QUARANTINED). */
uint32_t kvd_engine_waiting(const struct kvd_engine *engine);

/* -------- what a session asks for */

struct kvd_open {
	/* In: hashes[count][hash_bytes], read once from the client into the daemon's own memory. */
	const uint8_t *hashes;
	uint32_t count;
	uint32_t max_match;
	uint32_t want; /* blocks of the row in all, <= max_hold_blocks */
	uint32_t max_new;
	bool coming;                /* also match other living engines' PENDING blocks */
	struct kvw_answer *answers; /* [want and max_match at least] */
	/* Progress; zero at the start. */
	uint32_t phase;
	uint32_t matched;
	uint32_t granted;
	struct kvd_hold *hold;
};
/*
 * Matches the longest prefix, pins it under a new hold, then grants min(want - matched, max_new)
 * blocks (0 when want <= matched). 1: done; 0: call again; else an error and nothing is held:
 * -KVP_ENOBLOCKS, -KVP_EQUOTA, -KVP_ELIMIT (holds; or want or match beyond max_hold_blocks), -ENOMEM.
 *
 * The match ends at the first hash that is not findable, or findable behind another block than the one
 * before it here, or PENDING: of another engine without `coming`, or of a writer that is not LIVE, since
 * it may never be complete.
 *
 * Too few evictable blocks are an error only when no more are about to become so. A refused open leaves
 * the prefix that it matched as young as a release does: whoever asked for it waits for blocks and asks
 * again, and would lose first what it needs first; and the place where a block was in the order may be
 * gone by then. Counts look-ups (min(count,
 * max_match)) and hits once, when done.
 */
int kvd_open_step(struct kvd_engine *engine, struct kvd_open *job, uint32_t budget);

struct kvd_grant {
	uint32_t count;
	struct kvw_answer *answers; /* [count] */
	uint32_t granted;           /* progress */
	int failed;                 /* progress: giving back, then this error */
};
/* count blocks or none. 1, 0, or an error. */
int kvd_grant_step(struct kvd_engine *engine, struct kvd_grant *job, uint32_t budget);

struct kvd_publish {
	uint64_t hold;
	uint32_t first;
	uint32_t count;
	uint32_t timeline;
	uint64_t step; /* 0: reached */
	uint32_t plane_set;
	const struct kvw_block_ref *blocks; /* [count] as presented */
	const uint8_t *hashes;              /* [count][hash_bytes] */
	struct kvw_answer *answers;         /* [count]: the canonical blocks */
	uint32_t done;                      /* progress: blocks published */
	uint32_t duplicates;
};
/*
 * Publishes blocks[done ..) one after the other; each adds a reference to its canonical block to the
 * hold. 1: done; 0: call again. What concerns one block stops there, and those before it stand:
 *   -KVP_ESTALE  not leased by this engine with this generation
 *   -KVP_ELOST   the block before it is not findable any more
 *   -EINVAL      the hash is indexed behind another block, so the engine's hashes are not chained
 *   -KVP_EQUOTA  the hash is indexed already, and the tenant uses twice its quota
 *   -ENOMEM
 * What concerns the request is said before the first block of a step, and nothing of the request stands
 * if it is said of a new one: -EINVAL (first + done is not the hold's length, no such hold, timeline,
 * step or plane set), -KVP_ELIMIT (first + count beyond max_hold_blocks), -KVP_EREVOKED (the engine is
 * not LIVE; so for every operation of this section).
 *   hash not indexed                        -> indexed: CACHED when the step is reached, else PENDING
 *   indexed, complete                       -> duplicate: the hold refers to the indexed one; the
 *                                              presented block stays LEASED
 *   indexed, PENDING; own step reached      -> the presented block replaces it (CACHED); the old one
 *                                              becomes ORPHAN; its children move over (a duplicate when
 *                                              there are more than 1024: to move them is one change)
 *   indexed, PENDING; own step not reached  -> duplicate of the pending one
 *   the same, its writer is not LIVE        -> replaced as above (PENDING until the own step): the
 *                                              writer's may never come
 */
int kvd_publish_step(struct kvd_engine *engine, struct kvd_publish *job, uint32_t budget);

/*
 * For the next three: a step that is reached already does not wait for what is queued; another one
 * waits for every step queued before it on its timeline. References are always dropped by
 * kvd_engine_progress().
 */

/*
 * The hold's references from position `keep` on are dropped when (timeline, step) is reached; the hold
 * is shorter at once. Until then the part that was cut off takes one of max_holds. Nothing when keep
 * >= its length. -EINVAL: no such hold; -KVP_ELIMIT, -ENOMEM.
 */
int kvd_engine_truncate(struct kvd_engine *engine, uint64_t hold, uint32_t keep, uint32_t timeline,
			uint64_t step);
/* All of them, last to first, and the hold ends. */
int kvd_engine_release(struct kvd_engine *engine, uint64_t hold, uint32_t timeline, uint64_t step);
/*
 * A leased block is given up: DRAINING until (timeline, step), then FREE. -KVP_ESTALE: not leased by
 * this engine with this generation.
 */
int kvd_engine_return(struct kvd_engine *engine, int32_t id, uint64_t generation, uint32_t timeline,
		      uint64_t step);

/* -------- time */

/* The device's word: only ever raises `reached`; the poison bit is not a step. */
void kvd_engine_latch(struct kvd_engine *engine, uint32_t timeline, uint64_t step);
/*
 * Carries out what waited for reached steps, at most `budget` blocks. 1 when nothing reached is left,
 * else 0. FROZEN: pending blocks still become complete; what was given up or released stays held.
 * DEAD, GONE: nothing to do.
 */
int kvd_engine_progress(struct kvd_engine *engine, uint32_t budget);

/* -------- the end of an engine */

/*
 * Its session ended (EOF, violation), its process may live. A running job must have been aborted with
 * kvd_open_abort() / dropped.
 */
void kvd_engine_freeze(struct kvd_engine *engine);
/* Its process is gone (pidfd): reached steps complete, the rest of PENDING is orphaned, references drop. */
void kvd_engine_die(struct kvd_engine *engine);
/* The device proved that nothing of it is mapped any more (implies die). */
void kvd_engine_prove_gone(struct kvd_engine *engine);
/*
 * Carries the engine's blocks and holds to where its state wants them, at most `budget`: FROZEN:
 * LEASED and DRAINING -> FROZEN. DEAD: PENDING -> CACHED | ORPHAN | QUARANTINED, LEASED, DRAINING,
 * FROZEN -> QUARANTINED, holds dropped. GONE: QUARANTINED -> FREE, ORPHAN -> the pool's list. 1 when
 * nothing is left to do in this state, else 0.
 */
int kvd_engine_teardown_step(struct kvd_engine *engine, uint32_t budget);
/* Undoes an open or grant in progress whose session ended: everything it took goes back. */
void kvd_open_abort(struct kvd_engine *engine, struct kvd_open *job);
void kvd_grant_abort(struct kvd_engine *engine, struct kvd_grant *job);

#endif
