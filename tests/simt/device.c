/* SPDX-License-Identifier: Apache-2.0 */
#include "device.h"

#include "control.h"
#include "cuda/args.h"
#include "kernel_table.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint32_t simt_device_flags(void)
{
	return KVK_CUDA_WARPGROUPS;
}

/* As cuTensorMapEncodeTiled() of the driver's double has it. */
static struct simt_tensor_map map_of(const struct kvk_cuda_tensor *tensor)
{
	return (struct simt_tensor_map){.magic = SIMT_TENSOR_MAP_MAGIC,
					.address = (uint64_t)(uintptr_t)tensor->base,
					.dim = {tensor->width, tensor->tokens, tensor->pages},
					.stride = {tensor->token_bytes, tensor->page_bytes},
					.box = {KVK_CUDA_BOX, KVK_CUDA_BOX, 1},
					.type = 9, /* bf16, see cuda_driver.h */
					.rank = 3,
					.swizzle = 3}; /* 128 bytes */
}

static void put_map(void *args)
{
	const struct kvk_cuda_tensor tensor = *(const struct kvk_cuda_tensor *)args;
	const struct simt_tensor_map map = map_of(&tensor);

	memcpy(args, &map, sizeof(map));
}

int simt_device_launch(void *context, const struct kvk_cuda_launch *launch)
{
	struct simt_device *device = context;
	const struct simt_launch shape = {.grid = {launch->blocks, 1, 1},
					  .block = {launch->threads, 1, 1},
					  .cluster = {1, 1, 1},
					  .shared_bytes = launch->shared_bytes};
	const struct simt_kernel *kernel;
	void *args = NULL; /* exact, and gone after the launch */
	char name[128];
	int ret;

	if (posix_memalign(&args, _Alignof(struct kvk_cuda_tensor), launch->args_bytes))
		args = NULL;
	snprintf(name, sizeof(name), SIMT_KERNEL_PREFIX "%s", launch->kernel);
	kernel = dlsym(RTLD_DEFAULT, name);
	if (!kernel || !args || kernel->parameters != 1 || kernel->parameter_bytes[0] != launch->args_bytes) {
		fprintf(stderr, "%s: no such kernel, or not with a parameter of %u bytes\n", launch->kernel,
			launch->args_bytes);
		free(args);
		return -EFAULT;
	}
	memcpy(args, launch->args, launch->args_bytes);
	if (launch->tensor)
		put_map(args);
	simt_set_seed(device->seed);
	device->launches++;
	ret = simt_launch(kernel, &shape, &args);
	if (ret)
		fprintf(stderr, "%s\n", simt_error());
	free(args);
	return ret ? -EFAULT : 0;
}
