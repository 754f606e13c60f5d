/* SPDX-License-Identifier: Apache-2.0 */
/* The result of a replay: everything that is told, as a table or as JSON, and whether it is good. */
#ifndef KVPOOL_TOOLS_REPLAY_REPORT_H
#define KVPOOL_TOOLS_REPLAY_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "fleet.h"
#include "ideal.h"
#include "pool_state.h"
#include "run.h"

/* Sums over the engines, by the names of REP_STAT_MAP; worst_syscalls is the largest. */
struct rep_totals {
#define X(name) uint64_t name;
	REP_STAT_MAP(X)
#undef X
};

struct rep_report {
	const struct rep_run *run;
	struct rep_totals totals;
	struct rep_histogram preparation_ns;
	struct rep_ideal ideal;
	bool counted; /* before and after are known and nobody else used the pool */
	struct rep_pool_state before;
	struct rep_pool_state after;
	struct rep_fleet_result *fleet;
	uint64_t block_bytes;
	double wall_s;
	bool syscalls_counted;
	bool daemon_failed;
};

/* Fills totals and the histogram from the shared results. */
void rep_report_sum(struct rep_report *report);
/* Growth of a daemon's counter over the run. */
uint64_t rep_report_counter(const struct rep_report *report, enum kvw_counter counter);

/* What was wrong, one sentence a call with `at` from 0 on; false at the end. */
bool rep_report_problem(const struct rep_report *report, uint32_t at, char *out, size_t capacity);

/* Prints it in the form asked for; CTL_OK, or CTL_FAULT when there is any problem. */
int rep_report_print(const struct rep_report *report);

#endif
