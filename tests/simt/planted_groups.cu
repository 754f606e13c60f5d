/* SPDX-License-Identifier: Apache-2.0 */
/* Products of a warpgroup: two kernels that are right, for either way B can lie, and some with a bug each. */
#include "groups.h"
#include "planted_groups.h"

enum bug { RIGHT, NO_BEGIN, NO_WAIT, NO_FENCE, OVERWRITES, DISAGREES };

struct groups_shared {
	alignas(1024) uint16_t a[GROUPS_ROWS * GROUPS_STEPS];
	alignas(1024) uint16_t b[GROUPS_STEPS * GROUPS_WIDE];
};

static_assert(sizeof(groups_shared) == GROUPS_SHARED_BYTES, "what the test asks for");

/* `rows` rows of `width` halves, two at a time. */
template <int ROWS> KVK_DEVICE void bring(uint16_t *to, const uint16_t *from, int32_t width)
{
	for (int32_t i = kvk_thread() * 2; i < ROWS * width; i += GROUPS_THREADS * 2)
		kvk_store4(to + kvk_group_place<ROWS>(i / width, i % width),
			   from[i] | static_cast<uint32_t>(from[i + 1]) << 16);
}

template <int N> KVK_DEVICE void keep(float *to, const float (&c)[N][4])
{
	const int32_t row = kvk_warp() * 16 + kvk_lane() / 4;

	for (int n = 0; n < N; n++)
		for (int i = 0; i < 4; i++)
			to[(row + i / 2 * 8) * N * 8 + n * 8 + kvk_lane() % 4 * 2 + i % 2] = c[n][i];
}

template <bug BUG> KVK_DEVICE void narrow(const groups_args &p)
{
	float c[4][4] = {};
	KVK_SHARED(groups_shared, sm);

	bring<GROUPS_ROWS>(sm.a, p.a, GROUPS_STEPS);
	bring<GROUPS_NARROW>(sm.b, p.b, GROUPS_STEPS);
	if (BUG != NO_FENCE)
		kvk_shared_fence();
	kvk_block_sync();
	if (BUG != NO_BEGIN)
		kvk_group_begin();
	for (int k = 0; k < GROUPS_STEPS; k += 16) {
		const int32_t astray = BUG == DISAGREES && kvk_thread() == 5 ? 512 : 0;

		kvk_group_mma_32_bf16(c, kvk_group_matrix(sm.a + k + astray, 16, 1024),
				      kvk_group_matrix(sm.b + k, 16, 1024), k > 0);
	}
	if (BUG == OVERWRITES && kvk_thread() == 0)
		sm.a[0] = 0x4000;
	if (BUG != NO_WAIT)
		kvk_group_wait();
	keep(p.c, c);
}

#define NARROW(name, bug)                                                                                    \
	KVK_KERNEL(groups_##name, groups_args, GROUPS_THREADS, 1)                                            \
	{                                                                                                    \
		narrow<bug>(p);                                                                              \
	}

NARROW(narrow, RIGHT)
NARROW(no_begin, NO_BEGIN)
NARROW(no_wait, NO_WAIT)
NARROW(no_fence, NO_FENCE)
NARROW(overwrites, OVERWRITES)
NARROW(disagrees, DISAGREES)

KVK_KERNEL(groups_wide, groups_args, GROUPS_THREADS, 1)
{
	float c[32][4] = {};
	KVK_SHARED(groups_shared, sm);

	bring<GROUPS_ROWS>(sm.a, p.a, GROUPS_STEPS);
	bring<GROUPS_STEPS>(sm.b, p.b, GROUPS_WIDE);
	kvk_shared_fence();
	kvk_block_sync();
	kvk_group_begin();
	for (int k = 0; k < GROUPS_STEPS; k += 16)
		kvk_group_mma_256_bf16(
			c, kvk_group_matrix(sm.a + k, 16, 1024),
			kvk_group_matrix(sm.b + k * KVK_COLUMN, GROUPS_STEPS * KVK_COLUMN * 2, 1024), true);
	kvk_group_wait();
	keep(p.c, c);
}
