/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory in two real processes: by handle and by descriptor. What one writes the other reads, once
 * the writer's stream has done it; without that wait the other reads what was there before, and the first
 * test shows that it does.
 */
#include "fixture.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORDS (1u << 18)
#define BYTES (WORDS * sizeof(uint32_t))
#define CHUNKS 4
#define OLD 0x01d01d01u
#define NEW 0x0e30e30eu

/* What the other process is told to do, and what it answers. */
struct order {
	uint64_t pointer, bytes;
	uint32_t value, chunks;
	struct kvw_cuda_ipc_handle handle;
};

struct reply {
	uint64_t pointer, others;
	uint32_t first;
	int32_t ret;
};

static void serve(struct order *order, int *out_fd)
{
	kvt_cuda_receive(KVT_CUDA_ROLE_SOCKET, order, sizeof(*order), out_fd);
}

static void answer(const struct reply *reply)
{
	kvt_cuda_send(KVT_CUDA_ROLE_SOCKET, reply, sizeof(*reply), -1);
}

static struct reply ask(int role_socket, const struct order *order)
{
	struct reply reply;

	kvt_cuda_send(role_socket, order, sizeof(*order), -1);
	kvt_cuda_receive(role_socket, &reply, sizeof(reply), NULL);
	return reply;
}

/*
 * The role "importer": opens handles and says how many words are not as expected; an order without bytes
 * ends it.
 */
static int importer_role(void)
{
	struct order order;
	uint64_t pointer = 0;

	fixture_setup(NULL);
	for (serve(&order, NULL); order.bytes; serve(&order, NULL)) {
		struct reply reply = {0};
		uint32_t word;

		if (!pointer)
			reply.ret =
				(int)cuda->cuIpcOpenMemHandle(&pointer, order.handle, KVW_CUDA_IPC_LAZY_PEER);
		if (!reply.ret) {
			reply.pointer = pointer;
			reply.others = count_others(pointer, order.value, order.bytes / sizeof(word));
			read_words(pointer, &word, 1);
			reply.first = word;
		}
		answer(&reply);
	}
	if (pointer)
		OK(cuIpcCloseMemHandle, pointer);
	fixture_teardown(NULL);
	return 0;
}

static void end_role(pid_t pid, int role_socket)
{
	struct order end = {0};

	kvt_cuda_send(role_socket, &end, sizeof(end), -1);
	assert_int_equal(kvt_cuda_reap(pid), 0);
	close(role_socket);
}

static uint64_t make_shared(struct order *order)
{
	uint64_t pointer;

	OK(cuMemAlloc, &pointer, BYTES);
	fill_words(pointer, OLD, WORDS);
	*order = (struct order){.pointer = pointer, .bytes = BYTES, .value = OLD};
	OK(cuIpcGetMemHandle, &order->handle, pointer);
	return pointer;
}

/* Fails when the wait before the question is left out: that is the first half. */
static void by_handle_the_other_reads_what_the_stream_has_done(void **state)
{
	struct order order;
	uint64_t pointer = make_shared(&order);
	struct kvw_cuda_stream *held;
	uint64_t word;
	void *page = make_registered_page(&word);
	struct reply reply;
	int role_socket;
	pid_t pid = kvt_cuda_spawn("importer", NULL, &role_socket);

	(void)state;
	reply = ask(role_socket, &order);
	assert_int_equal(reply.ret, 0);
	assert_int_equal(reply.others, 0);
	if (kvt_cuda_is_double())
		assert_int_not_equal(reply.pointer, pointer);

	/* Queued, not done: the new bytes are not there, however long the other takes to look. */
	OK(cuStreamCreate, &held, KVW_CUDA_STREAM_NON_BLOCKING);
	OK(cuStreamWaitValue64, held, word, 1, KVW_CUDA_WAIT_GEQ);
	OK(cuMemsetD32Async, pointer, NEW, WORDS, held);
	order.value = NEW;
	reply = ask(role_socket, &order);
	assert_int_equal(reply.others, WORDS);
	assert_int_equal(reply.first, OLD);

	__atomic_store_n((uint64_t *)page, 1, __ATOMIC_RELEASE);
	OK(cuStreamSynchronize, held);
	assert_int_equal(ask(role_socket, &order).others, 0);

	end_role(pid, role_socket);
	OK(cuStreamDestroy, held);
	drop_registered_page(page);
	OK(cuMemFree, pointer);
}

