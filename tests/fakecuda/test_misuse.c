/* SPDX-License-Identifier: Apache-2.0 */
/* Wrong use gets the driver's codes, and a lost context answers nothing else. */
#include "fixture.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void freed_handles_are_refused(void **state)
{
	struct kvw_cuda_stream *freed;
	struct kvw_cuda_event *event;
	uint64_t pointer;

	(void)state;
	OK(cuStreamCreate, &freed, 0);
	OK(cuStreamDestroy, freed);
	ANSWERS(KVW_CUDA_INVALID_HANDLE, cuStreamSynchronize, freed);
	ANSWERS(KVW_CUDA_INVALID_HANDLE, cuStreamDestroy, freed);
	OK(cuEventCreate, &event, 0);
	OK(cuEventDestroy, event);
	ANSWERS(KVW_CUDA_INVALID_HANDLE, cuEventRecord, event, stream);
	OK(cuMemAlloc, &pointer, 4096);
	ANSWERS(KVW_CUDA_INVALID_VALUE, cuMemsetD8Async, pointer, 0, 4097, stream);
	OK(cuMemFree, pointer);
	ANSWERS(KVW_CUDA_INVALID_VALUE, cuMemFree, pointer);
	ANSWERS(KVW_CUDA_INVALID_VALUE, cuMemsetD8Async, pointer, 0, 1, stream);
	OK(cuMemFree, 0);
}

/* One kind of handle is not taken for another. */
static void handles_of_another_kind_are_refused(void **state)
{
	struct kvw_cuda_event *event;

	(void)state;
	OK(cuEventCreate, &event, 0);
	ANSWERS(KVW_CUDA_INVALID_HANDLE, cuStreamSynchronize, (struct kvw_cuda_stream *)event);
	ANSWERS(KVW_CUDA_INVALID_HANDLE, cuEventDestroy, (struct kvw_cuda_event *)stream);
	OK(cuEventDestroy, event);
}

static void calls_need_a_current_context_of_the_right_device(void **state)
{
	struct kvw_cuda_context *other;
	struct kvw_cuda_context *popped;
	uint64_t pointer;

	(void)state;
	OK(cuMemAlloc, &pointer, 64);
	OK(cuCtxPopCurrent, &popped);
	assert_ptr_equal(popped, context);
	ANSWERS(KVW_CUDA_INVALID_CONTEXT, cuMemFree, pointer);
	ANSWERS(KVW_CUDA_INVALID_CONTEXT, cuCtxPushCurrent, (struct kvw_cuda_context *)&pointer);
	OK(cuDevicePrimaryCtxRetain, &other, 1);
	OK(cuCtxPushCurrent, other);
	ANSWERS(KVW_CUDA_INVALID_HANDLE, cuMemsetD8Async, pointer, 0, 64, stream);
	OK(cuCtxPopCurrent, NULL);
	OK(cuDevicePrimaryCtxRelease, 1);
	ANSWERS(KVW_CUDA_INVALID_CONTEXT, cuDevicePrimaryCtxRelease, 1);
	ANSWERS(KVW_CUDA_INVALID_CONTEXT, cuCtxPushCurrent, other);
	OK(cuCtxPushCurrent, context);
	OK(cuMemFree, pointer);
}

static void ranges_are_checked_across_mappings(void **state)
{
	static const struct kvw_cuda_allocation properties = {.type = KVW_CUDA_ALLOCATION_PINNED,
							      .location = {KVW_CUDA_LOCATION_DEVICE, 0}};
	static const struct kvw_cuda_access access = {{KVW_CUDA_LOCATION_DEVICE, 0},
						      KVW_CUDA_ACCESS_READ_WRITE};
	const size_t chunk = 2u << 20;
	uint64_t pointer;
	uint64_t handle;
	int fd;

	(void)state;
	ANSWERS(KVW_CUDA_INVALID_VALUE, cuMemCreate, &handle, chunk - 4096, &properties, 0);
	OK(cuMemCreate, &handle, chunk, &properties, 0);
	ANSWERS(KVW_CUDA_INVALID_VALUE, cuMemExportToShareableHandle, &fd, handle, KVW_CUDA_HANDLE_FD, 0);
	OK(cuMemAddressReserve, &pointer, 2 * chunk, 0, 0, 0);
	OK(cuMemMap, pointer, chunk, 0, handle, 0);
	ANSWERS(KVW_CUDA_ALREADY_MAPPED, cuMemMap, pointer, chunk, 0, handle, 0);
	ANSWERS(KVW_CUDA_INVALID_VALUE, cuMemsetD8Async, pointer, 0, 1, stream); /* no access yet */
	ANSWERS(KVW_CUDA_INVALID_VALUE, cuMemSetAccess, pointer, 2 * chunk, &access, 1);
	OK(cuMemSetAccess, pointer, chunk, &access, 1);
	OK(cuMemsetD8Async, pointer, 0, chunk, stream);
	ANSWERS(KVW_CUDA_INVALID_VALUE, cuMemsetD8Async, pointer, 0, chunk + 1, stream);
	ANSWERS(KVW_CUDA_INVALID_VALUE, cuMemAddressFree, pointer, 2 * chunk);
	OK(cuMemUnmap, pointer, chunk);
	ANSWERS(KVW_CUDA_INVALID_VALUE, cuMemUnmap, pointer, chunk);
	OK(cuMemAddressFree, pointer, 2 * chunk);
	OK(cuMemRelease, handle);
	ANSWERS(KVW_CUDA_INVALID_VALUE, cuMemRelease, handle);
}

