/* SPDX-License-Identifier: Apache-2.0 */
/* Boxes by the copy engine: a kernel that is right, and some with a bug each. */
#include "groups.h"
#include "planted_boxes.h"

enum bug {
	RIGHT,
	NO_WAIT,
	NO_FENCE,
	NO_INIT,
	NO_BARRIER,
	OTHER_PARITY,
	TOO_MANY_BYTES,
	TOO_FEW_BYTES,
	ASKEW,
	LEAVES
};

struct boxes_shared {
	alignas(1024) uint16_t rows[KVK_CUDA_BOX * BOXES_WIDTH];
	alignas(1024) uint64_t full;
};

static_assert(sizeof(boxes_shared) == BOXES_SHARED_BYTES, "what the test asks for");

template <bug BUG> KVK_DEVICE void ask(boxes_shared &sm, const boxes_args &p, int32_t round)
{
	const uint32_t bytes = sizeof(sm.rows) + (BUG == TOO_MANY_BYTES ? 16 : 0);
	uint16_t *to = sm.rows + (BUG == ASKEW ? 64 : 0);

	kvk_phase_expect(&sm.full, BUG == TOO_FEW_BYTES ? bytes / 2 : bytes);
	kvk_box_load(to, &p.tensor, p.column, p.token[round], p.page[round], &sm.full);
	kvk_box_load(sm.rows + KVK_CUDA_BOX * KVK_CUDA_BOX, &p.tensor, p.column + KVK_CUDA_BOX,
		     p.token[round], p.page[round], &sm.full);
}

template <bug BUG> KVK_DEVICE void boxes(const boxes_args &p)
{
	KVK_SHARED(boxes_shared, sm);

	if (kvk_thread() == 0 && BUG != NO_INIT)
		kvk_phase_init(&sm.full, 1);
	if (BUG != NO_FENCE)
		kvk_shared_fence();
	kvk_block_sync();
	for (int32_t round = 0; round < BOXES_ROUNDS; round++) {
		if (kvk_thread() == 0)
			ask<BUG>(sm, p, round);
		if (BUG == LEAVES)
			return;
		if (BUG == NO_WAIT)
			kvk_block_sync();
		else
			kvk_phase_wait(&sm.full, (round + (BUG == OTHER_PARITY)) % 2);
		for (int32_t i = kvk_thread(); i < KVK_CUDA_BOX * BOXES_WIDTH; i += BOXES_THREADS)
			p.to[round * KVK_CUDA_BOX * BOXES_WIDTH + i] =
				sm.rows[kvk_group_place<KVK_CUDA_BOX>(i / BOXES_WIDTH, i % BOXES_WIDTH)];
		if (BUG == NO_WAIT) /* behind the damage, so that nothing else is wrong */
			kvk_phase_wait(&sm.full, round % 2);
		if (BUG != NO_BARRIER)
			kvk_block_sync();
	}
}

#define BOXES(name, bug)                                                                                     \
	KVK_KERNEL(boxes_##name, boxes_args, BOXES_THREADS, 1)                                               \
	{                                                                                                    \
		boxes<bug>(p);                                                                               \
	}

BOXES(right, RIGHT)
BOXES(no_wait, NO_WAIT)
BOXES(no_fence, NO_FENCE)
BOXES(no_init, NO_INIT)
BOXES(no_barrier, NO_BARRIER)
BOXES(other_parity, OTHER_PARITY)
BOXES(too_many_bytes, TOO_MANY_BYTES)
BOXES(too_few_bytes, TOO_FEW_BYTES)
BOXES(askew, ASKEW)
BOXES(leaves, LEAVES)