/* The control with nothing that holds the stream back: late is the default. */
static void without_a_wait_the_other_reads_stale_bytes(void **state)
{
	static const char *const slow[] = {"FAKECUDA_DELAY_US=5000000", NULL};
	struct order order = {.bytes = 1};
	struct reply reply;
	uint64_t pointer = 0;
	int role_socket;
	pid_t pid = kvt_cuda_spawn("late", slow, &role_socket);

	(void)state;
	kvt_cuda_receive(role_socket, &order, sizeof(order), NULL);
	OK(cuIpcOpenMemHandle, &pointer, order.handle, KVW_CUDA_IPC_LAZY_PEER);
	assert_int_equal(count_others(pointer, OLD, WORDS), 0);
	reply = ask(role_socket, &order);
	assert_int_equal(reply.ret, 0);
	assert_int_equal(count_others(pointer, NEW, WORDS), 0);
	OK(cuIpcCloseMemHandle, pointer);
	end_role(pid, role_socket);
}

/* The role "late": queues the new bytes and hands out the handle at once; waits when told to. */
static int late_role(void)
{
	struct reply reply = {0};
	struct order order;
	uint64_t pointer;

	fixture_setup(NULL);
	pointer = make_shared(&order);
	OK(cuMemsetD32Async, pointer, NEW, WORDS, stream);
	kvt_cuda_send(KVT_CUDA_ROLE_SOCKET, &order, sizeof(order), -1);
	serve(&order, NULL);
	OK(cuStreamSynchronize, stream);
	answer(&reply);
	serve(&order, NULL);
	OK(cuMemFree, pointer);
	fixture_teardown(NULL);
	return 0;
}

static void the_owner_can_not_open_its_own_handle(void **state)
{
	struct order order;
	uint64_t pointer = make_shared(&order);
	uint64_t opened = 0;

	(void)state;
	ANSWERS(KVW_CUDA_INVALID_CONTEXT, cuIpcOpenMemHandle, &opened, order.handle, KVW_CUDA_IPC_LAZY_PEER);
	ANSWERS(KVW_CUDA_INVALID_VALUE, cuIpcOpenMemHandle, &opened, order.handle, 0);
	ANSWERS(KVW_CUDA_INVALID_VALUE, cuIpcGetMemHandle, &order.handle, pointer + 4096);
	OK(cuMemFree, pointer);
}

static void a_freed_allocation_can_not_be_opened(void **state)
{
	struct order order;
	uint64_t pointer = make_shared(&order);
	int role_socket;
	pid_t pid = kvt_cuda_spawn("importer", NULL, &role_socket);

	(void)state;
	OK(cuMemFree, pointer);
	assert_int_equal(ask(role_socket, &order).ret, KVW_CUDA_INVALID_HANDLE);
	end_role(pid, role_socket);
}

static void a_handle_of_an_earlier_process_of_that_number_is_refused(void **state)
{
	struct order order = {.bytes = 1};
	uint64_t pointer = 0;
	int role_socket;
	pid_t pid = kvt_cuda_spawn("late", NULL, &role_socket);

	(void)state;
	kvt_cuda_receive(role_socket, &order, sizeof(order), NULL);
	order.handle.bytes[16] ^= 1; /* the start time, in the double's handles */
	ANSWERS(KVW_CUDA_INVALID_HANDLE, cuIpcOpenMemHandle, &pointer, order.handle, KVW_CUDA_IPC_LAZY_PEER);
	(void)ask(role_socket, &order);
	end_role(pid, role_socket);
}

/* Opens twice: the same address, closed as often. Then the owner dies. */
static void a_mapping_outlives_its_owner_and_a_handle_does_not(void **state)
{
	struct order order = {.bytes = 1};
	uint64_t pointer = 0;
	uint64_t again = 0;
	int role_socket;
	pid_t pid = kvt_cuda_spawn("late", NULL, &role_socket);

	(void)state;
	kvt_cuda_receive(role_socket, &order, sizeof(order), NULL);
	(void)ask(role_socket, &order);
	OK(cuIpcOpenMemHandle, &pointer, order.handle, KVW_CUDA_IPC_LAZY_PEER);
	OK(cuIpcOpenMemHandle, &again, order.handle, KVW_CUDA_IPC_LAZY_PEER);
	assert_int_equal(again, pointer);
	OK(cuIpcCloseMemHandle, again);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(kvt_cuda_reap(pid), 128 + SIGKILL);
	close(role_socket);
	assert_int_equal(count_others(pointer, NEW, WORDS), 0);
	OK(cuIpcCloseMemHandle, pointer);
	ANSWERS(KVW_CUDA_INVALID_HANDLE, cuIpcOpenMemHandle, &pointer, order.handle, KVW_CUDA_IPC_LAZY_PEER);
	ANSWERS(KVW_CUDA_INVALID_VALUE, cuIpcCloseMemHandle, pointer);
}

