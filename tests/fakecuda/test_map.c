/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool's memory as the client maps it, from another process that made it as a daemon does: in both ways of sharing, once a context, and
 * whole or not at all.
 */
#include "fixture.h"

#include "libclient/cuda.h"
#include "libclient/map_cuda.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kvpool/kvpool.h>

#define PIECES 5u
#define PIECE_BYTES (UINT64_C(4) << 20)
#define LAST_BYTES (UINT64_C(2) << 20)
#define POOL_BYTES ((PIECES - 1) * PIECE_BYTES + LAST_BYTES)
#define BIG_PIECES 256u
#define BIG_PIECE_BYTES (UINT64_C(64) << 20)

/* ------------------------------------------------------------------ the process that has the memory */

struct offer {
	struct kvw_cuda_ipc_handle handle;
	struct kvw_cuda_uuid uuid;
};

static uint64_t make_piece(uint64_t bytes, int *out_fd)
{
	const struct kvw_cuda_allocation properties = {.type = KVW_CUDA_ALLOCATION_PINNED,
						       .handle_types = KVW_CUDA_HANDLE_FD,
						       .location = {KVW_CUDA_LOCATION_DEVICE, 0}};
	uint64_t handle = 0;

	OK(cuMemCreate, &handle, bytes, &properties, 0);
	OK(cuMemExportToShareableHandle, out_fd, handle, KVW_CUDA_HANDLE_FD, 0);
	return handle;
}

static void send_pieces(uint64_t *handles, uint32_t count, uint64_t bytes, uint64_t last)
{
	char byte = 0;

	for (uint32_t i = 0; i < count; i++) {
		int fd;

		handles[i] = make_piece(i + 1 < count ? bytes : last, &fd);
		kvt_cuda_send(KVT_CUDA_ROLE_SOCKET, &byte, 1, fd);
		kvt_cuda_receive(KVT_CUDA_ROLE_SOCKET, &byte, 1, NULL); /* few in flight */
		close(fd);
	}
}

/* One allocation that says 0x11111111 everywhere, two sets of pieces; then the end when the test is done. */
static int run_owner(void)
{
	static uint64_t handles[PIECES + BIG_PIECES];
	struct offer own;
	uint64_t pointer = 0;
	char byte = 0;

	fixture_setup(NULL);
	OK(cuMemAlloc, &pointer, POOL_BYTES);
	fill_words(pointer, 0x11111111, POOL_BYTES / 4);
	OK(cuIpcGetMemHandle, &own.handle, pointer);
	OK(cuDeviceGetUuid, &own.uuid, 0);
	kvt_cuda_send(KVT_CUDA_ROLE_SOCKET, &own, sizeof(own), -1);
	send_pieces(handles, PIECES, PIECE_BYTES, LAST_BYTES);
	send_pieces(handles + PIECES, BIG_PIECES, BIG_PIECE_BYTES, BIG_PIECE_BYTES);
	kvt_cuda_receive(KVT_CUDA_ROLE_SOCKET, &byte, 1, NULL);
	for (uint32_t i = 0; i < PIECES + BIG_PIECES; i++)
		OK(cuMemRelease, handles[i]);
	OK(cuMemFree, pointer);
	fixture_teardown(NULL);
	return 0;
}

/* ------------------------------------------------------------------ the test's side */

static pid_t owner;
static int owner_socket;
static struct offer offer;
static int pieces[PIECES];
static int big_pieces[BIG_PIECES];

static void receive_pieces(int *fds, uint32_t count)
{
	char byte = 0;

	for (uint32_t i = 0; i < count; i++) {
		kvt_cuda_receive(owner_socket, &byte, 1, &fds[i]);
		kvt_cuda_send(owner_socket, &byte, 1, -1);
	}
}

static int start_owner(void **state)
{
	fixture_setup(state);
	owner = kvt_cuda_spawn("owner", NULL, &owner_socket);
	kvt_cuda_receive(owner_socket, &offer, sizeof(offer), NULL);
	receive_pieces(pieces, PIECES);
	receive_pieces(big_pieces, BIG_PIECES);
	return 0;
}

