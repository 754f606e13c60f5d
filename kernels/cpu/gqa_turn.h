/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For gqa_loops.c: rows of any dtype become f32, as they lie or turned, a key a lane. bf16 is taken as 32-bit
 * words of two elements: turning them is half the work, and a shift and a mask give the two.
 */
#ifndef KVPOOL_KERNELS_GQA_TURN_H
#define KVPOOL_KERNELS_GQA_TURN_H

#include "gqa_fetch.h"
#include "quads.h"

/* Two vectors of codes become f32. */
KVK_INLINE void convert_pair(float *first, float *second, const char *codes, uint32_t dtype)
{
	if (dtype == KVK_BF16) {
		const vu words = *(const vu_unaligned *)codes;

		vf_store(first, (vf)(words << 16));
		vf_store(second, (vf)(words & 0xffff0000u));
	} else if (dtype == KVK_F16) {
		vf_store(first, vf_load_f16(codes));
		vf_store(second, vf_load_f16(codes + 2 * KVK_LANES));
	} else {
		vf_store(first, vf_loadu((const float *)(const void *)codes));
		vf_store(second, vf_loadu((const float *)(const void *)codes + KVK_LANES));
	}
}

/* A row of `dim` elements becomes `width` f32, zeros behind the last. */
KVK_INLINE void convert_row(float *dst, const char *src, int dim, int width, uint32_t dtype)
{
	const int bytes = dtype == KVK_F32 ? 4 : 2;
	int d;

	for (d = 0; d + PAIR <= dim; d += PAIR)
		convert_pair(dst + d, dst + d + KVK_LANES, src + d * bytes, dtype);
	for (; d < width; d += PAIR) {
		char rest[PAIR * 4] = {0};

		if (d < dim)
			memcpy(rest, src + d * bytes, (size_t)(dim - d) * (size_t)bytes);
		convert_pair(dst + d, dst + d + KVK_LANES, rest, dtype);
	}
}

/* A converted pair of bf16 vectors, even elements first, gets its elements in order. */
KVK_INLINE void restore_order(vf pair[2])
{
	const vf even = pair[0];

	pair[0] = vf_interleave_low(even, pair[1]);
	pair[1] = vf_interleave_high(even, pair[1]);
}

/* Each 128 bits of four rows are transposed: word i of each of the rows to out[i]. */
KVK_INLINE void turn_quads(vf out[4], vf a, vf b, vf c, vf d)
{
	const vf ab_low = LOW_WORDS(a, b); /* a0 b0 a1 b1 */
	const vf cd_low = LOW_WORDS(c, d);
	const vf ab_high = HIGH_WORDS(a, b);
	const vf cd_high = HIGH_WORDS(c, d);

	out[0] = LOW_PAIRS(ab_low, cd_low); /* a0 b0 c0 d0 */
	out[1] = HIGH_PAIRS(ab_low, cd_low);
	out[2] = LOW_PAIRS(ab_high, cd_high);
	out[3] = HIGH_PAIRS(ab_high, cd_high);
}

/* word[i] is word i behind `offset` of KVK_LANES rows, a lane a row. Every other pointer of `row` counts. */
KVK_INLINE void turn_words(vf word[KVK_LANES], const char *const *row, int offset)
{
	vf quad[KVK_LANES / 4][4];

	KVK_UNROLL
	for (int g = 0; g < KVK_LANES / 4; g++)
		turn_quads(quad[g], vf_loadu((const float *)(const void *)(row[2 * (4 * g)] + offset)),
			   vf_loadu((const float *)(const void *)(row[2 * (4 * g + 1)] + offset)),
			   vf_loadu((const float *)(const void *)(row[2 * (4 * g + 2)] + offset)),
			   vf_loadu((const float *)(const void *)(row[2 * (4 * g + 3)] + offset)));
	KVK_UNROLL
	for (int i = 0; i < 4; i++) {
#if KVK_LANES == 16
		const vf low01 = LOW_HALVES(quad[0][i], quad[1][i]);
		const vf low23 = LOW_HALVES(quad[2][i], quad[3][i]);
		const vf high01 = HIGH_HALVES(quad[0][i], quad[1][i]);
		const vf high23 = HIGH_HALVES(quad[2][i], quad[3][i]);

		word[i] = EVEN_QUADS(low01, low23);
		word[4 + i] = ODD_QUADS(low01, low23);
		word[8 + i] = EVEN_QUADS(high01, high23);
		word[12 + i] = ODD_QUADS(high01, high23);
#elif KVK_LANES == 8
		word[i] = LOW_HALVES(quad[0][i], quad[1][i]);
		word[4 + i] = HIGH_HALVES(quad[0][i], quad[1][i]);
#else
		word[i] = quad[0][i];
#endif
	}
}

