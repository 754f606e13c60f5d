/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small program whose every call fails once: it must give back what it had, and say which call it was.
 * Guards the order of the clean-up below: leaving out any of its releases makes the test fail at the first
 * call after it.
 */
#include "fixture.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CHUNK (2u << 20)
#define TRY(label, name, ...)                                                                                \
	do {                                                                                                 \
		ret = KVW_CUDA(driver, error, name, __VA_ARGS__);                                            \
		if (ret < 0)                                                                                 \
			goto label;                                                                          \
	} while (0)
/* While cleaning up, an error changes nothing but the answer. */
#define RELEASE(name, ...)                                                                                   \
	do {                                                                                                 \
		int later = KVW_CUDA(driver, ret ? NULL : error, name, __VA_ARGS__);                         \
		if (!ret)                                                                                    \
			ret = later;                                                                         \
	} while (0)

static int share_chunk(struct kvw_cuda *driver, struct kvw_cuda_error *error, uint64_t *out_pointer)
{
	static const struct kvw_cuda_allocation properties = {.type = KVW_CUDA_ALLOCATION_PINNED,
							      .handle_types = KVW_CUDA_HANDLE_FD,
							      .location = {KVW_CUDA_LOCATION_DEVICE, 0}};
	static const struct kvw_cuda_access access = {{KVW_CUDA_LOCATION_DEVICE, 0},
						      KVW_CUDA_ACCESS_READ_WRITE};
	uint64_t pointer;
	uint64_t handle;
	int ret;

	TRY(done, cuMemCreate, &handle, CHUNK, &properties, 0);
	TRY(release, cuMemAddressReserve, &pointer, CHUNK, 0, 0, 0);
	TRY(free_address, cuMemMap, pointer, CHUNK, 0, handle, 0);
	TRY(unmap, cuMemSetAccess, pointer, CHUNK, &access, 1);
	RELEASE(cuMemRelease, handle);
	*out_pointer = pointer;
	if (!ret)
		return 0;
	RELEASE(cuMemUnmap, pointer, CHUNK);
	RELEASE(cuMemAddressFree, pointer, CHUNK);
	return ret;
unmap:
	RELEASE(cuMemUnmap, pointer, CHUNK);
free_address:
	RELEASE(cuMemAddressFree, pointer, CHUNK);
release:
	RELEASE(cuMemRelease, handle);
done:
	return ret;
}

/*
 * Everything that a client does once: memory, a registered page, a stream, an event, a step, a capture and
 * its replay.
 */
static int work(struct kvw_cuda *driver, struct kvw_cuda_error *error, uint64_t pointer, void *page)
{
	struct kvw_cuda_graph_exec *exec;
	struct kvw_cuda_graph *graph = NULL;
	struct kvw_cuda_stream *queue;
	struct kvw_cuda_event *event;
	uint64_t word;
	int ret;

	TRY(done, cuMemHostRegister, page, 4096, 0);
	TRY(unregister, cuMemHostGetDevicePointer, &word, page, 0);
	TRY(unregister, cuStreamCreate, &queue, KVW_CUDA_STREAM_NON_BLOCKING);
	TRY(destroy_stream, cuEventCreate, &event, KVW_CUDA_EVENT_DISABLE_TIMING);
	TRY(destroy_event, cuMemcpyHtoDAsync, pointer, page, 64, queue);
	TRY(destroy_event, cuEventRecord, event, queue);
	TRY(destroy_event, cuStreamBeginCapture, queue, KVW_CUDA_CAPTURE_THREAD_LOCAL);
	TRY(end_capture, cuMemsetD32Async, pointer, 1, 16, queue);
	TRY(end_capture, cuStreamWriteValue64, queue, word, 1, 0);
	TRY(drop_graph, cuStreamEndCapture, queue, &graph);
	TRY(drop_graph, cuGraphInstantiateWithFlags, &exec, graph, 0);
	TRY(destroy_exec, cuGraphLaunch, exec, queue);
	TRY(destroy_exec, cuStreamSynchronize, queue);
destroy_exec:
	RELEASE(cuGraphExecDestroy, exec);
drop_graph:
	if (graph)
		RELEASE(cuGraphDestroy, graph);
	goto destroy_event;
end_capture:
	RELEASE(cuStreamEndCapture, queue, &graph);
	if (graph)
		RELEASE(cuGraphDestroy, graph);
destroy_event:
	RELEASE(cuEventDestroy, event);
destroy_stream:
	RELEASE(cuStreamDestroy, queue);
unregister:
	RELEASE(cuMemHostUnregister, page);
done:
	return ret;
}

static int in_context(struct kvw_cuda *driver, struct kvw_cuda_error *error, void *page)
{
	struct kvw_cuda_context *primary;
	uint64_t pointer;
	int ret;

	TRY(done, cuDevicePrimaryCtxRetain, &primary, 0);
	TRY(release, cuCtxPushCurrent, primary);
	ret = share_chunk(driver, error, &pointer);
	if (ret < 0)
		goto pop;
	ret = work(driver, error, pointer, page);
	RELEASE(cuMemUnmap, pointer, CHUNK);
	RELEASE(cuMemAddressFree, pointer, CHUNK);
pop:
	RELEASE(cuCtxPopCurrent, NULL);
release:
	RELEASE(cuDevicePrimaryCtxRelease, 0);
done:
	return ret;
}

