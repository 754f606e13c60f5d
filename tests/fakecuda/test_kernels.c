/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpool's own CUDA kernels through the driver: launchers, double and emulator together, in device memory that the host only reaches by
 * copies. The kernels' results are tests/simt's business; here it is that their arguments arrive, that they run in the stream's order, and
 * that a replay takes what memory holds then.
 */
#include "fixture.h"

#include "kernels/cuda/args.h"
#include "kernels/cuda/image.h"
#include "libclient/launch_cuda.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kvpool/kvpool.h>

#define ROWS 7
#define WIDTH 33
#define COUNT 5
#define BLOCKS 6
#define BLOCK_BYTES 512

static struct kvc_cuda_kernels *kernels;
static struct kvc_cuda_launcher launcher;
static const struct kvk_cuda_device *const device = &launcher.device;

static int load(void **state)
{
	size_t bytes;
	int units = 0;

	fixture_setup(state);
	assert_int_equal(kvc_cuda_kernels_load(cuda, kvk_cuda_image(&bytes), &kernels), 0);
	kvc_cuda_launcher_init(&launcher, kernels, stream);
	OK(cuDeviceGetAttribute, &units, KVW_CUDA_ATTR_MULTIPROCESSORS, 0);
	assert_int_equal(device->units, units);
	return 0;
}

static int unload(void **state)
{
	kvc_cuda_kernels_unload(kernels);
	kvc_cuda_kernels_unload(NULL);
	return fixture_teardown(state);
}

static uint64_t allocate(size_t bytes)
{
	uint64_t pointer = 0;

	OK(cuMemAlloc, &pointer, bytes);
	return pointer;
}

static void *at(uint64_t pointer)
{
	return (void *)(uintptr_t)pointer;
}

static int32_t value_of(int32_t row, int32_t column, int32_t salt)
{
	return row * 1000 + column + salt;
}

/* The table, with values that tell row and column. */
static void write_table(uint64_t table, int32_t salt)
{
	int32_t host[ROWS * WIDTH];

	for (int32_t i = 0; i < ROWS * WIDTH; i++)
		host[i] = value_of(i / WIDTH, i % WIDTH, salt);
	OK(cuMemcpyHtoDAsync, table, host, sizeof(host), stream);
}

static void check_gathered(uint64_t to, const int32_t *rows, int32_t salt)
{
	int32_t host[COUNT * WIDTH];

	read_words(to, (uint32_t *)host, COUNT * WIDTH);
	for (int32_t i = 0; i < COUNT * WIDTH; i++) {
		int32_t row = rows[i / WIDTH];
		int32_t expected = row >= 0 && row < ROWS ? value_of(row, i % WIDTH, salt) : -1;

		assert_int_equal(host[i], expected);
	}
}

struct gather {
	uint64_t table, rows, to;
	struct kvk_table_gather_params params;
};

static void make_gather(struct gather *gather)
{
	gather->table = allocate(ROWS * WIDTH * 4);
	gather->rows = allocate(COUNT * 4);
	gather->to = allocate(COUNT * WIDTH * 4);
	gather->params = (struct kvk_table_gather_params){.size = sizeof(gather->params),
							  .count = COUNT,
							  .width = WIDTH,
							  .from_rows = ROWS,
							  .fill = -1,
							  .from = at(gather->table),
							  .rows = at(gather->rows),
							  .to = at(gather->to),
							  .from_stride = WIDTH,
							  .to_stride = WIDTH};
}

static void drop_gather(const struct gather *gather)
{
	OK(cuMemFree, gather->to);
	OK(cuMemFree, gather->rows);
	OK(cuMemFree, gather->table);
}

static const int32_t rows_first[COUNT] = {3, 0, 6, 7, 3};
static const int32_t rows_second[COUNT] = {-1, 5, 5, 1, 2};

static void a_gather_runs_behind_the_copies_that_feed_it(void **state)
{
	struct gather gather;

	(void)state;
	make_gather(&gather);
	write_table(gather.table, 0);
	OK(cuMemcpyHtoDAsync, gather.rows, rows_first, sizeof(rows_first), stream);
	assert_int_equal(kvk_table_gather_cuda(device, &gather.params), 0);
	memset(&gather.params, 0xff, sizeof(gather.params)); /* taken at the call */
	check_gathered(gather.to, rows_first, 0);
	drop_gather(&gather);
}

