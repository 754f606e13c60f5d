/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events: how often it was recorded, and up to which of them the work is done. One that other processes may
 * wait for has these words in a memfd; its handle names the owner's descriptor, as with memory.
 */
#include "fake.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAGIC 0x43504945u

struct handle {
	uint32_t magic;
	int32_t pid;
	int32_t fd;
	int32_t reserved;
	uint64_t start_time;
	uint8_t rest[40];
};

static struct fake_event *enter(unsigned flags, int fd, void *state)
{
	struct fake_event *event = calloc(1, sizeof(*event));

	if (!event || !state)
		abort();
	*event = (struct fake_event){.flags = flags, .fd = fd, .state = state, .references = 1};
	event->handle = fake_object_add(FAKE_KIND_EVENT, event);
	return event;
}

void fake_event_ref(struct fake_event *event)
{
	event->references++;
}

void fake_event_unref(struct fake_event *event)
{
	if (--event->references)
		return;
	if (event->fd >= 0) {
		munmap((void *)event->state, sizeof(*event->state));
		close(event->fd);
	} else {
		free((void *)event->state);
	}
	free(event);
}

static void *map_state(int fd)
{
	void *state = mmap(NULL, sizeof(struct fake_event_state), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	return state == MAP_FAILED ? NULL : state;
}

FAKE_ENTRY(cuEventCreate, (struct kvw_cuda_event * *handle, unsigned flags), (handle, flags))
{
	bool shared = flags & KVW_CUDA_EVENT_INTERPROCESS;
	int fd = -1;

	if (flags > 7 || (shared && !(flags & KVW_CUDA_EVENT_DISABLE_TIMING)))
		return KVW_CUDA_INVALID_VALUE;
	if (!shared) {
		*handle = enter(flags, -1, calloc(1, sizeof(struct fake_event_state)))->handle;
		return 0;
	}
	fd = memfd_create("fakecuda-event", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, sizeof(struct fake_event_state)))
		return KVW_CUDA_OPERATING_SYSTEM;
	*handle = enter(flags, fd, map_state(fd))->handle;
	return 0;
}

FAKE_ENTRY(cuEventDestroy, (struct kvw_cuda_event * handle), (handle))
{
	struct fake_event *event = fake_object_get(FAKE_KIND_EVENT, handle);

	if (!event)
		return KVW_CUDA_INVALID_HANDLE;
	fake_object_remove(FAKE_KIND_EVENT, handle);
	fake_event_unref(event);
	return 0;
}

/* In a capture the event stands for a place in the graph, not for work. */
static unsigned record_captured(struct fake_event *event, struct fake_stream *stream)
{
	if (stream->capture->invalid)
		return KVW_CUDA_STREAM_CAPTURE_INVALIDATED;
	event->capture = stream->capture;
	event->capture_stream = stream;
	event->capture_position = stream->captured;
	return 0;
}

FAKE_ENTRY(cuEventRecord, (struct kvw_cuda_event * handle, struct kvw_cuda_stream *stream_handle),
	   (handle, stream_handle))
{
	struct fake_event *event = fake_object_get(FAKE_KIND_EVENT, handle);
	struct fake_stream *stream = fake_stream_get(stream_handle);
	struct fake_op op = {.kind = FAKE_OP_RECORD, .u.event = {event, 0}};
	unsigned result;

	if (!event || !stream)
		return KVW_CUDA_INVALID_HANDLE;
	if (stream->capture)
		return record_captured(event, stream);
	op.u.event.generation = event->state->recorded + 1;
	result = fake_stream_push(stream, &op);
	if (result)
		return result;
	event->capture = NULL;
	event->state->recorded = op.u.event.generation;
	return 0;
}

/* A stream that waits for an event of a capture joins it. */
static unsigned wait_captured(struct fake_stream *stream, const struct fake_event *event)
{
	if (!event->capture->active)
		return KVW_CUDA_INVALID_VALUE;
	if (stream->capture && stream->capture != event->capture) {
		(void)fake_capture_spoil(stream->capture, 0);
		return fake_capture_spoil(event->capture, KVW_CUDA_STREAM_CAPTURE_MERGE);
	}
	if (!stream->capture) {
		stream->capture = event->capture;
		stream->captured = stream->joined = 0;
	}
	if (event->capture_stream != stream && event->capture_stream->joined < event->capture_position)
		event->capture_stream->joined = event->capture_position;
	return 0;
}