static const struct kvw_cuda_allocation properties = {.type = KVW_CUDA_ALLOCATION_PINNED,
						      .handle_types = KVW_CUDA_HANDLE_FD,
						      .location = {KVW_CUDA_LOCATION_DEVICE, 0}};
static const struct kvw_cuda_access access_all = {{KVW_CUDA_LOCATION_DEVICE, 0}, KVW_CUDA_ACCESS_READ_WRITE};
static const struct kvw_cuda_access access_read = {{KVW_CUDA_LOCATION_DEVICE, 0}, KVW_CUDA_ACCESS_READ};

static size_t granularity(void)
{
	size_t bytes = 0;

	OK(cuMemGetAllocationGranularity, &bytes, &properties, KVW_CUDA_GRANULARITY_RECOMMENDED);
	return bytes;
}

/* One range from the chunks' descriptors, one cuMemSetAccess() for all. */
static uint64_t map_chunks(const int *fds, unsigned count, const struct kvw_cuda_access *access)
{
	size_t chunk = granularity();
	uint64_t pointer;
	uint64_t handle;

	OK(cuMemAddressReserve, &pointer, count * chunk, 0, 0, 0);
	for (unsigned i = 0; i < count; i++) {
		OK(cuMemImportFromShareableHandle, &handle, (void *)(intptr_t)fds[i], KVW_CUDA_HANDLE_FD);
		OK(cuMemMap, pointer + i * chunk, chunk, 0, handle, 0);
		OK(cuMemRelease, handle);
	}
	OK(cuMemSetAccess, pointer, count * chunk, access, 1);
	return pointer;
}

static void unmap_chunks(uint64_t pointer, unsigned count)
{
	OK(cuMemUnmap, pointer, count * granularity());
	OK(cuMemAddressFree, pointer, count * granularity());
}

/*
 * The role "mapper": maps the descriptors that come, reads, writes back the value plus one over all of them.
 */
static int mapper_role(void)
{
	struct reply reply = {0};
	struct order order;
	int fds[CHUNKS];
	size_t words;

	fixture_setup(NULL);
	for (unsigned i = 0; i < CHUNKS; i++)
		serve(&order, &fds[i]);
	words = CHUNKS * granularity() / sizeof(uint32_t);
	reply.pointer = map_chunks(fds, CHUNKS, &access_all);
	for (unsigned i = 0; i < CHUNKS; i++)
		close(fds[i]);
	reply.others = count_others(reply.pointer, order.value, words);
	/* Across chunks: to the device neighbouring mappings are one memory. */
	fill_words(reply.pointer, order.value + 1, words);
	answer(&reply);
	serve(&order, NULL);
	unmap_chunks(reply.pointer, CHUNKS);
	fixture_teardown(NULL);
	return 0;
}

static void create_chunks(uint64_t *handles, int *fds)
{
	for (unsigned i = 0; i < CHUNKS; i++) {
		OK(cuMemCreate, &handles[i], granularity(), &properties, 0);
		OK(cuMemExportToShareableHandle, &fds[i], handles[i], KVW_CUDA_HANDLE_FD, 0);
	}
}

static void by_descriptor_both_read_what_the_other_wrote(void **state)
{
	struct order order = {.value = NEW, .chunks = CHUNKS};
	uint64_t handles[CHUNKS];
	struct reply reply;
	int fds[CHUNKS];
	uint64_t pointer;
	int role_socket;
	pid_t pid = kvt_cuda_spawn("mapper", NULL, &role_socket);
	size_t words = CHUNKS * granularity() / sizeof(uint32_t);

	(void)state;
	create_chunks(handles, fds);
	pointer = map_chunks(fds, CHUNKS, &access_all);
	fill_words(pointer, NEW, words);
	for (unsigned i = 0; i < CHUNKS; i++) {
		kvt_cuda_send(role_socket, &order, sizeof(order), fds[i]);
		close(fds[i]);
		OK(cuMemRelease, handles[i]);
	}
	kvt_cuda_receive(role_socket, &reply, sizeof(reply), NULL);
	assert_int_equal(reply.others, 0);
	assert_int_not_equal(reply.pointer, pointer);
	assert_int_equal(count_others(pointer, NEW + 1, words), 0);
	if (kvt_cuda_is_double())
		assert_int_equal(kvt_cuda_calls(pid, "cuMemSetAccess"), 1);
	end_role(pid, role_socket);
	unmap_chunks(pointer, CHUNKS);
}