static int end_owner(void **state)
{
	char byte = 0;

	for (uint32_t i = 0; i < PIECES; i++)
		close(pieces[i]);
	for (uint32_t i = 0; i < BIG_PIECES; i++)
		close(big_pieces[i]);
	kvt_cuda_send(owner_socket, &byte, 1, -1);
	assert_int_equal(kvt_cuda_reap(owner), 0);
	close(owner_socket);
	return fixture_teardown(state);
}

static struct kvc_device_pool_params by_handle(void)
{
	return (struct kvc_device_pool_params){
		.incarnation = 7, .pool = 1, .name = "kv", .bytes = POOL_BYTES, .handle = offer.handle.bytes};
}

static struct kvc_device_pool_params by_pieces(void)
{
	return (struct kvc_device_pool_params){.incarnation = 7,
					       .pool = 2,
					       .name = "kv",
					       .bytes = POOL_BYTES,
					       .fds = pieces,
					       .chunk_count = PIECES,
					       .chunk_bytes = PIECE_BYTES};
}

static struct kvc_cuda *open_device(void *given, const uint8_t *uuid)
{
	const struct kvc_cuda_choice choice = {.given = given, .uuid = uuid, .pool = "kv"};
	struct kvc_cuda *device = NULL;

	assert_int_equal(kvc_cuda_open(&choice, &device), 0);
	return device;
}

static struct kvc_device_pool *map(struct kvc_cuda *device, const struct kvc_device_pool_params *params)
{
	struct kvc_device_pool *pool = NULL;
	int ret = kvc_device_pool_map(device, params, &pool);

	if (ret)
		print_error("%s\n", kvp_last_error());
	assert_int_equal(ret, 0);
	return pool;
}

static uint64_t calls(const char *function)
{
	return kvt_cuda_calls(getpid(), function);
}

/* ------------------------------------------------------------------ tests */

static void an_allocation_is_opened_and_has_the_owners_bytes(void **state)
{
	struct kvc_device_pool_params params = by_handle();
	struct kvc_cuda *device = open_device(context, offer.uuid.bytes);
	struct kvc_device_pool *pool;

	(void)state;
	params.offset = 4096;
	params.bytes -= 4096;
	pool = map(device, &params);
	assert_int_equal(count_others(kvc_device_pool_address(pool), 0x11111111, params.bytes / 4), 0);
	kvc_device_pool_drop(device, pool);
	kvc_cuda_close(device);
}

/* The last piece is shorter; all lie back to back, writable, and each is the memory that was sent at its place. */
static void pieces_lie_back_to_back(void **state)
{
	struct kvc_device_pool_params params = by_pieces();
	struct kvc_cuda *device = open_device(context, NULL);
	struct kvc_device_pool *pool = map(device, &params);
	uint64_t address = kvc_device_pool_address(pool);

	(void)state;
	for (uint32_t i = 0; i < PIECES; i++)
		fill_words(address + i * PIECE_BYTES, i + 1, (i + 1 < PIECES ? PIECE_BYTES : LAST_BYTES) / 4);
	kvc_device_pool_drop(device, pool);
	pool = map(device, &params);
	address = kvc_device_pool_address(pool);
	for (uint32_t i = 0; i < PIECES; i++)
		assert_int_equal(count_others(address + i * PIECE_BYTES, i + 1,
					      (i + 1 < PIECES ? PIECE_BYTES : LAST_BYTES) / 4),
				 0);
	kvc_device_pool_drop(device, pool);
	kvc_cuda_close(device);
}

/* Guards allow_access() behind the loop: once a piece would be 256 rounds through the device's page tables. */
static void a_pool_of_16_gib_takes_256_imports_and_one_access(void **state)
{
	const struct kvc_device_pool_params params = {.incarnation = 7,
						      .pool = 3,
						      .name = "big",
						      .bytes = BIG_PIECES * BIG_PIECE_BYTES,
						      .fds = big_pieces,
						      .chunk_count = BIG_PIECES,
						      .chunk_bytes = BIG_PIECE_BYTES};
	struct kvc_cuda *device = open_device(context, NULL);
	uint64_t imports = calls("cuMemImportFromShareableHandle");
	uint64_t accesses = calls("cuMemSetAccess");
	uint64_t reserves = calls("cuMemAddressReserve");
	struct kvc_device_pool *pool = map(device, &params);

	(void)state;
	assert_int_equal(params.bytes, UINT64_C(16) << 30);
	assert_int_equal(calls("cuMemImportFromShareableHandle") - imports, BIG_PIECES);
	assert_int_equal(calls("cuMemSetAccess") - accesses, 1);
	assert_int_equal(calls("cuMemAddressReserve") - reserves, 1);
	kvc_device_pool_drop(device, pool);
	kvc_cuda_close(device);
}

