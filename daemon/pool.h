/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool's books: block records, free list, prefix index, eviction, and the state machine of a block.
 *
 * The one rule: a block may become FREE only when every process that held it has passed the last step
 * that could touch it, or is proved gone. Everything here serves it. No function waits, calls the
 * kernel or looks at memory that a client can write; each works on one block in O(1) (evictions
 * included), so that the loop above can stop after any of them.
 *
 * FREE --grant--> LEASED --publish--> PENDING --step reached--> CACHED(refs) --evict (refs 0)--> FREE
 *   LEASED --return--> DRAINING --step--> FREE
 *   engine closing: LEASED, DRAINING -> FROZEN -> QUARANTINED --proof--> FREE
 *   PENDING --writer dead--> ORPHAN (or QUARANTINED when nobody refers to it)
 *   ORPHAN --last ref--> DRAINING | FROZEN | QUARANTINED | FREE
 *
 * Evictable is a CACHED block without references whose indexed children are all evictable: so a chain
 * goes from its tail, and no block goes while a child of it is findable. It becomes so mostly by its
 * last reference, but also when its last busy child becomes evictable (a child may be PENDING without
 * references, or referenced by the hold of a writer whose copy of the parent was replaced).
 *
 * The record in the state segment is the truth for a later daemon; `struct kvd_block` holds the
 * daemon's own copy, which operations read, and what is derived from the records: links, counts,
 * references. kvd_check (check.h) compares the two.
 */
#ifndef KVPOOL_DAEMON_POOL_H
#define KVPOOL_DAEMON_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ipc/shm.h"

#include "policy.h"

struct kvd_check;
struct kvd_engine;
struct kvd_hold;
struct kvd_index;

/* Which list a block's links are on: it is on at most one. */
enum kvd_list_kind {
	KVD_LIST_NONE,  /* CACHED, not evictable now; the null block */
	KVD_LIST_FREE,  /* FREE */
	KVD_LIST_SINKS, /* FREE sink blocks */
	/* engine->owned[state]: every other state, as long as the engine's end is not proved */
	KVD_LIST_OWNED,
	/*
	 * ORPHAN without an owner: it was CACHED, or its writer is proved gone. One that was PENDING stays
	 * its writer's (and on that tenant's bill) until then or its last reference, its step reached or not.
	 */
	KVD_LIST_ORPHANS,
	KVD_LIST_RIPE,   /* CACHED, evictable, about to be given to the policy */
	KVD_LIST_POLICY, /* CACHED, evictable, in the policy (which has its own links) */
	KVD_LIST_KINDS
};

/* A doubly linked list of blocks through their links; -1 ends it. */
struct kvd_list {
	int32_t head;
	int32_t tail;
	uint32_t length;
};

struct kvd_block {
	struct kvw_block_record record; /* the daemon's own copy; commit is not kept here */
	struct kvd_engine *owner;       /* of KVD_LIST_OWNED blocks; NULL else */
	uint64_t key;                   /* private index key while indexed */
	uint32_t references;            /* by holds */
	uint32_t children;              /* indexed blocks whose parent this is */
	uint32_t busy_children;         /* of these, the ones that are not in the policy */
	int32_t first_child;
	int32_t previous_sibling;
	int32_t next_sibling;
	int32_t previous; /* on the list `list` */
	int32_t next;
	uint8_t list;    /* enum kvd_list_kind */
	uint8_t indexed; /* findable: PENDING and CACHED, unless it was replaced */
	uint8_t queued;  /* an entry of its owner's step queue names it (void once the owner is dead) */
	uint8_t listed;  /* in its bucket of the directory; a full bucket leaves it out for good */
};

/* Who pays: all sessions of one uid, dead ones too until their blocks are free. */
struct kvd_tenant {
	uint32_t uid;
	uint32_t zero;
	uint64_t quota_blocks; /* UINT64_MAX: none */
	/*
	 * Blocks owned (every state but FREE and CACHED, sinks left out) + references held. A pending
	 * block of one's own counts twice.
	 */
	uint64_t used_blocks;
	struct kvd_tenant *next;
};

