/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The primary context: the one that a program in the same process would share. With ipc it is kept, since
 * the allocation lives in it; with fd it is given back each time.
 */
#include "device_cuda_internal.h"

#include "log.h"

#include <errno.h>
#include <inttypes.h>

int kvd_cuda_enter(struct kvd_memory *memory)
{
	int ret = 0;

	if (!memory->context)
		ret = KVD_CUDA(memory, cuDevicePrimaryCtxRetain, &memory->context, memory->ordinal);
	if (ret < 0)
		return ret;
	ret = KVD_CUDA(memory, cuCtxPushCurrent, memory->context);
	if (ret < 0 && !memory->pointer) {
		(void)KVD_CUDA_TRY(memory, cuDevicePrimaryCtxRelease, memory->ordinal);
		memory->context = NULL;
	}
	return ret;
}

void kvd_cuda_leave(struct kvd_memory *memory)
{
	(void)KVD_CUDA_TRY(memory, cuCtxPopCurrent, NULL);
	if (memory->pointer)
		return;
	(void)KVD_CUDA_TRY(memory, cuDevicePrimaryCtxRelease, memory->ordinal);
	memory->context = NULL;
}

int kvd_cuda_check_room(struct kvd_memory *memory)
{
	size_t free_bytes;
	size_t total_bytes;
	int ret = KVD_CUDA(memory, cuMemGetInfo, &free_bytes, &total_bytes);

	if (ret < 0 || memory->bytes <= free_bytes)
		return ret;
	kvd_cuda_complain(memory,
			  "needs %" PRIu64 " bytes of device '%s', %zu of %zu are free; make 'blocks' "
			  "smaller, or end what uses them",
			  memory->bytes, memory->device, free_bytes, total_bytes);
	return -ENOMEM;
}