/* Guards find(): an allocation can't be opened twice with two addresses, and pieces would be mapped twice. */
static void two_clients_in_a_context_share_one_mapping(void **state)
{
	struct kvc_device_pool_params params[2] = {by_handle(), by_pieces()};

	(void)state;
	for (uint32_t i = 0; i < 2; i++) {
		struct kvc_cuda *one = open_device(context, NULL);
		struct kvc_cuda *other = open_device(context, NULL);
		struct kvc_device_pool *first = map(one, &params[i]);
		uint64_t opened = calls("cuIpcOpenMemHandle") + calls("cuMemMap");
		struct kvc_device_pool *second = map(other, &params[i]);

		assert_ptr_equal(first, second);
		assert_int_equal(calls("cuIpcOpenMemHandle") + calls("cuMemMap"), opened);
		/* The one that mapped it leaves first. */
		kvc_device_pool_drop(one, first);
		kvc_cuda_close(one);
		fill_words(kvc_device_pool_address(second), 0x11111111, 16);
		kvc_device_pool_drop(other, second);
		kvc_cuda_close(other);
	}
	/* Another run of the daemon is other memory. */
	{
		struct kvc_cuda *device = open_device(context, NULL);
		struct kvc_device_pool *old = map(device, &params[1]);
		struct kvc_device_pool *fresh;

		params[1].incarnation++;
		fresh = map(device, &params[1]);
		assert_ptr_not_equal(old, fresh);
		kvc_device_pool_drop(device, old);
		kvc_device_pool_drop(device, fresh);
		kvc_cuda_close(device);
	}
}

/* Guards check_device(): handles of one device opened in another's context are refused late and unclearly, or map over a link. */
static void another_device_is_refused_by_its_uuid(void **state)
{
	struct kvw_cuda_uuid other;
	struct kvc_cuda_choice choice = {.given = context, .uuid = other.bytes, .pool = "kv"};
	struct kvc_cuda *device = NULL;

	(void)state;
	OK(cuDeviceGetUuid, &other, 1);
	assert_int_equal(kvc_cuda_open(&choice, &device), -KVP_EDEVICE);
	assert_non_null(strstr(kvp_last_error(), "pool 'kv' lies on device GPU-"));
	assert_non_null(
		strstr(kvp_last_error(), "(device 0 here): attach with a context of the pool's device"));
	/* The current context counts as given. */
	choice.given = NULL;
	assert_int_equal(kvc_cuda_open(&choice, &device), -KVP_EDEVICE);
	memset(other.bytes, 0x5a, sizeof(other.bytes));
	OK(cuCtxPopCurrent, NULL);
	assert_int_equal(kvc_cuda_open(&choice, &device), -KVP_EDEVICE);
	assert_non_null(
		strstr(kvp_last_error(), "which this process does not see: look at CUDA_VISIBLE_DEVICES"));
	OK(cuCtxPushCurrent, context);
	assert_null(device);
}

/* Without a context of the caller's the pool's device gives its primary one, and the thread's current one stays as it was. */
static void without_a_context_the_primary_one_serves(void **state)
{
	struct kvc_device_pool_params params = by_pieces();
	struct kvw_cuda_context *current = NULL;
	struct kvc_device_pool *pool;
	struct kvc_cuda *device;

	(void)state;
	OK(cuCtxPopCurrent, NULL);
	device = open_device(NULL, offer.uuid.bytes);
	pool = map(device, &params);
	OK(cuCtxGetCurrent, &current);
	assert_null(current);
	assert_int_equal(kvc_cuda_quiet(device), 0);
	kvc_device_pool_drop(device, pool);
	kvc_cuda_close(device);
	OK(cuCtxPushCurrent, context);
}

