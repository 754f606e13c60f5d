/* SPDX-License-Identifier: Apache-2.0 */
/* The inner loops of the host preparation, shaped so that a compiler turns each into vectors. See prep.h. */
#include "prep.h"

#include "../cpu/level.h"

#if defined(__AVX512F__) && defined(__AVX512BW__)
#include <immintrin.h>
#define LANES 16
#elif defined(__AVX2__)
#include <immintrin.h>
#define LANES 8
#else
#define LANES 0
#endif

#define KVK_INLINE static inline __attribute__((always_inline))

/* What the compilers do not find in the plain form below: the upper halves of products of 32 bits, two vectors of them. */
#if LANES == 16
KVK_INLINE __m512i quotients(__m512i ids, const struct kvk_prep_ratio *ratio)
{
	const __m512i magic = _mm512_set1_epi64(ratio->magic);
	const __m128i shift = _mm_cvtsi32_si128((int)ratio->shift);
	const __m512i scaled =
		ratio->scale == 1 ? ids : _mm512_mullo_epi32(ids, _mm512_set1_epi32((int)ratio->scale));
	__m512i even, odd;

	if (!ratio->magic)
		return _mm512_srl_epi32(scaled, shift);
	even = _mm512_srl_epi64(_mm512_mul_epu32(scaled, magic), shift);
	odd = _mm512_srl_epi64(_mm512_mul_epu32(_mm512_srli_epi64(scaled, 32), magic), shift);
	return _mm512_mask_blend_epi32(0xaaaa, even, _mm512_slli_epi64(odd, 32));
}

/* `lanes` of the 16. */
KVK_INLINE __m512i convert(int32_t *out, const int32_t *at, __mmask16 lanes,
			   const struct kvk_prep_ratio *ratio)
{
	const __m512i ids = _mm512_maskz_loadu_epi32(lanes, at);
	const __mmask16 none = _mm512_movepi32_mask(ids);

	_mm512_mask_storeu_epi32(
		out, lanes,
		_mm512_mask_mov_epi32(quotients(ids, ratio), none, _mm512_set1_epi32(ratio->none)));
	return _mm512_maskz_add_epi32(lanes, ids, _mm512_set1_epi32(1));
}

typedef __m512i most;

KVK_INLINE uint32_t largest_of(most high)
{
	return _mm512_reduce_max_epu32(high);
}

KVK_INLINE most convert_row(int32_t *out, const int32_t *ids, int32_t count,
			    const struct kvk_prep_ratio *ratio, most high)
{
	int32_t i = 0;

	for (; i + LANES <= count; i += LANES)
		high = _mm512_max_epu32(high, convert(out + i, ids + i, 0xffff, ratio));
	if (i < count)
		high = _mm512_max_epu32(
			high, convert(out + i, ids + i, (__mmask16)((1u << (count - i)) - 1), ratio));
	return high;
}
#elif LANES == 8
KVK_INLINE __m256i quotients(__m256i ids, const struct kvk_prep_ratio *ratio)
{
	const __m256i magic = _mm256_set1_epi64x(ratio->magic);
	const __m128i shift = _mm_cvtsi32_si128((int)ratio->shift);
	const __m256i scaled =
		ratio->scale == 1 ? ids : _mm256_mullo_epi32(ids, _mm256_set1_epi32((int)ratio->scale));
	__m256i even, odd;

	if (!ratio->magic)
		return _mm256_srl_epi32(scaled, shift);
	even = _mm256_srl_epi64(_mm256_mul_epu32(scaled, magic), shift);
	odd = _mm256_srl_epi64(_mm256_mul_epu32(_mm256_srli_epi64(scaled, 32), magic), shift);
	return _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
}
#endif

#if LANES != 16
KVK_INLINE uint32_t plain_row(int32_t *restrict out, const int32_t *restrict ids, int32_t count,
			      const struct kvk_prep_ratio *ratio)
{
	const uint64_t magic = ratio->magic ? ratio->magic : 1;
	const uint32_t scale = (uint32_t)ratio->scale;
	const uint32_t shift = ratio->shift;
	const int32_t none = ratio->none;
	uint32_t high = 0;

	for (int32_t i = 0; i < count; i++) {
		uint32_t next = (uint32_t)ids[i] + 1;
		uint32_t scaled = (uint32_t)ids[i] * scale;
		int32_t quotient = (int32_t)(scaled * magic >> shift);

		high = next > high ? next : high;
		out[i] = ids[i] < 0 ? none : quotient;
	}
	return high;
}
#endif

