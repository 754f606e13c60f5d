/* SPDX-License-Identifier: Apache-2.0 */
#include "device.h"

#include <errno.h>
#include <stdlib.h>

#include "../ctl.h"
#include "ipc/cuda_driver.h"

/* A prefill chunk's rows, about. */
#define ROOM_BYTES ((size_t)4 << 20)
#define PAGE_BYTES ((size_t)4096)

struct rep_device {
	struct kvw_cuda *cuda;
	int ordinal;
	struct kvw_cuda_context *context; /* its primary one, the library's too */
	struct kvw_cuda_stream *stream;
	uint8_t *memory; /* registered: room for rows, then a page */
	size_t bytes;
	bool registered;
	size_t used; /* of the room */
	int status;
};

static uint64_t address(const void *pointer)
{
	return (uint64_t)(uintptr_t)pointer;
}

static int note(struct rep_device *device, int ret)
{
	if (ret < 0 && !device->status)
		device->status = ret;
	return ret;
}

/* The device that has the pool, and the context in which the library has mapped it. */
static int enter_context(struct rep_device *device, const void *data, struct kvw_cuda_error *error)
{
	int handle;
	int i;
	int ret = 0;

	for (i = 0; i < device->cuda->devices; i++) {
		struct kvw_cuda_context *context;

		ret = KVW_CUDA(device->cuda, error, cuDeviceGet, &handle, i);
		if (!ret)
			ret = KVW_CUDA(device->cuda, error, cuDevicePrimaryCtxRetain, &context, handle);
		if (!ret)
			ret = KVW_CUDA(device->cuda, error, cuCtxPushCurrent, context);
		if (ret < 0)
			return ret;
		device->context = context;
		device->ordinal = handle;
		if (!KVW_CUDA(device->cuda, NULL, cuPointerGetAttribute, &handle, KVW_CUDA_POINTER_ORDINAL,
			      address(data)) &&
		    handle == i)
			return 0;
		(void)KVW_CUDA(device->cuda, NULL, cuCtxPopCurrent, NULL);
		(void)KVW_CUDA(device->cuda, NULL, cuDevicePrimaryCtxRelease, device->ordinal);
		device->context = NULL;
	}
	return -ENODEV;
}

static int prepare(struct rep_device *device, const void *data, size_t page_bytes,
		   struct kvw_cuda_error *error)
{
	int ret = enter_context(device, data, error);

	if (ret)
		return ret;
	device->bytes = ROOM_BYTES + (page_bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
	device->memory = aligned_alloc(PAGE_BYTES, device->bytes);
	if (!device->memory)
		return -ENOMEM;
	ret = KVW_CUDA(device->cuda, error, cuMemHostRegister, device->memory, device->bytes,
		       KVW_CUDA_HOST_PORTABLE);
	device->registered = !ret;
	return ret ? ret
		   : KVW_CUDA(device->cuda, error, cuStreamCreate, &device->stream,
			      KVW_CUDA_STREAM_NON_BLOCKING);
}

int rep_device_open(const void *data, size_t page_bytes, struct rep_device **out)
{
	struct rep_device *device = calloc(1, sizeof(*device));
	struct kvw_cuda_error error = {.text = "no device has the pool's address, or no memory is left"};
	int ret;

	if (!device)
		return -ENOMEM;
	ret = kvw_cuda_open(&device->cuda, &error);
	if (!ret)
		ret = prepare(device, data, page_bytes, &error);
	if (ret) {
		ctl_complain("%s", error.text);
		rep_device_close(device);
		return ret;
	}
	*out = device;
	return 0;
}

void rep_device_close(struct rep_device *device)
{
	if (!device)
		return;
	if (device->stream) {
		(void)KVW_CUDA(device->cuda, NULL, cuStreamSynchronize, device->stream);
		(void)KVW_CUDA(device->cuda, NULL, cuStreamDestroy, device->stream);
	}
	if (device->registered)
		(void)KVW_CUDA(device->cuda, NULL, cuMemHostUnregister, device->memory);
	if (device->context) {
		(void)KVW_CUDA(device->cuda, NULL, cuCtxPopCurrent, NULL);
		(void)KVW_CUDA(device->cuda, NULL, cuDevicePrimaryCtxRelease, device->ordinal);
	}
	kvw_cuda_close(device->cuda);
	free(device->memory);
	free(device);
}

void *rep_device_stream(const struct rep_device *device)
{
	return device->stream;
}

void rep_device_wait(struct rep_device *device)
{
	(void)note(device, KVW_CUDA(device->cuda, NULL, cuStreamSynchronize, device->stream));
}

uint8_t *rep_device_room(struct rep_device *device, size_t bytes)
{
	uint8_t *room;

	if (bytes > ROOM_BYTES - device->used) {
		rep_device_wait(device);
		device->used = 0;
	}
	room = device->memory + device->used;
	device->used += (bytes + 15) & ~(size_t)15;
	if (device->used > ROOM_BYTES)
		device->used = ROOM_BYTES;
	return room;
}

void rep_device_put(struct rep_device *device, void *to, const uint8_t *room, size_t bytes)
{
	(void)note(device,
		   KVW_CUDA(device->cuda, NULL, cuMemcpyHtoDAsync, address(to), room, bytes, device->stream));
}

const uint8_t *rep_device_get(struct rep_device *device, const void *from, size_t bytes)
{
	uint8_t *page = device->memory + ROOM_BYTES;

	(void)note(device, KVW_CUDA(device->cuda, NULL, cuMemcpyDtoHAsync, page, address(from), bytes,
				    device->stream));
	rep_device_wait(device);
	return page;
}

int rep_device_status(const struct rep_device *device)
{
	return device->status;
}
