/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpoold's CUDA device on the double: finding it, both ways of sharing and the choice between them, and
 * every failure on the way.
 */
#include "fixture.h"

#include "daemon/device_cuda.h"
#include "daemon/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BYTES ((UINT64_C(200) << 20) + 12345)
#define GRANULE (2u << 20)

static const struct kvd_device_ops *const ops = &kvd_device_cuda;
static const _Atomic int never;

static struct kvd_memory *make(const char *device, enum kvd_share share, uint64_t bytes)
{
	struct kvd_memory_params params = {.name = "test", .bytes = bytes, .device = device, .share = share};
	struct kvd_memory *memory = NULL;

	assert_int_equal(ops->create(&params, &memory), 0);
	return memory;
}

static int populate(struct kvd_memory *memory)
{
	_Atomic uint64_t progress = 0;
	int ret = ops->populate(memory, &progress, &never);

	assert_int_equal(progress, ret ? 0 : ops->bytes(memory));
	return ret;
}

static struct kvd_memory *made(const char *device, enum kvd_share share, struct kvd_cuda_sharing *sharing)
{
	struct kvd_memory *memory = make(device, share, BYTES);

	assert_int_equal(kvd_cuda_sharing(memory, sharing), -EAGAIN);
	assert_string_equal(ops->backing(memory), "cuda");
	assert_int_equal(populate(memory), 0);
	assert_int_equal(kvd_cuda_sharing(memory, sharing), 0);
	return memory;
}

static int64_t live(enum fake_kind kind)
{
	return kvt_cuda_process(getpid())->live[kind];
}

static void assert_nothing_left(void)
{
	char left[256];

	if (kvt_cuda_live(getpid(), left, sizeof(left)))
		fprintf(stderr, "left over: %s\n", left);
	assert_int_equal(kvt_cuda_live(getpid(), NULL, 0), 0);
}

static void creating_calls_no_driver(void **state)
{
	uint64_t before = kvt_cuda_process(getpid())->calls;
	struct kvd_memory *memory = make("cuda:0", KVD_SHARE_AUTO, BYTES);

	(void)state;
	assert_int_equal(ops->bytes(memory), BYTES);
	assert_int_equal(kvt_cuda_process(getpid())->calls, before);
	ops->destroy(memory);
	ops->destroy(NULL);
}

static void a_device_has_three_kinds_of_name(void **state)
{
	static const char *const second[] = {"cuda:1", "cuda:GPU-20212223-2425-2627-2829-2a2b2c2d2e2f",
					     "cuda:0000:39:00.0", "cuda:39:00.0"};
	struct kvd_cuda_sharing sharing;

	(void)state;
	for (unsigned i = 0; i < sizeof(second) / sizeof(second[0]); i++) {
		struct kvd_memory *memory = made(second[i], KVD_SHARE_FD, &sharing);

		assert_int_equal(sharing.ordinal, 1);
		assert_int_equal(sharing.uuid[0], 0x20);
		ops->destroy(memory);
	}
	assert_nothing_left();
}

static void other_names_are_refused(void **state)
{
	static const char *const wrong[] = {NULL,
					    "host",
					    "cuda",
					    "cuda:",
					    "cuda:-1",
					    "cuda:0x1",
					    "cuda:0,1",
					    "cuda:99999",
					    "cuda:GPU-2021",
					    "cuda:GPU-20212223-2425-2627-2829-2a2b2c2d2e2f0",
					    "cuda:GPU-20212223-2425-2627-2829-2a2b2c2d2e2g",
					    "cuda:zz:00.0"};
	static const char *const absent[] = {"cuda:2", "cuda:GPU-90212223-2425-2627-2829-2a2b2c2d2e2f",
					     "cuda:77:00.0"};

	(void)state;
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct kvd_memory_params params = {.name = "test", .bytes = BYTES, .device = wrong[i]};
		struct kvd_memory *memory = NULL;

		assert_int_equal(kvd_cuda_check_name(wrong[i]), -EINVAL);
		assert_int_equal(ops->create(&params, &memory), -EINVAL);
		assert_null(memory);
	}
	for (unsigned i = 0; i < sizeof(absent) / sizeof(absent[0]); i++) {
		struct kvd_memory *memory = make(absent[i], KVD_SHARE_AUTO, BYTES);

		assert_int_equal(populate(memory), -ENODEV);
		ops->destroy(memory);
	}
	assert_nothing_left();
}

