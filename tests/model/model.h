/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A second, naive set of books: a pool and its engines as plain arrays that are searched from end to end.
 * Nothing is kept that can be counted: references, evictable blocks, quotas and children are found anew at
 * every look. It shares no function with the daemon; numbers of states and counters come from the wire's
 * header.
 *
 * The model is told what was done ("block 7 was granted") and says whether that was right then; what the
 * rules leave open (which of several free blocks, which of several due ones first) it takes from the daemon.
 * The first thing that was not right is kept in `fault`.
 */
#ifndef KVPOOL_TEST_MODEL_H
#define KVPOOL_TEST_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "ipc/shm.h"

#define MDL_BLOCKS 64
#define MDL_ENGINES 8
#define MDL_HOLDS 128
#define MDL_ROW 12
#define MDL_HASHES 64
#define MDL_TENANTS 3

enum mdl_engine_state { MDL_LIVE, MDL_FROZEN, MDL_DEAD, MDL_GONE };

struct mdl_block {
	enum kvw_block_state state;
	uint64_t generation;
	int owner;    /* engine, -1: nobody */
	bool indexed; /* findable */
	bool sink;
	uint32_t namespace_id;
	int hash; /* number of the hash, -1: never published */
	int parent;
	uint64_t parent_generation;
	uint64_t session;
	uint32_t timeline;
	uint64_t step; /* that must be reached, after clamping */
	uint32_t plane_set;
	uint64_t stamp; /* when it became evictable; 0: it is not */
};

struct mdl_hold {
	bool used;
	int engine;
	uint64_t id;
	bool releasing;
	uint32_t timeline;
	uint64_t step;
	int length;
	int blocks[MDL_ROW];
};

struct mdl_engine {
	bool used;
	enum mdl_engine_state state;
	uint32_t namespace_id;
	int tenant;
	uint64_t session;
	int max_holds;
	int max_hold_blocks;
	int sink;
	uint64_t reached[KVW_TIMELINES];
};

struct mdl {
	int blocks; /* ids, null and sinks included */
	int sinks;
	struct mdl_block block[MDL_BLOCKS];
	struct mdl_hold hold[MDL_HOLDS];
	struct mdl_engine engine[MDL_ENGINES];
	uint64_t quota[MDL_TENANTS];
	uint64_t counters[KVW_COUNTERS];
	uint64_t clock;
	bool tie; /* what becomes evictable now comes in an order that is not known: one stamp for all */
	char fault[256];
};

void mdl_init(struct mdl *m, int sinks, int data_blocks);
/* Keeps the first fault. */
void mdl_fault(struct mdl *m, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* -------- looks (model.c) */

bool mdl_is_data(const struct mdl *m, int id);
int mdl_references(const struct mdl *m, int id);
/* The block stands in a chain that goes in a circle. */
bool mdl_circular(const struct mdl *m, int id);
bool mdl_child_of(const struct mdl *m, int child, int id);
bool mdl_has_children(const struct mdl *m, int id);
bool mdl_evictable(const struct mdl *m, int id);
int mdl_count(const struct mdl *m, enum kvw_block_state state);
int mdl_count_evictable(const struct mdl *m);
/* Blocks that a grant could take. */
int mdl_available(const struct mdl *m);
bool mdl_is_victim(const struct mdl *m, int id);
/* What the tenant pays for: owned data blocks, and references. */
uint64_t mdl_used(const struct mdl *m, int tenant);
int mdl_find(const struct mdl *m, uint32_t namespace_id, int hash);
bool mdl_reached(const struct mdl *m, int engine, uint32_t timeline, uint64_t step);
int mdl_owned(const struct mdl *m, int engine, enum kvw_block_state state);
/* Data blocks that wait for the proof. */
int mdl_waiting(const struct mdl *m, int engine);
int mdl_holds_of(const struct mdl *m, int engine);
bool mdl_empty(const struct mdl *m, int engine);
struct mdl_hold *mdl_hold_by_id(struct mdl *m, uint64_t id);
/* Gives new stamps to what became evictable, and takes them from what no longer is. */
void mdl_settle(struct mdl *m);

/* -------- one block at a time (model_block.c) */

void mdl_grant(struct mdl *m, int engine, int id, uint64_t generation);
void mdl_ungrant(struct mdl *m, int id);
void mdl_flush(struct mdl *m, int id);
void mdl_pin(struct mdl *m, struct mdl_hold *hold, int id);
/* Drops the hold's last reference. */
void mdl_drop(struct mdl *m, struct mdl_hold *hold);
/* The step of an owned block is reached. */
void mdl_complete(struct mdl *m, int id);
/* No longer findable: its writer died, its parent is gone, or a complete copy replaced it. */
void mdl_orphan(struct mdl *m, int id);
void mdl_quarantine(struct mdl *m, int id);
void mdl_free(struct mdl *m, int id);

/* -------- what a session asks for (model_verb.c) */

/* Whether an open of this engine may match the block. */
bool mdl_matchable(const struct mdl *m, int engine, int id, bool coming);

struct mdl_publish {
	int engine;
	struct mdl_hold *hold;
	int id;
	uint64_t generation;
	int hash;
	uint32_t timeline;
	uint64_t step;
	uint32_t plane_set;
};
/* The errors that may refuse it, as bits of enum mdl_refusal; 0: it must succeed. */
enum mdl_refusal { MDL_STALE = 1, MDL_LOST = 2, MDL_QUOTA = 4, MDL_UNCHAINED = 8 };
unsigned mdl_publish_refusals(const struct mdl *m, const struct mdl_publish *p);
/* The canonical block; *out_duplicate tells whether it is another one's. */
int mdl_publish(struct mdl *m, const struct mdl_publish *p, bool *out_duplicate);

struct mdl_hold *mdl_open(struct mdl *m, int engine, uint64_t id);
void mdl_close(struct mdl_hold *hold);
unsigned mdl_return_refusals(const struct mdl *m, int engine, int id, uint64_t generation);
void mdl_return(struct mdl *m, int engine, int id, uint32_t timeline, uint64_t step);
void mdl_release(struct mdl *m, struct mdl_hold *hold, uint32_t timeline, uint64_t step);
/* The cut-off part becomes a hold of its own, `cut`, that waits for the step. */
void mdl_truncate(struct mdl *m, struct mdl_hold *hold, int keep, uint64_t cut, uint32_t timeline,
		  uint64_t step);
void mdl_latch(struct mdl *m, int engine, uint32_t timeline, uint64_t step);

int mdl_attach(struct mdl *m, const struct mdl_engine *engine, int sink, uint64_t generation);

#endif
