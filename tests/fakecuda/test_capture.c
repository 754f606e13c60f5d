/* SPDX-License-Identifier: Apache-2.0 */
/* Capture, replay, and what a capture forbids. */
#include "fixture.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct kvw_cuda_graph *graph;
static struct kvw_cuda_graph_exec *exec;

static void begin(struct kvw_cuda_stream *on, unsigned mode)
{
	OK(cuStreamBeginCapture, on, mode);
}

static void end_and_instantiate(struct kvw_cuda_stream *on)
{
	OK(cuStreamEndCapture, on, &graph);
	OK(cuGraphInstantiateWithFlags, &exec, graph, 0);
	OK(cuGraphDestroy, graph);
}

static void assert_capture(struct kvw_cuda_stream *on, unsigned expected)
{
	unsigned status = 99;
	uint64_t id = 0;

	OK(cuStreamGetCaptureInfo, on, &status, &id);
	assert_int_equal(status, expected);
	assert_int_equal(id != 0, expected != KVW_CUDA_CAPTURE_NONE);
}

/* What was captured is done at each launch, with what memory holds then; nothing is done by capturing. */
static void a_replay_reads_what_is_there_at_its_time(void **state)
{
	uint64_t from;
	uint32_t *page = make_registered_page(&from);
	uint64_t target;
	uint32_t word;

	(void)state;
	OK(cuMemAlloc, &target, 4096);
	fill_words(target, 1, 4);
	begin(stream, KVW_CUDA_CAPTURE_THREAD_LOCAL);
	assert_capture(stream, KVW_CUDA_CAPTURE_ACTIVE);
	OK(cuMemcpyHtoDAsync, target, page, 4, stream);
	OK(cuMemcpyDtoDAsync, target + 4, target, 4, stream);
	OK(cuStreamWriteValue32, stream, from + 64, 9, 0);
	end_and_instantiate(stream);
	assert_capture(stream, KVW_CUDA_CAPTURE_NONE);
	read_words(target, &word, 1);
	assert_int_equal(word, 1);
	for (uint32_t value = 10; value < 13; value++) {
		page[0] = value;
		page[16] = 0;
		OK(cuGraphLaunch, exec, stream);
		OK(cuStreamSynchronize, stream);
		read_words(target + 4, &word, 1);
		assert_int_equal(word, value);
		assert_int_equal(page[16], 9);
	}
	OK(cuGraphExecDestroy, exec);
	OK(cuMemFree, target);
	drop_registered_page(page);
}

static void a_captured_wait_holds_the_replay(void **state)
{
	uint64_t word;
	uint64_t *page = make_registered_page(&word);

	(void)state;
	begin(stream, KVW_CUDA_CAPTURE_RELAXED);
	OK(cuStreamWaitValue64, stream, word, 5, KVW_CUDA_WAIT_GEQ);
	OK(cuStreamWriteValue64, stream, word + 8, 1, 0);
	end_and_instantiate(stream);
	OK(cuGraphLaunch, exec, stream);
	ANSWERS(KVW_CUDA_NOT_READY, cuStreamQuery, stream);
	__atomic_store_n(page, 5, __ATOMIC_RELEASE);
	OK(cuStreamSynchronize, stream);
	assert_int_equal(page[1], 1);
	OK(cuGraphExecDestroy, exec);
	drop_registered_page(page);
}

struct branches {
	struct kvw_cuda_stream *other;
	struct kvw_cuda_event *fork, *join;
};

static void open_branches(struct branches *branches)
{
	OK(cuStreamCreate, &branches->other, KVW_CUDA_STREAM_NON_BLOCKING);
	OK(cuEventCreate, &branches->fork, KVW_CUDA_EVENT_DISABLE_TIMING);
	OK(cuEventCreate, &branches->join, KVW_CUDA_EVENT_DISABLE_TIMING);
}

static void close_branches(struct branches *branches)
{
	OK(cuEventDestroy, branches->fork);
	OK(cuEventDestroy, branches->join);
	OK(cuStreamDestroy, branches->other);
}

