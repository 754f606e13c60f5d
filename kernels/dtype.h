/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One value between f32 and the storage formats, by bit arithmetic: exact, independent of the FPU's
 * flush-to-zero mode when widening, round to nearest even when narrowing. NaN stays NaN and keeps its sign.
 */
#ifndef KVPOOL_KERNELS_DTYPE_H
#define KVPOOL_KERNELS_DTYPE_H

#include <kvpool/kernels.h>

#include <math.h>
#include <string.h>

static inline float kvk_f32_from_bits(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static inline uint32_t kvk_f32_bits(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static inline float kvk_bf16_to_f32(uint16_t code)
{
	return kvk_f32_from_bits((uint32_t)code << 16);
}

static inline uint16_t kvk_f32_to_bf16(float value)
{
	uint32_t bits = kvk_f32_bits(value);

	if ((bits & 0x7fffffffu) > 0x7f800000u)
		return (uint16_t)(bits >> 16 | 0x40u);
	return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/*
 * Small floats with an exponent bias below f32's: `magnitude` is exponent and mantissa moved to f32's
 * places. A zero exponent is subnormal: with the exponent of 1 in both terms the difference is exact.
 */
static inline float kvk_widen(uint32_t magnitude, uint32_t bias_gap)
{
	uint32_t least = (bias_gap + 1) << 23;

	if (magnitude >= 1u << 23)
		return kvk_f32_from_bits(magnitude + (bias_gap << 23));
	return kvk_f32_from_bits(magnitude + least) - kvk_f32_from_bits(least);
}

static inline float kvk_f16_to_f32(uint16_t code)
{
	uint32_t sign = (uint32_t)(code & 0x8000u) << 16;
	uint32_t magnitude = (uint32_t)(code & 0x7fffu) << 13;
	uint32_t bits;

	if (magnitude >= 0x7c00u << 13)
		bits = 0x7f800000u | magnitude;
	else
		bits = kvk_f32_bits(kvk_widen(magnitude, 127 - 15));
	return kvk_f32_from_bits(bits | sign);
}

static inline uint16_t kvk_f32_to_f16(float value)
{
	uint32_t bits = kvk_f32_bits(value);
	uint32_t sign = bits >> 16 & 0x8000u;
	uint32_t magnitude = bits & 0x7fffffffu;

	if (magnitude > 0x7f800000u)
		return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x1ffu));
	if (magnitude >= 0x477ff000u) /* 65520: halfway between the largest f16 and the next power */
		return (uint16_t)(sign | 0x7c00u);
	if (magnitude < 0x38800000u) /* 2^-14: subnormal, in units of 2^-24 */
		return (uint16_t)(sign | (uint32_t)lrintf(fabsf(value) * 0x1p24f));
	magnitude += 0xfffu + (magnitude >> 13 & 1u);
	return (uint16_t)(sign | ((magnitude >> 13) - ((127u - 15u) << 10)));
}

static inline float kvk_e4m3_to_f32(uint8_t code)
{
	uint32_t sign = (uint32_t)(code & 0x80u) << 24;
	uint32_t magnitude = (uint32_t)(code & 0x7fu) << 20;
	uint32_t bits = 0x7fc00000u;

	if (magnitude != 0x7fu << 20)
		bits = kvk_f32_bits(kvk_widen(magnitude, 127 - 7));
	return kvk_f32_from_bits(bits | sign);
}

/* Saturates at +-448, infinities included: e4m3fn has none. */
static inline uint8_t kvk_f32_to_e4m3(float value)
{
	uint32_t bits = kvk_f32_bits(value);
	uint32_t sign = bits >> 24 & 0x80u;
	uint32_t magnitude = bits & 0x7fffffffu;

	if (magnitude > 0x7f800000u)
		return (uint8_t)(sign | 0x7fu);
	if (magnitude >= 0x43e00000u) /* 448 */
		return (uint8_t)(sign | 0x7eu);
	if (magnitude < 0x3c800000u) /* 2^-6: subnormal, in units of 2^-9 */
		return (uint8_t)(sign | (uint32_t)lrintf(fabsf(value) * 0x1p9f));
	magnitude += 0x7ffffu + (magnitude >> 20 & 1u);
	return (uint8_t)(sign | ((magnitude >> 20) - ((127u - 7u) << 3)));
}

/* Element `index` of an array of bf16, f16, f32 or e4m3. The array need not be aligned. */
static inline float kvk_load(const void *array, uint32_t dtype, int64_t index)
{
	const unsigned char *bytes = array;
	uint16_t half;
	float value;

	switch (dtype) {
	case KVK_E4M3:
		return kvk_e4m3_to_f32(bytes[index]);
	case KVK_F32:
		memcpy(&value, bytes + index * 4, sizeof(value));
		return value;
	default:
		memcpy(&half, bytes + index * 2, sizeof(half));
		return dtype == KVK_BF16 ? kvk_bf16_to_f32(half) : kvk_f16_to_f32(half);
	}
}

static inline void kvk_store(void *array, uint32_t dtype, int64_t index, float value)
{
	unsigned char *bytes = array;
	uint16_t half;

	switch (dtype) {
	case KVK_E4M3:
		bytes[index] = kvk_f32_to_e4m3(value);
		break;
	case KVK_F32:
		memcpy(bytes + index * 4, &value, sizeof(value));
		break;
	default:
		half = dtype == KVK_BF16 ? kvk_f32_to_bf16(value) : kvk_f32_to_f16(value);
		memcpy(bytes + index * 2, &half, sizeof(half));
	}
}

#endif