static void what_does_not_fit_is_refused(void **state)
{
	struct kvc_device_pool_params params = by_handle();
	struct kvc_cuda *device = open_device(context, NULL);
	struct kvc_device_pool *pool = NULL;

	(void)state;
	params.bytes = (POOL_BYTES | 1) * 4;
	assert_int_equal(kvc_device_pool_map(device, &params, &pool), -KVP_ELAYOUT);
	params = by_pieces();
	params.chunk_count--;
	assert_int_equal(kvc_device_pool_map(device, &params, &pool), -KVP_ELAYOUT);
	params = by_pieces();
	params.chunk_bytes *= 2;
	params.chunk_count = 3; /* they are not that long */
	assert_true(kvc_device_pool_map(device, &params, &pool) < 0);
	assert_null(pool);
	kvc_cuda_close(device);
}

/* Says what is in the way. */
static void mapping_in_a_capture_says_so(void **state)
{
	struct kvc_device_pool_params params = by_handle();
	struct kvc_cuda *device = open_device(context, NULL);
	struct kvc_device_pool *pool = NULL;
	struct kvw_cuda_graph *graph = NULL;

	(void)state;
	OK(cuStreamBeginCapture, stream, KVW_CUDA_CAPTURE_GLOBAL);
	assert_int_equal(kvc_device_pool_map(device, &params, &pool), -EBUSY);
	assert_non_null(strstr(kvp_last_error(), "capture"));
	(void)cuda->cuStreamEndCapture(stream, &graph);
	kvc_cuda_close(device);
}

static int try_all(const struct kvc_device_pool_params *params)
{
	const struct kvc_cuda_choice choice = {.given = context, .uuid = offer.uuid.bytes, .pool = "kv"};
	struct kvc_device_pool *pool;
	struct kvc_cuda *device;
	int ret = kvc_cuda_open(&choice, &device);

	if (ret)
		return ret;
	ret = kvc_device_pool_map(device, params, &pool);
	if (!ret) {
		kvt_cuda_fail(NULL, 0,
			      0); /* what fails while giving back stays: nothing else could be done */
		kvc_device_pool_drop(device, pool);
	}
	kvt_cuda_fail(NULL, 0, 0);
	kvc_cuda_close(device);
	return ret;
}

/* Guards unmap() in create(): whatever call fails, nothing of the pool stays mapped, reserved or open. */
static void no_failed_call_leaves_a_mapping(void **state)
{
	struct kvc_device_pool_params params[2] = {by_handle(), by_pieces()};
	int64_t before = kvt_cuda_live(getpid(), NULL, 0);
	int fds = kvt_count_fds();

	(void)state;
	for (uint32_t i = 0; i < 2; i++) {
		uint64_t n = 0;
		int ret;

		do {
			kvt_cuda_fail(NULL, ++n, KVW_CUDA_OUT_OF_MEMORY);
			ret = try_all(&params[i]);
			kvt_cuda_fail(NULL, 0, 0);
			assert_int_equal(kvt_cuda_live(getpid(), NULL, 0), before);
			assert_int_equal(kvt_count_fds(), fds);
		} while (ret || n < 8);
		assert_true(n > 8);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_allocation_is_opened_and_has_the_owners_bytes),
		cmocka_unit_test(pieces_lie_back_to_back),
		cmocka_unit_test(a_pool_of_16_gib_takes_256_imports_and_one_access),
		cmocka_unit_test(two_clients_in_a_context_share_one_mapping),
		cmocka_unit_test(another_device_is_refused_by_its_uuid),
		cmocka_unit_test(without_a_context_the_primary_one_serves),
		cmocka_unit_test(what_does_not_fit_is_refused),
		cmocka_unit_test(mapping_in_a_capture_says_so),
		cmocka_unit_test(no_failed_call_leaves_a_mapping),
	};

	(void)argc;
	setenv("FAKECUDA_KERNELS", SIMT_KERNELS, 0);
	setenv("FAKECUDA_DELAY_US", "50", 0);
	setenv("FAKECUDA_MEMORY_MIB", "20480", 0);
	kvt_cuda_start(argv);
	kvt_watchdog(110);
	if (kvt_cuda_role())
		return run_owner();
	return cmocka_run_group_tests(tests, start_owner, end_owner);
}
