/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a run found, as a table or as JSON.
 */
#ifndef KVPOOL_TEST_REPORT_H
#define KVPOOL_TEST_REPORT_H

#include <stdbool.h>

#include "board.h"
#include "facts.h"
#include "target.h"

/* Phases of the board before those of the modes. */
enum kvt_phase { KVT_PHASE_ALONE, KVT_PHASE_HUNGRY, KVT_PHASE_MODES };

struct kvt_report {
	const struct kvt_board *board;
	bool chosen[KVT_MAX_PHASES]; /* modes that ran */
	struct kvt_facts before;
	struct kvt_facts after;
	struct kvt_log_audit audit;
	uint64_t longest_turn_us;
	uint64_t longest_part_us;
	char longest_part[KVW_MAX_NAME_BYTES + 1];
	char event_loop[KVW_MAX_NAME_BYTES + 1];
	/* The friends' latencies beside any mode. */
	struct kvt_latency hostile[KVT_FRIENDS];
};

/* Puts the modes' latencies together. */
void kvt_report_sum(struct kvt_report *report);
void kvt_report_table(const struct kvt_report *report);
void kvt_report_json(const struct kvt_report *report);
/* Things that must never work and did. */
uint64_t kvt_report_breaches(const struct kvt_report *report);
/* The friend's p99 beside the hostile one over its p99 alone. */
double kvt_report_ratio(const struct kvt_report *report, enum kvt_friend number);

#endif
