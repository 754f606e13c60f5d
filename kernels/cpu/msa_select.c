/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MSA selection: one pass over a row's scores that keeps the topk best so far as a heap in the output
 * itself, worst one on top, then sorted by id. The order (score descending, id ascending) is total, so the
 * result does not depend on how the heap came about. Most scores lose against the worst one kept and cost a
 * comparison: a thousand blocks take a microsecond or two, invisible beside computing their scores.
 */
#include "cpu.h"
#include "threads.h"

#include <math.h>

/* One row's scores with the forced blocks in place, see kvk_msa_select(). */
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

/* Whether block a ranks behind block b. */
static int behind(const struct ranking *r, int32_t a, int32_t b)
{
	const float score_a = rank_score(r, a);
	const float score_b = rank_score(r, b);

	return score_a < score_b || (score_a == score_b && a > b);
}

/* heap[i]'s subtrees are heaps; puts `block` where it belongs among heap[i] and below. */
static void sift_down(const struct ranking *r, int32_t *heap, int32_t count, int32_t i, int32_t block)
{
	for (int64_t child = 2 * (int64_t)i + 1; child < count; child = 2 * (int64_t)i + 1) {
		if (child + 1 < count && behind(r, heap[child + 1], heap[child]))
			child++;
		if (!behind(r, heap[child], block))
			break;
		heap[i] = heap[child];
		i = (int32_t)child;
	}
	heap[i] = block;
}

/* The same for plain numbers, the largest on top. */
static void sift_id(int32_t *heap, int32_t count, int32_t i, int32_t id)
{
	for (int64_t child = 2 * (int64_t)i + 1; child < count; child = 2 * (int64_t)i + 1) {
		if (child + 1 < count && heap[child + 1] > heap[child])
			child++;
		if (heap[child] <= id)
			break;
		heap[i] = heap[child];
		i = (int32_t)child;
	}
	heap[i] = id;
}

static void sort_ids(int32_t *ids, int32_t count)
{
	for (int32_t i = count / 2 - 1; i >= 0; i--)
		sift_id(ids, count, i, ids[i]);
	for (int32_t end = count - 1; end > 0; end--) {
		const int32_t last = ids[end];

		ids[end] = ids[0];
		sift_id(ids, end, 0, last);
	}
}

static void select_row(const struct ranking *r, int32_t topk, int32_t *selected)
{
	int32_t count = 0;
	int32_t block = 0;
	float worst;

	for (; block < r->valid && count < topk; block++)
		if (rank_score(r, block) > -INFINITY)
			selected[count++] = block;
	if (count == topk) {
		for (int32_t i = count / 2 - 1; i >= 0; i--)
			sift_down(r, selected, count, i, selected[i]);
		worst = rank_score(r, selected[0]);
		for (; block < r->valid; block++) {
			/*
			 * Most blocks: not forced, and behind. An equal score has a higher id than those
			 * kept.
			 */
			if (block >= r->init && block < r->local_begin && r->score[block] <= worst)
				continue;
			if (rank_score(r, block) > worst) {
				sift_down(r, selected, count, 0, block);
				worst = rank_score(r, selected[0]);
			}
		}
	}
	sort_ids(selected, count);
	while (count < topk)
		selected[count++] = -1;
}

static void visit_row(void *arg, uint32_t thread, int64_t item)
{
	const struct kvk_msa_select_params *p = arg;
	const int64_t h = item / p->rows;
	const int64_t row = item % p->rows;
	const int32_t n_valid = p->n_valid[row];
	const struct ranking r = {.score = p->score + h * p->score_stride_head + row * p->score_stride_row,
				  .valid = n_valid < p->blocks ? n_valid : p->blocks,
				  .init = p->init_blocks,
				  .local_begin = n_valid > p->local_blocks ? n_valid - p->local_blocks : 0};

	(void)thread;
	select_row(&r, p->topk, p->selected + h * p->selected_stride_head + row * p->selected_stride_row);
}

void kvk_msa_select_cpu(const struct kvk_msa_select_params *ready)
{
	struct kvk_msa_select_params p = *ready;

	kvk_each(p.threads, (int64_t)p.heads * p.rows, visit_row, &p);
}
