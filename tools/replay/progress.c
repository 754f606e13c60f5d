/* SPDX-License-Identifier: Apache-2.0 */
/* The progress bar. */
#include "progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../text.h"
#include "ipc/frame.h"

#define BAR 24u

/* Whether a bar stands on the terminal's last line. */
static bool drawn;

bool rep_progress_possible(void)
{
	return isatty(STDERR_FILENO) == 1;
}

void rep_progress_note(const char *line)
{
	fprintf(stderr, "\r%s\033[K", line);
	drawn = true;
}

void rep_progress_init(struct rep_progress *progress, const struct rep_run *run)
{
	*progress = (struct rep_progress){.shown = rep_progress_possible(), .began_ns = kvw_now_ns()};
	for (uint32_t i = 0; i < run->trace->count; i++)
		progress->total += rep_work(&run->trace->requests[i]);
}

/* Whole seconds: more would be pretence. */
static void time_left(uint64_t ms, char *out, size_t capacity)
{
	if (ms < 60000)
		snprintf(out, capacity, "%llu s", (unsigned long long)(ms + 500) / 1000);
	else
		ctl_duration(ms, out, capacity);
}

void rep_progress_line(uint64_t done, uint64_t total, uint64_t requests, uint64_t all_requests,
		       uint64_t elapsed_ms, char *out, size_t capacity)
{
	static const char full[] = "########################";
	double part = total ? (double)done / (double)total : 0;
	uint32_t filled;
	char eta[CTL_TEXT_BYTES] = "-";

	part = part > 1 ? 1 : part;
	filled = (uint32_t)(part * BAR);
	if (part > 0.01)
		time_left((uint64_t)((double)elapsed_ms * (1 - part) / part), eta, sizeof(eta));
	snprintf(out, capacity, "[%.*s%*s] %3.0f %%  %llu of %llu requests, %s left", (int)filled, full,
		 (int)(BAR - filled), "", 100 * part, (unsigned long long)requests,
		 (unsigned long long)all_requests, eta);
}

void rep_progress_draw(struct rep_progress *progress, const struct rep_run *run)
{
	uint64_t done = 0;
	uint64_t requests = 0;
	char line[128];

	if (!progress->shown)
		return;
	for (uint32_t i = 0; i < run->engines; i++) {
		done += rep_stat(&run->shared->stats[i].work);
		requests += rep_stat(&run->shared->stats[i].requests);
	}
	rep_progress_line(done, progress->total, requests, run->trace->count,
			  (kvw_now_ns() - progress->began_ns) / 1000000, line, sizeof(line));
	rep_progress_note(line);
}

void rep_progress_clear(void)
{
	if (drawn)
		fputs("\r\033[K", stderr);
	drawn = false;
}
