/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long the loop's turns are: from the return of the wait to the next wait. A turn above a millisecond is
 * a bug, so this is measured always and shown by `kvpoolctl status`.
 *
 * What counts is what the loop did or waited for. A turn in which it never gave the processor away itself (no
 * voluntary switch) counts by the processor time it used instead of by the clock: a loaded machine is no bug
 * here, be it that the scheduler took the processor away or, unseen by it, interrupts or the host of a
 * virtual machine; a call that blocks is.
 *
 * A turn's parts have names, so that the longest turn tells in which of them most of it went.
 */
#ifndef KVPOOL_DAEMON_TURN_H
#define KVPOOL_DAEMON_TURN_H

#include <stdbool.h>
#include <stdint.h>

struct kvd_turn_mark {
	uint64_t clock_us;
	uint64_t cpu_us;
	long blocks;
};

struct kvd_turn_part {
	const char *name;
	uint64_t took_us;
};

struct kvd_turn_clock {
	bool running;
	struct kvd_turn_mark begin;
	/* The part that runs; what the thread's counts were is known from some time before. */
	const char *name;
	struct kvd_turn_mark part;
	struct kvd_turn_part dearest; /* of this turn */
	uint64_t turns;
	uint64_t longest_us;
	struct kvd_turn_part longest_in; /* of the longest turn */
};

/* The wait has returned. Called by whoever runs first; later calls of the same turn do nothing. */
void kvd_turn_begin(struct kvd_turn_clock *clock);
/* What comes now, until the next call, is `name`: a static string. Begins the turn as well. */
void kvd_turn_part(struct kvd_turn_clock *clock, const char *name);
/* The wait is next. */
void kvd_turn_end(struct kvd_turn_clock *clock);

/* CLOCK_MONOTONIC in microseconds. */
uint64_t kvd_now_us(void);

#endif
