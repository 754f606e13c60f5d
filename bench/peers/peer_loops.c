/* SPDX-License-Identifier: Apache-2.0 */
/* See peers.h: the passes around a peer's products, vectorised, so that it is judged by its products. */
#include "peers.h"

#include <string.h>

#include "../../kernels/cpu/level.h"

static void widen(float *restrict to, const uint16_t *restrict from, int64_t count)
{
	for (int64_t i = 0; i < count; i++) {
		const uint32_t bits = (uint32_t)from[i] << 16;

		memcpy(&to[i], &bits, sizeof(bits));
	}
}

/* 2^x for x <= 0, to 2e-7: a whole power put together from bits, times a polynomial. */
static inline float exp2_negative(float x)
{
	const float magic = 0x1.8p23f;
	const float clamped = x < -126.0f ? -126.0f : x;
	const float whole = clamped + magic;
	const float f = clamped - (whole - magic);
	float p = 1.5403530e-4f;
	uint32_t bits;
	float power;

	p = p * f + 1.3333558e-3f;
	p = p * f + 9.6181291e-3f;
	p = p * f + 5.5504109e-2f;
	p = p * f + 2.4022651e-1f;
	p = p * f + 6.9314718e-1f;
	p = p * f + 1.0f;
	memcpy(&bits, &whole, sizeof(bits));
	bits = (bits - 0x4b400000u + 127u) << 23;
	memcpy(&power, &bits, sizeof(power));
	return p * power;
}

/* Sixteen sums and maxima side by side, for the compiler to put into vectors. */
#define SIDE 16

static void softmax_row(float *restrict row, int32_t columns, float scale_log2)
{
	float max[SIDE];
	float sum[SIDE] = {0};
	float total = 0;

	for (int i = 0; i < SIDE; i++)
		max[i] = row[0];
	for (int32_t n = 0; n < columns; n += SIDE)
		for (int i = 0; i < SIDE; i++)
			max[i] = row[n + i] > max[i] ? row[n + i] : max[i];
	for (int i = 1; i < SIDE; i++)
		max[0] = max[i] > max[0] ? max[i] : max[0];
	for (int32_t n = 0; n < columns; n += SIDE)
		for (int i = 0; i < SIDE; i++) {
			row[n + i] = exp2_negative((row[n + i] - max[0]) * scale_log2);
			sum[i] += row[n + i];
		}
	for (int i = 0; i < SIDE; i++)
		total += sum[i];
	for (int32_t n = 0; n < columns; n++)
		row[n] *= 1 / total;
}

static void softmax(float *scores, int32_t rows, int32_t columns, float scale)
{
	for (int32_t r = 0; r < rows; r++)
		softmax_row(scores + (int64_t)r * columns, columns, scale * 1.44269504f);
}

const struct bench_peer_ops KVK_OPS(bench_peer) = {.widen = widen, .softmax = softmax};
