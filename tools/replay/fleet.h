/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine processes of a replay: forked before any call into libkvpool, watched until the last has ended.
 */
#ifndef KVPOOL_TOOLS_REPLAY_FLEET_H
#define KVPOOL_TOOLS_REPLAY_FLEET_H

#include "events.h"
#include "run.h"

/* Faults kept for the report; the rest is counted. */
#define REP_EVENTS_KEPT 64u

struct rep_fleet_result {
	struct rep_event events[REP_EVENTS_KEPT];
	uint32_t event_count;
	uint32_t engines_failed; /* ended by a signal or with an error */
	bool interrupted;
};

/*
 * Runs all engines to their end; shows progress and tells every event on standard error as it comes. 0, or
 * an error of starting them.
 */
int rep_fleet_run(struct rep_run *run, struct rep_fleet_result *result);

/* Which engine has this session, -1: none. */
int rep_engine_of_session(const struct rep_run *run, uint64_t session);

/*
 * Set by SIGINT, SIGTERM and SIGHUP once rep_catch_interrupts() was called, so that the daemon and its folder do not
 * stay behind. A reader of our output that goes away is an error of writing then.
 */
bool rep_interrupted(void);
void rep_catch_interrupts(void);

#endif