static void a_stream_joins_a_capture_by_an_event(void **state)
{
	struct branches branches;
	uint64_t word;
	uint64_t *page = make_registered_page(&word);

	(void)state;
	open_branches(&branches);
	begin(stream, KVW_CUDA_CAPTURE_GLOBAL);
	OK(cuEventRecord, branches.fork, stream);
	OK(cuStreamWaitEvent, branches.other, branches.fork, 0);
	assert_capture(branches.other, KVW_CUDA_CAPTURE_ACTIVE);
	OK(cuStreamWriteValue64, branches.other, word, 3, 0);
	OK(cuEventRecord, branches.join, branches.other);
	ANSWERS(KVW_CUDA_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture, branches.other, &graph);
	(void)cuda->cuStreamEndCapture(stream, &graph); /* that error has spoiled it */
	assert_capture(branches.other, KVW_CUDA_CAPTURE_NONE);

	begin(stream, KVW_CUDA_CAPTURE_GLOBAL);
	OK(cuEventRecord, branches.fork, stream);
	OK(cuStreamWaitEvent, branches.other, branches.fork, 0);
	OK(cuStreamWriteValue64, branches.other, word, 3, 0);
	OK(cuEventRecord, branches.join, branches.other);
	OK(cuStreamWaitEvent, stream, branches.join, 0);
	end_and_instantiate(stream);
	OK(cuGraphLaunch, exec, stream);
	OK(cuStreamSynchronize, stream);
	assert_int_equal(page[0], 3);
	OK(cuGraphExecDestroy, exec);
	close_branches(&branches);
	drop_registered_page(page);
}

static void a_branch_that_is_not_joined_spoils_the_capture(void **state)
{
	struct branches branches;
	uint64_t word;
	uint64_t *page = make_registered_page(&word);

	(void)state;
	open_branches(&branches);
	begin(stream, KVW_CUDA_CAPTURE_GLOBAL);
	OK(cuEventRecord, branches.fork, stream);
	OK(cuStreamWaitEvent, branches.other, branches.fork, 0);
	OK(cuEventRecord, branches.join, branches.other);
	OK(cuStreamWaitEvent, stream, branches.join, 0);
	OK(cuStreamWriteValue64, branches.other, word, 3, 0); /* after the join */
	ANSWERS(KVW_CUDA_STREAM_CAPTURE_UNJOINED, cuStreamEndCapture, stream, &graph);
	assert_null(graph);
	close_branches(&branches);
	drop_registered_page(page);
}

static void a_capture_may_not_depend_on_work_outside(void **state)
{
	struct branches branches;

	(void)state;
	open_branches(&branches);
	OK(cuEventRecord, branches.fork, branches.other);
	begin(stream, KVW_CUDA_CAPTURE_GLOBAL);
	ANSWERS(KVW_CUDA_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent, stream, branches.fork, 0);
	assert_capture(stream, KVW_CUDA_CAPTURE_INVALIDATED);
	ANSWERS(KVW_CUDA_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture, stream, &graph);
	close_branches(&branches);
}

/* Each call that a program may not make while it captures: refused, and the capture is lost. */
static unsigned forbidden(unsigned which, struct branches *branches)
{
	uint64_t pointer;

	switch (which) {
	case 0:
		return cuda->cuMemAlloc(&pointer, 64);
	case 1:
		return cuda->cuMemHostRegister(branches, 64, 0);
	case 2:
		return cuda->cuStreamSynchronize(stream);
	case 3:
		return cuda->cuStreamQuery(stream);
	case 4:
		return cuda->cuCtxSynchronize();
	default:
		return cuda->cuEventSynchronize(branches->join);
	}
}

static void unsafe_calls_are_refused_and_spoil_the_capture(void **state)
{
	struct branches branches;

	(void)state;
	open_branches(&branches);
	for (unsigned which = 0; which < 6; which++) {
		begin(stream, KVW_CUDA_CAPTURE_GLOBAL);
		assert_int_equal(forbidden(which, &branches), KVW_CUDA_STREAM_CAPTURE_UNSUPPORTED);
		assert_capture(stream, KVW_CUDA_CAPTURE_INVALIDATED);
		ANSWERS(KVW_CUDA_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture, stream, &graph);
	}
	begin(stream, KVW_CUDA_CAPTURE_GLOBAL);
	OK(cuEventRecord, branches.fork, stream);
	ANSWERS(KVW_CUDA_CAPTURED_EVENT, cuEventQuery, branches.fork);
	ANSWERS(KVW_CUDA_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture, stream, &graph);
	close_branches(&branches);
}

