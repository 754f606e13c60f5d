/* SPDX-License-Identifier: Apache-2.0 */
/* cuMemAlloc and what tells of it. */
#include "fake.h"

static unsigned enter(struct fake_physical *physical, uint64_t *pointer)
{
	uint64_t base = fake_range_place(physical->bytes, 0);
	struct fake_range *range;

	if (!base)
		return KVW_CUDA_OUT_OF_MEMORY;
	range = fake_range_add(FAKE_KIND_ALLOCATION, base, physical->bytes);
	range->physical = physical;
	range->device = physical->device;
	range->access = KVW_CUDA_ACCESS_READ_WRITE;
	if (!fake_range_map(range)) {
		fake_range_remove(range);
		return KVW_CUDA_OPERATING_SYSTEM;
	}
	*pointer = base;
	return 0;
}

FAKE_ENTRY(cuMemAlloc, (uint64_t * pointer, size_t bytes), (pointer, bytes))
{
	struct fake_physical *physical;
	unsigned result;

	if (!bytes)
		return KVW_CUDA_INVALID_VALUE;
	result = fake_physical_create(fake_context_current()->device, bytes, &physical);
	if (result)
		return result;
	result = enter(physical, pointer);
	if (result)
		fake_physical_drop(physical);
	return result;
}

FAKE_ENTRY(cuMemFree, (uint64_t pointer), (pointer))
{
	struct fake_range *range = fake_range_find(FAKE_KIND_ALLOCATION, pointer);

	if (!pointer)
		return 0;
	if (!range || range->base != pointer)
		return KVW_CUDA_INVALID_VALUE;
	(void)fake_wait_all(NULL);
	fake_physical_poison(range->physical);
	fake_range_unmap(range);
	fake_physical_drop(range->physical);
	fake_range_remove(range);
	return 0;
}

FAKE_ENTRY(cuMemGetInfo, (size_t * free_bytes, size_t *total_bytes), (free_bytes, total_bytes))
{
	uint64_t used = fake_device_used(fake_context_current()->device);

	*total_bytes = fake_settings()->memory_bytes;
	*free_bytes = used < *total_bytes ? *total_bytes - used : 0;
	return 0;
}

static const struct fake_range *device_range(uint64_t pointer)
{
	static const enum fake_kind kinds[] = {FAKE_KIND_ALLOCATION, FAKE_KIND_IMPORT, FAKE_KIND_MAPPING};
	const struct fake_range *range = NULL;

	for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]) && !range; i++)
		range = fake_range_find(kinds[i], pointer);
	return range;
}

FAKE_ENTRY(cuMemGetAddressRange, (uint64_t * base, size_t *bytes, uint64_t pointer), (base, bytes, pointer))
{
	const struct fake_range *range = device_range(pointer);

	if (!range)
		return KVW_CUDA_NOT_FOUND;
	if (base)
		*base = range->base;
	if (bytes)
		*bytes = range->bytes;
	return 0;
}

FAKE_ENTRY(cuPointerGetAttribute, (void *value, unsigned attribute, uint64_t pointer),
	   (value, attribute, pointer))
{
	const struct fake_range *range = device_range(pointer);

	if (!range)
		return KVW_CUDA_INVALID_VALUE;
	if (attribute == KVW_CUDA_POINTER_ORDINAL)
		*(int *)value = range->device;
	else if (attribute == KVW_CUDA_POINTER_CONTEXT)
		*(void **)value = fake_context_handle(fake_context_of(range->device));
	else
		return KVW_CUDA_INVALID_VALUE;
	return 0;
}