/* After this the context answers the same to everything, other contexts go on, and what is freed is freed. */
static void a_lost_context_answers_one_code(void **state)
{
	struct kvw_cuda_context *other;
	struct kvw_cuda_error error;
	uint64_t pointer;
	uint64_t second;

	(void)state;
	OK(cuMemAlloc, &pointer, 64);
	kvt_cuda_fail("cuStreamSynchronize", 1, KVW_CUDA_ILLEGAL_ADDRESS);
	assert_int_equal(KVW_CUDA(cuda, &error, cuStreamSynchronize, stream), -ENOTRECOVERABLE);
	kvt_cuda_fail(NULL, 0, 0);
	ANSWERS(KVW_CUDA_ILLEGAL_ADDRESS, cuMemAlloc, &second, 64);
	ANSWERS(KVW_CUDA_ILLEGAL_ADDRESS, cuStreamQuery, stream);
	OK(cuDevicePrimaryCtxRetain, &other, 1);
	OK(cuCtxPushCurrent, other);
	OK(cuMemAlloc, &second, 64);
	OK(cuMemFree, second);
	OK(cuCtxPopCurrent, NULL);
	OK(cuDevicePrimaryCtxRelease, 1);
	ANSWERS(KVW_CUDA_ILLEGAL_ADDRESS, cuMemFree, pointer);
	ANSWERS(KVW_CUDA_ILLEGAL_ADDRESS, cuStreamDestroy, stream);
	OK(cuCtxPopCurrent, NULL);
	OK(cuDevicePrimaryCtxRelease, 0);
	kvw_cuda_close(cuda);
	assert_int_equal(kvt_cuda_live(getpid(), NULL, 0), 0);
	fixture_setup(NULL);
}

/* The role "toucher": the host reads device memory. */
static int toucher_role(void)
{
	uint64_t pointer;

	fixture_setup(NULL);
	OK(cuMemAlloc, &pointer, 4096);
	fill_words(pointer, 5, 1024);
	return *(volatile uint32_t *)(uintptr_t)pointer == 5 ? 0 : 1;
}

static void a_host_that_touches_device_memory_dies_when_asked_for(void **state)
{
	static const char *const protect[] = {"FAKECUDA_PROTECT=1", "ASAN_OPTIONS=handle_segv=0",
					      "TSAN_OPTIONS=handle_segv=0", NULL};
	int role_socket;
	pid_t pid = kvt_cuda_spawn("toucher", protect, &role_socket);

	(void)state;
	assert_int_equal(kvt_cuda_reap(pid), 128 + SIGSEGV);
	close(role_socket);
}

static void what_a_process_left_is_known_after_its_end(void **state)
{
	char left[256];
	int role_socket;
	pid_t pid = kvt_cuda_spawn("toucher", NULL, &role_socket);

	(void)state;
	assert_int_equal(kvt_cuda_reap(pid), 0);
	close(role_socket);
	assert_int_equal(kvt_cuda_live(pid, left, sizeof(left)), 3);
	assert_string_equal(left, "1 x retained context; 1 x allocation; 1 x stream; ");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(freed_handles_are_refused),
		cmocka_unit_test(handles_of_another_kind_are_refused),
		cmocka_unit_test(calls_need_a_current_context_of_the_right_device),
		cmocka_unit_test(ranges_are_checked_across_mappings),
		cmocka_unit_test(a_lost_context_answers_one_code),
		cmocka_unit_test(a_host_that_touches_device_memory_dies_when_asked_for),
		cmocka_unit_test(what_a_process_left_is_known_after_its_end),
	};

	(void)argc;
	kvt_cuda_start(argv);
	kvt_watchdog(60);
	if (kvt_cuda_role())
		return toucher_role();
	return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
