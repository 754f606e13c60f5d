/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches through the double, with two kernels and an emulator of a few lines in this program itself: it
 * runs each thread to its end, which is all that these kernels need.
 */
#include "fixture.h"

#include "tests/simt/kernel_table.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define FATBIN_MAGIC "\x50\xed\x55\xba"

struct add_parameters {
	uint64_t to;
	uint32_t count, value;
};

static struct {
	struct simt_dim grid, block, thread_block, thread;
} place;
static char failure[128];

static void add_body(void **parameters)
{
	const struct add_parameters *add = parameters[0];
	uint32_t *words = (uint32_t *)(uintptr_t)add->to;
	uint32_t step = place.grid.x * place.block.x;

	for (uint32_t i = place.thread_block.x * place.block.x + place.thread.x; i < add->count; i += step)
		words[i] += add->value;
}

/* Parameters of several sizes, as they must arrive. */
static void mixed_body(void **parameters)
{
	double *to = *(double **)parameters[0];

	*to = *(char *)parameters[1] + *(double *)parameters[2] + *(short *)parameters[3];
}

EXPORT const struct simt_kernel simt_kernel_add = {
	.name = "add",
	.parameters = 1,
	.parameter_bytes = {sizeof(struct add_parameters)},
	.max_threads = 256,
	.call = add_body,
};
EXPORT const struct simt_kernel simt_kernel_mixed = {
	.name = "mixed",
	.parameters = 4,
	.parameter_bytes = {sizeof(double *), sizeof(char), sizeof(double), sizeof(short)},
	.call = mixed_body,
};

EXPORT int simt_launch(const struct simt_kernel *kernel, const struct simt_launch *launch, void **parameters)
{
	place.grid = launch->grid;
	place.block = launch->block;
	if (launch->shared_bytes == 13) {
		strcpy(failure, "thread 0 wrote to nowhere");
		return KVW_CUDA_ILLEGAL_ADDRESS;
	}
	for (uint32_t block = 0; block < launch->grid.x; block++)
		for (uint32_t thread = 0; thread < launch->block.x; thread++) {
			place.thread_block.x = block;
			place.thread.x = thread;
			kernel->call(parameters);
		}
	return 0;
}

EXPORT const char *simt_error(void)
{
	return failure;
}

static struct kvw_cuda_module *module;
static struct kvw_cuda_function *add;
static uint64_t memory;

#define WORDS 1000u

static int load(void **state)
{
	(void)state;
	OK(cuModuleLoadData, &module, SIMT_STUB_IMAGE);
	OK(cuModuleGetFunction, &add, module, "add");
	OK(cuMemAlloc, &memory, WORDS * 4);
	fill_words(memory, 100, WORDS);
	return 0;
}

static int unload(void **state)
{
	(void)state;
	OK(cuMemFree, memory);
	OK(cuModuleUnload, module);
	return 0;
}

static unsigned launch_add(uint32_t grid, uint32_t block, uint32_t shared, uint32_t value)
{
	struct add_parameters parameters = {memory, WORDS, value};
	void *list[] = {&parameters};
	unsigned result = cuda->cuLaunchKernel(add, grid, 1, 1, block, 1, 1, shared, stream, list, NULL);

	memset(&parameters, 0xff, sizeof(parameters)); /* its values are the launch's */
	return result;
}

static void a_launch_runs_with_the_values_of_its_call(void **state)
{
	(void)state;
	assert_int_equal(launch_add(3, 64, 0, 11), 0);
	OK(cuStreamSynchronize, stream);
	assert_int_equal(count_others(memory, 111, WORDS), 0);
}

static void parameters_of_every_size_arrive(void **state)
{
	double *page;
	uint64_t word;
	char c = 3;
	double d = 0.5;
	short s = -7;
	void *list[] = {&word, &c, &d, &s};
	struct kvw_cuda_function *mixed;

	(void)state;
	page = make_registered_page(&word);
	OK(cuModuleGetFunction, &mixed, module, "mixed");
	OK(cuLaunchKernel, mixed, 1, 1, 1, 1, 1, 1, 0, stream, list, NULL);
	OK(cuStreamSynchronize, stream);
	assert_true(*page == -3.5);
	drop_registered_page(page);
}

static void a_graph_replays_a_launch(void **state)
{
	struct kvw_cuda_graph *graph;
	struct kvw_cuda_graph_exec *exec;

	(void)state;
	OK(cuStreamBeginCapture, stream, KVW_CUDA_CAPTURE_THREAD_LOCAL);
	assert_int_equal(launch_add(1, 32, 0, 1), 0);
	assert_int_equal(launch_add(1, 32, 0, 2), 0);
	OK(cuStreamEndCapture, stream, &graph);
	OK(cuGraphInstantiateWithFlags, &exec, graph, 0);
	OK(cuGraphDestroy, graph);
	for (unsigned i = 0; i < 4; i++)
		OK(cuGraphLaunch, exec, stream);
	OK(cuGraphExecDestroy, exec);
	assert_int_equal(count_others(memory, 112, WORDS), 0);
}

static void limits_are_checked_at_the_call(void **state)
{
	int value;

	(void)state;
	assert_int_equal(launch_add(1, 257, 0, 1), KVW_CUDA_INVALID_VALUE);
	assert_int_equal(launch_add(0, 1, 0, 1), KVW_CUDA_INVALID_VALUE);
	ANSWERS(KVW_CUDA_INVALID_VALUE, cuLaunchKernel, add, 1, 65536, 1, 1, 1, 1, 0, stream, NULL, NULL);
	assert_int_equal(launch_add(1, 1, 49153, 1), KVW_CUDA_INVALID_VALUE);
	OK(cuFuncSetAttribute, add, KVW_CUDA_FUNCTION_MAX_DYNAMIC_SHARED, 100000);
	OK(cuFuncGetAttribute, &value, KVW_CUDA_FUNCTION_MAX_DYNAMIC_SHARED, add);
	assert_int_equal(value, 100000);
	assert_int_equal(launch_add(1, 1, 49153, 0), 0);
	ANSWERS(KVW_CUDA_INVALID_VALUE, cuFuncSetAttribute, add, KVW_CUDA_FUNCTION_MAX_DYNAMIC_SHARED,
		232449);
	OK(cuStreamSynchronize, stream);
}

