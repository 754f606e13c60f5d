/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work plan of a split MLA decode, made on the device from lengths that the host need not know. One block.
 * Equal parts: one thread walks, as the specification does (kernels/ref/mla_plan.c), over block counts that
 * all have loaded. Fixed pieces: every sequence is cut each split_blocks blocks, whatever else is in the
 * batch, so that its bits are the same alone and in company; the parts beyond the last piece are idle.
 */
#include "args.h"
#include "value.h"

#define THREADS 256
#define COUNTS 8192 /* block counts kept in shared memory; the rest is computed again */

struct plan_shared {
	int64_t total[THREADS];
	int32_t count[COUNTS];
};

static_assert(sizeof(plan_shared) == KVK_CUDA_PLAN_SHARED, "what the launcher asks for");

struct walk {
	int32_t sequence, block, split, partial;
};

/* An empty sequence costs one block too: somebody must write its output. */
KVK_DEVICE int32_t block_count(const kvk_cuda_plan_args &p, int32_t sequence)
{
	const int32_t len = p.lens[sequence];
	const int32_t blocks = len > 0 ? (len - 1) / p.block_tokens + 1 : 1;

	return blocks < p.most_blocks ? blocks : p.most_blocks;
}

KVK_DEVICE int32_t known_count(const plan_shared &sm, const kvk_cuda_plan_args &p, int32_t sequence)
{
	return sequence < COUNTS ? sm.count[sequence] : block_count(p, sequence);
}

/* Fills sm.count; the sum of all counts, the same for every thread. */
KVK_DEVICE int64_t count_blocks(plan_shared &sm, const kvk_cuda_plan_args &p)
{
	int64_t total = 0;

	for (int32_t i = kvk_thread(); i < p.batch; i += kvk_threads_of_block()) {
		const int32_t count = block_count(p, i);

		total += count;
		if (i < COUNTS)
			sm.count[i] = count;
	}
	sm.total[kvk_thread()] = total;
	kvk_block_sync();
	total = 0;
	for (int32_t i = 0; i < kvk_threads_of_block(); i++)
		total += sm.total[i];
	return total;
}

KVK_DEVICE void walk_part(const plan_shared &sm, const kvk_cuda_plan_args &p, walk &w, int64_t budget)
{
	while (w.sequence < p.batch) {
		const int64_t cost =
			static_cast<int64_t>(known_count(sm, p, w.sequence)) - w.block + p.overhead;

		if (budget < cost) {
			if (budget > p.overhead) {
				w.block += static_cast<int32_t>(budget - p.overhead);
				w.split++;
			}
			return;
		}
		budget -= cost;
		w.partial += w.split + 1;
		p.num_splits[++w.sequence] = w.partial;
		w.block = 0;
		w.split = 0;
	}
}

KVK_DEVICE void plan_part(const plan_shared &sm, const kvk_cuda_plan_args &p, walk &w, int64_t budget,
			  int32_t index)
{
	kvk_mla_plan_part part = {w.sequence, 0, w.block, 0, w.split, w.block != 0, 0, 0};
	int32_t last;

	walk_part(sm, p, w, budget);
	last = w.block > 0 ? w.sequence : w.sequence - 1;
	part.end_seq = last;
	part.end_block = w.block;
	if (w.block == 0)
		part.end_block = last < 0 || p.lens[last] <= 0 ? 0 : known_count(sm, p, last);
	part.last_is_split = last >= 0 && p.lens[last] > 0 && part.end_block != known_count(sm, p, last);
	if (part.begin_seq == part.end_seq)
		part.first_is_split = part.last_is_split = part.first_is_split || part.last_is_split;
	p.plan[index] = part;
}

KVK_DEVICE void plan_equal_parts(const plan_shared &sm, const kvk_cuda_plan_args &p, int64_t total)
{
	const int64_t work = total + static_cast<int64_t>(p.batch) * p.overhead;
	const int64_t budget = (work + p.parts - 1) / p.parts + p.overhead;
	walk w = {0, 0, 0, 0};

	p.num_splits[0] = 0;
	for (int32_t i = 0; i < p.parts; i++)
		plan_part(sm, p, w, budget, i);
}

KVK_DEVICE int32_t piece_count(const plan_shared &sm, const kvk_cuda_plan_args &p, int32_t sequence)
{
	return (known_count(sm, p, sequence) - 1) / p.split_blocks + 1;
}

KVK_DEVICE void plan_sequence(const plan_shared &sm, const kvk_cuda_plan_args &p, int32_t sequence)
{
	const int32_t blocks = p.lens[sequence] > 0 ? known_count(sm, p, sequence) : 0;
	const int32_t pieces = piece_count(sm, p, sequence);
	const int32_t first = p.num_splits[sequence];

	for (int32_t i = 0; i < pieces && first + i < p.parts; i++) {
		const int32_t begin = i * p.split_blocks;
		const int32_t end = i == pieces - 1 ? blocks : begin + p.split_blocks;

		p.plan[first + i] = {sequence, sequence, begin, end, i, pieces > 1, pieces > 1, 0};
	}
}

KVK_DEVICE void plan_fixed_pieces(const plan_shared &sm, const kvk_cuda_plan_args &p)
{
	if (kvk_thread() == 0) {
		int32_t partial = 0;

		for (int32_t i = 0; i < p.batch; i++) {
			p.num_splits[i] = partial;
			partial += piece_count(sm, p, i);
		}
		p.num_splits[p.batch] = partial;
	}
	kvk_block_sync();
	for (int32_t i = kvk_thread(); i < p.batch; i += kvk_threads_of_block())
		plan_sequence(sm, p, i);
	for (int32_t i = p.num_splits[p.batch] + kvk_thread(); i < p.parts; i += kvk_threads_of_block())
		p.plan[i] = {p.batch, p.batch - 1, 0, 0, 0, 0, 0, 0};
}

KVK_KERNEL(kvk_cuda_mla_plan, kvk_cuda_plan_args, THREADS, 1)
{
	KVK_SHARED(plan_shared, sm);
	const int64_t total = count_blocks(sm, p);

	if (kvk_block() > 0)
		return;
	if (p.split_blocks)
		plan_fixed_pieces(sm, p);
	else if (kvk_thread() == 0)
		plan_equal_parts(sm, p, total);
}
