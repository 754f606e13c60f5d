/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handles of whole allocations: 64 bytes that name the owner and its descriptor. The opener takes it from
 * the owner's /proc/<pid>/fd, hence needs to see that process, as the real thing does; a start time keeps a
 * later process of the same number from being taken for it.
 */
#include "fake.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MAGIC 0x43504946u

struct handle {
	uint32_t magic;
	int32_t pid;
	int32_t fd;
	int32_t reserved;
	uint64_t start_time;
	uint64_t id;
	uint8_t rest[32];
};

_Static_assert(sizeof(struct handle) == sizeof(struct kvw_cuda_ipc_handle), "a handle has 64 bytes");

FAKE_ENTRY(cuIpcGetMemHandle, (struct kvw_cuda_ipc_handle * out, uint64_t pointer), (out, pointer))
{
	const struct fake_range *range = fake_range_find(FAKE_KIND_ALLOCATION, pointer);
	struct handle handle = {.magic = MAGIC, .pid = getpid()};

	if (!range || range->base != pointer)
		return KVW_CUDA_INVALID_VALUE;
	handle.start_time = fake_self()->start_time;
	handle.fd = range->physical->fd;
	handle.id = range->physical->id;
	memcpy(out, &handle, sizeof(*out));
	return 0;
}

static struct fake_range *opened(uint64_t id)
{
	for (struct fake_range *range = fake_range_first(); range; range = range->next)
		if (range->kind == FAKE_KIND_IMPORT && range->physical->id == id)
			return range;
	return NULL;
}

/* The descriptor in the owner may be another file by now: its name must be the memory's. */
static int open_owners(const struct handle *handle)
{
	char wanted[64];
	char path[64];
	char target[128] = "";

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", handle->pid, handle->fd);
	fake_physical_name(handle->id, wanted, sizeof(wanted));
	if (readlink(path, target, sizeof(target) - 1) < 0 || strncmp(target, "/memfd:", 7) ||
	    strncmp(target + 7, wanted, strlen(wanted)) || target[7 + strlen(wanted)] != ' ')
		return -1;
	return open(path, O_RDWR | O_CLOEXEC);
}

static unsigned map_import(struct fake_physical *physical, uint64_t *pointer)
{
	uint64_t base = fake_range_place(physical->bytes, 0);
	struct fake_range *range;

	if (!base)
		return KVW_CUDA_MAP_FAILED;
	range = fake_range_add(FAKE_KIND_IMPORT, base, physical->bytes);
	range->physical = physical;
	range->device = physical->device;
	range->access = KVW_CUDA_ACCESS_READ_WRITE;
	if (!fake_range_map(range)) {
		fake_range_remove(range);
		return KVW_CUDA_MAP_FAILED;
	}
	*pointer = base;
	return 0;
}

static unsigned open_foreign(const struct handle *handle, uint64_t *pointer)
{
	struct fake_physical *physical;
	unsigned result;
	int fd;

	if (!handle->start_time || fake_start_time(handle->pid) != handle->start_time)
		return KVW_CUDA_INVALID_HANDLE;
	fd = open_owners(handle);
	if (fd < 0)
		return KVW_CUDA_INVALID_HANDLE;
	result = fake_physical_adopt(fd, &physical);
	if (result) {
		close(fd);
		return result;
	}
	result = physical->device == fake_context_current()->device ? map_import(physical, pointer)
								    : KVW_CUDA_INVALID_DEVICE;
	if (result)
		fake_physical_drop(physical);
	return result;
}

FAKE_ENTRY(cuIpcOpenMemHandle, (uint64_t * pointer, struct kvw_cuda_ipc_handle bytes, unsigned flags),
	   (pointer, bytes, flags))
{
	struct fake_range *range;
	struct handle handle;

	memcpy(&handle, &bytes, sizeof(handle));
	if (flags != KVW_CUDA_IPC_LAZY_PEER || handle.magic != MAGIC)
		return KVW_CUDA_INVALID_VALUE;
	if (handle.pid == getpid())
		return KVW_CUDA_INVALID_CONTEXT;
	range = opened(handle.id);
	if (!range)
		return open_foreign(&handle, pointer);
	range->references++;
	*pointer = range->base;
	return 0;
}

FAKE_ENTRY(cuIpcCloseMemHandle, (uint64_t pointer), (pointer))
{
	struct fake_range *range = fake_range_find(FAKE_KIND_IMPORT, pointer);

	if (!range || range->base != pointer)
		return KVW_CUDA_INVALID_VALUE;
	if (--range->references)
		return 0;
	(void)fake_wait_all(NULL);
	fake_range_unmap(range);
	fake_physical_drop(range->physical);
	fake_range_remove(range);
	return 0;
}