/* KVK_LANES rows of `width` bf16, `skip` bytes behind the pointers. */
static void turn_bf16(float *dst, const char *const *row, int skip, int width)
{
	for (int d = 0; d < width; d += PAIR) {
		vf word[KVK_LANES];

		turn_words(word, row, skip + d * 2);
		KVK_UNROLL
		for (int i = 0; i < KVK_LANES; i++) {
			vf_store(dst + (d + 2 * i) * KEYS, (vf)((vu)word[i] << 16));
			vf_store(dst + (d + 2 * i + 1) * KEYS, (vf)((vu)word[i] & 0xffff0000u));
		}
	}
}

static void turn_f32(float *dst, const char *const *row, int skip, int width)
{
	for (int d = 0; d < width; d += KVK_LANES) {
		vf word[KVK_LANES];

		turn_words(word, row, skip + d * 4);
		KVK_UNROLL
		for (int i = 0; i < KVK_LANES; i++)
			vf_store(dst + (d + i) * KEYS, word[i]);
	}
}

/* Which elements of the rows a panel has: `dim` of memory, `width` with zeros behind. */
struct panel {
	int first;
	int dim;
	int width;
	int bytes; /* of an element */
};

/* Elements of a key row as turn_bf16() or turn_f32() read them. */
static void stage_row(const struct panel *panel, const char *row, char *staged, uint32_t dtype)
{
	row += panel->first * panel->bytes;
	if (dtype == KVK_F16) {
		convert_row((float *)(void *)staged, row, panel->dim, panel->width, KVK_F16);
	} else {
		memset(staged, 0, (size_t)panel->width * (size_t)panel->bytes);
		memcpy(staged, row, (size_t)panel->dim * (size_t)panel->bytes);
	}
}

/*
 * Up to KVK_LANES rows that cannot be read as they lie. Lanes without a key get the first: scores are
 * masked.
 */
static void turn_staged(struct kvk_gqa_tile *tile, const struct panel *panel, float *dst,
			const char *const *key, int count)
{
	const char *row[2 * KVK_LANES];

	for (int n = 0; n < KVK_LANES; n++) {
		char *staged = (char *)(tile->some + n * PANEL);

		row[2 * n] = n < count ? staged : (char *)tile->some;
		if (n < count)
			stage_row(panel, key[2 * n], staged, tile->dtype);
	}
	if (tile->dtype == KVK_BF16)
		turn_bf16(dst, row, 0, panel->width);
	else
		turn_f32(dst, row, 0, panel->width);
}

static void turn_keys(struct kvk_gqa_tile *tile, const struct panel *panel, const struct kvk_gqa_keys *keys)
{
	const int skip = panel->first * panel->bytes;
	const int in_place = tile->dtype != KVK_F16 && panel->dim == panel->width;

	for (int n = 0; n < keys->count; n += KVK_LANES) {
		const char *const *row = keys->row + 2 * n;
		const int left = keys->count - n;

		if (left < KVK_LANES || !in_place)
			turn_staged(tile, panel, tile->panel + n, row, left < KVK_LANES ? left : KVK_LANES);
		else if (tile->dtype == KVK_BF16)
			turn_bf16(tile->panel + n, row, skip, panel->width);
		else
			turn_f32(tile->panel + n, row, skip, panel->width);
	}
}

#endif
