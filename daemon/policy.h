/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which unreferenced cached block goes first. A policy sees ids only: a block enters when its last
 * reference drops (or when it became complete without one) and leaves when it is referenced again,
 * evicted or orphaned.
 */
#ifndef KVPOOL_DAEMON_POLICY_H
#define KVPOOL_DAEMON_POLICY_H

#include <stdint.h>

struct kvd_policy;

struct kvd_policy_ops {
	const char *name;
	/* For ids 0 .. blocks - 1; allocates all it will ever need. */
	int (*create)(uint32_t blocks, struct kvd_policy **out);
	void (*destroy)(struct kvd_policy *policy);
	void (*insert)(struct kvd_policy *policy, int32_t id);
	void (*remove)(struct kvd_policy *policy, int32_t id);
	/* The next to go, still inside; -1 when empty. */
	int32_t (*victim)(const struct kvd_policy *policy);
	/* Walks itself: 0, or -EUCLEAN. `members` is what the caller thinks is inside. */
	int (*check)(const struct kvd_policy *policy, uint32_t members);
	/* Whether the block is inside. O(1). */
	int (*contains)(const struct kvd_policy *policy, int32_t id);
};

/*
 * Least recently released first: a sequence releases its last block first, so a chain leaves from its
 * tail.
 */
extern const struct kvd_policy_ops kvd_policy_lru;

/* By name; NULL when there is none. kvd_policy_names(): "lru", for messages. */
const struct kvd_policy_ops *kvd_policy_find(const char *name);
const char *kvd_policy_names(void);

#endif
