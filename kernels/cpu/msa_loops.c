/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops of msa_scan.h, compiled once a level.
 *
 *	for each KEYS keys of the tile
 *		for each 2 * KVK_LANES elements
 *			ask for the same of the keys one tile ahead
 *			convert those of the KEYS keys in registers
 *			sum[key][query] += key * query, lane by lane: 4 * KEYS sums in registers
 *		add up the lanes of all sums, KVK_LANES sums to a vector
 *		best = max(best, vector)
 *
 * Roofline: a key of 128 bf16 is 256 bytes and 1024 flop for four queries: 4 flop a byte, so memory is the
 * limit, at 10 to 20 GB/s a core 40 to 80 cycles a key. The loops take about 30 with AVX-512 (16 for the
 * products, 8 for adding up lanes, 4 for converting), 45 with AVX2. What makes them reach memory's rate is
 * asking for lines one tile ahead, through the block table, where a hardware prefetcher stops at each 4
 * KiB.
 *
 * bf16 is converted by shifting and masking 32-bit words: even elements, then odd ones; queries are brought
 * into that order once. Where the processor multiplies bf16 (AVX512_BF16), queries that are bf16 meet the
 * keys as they lie. e4m3 goes by way of f16, which leaves the values 2^-8 times too small and the NaN
 * codes as numbers: sums are multiplied with 2^8 in the end, and a tile with a NaN code takes a slower
 * conversion.
 */
#include "msa_scan.h"

#include "level.h"

#include "quads.h"
#include "simd.h"

#if defined(KVK_SIMD_AVX512) || defined(KVK_SIMD_AVX2)
#define VECTORS 1 /* of sums that are added up together */
#else
#define VECTORS 2
#endif
#define QUERIES KVK_MSA_QUERIES
#define KEYS (VECTORS * KVK_LANES / QUERIES)

#define LINE 64
#define PAIR (2 * KVK_LANES)
#define E4M3_FINITE 0x100u /* dtype of a tile without NaN codes */
#define BF16_PAIRS 0x200u  /* of bf16 keys that meet packed queries */

typedef uint8_t vb __attribute__((vector_size(KVK_LANES * 4), aligned(1), may_alias));

_Static_assert(KVK_MSA_KEYS % KEYS == 0, "a tile is whole steps");

KVK_INLINE int code_bytes(uint32_t dtype)
{
	return dtype == KVK_F32 ? 4 : dtype == KVK_BF16 || dtype == KVK_F16 || dtype == BF16_PAIRS ? 2 : 1;
}

/* Two vectors of codes. */
KVK_INLINE void convert_pair(vf pair[2], const char *codes, uint32_t dtype)
{
	if (dtype == KVK_BF16) {
		const vu words = *(const vu_unaligned *)codes;

		pair[0] = (vf)(words << 16);
		pair[1] = (vf)(words & 0xffff0000u);
		return;
	}
	KVK_UNROLL
	for (int i = 0; i < 2; i++, codes += KVK_LANES * code_bytes(dtype))
		if (dtype == KVK_F16)
			pair[i] = vf_load_f16(codes);
		else if (dtype == KVK_F32)
			pair[i] = vf_loadu((const float *)(const void *)codes);
		else if (dtype == KVK_E4M3)
			pair[i] = vf_load_e4m3(codes);
		else
			pair[i] = vf_load_e4m3_finite(codes, vf_set(1));
}

#ifdef __AVX512BF16__
/* Queries that are bf16 stay so; 0, and nothing is written, where one is not. */
static int pack_queries(float *ordered, const float *q, int width)
{
	uint16_t *code = (uint16_t *)(void *)ordered;

	for (int i = 0; i < QUERIES * width; i++)
		if (kvk_bf16_to_f32(kvk_f32_to_bf16(q[i])) != q[i])
			return 0;
	for (int i = 0; i < QUERIES * width; i++)
		code[i] = kvk_f32_to_bf16(q[i]);
	return 1;
}