static void a_pool_by_descriptors_keeps_no_context(void **state)
{
	struct kvd_cuda_sharing sharing;
	struct kvd_memory *memory = made("cuda:0", KVD_SHARE_AUTO, &sharing);

	(void)state;
	assert_int_equal(sharing.share, KVD_SHARE_FD);
	assert_string_equal(ops->backing(memory), "cuda-fd");
	assert_non_null(strstr(sharing.why, "created, exported and imported"));
	assert_int_equal(sharing.bytes % GRANULE, 0);
	assert_true(sharing.bytes >= BYTES && sharing.bytes < BYTES + GRANULE);
	assert_int_equal(sharing.chunk_count, 4);
	assert_int_equal(live(FAKE_KIND_CONTEXT), 0);
	assert_int_equal(live(FAKE_KIND_HANDLE), 4);
	assert_int_equal(live(FAKE_KIND_MAPPING), 0);
	ops->destroy(memory);
	assert_nothing_left();
}

static void a_pool_by_handle_is_one_allocation(void **state)
{
	struct kvd_cuda_sharing sharing;
	struct kvd_memory *memory = made("cuda:0", KVD_SHARE_IPC, &sharing);

	(void)state;
	assert_int_equal(sharing.share, KVD_SHARE_IPC);
	assert_string_equal(ops->backing(memory), "cuda-ipc");
	assert_string_equal(sharing.why, "configured");
	assert_int_equal(sharing.bytes % GRANULE, 0);
	assert_int_equal(sharing.chunk_count, 0);
	assert_int_equal(live(FAKE_KIND_CONTEXT), 1);
	assert_int_equal(live(FAKE_KIND_ALLOCATION), 1);
	/* Populating again changes nothing. */
	assert_int_equal(populate(memory), 0);
	assert_int_equal(live(FAKE_KIND_ALLOCATION), 1);
	ops->destroy(memory);
	assert_nothing_left();
}

static void auto_takes_ipc_where_a_try_with_descriptors_fails(void **state)
{
	static const char *const calls[] = {"cuMemCreate", "cuMemExportToShareableHandle",
					    "cuMemImportFromShareableHandle"};
	struct kvd_cuda_sharing sharing;

	(void)state;
	for (unsigned i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		struct kvd_memory *memory;

		kvt_cuda_fail(calls[i], 0, KVW_CUDA_NOT_SUPPORTED);
		memory = made("cuda:0", KVD_SHARE_AUTO, &sharing);
		assert_int_equal(sharing.share, KVD_SHARE_IPC);
		assert_non_null(strstr(sharing.why, calls[i]));
		assert_non_null(strstr(sharing.why, "CUDA_ERROR_NOT_SUPPORTED (801)"));
		ops->destroy(memory);
		memory = make("cuda:0", KVD_SHARE_FD, BYTES);
		assert_int_equal(populate(memory), -EOPNOTSUPP);
		ops->destroy(memory);
		kvt_cuda_fail(NULL, 0, 0);
	}
	assert_nothing_left();
}

static void a_large_pool_has_at_most_256_chunks(void **state)
{
	struct kvd_memory *memory = make("cuda:1", KVD_SHARE_FD, (UINT64_C(17) << 30) + 1);
	struct kvd_cuda_sharing sharing;

	(void)state;
	assert_int_equal(populate(memory), 0);
	assert_int_equal(kvd_cuda_sharing(memory, &sharing), 0);
	assert_true(sharing.chunk_count <= KVD_CUDA_MAX_CHUNKS);
	assert_true(sharing.chunk_count > KVD_CUDA_MAX_CHUNKS - 10);
	assert_true((sharing.chunk_count - 1) * sharing.chunk_bytes < sharing.bytes);
	assert_true(sharing.chunk_count * sharing.chunk_bytes >= sharing.bytes);
	ops->destroy(memory);
	assert_nothing_left();
}

static void check_bytes(struct kvd_memory *memory)
{
	static uint8_t in[GRANULE + 5];
	static uint8_t out[GRANULE + 5];
	/* Across the border of two chunks of 64 MiB; at the end. */
	const uint64_t offsets[] = {0, 1, (UINT64_C(64) << 20) - 7, ops->bytes(memory) - sizeof(in)};

	for (unsigned i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
		assert_int_equal(ops->read(memory, offsets[i], in, sizeof(in)), 0);
		for (size_t at = i == 1 ? sizeof(in) - 1 : 0; at < sizeof(in); at++)
			assert_int_equal(in[at], 0); /* the second overlaps the first but for its last byte */
		memset(out, (int)i + 1, sizeof(out));
		assert_int_equal(ops->write(memory, offsets[i], out, sizeof(out)), 0);
		assert_int_equal(ops->read(memory, offsets[i], in, sizeof(in)), 0);
		assert_memory_equal(in, out, sizeof(in));
	}
	assert_int_equal(ops->read(memory, ops->bytes(memory) - 1, in, 2), -ERANGE);
	assert_int_equal(ops->write(memory, UINT64_MAX, out, 2), -ERANGE);
	assert_int_equal(ops->read(memory, ops->bytes(memory), in, 0), 0);
}