static void a_replayed_gather_takes_what_memory_holds(void **state)
{
	struct kvw_cuda_graph_exec *exec;
	struct kvw_cuda_graph *graph;
	struct gather gather;

	(void)state;
	make_gather(&gather);
	OK(cuStreamBeginCapture, stream, KVW_CUDA_CAPTURE_THREAD_LOCAL);
	assert_int_equal(kvk_table_gather_cuda(device, &gather.params), 0);
	OK(cuStreamEndCapture, stream, &graph);
	OK(cuGraphInstantiateWithFlags, &exec, graph, 0);
	OK(cuGraphDestroy, graph);
	for (int32_t salt = 0; salt < 3; salt++) {
		const int32_t *rows = salt % 2 ? rows_second : rows_first;

		write_table(gather.table, salt);
		OK(cuMemcpyHtoDAsync, gather.rows, rows, sizeof(rows_first), stream);
		OK(cuGraphLaunch, exec, stream);
		check_gathered(gather.to, rows, salt);
	}
	OK(cuGraphExecDestroy, exec);
	drop_gather(&gather);
}

static void write_blocks(uint64_t blocks)
{
	for (uint32_t i = 0; i < BLOCKS; i++)
		OK(cuMemsetD32Async, blocks + (uint64_t)i * BLOCK_BYTES, 100 + i, BLOCK_BYTES / 4, stream);
}

static void blocks_are_copied_by_their_ids(void **state)
{
	static const int32_t from_ids[] = {4, 1};
	static const int32_t to_ids[] = {0, 5};
	uint64_t from = allocate(BLOCKS * BLOCK_BYTES);
	uint64_t to = allocate(BLOCKS * BLOCK_BYTES);
	uint64_t ids = allocate(sizeof(from_ids) + sizeof(to_ids));
	struct kvk_block_copy_params params = {.size = sizeof(params),
					       .blocks = 2,
					       .outer = 1,
					       .inner = 1,
					       .from_blocks = BLOCKS,
					       .to_blocks = BLOCKS,
					       .row_bytes = BLOCK_BYTES,
					       .from = at(from),
					       .to = at(to),
					       .from_ids = at(ids),
					       .to_ids = at(ids + sizeof(from_ids)),
					       .from_stride_block = BLOCK_BYTES,
					       .to_stride_block = BLOCK_BYTES,
					       .from_stride_outer = BLOCK_BYTES,
					       .to_stride_outer = BLOCK_BYTES,
					       .from_stride_inner = BLOCK_BYTES,
					       .to_stride_inner = BLOCK_BYTES};

	(void)state;
	write_blocks(from);
	fill_words(to, 7, BLOCKS * BLOCK_BYTES / 4);
	OK(cuMemcpyHtoDAsync, ids, from_ids, sizeof(from_ids), stream);
	OK(cuMemcpyHtoDAsync, ids + sizeof(from_ids), to_ids, sizeof(to_ids), stream);
	assert_int_equal(kvk_block_copy_cuda(device, &params), 0);
	assert_int_equal(count_others(to, 104, BLOCK_BYTES / 4), 0);
	assert_int_equal(count_others(to + BLOCK_BYTES, 7, 4 * BLOCK_BYTES / 4), 0);
	assert_int_equal(count_others(to + 5 * BLOCK_BYTES, 101, BLOCK_BYTES / 4), 0);
	OK(cuMemFree, ids);
	OK(cuMemFree, to);
	OK(cuMemFree, from);
}

/* Each kernel is asked for once, whoever launches it. */
static void a_kernel_is_looked_up_once(void **state)
{
	uint64_t before = kvt_cuda_calls(getpid(), "cuModuleGetFunction");
	struct kvc_cuda_launcher another;
	struct gather gather;

	(void)state;
	make_gather(&gather);
	kvc_cuda_launcher_init(&another, kernels, stream);
	write_table(gather.table, 0);
	OK(cuMemcpyHtoDAsync, gather.rows, rows_first, sizeof(rows_first), stream);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(kvk_table_gather_cuda(device, &gather.params), 0);
		assert_int_equal(kvk_table_gather_cuda(&another.device, &gather.params), 0);
	}
	check_gathered(gather.to, rows_first, 0);
	assert_true(kvt_cuda_calls(getpid(), "cuModuleGetFunction") <= before + 1);
	drop_gather(&gather);
}

static int launch_plain(const char *kernel, uint32_t shared_bytes)
{
	const uint64_t nothing = 0;
	const struct kvk_cuda_launch what = {.kernel = kernel,
					     .blocks = 1,
					     .threads =
						     2048, /* no device has so many: refused before it runs */
					     .shared_bytes = shared_bytes,
					     .args_bytes = sizeof(nothing),
					     .args = &nothing};

	return device->launch(device->context, &what);
}

