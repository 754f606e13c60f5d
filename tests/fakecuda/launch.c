/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches: the limits are checked and the parameters' values copied at the call; the grid runs when the
 * stream comes to it.
 */
#include "fake.h"

#include "tests/simt/kernel_table.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fake_launch_op {
	const struct simt_kernel *kernel;
	struct simt_launch launch;
	simt_launch_fn run;
	simt_error_fn error;
	size_t bytes;
	unsigned char *values;
};

struct fake_launch_op *fake_launch_copy(const struct fake_launch_op *launch)
{
	struct fake_launch_op *copy = malloc(sizeof(*copy));

	if (!copy)
		abort();
	*copy = *launch;
	copy->values = malloc(launch->bytes + 1);
	if (!copy->values)
		abort();
	memcpy(copy->values, launch->values, launch->bytes);
	return copy;
}

void fake_launch_free(struct fake_launch_op *launch)
{
	free(launch->values);
	free(launch);
}

static size_t slot_bytes(uint32_t bytes)
{
	return (bytes + 15u) / 16u * 16u;
}

unsigned fake_launch_run(const struct fake_launch_op *launch)
{
	void *parameters[SIMT_MAX_PARAMETERS];
	size_t at = 0;
	int result;

	for (uint32_t i = 0; i < launch->kernel->parameters; i++) {
		parameters[i] = launch->values + at;
		at += slot_bytes(launch->kernel->parameter_bytes[i]);
	}
	result = launch->run(launch->kernel, &launch->launch, parameters);
	if (result)
		fprintf(stderr, "fakecuda: kernel %s: %s\n", launch->kernel->name, launch->error());
	return (unsigned)result;
}

static uint64_t product(struct simt_dim dim)
{
	return (uint64_t)dim.x * dim.y * dim.z;
}

static bool bad_shape(const struct fake_function *function, const struct simt_launch *launch)
{
	uint32_t max_threads = function->kernel->max_threads ? function->kernel->max_threads : 1024;
	struct simt_dim grid = launch->grid;

	return !product(grid) || !product(launch->block) || grid.x > INT32_MAX || grid.y > 65535 ||
	       grid.z > 65535 || launch->block.z > 64 || product(launch->block) > max_threads ||
	       launch->shared_bytes > function->max_dynamic_shared;
}

static bool bad_cluster(const struct simt_launch *launch)
{
	struct simt_dim cluster = launch->cluster;

	return !product(cluster) || product(cluster) > 8 || launch->grid.x % cluster.x ||
	       launch->grid.y % cluster.y || launch->grid.z % cluster.z;
}

static void copy_values(struct fake_launch_op *op, void **parameters)
{
	const struct simt_kernel *kernel = op->kernel;
	size_t at = 0;

	for (uint32_t i = 0; i < kernel->parameters; i++)
		op->bytes += slot_bytes(kernel->parameter_bytes[i]);
	op->values = calloc(1, op->bytes + 1);
	if (!op->values)
		abort();
	for (uint32_t i = 0; i < kernel->parameters; i++) {
		memcpy(op->values + at, parameters[i], kernel->parameter_bytes[i]);
		at += slot_bytes(kernel->parameter_bytes[i]);
	}
}

/*
 * ISO C has no conversion from an object's pointer to a function's; POSIX says that the bytes are the same.
 */
static bool find_emulator(struct fake_launch_op *op)
{
	void *run = dlsym(fake_kernels(), "simt_launch");
	void *error = dlsym(fake_kernels(), "simt_error");

	memcpy(&op->run, &run, sizeof(run));
	memcpy(&op->error, &error, sizeof(error));
	return run && error;
}

static unsigned launch(struct kvw_cuda_function *handle, const struct simt_launch *shape,
		       struct kvw_cuda_stream *stream_handle, void **parameters)
{
	const struct fake_function *function = fake_object_get(FAKE_KIND_FUNCTION, handle);
	struct fake_stream *stream = fake_stream_get(stream_handle);
	struct fake_launch_op launch_op = {.launch = *shape};
	struct fake_op op = {.kind = FAKE_OP_LAUNCH, .u.launch = &launch_op};
	unsigned result;

	if (!function || !stream)
		return KVW_CUDA_INVALID_HANDLE;
	if (bad_shape(function, shape) || (function->kernel->parameters && !parameters))
		return KVW_CUDA_INVALID_VALUE;
	if (bad_cluster(shape))
		return FAKE_INVALID_CLUSTER_SIZE;
	launch_op.kernel = function->kernel;
	if (!find_emulator(&launch_op))
		return KVW_CUDA_NOT_SUPPORTED;
	copy_values(&launch_op, parameters);
	result = fake_stream_push(stream, &op);
	free(launch_op.values);
	return result;
}

FAKE_ENTRY(cuLaunchKernel,
	   (struct kvw_cuda_function * function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
	    unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
	    struct kvw_cuda_stream *stream, void **parameters, void **extra),
	   (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, parameters,
	    extra))
{
	struct simt_launch shape = {
		{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, {1, 1, 1}, shared_bytes};

	return extra ? KVW_CUDA_NOT_SUPPORTED : launch(function, &shape, stream, parameters);
}

FAKE_ENTRY(cuLaunchKernelEx,
	   (const struct kvw_cuda_launch *config, struct kvw_cuda_function *function, void **parameters,
	    void **extra),
	   (config, function, parameters, extra))
{
	struct simt_launch shape = {{config->grid_x, config->grid_y, config->grid_z},
				    {config->block_x, config->block_y, config->block_z},
				    {1, 1, 1},
				    config->shared_bytes};

	for (uint32_t i = 0; i < config->attribute_count; i++) {
		const struct kvw_cuda_launch_attribute *attribute = &config->attributes[i];

		if (attribute->id == KVW_CUDA_LAUNCH_CLUSTER)
			shape.cluster =
				(struct simt_dim){attribute->value.cluster.x, attribute->value.cluster.y,
						  attribute->value.cluster.z};
	}
	return extra ? KVW_CUDA_NOT_SUPPORTED : launch(function, &shape, config->stream, parameters);
}
