/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times in buckets that grow with them, 32 in each doubling: quantiles to 3 %, in fixed memory, added to by
 * one writer.
 */
#ifndef KVPOOL_TOOLS_REPLAY_HISTOGRAM_H
#define KVPOOL_TOOLS_REPLAY_HISTOGRAM_H

#include <stdatomic.h>
#include <stdint.h>

#define REP_HISTOGRAM_BUCKETS (32u * 60u)

struct rep_histogram {
	_Atomic uint64_t counts[REP_HISTOGRAM_BUCKETS];
};

void rep_histogram_add(struct rep_histogram *histogram, uint64_t value);
/* Adds `from` to `into`. */
void rep_histogram_merge(struct rep_histogram *into, const struct rep_histogram *from);
uint64_t rep_histogram_count(const struct rep_histogram *histogram);
/* The value below which `per_mille` of 1,000 lie (middle of its bucket); 0 when there are none. */
uint64_t rep_histogram_quantile(const struct rep_histogram *histogram, uint32_t per_mille);

#endif