/* Told once, and again only when it grows; 48 KiB need no telling. */
static void the_driver_is_told_of_large_shared_memory(void **state)
{
	static const uint32_t bytes[] = {48u << 10, 100000, 90000, 100000, 120000};
	static const unsigned told[] = {0, 1, 1, 1, 2};
	uint64_t before = kvt_cuda_calls(getpid(), "cuFuncSetAttribute");

	(void)state;
	for (unsigned i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++) {
		assert_int_equal(launch_plain("kvk_cuda_table_gather", bytes[i]), -EINVAL);
		assert_int_equal(kvt_cuda_calls(getpid(), "cuFuncSetAttribute") - before, told[i]);
	}
	assert_int_equal(launch_plain("kvk_cuda_table_gather", 300000), -EINVAL);
	assert_non_null(strstr(kvp_last_error(), "300000 bytes of shared memory: cuFuncSetAttribute"));
}

static void what_fails_is_named(void **state)
{
	struct kvc_cuda_kernels *none = NULL;

	(void)state;
	assert_int_equal(kvc_cuda_kernels_load(cuda, NULL, &none), -ENOSYS);
	assert_non_null(strstr(kvp_last_error(), "no kernels for a GPU: it was made without nvcc"));
	assert_int_equal(kvc_cuda_kernels_load(cuda, "not an image", &none), -ENOEXEC);
	assert_non_null(strstr(kvp_last_error(), "cuModuleLoadData: CUDA_ERROR_INVALID_IMAGE"));
	assert_null(none);
	assert_int_equal(launch_plain("kvk_cuda_of_another_version", 0), -ENOENT);
	assert_non_null(
		strstr(kvp_last_error(), "kernel 'kvk_cuda_of_another_version': cuModuleGetFunction"));
}

/* A kernel's refusal by the driver comes back as the operation's answer. */
static void a_refused_launch_is_the_operations_answer(void **state)
{
	struct gather gather;

	(void)state;
	make_gather(&gather);
	kvt_cuda_fail("cuLaunchKernel", 1, KVW_CUDA_LAUNCH_OUT_OF_RESOURCES);
	assert_int_equal(kvk_table_gather_cuda(device, &gather.params), -EINVAL);
	assert_non_null(strstr(kvp_last_error(), "cuLaunchKernel: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"));
	kvt_cuda_fail(NULL, 0, 0);
	drop_gather(&gather);
}

/*
 * Keys that come in boxes, and nothing to do with them. Guards the look at put_map()'s answer in launch_cuda.c: without
 * it the kernel would take what lies on the stack for a map.
 */
static void a_launch_without_its_map_is_refused(void **state)
{
	const uint64_t keys = allocate(64 * 1152);
	const struct kvk_cuda_mla_group_args args = {.keys = {.base = at(keys),
							      .width = 576,
							      .tokens = 64,
							      .pages = 1,
							      .token_bytes = 1152,
							      .page_bytes = 64 * 1152},
						     .mla = {.heads = 64, .s_q = 1},
						     .boxed = 1};
	const struct kvk_cuda_launch launch = {.kernel = "kvk_cuda_mla_dense_bf16_g64",
					       .blocks = 1,
					       .threads = 256,
					       .shared_bytes = KVK_CUDA_MLA_G64_SHARED,
					       .args_bytes = sizeof(args),
					       .args = &args,
					       .tensor = true};
	uint64_t launches;

	(void)state;
	assert_int_equal(device->launch(device->context, &launch), 0);
	launches = kvt_cuda_calls(getpid(), "cuLaunchKernel");
	kvt_cuda_fail("cuTensorMapEncodeTiled", 1, KVW_CUDA_INVALID_VALUE);
	assert_int_equal(device->launch(device->context, &launch), -EINVAL);
	assert_non_null(strstr(kvp_last_error(), "cuTensorMapEncodeTiled: CUDA_ERROR_INVALID_VALUE"));
	kvt_cuda_fail(NULL, 0, 0);
	assert_int_equal(kvt_cuda_calls(getpid(), "cuLaunchKernel"), launches);
	OK(cuStreamSynchronize, stream);
	OK(cuMemFree, keys);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_gather_runs_behind_the_copies_that_feed_it),
		cmocka_unit_test(a_replayed_gather_takes_what_memory_holds),
		cmocka_unit_test(blocks_are_copied_by_their_ids),
		cmocka_unit_test(a_kernel_is_looked_up_once),
		cmocka_unit_test(the_driver_is_told_of_large_shared_memory),
		cmocka_unit_test(what_fails_is_named),
		cmocka_unit_test(a_refused_launch_is_the_operations_answer),
		cmocka_unit_test(a_launch_without_its_map_is_refused),
	};

	(void)argc;
	setenv("FAKECUDA_KERNELS", SIMT_KERNELS, 0);
	kvt_cuda_start(argv);
	kvt_watchdog(60);
	return cmocka_run_group_tests(tests, load, unload);
}
