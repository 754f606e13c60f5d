/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client is killed while its kernels write a pool of the daemon's device, in both ways of sharing. The daemon gives
 * blocks away again once the process is gone: that is right only if nothing of it writes then any more, and if the
 * daemon's own use of the device survives. The double can be told to break the first ($FAKECUDA_LATE_MS=3000 makes this
 * fail); a real device must not.
 */
#include "fixture.h"

#include "daemon/device_cuda.h"
#include "kernels/cuda/image.h"
#include "libclient/launch_cuda.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROUNDS 300
#define GRANULE (2u << 20)
#define DOUBLE_WORDS 4096u /* that the double's kernels write: they run on a CPU */

static const struct kvd_device_ops *const ops = &kvd_device_cuda;
static const _Atomic int never;

/* Under the double, as under_double.sh starts it: kernels run on the CPU. */
static bool is_slow(void)
{
	return getenv("FAKECUDA_MACHINE") != NULL;
}

/* What a client is told of the pool. */
struct pool {
	uint32_t share, chunk_count;
	uint64_t bytes, chunk_bytes;
	struct kvw_cuda_ipc_handle handle;
};

/* ------------------------------------------------------------------ the client */

static uint64_t map_chunk(uint64_t at, uint64_t bytes)
{
	uint64_t handle;
	char byte;
	int fd;

	kvt_cuda_receive(KVT_CUDA_ROLE_SOCKET, &byte, 1, &fd);
	OK(cuMemImportFromShareableHandle, &handle, (void *)(intptr_t)fd, KVW_CUDA_HANDLE_FD);
	OK(cuMemMap, at, bytes, 0, handle, 0);
	OK(cuMemRelease, handle);
	close(fd);
	return bytes;
}

static uint64_t map_pool(const struct pool *pool)
{
	static const struct kvw_cuda_access access = {{KVW_CUDA_LOCATION_DEVICE, 0},
						      KVW_CUDA_ACCESS_READ_WRITE};
	uint64_t pointer = 0;
	uint64_t done = 0;

	if (pool->share == KVD_SHARE_IPC) {
		OK(cuIpcOpenMemHandle, &pointer, pool->handle, KVW_CUDA_IPC_LAZY_PEER);
		return pointer;
	}
	OK(cuMemAddressReserve, &pointer, pool->bytes, 0, 0, 0);
	while (done < pool->bytes) {
		const uint64_t rest = pool->bytes - done;

		done += map_chunk(pointer + done, rest < pool->chunk_bytes ? rest : pool->chunk_bytes);
	}
	OK(cuMemSetAccess, pointer, pool->bytes, &access, 1);
	return pointer;
}

/* Fills the pool by kernels and copies, one behind the other, until it is killed: the parent sees the bytes change. */
static _Noreturn void writer_role(void)
{
	struct kvk_table_gather_params params = {.size = sizeof(params), .count = 1, .from_rows = 1};
	struct kvc_cuda_kernels *kernels;
	struct kvc_cuda_launcher launcher;
	struct pool pool;
	size_t bytes, words;
	uint64_t from, row;

	fixture_setup(NULL);
	kvt_cuda_receive(KVT_CUDA_ROLE_SOCKET, &pool, sizeof(pool), NULL);
	words = is_slow() ? DOUBLE_WORDS : pool.bytes / sizeof(int32_t);
	params.from_stride = params.to_stride = params.width = (int32_t)words;
	params.to = (int32_t *)(uintptr_t)(map_pool(&pool) + pool.bytes) - words;
	OK(cuMemAlloc, &from, pool.bytes);
	OK(cuMemAlloc, &row, sizeof(int32_t));
	fill_words(row, 0, 1);
	params.from = (const int32_t *)(uintptr_t)from;
	params.rows = (const int32_t *)(uintptr_t)row;
	assert_int_equal(kvc_cuda_kernels_load(cuda, kvk_cuda_image(&bytes), &kernels), 0);
	kvc_cuda_launcher_init(&launcher, kernels, stream);
	for (unsigned i = 1;; i++) {
		OK(cuMemsetD32Async, from, i, words, stream);
		assert_int_equal(kvk_table_gather_cuda(&launcher.device, &params), 0);
		OK(cuMemcpyDtoDAsync, (uint64_t)(uintptr_t)params.to, from, words * sizeof(uint32_t), stream);
		if (i % 64 == 0)
			OK(cuStreamSynchronize, stream);
	}
}