static void the_default_stream_is_refused_beside_a_captured_one(void **state)
{
	struct kvw_cuda_stream *blocking;
	uint64_t target;

	(void)state;
	OK(cuMemAlloc, &target, 64);
	OK(cuStreamCreate, &blocking, 0);
	begin(blocking, KVW_CUDA_CAPTURE_RELAXED);
	ANSWERS(KVW_CUDA_STREAM_CAPTURE_IMPLICIT, cuMemsetD8Async, target, 0, 64, NULL);
	ANSWERS(KVW_CUDA_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture, blocking, &graph);
	begin(stream, KVW_CUDA_CAPTURE_RELAXED);
	OK(cuMemsetD8Async, target, 0, 64, NULL); /* that one does not block with it */
	OK(cuStreamEndCapture, stream, &graph);
	OK(cuGraphDestroy, graph);
	OK(cuStreamDestroy, blocking);
	OK(cuMemFree, target);
}

static unsigned mode_of_this_thread(unsigned mode)
{
	OK(cuThreadExchangeStreamCaptureMode, &mode);
	return mode;
}

/* From another thread, with the mode that it was given; returns the answer. */
static void *allocate_elsewhere(void *arg)
{
	uint64_t pointer;
	uintptr_t result;

	if (cuda->cuCtxPushCurrent(context))
		return (void *)(uintptr_t)1;
	(void)mode_of_this_thread((unsigned)(uintptr_t)arg);
	result = cuda->cuMemAlloc(&pointer, 64);
	if (!result)
		result = cuda->cuMemFree(pointer);
	(void)cuda->cuCtxPopCurrent(NULL);
	return (void *)result;
}

static uintptr_t allocated_elsewhere(unsigned mode)
{
	pthread_t thread;
	void *result;

	assert_int_equal(pthread_create(&thread, NULL, allocate_elsewhere, (void *)(uintptr_t)mode), 0);
	assert_int_equal(pthread_join(thread, &result), 0);
	return (uintptr_t)result;
}

static void who_may_call_depends_on_both_modes(void **state)
{
	uint64_t pointer;

	(void)state;
	begin(stream, KVW_CUDA_CAPTURE_GLOBAL);
	assert_int_equal(allocated_elsewhere(KVW_CUDA_CAPTURE_RELAXED), 0);
	assert_int_equal(allocated_elsewhere(KVW_CUDA_CAPTURE_THREAD_LOCAL), 0);
	assert_int_equal(allocated_elsewhere(KVW_CUDA_CAPTURE_GLOBAL), KVW_CUDA_STREAM_CAPTURE_UNSUPPORTED);
	(void)cuda->cuStreamEndCapture(stream, &graph);

	begin(stream, KVW_CUDA_CAPTURE_THREAD_LOCAL);
	assert_int_equal(allocated_elsewhere(KVW_CUDA_CAPTURE_GLOBAL), 0);
	assert_int_equal(mode_of_this_thread(KVW_CUDA_CAPTURE_RELAXED), KVW_CUDA_CAPTURE_GLOBAL);
	OK(cuMemAlloc, &pointer, 64);
	assert_int_equal(mode_of_this_thread(KVW_CUDA_CAPTURE_GLOBAL), KVW_CUDA_CAPTURE_RELAXED);
	OK(cuStreamEndCapture, stream, &graph);
	OK(cuGraphDestroy, graph);
	OK(cuMemFree, pointer);
}

static void stale_graphs_are_refused(void **state)
{
	(void)state;
	begin(stream, KVW_CUDA_CAPTURE_GLOBAL);
	ANSWERS(401, cuStreamBeginCapture, stream, KVW_CUDA_CAPTURE_GLOBAL);
	end_and_instantiate(stream);
	ANSWERS(KVW_CUDA_INVALID_VALUE, cuGraphDestroy, graph);
	OK(cuGraphExecDestroy, exec);
	ANSWERS(KVW_CUDA_INVALID_VALUE, cuGraphLaunch, exec, stream);
	ANSWERS(401, cuStreamEndCapture, stream, &graph);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_replay_reads_what_is_there_at_its_time),
		cmocka_unit_test(a_captured_wait_holds_the_replay),
		cmocka_unit_test(a_stream_joins_a_capture_by_an_event),
		cmocka_unit_test(a_branch_that_is_not_joined_spoils_the_capture),
		cmocka_unit_test(a_capture_may_not_depend_on_work_outside),
		cmocka_unit_test(unsafe_calls_are_refused_and_spoil_the_capture),
		cmocka_unit_test(the_default_stream_is_refused_beside_a_captured_one),
		cmocka_unit_test(who_may_call_depends_on_both_modes),
		cmocka_unit_test(stale_graphs_are_refused),
	};

	(void)argc;
	kvt_cuda_start(argv);
	kvt_watchdog(60);
	return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
