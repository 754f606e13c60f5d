/* SPDX-License-Identifier: Apache-2.0 */
/* See check.h. Everything here runs once a call, over at most the integer tables: never over cache memory. */
#include "check.h"

#include "internal.h"

#include <errno.h>
#include <string.h>

int kvk_take_params(void *known, size_t known_bytes, const void *params)
{
	const unsigned char *bytes = params;
	uint32_t size;

	if (!params)
		return -EINVAL;
	memcpy(&size, params, sizeof(size));
	if (size < sizeof(size))
		return -EINVAL;
	for (size_t i = known_bytes; i < size; i++)
		if (bytes[i])
			return -E2BIG;
	memset(known, 0, known_bytes);
	memcpy(known, params, size < known_bytes ? size : known_bytes);
	return 0;
}

/* The stride of dimension `dim` in elements, the caller's or the contiguous one. */
static int resolve_stride(const struct kvk_array *array, int dim, int64_t inner_stride, int64_t *stride)
{
	if (*stride < 0)
		return -EINVAL;
	if (*stride == 0 && __builtin_mul_overflow(array->sizes[dim + 1], inner_stride, stride))
		return -EOVERFLOW;
	return 0;
}

int kvk_check_array(const struct kvk_array *array)
{
	int64_t last = array->sizes[array->rank - 1] - 1; /* offset of the last element */
	int64_t inner = 1;
	int64_t step;
	int64_t bytes;
	int ret;

	if (!array->base)
		return -EINVAL;
	for (int dim = array->rank - 2; dim >= 0; dim--) {
		ret = resolve_stride(array, dim, inner, array->strides[dim]);
		if (ret)
			return ret;
		inner = *array->strides[dim];
		if (array->sizes[dim] == 0)
			continue;
		if (__builtin_mul_overflow(array->sizes[dim] - 1, inner, &step) ||
		    __builtin_add_overflow(last, step, &last))
			return -EOVERFLOW;
	}
	if (__builtin_add_overflow(last, 1, &last) ||
	    __builtin_mul_overflow(last, (int64_t)array->element_bytes, &bytes))
		return -EOVERFLOW;
	return 0;
}

int kvk_check_dtype(uint32_t dtype, uint32_t allowed)
{
	if (!kvk_dtype_bytes(dtype))
		return -EINVAL;
	return allowed >> dtype & 1u ? 0 : -ENOTSUP;
}

int kvk_check_threads(const struct kvk_threads *threads)
{
	if (!threads)
		return 0;
	if (threads->size < sizeof(*threads) || threads->count < 1 || threads->count > KVK_MAX_THREADS)
		return -EINVAL;
	return threads->run ? 0 : -EINVAL;
}

int kvk_check_scratch(const void *scratch, size_t bytes, size_t needed)
{
	if (bytes < needed)
		return -ENOSPC;
	if (needed && (!scratch || (uintptr_t)scratch % KVK_SCRATCH_ALIGN))
		return -EINVAL;
	return 0;
}

static int check_table_row(const struct kvk_paging *paging, int32_t sequence)
{
	int32_t len = paging->lens[sequence];
	const int32_t *row;
	int32_t used;

	if (len <= 0)
		return 0;
	used = (len - 1) / paging->page_tokens + 1;
	if (used > paging->table_width)
		return -ERANGE;
	row = paging->block_table + sequence * paging->table_stride;
	for (int32_t i = 0; i < used; i++)
		if (row[i] < 0 || row[i] >= paging->pages)
			return -ERANGE;
	return 0;
}

int kvk_check_paging(const struct kvk_paging *paging)
{
	int ret = 0;

	for (int32_t i = 0; i < paging->batch && !ret; i++)
		ret = check_table_row(paging, i);
	return ret;
}

int kvk_check_offsets(const int32_t *offsets, int32_t batch, int32_t limit)
{
	if (offsets[0] < 0 || offsets[batch] > limit)
		return -ERANGE;
	for (int32_t i = 0; i < batch; i++)
		if (offsets[i] > offsets[i + 1])
			return -ERANGE;
	return 0;
}

int kvk_check_slots(const void *slots, uint32_t slot_bytes, int32_t tokens, int64_t slot_count)
{
	for (int32_t i = 0; i < tokens; i++)
		if (kvk_slot(slots, slot_bytes, i) >= slot_count)
			return -ERANGE;
	return 0;
}
