/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Vectors of floats as wide as the level's registers, for the *_loops.c files, which are compiled once a level.
 * Everything follows from the compiler's own macros: 16 lanes with AVX-512, 8 with AVX2 and FMA, 4 with NEON and
 * on the plain architecture. Arithmetic that the compilers know is written with operators on the vector types;
 * what they don't know is an intrinsic with a plain fallback.
 *
 * Every function here is a fixed sequence of IEEE operations in each lane: a lane's result depends on nothing
 * but that lane, and sums over lanes have one order. That is what lets kernels promise equal bits for a row
 * wherever in a tile it lies. Between levels bits may differ (fused or separate multiply-add, exp2).
 */
#ifndef KVPOOL_KERNELS_SIMD_H
#define KVPOOL_KERNELS_SIMD_H

#include "../dtype.h"

#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#include <immintrin.h>
#define KVK_SIMD_AVX512 1
#define KVK_LANES 16
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include <immintrin.h>
#define KVK_SIMD_AVX2 1
#define KVK_LANES 8
#elif defined(__aarch64__) && defined(__ARM_NEON)
#include <arm_neon.h>
#define KVK_SIMD_NEON 1
#define KVK_LANES 4
#else
#define KVK_LANES 4
#endif

#define KVK_INLINE static inline __attribute__((always_inline))
/* In front of a loop with a constant count whose array must end up in registers. */
#ifdef KVK_ROLLED
#define KVK_UNROLL
#define KVK_NO_UNROLL
#elif defined(__clang__)
#define KVK_UNROLL _Pragma("clang loop unroll(full)")
#define KVK_NO_UNROLL _Pragma("clang loop unroll(disable)")
#else
#define KVK_UNROLL _Pragma("GCC unroll 32")
/* In front of a loop whose body fills the registers: unrolled, a compiler's scheduler would spill them. */
#define KVK_NO_UNROLL _Pragma("GCC unroll 1")
#endif

typedef float vf __attribute__((vector_size(KVK_LANES * 4), aligned(KVK_LANES * 4), may_alias));
typedef float vf_unaligned __attribute__((vector_size(KVK_LANES * 4), aligned(4), may_alias));
typedef int32_t vi __attribute__((vector_size(KVK_LANES * 4), aligned(KVK_LANES * 4), may_alias));
typedef uint32_t vu __attribute__((vector_size(KVK_LANES * 4), aligned(KVK_LANES * 4), may_alias));

KVK_INLINE vf vf_load(const float *p)
{
	return *(const vf *)p;
}

KVK_INLINE vf vf_loadu(const float *p)
{
	return *(const vf_unaligned *)p;
}

KVK_INLINE void vf_store(float *p, vf a)
{
	*(vf *)p = a;
}

KVK_INLINE void vf_storeu(float *p, vf a)
{
	*(vf_unaligned *)p = a;
}

/* All lanes x. */
KVK_INLINE vf vf_set(float x)
{
	return x - (vf){0};
}

/* a * b + c, fused where the level can. */
KVK_INLINE vf vf_fma(vf a, vf b, vf c)
{
#if defined(KVK_SIMD_AVX512)
	return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(KVK_SIMD_AVX2)
	return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(KVK_SIMD_NEON)
	return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
	return a * b + c;
#endif
}

/* In each lane a where mask is all ones, b where it is 0: masks are what comparing two vf gives. */
KVK_INLINE vf vf_select(vi mask, vf a, vf b)
{
	return (vf)((mask & (vi)a) | (~mask & (vi)b));
}

/* Whether any bit is set. */
KVK_INLINE int vu_any(vu a)
{
#if defined(KVK_SIMD_AVX512)
	return _mm512_test_epi32_mask((__m512i)a, (__m512i)a) != 0;
#elif defined(KVK_SIMD_AVX2)
	return !_mm256_testz_si256((__m256i)a, (__m256i)a);
#else
	return (a[0] | a[1] | a[2] | a[3]) != 0;
#endif
}

/* The larger one; b where either is NaN. */
KVK_INLINE vf vf_max(vf a, vf b)
{
#if defined(KVK_SIMD_AVX512)
	return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(KVK_SIMD_AVX2)
	return (vf)_mm256_max_ps((__m256)a, (__m256)b);
#else
	return vf_select(a > b, a, b);
#endif
}

/* The first lanes of a beside those of b: a0 b0 a1 b1 ...; and the last ones. */
#ifdef __clang__
#define KVK_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define KVK_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (vi){__VA_ARGS__})
#endif

