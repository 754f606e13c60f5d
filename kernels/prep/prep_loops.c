/* SPDX-License-Identifier: Apache-2.0 */
/* The inner loops of the host preparation, shaped so that a compiler turns each into vectors. See prep.h. */
#include "prep.h"

#include "../cpu/level.h"

static void range(const int32_t *ids, int64_t count, int32_t *least, int32_t *most)
{
	int32_t low = *least;
	int32_t high = *most;

	for (int64_t i = 0; i < count; i++) {
		low = ids[i] < low ? ids[i] : low;
		high = ids[i] > high ? ids[i] : high;
	}
	*least = low;
	*most = high;
}

static void convert(int32_t *restrict out, const int32_t *restrict ids, int64_t count,
		    const struct kvk_prep_ratio *ratio)
{
	const uint32_t scale = (uint32_t)ratio->scale;
	const uint64_t magic = ratio->magic;
	const uint32_t shift = ratio->shift;
	const int32_t none = ratio->none;

	for (int64_t i = 0; i < count; i++) {
		uint32_t scaled = (uint32_t)ids[i] * scale;
		int32_t quotient = (int32_t)(scaled * magic >> shift);

		out[i] = ids[i] < 0 ? none : quotient;
	}
}

static void count_up32(int32_t *out, int64_t first, int64_t count)
{
	const int32_t start = (int32_t)first;

	for (int32_t i = 0; i < (int32_t)count; i++)
		out[i] = start + i;
}

static void count_up64(int64_t *out, int64_t first, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		out[i] = first + i;
}

static void fill(int32_t *out, int32_t value, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		out[i] = value;
}

extern const struct kvk_prep_ops KVK_OPS(kvk_prep);
const struct kvk_prep_ops KVK_OPS(kvk_prep) = {
	.range = range, .convert = convert, .count_up32 = count_up32, .count_up64 = count_up64, .fill = fill};
