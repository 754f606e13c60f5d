/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Capture: operations go into a list instead of a queue. Streams join by waiting for an event of the capture
 * and must be joined again before its end. The list is in the order of the calls, one of the orders that the
 * dependencies allow.
 */
#include "fake.h"

#include <stdlib.h>

static struct fake_graph *captures;
static struct fake_graph *all;
static uint64_t next_id;
static _Thread_local unsigned thread_mode; /* KVW_CUDA_CAPTURE_GLOBAL */

unsigned fake_capture_spoil(struct fake_graph *graph, unsigned result)
{
	graph->invalid = true;
	return result;
}

unsigned fake_capture_append(struct fake_graph *graph, const struct fake_op *op)
{
	if (graph->invalid)
		return KVW_CUDA_STREAM_CAPTURE_INVALIDATED;
	fake_op_append(&graph->head, &graph->tail, op);
	return 0;
}

/*
 * Which captures forbid unsafe calls to this thread depends on how each was begun and on what the thread has
 * set for itself.
 */
static bool forbids(const struct fake_graph *graph)
{
	bool own = pthread_equal(graph->thread, pthread_self());

	if (thread_mode == KVW_CUDA_CAPTURE_RELAXED || graph->mode == KVW_CUDA_CAPTURE_RELAXED)
		return false;
	if (own)
		return true;
	return thread_mode == KVW_CUDA_CAPTURE_GLOBAL && graph->mode == KVW_CUDA_CAPTURE_GLOBAL;
}

unsigned fake_capture_check_unsafe(void)
{
	unsigned result = 0;

	for (struct fake_graph *graph = captures; graph; graph = graph->next_capture)
		if (forbids(graph))
			result = fake_capture_spoil(graph, KVW_CUDA_STREAM_CAPTURE_UNSUPPORTED);
	return result;
}

unsigned fake_capture_check_legacy(const struct fake_context *context)
{
	for (struct fake_stream *stream = fake_stream_first(); stream; stream = stream->next)
		if (stream->capture && stream->context == context &&
		    !(stream->flags & KVW_CUDA_STREAM_NON_BLOCKING))
			return fake_capture_spoil(stream->capture, KVW_CUDA_STREAM_CAPTURE_IMPLICIT);
	return 0;
}

FAKE_ENTRY(cuThreadExchangeStreamCaptureMode, (unsigned *mode), (mode))
{
	unsigned before = thread_mode;

	if (*mode > KVW_CUDA_CAPTURE_RELAXED)
		return KVW_CUDA_INVALID_VALUE;
	thread_mode = *mode;
	*mode = before;
	return 0;
}

FAKE_ENTRY(cuStreamBeginCapture, (struct kvw_cuda_stream * handle, unsigned mode), (handle, mode))
{
	struct fake_stream *stream = fake_stream_get(handle);
	struct fake_graph *graph;

	if (!stream)
		return KVW_CUDA_INVALID_HANDLE;
	if (stream->legacy)
		return KVW_CUDA_STREAM_CAPTURE_UNSUPPORTED;
	if (mode > KVW_CUDA_CAPTURE_RELAXED)
		return KVW_CUDA_INVALID_VALUE;
	if (stream->capture)
		return FAKE_ILLEGAL_STATE;
	graph = calloc(1, sizeof(*graph));
	if (!graph)
		abort();
	*graph = (struct fake_graph){.mode = mode,
				     .id = ++next_id,
				     .thread = pthread_self(),
				     .active = true,
				     .next_capture = captures,
				     .next = all};
	captures = all = graph;
	stream->capture = graph;
	stream->capture_origin = true;
	return 0;
}

/* Takes the graph off its streams. False when one of them was not joined. */
static bool leave_streams(struct fake_graph *graph)
{
	bool joined = true;

	for (struct fake_stream *stream = fake_stream_first(); stream; stream = stream->next) {
		if (stream->capture != graph)
			continue;
		if (!stream->capture_origin && stream->captured > stream->joined)
			joined = false;
		stream->capture = NULL;
		stream->capture_origin = false;
		stream->captured = stream->joined = 0;
	}
	return joined;
}

static void end(struct fake_graph *graph)
{
	struct fake_graph **at = &captures;

	while (*at != graph)
		at = &(*at)->next_capture;
	*at = graph->next_capture;
	graph->active = false;
}

/* A spoiled graph is kept, empty: events may still point to it. */
FAKE_ENTRY(cuStreamEndCapture, (struct kvw_cuda_stream * handle, struct kvw_cuda_graph **out), (handle, out))
{
	struct fake_stream *stream = fake_stream_get(handle);
	struct fake_graph *graph;
	bool joined;

	if (!stream)
		return KVW_CUDA_INVALID_HANDLE;
	graph = stream->capture;
	*out = NULL;
	if (!graph)
		return FAKE_ILLEGAL_STATE;
	if (!stream->capture_origin)
		return fake_capture_spoil(graph, KVW_CUDA_STREAM_CAPTURE_UNMATCHED);
	if (graph->mode != KVW_CUDA_CAPTURE_RELAXED && !pthread_equal(graph->thread, pthread_self()))
		return KVW_CUDA_STREAM_CAPTURE_WRONG_THREAD;
	joined = leave_streams(graph);
	end(graph);
	if (graph->invalid || !joined) {
		fake_op_free_all(&graph->head);
		return graph->invalid ? KVW_CUDA_STREAM_CAPTURE_INVALIDATED
				      : KVW_CUDA_STREAM_CAPTURE_UNJOINED;
	}
	graph->handle = fake_object_add(FAKE_KIND_GRAPH, graph);
	*out = graph->handle;
	return 0;
}

FAKE_ENTRY(cuStreamGetCaptureInfo, (struct kvw_cuda_stream * handle, unsigned *status, uint64_t *id),
	   (handle, status, id))
{
	struct fake_stream *stream = fake_stream_get(handle);

	if (!stream)
		return KVW_CUDA_INVALID_HANDLE;
	if (stream->legacy) {
		unsigned result = fake_capture_check_legacy(stream->context);

		if (result)
			return result;
	}
	*status = KVW_CUDA_CAPTURE_NONE;
	if (!stream->capture)
		return 0;
	*status = stream->capture->invalid ? KVW_CUDA_CAPTURE_INVALIDATED : KVW_CUDA_CAPTURE_ACTIVE;
	if (id)
		*id = stream->capture->id;
	return 0;
}
