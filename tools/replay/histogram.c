/* SPDX-License-Identifier: Apache-2.0 */
/* Buckets that grow with their values. */
#include "histogram.h"

#define SUB_BITS 5u
#define SUBS (1u << SUB_BITS)

static uint32_t bucket_of(uint64_t value)
{
	uint32_t top;

	if (value < SUBS)
		return (uint32_t)value;
	top = 63u - (uint32_t)__builtin_clzll(value);
	return (top - SUB_BITS + 1) * SUBS + (uint32_t)(value >> (top - SUB_BITS) & (SUBS - 1));
}

static uint64_t middle_of(uint32_t bucket)
{
	uint32_t shift;

	if (bucket < SUBS)
		return bucket;
	shift = bucket / SUBS - 1;
	return ((uint64_t)(SUBS + bucket % SUBS) << shift) + (((uint64_t)1 << shift) >> 1);
}

static void raise_by(_Atomic uint64_t *count, uint64_t value)
{
	atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + value,
			      memory_order_relaxed);
}

void rep_histogram_add(struct rep_histogram *histogram, uint64_t value)
{
	raise_by(&histogram->counts[bucket_of(value)], 1);
}

void rep_histogram_merge(struct rep_histogram *into, const struct rep_histogram *from)
{
	for (uint32_t i = 0; i < REP_HISTOGRAM_BUCKETS; i++)
		raise_by(&into->counts[i], atomic_load_explicit(&from->counts[i], memory_order_relaxed));
}

uint64_t rep_histogram_count(const struct rep_histogram *histogram)
{
	uint64_t count = 0;

	for (uint32_t i = 0; i < REP_HISTOGRAM_BUCKETS; i++)
		count += atomic_load_explicit(&histogram->counts[i], memory_order_relaxed);
	return count;
}

uint64_t rep_histogram_quantile(const struct rep_histogram *histogram, uint32_t per_mille)
{
	uint64_t count = rep_histogram_count(histogram);
	uint64_t rank = (count * per_mille + 999) / 1000;
	uint64_t seen = 0;

	for (uint32_t i = 0; i < REP_HISTOGRAM_BUCKETS; i++) {
		seen += atomic_load_explicit(&histogram->counts[i], memory_order_relaxed);
		if (seen && seen >= rank)
			return middle_of(i);
	}
	return 0;
}
