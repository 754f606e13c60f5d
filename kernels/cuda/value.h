/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One value between f32 and the storage formats, in a kernel. Narrowing follows kernels/dtype.h bit for
 * bit, NaN's sign and payload included, so that a cache written here equals one written on the host.
 */
#ifndef KVPOOL_KERNELS_CUDA_VALUE_H
#define KVPOOL_KERNELS_CUDA_VALUE_H

#include "ptx.h"

#include <kvpool/kernels.h>

#define KVK_LOG2E 1.4426950408889634f
#define KVK_LN2 0.6931471805599453f
#define KVK_INFINITY kvk_f32_from_bits(0x7f800000u)

KVK_DEVICE float kvk_bf16_to_f32(uint16_t code)
{
	return kvk_f32_from_bits(static_cast<uint32_t>(code) << 16);
}

/* Infinity and NaN by hand: a payload stays. */
KVK_DEVICE float kvk_widen_f16(uint16_t code)
{
	const uint32_t sign = static_cast<uint32_t>(code & 0x8000u) << 16;

	if ((code & 0x7c00u) == 0x7c00u)
		return kvk_f32_from_bits(sign | 0x7f800000u | static_cast<uint32_t>(code & 0x3ffu) << 13);
	return kvk_f16_to_f32(code);
}

/* The bits of e4m3 in f32's places are the value times 2^-120, subnormals included. */
KVK_DEVICE float kvk_e4m3_to_f32(uint8_t code)
{
	const uint32_t magnitude = code & 0x7fu;
	const uint32_t sign = static_cast<uint32_t>(code & 0x80u) << 24;
	const float value = kvk_f32_from_bits(magnitude << 20) * 0x1p120f;

	return kvk_f32_from_bits((magnitude == 0x7f ? 0x7fc00000u : kvk_f32_bits(value)) | sign);
}

KVK_DEVICE uint16_t kvk_f32_to_bf16(float value)
{
	const uint32_t bits = kvk_f32_bits(value);

	if ((bits & 0x7fffffffu) > 0x7f800000u)
		return static_cast<uint16_t>(bits >> 16 | 0x40u);
	return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/*
 * `magnitude` in units of the format's smallest subnormal, to nearest even: adding 2^23 leaves the integer
 * below.
 */
KVK_DEVICE uint32_t kvk_round_subnormal(uint32_t magnitude, float unit)
{
	return kvk_f32_bits(kvk_f32_from_bits(magnitude) * unit + 0x1p23f) & 0x7fffffu;
}

KVK_DEVICE uint16_t kvk_f32_to_f16(float value)
{
	const uint32_t bits = kvk_f32_bits(value);
	const uint32_t sign = bits >> 16 & 0x8000u;
	const uint32_t magnitude = bits & 0x7fffffffu;

	if (magnitude > 0x7f800000u)
		return static_cast<uint16_t>(sign | 0x7e00u | (magnitude >> 13 & 0x1ffu));
	if (magnitude >= 0x477ff000u) /* 65520 */
		return static_cast<uint16_t>(sign | 0x7c00u);
	if (magnitude < 0x38800000u) /* 2^-14 */
		return static_cast<uint16_t>(sign | kvk_round_subnormal(magnitude, 0x1p24f));
	return static_cast<uint16_t>(
		sign | (((magnitude + 0xfffu + (magnitude >> 13 & 1u)) >> 13) - ((127u - 15u) << 10)));
}

/* Saturates at +-448. */
KVK_DEVICE uint8_t kvk_f32_to_e4m3(float value)
{
	const uint32_t bits = kvk_f32_bits(value);
	const uint32_t sign = bits >> 24 & 0x80u;
	const uint32_t magnitude = bits & 0x7fffffffu;

	if (magnitude > 0x7f800000u)
		return static_cast<uint8_t>(sign | 0x7fu);
	if (magnitude >= 0x43e00000u) /* 448 */
		return static_cast<uint8_t>(sign | 0x7eu);
	if (magnitude < 0x3c800000u) /* 2^-6 */
		return static_cast<uint8_t>(sign | kvk_round_subnormal(magnitude, 0x1p9f));
	return static_cast<uint8_t>(
		sign | (((magnitude + 0x7ffffu + (magnitude >> 20 & 1u)) >> 20) - ((127u - 7u) << 3)));
}

/* Element `index` of an array of bf16, f16, f32 or e4m3. */
KVK_DEVICE float kvk_load(const void *array, uint32_t dtype, int64_t index)
{
	switch (dtype) {
	case KVK_E4M3:
		return kvk_e4m3_to_f32(static_cast<const uint8_t *>(array)[index]);
	case KVK_F32:
		return static_cast<const float *>(array)[index];
	case KVK_BF16:
		return kvk_bf16_to_f32(static_cast<const uint16_t *>(array)[index]);
	default:
		return kvk_widen_f16(static_cast<const uint16_t *>(array)[index]);
	}
}

KVK_DEVICE void kvk_store(void *array, uint32_t dtype, int64_t index, float value)
{
	switch (dtype) {
	case KVK_E4M3:
		static_cast<uint8_t *>(array)[index] = kvk_f32_to_e4m3(value);
		break;
	case KVK_F32:
		static_cast<float *>(array)[index] = value;
		break;
	case KVK_BF16:
		static_cast<uint16_t *>(array)[index] = kvk_f32_to_bf16(value);
		break;
	default:
		static_cast<uint16_t *>(array)[index] = kvk_f32_to_f16(value);
	}
}

/* Elements `index` (even) and the next of an output array whose pairs are aligned. */
KVK_DEVICE void kvk_store_pair(void *array, uint32_t dtype, int64_t index, float low, float high)
{
	if (dtype == KVK_F32)
		kvk_store8(static_cast<float *>(array) + index, {{kvk_f32_bits(low), kvk_f32_bits(high)}});
	else
		kvk_store4(static_cast<uint16_t *>(array) + index,
			   dtype == KVK_BF16 ? kvk_pack_bf16(low, high) : kvk_pack_f16(low, high));
}

KVK_DEVICE int64_t kvk_slot_at(const void *slots, uint32_t slot_bytes, int64_t index)
{
	return slot_bytes == 4 ? static_cast<const int32_t *>(slots)[index]
			       : static_cast<const int64_t *>(slots)[index];
}

/* What a sink leaves of an output whose lse2 (log2) is finite. */
KVK_DEVICE float kvk_sink_factor(const float *sink, int32_t head, float lse2)
{
	return sink ? 1 / (1 + kvk_exp2(sink[head] * KVK_LOG2E - lse2)) : 1;
}

#endif
