/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The deep check: rebuilds every list and count from the records, walks every hold, compares with what
 * the daemon keeps, and names each difference. It runs in slices beside live operations: kvd_check_*
 * hooks in pool.c keep what it has summed up right while blocks that it has passed change.
 */
#ifndef KVPOOL_DAEMON_CHECK_H
#define KVPOOL_DAEMON_CHECK_H

#include <stdint.h>

#include "pool.h"

#define KVD_CHECK_TEXTS 64u

struct kvd_check_result {
	uint64_t blocks;
	uint64_t faults;
	uint32_t texts; /* kept: the first ones */
	char text[KVD_CHECK_TEXTS][160];
};

/* One at a time a pool. -EBUSY, -ENOMEM. The pool's `check` points to it until the end. */
int kvd_check_start(struct kvd_pool *pool, struct kvd_check **out);
/*
 * Looks at `budget` blocks or references more; UINT32_MAX: to the end, and walks every list as well.
 * 1: done, 0: call again.
 */
int kvd_check_step(struct kvd_check *check, uint32_t budget);
/* Valid until the end. */
const struct kvd_check_result *kvd_check_result(const struct kvd_check *check);
void kvd_check_end(struct kvd_check *check);

/*
 * All at once, for tests: faults found; the first goes to out_text (capacity bytes) when not NULL.
 * -ENOMEM.
 */
int64_t kvd_check_now(struct kvd_pool *pool, char *out_text, size_t capacity);

#endif