static int run(struct kvw_cuda_error *error, void *page)
{
	struct kvw_cuda *driver;
	int ret = kvw_cuda_open(&driver, error);

	if (ret < 0)
		return ret;
	ret = in_context(driver, error, page);
	kvw_cuda_close(driver);
	return ret;
}

/* Returns how many calls the program makes when none fails. */
static uint64_t fail_each(unsigned code, int expected, void *page)
{
	uint64_t failed = 0;
	int ret;

	do {
		struct kvw_cuda_error error = {0};
		char left[256];

		kvt_cuda_fail(NULL, ++failed, code);
		ret = run(&error, page);
		kvt_cuda_fail(NULL, 0, 0);
		if (ret < 0) {
			assert_int_equal(ret, expected);
			assert_int_equal(error.result, code);
			assert_int_equal(strncmp(error.text, "cu", 2), 0);
		}
		if (kvt_cuda_live(getpid(), left, sizeof(left)))
			fprintf(stderr, "call %llu failed with '%s': %s\n", (unsigned long long)failed,
				error.text, left);
		assert_int_equal(kvt_cuda_live(getpid(), NULL, 0), 0);
	} while (ret < 0);
	return failed - 1;
}

static void a_failure_of_any_call_leaves_nothing(void **state)
{
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int fds;

	(void)state;
	(void)run(NULL, page); /* the double keeps descriptors of its own from here on */
	fds = kvt_count_fds();
	assert_true(fail_each(KVW_CUDA_UNKNOWN, -EIO, page) >= 30);
	assert_true(fail_each(KVW_CUDA_OUT_OF_MEMORY, -ENOMEM, page) >= 30);
	assert_true(fail_each(KVW_CUDA_LAUNCH_FAILED, -ENOTRECOVERABLE, page) >= 30);
	assert_int_equal(kvt_count_fds(), fds);
	munmap(page, 4096);
}

/* The harness itself: a call of one function only, from the n-th on, or each. */
static void a_call_is_chosen_by_function_and_number(void **state)
{
	struct kvw_cuda *driver;
	int count;

	(void)state;
	assert_int_equal(kvw_cuda_open(&driver, NULL), 0);
	kvt_cuda_fail("cuDeviceGetCount", 2, KVW_CUDA_NOT_PERMITTED);
	assert_int_equal(driver->cuDeviceGetCount(&count), 0);
	assert_int_equal(driver->cuDeviceGet(&count, 0), 0);
	assert_int_equal(driver->cuDeviceGetCount(&count), KVW_CUDA_NOT_PERMITTED);
	assert_int_equal(driver->cuDeviceGetCount(&count), 0);
	kvt_cuda_fail("cuDeviceGetCount", 0, KVW_CUDA_NOT_PERMITTED);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(driver->cuDeviceGetCount(&count), KVW_CUDA_NOT_PERMITTED);
	kvt_cuda_fail(NULL, 0, 0);
	assert_int_equal(driver->cuDeviceGetCount(&count), 0);
	assert_int_equal(kvt_cuda_calls(getpid(), "cuDeviceGetCount") > 7, true);
	kvw_cuda_close(driver);
}

static void *count_devices(void *arg)
{
	struct kvw_cuda *driver = arg;
	int count = 0;

	return driver->cuDeviceGetCount(&count) || count != 2 ? arg : NULL;
}

static bool one_hangs(void *arg)
{
	(void)arg;
	return kvt_cuda_hanging(getpid()) == 1;
}

/* Another thread goes on, and the books tell which thread called. */
static void a_call_hangs_until_it_is_let_go(void **state)
{
	struct kvw_cuda *driver;
	pthread_t thread;
	uint64_t before;
	void *failed;
	int device;

	(void)state;
	assert_int_equal(kvw_cuda_open(&driver, NULL), 0);
	kvt_cuda_hang(getpid(), "cuDeviceGetCount");
	before = kvt_cuda_process(getpid())->first_thread_calls;
	assert_int_equal(pthread_create(&thread, NULL, count_devices, driver), 0);
	kvt_wait_until(one_hangs, NULL);
	assert_int_equal(kvt_cuda_process(getpid())->first_thread_calls, before);
	assert_int_equal(driver->cuDeviceGet(&device, 1), 0);
	assert_int_equal(kvt_cuda_process(getpid())->first_thread_calls, before + 1);
	kvt_cuda_hang(getpid(), NULL);
	assert_int_equal(pthread_join(thread, &failed), 0);
	assert_null(failed);
	kvw_cuda_close(driver);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_failure_of_any_call_leaves_nothing),
		cmocka_unit_test(a_call_is_chosen_by_function_and_number),
		cmocka_unit_test(a_call_hangs_until_it_is_let_go),
	};
	struct kvw_cuda *first;

	(void)argc;
	kvt_cuda_start(argv);
	kvt_watchdog(60);
	if (kvw_cuda_open(&first, NULL))
		return 1;
	kvw_cuda_close(first);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