/* ------------------------------------------------------------------ the daemon's side */

static struct kvd_memory *make(enum kvd_share share, uint64_t bytes, struct kvd_cuda_sharing *sharing)
{
	struct kvd_memory_params params = {
		.name = "kill", .bytes = bytes, .device = "cuda:0", .share = share};
	struct kvd_memory *memory = NULL;
	_Atomic uint64_t progress = 0;

	assert_int_equal(ops->create(&params, &memory), 0);
	assert_int_equal(ops->populate(memory, &progress, &never), 0);
	assert_int_equal(kvd_cuda_sharing(memory, sharing), 0);
	return memory;
}

static void hand_out(const struct kvd_cuda_sharing *sharing, int role_socket)
{
	struct pool pool = {
		sharing->share, sharing->chunk_count, sharing->bytes, sharing->chunk_bytes, {{0}}};

	memcpy(&pool.handle, sharing->handle, sizeof(pool.handle));
	kvt_cuda_send(role_socket, &pool, sizeof(pool), -1);
	for (uint32_t i = 0; i < sharing->chunk_count; i++)
		kvt_cuda_send(role_socket, "", 1, sharing->fds[i]);
}

static uint32_t last_word(struct kvd_memory *memory)
{
	uint32_t word = 0;

	assert_int_equal(ops->read(memory, ops->bytes(memory) - sizeof(word), &word, sizeof(word)), 0);
	return word;
}

static bool is_written(void *memory)
{
	return last_word(memory) > 3;
}

static void check_quiet(struct kvd_memory *memory)
{
	const uint64_t at = ops->bytes(memory) - GRANULE;
	unsigned char *wrote = malloc(GRANULE);
	unsigned char *read = malloc(GRANULE);

	assert_true(wrote && read);
	memset(wrote, 0xd7, GRANULE);
	assert_int_equal(ops->write(memory, at, wrote, GRANULE), 0);
	for (unsigned i = 0; i < ROUNDS; i++) {
		assert_int_equal(ops->read(memory, at, read, GRANULE), 0);
		assert_memory_equal(wrote, read, GRANULE);
	}
	assert_false(kvd_cuda_lost(memory));
	free(read);
	free(wrote);
}

static void kill_a_writer(enum kvd_share share)
{
	struct kvd_cuda_sharing sharing;
	/* On a GPU large enough that a kernel runs for a while. */
	struct kvd_memory *memory = make(share, is_slow() ? GRANULE : 64ull * GRANULE, &sharing);
	int role_socket;
	pid_t pid = kvt_cuda_spawn("writer", NULL, &role_socket);

	hand_out(&sharing, role_socket);
	kvt_wait_until(is_written, memory);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(kvt_cuda_reap(pid), 128 + SIGKILL);
	check_quiet(memory);
	close(role_socket);
	ops->destroy(memory);
}

static void a_killed_writer_of_a_pool_by_handle_writes_no_more(void **state)
{
	(void)state;
	kill_a_writer(KVD_SHARE_IPC);
}

static void a_killed_writer_of_a_pool_by_descriptors_writes_no_more(void **state)
{
	(void)state;
	kill_a_writer(KVD_SHARE_FD);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_killed_writer_of_a_pool_by_handle_writes_no_more),
		cmocka_unit_test(a_killed_writer_of_a_pool_by_descriptors_writes_no_more),
	};

	(void)argc;
	kvt_cuda_start(argv);
	kvt_watchdog(100);
	if (kvt_cuda_role())
		writer_role();
	/* Reads of a pool by descriptors make a context each: one that is held makes them cheap. */
	return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