KVK_INLINE vf vf_interleave_low(vf a, vf b)
{
#if KVK_LANES == 16
	return KVK_SHUFFLE(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
#elif KVK_LANES == 8
	return KVK_SHUFFLE(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
#else
	return KVK_SHUFFLE(a, b, 0, 4, 1, 5);
#endif
}

KVK_INLINE vf vf_interleave_high(vf a, vf b)
{
#if KVK_LANES == 16
	return KVK_SHUFFLE(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
#elif KVK_LANES == 8
	return KVK_SHUFFLE(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
#else
	return KVK_SHUFFLE(a, b, 2, 6, 3, 7);
#endif
}

/*
 * Row i, lane j becomes row j, lane i. Each step moves the topmost bit of the row number to the lowest place of
 * the lane number and the topmost bit of the lane number to the lowest place of the row number.
 */
KVK_INLINE void vf_transpose(vf row[KVK_LANES])
{
	vf next[KVK_LANES];

	KVK_UNROLL
	for (int step = 1; step < KVK_LANES; step *= 2) {
		KVK_UNROLL
		for (int i = 0; i < KVK_LANES / 2; i++) {
			next[2 * i] = vf_interleave_low(row[i], row[i + KVK_LANES / 2]);
			next[2 * i + 1] = vf_interleave_high(row[i], row[i + KVK_LANES / 2]);
		}
		KVK_UNROLL
		for (int i = 0; i < KVK_LANES; i++)
			row[i] = next[i];
	}
}

/* Sum and maximum of the lanes: halves are combined until one lane is left. */
KVK_INLINE float vf_sum(vf a)
{
	float lane[KVK_LANES];

	memcpy(lane, &a, sizeof(lane));
	KVK_UNROLL
	for (int half = KVK_LANES / 2; half > 0; half /= 2)
		KVK_UNROLL
	for (int i = 0; i < half; i++)
		lane[i] += lane[i + half];
	return lane[0];
}

KVK_INLINE float vf_largest(vf a)
{
	float lane[KVK_LANES];

	memcpy(lane, &a, sizeof(lane));
	KVK_UNROLL
	for (int half = KVK_LANES / 2; half > 0; half /= 2)
		KVK_UNROLL
	for (int i = 0; i < half; i++)
		lane[i] = lane[i] > lane[i + half] ? lane[i] : lane[i + half];
	return lane[0];
}

/*
 * 2^x for x <= 0, relative error below 3e-7; 0 from about 2^-126.5 down; NaN stays NaN. x is a whole number and a
 * rest in [-0.5, 0.5], for which a Taylor polynomial does. Adding `magic` leaves the whole number plus 127 in the
 * lowest bits of the sum: shifted up, they are the power's exponent, and with -127 the power is 0.
 */
KVK_INLINE vf vf_exp2(vf x)
{
	const vf magic = vf_set(0x1.8p23f + 127);
	const vf clamped = vf_max(vf_set(-127.0f), x); /* NaN comes through */
	const vf shifted = clamped + magic;
	const vf f = clamped - (shifted - magic);
	vf p = vf_set(1.5403530393381606e-4f); /* ln(2)^n / n!, n = 6 to 0 */

	p = vf_fma(p, f, vf_set(1.3333558146428443e-3f));
	p = vf_fma(p, f, vf_set(9.618129107628477e-3f));
	p = vf_fma(p, f, vf_set(5.550410866482158e-2f));
	p = vf_fma(p, f, vf_set(2.402265069591007e-1f));
	p = vf_fma(p, f, vf_set(6.931471805599453e-1f));
	p = vf_fma(p, f, vf_set(1.0f));
	return p * (vf)((vu)shifted << 23);
}

#if defined(KVK_SIMD_AVX512)
/* Codes [first, first + 16) of 32 as f32: one instruction, where widening and shifting are two. */
KVK_INLINE vf kvk_widen_bf16(__m512i codes, uint32_t first)
{
	const vu word = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

	return (vf)_mm512_maskz_permutexvar_epi16(0xaaaaaaaau, (__m512i)((word + first) << 16), codes);
}
#endif

/* Loads of KVK_LANES codes at any address. */
KVK_INLINE vf vf_load_bf16(const void *codes)
{
#if defined(KVK_SIMD_AVX512)
	return kvk_widen_bf16(_mm512_castsi256_si512(_mm256_loadu_si256(codes)), 0);
#elif defined(KVK_SIMD_AVX2)
	return (vf)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(codes)), 16);
#elif defined(KVK_SIMD_NEON)
	return (vf)vshll_n_u16(vreinterpret_u16_u8(vld1_u8(codes)), 16);
#else
	uint16_t code[KVK_LANES];
	vu bits;

	memcpy(code, codes, sizeof(code));
	for (int i = 0; i < KVK_LANES; i++)
		bits[i] = (uint32_t)code[i] << 16;
	return (vf)bits;
#endif
}

/* Twice as many. */
KVK_INLINE void vf_load_bf16_pair(vf value[2], const void *codes)
{
#if defined(KVK_SIMD_AVX512)
	const __m512i both = _mm512_loadu_si512(codes);

	value[0] = kvk_widen_bf16(both, 0);
	value[1] = kvk_widen_bf16(both, 16);
#else
	value[0] = vf_load_bf16(codes);
	value[1] = vf_load_bf16((const char *)codes + 2 * KVK_LANES);
#endif
}

KVK_INLINE vf vf_load_f16(const void *codes)
{
#if defined(KVK_SIMD_AVX512)
	return (vf)_mm512_cvtph_ps(_mm256_loadu_si256(codes));
#elif defined(KVK_SIMD_AVX2)
	return (vf)_mm256_cvtph_ps(_mm_loadu_si128(codes));
#elif defined(KVK_SIMD_NEON)
	return (vf)vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(codes)));
#else
	uint16_t code[KVK_LANES];
	vf value;

	memcpy(code, codes, sizeof(code));
	for (int i = 0; i < KVK_LANES; i++)
		value[i] = kvk_f16_to_f32(code[i]);
	return value;
#endif
}

