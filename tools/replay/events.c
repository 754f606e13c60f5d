/* SPDX-License-Identifier: Apache-2.0 */
/* Events of an engine. */
#include "events.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

int rep_event_send(int fd, const struct rep_event *event)
{
	ssize_t sent;

	do {
		sent = write(fd, event, sizeof(*event));
	} while (sent < 0 && errno == EINTR);
	if (sent < 0)
		return -errno;
	return sent == sizeof(*event) ? 0 : -EIO;
}

static void block_text(const struct rep_event *event, int writer_engine, char *out, size_t capacity)
{
	char writer[48];

	if (writer_engine < 0)
		snprintf(writer, sizeof(writer), "session %" PRIu64, event->writer);
	else
		snprintf(writer, sizeof(writer), "session %" PRIu64 " (engine %d)", event->writer,
			 writer_engine);
	snprintf(out, capacity,
		 "block %d generation %" PRIu64 ", written by %s, read by session %" PRIu64
		 " (engine %u) for the request of line %u: byte %" PRIu64
		 " (plane %u, token %u) is 0x%02x, must be 0x%02x",
		 event->block, event->generation, writer, event->reader, event->engine, event->line,
		 event->offset, event->plane, event->position, event->got, event->wanted);
}

static void attention_text(const struct rep_event *event, char *out, size_t capacity)
{
	snprintf(out, capacity,
		 "attention of session %" PRIu64
		 " (engine %u) over %u tokens of the request of line %u: element %" PRIu64
		 " is %g, the reference says %g",
		 event->reader, event->engine, event->position, event->line, event->offset, event->got_value,
		 event->wanted_value);
}

static void injected_text(const struct rep_event *event, char *out, size_t capacity)
{
	snprintf(out, capacity,
		 "flipped byte %" PRIu64 " of block %d generation %" PRIu64 " (written by session %" PRIu64
		 ") from 0x%02x to 0x%02x",
		 event->offset, event->block, event->generation, event->writer, event->wanted, event->got);
}

void rep_event_text(const struct rep_event *event, int writer_engine, char *out, size_t capacity)
{
	switch ((enum rep_event_kind)event->kind) {
	case REP_EVENT_BLOCK:
		block_text(event, writer_engine, out, capacity);
		break;
	case REP_EVENT_ATTENTION:
		attention_text(event, out, capacity);
		break;
	case REP_EVENT_INJECTED:
		injected_text(event, out, capacity);
		break;
	case REP_EVENT_FAILED:
		snprintf(out, capacity, "engine %u: %.*s", event->engine, (int)sizeof(event->text),
			 event->text);
		break;
	}
}
