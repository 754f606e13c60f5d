/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inner loops of tile.h, in plain C shaped so that a compiler turns them into vector code: loops over
 * LANES lanes, each with its own accumulator, so that no floating-point sum has to be reordered. The
 * build compiles this file once for each instruction set level (level.h), with a number of lanes that its
 * registers hold.
 *
 * Bytes and work: a key row is converted once (key_width conversions) and then serves `rows` dot products
 * and `rows` scaled additions, 2 * rows * (key_width + value_width) flop, out of L1 and L2.
 */
#include "tile.h"

#include "../dtype.h"

#if KVK_LEVEL == 0 || defined(__ARM_NEON)
#define LANES 4
#else
#define LANES 8
#endif
#define ROWS KVK_TILE_GROUP
#define KEYS KVK_TILE_KEYS

#define INLINE inline __attribute__((always_inline))

/* A 16-bit code in cache memory, which need not be aligned. */
typedef uint16_t half_code __attribute__((aligned(1), may_alias));
typedef float vec __attribute__((vector_size(LANES * sizeof(float)), aligned(LANES * sizeof(float))));

/* Sum of the lanes, always in the same order. */
static INLINE float lane_sum(const float *lane)
{
	float sum[LANES];

	memcpy(sum, lane, sizeof(sum));
	for (int half = LANES / 2; half > 0; half /= 2)
		for (int i = 0; i < half; i++)
			sum[i] += sum[i + half];
	return sum[0];
}

/* scores[r * KEYS + 0..1] = dot(q row r, k row 0..1) for ROWS rows. */
static INLINE void dot_rows(const float *q, const float *k, int width, float *scores)
{
	vec sum[ROWS][2] = {{{0}}};

	for (int d = 0; d < width; d += LANES) {
		const vec k0 = *(const vec *)(k + d);
		const vec k1 = *(const vec *)(k + width + d);

		for (int r = 0; r < ROWS; r++) {
			const vec row = *(const vec *)(q + r * width + d);

			sum[r][0] += row * k0;
			sum[r][1] += row * k1;
		}
	}
	for (int r = 0; r < ROWS; r++) {
		scores[r * KEYS] = lane_sum((const float *)&sum[r][0]);
		scores[r * KEYS + 1] = lane_sum((const float *)&sum[r][1]);
	}
}

/*
 * out row r = out row r * keep[r] + sum over keys of weight[r * KEYS + key] * v row, for ROWS rows and 2 *
 * LANES columns.
 */
static INLINE void add_values(float *out, int out_stride, const float *keep, const float *weights,
			      const float *v, int v_stride, int keys)
{
	vec sum[ROWS][2];

	for (int r = 0; r < ROWS; r++) {
		sum[r][0] = *(vec *)(out + r * out_stride) * keep[r];
		sum[r][1] = *(vec *)(out + r * out_stride + LANES) * keep[r];
	}
	for (int n = 0; n < keys; n++) {
		const vec v0 = *(const vec *)(v + (int64_t)n * v_stride);
		const vec v1 = *(const vec *)(v + (int64_t)n * v_stride + LANES);

		for (int r = 0; r < ROWS; r++) {
			sum[r][0] += v0 * weights[r * KEYS + n];
			sum[r][1] += v1 * weights[r * KEYS + n];
		}
	}
	for (int r = 0; r < ROWS; r++) {
		*(vec *)(out + r * out_stride) = sum[r][0];
		*(vec *)(out + r * out_stride + LANES) = sum[r][1];
	}
}

/*
 * 2^x for x <= 0, relative error below 2e-7; below 2^-126 it is 0, NaN stays NaN. x is split into a whole
 * number (by adding and removing 1.5 * 2^23) and a rest in [-0.5, 0.5], for which a Taylor polynomial does.
 */
