/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MSA selection: a warp takes one (head, query row). Scores become integers that order as they do; the
 * topk-th largest is found bit by bit, from the top, by counting; then one pass in ascending order writes
 * what lies above it, and of what equals it the first ones. The same whatever the schedule, for any topk.
 * 34 passes over the row, which stays in the first cache.
 */
#include "args.h"
#include "value.h"

struct ranking {
	const float *score;
	int32_t valid, init, local_begin;
};

/* 0 for a block that is never taken (-INF); NaN as -1e30. Larger is better. */
KVK_DEVICE uint32_t rank_of(const ranking &r, int32_t block)
{
	float score = r.score[block];
	uint32_t bits;

	if (score != score)
		score = -1e30f;
	if (block < r.init)
		score = 1e30f;
	if (block >= r.local_begin)
		score = 1e29f;
	if (score == -KVK_INFINITY)
		return 0;
	bits = kvk_f32_bits(score + 0.0f); /* -0 equals 0 */
	return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/* Blocks that rank at or above `least`; the same for every lane. */
KVK_DEVICE int32_t count_from(const ranking &r, uint32_t least)
{
	uint32_t count = 0;

	for (int32_t b = kvk_lane(); b < r.valid; b += 32)
		count += rank_of(r, b) >= least;
	for (int step = 16; step; step /= 2)
		count += kvk_shuffle_xor_u32(count, step);
	return static_cast<int32_t>(count);
}

/* The largest rank that at least topk blocks reach; 1 when fewer than that can be taken at all. */
KVK_DEVICE uint32_t find_cut(const ranking &r, int32_t topk)
{
	uint32_t cut = 0;

	if (count_from(r, 1) <= topk)
		return 1;
	for (int bit = 31; bit >= 0; bit--)
		if (count_from(r, cut | 1u << bit) >= topk)
			cut |= 1u << bit;
	return cut;
}

KVK_DEVICE uint32_t lanes_below(void)
{
	return (1u << kvk_lane()) - 1;
}

KVK_DEVICE int32_t ones(uint32_t bits)
{
	int32_t count = 0;

	for (; bits; bits &= bits - 1)
		count++;
	return count;
}

KVK_DEVICE void select_row(const ranking &r, int32_t topk, int32_t *selected)
{
	const uint32_t cut = find_cut(r, topk);
	int32_t equal_left = topk - (cut == UINT32_MAX ? 0 : count_from(r, cut + 1));
	int32_t taken = 0;

	for (int32_t first = 0; first < r.valid; first += 32) {
		const uint32_t rank = first + kvk_lane() < r.valid ? rank_of(r, first + kvk_lane()) : 0;
		const uint32_t equal = kvk_ballot(rank == cut);
		const bool take = rank > cut || (rank == cut && ones(equal & lanes_below()) < equal_left);
		const uint32_t taking = kvk_ballot(take);

		if (take)
			selected[taken + ones(taking & lanes_below())] = first + kvk_lane();
		taken += ones(taking);
		equal_left -= ones(equal & taking);
	}
	for (int32_t i = taken + kvk_lane(); i < topk; i += 32)
		selected[i] = -1;
}

KVK_KERNEL(kvk_cuda_msa_select, kvk_cuda_select_args, 128, 4)
{
	const int64_t units = static_cast<int64_t>(p.heads) * p.rows;
	const int64_t warps = kvk_blocks() * (kvk_threads_of_block() / 32);

	for (int64_t unit = kvk_block() * (kvk_threads_of_block() / 32) + kvk_warp(); unit < units;
	     unit += warps) {
		const int64_t head = unit / p.rows, row = unit % p.rows;
		const int32_t n_valid = p.n_valid[row];
		const ranking r = {p.score + head * p.score_stride_head + row * p.score_stride_row,
				   n_valid < p.blocks ? n_valid : p.blocks, p.init_blocks,
				   n_valid > p.local_blocks ? n_valid - p.local_blocks : 0};

		select_row(r, p.topk,
			   p.selected + head * p.selected_stride_head + row * p.selected_stride_row);
	}
}
