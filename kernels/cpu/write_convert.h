/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The conversions of ../dtype.h without branches, so that loops over them become vectors at every level, and bit for
 * bit the same (tests compare all of 2^16, and f32 at random). Where dtype.h rounds by lrintf(), adding a power of two
 * whose last place is the result's unit rounds to nearest even just so.
 */
#ifndef KVPOOL_KERNELS_WRITE_CONVERT_H
#define KVPOOL_KERNELS_WRITE_CONVERT_H

#include "../dtype.h"

#define KVK_INLINE_CONVERT static inline __attribute__((always_inline))

typedef uint8_t kvk_code_e4m3;
typedef uint16_t kvk_code_bf16 __attribute__((aligned(1), may_alias));
typedef uint16_t kvk_code_f16 __attribute__((aligned(1), may_alias));
typedef float kvk_code_f32 __attribute__((aligned(1), may_alias));

KVK_INLINE_CONVERT float kvk_from_bf16(uint16_t code)
{
	return kvk_f32_from_bits((uint32_t)code << 16);
}

KVK_INLINE_CONVERT float kvk_from_f16(uint16_t code)
{
	const uint32_t sign = (uint32_t)(code & 0x8000u) << 16;
	const uint32_t magnitude = (uint32_t)(code & 0x7fffu) << 13;
	const uint32_t least = 113u << 23; /* 2^-14, the smallest normal one */
	const uint32_t tiny = kvk_f32_bits(kvk_f32_from_bits(magnitude + least) - kvk_f32_from_bits(least));
	uint32_t bits = magnitude + (112u << 23);

	bits = magnitude >= 0x7c00u << 13 ? magnitude | 0x7f800000u : bits;
	bits = magnitude < 1u << 23 ? tiny : bits;
	return kvk_f32_from_bits(bits | sign);
}

KVK_INLINE_CONVERT float kvk_from_f32(float value)
{
	return value;
}

KVK_INLINE_CONVERT uint16_t kvk_to_bf16(float value)
{
	const uint32_t bits = kvk_f32_bits(value);
	const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;

	return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? bits >> 16 | 0x40u : rounded);
}

KVK_INLINE_CONVERT uint16_t kvk_to_f16(float value)
{
	const uint32_t bits = kvk_f32_bits(value);
	const uint32_t magnitude = bits & 0x7fffffffu;
	const uint32_t tiny = kvk_f32_bits(kvk_f32_from_bits(magnitude) + 0.5f) - 0x3f000000u;
	uint32_t code = ((magnitude + 0xfffu + (magnitude >> 13 & 1u)) >> 13) - (112u << 10);

	code = magnitude < 0x38800000u ? tiny : code;
	code = magnitude >= 0x477ff000u ? 0x7c00u : code;
	code = magnitude > 0x7f800000u ? 0x7e00u | (magnitude >> 13 & 0x1ffu) : code;
	return (uint16_t)(code | (bits >> 16 & 0x8000u));
}

KVK_INLINE_CONVERT float kvk_to_f32(float value)
{
	return value;
}

KVK_INLINE_CONVERT uint8_t kvk_to_e4m3(float value)
{
	const uint32_t bits = kvk_f32_bits(value);
	const uint32_t magnitude = bits & 0x7fffffffu;
	const uint32_t tiny = kvk_f32_bits(kvk_f32_from_bits(magnitude) + 0x1p14f) - 0x46800000u;
	uint32_t code = ((magnitude + 0x7ffffu + (magnitude >> 20 & 1u)) >> 20) - (120u << 3);

	code = magnitude < 0x3c800000u ? tiny : code;
	code = magnitude >= 0x43e00000u ? 0x7eu : code;
	code = magnitude > 0x7f800000u ? 0x7fu : code;
	return (uint8_t)(code | (bits >> 24 & 0x80u));
}

#endif
