/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a pool's lock bytes may be asked for. Who maps a pool can set locks on it, and the kernel walks them
 * one by one: 30,000 made one question take 31 ms. The worker asks (lock_queue.h), but the processor is
 * everybody's: so questions are spaced by what they cost, to a twentieth of a thread's time; as cheap as they
 * are otherwise, that is never felt.
 *
 * Every ending session asks once a round; a round ends at a poll when all have asked, so that a pause delays
 * all alike.
 */
#ifndef KVPOOL_DAEMON_PROOFS_H
#define KVPOOL_DAEMON_PROOFS_H

#include <stdbool.h>
#include <stdint.h>

/* What questions may cost before there is a pause, and how many times their cost it lasts. */
#define KVD_PROOFS_BURST_NS 50000u
#define KVD_PROOFS_PAUSE 20u

struct kvd_proofs {
	uint64_t round;
	uint64_t next_us; /* no question before */
	uint64_t spent_ns;
	bool due; /* while a round's end is looked for */
};

bool kvd_proofs_allowed(const struct kvd_proofs *proofs, uint64_t now_us);
/* Questions, or locks of new sessions, took this much of the worker's time. */
void kvd_proofs_spent(struct kvd_proofs *proofs, uint64_t now_us, uint64_t took_ns);

#endif