static INLINE float exp2_negative(float x)
{
	const float magic = 0x1.8p23f;
	const float clamped = x < -126.0f ? -126.0f : x;
	const float shifted = clamped + magic;
	const float f = clamped - (shifted - magic);
	float p = 1.5403530393381606e-4f; /* ln(2)^n / n!, n = 6 to 0 */

	p = p * f + 1.3333558146428443e-3f;
	p = p * f + 9.618129107628477e-3f;
	p = p * f + 5.550410866482158e-2f;
	p = p * f + 2.402265069591007e-1f;
	p = p * f + 6.931471805599453e-1f;
	p = p * f + 1.0f;
	p *= kvk_f32_from_bits((kvk_f32_bits(shifted) - kvk_f32_bits(magic) + 127u) << 23);
	return x < -126.0f ? 0.0f : p;
}

/*
 * Scores become weights 2^(score * scale - max); returns what the old sum and values are to be multiplied
 * with.
 */
static INLINE float softmax_row(float *score, float scale, float *row_max, float *row_sum, int keys)
{
	float lane[LANES];
	float max = *row_max;
	float keep;

	for (int n = 0; n < KEYS; n++)
		score[n] = n < keys ? score[n] * scale : KVK_TILE_MASKED;
	for (int i = 0; i < LANES; i++)
		lane[i] = max;
	for (int n = 0; n < KEYS; n += LANES)
		for (int i = 0; i < LANES; i++)
			lane[i] = score[n + i] > lane[i] ? score[n + i] : lane[i];
	for (int i = 0; i < LANES; i++)
		max = lane[i] > max ? lane[i] : max;
	for (int n = 0; n < KEYS; n++)
		score[n] = exp2_negative(score[n] - max);
	for (int i = 0; i < LANES; i++)
		lane[i] = 0;
	for (int n = 0; n < KEYS; n += LANES)
		for (int i = 0; i < LANES; i++)
			lane[i] += score[n + i];
	keep = exp2_negative(*row_max - max);
	*row_sum = *row_sum * keep + lane_sum(lane);
	*row_max = max;
	return keep;
}

/* ROWS rows from `first` on, against one tile of keys. */
static INLINE void attend_rows(struct kvk_tile *tile, int first, const float *k, const float *v, int keys)
{
	const float *q = tile->q + (int64_t)first * tile->key_width;
	float *out = tile->out + (int64_t)first * tile->value_width;
	float score[ROWS * KEYS] __attribute__((aligned(64)));
	float keep[ROWS];

	for (int n = 0; n < keys; n += 2)
		dot_rows(q, k + (int64_t)n * tile->key_width, tile->key_width, score + n);
	for (int r = 0; r < ROWS; r++)
		keep[r] = softmax_row(score + r * KEYS, tile->scale_log2, &tile->max[first + r],
				      &tile->sum[first + r], keys);
	for (int d = 0; d < tile->value_width; d += 2 * LANES)
		add_values(out + d, tile->value_width, keep, score, v + d, tile->value_stride, keys);
}

static void attend(struct kvk_tile *tile, const float *k, const float *v, int keys)
{
	for (int first = 0; first < tile->rows; first += ROWS)
		attend_rows(tile, first, k, v, keys);
}

static void load_bf16(float *restrict dst, const void *restrict codes, int count)
{
	const half_code *src = codes;

	for (int i = 0; i < count; i++)
		dst[i] = kvk_bf16_to_f32(src[i]);
}

static void load_f16(float *restrict dst, const void *restrict codes, int count)
{
	const half_code *src = codes;

	for (int i = 0; i < count; i++)
		dst[i] = kvk_f16_to_f32(src[i]);
}

static void load_e4m3(float *restrict dst, const void *restrict codes, float scale, int count)
{
	const uint8_t *src = codes;

	for (int i = 0; i < count; i++)
		dst[i] = kvk_e4m3_to_f32(src[i]) * scale;
}

const struct kvk_tile_ops KVK_OPS(kvk_tile) = {
	.attend = attend, .load_bf16 = load_bf16, .load_f16 = load_f16, .load_e4m3 = load_e4m3};