FAKE_ENTRY(cuStreamWaitEvent,
	   (struct kvw_cuda_stream * stream_handle, struct kvw_cuda_event *handle, unsigned flags),
	   (stream_handle, handle, flags))
{
	struct fake_event *event = fake_object_get(FAKE_KIND_EVENT, handle);
	struct fake_stream *stream = fake_stream_get(stream_handle);
	struct fake_op op = {.kind = FAKE_OP_WAIT_EVENT, .u.event = {event, 0}};

	if (!event || !stream)
		return KVW_CUDA_INVALID_HANDLE;
	if (flags)
		return KVW_CUDA_INVALID_VALUE;
	if (event->capture)
		return wait_captured(stream, event);
	if (stream->capture)
		return fake_capture_spoil(stream->capture, KVW_CUDA_STREAM_CAPTURE_ISOLATION);
	op.u.event.generation = event->state->recorded;
	return op.u.event.generation ? fake_stream_push(stream, &op) : 0;
}

static bool event_done(void *arg)
{
	const struct fake_event *event = arg;

	return event->state->done >= event->state->recorded;
}

FAKE_ENTRY(cuEventQuery, (struct kvw_cuda_event * handle), (handle))
{
	struct fake_event *event = fake_object_get(FAKE_KIND_EVENT, handle);

	if (!event)
		return KVW_CUDA_INVALID_HANDLE;
	if (event->capture)
		return fake_capture_spoil(event->capture, KVW_CUDA_CAPTURED_EVENT);
	return event_done(event) ? 0 : KVW_CUDA_NOT_READY;
}

FAKE_ENTRY(cuEventSynchronize, (struct kvw_cuda_event * handle), (handle))
{
	struct fake_event *event = fake_object_get(FAKE_KIND_EVENT, handle);
	unsigned result;

	if (!event)
		return KVW_CUDA_INVALID_HANDLE;
	if (event->capture)
		return fake_capture_spoil(event->capture, KVW_CUDA_CAPTURED_EVENT);
	fake_event_ref(event);
	result = fake_wait(fake_context_current(), event_done, event);
	fake_event_unref(event);
	return result;
}

FAKE_ENTRY(cuEventElapsedTime,
	   (float *milliseconds, struct kvw_cuda_event *start_handle, struct kvw_cuda_event *end_handle),
	   (milliseconds, start_handle, end_handle))
{
	struct fake_event *start = fake_object_get(FAKE_KIND_EVENT, start_handle);
	struct fake_event *end = fake_object_get(FAKE_KIND_EVENT, end_handle);

	if (!start || !end || ((start->flags | end->flags) & KVW_CUDA_EVENT_DISABLE_TIMING) ||
	    !start->state->recorded || !end->state->recorded)
		return KVW_CUDA_INVALID_HANDLE;
	if (!event_done(start) || !event_done(end))
		return KVW_CUDA_NOT_READY;
	*milliseconds = (float)((double)(end->state->done_ns - start->state->done_ns) * 1e-6);
	return 0;
}

FAKE_ENTRY(cuIpcGetEventHandle, (struct kvw_cuda_ipc_handle * out, struct kvw_cuda_event *event_handle),
	   (out, event_handle))
{
	struct fake_event *event = fake_object_get(FAKE_KIND_EVENT, event_handle);
	struct handle handle = {.magic = MAGIC, .pid = getpid(), .start_time = fake_self()->start_time};

	if (!event || event->fd < 0)
		return KVW_CUDA_INVALID_HANDLE;
	handle.fd = event->fd;
	_Static_assert(sizeof(handle) == sizeof(*out), "a handle has 64 bytes");
	memcpy(out, &handle, sizeof(*out));
	return 0;
}

FAKE_ENTRY(cuIpcOpenEventHandle, (struct kvw_cuda_event * *out, struct kvw_cuda_ipc_handle bytes),
	   (out, bytes))
{
	struct handle handle;
	char path[64];
	void *state;
	int fd;

	memcpy(&handle, &bytes, sizeof(handle));
	if (handle.magic != MAGIC || handle.pid == getpid())
		return KVW_CUDA_INVALID_VALUE;
	if (fake_start_time(handle.pid) != handle.start_time)
		return KVW_CUDA_INVALID_HANDLE;
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", handle.pid, handle.fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	state = fd < 0 ? NULL : map_state(fd);
	if (!state) {
		if (fd >= 0)
			close(fd);
		return KVW_CUDA_INVALID_HANDLE;
	}
	*out = enter(KVW_CUDA_EVENT_INTERPROCESS | KVW_CUDA_EVENT_DISABLE_TIMING, fd, state)->handle;
	return 0;
}