static void a_read_only_mapping_loses_its_context_when_written(void **state)
{
	uint64_t handles[CHUNKS];
	int fds[CHUNKS];
	uint64_t pointer;
	uint32_t word;

	(void)state;
	create_chunks(handles, fds);
	pointer = map_chunks(fds, 1, &access_read);
	read_words(pointer, &word, 1);
	OK(cuMemsetD32Async, pointer, 1, 1, stream);
	ANSWERS(KVW_CUDA_ILLEGAL_ADDRESS, cuStreamSynchronize, stream);
	ANSWERS(KVW_CUDA_ILLEGAL_ADDRESS, cuMemAlloc, &pointer, 1);
	OK(cuMemUnmap, pointer, granularity());
	OK(cuMemAddressFree, pointer, granularity());
	for (unsigned i = 0; i < CHUNKS; i++) {
		close(fds[i]);
		OK(cuMemRelease, handles[i]);
	}
	ANSWERS(KVW_CUDA_ILLEGAL_ADDRESS, cuStreamDestroy, stream);
	/* The last release takes the lost context away; the next is a new one. */
	OK(cuCtxPopCurrent, NULL);
	OK(cuDevicePrimaryCtxRelease, 0);
	kvw_cuda_close(cuda);
	fixture_setup(NULL);
}

static void a_descriptor_that_is_no_memory_is_refused(void **state)
{
	uint64_t handle;
	int fds[2];

	(void)state;
	assert_int_equal(pipe(fds), 0);
	ANSWERS(KVW_CUDA_INVALID_VALUE, cuMemImportFromShareableHandle, &handle, (void *)(intptr_t)fds[0],
		KVW_CUDA_HANDLE_FD);
	ANSWERS(KVW_CUDA_INVALID_VALUE, cuMemImportFromShareableHandle, &handle, (void *)(intptr_t)-1,
		KVW_CUDA_HANDLE_FD);
	close(fds[0]);
	close(fds[1]);
}

/*
 * The role "signaller": fills, then writes the word that the other's stream waits for; all on one stream,
 * and only when told to.
 */
static int signaller_role(void)
{
	struct kvw_cuda_ipc_handle event_handle;
	struct kvw_cuda_event *event;
	struct reply reply = {0};
	struct order order;
	uint64_t pointer = 0;

	fixture_setup(NULL);
	serve(&order, NULL);
	OK(cuIpcOpenMemHandle, &pointer, order.handle, KVW_CUDA_IPC_LAZY_PEER);
	serve(&order, NULL);
	event_handle = order.handle;
	OK(cuIpcOpenEventHandle, &event, event_handle);
	/* Words 0 and 1 are the signal, the rest the bytes. */
	OK(cuMemsetD32Async, pointer + 8, NEW, WORDS - 2, stream);
	OK(cuStreamWriteValue64, stream, pointer, 7, KVW_CUDA_WRITE_DEFAULT);
	OK(cuEventRecord, event, stream);
	answer(&reply);
	serve(&order, NULL);
	OK(cuStreamSynchronize, stream);
	OK(cuEventDestroy, event);
	OK(cuIpcCloseMemHandle, pointer);
	fixture_teardown(NULL);
	return 0;
}

