/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for a daemon to be ready. Populating gigabytes of small pages takes many seconds, during which the
 * daemon already answers: whoever sits at a terminal is shown how far it is, and may interrupt.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "../text.h"
#include "fleet.h"
#include "ipc/frame.h"
#include "pool_state.h"
#include "progress.h"
#include "standalone.h"

/* How often an interrupt is looked for and the line is drawn. */
#define SLICE_MS 200
/* For the daemon's answer, which is for show only. */
#define ANSWER_MS 200

static void show_populated(const char *socket)
{
	const struct ctl_global global = {.socket = socket, .timeout_ms = ANSWER_MS};
	struct rep_pool_state state;
	char text[2][CTL_TEXT_BYTES];
	char line[80];
	int ret;

	if (!rep_progress_possible())
		return;
	/* It may not listen yet. */
	ctl_mute(true);
	ret = rep_pool_state_read(&global, NULL, &state);
	ctl_mute(false);
	if (ret || !state.counted)
		return;
	snprintf(line, sizeof(line), "populating the pool: %s of %s",
		 ctl_bytes(state.populated_bytes, text[0], sizeof(text[0])),
		 ctl_bytes(state.bytes, text[1], sizeof(text[1])));
	rep_progress_note(line);
}

/* One look at ready_fd: 1 ready, 0 nothing yet, -EPIPE the end of the file. */
static int look(int ready_fd)
{
	struct pollfd entry = {.fd = ready_fd, .events = POLLIN};
	char byte;

	if (poll(&entry, 1, SLICE_MS) <= 0)
		return 0;
	return read(ready_fd, &byte, 1) == 1 ? 1 : -EPIPE;
}

int rep_daemon_wait(int ready_fd, const char *socket, uint32_t timeout_ms)
{
	uint64_t deadline_ns = kvw_deadline_ns(timeout_ms);
	int ret;

	while (!(ret = look(ready_fd))) {
		if (rep_interrupted())
			ret = -EINTR;
		else if (kvw_now_ns() >= deadline_ns)
			ret = -ETIMEDOUT;
		if (ret)
			break;
		show_populated(socket);
	}
	rep_progress_clear();
	return ret < 0 ? ret : 0;
}
