/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels with a bug each, and one without: what the machine of this folder must find. They add up 256
 * words, block by block, in ways that need a barrier, a wait or a whole warp.
 */
#include "planted.h"
#include "ptx.h"

#define THREADS 256

struct planted_shared {
	alignas(16) int32_t word[THREADS];
	int32_t total;
};

static_assert(sizeof(planted_shared) == PLANTED_SHARED_BYTES, "what the test asks for");

/* The sum of what the other threads left in shared memory. */
KVK_DEVICE void add_up(planted_shared &sm, const planted_args &p)
{
	int32_t sum = 0;

	for (int32_t i = 0; i < THREADS; i++)
		sum += sm.word[i];
	p.to[kvk_thread()] = sum;
}

KVK_KERNEL(planted_nothing, planted_args, THREADS, 1)
{
	KVK_SHARED(planted_shared, sm);

	sm.word[kvk_thread()] = p.from[kvk_thread()];
	kvk_block_sync();
	add_up(sm, p);
}

KVK_KERNEL(planted_no_barrier, planted_args, THREADS, 1)
{
	KVK_SHARED(planted_shared, sm);

	sm.word[kvk_thread()] = p.from[kvk_thread()];
	add_up(sm, p);
}

/* Enough within a warp, not in a block. */
KVK_KERNEL(planted_warp_barrier, planted_args, THREADS, 1)
{
	KVK_SHARED(planted_shared, sm);

	sm.word[kvk_thread()] = p.from[kvk_thread()];
	kvk_warp_sync();
	add_up(sm, p);
}

KVK_KERNEL(planted_barrier_in_a_branch, planted_args, THREADS, 1)
{
	KVK_SHARED(planted_shared, sm);

	sm.word[kvk_thread()] = p.from[kvk_thread()];
	if (kvk_thread() < THREADS / 2)
		kvk_block_sync();
	add_up(sm, p);
}

KVK_KERNEL(planted_two_barriers, planted_args, THREADS, 1)
{
	KVK_SHARED(planted_shared, sm);

	sm.word[kvk_thread()] = p.from[kvk_thread()];
	if (kvk_thread() % 2)
		kvk_block_sync();
	else
		kvk_block_sync();
	add_up(sm, p);
}

KVK_KERNEL(planted_early_return, planted_args, THREADS, 1)
{
	KVK_SHARED(planted_shared, sm);

	sm.word[kvk_thread()] = p.from[kvk_thread()];
	if (kvk_thread() == 77)
		return;
	kvk_block_sync();
	add_up(sm, p);
}

/* Copies by cp.async; WAIT says how it's waited for. */
enum wait { ALL, NONE, ALL_BUT_ONE, WITHOUT_COMMIT };

template <wait WAIT> KVK_DEVICE void copy_and_add(const planted_args &p)
{
	KVK_SHARED(planted_shared, sm);

	if (kvk_thread() < THREADS / 4)
		kvk_copy16_async(&sm.word[4 * kvk_thread()], p.from + 4 * kvk_thread(), true);
	if (WAIT != WITHOUT_COMMIT)
		kvk_copy_commit();
	if (WAIT == ALL || WAIT == WITHOUT_COMMIT)
		kvk_copy_wait<0>();
	if (WAIT == ALL_BUT_ONE)
		kvk_copy_wait<1>();
	kvk_block_sync();
	add_up(sm, p);
}

KVK_KERNEL(planted_copy_nothing, planted_args, THREADS, 1)
{
	copy_and_add<ALL>(p);
}

KVK_KERNEL(planted_copy_no_wait, planted_args, THREADS, 1)
{
	copy_and_add<NONE>(p);
}

KVK_KERNEL(planted_copy_weak_wait, planted_args, THREADS, 1)
{
	copy_and_add<ALL_BUT_ONE>(p);
}

KVK_KERNEL(planted_copy_no_commit, planted_args, THREADS, 1)
{
	copy_and_add<WITHOUT_COMMIT>(p);
}

KVK_KERNEL(planted_divergent_shuffle, planted_args, THREADS, 1)
{
	int32_t value = p.from[kvk_thread()];

	if (kvk_lane() < 16)
		value += static_cast<int32_t>(kvk_shuffle_xor_u32(value, 1));
	p.to[kvk_thread()] = value;
}

KVK_KERNEL(planted_two_shuffles, planted_args, THREADS, 1)
{
	int32_t value = p.from[kvk_thread()];

	if (kvk_lane() < 16)
		value += static_cast<int32_t>(kvk_shuffle_xor_u32(value, 1));
	else
		value -= static_cast<int32_t>(kvk_shuffle_xor_u32(value, 1));
	p.to[kvk_thread()] = value;
}

/* total is never written. */
KVK_KERNEL(planted_unwritten, planted_args, THREADS, 1)
{
	KVK_SHARED(planted_shared, sm);

	sm.word[kvk_thread()] = p.from[kvk_thread()];
	kvk_block_sync();
	add_up(sm, p);
	p.to[kvk_thread()] += sm.total;
}

struct too_much {
	int32_t word[THREADS + 8];
};

KVK_KERNEL(planted_too_much_shared, planted_args, THREADS, 1)
{
	KVK_SHARED(too_much, sm);

	p.to[kvk_thread()] = sm.word[kvk_thread()];
}

KVK_KERNEL(planted_misaligned, planted_args, THREADS, 1)
{
	p.to[kvk_thread()] = static_cast<int32_t>(kvk_load8(p.from + kvk_thread() % 2).word[0]);
}

/* Past the end: for AddressSanitizer. */
KVK_KERNEL(planted_past_shared, planted_args, THREADS, 1)
{
	KVK_SHARED(planted_shared, sm);
	volatile int32_t *word = sm.word;

	p.to[kvk_thread()] = word[kvk_thread() + 8];
}

KVK_KERNEL(planted_past_global, planted_args, THREADS, 1)
{
	p.to[kvk_thread() + 1] = 0;
}
