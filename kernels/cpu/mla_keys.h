/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Key rows of every dtype become f32 in the tile's panels (mla_loops.h). FP8 rows take the short way of
 * vf_load_e4m3_finite() unless a code is NaN or a scale so large that 256 times it is not finite.
 */
#ifndef KVPOOL_KERNELS_MLA_KEYS_H
#define KVPOOL_KERNELS_MLA_KEYS_H

#include "mla_loops.h"
#include "simd.h"

/* Loops over a row, so that every column's place is a constant. */
#ifdef __clang__
#define KVK_UNROLL_ALL KVK_UNROLL
#else
#define KVK_UNROLL_ALL _Pragma("GCC unroll 144")
#endif

/* Where column d of the key at `key` goes. */
KVK_INLINE float *key_column(float *key, int d)
{
	return key + (int64_t)(d / KVK_MLA_PANEL) * KVK_MLA_PANEL_STRIDE + d % KVK_MLA_PANEL;
}

KVK_INLINE void load_row(float *key, const char *row, uint32_t dtype)
{
	KVK_UNROLL_ALL
	for (int d = 0; d < KVK_MLA_WIDTH; d += KVK_LANES)
		vf_store(key_column(key, d), vf_load_plain(row, d, dtype));
}

/* Whether one of 512 codes is a NaN, 0x7f or 0xff. */
KVK_INLINE bool holds_nan(const unsigned char *codes)
{
	uint64_t found = 0;

	for (int i = 0; i < KVK_MLA_LATENT; i += 8) {
		uint64_t code;

		memcpy(&code, codes + i, sizeof(code));
		code &= 0x7f7f7f7f7f7f7f7fu; /* adding 1 carries into the top bit of NaNs alone */
		found |= code + 0x0101010101010101u;
	}
	return found & 0x8080808080808080u;
}

static void load_fp8_slowly(float *key, const unsigned char *codes, const float *scale)
{
	for (int d = 0; d < KVK_MLA_LATENT; d++)
		*key_column(key, d) = kvk_e4m3_to_f32(codes[d]) * scale[d / 128];
}

static void load_fp8_row(float *key, const char *row)
{
	const unsigned char *codes = (const unsigned char *)row;
	const char *rope = row + KVK_MLA_LATENT + 4 * sizeof(float);
	bool fast = !holds_nan(codes);
	float scale[4];

	memcpy(scale, row + KVK_MLA_LATENT, sizeof(scale));
	for (int i = 0; i < 4; i++)
		fast = fast && isfinite(scale[i] * 256);
	if (fast) {
		KVK_UNROLL_ALL
		for (int d = 0; d < KVK_MLA_LATENT; d += KVK_LANES)
			vf_store(key_column(key, d),
				 vf_load_e4m3_finite(codes + d, vf_set(scale[d / 128] * 256)));
	} else {
		load_fp8_slowly(key, codes, scale);
	}
	KVK_UNROLL_ALL
	for (int d = 0; d < KVK_MLA_ROPE; d += KVK_LANES)
		vf_store(key_column(key, KVK_MLA_LATENT + d), vf_load_bf16(rope + 2 * d));
}

/* Keys [first, end) of a tile. */
static void load_keys(float *keys, const struct kvk_mla_keys *from, int first, int end, uint32_t dtype)
{
	for (int n = first; n < end; n++) {
		if (dtype == KVK_MLA_FP8)
			load_fp8_row(keys + n * KVK_MLA_PANEL, from->row[n]);
		else if (dtype == KVK_BF16)
			load_row(keys + n * KVK_MLA_PANEL, from->row[n], KVK_BF16);
		else if (dtype == KVK_F16)
			load_row(keys + n * KVK_MLA_PANEL, from->row[n], KVK_F16);
		else
			load_row(keys + n * KVK_MLA_PANEL, from->row[n], KVK_F32);
	}
}

#endif
