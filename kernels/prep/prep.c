/* SPDX-License-Identifier: Apache-2.0 */
/* See prep.h. */
#include "prep.h"

#include "../check.h"
#include "../cpu/level.h"

#include <errno.h>

KVK_LEVEL_TABLES(kvk_prep_ops, kvk_prep);

const struct kvk_prep_ops *kvk_prep_ops(void)
{
	enum kvk_level level = KVK_LEVEL_SCALAR;

	return kvk_level_choose(&level) ? &kvk_prep_scalar : KVK_LEVEL_TABLE(kvk_prep, level);
}

int kvk_prep_refuse(struct kvk_prep_fault *fault, int code, const char *name, int64_t index, int64_t value,
		    int64_t limit)
{
	if (fault)
		*fault =
			(struct kvk_prep_fault){.name = name, .index = index, .value = value, .limit = limit};
	return code;
}

int kvk_prep_at_least(struct kvk_prep_fault *fault, const char *name, int64_t value, int64_t least)
{
	return value < least ? kvk_prep_refuse(fault, -EINVAL, name, -1, value, least) : 0;
}

int kvk_prep_flags(struct kvk_prep_fault *fault, uint32_t flags, uint32_t known)
{
	return flags & ~known ? kvk_prep_refuse(fault, -EINVAL, "flags", -1, flags, known) : 0;
}

int kvk_prep_slot_bytes(struct kvk_prep_fault *fault, uint32_t slot_bytes)
{
	return slot_bytes == 4 || slot_bytes == 8
		       ? 0
		       : kvk_prep_refuse(fault, -EINVAL, "slot_bytes", -1, slot_bytes, 8);
}

int kvk_prep_given(struct kvk_prep_fault *fault, const char *name, const void *array)
{
	return array ? 0 : kvk_prep_refuse(fault, -EINVAL, name, -1, 0, 0);
}

int kvk_prep_table(struct kvk_prep_fault *fault, const char *name, const void *array, int64_t rows,
		   int64_t columns, int64_t *stride)
{
	const int64_t given = *stride;
	const struct kvk_array table = {.base = array,
					.element_bytes = sizeof(int32_t),
					.rank = 2,
					.sizes = {rows, columns},
					.strides = {stride}};
	int ret = kvk_check_array(&table);

	return ret ? kvk_prep_refuse(fault, ret, name, -1, given, 0) : 0;
}

int kvk_prep_sum(struct kvk_prep_fault *fault, const char *name, const int32_t *counts, int32_t batch,
		 const char *out_name, int64_t room, int32_t *out_sum)
{
	int64_t sum = 0;

	for (int32_t i = 0; i < batch; i++) {
		if (counts[i] < 0)
			return kvk_prep_refuse(fault, -ERANGE, name, i, counts[i], 0);
		sum += counts[i];
	}
	if (sum > INT32_MAX)
		return kvk_prep_refuse(fault, -EOVERFLOW, name, -1, sum, INT32_MAX);
	if (sum > room)
		return kvk_prep_refuse(fault, -ENOSPC, out_name, -1, sum, room);
	*out_sum = (int32_t)sum;
	return 0;
}