/* Products of pairs of bf16, which are exact, added up as the instruction does it. */
KVK_INLINE void multiply_pairs(vf sum[KEYS * QUERIES], const uint16_t *q, int width, const char *const *row,
			       const char *const *ahead)
{
	KVK_UNROLL
	for (int i = 0; i < KEYS * QUERIES; i++)
		sum[i] = (vf){0};
	for (int d = 0; d < width; d += PAIR) {
		__m512bh key[KEYS];

		KVK_UNROLL
		for (int n = 0; n < KEYS; n++) {
			__builtin_prefetch(ahead[n] + 2 * d);
			key[n] = (__m512bh)_mm512_loadu_si512(row[n] + 2 * d);
		}
		KVK_UNROLL
		for (int h = 0; h < QUERIES; h++) {
			const __m512bh query = (__m512bh)_mm512_loadu_si512(q + h * width + d);

			KVK_UNROLL
			for (int n = 0; n < KEYS; n++)
				sum[n * QUERIES + h] =
					(vf)_mm512_dpbf16_ps((__m512)sum[n * QUERIES + h], key[n], query);
		}
	}
}
#endif

static int order_queries(float *ordered, const float *q, int width, uint32_t key_dtype)
{
#ifdef __AVX512BF16__
	if (key_dtype == KVK_BF16 && pack_queries(ordered, q, width))
		return 1;
#endif
	for (int i = 0; i < QUERIES * width; i++) {
		const int place = i / PAIR * PAIR + i % 2 * KVK_LANES + i % PAIR / 2;

		ordered[key_dtype == KVK_BF16 ? place : i] = q[i];
	}
	return 0;
}

/* Lane i is the sum of the lanes of a[i]: first within quads, then over quads. */
KVK_INLINE vf add_lanes(const vf a[KVK_LANES])
{
	vf quad[KVK_LANES / 4];

	KVK_UNROLL
	for (int g = 0; g < KVK_LANES / 4; g++) {
		const vf *four = a + 4 * g;
		const vf ab = LOW_WORDS(four[0], four[1]) + HIGH_WORDS(four[0], four[1]);
		const vf cd = LOW_WORDS(four[2], four[3]) + HIGH_WORDS(four[2], four[3]);

		quad[g] = LOW_PAIRS(ab, cd) + HIGH_PAIRS(ab, cd);
	}
#if KVK_LANES == 16
	const vf low = LOW_HALVES(quad[0], quad[1]) + HIGH_HALVES(quad[0], quad[1]);
	const vf high = LOW_HALVES(quad[2], quad[3]) + HIGH_HALVES(quad[2], quad[3]);

	return EVEN_QUADS(low, high) + ODD_QUADS(low, high);
#elif KVK_LANES == 8
	return LOW_HALVES(quad[0], quad[1]) + HIGH_HALVES(quad[0], quad[1]);
#else
	return quad[0];
#endif
}

/*
 * The products of KEYS keys and four queries: sum[key][query]. The lines of the rows `ahead` are asked for
 * as those of `row` are used, one by one: many at once would wait for line fill buffers.
 */
KVK_INLINE void multiply(vf sum[KEYS * QUERIES], const float *q, int width, const char *const *row,
			 const char *const *ahead, uint32_t dtype)
{
	KVK_UNROLL
	for (int i = 0; i < KEYS * QUERIES; i++)
		sum[i] = (vf){0};
	for (int d = 0; d < width; d += PAIR) {
		const int offset = d * code_bytes(dtype);
		vf key[KEYS][2];

		KVK_UNROLL
		for (int n = 0; n < KEYS; n++) {
			if (PAIR * code_bytes(dtype) >= LINE || offset % LINE == 0)
				__builtin_prefetch(ahead[n] + offset);
			convert_pair(key[n], row[n] + offset, dtype);
		}
		KVK_UNROLL
		for (int i = 0; i < 2; i++)
			KVK_UNROLL
		for (int h = 0; h < QUERIES; h++) {
			const vf query = vf_load(q + h * width + d + i * KVK_LANES);

			KVK_UNROLL
			for (int n = 0; n < KEYS; n++)
				sum[n * QUERIES + h] = vf_fma(key[n][i], query, sum[n * QUERIES + h]);
		}
	}
}

