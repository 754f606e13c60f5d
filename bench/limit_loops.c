/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops of limits.h, built once for each instruction set level (kernels/cpu/level.h). They share nothing with
 * the kernels that they judge, and do nothing but what they measure:
 *
 *   multiply-add  twelve independent sums: more than latency * units (4 * 2 on today's cores) can hide
 *   read          whole cache lines, each added to one of four sums, with or without a request ahead
 *   copy          lines past the cache
 */
#include "limits.h"

#include <string.h>

#include "../kernels/cpu/level.h"

#if KVK_LEVEL == 2 || KVK_LEVEL == 3
#include <immintrin.h>
#define VECTOR_BYTES 64
#elif KVK_LEVEL == 1
#include <immintrin.h>
#define VECTOR_BYTES 32
#else
#ifdef __SSE2__
#include <emmintrin.h>
#endif
#define VECTOR_BYTES 16
#endif

#define LANES (VECTOR_BYTES / 4)
#define LINE 64
#define ACCUMULATORS 12
#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

typedef float floats __attribute__((vector_size(VECTOR_BYTES)));
typedef uint64_t words __attribute__((vector_size(VECTOR_BYTES), aligned(VECTOR_BYTES), may_alias));

/* The factor keeps every sum between 0 and 2, away from subnormals; read from memory so that nothing is folded. */
static const volatile float factor = 0.5f;

static double multiply_add(uint64_t rounds, float *kept)
{
	const floats a = factor + (floats){0};
	const floats b = factor + (floats){0};
	floats all = {0};

	/* Each a variable of its own: a compiler that did not unroll a loop over an array would keep it in memory. */
#define BEGIN(i) floats sum##i = (float)i + (floats){0};
#define STEP(i) sum##i = sum##i * a + b;
#define END(i) all += sum##i;
	EACH(BEGIN)
	for (uint64_t round = 0; round < rounds; round++) {
		EACH(STEP)
	}
	EACH(END)
	memcpy(kept, &all, sizeof(float));
	return (double)rounds * ACCUMULATORS * LANES * 2;
}

static uint64_t read_page(const char *page, size_t bytes, const char *next, int ahead)
{
	words sum[LINE / VECTOR_BYTES * 4] = {{0}};
	uint64_t out;

	for (size_t at = 0; at < bytes; at += 4 * LINE) {
		if (ahead)
			for (size_t line = 0; line < 4 * LINE; line += LINE) {
				const size_t want = at + line + BENCH_AHEAD_BYTES;

				__builtin_prefetch(want < bytes ? page + want : next + want % bytes);
			}
		for (size_t i = 0; i < LINE / VECTOR_BYTES * 4; i++)
			sum[i] ^= *(const words *)(page + at + i * VECTOR_BYTES);
	}
	for (size_t i = 1; i < LINE / VECTOR_BYTES * 4; i++)
		sum[0] ^= sum[i];
	memcpy(&out, &sum[0], sizeof(out));
	return out;
}

static void copy_lines(char *to, const char *from, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += VECTOR_BYTES) {
#if KVK_LEVEL == 2 || KVK_LEVEL == 3
		_mm512_stream_si512((__m512i *)(to + at), _mm512_load_si512(from + at));
#elif KVK_LEVEL == 1
		_mm256_stream_si256((__m256i *)(to + at), _mm256_load_si256((const __m256i *)(from + at)));
#elif defined(__SSE2__)
		_mm_stream_si128((__m128i *)(to + at), _mm_load_si128((const __m128i *)(from + at)));
#else
		memcpy(to + at, from + at, VECTOR_BYTES);
#endif
	}
#ifdef __SSE2__
	_mm_sfence();
#endif
}

const struct bench_limit_ops KVK_OPS(bench_limit) = {
	.multiply_add = multiply_add, .read_page = read_page, .copy = copy_lines};
