/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory apart from addresses: handles, descriptors for other processes, reserved ranges and what is mapped
 * in them.
 */
#include "fake.h"

#include <fcntl.h>
#include <unistd.h>

static unsigned check_properties(const struct kvw_cuda_allocation *properties)
{
	int device = properties->location.id;

	if (properties->type != KVW_CUDA_ALLOCATION_PINNED ||
	    properties->location.type != KVW_CUDA_LOCATION_DEVICE)
		return KVW_CUDA_INVALID_VALUE;
	if (device < 0 || device >= fake_settings()->devices)
		return KVW_CUDA_INVALID_DEVICE;
	if (!fake_attribute(KVW_CUDA_ATTR_VMM, device) || properties->handle_types & ~KVW_CUDA_HANDLE_FD ||
	    (properties->handle_types && !fake_attribute(KVW_CUDA_ATTR_VMM_FD, device)) ||
	    (properties->rdma_capable && !fake_attribute(KVW_CUDA_ATTR_VMM_RDMA, device)))
		return KVW_CUDA_NOT_SUPPORTED;
	return 0;
}

FAKE_ENTRY(cuMemGetAllocationGranularity,
	   (size_t * bytes, const struct kvw_cuda_allocation *properties, unsigned option),
	   (bytes, properties, option))
{
	unsigned result = check_properties(properties);

	if (result || option > KVW_CUDA_GRANULARITY_RECOMMENDED)
		return result ? result : KVW_CUDA_INVALID_VALUE;
	*bytes = FAKE_GRANULARITY;
	return 0;
}

/* What a handle of the driver is here: a reference on memory, and whether it may be exported. */
struct memory_handle {
	struct fake_physical *physical;
	bool exportable;
	struct memory_handle *next_free;
};

static struct memory_handle pool[4096];
static struct memory_handle *free_handles;
static unsigned pool_used;

static uint64_t enter_handle(struct fake_physical *physical, bool exportable)
{
	struct memory_handle *handle = free_handles;

	if (handle)
		free_handles = handle->next_free;
	else if (pool_used < sizeof(pool) / sizeof(pool[0]))
		handle = &pool[pool_used++];
	else
		return 0;
	*handle = (struct memory_handle){physical, exportable, NULL};
	return (uint64_t)(uintptr_t)fake_object_add(FAKE_KIND_HANDLE, handle);
}

static struct memory_handle *get_handle(uint64_t handle)
{
	return fake_object_get(FAKE_KIND_HANDLE, (void *)(uintptr_t)handle);
}

FAKE_ENTRY(cuMemCreate,
	   (uint64_t * handle, size_t bytes, const struct kvw_cuda_allocation *properties, uint64_t flags),
	   (handle, bytes, properties, flags))
{
	struct fake_physical *physical;
	unsigned result = check_properties(properties);

	if (!result && (!bytes || bytes % FAKE_GRANULARITY || flags))
		result = KVW_CUDA_INVALID_VALUE;
	if (!result)
		result = fake_physical_create(properties->location.id, bytes, &physical);
	if (result)
		return result;
	*handle = enter_handle(physical, properties->handle_types != 0);
	return 0;
}

FAKE_ENTRY(cuMemRelease, (uint64_t handle), (handle))
{
	struct memory_handle *ours = get_handle(handle);

	if (!ours)
		return KVW_CUDA_INVALID_VALUE;
	fake_physical_drop(ours->physical);
	fake_object_remove(FAKE_KIND_HANDLE, (void *)(uintptr_t)handle);
	ours->next_free = free_handles;
	free_handles = ours;
	return 0;
}

FAKE_ENTRY(cuMemExportToShareableHandle, (void *shareable, uint64_t handle, unsigned type, uint64_t flags),
	   (shareable, handle, type, flags))
{
	const struct memory_handle *ours = get_handle(handle);
	int fd;

	if (!ours || flags || type != KVW_CUDA_HANDLE_FD || !ours->exportable)
		return KVW_CUDA_INVALID_VALUE;
	fd = fcntl(ours->physical->fd, F_DUPFD_CLOEXEC, 3);
	if (fd < 0)
		return KVW_CUDA_OPERATING_SYSTEM;
	*(int *)shareable = fd;
	return 0;
}

/* The descriptor stays the caller's. */
FAKE_ENTRY(cuMemImportFromShareableHandle, (uint64_t * handle, void *shareable, unsigned type),
	   (handle, shareable, type))
{
	struct fake_physical *physical;
	unsigned result;
	int fd;

	if (type != KVW_CUDA_HANDLE_FD)
		return KVW_CUDA_INVALID_VALUE;
	fd = fcntl((int)(intptr_t)shareable, F_DUPFD_CLOEXEC, 3);
	if (fd < 0)
		return KVW_CUDA_INVALID_VALUE;
	result = fake_physical_adopt(fd, &physical);
	if (result) {
		close(fd);
		return KVW_CUDA_INVALID_VALUE;
	}
	*handle = enter_handle(physical, true);
	return 0;
}

