/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The specification of kvk_msa_select(). Blocks are ranked by (score descending, id ascending), so the next
 * one to take is the best that ranks behind the last: no list of those taken is needed.
 */
#include "ref.h"

/* One row's scores with the forced blocks in place. */
struct ranking {
	const float *score;
	int32_t valid; /* blocks that may be taken */
	int32_t init;
	int32_t local_begin;
};

static float rank_score(const struct ranking *r, int32_t block)
{
	if (block >= r->local_begin)
		return 1e29f;
	if (block < r->init)
		return 1e30f;
	return isnan(r->score[block]) ? -1e30f : r->score[block];
}

/* The best block that ranks behind (score, block), or -1. */
static int32_t next_best(const struct ranking *r, float score, int32_t block)
{
	float best_score = -INFINITY;
	int32_t best = -1;

	for (int32_t b = 0; b < r->valid; b++) {
		float s = rank_score(r, b);

		if (s > best_score && (s < score || (s == score && b > block))) {
			best_score = s;
			best = b;
		}
	}
	return best;
}

/* Puts `block` into the ascending ids[0..count). */
static void insert(int32_t *ids, int32_t count, int32_t block)
{
	for (; count > 0 && ids[count - 1] > block; count--)
		ids[count] = ids[count - 1];
	ids[count] = block;
}

static void select_row(const struct ranking *r, int32_t topk, int32_t *selected)
{
	float score = INFINITY;
	int32_t block = -1;
	int32_t count = 0;

	while (count < topk && (block = next_best(r, score, block)) >= 0) {
		score = rank_score(r, block);
		insert(selected, count++, block);
	}
	while (count < topk)
		selected[count++] = -1;
}

int kvk_msa_select_ref(const struct kvk_msa_select_params *params)
{
	struct kvk_msa_select_params p;
	int ret = kvk_prepare_msa_select(params, &p);

	if (ret <= 0)
		return ret;
	for (int32_t h = 0; h < p.heads; h++)
		for (int32_t row = 0; row < p.rows; row++) {
			const int32_t n_valid = p.n_valid[row];
			const struct ranking r = {
				.score = p.score + h * p.score_stride_head + row * p.score_stride_row,
				.valid = n_valid < p.blocks ? n_valid : p.blocks,
				.init = p.init_blocks,
				.local_begin = n_valid > p.local_blocks ? n_valid - p.local_blocks : 0};

			select_row(&r, p.topk,
				   p.selected + h * p.selected_stride_head + row * p.selected_stride_row);
		}
	return 0;
}
