/* SPDX-License-Identifier: Apache-2.0 */
/* Registered host memory. Its device pointer is its address, as on every device of the last ten years. */
#include "fake.h"

#include <stdio.h>

/* More in one call fails on drivers from 580 on. */
#define REGISTER_LIMIT (UINT64_C(512) << 30)

/*
 * The process has all of it mapped, and may write it: memory that it may only read can't be registered
 * without the flag for it.
 */
static bool host_mapped(uint64_t address, uint64_t bytes, bool writable)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	uint64_t end = address + bytes;
	unsigned long long from;
	unsigned long long to;
	char line[512];
	char mode[8];

	while (maps && address < end && fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%llx-%llx %7s", &from, &to, mode) != 3 || to <= address)
			continue;
		if (from > address || mode[0] != 'r' || (writable && mode[1] != 'w'))
			break;
		address = to;
	}
	if (maps)
		fclose(maps);
	return address >= end;
}

static bool overlaps(uint64_t address, uint64_t bytes)
{
	for (const struct fake_range *range = fake_range_first(); range; range = range->next)
		if (range->kind == FAKE_KIND_REGISTRATION && address < range->base + range->bytes &&
		    range->base < address + bytes)
			return true;
	return false;
}

FAKE_ENTRY(cuMemHostRegister, (void *memory, size_t bytes, unsigned flags), (memory, bytes, flags))
{
	uint64_t address = (uint64_t)(uintptr_t)memory;
	int device = fake_context_current()->device;
	bool read_only = flags & KVW_CUDA_HOST_READ_ONLY;
	struct fake_range *range;

	if (!address || !bytes || address + bytes < address || flags > 15)
		return KVW_CUDA_INVALID_VALUE;
	if (read_only && !fake_attribute(KVW_CUDA_ATTR_READ_ONLY_REGISTER, device))
		return KVW_CUDA_NOT_SUPPORTED;
	if (bytes >= REGISTER_LIMIT)
		return KVW_CUDA_OUT_OF_MEMORY;
	if (!host_mapped(address, bytes, !read_only))
		return KVW_CUDA_INVALID_VALUE;
	if (overlaps(address, bytes))
		return KVW_CUDA_HOST_MEMORY_ALREADY_REGISTERED;
	range = fake_range_add(FAKE_KIND_REGISTRATION, address, bytes);
	range->access = read_only ? KVW_CUDA_ACCESS_READ : KVW_CUDA_ACCESS_READ_WRITE;
	range->device = device;
	return 0;
}

FAKE_ENTRY(cuMemHostUnregister, (void *memory), (memory))
{
	struct fake_range *range = fake_range_find(FAKE_KIND_REGISTRATION, (uint64_t)(uintptr_t)memory);

	if (!range || range->base != (uint64_t)(uintptr_t)memory)
		return KVW_CUDA_HOST_MEMORY_NOT_REGISTERED;
	(void)fake_wait_all(NULL);
	fake_range_remove(range);
	return 0;
}

FAKE_ENTRY(cuMemHostGetDevicePointer, (uint64_t * pointer, void *memory, unsigned flags),
	   (pointer, memory, flags))
{
	if (flags || !fake_range_find(FAKE_KIND_REGISTRATION, (uint64_t)(uintptr_t)memory))
		return KVW_CUDA_INVALID_VALUE;
	*pointer = (uint64_t)(uintptr_t)memory;
	return 0;
}