/* The double's new memory is garbage: without the zeroing of populate() this fails at its first byte. */
static void memory_begins_as_zeroes_and_keeps_what_is_written(void **state)
{
	struct kvd_cuda_sharing sharing;

	(void)state;
	for (enum kvd_share share = KVD_SHARE_IPC; share <= KVD_SHARE_FD; share++) {
		struct kvd_memory *memory = made("cuda:0", share, &sharing);

		check_bytes(memory);
		ops->destroy(memory);
	}
	assert_nothing_left();
}

/* The role "reader": opens the pool as told and answers the first byte of it and of its last granule. */
struct pool {
	uint32_t share, chunk_count;
	uint64_t bytes, chunk_bytes;
	struct kvw_cuda_ipc_handle handle;
};

static uint64_t map_pool(const struct pool *pool)
{
	static const struct kvw_cuda_access access = {{KVW_CUDA_LOCATION_DEVICE, 0}, KVW_CUDA_ACCESS_READ};
	uint64_t pointer = 0;
	uint64_t handle;
	uint64_t done = 0;

	if (pool->share == KVD_SHARE_IPC) {
		OK(cuIpcOpenMemHandle, &pointer, pool->handle, KVW_CUDA_IPC_LAZY_PEER);
		return pointer;
	}
	OK(cuMemAddressReserve, &pointer, pool->bytes, 0, 0, 0);
	for (uint32_t i = 0; i < pool->chunk_count; i++) {
		uint64_t rest = pool->bytes - done;
		uint64_t bytes = rest < pool->chunk_bytes ? rest : pool->chunk_bytes;
		char byte;
		int fd;

		kvt_cuda_receive(KVT_CUDA_ROLE_SOCKET, &byte, 1, &fd);
		OK(cuMemImportFromShareableHandle, &handle, (void *)(intptr_t)fd, KVW_CUDA_HANDLE_FD);
		close(fd);
		OK(cuMemMap, pointer + done, bytes, 0, handle, 0);
		OK(cuMemRelease, handle);
		done += bytes;
	}
	OK(cuMemSetAccess, pointer, pool->bytes, &access, 1);
	return pointer;
}

static int reader_role(void)
{
	struct pool pool;
	uint64_t pointer;
	uint32_t words[2];

	fixture_setup(NULL);
	kvt_cuda_receive(KVT_CUDA_ROLE_SOCKET, &pool, sizeof(pool), NULL);
	pointer = map_pool(&pool);
	read_words(pointer, &words[0], 1);
	read_words(pointer + pool.bytes - GRANULE, &words[1], 1);
	kvt_cuda_send(KVT_CUDA_ROLE_SOCKET, words, sizeof(words), -1);
	if (pool.share == KVD_SHARE_IPC) {
		OK(cuIpcCloseMemHandle, pointer);
	} else {
		OK(cuMemUnmap, pointer, pool.bytes);
		OK(cuMemAddressFree, pointer, pool.bytes);
	}
	fixture_teardown(NULL);
	return 0;
}

static void another_process_opens_what_is_handed_out(void **state)
{
	(void)state;
	for (enum kvd_share share = KVD_SHARE_IPC; share <= KVD_SHARE_FD; share++) {
		uint32_t words[2] = {0x11111111, 0x22222222};
		struct kvd_cuda_sharing sharing;
		struct kvd_memory *memory = made("cuda:0", share, &sharing);
		struct pool pool = {
			sharing.share, sharing.chunk_count, sharing.bytes, sharing.chunk_bytes, {{0}}};
		int role_socket;
		pid_t pid = kvt_cuda_spawn("reader", NULL, &role_socket);

		memcpy(&pool.handle, sharing.handle, sizeof(pool.handle));
		assert_int_equal(ops->write(memory, 0, &words[0], 4), 0);
		assert_int_equal(ops->write(memory, sharing.bytes - GRANULE, &words[1], 4), 0);
		kvt_cuda_send(role_socket, &pool, sizeof(pool), -1);
		for (uint32_t i = 0; i < sharing.chunk_count; i++)
			kvt_cuda_send(role_socket, "", 1, sharing.fds[i]);
		memset(words, 0, sizeof(words));
		kvt_cuda_receive(role_socket, words, sizeof(words), NULL);
		assert_int_equal(words[0], 0x11111111);
		assert_int_equal(words[1], 0x22222222);
		assert_int_equal(kvt_cuda_reap(pid), 0);
		close(role_socket);
		ops->destroy(memory);
	}
}