static void clusters_divide_the_grid(void **state)
{
	struct add_parameters parameters = {memory, WORDS, 1};
	void *list[] = {&parameters};
	struct kvw_cuda_launch_attribute attribute = {.id = KVW_CUDA_LAUNCH_CLUSTER,
						      .value.cluster = {2, 1, 1}};
	struct kvw_cuda_launch config = {.grid_x = 4,
					 .grid_y = 1,
					 .grid_z = 1,
					 .block_x = 32,
					 .block_y = 1,
					 .block_z = 1,
					 .stream = stream,
					 .attributes = &attribute,
					 .attribute_count = 1};

	(void)state;
	OK(cuLaunchKernelEx, &config, add, list, NULL);
	config.grid_x = 3;
	ANSWERS(912, cuLaunchKernelEx, &config, add, list, NULL);
	assert_int_equal(count_others(memory, 101, WORDS), 0);
}

static void images_and_names_are_looked_at(void **state)
{
	struct kvw_cuda_library *library;
	struct kvw_cuda_kernel *kernel;
	struct kvw_cuda_function *function;
	struct kvw_cuda_module *another;

	(void)state;
	ANSWERS(KVW_CUDA_INVALID_IMAGE, cuModuleLoadData, &another, "hello");
	ANSWERS(KVW_CUDA_NOT_FOUND, cuModuleGetFunction, &function, module, "subtract");
	OK(cuLibraryLoadData, &library, FATBIN_MAGIC, NULL, NULL, 0, NULL, NULL, 0);
	OK(cuLibraryGetKernel, &kernel, library, "add");
	OK(cuKernelGetFunction, &function, kernel);
	OK(cuLibraryUnload, library);
	ANSWERS(KVW_CUDA_INVALID_HANDLE, cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
}

static void a_tensor_map_keeps_what_it_was_given(void **state)
{
	static const uint64_t dim[] = {64, 100};
	static const uint64_t stride[] = {128};
	static const uint32_t box[] = {64, 8};
	static const uint32_t wide[] = {128, 8};
	static const uint32_t ones[] = {1, 1};
	struct kvw_cuda_tensor_map map;
	struct simt_tensor_map seen;

	(void)state;
	OK(cuTensorMapEncodeTiled, &map, KVW_CUDA_TENSOR_BF16, 2, (void *)(uintptr_t)memory, dim, stride, box,
	   ones, 0, KVW_CUDA_TENSOR_SWIZZLE_128B, KVW_CUDA_TENSOR_L2_256B, 0);
	memcpy(&seen, &map, sizeof(seen));
	assert_int_equal(seen.magic, SIMT_TENSOR_MAP_MAGIC);
	assert_int_equal(seen.address, memory);
	assert_int_equal(seen.dim[1], 100);
	assert_int_equal(seen.stride[0], 128);
	assert_int_equal(seen.box[1], 8);
	assert_int_equal(seen.swizzle, 3);
	/* A row of the box is wider than the swizzle; a stride is no multiple of 16. */
	ANSWERS(KVW_CUDA_INVALID_VALUE, cuTensorMapEncodeTiled, &map, KVW_CUDA_TENSOR_BF16, 2,
		(void *)(uintptr_t)memory, dim, stride, wide, ones, 0, KVW_CUDA_TENSOR_SWIZZLE_128B, 0, 0);
	ANSWERS(KVW_CUDA_INVALID_VALUE, cuTensorMapEncodeTiled, &map, KVW_CUDA_TENSOR_BF16, 2,
		(void *)(uintptr_t)memory, dim, (const uint64_t[]){120}, box, ones, 0, 0, 0, 0);
}

static void a_failing_kernel_loses_the_context(void **state)
{
	(void)state;
	assert_int_equal(launch_add(1, 1, 13, 1), 0); /* told late */
	ANSWERS(KVW_CUDA_ILLEGAL_ADDRESS, cuStreamSynchronize, stream);
	ANSWERS(KVW_CUDA_ILLEGAL_ADDRESS, cuStreamSynchronize, stream);
	assert_int_equal(launch_add(1, 1, 0, 1), KVW_CUDA_ILLEGAL_ADDRESS);
	ANSWERS(KVW_CUDA_ILLEGAL_ADDRESS, cuMemFree, memory);
	ANSWERS(KVW_CUDA_ILLEGAL_ADDRESS, cuModuleUnload, module);
	ANSWERS(KVW_CUDA_ILLEGAL_ADDRESS, cuStreamDestroy, stream);
	OK(cuCtxPopCurrent, NULL);
	OK(cuDevicePrimaryCtxRelease, 0);
	kvw_cuda_close(cuda);
	fixture_setup(NULL);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, load, unload)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		CASE(a_launch_runs_with_the_values_of_its_call),
		CASE(parameters_of_every_size_arrive),
		CASE(a_graph_replays_a_launch),
		CASE(limits_are_checked_at_the_call),
		CASE(clusters_divide_the_grid),
		CASE(images_and_names_are_looked_at),
		CASE(a_tensor_map_keeps_what_it_was_given),
		cmocka_unit_test_setup(a_failing_kernel_loses_the_context, load),
	};

	(void)argc;
	kvt_cuda_start(argv);
	kvt_watchdog(60);
	return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