static void a_stream_waits_for_another_processs_word(void **state)
{
	struct order order;
	uint64_t pointer = make_shared(&order);
	struct kvw_cuda_event *event;
	uint64_t copy;
	int role_socket;
	pid_t pid = kvt_cuda_spawn("signaller", NULL, &role_socket);

	(void)state;
	fill_words(pointer, 0, 2);
	OK(cuMemAlloc, &copy, BYTES);
	OK(cuEventCreate, &event, KVW_CUDA_EVENT_INTERPROCESS | KVW_CUDA_EVENT_DISABLE_TIMING);
	OK(cuStreamWaitValue64, stream, pointer, 7, KVW_CUDA_WAIT_GEQ);
	OK(cuMemcpyDtoDAsync, copy, pointer, BYTES, stream);
	kvt_cuda_send(role_socket, &order, sizeof(order), -1);
	ANSWERS(KVW_CUDA_NOT_READY, cuStreamQuery, stream);
	OK(cuIpcGetEventHandle, &order.handle, event);
	(void)ask(role_socket, &order);
	assert_int_equal(count_others(copy + 8, NEW, WORDS - 2), 0);
	OK(cuEventSynchronize, event);
	end_role(pid, role_socket);
	OK(cuEventDestroy, event);
	OK(cuMemFree, copy);
	OK(cuMemFree, pointer);
}

/*
 * The memory limit is the device's, not the process's; a killed owner's memory counts while somebody maps
 * it.
 */
static void the_memory_limit_is_shared_and_follows_the_living(void **state)
{
	struct order order = {.bytes = 1};
	uint64_t pointer = 0;
	size_t before;
	size_t after;
	size_t total;
	int role_socket;
	pid_t pid;

	(void)state;
	OK(cuMemGetInfo, &before, &total);
	pid = kvt_cuda_spawn("late", NULL, &role_socket);
	kvt_cuda_receive(role_socket, &order, sizeof(order), NULL);
	OK(cuMemGetInfo, &after, &total);
	assert_int_equal(before - after, BYTES);
	OK(cuIpcOpenMemHandle, &pointer, order.handle, KVW_CUDA_IPC_LAZY_PEER);
	kill(pid, SIGKILL);
	(void)kvt_cuda_reap(pid);
	close(role_socket);
	OK(cuMemGetInfo, &after, &total);
	assert_int_equal(before - after, BYTES);
	ANSWERS(KVW_CUDA_OUT_OF_MEMORY, cuMemAlloc, &pointer, before);
	OK(cuIpcCloseMemHandle, pointer);
	OK(cuMemGetInfo, &after, &total);
	assert_int_equal(before, after);
}

/* Dead, though its parent has not been told yet: its memory is free. */
static void a_dead_process_uses_no_memory_before_it_is_waited_for(void **state)
{
	struct order order;
	siginfo_t info;
	size_t before;
	size_t after;
	size_t total;
	int role_socket;
	pid_t pid;

	(void)state;
	OK(cuMemGetInfo, &before, &total);
	pid = kvt_cuda_spawn("late", NULL, &role_socket);
	kvt_cuda_receive(role_socket, &order, sizeof(order), NULL);
	kill(pid, SIGKILL);
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	OK(cuMemGetInfo, &after, &total);
	assert_int_equal(before, after);
	(void)kvt_cuda_reap(pid);
	close(role_socket);
}

static int run_role(const char *role)
{
	if (!strcmp(role, "importer"))
		return importer_role();
	if (!strcmp(role, "late"))
		return late_role();
	if (!strcmp(role, "mapper"))
		return mapper_role();
	return signaller_role();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(by_handle_the_other_reads_what_the_stream_has_done),
		cmocka_unit_test(without_a_wait_the_other_reads_stale_bytes),
		cmocka_unit_test(the_owner_can_not_open_its_own_handle),
		cmocka_unit_test(a_freed_allocation_can_not_be_opened),
		cmocka_unit_test(a_handle_of_an_earlier_process_of_that_number_is_refused),
		cmocka_unit_test(a_mapping_outlives_its_owner_and_a_handle_does_not),
		cmocka_unit_test(by_descriptor_both_read_what_the_other_wrote),
		cmocka_unit_test(a_read_only_mapping_loses_its_context_when_written),
		cmocka_unit_test(a_descriptor_that_is_no_memory_is_refused),
		cmocka_unit_test(a_stream_waits_for_another_processs_word),
		cmocka_unit_test(the_memory_limit_is_shared_and_follows_the_living),
		cmocka_unit_test(a_dead_process_uses_no_memory_before_it_is_waited_for),
	};
	char *seed = NULL;

	(void)argc;
	/* One seed for all processes: that addresses differ has no chance's help. */
	if (!getenv("KVP_SEED") && asprintf(&seed, "%llu", (unsigned long long)kvt_seed()) > 0)
		setenv("KVP_SEED", seed, 1);
	free(seed);
	kvt_cuda_start(argv);
	kvt_watchdog(60);
	if (kvt_cuda_role())
		return run_role(kvt_cuda_role());
	return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
