/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Key rows of every dtype become f32, a panel of a key at a time. FP8 takes the short way of
 * vf_load_e4m3_finite() unless a code is NaN or a scale so large that 256 times it is not finite.
 *
 * What becomes of a tile goes to one of two places (struct tile): with few rows it is kept for P V, in L2;
 * with many, whose arithmetic outweighs widening twice, a panel at a time is brought near, to the same lines of
 * L1 again and again.
 */
#ifndef KVPOOL_KERNELS_MLA_KEYS_H
#define KVPOOL_KERNELS_MLA_KEYS_H

#include "mla_loops.h"
#include "simd.h"

#define PANEL KVK_MLA_PANEL

_Static_assert(128 % PANEL == 0 && KVK_MLA_ROPE == PANEL, "a panel of an FP8 row has one dtype and scale");

KVK_INLINE void load_plain(float *to, const char *row, int column, uint32_t dtype)
{
	KVK_UNROLL
	for (int d = 0; d < PANEL; d += 2 * KVK_LANES) {
		vf value[2];

		if (dtype == KVK_BF16) {
			vf_load_bf16_pair(value, row + 2 * (column + d));
		} else {
			value[0] = vf_load_plain(row, column + d, dtype);
			value[1] = vf_load_plain(row, column + d + KVK_LANES, dtype);
		}
		vf_store(to + d, value[0]);
		vf_store(to + d + KVK_LANES, value[1]);
	}
}

/* Whether one of a panel's codes is a NaN, 0x7f or 0xff: adding 1 carries into the top bit of NaNs alone. */
KVK_INLINE bool holds_nan(const char *codes)
{
	vu found = {0};

	KVK_UNROLL
	for (int i = 0; i < PANEL; i += (int)sizeof(vu))
		found |= ((vu)vf_loadu((const float *)(const void *)(codes + i)) & 0x7f7f7f7fu) + 0x01010101u;
	return vu_any(found & 0x80808080u);
}

KVK_INLINE void load_fp8(float *to, const char *row, int column)
{
	const char *codes = row + column;
	float scale;

	memcpy(&scale, row + KVK_MLA_LATENT + (size_t)(column / 128) * sizeof(scale), sizeof(scale));
	if (!holds_nan(codes) && isfinite(scale * 256)) {
		KVK_UNROLL
		for (int d = 0; d < PANEL; d += KVK_LANES)
			vf_store(to + d, vf_load_e4m3_finite(codes + d, vf_set(scale * 256)));
	} else {
		KVK_UNROLL
		for (int d = 0; d < PANEL; d += KVK_LANES)
			vf_store(to + d, vf_load_e4m3(codes + d) * vf_set(scale));
	}
}

KVK_INLINE void load_panel(float *to, const char *row, int panel, uint32_t dtype)
{
	if (dtype != KVK_MLA_FP8)
		load_plain(to, row, panel * PANEL, dtype);
	else if (panel * PANEL < KVK_MLA_LATENT)
		load_fp8(to, row, panel * PANEL);
	else
		load_plain(to, row + KVK_MLA_LATENT + 4 * sizeof(float), 0, KVK_BF16);
}

/* The keys of a tile. */
struct tile {
	const struct kvk_mla_keys *keys;
	uint32_t dtype;
	bool kept; /* at [panel][key][64], panels KVK_MLA_PANEL_STRIDE apart; or only near, at [key][64] */
	float *at;
};

KVK_INLINE void load_keys_of(const struct tile *tile, int first, int end, int panel, int panels,
			     uint32_t dtype)
{
	for (int n = first; n < end; n++)
		for (int i = panel; i < panel + panels; i++) {
			float *to = tile->at + (tile->kept ? i * KVK_MLA_PANEL_STRIDE : 0) + n * PANEL;

			/* The next key's lines come from L2; storing alone would wait for one after the other. */
			for (int d = 0; d < PANEL && tile->kept; d += 64 / (int)sizeof(float))
				__builtin_prefetch(to + PANEL + d, 1, 3);
			load_panel(to, tile->keys->row[n], i, dtype);
		}
}

/* Columns of the panels [panel, panel + panels) of keys [first, end); near, there is room for one panel. */
static void load_keys(const struct tile *tile, int first, int end, int panel, int panels)
{
	if (tile->dtype == KVK_BF16)
		load_keys_of(tile, first, end, panel, panels, KVK_BF16);
	else if (tile->dtype == KVK_F16)
		load_keys_of(tile, first, end, panel, panels, KVK_F16);
	else if (tile->dtype == KVK_F32)
		load_keys_of(tile, first, end, panel, panels, KVK_F32);
	else
		load_keys_of(tile, first, end, panel, panels, KVK_MLA_FP8);
}

/* Where a panel of key n is after load_keys(). */
KVK_INLINE const float *tile_panel(const struct tile *tile, int panel, int n)
{
	return tile->at + (tile->kept ? panel * KVK_MLA_PANEL_STRIDE : 0) + n * PANEL;
}

#endif
