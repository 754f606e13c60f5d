/* SPDX-License-Identifier: Apache-2.0 */
/* Opening the driver: each machine it can meet, in a process of its own, and what a failed call says. */
#include "fixture.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kvpool/error.h>

struct answer {
	int ret;
	int version;
	int devices;
	unsigned result;
	char text[KVW_CUDA_ERROR_BYTES];
};

/* The role "open": what kvw_cuda_open() says in a fresh process. */
static int open_role(void)
{
	struct kvw_cuda_error error = {0};
	struct kvw_cuda *handle = NULL;
	struct answer answer = {.ret = kvw_cuda_open(&handle, &error), .result = error.result};

	if (handle) {
		answer.version = handle->version;
		answer.devices = handle->devices;
	}
	memcpy(answer.text, error.text, sizeof(answer.text));
	kvw_cuda_close(handle);
	kvt_cuda_send(KVT_CUDA_ROLE_SOCKET, &answer, sizeof(answer), -1);
	return 0;
}

static struct answer opened(const char *variable, const char *another)
{
	const char *environment[] = {variable, another, NULL};
	struct answer answer;
	int role_socket;
	pid_t pid = kvt_cuda_spawn("open", environment, &role_socket);

	kvt_cuda_receive(role_socket, &answer, sizeof(answer), NULL);
	assert_int_equal(kvt_cuda_reap(pid), 0);
	close(role_socket);
	return answer;
}

/* One sentence: what is wrong, with its number, and what helps. */
static void assert_says(const struct answer *answer, int ret, const char *thing, const char *remedy)
{
	if (answer->ret != ret || !strstr(answer->text, thing) || !strstr(answer->text, remedy))
		fprintf(stderr, "%d: %s\n", answer->ret, answer->text);
	assert_int_equal(answer->ret, ret);
	assert_non_null(strstr(answer->text, thing));
	assert_non_null(strstr(answer->text, remedy));
	assert_null(strchr(answer->text, '\n'));
}

static void a_driver_with_devices_opens(void **state)
{
	struct answer answer = opened("FAKECUDA_DEVICES=3", NULL);

	(void)state;
	assert_int_equal(answer.ret, 0);
	assert_int_equal(answer.version, 12080);
	assert_int_equal(answer.devices, 3);
}

static void a_missing_driver_is_named(void **state)
{
	struct answer answer = opened("LD_LIBRARY_PATH=/nonexistent", NULL);

	(void)state;
	if (!answer.ret || !strstr(answer.text, "libcuda.so.1"))
		skip(); /* this machine has a driver in the loader's own path */
	assert_says(&answer, -ENODEV, "no CUDA driver", "install the NVIDIA driver");
}

static void a_stub_is_told_from_a_driver(void **state)
{
	struct answer answer = opened("FAKECUDA_STUB=1", NULL);

	(void)state;
	assert_says(&answer, -ENODEV, "stub", "'stubs' folder out of the library path");
	assert_int_equal(answer.result, KVW_CUDA_STUB_LIBRARY);
}

static void the_toolkits_stub_is_told_from_a_driver(void **state)
{
	char *folder = kvt_mkdtemp();
	char *link_path = NULL;
	char *variable = NULL;
	struct answer answer;

	(void)state;
	if (!CUDA_STUB[0] || access(CUDA_STUB, R_OK)) {
		kvt_rmdir(folder);
		skip();
	}
	assert_true(asprintf(&link_path, "%s/libcuda.so.1", folder) > 0);
	assert_true(asprintf(&variable, "LD_LIBRARY_PATH=%s", folder) > 0);
	assert_int_equal(symlink(CUDA_STUB, link_path), 0);
	answer = opened(variable, NULL);
	kvt_rmdir(folder);
	free(link_path);
	free(variable);
	assert_says(&answer, -ENODEV, "stub", "'stubs' folder out of the library path");
}

static void a_driver_before_versioned_functions_is_too_old(void **state)
{
	struct answer answer = opened("LD_LIBRARY_PATH=" FAKECUDA_DIR "/old", NULL);

	(void)state;
	assert_says(&answer, -ENOSYS, "too old: it supports CUDA 11.4, kvpool needs 12.0", "install driver");
}

static void a_driver_below_the_minimum_is_too_old(void **state)
{
	struct answer answer = opened("FAKECUDA_VERSION=11080", NULL);

	(void)state;
	assert_says(&answer, -ENOSYS, "too old: it supports CUDA 11.8, kvpool needs 12.0", "install driver");
	answer = opened("FAKECUDA_VERSION=12000", NULL);
	assert_int_equal(answer.ret, 0);
}

