/* SPDX-License-Identifier: Apache-2.0 */
/* A bar on standard error, when that is a terminal: how far, how fast, how long still. */
#ifndef KVPOOL_TOOLS_REPLAY_PROGRESS_H
#define KVPOOL_TOOLS_REPLAY_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "run.h"

struct rep_progress {
	bool shown;
	uint64_t began_ns;
	uint64_t total; /* rep_work() of all requests */
};

void rep_progress_init(struct rep_progress *progress, const struct rep_run *run);
void rep_progress_draw(struct rep_progress *progress, const struct rep_run *run);
/* Whether there is a terminal to draw on. */
bool rep_progress_possible(void);
/* Any line of up to 79 columns, in the bar's place. Only where it is possible. */
void rep_progress_note(const char *line);
/* Empties the line, so that text can be printed. */
void rep_progress_clear(void);

/* The line for `done` of `total` after elapsed_ms, of 80 columns at most. */
void rep_progress_line(uint64_t done, uint64_t total, uint64_t requests, uint64_t all_requests,
		       uint64_t elapsed_ms, char *out, size_t capacity);

#endif