/* Elements [index, index + KVK_LANES) of an array of bf16, f16 or f32. With dtype a constant it is one load. */
KVK_INLINE vf vf_load_plain(const void *array, int64_t index, uint32_t dtype)
{
	const char *bytes = array;

	if (dtype == KVK_BF16)
		return vf_load_bf16(bytes + 2 * index);
	if (dtype == KVK_F16)
		return vf_load_f16(bytes + 2 * index);
	return vf_loadu((const float *)(const void *)(bytes + 4 * index));
}

/*
 * e4m3 by way of f16: the same sign, exponent and mantissa fields in f16's places are the value times 2^-8,
 * subnormals included, and multiplying by 2^8 is exact. Only the NaN codes, 0x7f and 0xff, come out wrong (as
 * +-480): vf_load_e4m3() sets them right, vf_load_e4m3_finite() is for codes that hold none. The factor must be
 * 256 times what the values are to be multiplied with.
 */
#if defined(KVK_SIMD_AVX512)
KVK_INLINE __m256i kvk_e4m3_as_f16(const void *codes)
{
	const __m256i wide = _mm256_slli_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128(codes)), 7);

	return _mm256_and_si256(wide, _mm256_set1_epi16((short)0xbfff));
}
#elif defined(KVK_SIMD_AVX2)
KVK_INLINE __m128i kvk_e4m3_as_f16(const void *codes)
{
	const __m128i wide = _mm_slli_epi16(_mm_cvtepi8_epi16(_mm_loadl_epi64(codes)), 7);

	return _mm_and_si128(wide, _mm_set1_epi16((short)0xbfff));
}
#endif

KVK_INLINE vf vf_load_e4m3_finite(const void *codes, vf factor)
{
#if defined(KVK_SIMD_AVX512)
	return (vf)_mm512_cvtph_ps(kvk_e4m3_as_f16(codes)) * factor;
#elif defined(KVK_SIMD_AVX2)
	return (vf)_mm256_cvtph_ps(kvk_e4m3_as_f16(codes)) * factor;
#else
	uint8_t code[KVK_LANES];
	vf value;

	memcpy(code, codes, sizeof(code));
	for (int i = 0; i < KVK_LANES; i++)
		value[i] = kvk_e4m3_to_f32(code[i]) * 0x1p-8f;
	return value * factor;
#endif
}

KVK_INLINE vf vf_load_e4m3(const void *codes)
{
#if defined(KVK_SIMD_AVX512) || defined(KVK_SIMD_AVX2)
	const vf value = vf_load_e4m3_finite(codes, vf_set(256.0f));
	const vf largest = vf_set(464.0f); /* between 448 and 480 */

	return (vf)((vi)value | (((value > largest) | (value < -largest)) & 0x7fc00000));
#else
	return vf_load_e4m3_finite(codes, vf_set(256.0f));
#endif
}

/* Stores of KVK_LANES codes at any address, rounded to nearest even; the bits are kvk_f32_to_bf16()'s and so on. */
typedef uint16_t kvk_codes __attribute__((vector_size(KVK_LANES * 2), aligned(2), may_alias));

KVK_INLINE void vf_store_bf16(void *codes, vf a)
{
	const vu bits = (vu)a;
	const vu rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
	const vi nan = (vi)(a != a);

	*(kvk_codes *)codes =
		__builtin_convertvector(((vu)nan & (bits >> 16 | 0x40u)) | (~(vu)nan & rounded), kvk_codes);
}

KVK_INLINE void vf_store_f16(void *codes, vf a)
{
#if defined(KVK_SIMD_AVX512)
	_mm256_storeu_si256(codes, _mm512_cvtps_ph((__m512)a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(KVK_SIMD_AVX2)
	_mm_storeu_si128(codes, _mm256_cvtps_ph((__m256)a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#else
	kvk_codes code;

	for (int i = 0; i < KVK_LANES; i++)
		code[i] = kvk_f32_to_f16(a[i]);
	*(kvk_codes *)codes = code;
#endif
}

#endif
