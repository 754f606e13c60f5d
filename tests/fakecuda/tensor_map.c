/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor maps: the driver's rules about shapes, and the arguments as they came for the emulator. */
#include "fake.h"

#include "tests/simt/kernel_table.h"

#include <string.h>

/* Bytes of an element, by the driver's number of the type. */
static const uint8_t element_bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};

static const uint32_t swizzle_bytes[] = {0, 32, 64, 128};

static bool bad_box(const struct simt_tensor_map *map, uint32_t bytes)
{
	for (unsigned i = 0; i < map->rank; i++)
		if (!map->box[i] || map->box[i] > 256 || !map->dim[i] || map->dim[i] > UINT64_C(1) << 32)
			return true;
	if (map->box[0] * bytes % 16)
		return true;
	return map->swizzle && map->box[0] * bytes > swizzle_bytes[map->swizzle];
}

static bool bad_strides(const struct simt_tensor_map *map)
{
	for (unsigned i = 0; i + 1 < map->rank; i++)
		if (!map->stride[i] || map->stride[i] % 16 || map->stride[i] >= UINT64_C(1) << 40)
			return true;
	return false;
}

FAKE_ENTRY(cuTensorMapEncodeTiled,
	   (struct kvw_cuda_tensor_map * out, unsigned type, uint32_t rank, void *address,
	    const uint64_t *dim, const uint64_t *stride, const uint32_t *box, const uint32_t *element_stride,
	    unsigned interleave, unsigned swizzle, unsigned l2_promotion, unsigned oob_fill),
	   (out, type, rank, address, dim, stride, box, element_stride, interleave, swizzle, l2_promotion,
	    oob_fill))
{
	struct simt_tensor_map map = {.magic = SIMT_TENSOR_MAP_MAGIC,
				      .address = (uint64_t)(uintptr_t)address};

	if (!out || (uintptr_t)out % 64 || !rank || rank > 5 || type >= sizeof(element_bytes) || interleave ||
	    swizzle > 3 || l2_promotion > 3 || oob_fill > 1 || !address || map.address % 16)
		return KVW_CUDA_INVALID_VALUE;
	for (uint32_t i = 0; i < rank; i++) {
		if (element_stride[i] != 1)
			return KVW_CUDA_NOT_SUPPORTED;
		map.dim[i] = dim[i];
		map.box[i] = box[i];
		if (i + 1 < rank)
			map.stride[i] = stride[i];
	}
	map.type = (uint8_t)type;
	map.rank = (uint8_t)rank;
	map.swizzle = (uint8_t)swizzle;
	map.oob_fill = (uint8_t)oob_fill;
	if (bad_box(&map, element_bytes[type]) || bad_strides(&map))
		return KVW_CUDA_INVALID_VALUE;
	memcpy(out, &map, sizeof(map));
	return 0;
}
