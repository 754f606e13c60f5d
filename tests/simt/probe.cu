/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One warp loads a 16 x 16 matrix in each way there is, and multiplies two that it makes up by the manual's
 * tables.
 */
#include "probe.h"
#include "ptx.h"

struct probe_shared {
	alignas(16) uint16_t matrix[16 * 16];
};

static_assert(sizeof(probe_shared) == PROBE_SHARED_BYTES, "what the test asks for");

KVK_DEVICE void keep(uint16_t *to, const uint32_t *from, int registers)
{
	for (int i = 0; i < 2 * registers; i++)
		to[i] = static_cast<uint16_t>(from[i / 2] >> 16 * (i % 2));
}

KVK_DEVICE float a_at(int row, int k)
{
	return row == k ? 1 : row == k + 1 ? 2 : 0;
}

KVK_DEVICE float b_at(int k, int column)
{
	return static_cast<float>(k + 16 * column);
}

KVK_KERNEL(probe_matrices, probe_args, 32, 1)
{
	const int lane = kvk_lane(), g = lane / 4, t = lane % 4;
	uint32_t a[4], b[4], a16[4], b16[4];
	KVK_SHARED(probe_shared, sm);

	for (int i = lane; i < 256; i += 32)
		sm.matrix[i] = p.matrix[i];
	kvk_warp_sync();
	kvk_load_4_matrices(a, &sm.matrix[lane % 16 * 16 + lane / 16 * 8]);
	keep(p.result->a[lane], a, 4);
	kvk_load_4_matrices_transposed(a, &sm.matrix[lane % 16 * 16 + lane / 16 * 8]);
	keep(p.result->transposed[lane], a, 4);
	keep(p.result->b[lane], a, 2);

	a[0] = kvk_pack_bf16(a_at(g, 2 * t), a_at(g, 2 * t + 1));
	a[1] = kvk_pack_bf16(a_at(g + 8, 2 * t), a_at(g + 8, 2 * t + 1));
	a[2] = kvk_pack_bf16(a_at(g, 2 * t + 8), a_at(g, 2 * t + 9));
	a[3] = kvk_pack_bf16(a_at(g + 8, 2 * t + 8), a_at(g + 8, 2 * t + 9));
	b[0] = kvk_pack_bf16(b_at(2 * t, g), b_at(2 * t + 1, g));
	b[1] = kvk_pack_bf16(b_at(2 * t + 8, g), b_at(2 * t + 9, g));
	a16[0] = kvk_pack_f16(a_at(g, 2 * t), a_at(g, 2 * t + 1));
	a16[1] = kvk_pack_f16(a_at(g + 8, 2 * t), a_at(g + 8, 2 * t + 1));
	a16[2] = kvk_pack_f16(a_at(g, 2 * t + 8), a_at(g, 2 * t + 9));
	a16[3] = kvk_pack_f16(a_at(g + 8, 2 * t + 8), a_at(g + 8, 2 * t + 9));
	b16[0] = kvk_pack_f16(b_at(2 * t, g), b_at(2 * t + 1, g));
	b16[1] = kvk_pack_f16(b_at(2 * t + 8, g), b_at(2 * t + 9, g));
	{
		float c[4] = {0, 0, 0, 0}, c16[4] = {0, 0, 0, 0};

		kvk_mma_bf16(c, a, b);
		kvk_mma_f16(c16, a16, b16);
		for (int i = 0; i < 4; i++) {
			p.result->c_bf16[lane][i] = c[i];
			p.result->c_f16[lane][i] = c16[i];
		}
	}
}
