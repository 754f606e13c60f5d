/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the deep check share.
 *
 *   check.c          from start to end, in phases; totals
 *   check_hooks.c    keeps what was summed up right while blocks and holds change
 *   check_record.c   one block: its record against the daemon's copy, and the rules of its state
 *   check_links.c    one block: its list, parent, children, index slot, directory word and entry
 *   check_lists.c    whole lists, queues, the policy; only when nothing runs between
 *
 * A phase looks at one thing at a time, and what it looks at is whole at every moment; only sums need
 * the hooks. Nothing here trusts an index that it reads: the books may be damaged.
 */
#ifndef KVPOOL_DAEMON_CHECK_INTERNAL_H
#define KVPOOL_DAEMON_CHECK_INTERNAL_H

#include "books.h"
#include "check.h"

enum kvd_check_phase {
	KVD_CHECK_HOLDS,
	KVD_CHECK_BLOCKS,
	KVD_CHECK_SLOTS,
	KVD_CHECK_BUCKETS,
	KVD_CHECK_TOTALS,
	KVD_CHECK_DONE
};

struct kvd_check {
	struct kvd_pool *pool;
	enum kvd_check_phase phase;
	uint32_t round;
	bool full;             /* runs to the end without a stop */
	uint32_t next;         /* block, slot or bucket of the phase */
	uint32_t passed;       /* ids below are in the sums */
	struct kvd_hold *hold; /* being counted: its references below `position` are */
	uint32_t position;
	uint32_t *counted; /* [blocks] references found in holds */
	/* Over the passed blocks. */
	uint32_t states[KVW_BLOCK_STATES];
	uint32_t lists[KVD_LIST_KINDS];
	uint32_t indexed;
	uint32_t left_out; /* findable, and in no bucket */
	struct kvd_check_result result;
};

/* One fault; `format` continues "pool P ". */
void kvd_check_fault(struct kvd_check *check, const char *format, ...) __attribute__((format(printf, 2, 3)));
/*
 * Faults when the two differ: "pool P block ID: WHAT is FOUND, should be EXPECTED". True when they are
 * the same.
 */
bool kvd_check_same(struct kvd_check *check, int32_t id, const char *what, uint64_t found, uint64_t expected);
/* The same for something that is not one block's. */
bool kvd_check_total(struct kvd_check *check, const char *what, uint64_t found, uint64_t expected);

static inline bool kvd_check_is_id(const struct kvd_check *check, int32_t id)
{
	return id >= 0 && (uint32_t)id < check->pool->blocks;
}

/* Adds (sign 1) or takes away what the block contributes to the sums. */
void kvd_check_sum(struct kvd_check *check, int32_t id, int sign);
bool kvd_check_hold_is_counted(const struct kvd_check *check, const struct kvd_hold *hold);
void kvd_check_hold_done(struct kvd_check *check, struct kvd_hold *hold);

void kvd_check_record(struct kvd_check *check, int32_t id);
void kvd_check_links(struct kvd_check *check, int32_t id);
void kvd_check_slot(struct kvd_check *check, uint32_t slot);
void kvd_check_bucket(struct kvd_check *check, uint32_t bucket);
void kvd_check_lists(struct kvd_check *check);

#endif
