/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A killed client's device goes on: what its queued operations would have written is overwritten for a while
 * after its death is known. Memory of which nothing was queued stays as it is, and a client that finished
 * leaves nothing behind.
 */
#include "fixture.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#define WORDS 4096u
#define BYTES (WORDS * 4u)
#define LATE_WORD 0xeeeeeeeeu
/* Long enough that the test sees it in progress on a busy machine. */
static const char *const late[] = {"FAKECUDA_LATE_MS=1500", NULL};

struct offer {
	struct kvw_cuda_ipc_handle handle;
	uint32_t finish;
};

/*
 * The role "victim": half of its memory is about to be written by an operation that never comes to its turn.
 */
static int victim_role(void)
{
	struct offer offer = {0};
	uint64_t pointer;
	uint64_t word;
	void *page;

	fixture_setup(NULL);
	page = make_registered_page(&word);
	OK(cuMemAlloc, &pointer, BYTES);
	fill_words(pointer, 1, WORDS);
	OK(cuIpcGetMemHandle, &offer.handle, pointer);
	OK(cuStreamWaitValue64, stream, word, 1, KVW_CUDA_WAIT_GEQ);
	OK(cuMemsetD32Async, pointer, 2, WORDS / 2, stream);
	kvt_cuda_send(KVT_CUDA_ROLE_SOCKET, &offer, sizeof(offer), -1);
	kvt_cuda_receive(KVT_CUDA_ROLE_SOCKET, &offer, sizeof(offer), NULL);
	__atomic_store_n((uint64_t *)page, 1, __ATOMIC_RELEASE);
	OK(cuMemFree, pointer);
	drop_registered_page(page);
	fixture_teardown(NULL);
	return 0;
}

static bool wrote(void *arg)
{
	return kvt_cuda_machine()->late_writes > *(uint64_t *)arg;
}

static bool no_writer(void *arg)
{
	(void)arg;
	return kvt_cuda_machine()->late_writers == 0;
}

static void a_killed_clients_device_writes_on_for_a_while(void **state)
{
	uint64_t before = kvt_cuda_machine()->late_writes;
	struct offer offer;
	uint64_t pointer = 0;
	uint64_t now;
	int role_socket;
	pid_t pid = kvt_cuda_spawn("victim", late, &role_socket);

	(void)state;
	kvt_cuda_receive(role_socket, &offer, sizeof(offer), NULL);
	OK(cuIpcOpenMemHandle, &pointer, offer.handle, KVW_CUDA_IPC_LAZY_PEER);
	assert_int_equal(count_others(pointer, 1, WORDS), 0);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(kvt_cuda_reap(pid), 128 + SIGKILL);
	kvt_wait_until(wrote, &before);
	assert_int_equal(count_others(pointer, LATE_WORD, WORDS / 2), 0);
	assert_int_equal(count_others(pointer + BYTES / 2, 1, WORDS / 2), 0);

	/* Whoever takes the block over now finds it spoiled. */
	fill_words(pointer, 3, WORDS);
	now = kvt_cuda_machine()->late_writes + 1;
	kvt_wait_until(wrote, &now);
	assert_int_equal(count_others(pointer, LATE_WORD, WORDS / 2), 0);

	kvt_wait_until(no_writer, NULL);
	fill_words(pointer, 3, WORDS);
	assert_int_equal(count_others(pointer, 3, WORDS), 0);
	close(role_socket);
	OK(cuIpcCloseMemHandle, pointer);
}

static void a_client_that_finished_leaves_no_writer(void **state)
{
	uint64_t before = kvt_cuda_machine()->late_writes;
	struct offer offer;
	int role_socket;
	pid_t pid = kvt_cuda_spawn("victim", late, &role_socket);

	(void)state;
	kvt_cuda_receive(role_socket, &offer, sizeof(offer), NULL);
	kvt_cuda_send(role_socket, &offer, sizeof(offer), -1);
	assert_int_equal(kvt_cuda_reap(pid), 0);
	close(role_socket);
	kvt_wait_until(no_writer, NULL);
	assert_int_equal(kvt_cuda_machine()->late_writes, before);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_killed_clients_device_writes_on_for_a_while),
		cmocka_unit_test(a_client_that_finished_leaves_no_writer),
	};

	(void)argc;
	kvt_cuda_start(argv);
	kvt_watchdog(60);
	if (kvt_cuda_role())
		return victim_role();
	return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
