/* SPDX-License-Identifier: Apache-2.0 */
/* Streams as queues, and the calls that ask for them. executor.c runs them. */
#include "fake.h"

#include <stdlib.h>
#include <string.h>

static struct fake_stream *all;
static struct fake_stream legacy[FAKE_MAX_DEVICES];
static struct fake_stream per_thread[FAKE_MAX_DEVICES];
static uint64_t sequence;

/* The streams that nobody creates: 0 and 1 wait for the others and they for it; 2 is a common one. */
static struct fake_stream *ready_made(struct fake_stream *stream, bool is_legacy)
{
	if (!stream->context) {
		stream->context = fake_context_current();
		stream->legacy = is_legacy;
		stream->next = all;
		all = stream;
	}
	return stream;
}

struct fake_stream *fake_stream_get(struct kvw_cuda_stream *handle)
{
	int device = fake_context_current()->device;
	struct fake_stream *stream;

	if ((uintptr_t)handle <= 1)
		return ready_made(&legacy[device], true);
	if ((uintptr_t)handle == 2)
		return ready_made(&per_thread[device], false);
	stream = fake_object_get(FAKE_KIND_STREAM, handle);
	return stream && stream->context == fake_context_current() ? stream : NULL;
}

struct fake_stream *fake_stream_first(void)
{
	return all;
}

static struct fake_op *duplicate(const struct fake_op *op)
{
	struct fake_op *copy = malloc(sizeof(*copy));

	if (!copy)
		abort();
	*copy = *op;
	copy->next = NULL;
	if (copy->kind == FAKE_OP_LAUNCH)
		copy->u.launch = fake_launch_copy(op->u.launch);
	if (copy->kind == FAKE_OP_RECORD || copy->kind == FAKE_OP_WAIT_EVENT)
		fake_event_ref(copy->u.event.event);
	return copy;
}

void fake_op_free(struct fake_op *op)
{
	if (op->kind == FAKE_OP_LAUNCH)
		fake_launch_free(op->u.launch);
	if (op->kind == FAKE_OP_RECORD || op->kind == FAKE_OP_WAIT_EVENT)
		fake_event_unref(op->u.event.event);
	if (op->late_slot)
		fake_late_end(op->late_slot);
	free(op);
}

void fake_op_free_all(struct fake_op **head)
{
	while (*head) {
		struct fake_op *op = *head;

		*head = op->next;
		fake_op_free(op);
	}
}

void fake_op_append(struct fake_op **head, struct fake_op **tail, const struct fake_op *op)
{
	struct fake_op *copy = duplicate(op);

	if (*head)
		(*tail)->next = copy;
	else
		*head = copy;
	*tail = copy;
}

unsigned fake_stream_queue(struct fake_stream *stream, const struct fake_op *op)
{
	fake_op_append(&stream->head, &stream->tail, op);
	stream->tail->sequence = ++sequence;
	stream->tail->not_before_ns = fake_now_ns() + fake_settings()->delay_ns;
	if (op->to && op->kind != FAKE_OP_WAIT_VALUE && fake_range_writable(op->to, op->bytes))
		stream->tail->late_slot = fake_late_begin(op->to, op->bytes);
	fake_executor_wake();
	return 0;
}

unsigned fake_stream_push(struct fake_stream *stream, const struct fake_op *op)
{
	unsigned result;

	if (stream->capture) {
		result = fake_capture_append(stream->capture, op);
		stream->captured += !result;
		return result;
	}
	result = stream->legacy ? fake_capture_check_legacy(stream->context) : 0;
	return result ? result : fake_stream_queue(stream, op);
}

/* The legacy stream is idle when what blocks with it is, too. */
bool fake_stream_idle(const struct fake_stream *stream)
{
	if (stream->head)
		return false;
	for (const struct fake_stream *other = all; other && stream->legacy; other = other->next)
		if (other->context == stream->context && !(other->flags & KVW_CUDA_STREAM_NON_BLOCKING) &&
		    other->head)
			return false;
	return true;
}

static bool stream_idle(void *arg)
{
	return fake_stream_idle(arg);
}

static bool context_idle(void *arg)
{
	for (const struct fake_stream *stream = all; stream; stream = stream->next)
		if ((!arg || stream->context == arg) && stream->head)
			return false;
	return true;
}

unsigned fake_wait_all(struct fake_context *context)
{
	return fake_wait(context, context_idle, context);
}

FAKE_ENTRY(cuStreamCreate, (struct kvw_cuda_stream * *handle, unsigned flags), (handle, flags))
{
	struct fake_stream *stream;

	if (flags & ~(unsigned)KVW_CUDA_STREAM_NON_BLOCKING)
		return KVW_CUDA_INVALID_VALUE;
	stream = calloc(1, sizeof(*stream));
	if (!stream)
		abort();
	stream->context = fake_context_current();
	stream->flags = flags;
	stream->handle = fake_object_add(FAKE_KIND_STREAM, stream);
	stream->next = all;
	all = stream;
	*handle = stream->handle;
	return 0;
}

/* The driver lets what is queued go on; here the call waits for it, which no program can tell apart. */
FAKE_ENTRY(cuStreamDestroy, (struct kvw_cuda_stream * handle), (handle))
{
	struct fake_stream *stream = fake_stream_get(handle);
	struct fake_stream **at = &all;

	if (!stream || (uintptr_t)handle <= 2)
		return KVW_CUDA_INVALID_HANDLE;
	(void)fake_wait(stream->context, stream_idle, stream);
	if (stream->capture)
		(void)fake_capture_spoil(stream->capture, 0);
	while (*at != stream)
		at = &(*at)->next;
	*at = stream->next;
	fake_object_remove(FAKE_KIND_STREAM, handle);
	free(stream);
	return 0;
}

FAKE_ENTRY(cuStreamSynchronize, (struct kvw_cuda_stream * handle), (handle))
{
	struct fake_stream *stream = fake_stream_get(handle);

	if (!stream)
		return KVW_CUDA_INVALID_HANDLE;
	if (stream->capture)
		return fake_capture_spoil(stream->capture, KVW_CUDA_STREAM_CAPTURE_UNSUPPORTED);
	return fake_wait(stream->context, stream_idle, stream);
}

FAKE_ENTRY(cuStreamQuery, (struct kvw_cuda_stream * handle), (handle))
{
	struct fake_stream *stream = fake_stream_get(handle);

	if (!stream)
		return KVW_CUDA_INVALID_HANDLE;
	if (stream->capture)
		return fake_capture_spoil(stream->capture, KVW_CUDA_STREAM_CAPTURE_UNSUPPORTED);
	return fake_stream_idle(stream) ? 0 : KVW_CUDA_NOT_READY;
}

FAKE_ENTRY(cuStreamGetCtx, (struct kvw_cuda_stream * handle, struct kvw_cuda_context **context),
	   (handle, context))
{
	struct fake_stream *stream = fake_stream_get(handle);

	if (!stream)
		stream = fake_object_get(FAKE_KIND_STREAM, handle);
	if (!stream)
		return KVW_CUDA_INVALID_HANDLE;
	*context = fake_context_handle(stream->context);
	return 0;
}

FAKE_ENTRY(cuLaunchHostFunc, (struct kvw_cuda_stream * handle, void (*function)(void *), void *argument),
	   (handle, function, argument))
{
	struct fake_stream *stream = fake_stream_get(handle);
	struct fake_op op = {.kind = FAKE_OP_HOST, .u.host = {function, argument}};

	if (!stream)
		return KVW_CUDA_INVALID_HANDLE;
	return function ? fake_stream_push(stream, &op) : KVW_CUDA_INVALID_VALUE;
}