#if LANES == 8
typedef __m256i most;

KVK_INLINE uint32_t largest_of(most high)
{
	uint32_t lane[LANES];
	uint32_t largest = 0;

	_mm256_storeu_si256((__m256i *)(void *)lane, high);
	for (int j = 0; j < LANES; j++)
		largest = lane[j] > largest ? lane[j] : largest;
	return largest;
}

KVK_INLINE most convert(int32_t *out, const int32_t *at, const struct kvk_prep_ratio *ratio, most high)
{
	const __m256i id = _mm256_loadu_si256((const __m256i *)(const void *)at);
	const __m256i bad = _mm256_srai_epi32(id, 31);
	__m256i quotient = _mm256_andnot_si256(bad, quotients(id, ratio));

	if (ratio->none)
		quotient = _mm256_or_si256(quotient, bad); /* -1 */
	_mm256_storeu_si256((__m256i *)(void *)out, quotient);
	return _mm256_max_epu32(high, _mm256_sub_epi32(id, _mm256_set1_epi32(-1)));
}

KVK_INLINE most convert_row(int32_t *out, const int32_t *ids, int32_t count,
			    const struct kvk_prep_ratio *ratio, most high)
{
	int32_t i = 0;

	for (; i + 2 * LANES <= count; i += 2 * LANES) {
		high = convert(out + i, ids + i, ratio, high);
		high = convert(out + i + LANES, ids + i + LANES, ratio, high);
	}
	for (; i + LANES <= count; i += LANES)
		high = convert(out + i, ids + i, ratio, high);
	if (i < count)
		high = _mm256_max_epu32(
			high, _mm256_set1_epi32((int)plain_row(out + i, ids + i, count - i, ratio)));
	return high;
}
#elif LANES == 0
typedef uint32_t most;

KVK_INLINE uint32_t largest_of(most high)
{
	return high;
}

KVK_INLINE most convert_row(int32_t *out, const int32_t *ids, int32_t count,
			    const struct kvk_prep_ratio *ratio, most high)
{
	const uint32_t largest = plain_row(out, ids, count, ratio);

	return largest > high ? largest : high;
}
#endif

static void fill(int32_t *out, int32_t value, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		out[i] = value;
}

/* All rows: the quotients, and the largest id + 1 in 32 bits without sign. */
KVK_INLINE uint32_t convert_rows(const struct kvk_prep_block_ids_params *p,
				 const struct kvk_prep_ratio *ratio)
{
	const bool flat = p->flags & KVK_PREP_FLAT;
	most high = (most){0};
	int32_t *out = p->out;

	for (int32_t i = 0; i < p->batch; i++) {
		const int32_t *row = p->slots + kvk_prep_row(p, i) * p->slots_stride;
		int32_t count = kvk_prep_count(p, i);

		high = convert_row(out, row, count, ratio, high);
		if (!flat && count < p->width)
			fill(out + count, ratio->none, p->width - count);
		out += flat ? count : p->out_stride;
	}
	return largest_of(high);
}

/* A mere shift, which is the usual ratio, has loops of its own. */
static uint32_t block_ids(const struct kvk_prep_block_ids_params *p, const struct kvk_prep_ratio *ratio)
{
	struct kvk_prep_ratio own = *ratio;

	if (own.magic || own.scale != 1)
		return convert_rows(p, &own);
	own.magic = 0;
	own.scale = 1;
	return convert_rows(p, &own);
}

static void count_up32(int32_t *out, int64_t first, int64_t count)
{
	const int32_t start = (int32_t)first;

	for (int32_t i = 0; i < (int32_t)count; i++)
		out[i] = start + i;
}

static void count_up64(int64_t *out, int64_t first, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		out[i] = first + i;
}

extern const struct kvk_prep_ops KVK_OPS(kvk_prep);
const struct kvk_prep_ops KVK_OPS(kvk_prep) = {
	.block_ids = block_ids, .count_up32 = count_up32, .count_up64 = count_up64, .fill = fill};