static void too_large_a_pool_is_refused_with_nothing_left(void **state)
{
	(void)state;
	for (enum kvd_share share = KVD_SHARE_IPC; share <= KVD_SHARE_FD; share++) {
		struct kvd_memory *memory = make("cuda:0", share, UINT64_C(1) << 40);
		uint64_t before = kvt_cuda_calls(getpid(), "cuMemCreate");

		assert_int_equal(populate(memory), -ENOMEM);
		/* Known beforehand: nothing but the probe's piece was created. */
		assert_true(kvt_cuda_calls(getpid(), "cuMemCreate") <= before + 1);
		assert_nothing_left();
		ops->destroy(memory);
	}
}

static void populating_stops_when_cancelled(void **state)
{
	const _Atomic int cancelled = 1;
	_Atomic uint64_t progress = 0;
	struct kvd_memory *memory = make("cuda:0", KVD_SHARE_FD, BYTES);

	(void)state;
	assert_int_equal(ops->populate(memory, &progress, &cancelled), -ECANCELED);
	assert_int_equal(progress, 0);
	assert_int_equal(populate(memory), 0);
	ops->destroy(memory);
	assert_nothing_left();
}

static uint64_t calls_now(void)
{
	return kvt_cuda_process(getpid())->calls;
}

/* How many calls populate() makes when none fails. */
static uint64_t calls_of_populate(enum kvd_share share)
{
	struct kvd_memory *memory = make("cuda:0", share, BYTES);
	uint64_t before = calls_now();
	uint64_t calls;

	assert_int_equal(populate(memory), 0);
	calls = calls_now() - before;
	ops->destroy(memory);
	return calls;
}

/*
 * Fails each call of populate() once; guards every release in device_cuda*.c. Some failures only change how
 * the pool is shared.
 */
static void a_failure_of_any_call_leaves_nothing(void **state)
{
	(void)state;
	for (enum kvd_share share = KVD_SHARE_AUTO; share <= KVD_SHARE_FD; share++) {
		uint64_t calls = calls_of_populate(share);
		int fds = kvt_count_fds();
		uint64_t failures = 0;

		for (uint64_t call = 1; call <= calls; call++) {
			struct kvd_memory *memory = make("cuda:0", share, BYTES);

			kvt_cuda_fail(NULL, call, KVW_CUDA_UNKNOWN);
			failures += populate(memory) < 0;
			kvt_cuda_fail(NULL, 0, 0);
			assert_false(kvd_cuda_lost(memory));
			ops->destroy(memory);
			assert_nothing_left();
			assert_int_equal(kvt_count_fds(), fds);
		}
		assert_true(failures >= 10);
	}
}

static void a_lost_device_is_marked(void **state)
{
	struct kvd_cuda_sharing sharing;
	struct kvd_memory *memory = made("cuda:0", KVD_SHARE_IPC, &sharing);
	char byte;

	(void)state;
	assert_false(kvd_cuda_lost(memory));
	kvt_cuda_fail("cuStreamSynchronize", 1, KVW_CUDA_ECC_UNCORRECTABLE);
	assert_int_equal(ops->read(memory, 0, &byte, 1), -EIO);
	kvt_cuda_fail(NULL, 0, 0);
	assert_true(kvd_cuda_lost(memory));
	assert_int_equal(ops->read(memory, 0, &byte, 1), -EIO);
	ops->destroy(memory);
	assert_nothing_left();
}

/* Guards look_without_context(): a context made for each look would cost the device memory, a descriptor left by each the daemon its last one. */
static void a_look_by_descriptor_keeps_nothing(void **state)
{
	struct kvd_cuda_sharing sharing;
	struct kvd_memory *memory = made("cuda:0", KVD_SHARE_FD, &sharing);
	uint64_t contexts = kvt_cuda_calls(getpid(), "cuDevicePrimaryCtxRetain");
	int64_t live = kvt_cuda_live(getpid(), NULL, 0);
	int fds = kvt_count_fds();

	(void)state;
	assert_int_equal(kvd_cuda_look(memory), 0);
	kvt_cuda_fail("cuMemExportToShareableHandle", 1, KVW_CUDA_UNKNOWN);
	assert_int_equal(kvd_cuda_look(memory), -EIO);
	assert_false(kvd_cuda_lost(memory));
	kvt_cuda_fail("cuMemExportToShareableHandle", 1, KVW_CUDA_ECC_UNCORRECTABLE);
	assert_int_equal(kvd_cuda_look(memory), -ENOTRECOVERABLE);
	kvt_cuda_fail(NULL, 0, 0);
	assert_true(kvd_cuda_lost(memory));
	assert_int_equal(kvt_cuda_calls(getpid(), "cuDevicePrimaryCtxRetain"), contexts);
	assert_int_equal(kvt_cuda_live(getpid(), NULL, 0), live);
	assert_int_equal(kvt_count_fds(), fds);
	ops->destroy(memory);
	assert_nothing_left();
}