static void no_device_is_named(void **state)
{
	struct answer answer = opened("FAKECUDA_DEVICES=0", NULL);

	(void)state;
	assert_says(&answer, -ENODEV, "sees no device", "CUDA_VISIBLE_DEVICES");
	assert_int_equal(answer.result, KVW_CUDA_NO_DEVICE);
}

static void a_failing_start_names_call_and_result(void **state)
{
	struct answer answer = opened("FAKECUDA_FAIL_FUNCTION=cuInit", "FAKECUDA_FAIL_CODE=803");

	(void)state;
	assert_says(&answer, -ENODEV, "cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)",
		    "of different versions");
}

static void a_failed_call_names_itself_and_its_result(void **state)
{
	struct kvw_cuda_error error = {0};
	uint64_t pointer = 17;

	(void)state;
	assert_int_equal(fixture_setup(NULL), 0);
	assert_int_equal(KVW_CUDA(cuda, &error, cuMemAlloc, &pointer, UINT64_C(1) << 50), -ENOMEM);
	assert_string_equal(error.text, "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2): not enough device memory, "
					"or too little memory to lock");
	assert_int_equal(error.result, KVW_CUDA_OUT_OF_MEMORY);
	assert_int_equal(pointer, 17);
	assert_int_equal(KVW_CUDA(cuda, NULL, cuMemFree, 0x1234), -EINVAL);
	assert_int_equal(kvw_cuda_check(cuda, &error, 4711, "cuThing"), -EIO);
	assert_string_equal(error.text, "cuThing: an unknown CUresult (4711): an error of the double");
	assert_int_equal(kvw_cuda_check(cuda, &error, KVW_CUDA_LAUNCH_FAILED, "cuThing"), -ENOTRECOVERABLE);
	assert_string_equal(kvw_cuda_result_name(700), "CUDA_ERROR_ILLEGAL_ADDRESS");
	assert_null(kvw_cuda_result_name(4711));
	assert_int_equal(fixture_teardown(NULL), 0);
}

/* In the child: the handle is dead, and so is the driver that the parent started. */
static int child_of_fork(void)
{
	struct kvw_cuda *another = NULL;
	struct kvw_cuda_error error;
	int count;

	if (KVW_CUDA(cuda, &error, cuDeviceGetCount, &count) != -KVP_EFORKED || !strstr(error.text, "exec()"))
		return 1;
	if (kvw_cuda_open(&another, &error) != -KVP_EFORKED || !strstr(error.text, "before fork()"))
		return 2;
	kvw_cuda_close(cuda);
	return 0;
}

static void a_handle_is_dead_in_a_forked_child(void **state)
{
	pid_t pid;
	int count;

	(void)state;
	assert_int_equal(fixture_setup(NULL), 0);
	pid = fork();
	if (!pid)
		_exit(child_of_fork());
	assert_int_equal(kvt_cuda_reap(pid), 0);
	OK(cuDeviceGetCount, &count);
	assert_int_equal(fixture_teardown(NULL), 0);
}

static void devices_are_found_by_number_uuid_and_bus(void **state)
{
	struct kvw_cuda_uuid first;
	struct kvw_cuda_uuid second;
	char bus[32];
	int device = -1;

	(void)state;
	assert_int_equal(fixture_setup(NULL), 0);
	OK(cuDeviceGetUuid, &first, 0);
	OK(cuDeviceGetUuid, &second, 1);
	assert_memory_not_equal(&first, &second, sizeof(first));
	OK(cuDeviceGetPCIBusId, bus, sizeof(bus), 1);
	OK(cuDeviceGetByPCIBusId, &device, bus);
	assert_int_equal(device, 1);
	ANSWERS(KVW_CUDA_INVALID_DEVICE, cuDeviceGet, &device, 2);
	assert_int_equal(fixture_teardown(NULL), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_driver_with_devices_opens),
		cmocka_unit_test(a_missing_driver_is_named),
		cmocka_unit_test(a_stub_is_told_from_a_driver),
		cmocka_unit_test(the_toolkits_stub_is_told_from_a_driver),
		cmocka_unit_test(a_driver_before_versioned_functions_is_too_old),
		cmocka_unit_test(a_driver_below_the_minimum_is_too_old),
		cmocka_unit_test(no_device_is_named),
		cmocka_unit_test(a_failing_start_names_call_and_result),
		cmocka_unit_test(a_failed_call_names_itself_and_its_result),
		cmocka_unit_test(a_handle_is_dead_in_a_forked_child),
		cmocka_unit_test(devices_are_found_by_number_uuid_and_bus),
	};

	(void)argc;
	kvt_cuda_start(argv);
	kvt_watchdog(60);
	if (kvt_cuda_role())
		return open_role();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