struct kvd_pool_params {
	uint32_t pool;        /* its number */
	uint32_t data_blocks; /* to hold tokens */
	uint32_t sink_blocks; /* engines attached at once */
	uint64_t incarnation;
	uint64_t seed; /* of the private index: random, so that no client can aim at one chain */
	const struct kvd_policy_ops *policy;
	/*
	 * Zeroed memory of the segments, kvd_pool_state_bytes() and kvw_directory_layout().bytes long;
	 * owned by the caller.
	 */
	void *state;
	void *directory;
};

/*
 * Ids: 0 is the null block; 1 .. sink_blocks the sinks; then data_blocks data blocks.
 * Only data blocks are counted in `counts`, the free list and the quota.
 */
struct kvd_pool {
	uint32_t number;
	uint32_t blocks; /* all ids */
	uint32_t data_blocks;
	uint32_t sink_blocks;
	uint64_t incarnation;
	uint64_t epoch;
	uint64_t clock;     /* raised by every release to the cache: record.last_use */
	uint64_t next_hold; /* serial of hold ids, never reused */
	uint32_t counts[KVW_BLOCK_STATES];
	uint32_t evictable; /* blocks on KVD_LIST_RIPE and KVD_LIST_POLICY */
	struct kvd_block *block;
	struct kvd_list free;
	struct kvd_list sinks;
	struct kvd_list orphans;
	struct kvd_list ripe;
	uint64_t settle_allowance; /* ripe blocks that the running step may still give to the policy */
	struct kvd_index *index;
	const struct kvd_policy_ops *policy_ops;
	struct kvd_policy *policy;
	struct kvw_block_record *records; /* in the state segment */
	struct kvw_directory_header *directory;
	_Atomic uint64_t *block_words;
	struct kvw_bucket *buckets;
	uint32_t bucket_count;
	uint32_t *left_out;         /* [bucket_count] findable blocks that found their bucket full */
	uint32_t left_out_blocks;   /* of all buckets */
	_Atomic uint64_t *counters; /* enum kvw_counter, in the directory */
	struct kvd_hold *holds;     /* of all engines */
	struct kvd_engine *engines; /* attached, closing, and those whose end is not proved */
	struct kvd_check *check;    /* the running deep check, else NULL */
	uint32_t check_rounds;      /* deep checks started */
};

size_t kvd_pool_state_bytes(uint32_t blocks);
/* Formats both segments and frees every block. -ENOMEM, -EINVAL. */
int kvd_pool_create(const struct kvd_pool_params *params, struct kvd_pool **out);
/* Engines must be gone. NULL is a no-op. */
void kvd_pool_destroy(struct kvd_pool *pool);

static inline bool kvd_pool_is_data(const struct kvd_pool *pool, int32_t id)
{
	return id > (int32_t)pool->sink_blocks && id < (int32_t)pool->blocks;
}
/* Blocks that a grant could take now: free and evictable. */
static inline uint64_t kvd_pool_available(const struct kvd_pool *pool)
{
	return (uint64_t)pool->free.length + pool->evictable;
}
void kvd_pool_count(struct kvd_pool *pool, enum kvw_counter counter, uint64_t n);
uint64_t kvd_pool_counter(const struct kvd_pool *pool, enum kvw_counter counter);

/* The indexed block of (namespace, the pool's epoch, group 0, hash), or -1. */
int32_t kvd_pool_find(const struct kvd_pool *pool, uint32_t namespace_id, const uint8_t *hash,
		      uint32_t hash_bytes);

/*
 * Takes a free block, else evicts the policy's victim (one, and only then), for `engine`: LEASED with
 * a higher generation. -KVP_ENOBLOCKS, -KVP_EQUOTA.
 */
int kvd_pool_grant(struct kvd_pool *pool, struct kvd_engine *engine, int32_t *out_id);
/* A sink block for a new engine, outside the quota. -KVP_ELIMIT when every one is taken. */
int kvd_pool_grant_sink(struct kvd_pool *pool, struct kvd_engine *engine, int32_t *out_id);
/* A granted block that its engine was never told of goes back at once. */
void kvd_pool_ungrant(struct kvd_pool *pool, int32_t id);
/*
 * Frees one unreferenced cached block, the policy's victim: 1, or 0 when there is none. Counted as
 * flushed.
 */
int kvd_pool_flush_one(struct kvd_pool *pool);

/* Why a block is not evictable now, one sentence into out; "" when it is, or is free. */
void kvd_pool_explain(const struct kvd_pool *pool, int32_t id, char *out, size_t capacity);

#endif