FAKE_ENTRY(cuMemAddressReserve,
	   (uint64_t * pointer, size_t bytes, size_t alignment, uint64_t hint, uint64_t flags),
	   (pointer, bytes, alignment, hint, flags))
{
	uint64_t base;

	(void)hint; /* only a wish */
	if (!bytes || bytes % FAKE_GRANULARITY || (alignment & (alignment - 1)) || flags)
		return KVW_CUDA_INVALID_VALUE;
	base = fake_range_place(bytes, alignment);
	if (!base)
		return KVW_CUDA_OUT_OF_MEMORY;
	fake_range_add(FAKE_KIND_RESERVATION, base, bytes);
	*pointer = base;
	return 0;
}

static bool anything_mapped(uint64_t pointer, uint64_t bytes)
{
	for (const struct fake_range *range = fake_range_first(); range; range = range->next)
		if (range->kind == FAKE_KIND_MAPPING && range->base < pointer + bytes &&
		    pointer < range->base + range->bytes)
			return true;
	return false;
}

FAKE_ENTRY(cuMemAddressFree, (uint64_t pointer, size_t bytes), (pointer, bytes))
{
	struct fake_range *range = fake_range_find(FAKE_KIND_RESERVATION, pointer);

	if (!range || range->base != pointer || range->bytes != bytes || anything_mapped(pointer, bytes))
		return KVW_CUDA_INVALID_VALUE;
	fake_range_unmap(range);
	fake_range_remove(range);
	return 0;
}

static bool reserved(uint64_t pointer, uint64_t bytes)
{
	const struct fake_range *range = fake_range_find(FAKE_KIND_RESERVATION, pointer);

	return range && bytes <= range->base + range->bytes - pointer;
}

FAKE_ENTRY(cuMemMap, (uint64_t pointer, size_t bytes, size_t offset, uint64_t handle, uint64_t flags),
	   (pointer, bytes, offset, handle, flags))
{
	const struct memory_handle *ours = get_handle(handle);
	struct fake_range *range;

	/* The driver takes whole memory only, so far. */
	if (!ours || flags || offset || bytes != ours->physical->bytes || pointer % FAKE_GRANULARITY ||
	    !reserved(pointer, bytes))
		return KVW_CUDA_INVALID_VALUE;
	if (anything_mapped(pointer, bytes))
		return KVW_CUDA_ALREADY_MAPPED;
	range = fake_range_add(FAKE_KIND_MAPPING, pointer, bytes);
	range->physical = ours->physical;
	range->device = ours->physical->device;
	if (!fake_range_map(range)) {
		fake_range_remove(range);
		return KVW_CUDA_MAP_FAILED;
	}
	ours->physical->references++;
	return 0;
}

/* Mappings that lie in the range, whole; false when they don't fill it. */
static bool each_mapping(uint64_t pointer, uint64_t bytes, void (*visit)(struct fake_range *, unsigned),
			 unsigned access)
{
	uint64_t end = pointer + bytes;

	while (pointer < end) {
		struct fake_range *range = fake_range_find(FAKE_KIND_MAPPING, pointer);

		if (!range || range->base != pointer || range->bytes > end - pointer)
			return false;
		pointer += range->bytes;
		if (visit)
			visit(range, access);
	}
	return true;
}

static void unmap_one(struct fake_range *range, unsigned access)
{
	(void)access;
	fake_range_unmap(range);
	fake_physical_drop(range->physical);
	fake_range_remove(range);
}

FAKE_ENTRY(cuMemUnmap, (uint64_t pointer, size_t bytes), (pointer, bytes))
{
	if (!bytes || !each_mapping(pointer, bytes, NULL, 0))
		return KVW_CUDA_INVALID_VALUE;
	(void)fake_wait_all(NULL);
	(void)each_mapping(pointer, bytes, unmap_one, 0);
	return 0;
}

static void set_access(struct fake_range *range, unsigned access)
{
	range->access = access;
	(void)fake_range_map(range);
}

FAKE_ENTRY(cuMemSetAccess,
	   (uint64_t pointer, size_t bytes, const struct kvw_cuda_access *access, size_t count),
	   (pointer, bytes, access, count))
{
	if (count != 1 || !bytes || access->location.type != KVW_CUDA_LOCATION_DEVICE ||
	    (access->flags & ~KVW_CUDA_ACCESS_READ_WRITE) || !each_mapping(pointer, bytes, NULL, 0))
		return KVW_CUDA_INVALID_VALUE;
	(void)fake_wait_all(NULL);
	(void)each_mapping(pointer, bytes, set_access, access->flags);
	return 0;
}
