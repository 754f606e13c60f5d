/* SPDX-License-Identifier: Apache-2.0 */
#include "device.h"

#include "control.h"
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

int simt_device_launch(void *context, const struct kvk_cuda_launch *launch)
{
	struct simt_device *device = context;
	const struct simt_launch shape = {.grid = {launch->blocks, 1, 1},
					  .block = {launch->threads, 1, 1},
					  .cluster = {1, 1, 1},
					  .shared_bytes = launch->shared_bytes};
	const struct simt_kernel *kernel;
	void *args = malloc(launch->args_bytes); /* exact, and gone after the launch */
	char name[128];
	int ret;

	snprintf(name, sizeof(name), SIMT_KERNEL_PREFIX "%s", launch->kernel);
	kernel = dlsym(RTLD_DEFAULT, name);
	if (!kernel || !args || kernel->parameters != 1 || kernel->parameter_bytes[0] != launch->args_bytes) {
		fprintf(stderr, "%s: no such kernel, or not with a parameter of %u bytes\n", launch->kernel,
			launch->args_bytes);
		free(args);
		return -EFAULT;
	}
	memcpy(args, launch->args, launch->args_bytes);
	simt_set_seed(device->seed);
	device->launches++;
	ret = simt_launch(kernel, &shape, &args);
	if (ret)
		fprintf(stderr, "%s\n", simt_error());
	free(args);
	return ret ? -EFAULT : 0;
}
