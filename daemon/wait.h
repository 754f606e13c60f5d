/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an engine's blocks and holds wait for: one ring a timeline, steps non-decreasing, and one ring
 * for what waits for no step but only for its turn. Room is made before anything changes; a push then
 * cannot fail.
 */
#ifndef KVPOOL_DAEMON_WAIT_H
#define KVPOOL_DAEMON_WAIT_H

#include <stdint.h>

#include "engine.h"

/* Makes room for one more. -ENOMEM. */
int kvd_wait_reserve(struct kvd_wait_queue *queue);
/* A step smaller than the last one queued waits for that one. Returns the step waited for. */
uint64_t kvd_wait_push(struct kvd_wait_queue *queue, enum kvd_wait_kind kind, uint32_t id, uint64_t step);
/* NULL when empty. Valid until the next push or pop. */
const struct kvd_wait *kvd_wait_first(const struct kvd_wait_queue *queue);
void kvd_wait_pop(struct kvd_wait_queue *queue);
void kvd_wait_clear(struct kvd_wait_queue *queue);

#endif