/* The role "odd": the answer of populate() on a machine that the environment describes. */
static int odd_role(void)
{
	struct kvd_memory_params params = {.name = "test",
					   .bytes = GRANULE,
					   .device = "cuda:0",
					   .allow_mps = getenv("ALLOW_MPS") != NULL};
	_Atomic uint64_t progress = 0;
	struct kvd_memory *memory;
	int32_t ret = ops->create(&params, &memory);

	if (!ret)
		ret = ops->populate(memory, &progress, &never);
	kvt_cuda_send(KVT_CUDA_ROLE_SOCKET, &ret, sizeof(ret), -1);
	ops->destroy(memory);
	return 0;
}

static int on_odd_machine(const char *variable, const char *another)
{
	const char *environment[] = {variable, another, NULL};
	int role_socket;
	pid_t pid = kvt_cuda_spawn("odd", environment, &role_socket);
	int32_t ret;

	kvt_cuda_receive(role_socket, &ret, sizeof(ret), NULL);
	assert_int_equal(kvt_cuda_reap(pid), 0);
	close(role_socket);
	return ret;
}

static void machines_that_can_not_are_refused(void **state)
{
	(void)state;
	assert_int_equal(on_odd_machine("FAKECUDA_DEVICES=1", NULL), 0);
	assert_int_equal(on_odd_machine("FAKECUDA_DEVICES=0", NULL), -ENODEV);
	assert_int_equal(on_odd_machine("FAKECUDA_STUB=1", NULL), -ENODEV);
	assert_int_equal(on_odd_machine("FAKECUDA_VERSION=11080", NULL), -ENOSYS);
	assert_int_equal(on_odd_machine("FAKECUDA_ATTRIBUTES=133=1", NULL), -EOPNOTSUPP);
	assert_int_equal(on_odd_machine("FAKECUDA_ATTRIBUTES=133=1", "ALLOW_MPS=1"), 0);
	assert_int_equal(on_odd_machine("FAKECUDA_ATTRIBUTES=20=2", NULL), -EBUSY);
	assert_int_equal(on_odd_machine("FAKECUDA_ATTRIBUTES=20=3", NULL), -EBUSY);
	assert_int_equal(on_odd_machine("FAKECUDA_ATTRIBUTES=102=0,110=0", NULL), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(creating_calls_no_driver),
		cmocka_unit_test(a_device_has_three_kinds_of_name),
		cmocka_unit_test(other_names_are_refused),
		cmocka_unit_test(a_pool_by_descriptors_keeps_no_context),
		cmocka_unit_test(a_pool_by_handle_is_one_allocation),
		cmocka_unit_test(auto_takes_ipc_where_a_try_with_descriptors_fails),
		cmocka_unit_test(a_large_pool_has_at_most_256_chunks),
		cmocka_unit_test(memory_begins_as_zeroes_and_keeps_what_is_written),
		cmocka_unit_test(another_process_opens_what_is_handed_out),
		cmocka_unit_test(too_large_a_pool_is_refused_with_nothing_left),
		cmocka_unit_test(populating_stops_when_cancelled),
		cmocka_unit_test(a_failure_of_any_call_leaves_nothing),
		cmocka_unit_test(a_lost_device_is_marked),
		cmocka_unit_test(a_look_by_descriptor_keeps_nothing),
		cmocka_unit_test(machines_that_can_not_are_refused),
	};
	struct kvw_cuda *first;

	(void)argc;
	setenv("FAKECUDA_MEMORY_MIB", "20480", 0);
	kvt_cuda_start(argv);
	kvt_watchdog(120);
	if (kvt_cuda_role())
		return strcmp(kvt_cuda_role(), "reader") ? odd_role() : reader_role();
	if (kvw_cuda_open(&first, NULL)) /* the double enters its books */
		return 1;
	kvw_cuda_close(first);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
