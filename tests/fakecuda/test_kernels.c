/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpool's own CUDA kernels through the driver: launchers, double and emulator together, in device memory that the host only reaches by
 * copies. The kernels' results are tests/simt's business; here it is that their arguments arrive, that they run in the stream's order, and
 * that a replay takes what memory holds then.
 */
#include "fixture.h"

#include "kernels/cuda/launch.h"
#include "tests/simt/kernel_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 7
#define WIDTH 33
#define COUNT 5
#define BLOCKS 6
#define BLOCK_BYTES 512

static struct kvw_cuda_module *module;

static int launch(void *unused, const struct kvk_cuda_launch *what)
{
	struct kvw_cuda_function *function;
	void *parameters[] = {(void *)(uintptr_t)what->args};
	int ret = KVW_CUDA(cuda, &cuda_error, cuModuleGetFunction, &function, module, what->kernel);

	(void)unused;
	if (!ret && what->shared_bytes > 48u << 10)
		ret = KVW_CUDA(cuda, &cuda_error, cuFuncSetAttribute, function,
			       KVW_CUDA_FUNCTION_MAX_DYNAMIC_SHARED, (int)what->shared_bytes);
	if (!ret)
		ret = KVW_CUDA(cuda, &cuda_error, cuLaunchKernel, function, what->blocks, 1, 1, what->threads,
			       1, 1, what->shared_bytes, stream, parameters, NULL);
	return ret;
}

static const struct kvk_cuda_device device = {.size = sizeof(device), .units = 4, .launch = launch};

static int load(void **state)
{
	fixture_setup(state);
	OK(cuModuleLoadData, &module, SIMT_STUB_IMAGE);
	return 0;
}

static int unload(void **state)
{
	OK(cuModuleUnload, module);
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
	assert_int_equal(kvk_table_gather_cuda(&device, &gather.params), 0);
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
	assert_int_equal(kvk_table_gather_cuda(&device, &gather.params), 0);
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
	assert_int_equal(kvk_block_copy_cuda(&device, &params), 0);
	assert_int_equal(count_others(to, 104, BLOCK_BYTES / 4), 0);
	assert_int_equal(count_others(to + BLOCK_BYTES, 7, 4 * BLOCK_BYTES / 4), 0);
	assert_int_equal(count_others(to + 5 * BLOCK_BYTES, 101, BLOCK_BYTES / 4), 0);
	OK(cuMemFree, ids);
	OK(cuMemFree, to);
	OK(cuMemFree, from);
}

/* A kernel's refusal by the driver comes back as the operation's answer. */
static void a_refused_launch_is_the_operations_answer(void **state)
{
	struct gather gather;

	(void)state;
	make_gather(&gather);
	kvt_cuda_fail("cuLaunchKernel", 1, KVW_CUDA_LAUNCH_OUT_OF_RESOURCES);
	assert_int_equal(kvk_table_gather_cuda(&device, &gather.params), -EINVAL);
	kvt_cuda_fail(NULL, 0, 0);
	drop_gather(&gather);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_gather_runs_behind_the_copies_that_feed_it),
		cmocka_unit_test(a_replayed_gather_takes_what_memory_holds),
		cmocka_unit_test(blocks_are_copied_by_their_ids),
		cmocka_unit_test(a_refused_launch_is_the_operations_answer),
	};

	(void)argc;
	setenv("FAKECUDA_KERNELS", SIMT_KERNELS, 0);
	kvt_cuda_start(argv);
	kvt_watchdog(60);
	return cmocka_run_group_tests(tests, load, unload);
}
