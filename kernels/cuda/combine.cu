/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Merge of partial results. A warp takes one (sequence, query, head): two passes over its partials' lse,
 * then one over their values, in ascending order. An empty partial (lse -INF) is skipped before any
 * arithmetic with it, its values are not read. Reads each partial once.
 */
#include "args.h"
#include "value.h"

#define DIMS_A_LANE (KVK_MAX_HEAD_DIM / 32)

struct group {
	const float *lse;
	const float *out;
	int64_t lse_step, out_step; /* from one partial to the next */
	int32_t count;
};

/* log2 of the sum of 2^lse; -INF when all are empty. */
KVK_DEVICE float log2_sum(const group &g)
{
	float max = -KVK_INFINITY;
	float sum = 0;

	for (int32_t n = kvk_lane(); n < g.count; n += 32)
		max = fmaxf(max, g.lse[n * g.lse_step]);
	for (int step = 16; step; step /= 2)
		max = fmaxf(max, kvk_shuffle_xor_f32(max, step));
	if (max == -KVK_INFINITY)
		return max;
	for (int32_t n = kvk_lane(); n < g.count; n += 32)
		sum += kvk_exp2(g.lse[n * g.lse_step] - max);
	for (int step = 16; step; step /= 2)
		sum += kvk_shuffle_xor_f32(sum, step);
	return kvk_log2(sum) + max;
}

KVK_DEVICE void add_values(const group &g, float total, int32_t dim, float (&row)[DIMS_A_LANE])
{
	for (int32_t n = 0; n < g.count; n++) {
		const float lse = g.lse[n * g.lse_step];
		const float weight = kvk_exp2(lse - total);

		if (lse == -KVK_INFINITY)
			continue;
		KVK_UNROLL
		for (int i = 0; i < DIMS_A_LANE; i++)
			if (kvk_lane() + 32 * i < dim)
				row[i] += weight * g.out[n * g.out_step + kvk_lane() + 32 * i];
	}
}

KVK_DEVICE void merge(const kvk_cuda_combine_args &p, int32_t b, int32_t i, int32_t h, int64_t slot,
		      int32_t count)
{
	const int64_t rows = static_cast<int64_t>(p.s_q) * p.heads;
	const int64_t first = slot * rows + static_cast<int64_t>(i) * p.heads + h;
	const group g = {p.partial_lse + first, p.partial_out + first * p.dim, rows, rows * p.dim, count};
	const int64_t to = b * p.out_stride_batch + i * p.out_stride_query + h * p.out_stride_head;
	const float total = log2_sum(g);
	const bool empty = total == -KVK_INFINITY;
	const float keep = empty ? 0 : kvk_sink_factor(p.sink, h, total);
	float row[DIMS_A_LANE] = {};

	if (!empty)
		add_values(g, total, p.dim, row);
	KVK_UNROLL
	for (int n = 0; n < DIMS_A_LANE; n++)
		if (kvk_lane() + 32 * n < p.dim)
			kvk_store(p.out, p.out_dtype, to + kvk_lane() + 32 * n, row[n] * keep);
	if (p.lse && kvk_lane() == 0)
		p.lse[b * p.lse_stride_batch + h * p.lse_stride_head + i] =
			empty ? KVK_INFINITY : total * KVK_LN2;
}

KVK_KERNEL(kvk_cuda_combine, kvk_cuda_combine_args, 128, 4)
{
	const int64_t rows = static_cast<int64_t>(p.batch) * p.s_q * p.heads;
	const int64_t warps = kvk_blocks() * (kvk_threads_of_block() / 32);

	for (int64_t row = kvk_block() * (kvk_threads_of_block() / 32) + kvk_warp(); row < rows;
	     row += warps) {
		const int32_t b = static_cast<int32_t>(row / p.heads / p.s_q);
		const int64_t slot = p.num_splits ? p.num_splits[b] : static_cast<int64_t>(b) * p.splits;
		const int32_t count = p.num_splits ? p.num_splits[b + 1] - p.num_splits[b] : p.splits;

		if (count >= 2 && slot >= 0 && slot + count <= p.partials)
			merge(p, b, static_cast<int32_t>(row / p.heads % p.s_q),
			      static_cast<int32_t>(row % p.heads), slot, count);
	}
}