/*
 * The rows of a step: behind the last they are the last again, which changes no maximum. Rows that end
 * within a vector are brought to `some`, with zeros behind.
 */
KVK_INLINE void step_rows(const char *row[KEYS], const struct kvk_msa_scan *scan,
			  const struct kvk_msa_keys *now, int n, int count,
			  char some[KEYS][KVK_MSA_WIDTH * 4], uint32_t dtype)
{
	const size_t bytes = (size_t)code_bytes(dtype);

	KVK_UNROLL
	for (int i = 0; i < KEYS; i++)
		row[i] = now->row[n + i < count ? n + i : count - 1];
	if (scan->dim == scan->width)
		return;
	for (int i = 0; i < KEYS; i++) {
		memset(some[i], 0, (size_t)scan->width * bytes);
		row[i] = memcpy(some[i], row[i], (size_t)scan->dim * bytes);
	}
}

KVK_INLINE void scan_tile(struct kvk_msa_scan *scan, const struct kvk_msa_keys *now, int count,
			  const struct kvk_msa_keys *next, const uint32_t dtype)
{
	const vf factor = vf_set(dtype == E4M3_FINITE ? 256 : 1);
	char some[KEYS][KVK_MSA_WIDTH * 4];
	vf best = vf_load(scan->best);
	vi bad = *(const vi *)scan->bad;

	for (int n = 0; n < count; n += KEYS) {
		const char *row[KEYS];
		const char *ahead[KEYS];
		vf sum[KEYS * QUERIES];

		step_rows(row, scan, now, n, count, some, dtype);
		KVK_UNROLL
		for (int i = 0; i < KEYS; i++)
			ahead[i] = n + i < next->count ? next->row[n + i] : now->row[0];
#ifdef __AVX512BF16__
		if (dtype == BF16_PAIRS)
			multiply_pairs(sum, (const uint16_t *)(const void *)scan->q, scan->width, row, ahead);
		else
#endif
			multiply(sum, scan->q, scan->width, row, ahead, dtype);
		KVK_UNROLL
		for (int v = 0; v < VECTORS; v++) {
			const vf product = add_lanes(sum + v * KVK_LANES) * factor;

			best = vf_max(product, best); /* best where product is NaN */
			bad |= product != product;
		}
	}
	vf_store(scan->best, best);
	*(vi *)scan->bad = bad;
}

/* Whether one of the first `count` rows has a NaN code. */
static int has_nan(const struct kvk_msa_scan *scan, const struct kvk_msa_keys *keys, int count)
{
	const int step = sizeof(vb);
	vb found = {0};
	uint8_t any = 0;

	for (int n = 0; n < count; n++) {
		const char *row = keys->row[n];
		int d;

		for (d = 0; d + step <= scan->dim; d += step)
			found |= (vb)((*(const vb *)(row + d) & 0x7f) == 0x7f);
		for (; d < scan->dim; d++)
			any |= (uint8_t)((row[d] & 0x7f) == 0x7f);
	}
	for (int i = 0; i < step; i++)
		any |= found[i];
	return any != 0;
}

static void scan(struct kvk_msa_scan *scan, const struct kvk_msa_keys *now, int count,
		 const struct kvk_msa_keys *next)
{
	switch (scan->dtype) {
	case KVK_BF16:
#ifdef __AVX512BF16__
		if (scan->packed) {
			scan_tile(scan, now, count, next, BF16_PAIRS);
			break;
		}
#endif
		scan_tile(scan, now, count, next, KVK_BF16);
		break;
	case KVK_F16:
		scan_tile(scan, now, count, next, KVK_F16);
		break;
	case KVK_F32:
		scan_tile(scan, now, count, next, KVK_F32);
		break;
	default:
		if (has_nan(scan, now, count))
			scan_tile(scan, now, count, next, KVK_E4M3);
		else
			scan_tile(scan, now, count, next, E4M3_FINITE);
	}
}

const struct kvk_msa_ops KVK_OPS(kvk_msa) = {.order_queries = order_queries, .scan = scan};
