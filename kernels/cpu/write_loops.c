/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cache writes, once a level. A row's elements are copied, or converted by loops without branches. A call that writes
 * more than a few rows does it past the cache: whole lines are then streamed, which spares the read of each line that an
 * ordinary store begins with. What is converted goes through a buffer of a few lines for that.
 *
 * Roofline: a copy moves one byte read and one written for each byte of a row (an ordinary store reads the line too);
 * single rows at random places miss the TLB once, which the next rows' loads and stores overlap.
 */
#include "level.h"
#include "write.h"
#include "write_convert.h"

#include "../internal.h"

#define KVK_INLINE static inline __attribute__((always_inline))

#define LINE 64

#if defined(__AVX512F__)
#include <immintrin.h>
#define STREAMS 1
typedef __m512i line;
KVK_INLINE line load_line(const char *from)
{
	return _mm512_loadu_si512(from);
}

KVK_INLINE void stream_line(char *to, line value)
{
	_mm512_stream_si512((void *)to, value);
}
#elif defined(__AVX2__)
#include <immintrin.h>
#define STREAMS 1
typedef struct {
	__m256i low, high;
} line;
KVK_INLINE line load_line(const char *from)
{
	const __m256i *at = (const __m256i *)(const void *)from;

	return (line){_mm256_loadu_si256(at), _mm256_loadu_si256(at + 1)};
}

/* Both halves at once: the compiler would move one behind other lines, and half a line leaves in two bursts. */
KVK_INLINE void stream_line(char *to, line value)
{
	_mm256_stream_si256((__m256i *)(void *)to, value.low);
	_mm256_stream_si256((__m256i *)(void *)to + 1, value.high);
	__asm__ volatile("" : : : "memory");
}
#else
#define STREAMS 0
#endif

#if STREAMS
/* Whole lines, four at a time: loads first, so that reads and writes come in groups. */
KVK_INLINE void stream_lines(char *to, const char *from, int64_t bytes)
{
	int64_t at = 0;

	for (; at + 4 * LINE <= bytes; at += 4 * LINE) {
		line a = load_line(from + at);
		line b = load_line(from + at + LINE);
		line c = load_line(from + at + 2 * LINE);
		line d = load_line(from + at + 3 * LINE);

		stream_line(to + at, a);
		stream_line(to + at + LINE, b);
		stream_line(to + at + 2 * LINE, c);
		stream_line(to + at + 3 * LINE, d);
	}
	for (; at < bytes; at += LINE)
		stream_line(to + at, load_line(from + at));
}

/* Whole lines past the cache, what is left at both ends as usual. */
KVK_INLINE void stream(char *to, const char *from, int64_t bytes)
{
	int64_t head = (int64_t)(-(uintptr_t)to % LINE);
	int64_t lines;

	head = head < bytes ? head : bytes;
	lines = (bytes - head) & -LINE;
	if (head)
		memcpy(to, from, (size_t)head);
	stream_lines(to + head, from + head, lines);
	if (head + lines < bytes)
		memcpy(to + head + lines, from + head + lines, (size_t)(bytes - head - lines));
}

#define FENCE() _mm_sfence()
#else
KVK_INLINE void stream(char *to, const char *from, int64_t bytes)
{
	memcpy(to, from, (size_t)bytes);
}

#define stream_lines stream
#define FENCE() ((void)0)
#endif

KVK_INLINE void put(char *to, const char *from, int64_t bytes, bool past_cache)
{
	if (past_cache)
		stream(to, from, bytes);
	else
		memcpy(to, from, (size_t)bytes);
}

/* ------------------------------------------------------------------ conversions */

typedef void (*convert_fn)(void *to, const void *from, int32_t count);

#define CONVERT(from, to)                                                                                    \
	static void from##_to_##to(void *restrict out, const void *restrict in, int32_t count)               \
	{                                                                                                    \
		const kvk_code_##from *codes = in;                                                           \
		kvk_code_##to *values = out;                                                                 \
                                                                                                             \
		for (int32_t i = 0; i < count; i++)                                                          \
			values[i] = kvk_to_##to(kvk_from_##from(codes[i]));                                  \
	}

CONVERT(bf16, f16)
CONVERT(bf16, f32)
CONVERT(bf16, e4m3)
CONVERT(f16, bf16)
CONVERT(f16, f32)
CONVERT(f16, e4m3)
CONVERT(f32, bf16)
CONVERT(f32, f16)
CONVERT(f32, e4m3)

/* NULL between equal dtypes: a copy, so that NaN payloads survive. */
static convert_fn conversion(uint32_t from, uint32_t to)
{
	static const convert_fn table[][KVK_E4M3 + 1] = {
		[KVK_BF16] = {[KVK_F16] = bf16_to_f16, [KVK_F32] = bf16_to_f32, [KVK_E4M3] = bf16_to_e4m3},
		[KVK_F16] = {[KVK_BF16] = f16_to_bf16, [KVK_F32] = f16_to_f32, [KVK_E4M3] = f16_to_e4m3},
		[KVK_F32] = {[KVK_BF16] = f32_to_bf16, [KVK_F16] = f32_to_f16, [KVK_E4M3] = f32_to_e4m3}};

	return table[from][to];
}

KVK_INLINE int64_t element_bytes(uint32_t dtype)
{
	return dtype == KVK_F32 ? 4 : dtype == KVK_E4M3 ? 1 : 2;
}

#define CHUNK 512 /* elements that are converted before they are streamed */

/* One head of one token. */
KVK_INLINE void convert_head(char *to, const char *from, int32_t count, const struct kvk_write_job *job,
			     convert_fn convert)
{
	const int64_t from_bytes = element_bytes(job->src_dtype);
	const int64_t to_bytes = element_bytes(job->dst_dtype);
	char buffer[CHUNK * 4] __attribute__((aligned(LINE)));

	if (!job->past_cache) {
		convert(to, from, count);
		return;
	}
	for (int32_t at = 0; at < count; at += CHUNK) {
		int32_t part = count - at < CHUNK ? count - at : CHUNK;

		convert(buffer, from + at * from_bytes, part);
		stream(to + at * to_bytes, buffer, part * to_bytes);
	}
}

/* ------------------------------------------------------------------ plain rows */

/* Where a slot is: the same page and offset in each lane. */
struct place {
	int64_t page, offset;
};

KVK_INLINE struct place place_of(const struct kvk_write_job *job, int64_t slot)
{
	int64_t page = slot <= UINT32_MAX ? (int64_t)((uint32_t)slot / (uint32_t)job->page_tokens)
					  : slot / job->page_tokens;

	return (struct place){.page = page, .offset = slot - page * job->page_tokens};
}

KVK_INLINE char *row_of(const struct kvk_write_lane *lane, struct place place)
{
	return lane->dst + place.page * lane->dst_page + place.offset * lane->dst_token;
}

/* How a row's bytes get to their place. */
enum way { PLAIN, LINES, STREAM };

/*
 * The source is read in order, but the loads are far apart in time: a hint for the next two rows keeps the prefetcher
 * of the second-level cache ahead.
 */
#define FETCH_BYTES 2048

KVK_INLINE void copy_head(char *to, const char *from, int64_t bytes, enum way way)
{
	if (way == LINES)
		stream_lines(to, from, bytes);
	else
		put(to, from, bytes, way == STREAM);
}

KVK_INLINE void copy_row(const struct kvk_write_lane *lane, struct place place, int32_t t, int64_t bytes,
			 enum way way)
{
	const char *from = lane->src + t * lane->src_token;
	char *to = row_of(lane, place);

	if (way != PLAIN)
		__builtin_prefetch(from + FETCH_BYTES, 0, 2);
	for (int32_t h = 0; h < lane->heads; h++)
		copy_head(to + h * lane->dst_head, from + h * lane->src_head, lane->count * bytes, way);
}

KVK_INLINE void copy_tokens(const struct kvk_write_job *given, int32_t first, int32_t last, enum way way)
{
	const struct kvk_write_job job = *given; /* what is stored can't change this one */
	const int64_t bytes = element_bytes(job.dst_dtype);

	for (int32_t t = first; t < last; t++) {
		const int64_t slot = kvk_slot(job.slots, job.slot_bytes, t);
		const struct place place = place_of(&job, slot);

		if (slot < 0)
			continue;
		copy_row(&job.lane[0], place, t, bytes, way);
		if (job.lanes > 1)
			copy_row(&job.lane[1], place, t, bytes, way);
	}
}

static void convert_tokens(const struct kvk_write_job *job, int32_t first, int32_t last, convert_fn convert)
{
	for (int32_t t = first; t < last; t++) {
		const int64_t slot = kvk_slot(job->slots, job->slot_bytes, t);

		for (uint32_t l = 0; slot >= 0 && l < job->lanes; l++) {
			const struct kvk_write_lane *lane = &job->lane[l];
			char *row = row_of(lane, place_of(job, slot));

			for (int32_t h = 0; h < lane->heads; h++)
				convert_head(row + h * lane->dst_head,
					     lane->src + t * lane->src_token + h * lane->src_head,
					     lane->count, job, convert);
		}
	}
}

static void write_rows(const struct kvk_write_job *job, int32_t first, int32_t last)
{
	const convert_fn convert = conversion(job->src_dtype, job->dst_dtype);

	if (convert)
		convert_tokens(job, first, last, convert);
	else if (!job->past_cache)
		copy_tokens(job, first, last, PLAIN);
	else if (job->whole_lines)
		copy_tokens(job, first, last, LINES);
	else
		copy_tokens(job, first, last, STREAM);
	FENCE();
}

/* ------------------------------------------------------------------ FP8 rows */

KVK_INLINE void widen(float *to, const char *from, uint32_t dtype, int32_t count)
{
	if (dtype == KVK_BF16)
		bf16_to_f32(to, from, count);
	else if (dtype == KVK_F16)
		f16_to_f32(to, from, count);
	else
		memcpy(to, from, (size_t)count * sizeof(*to));
}

/* The largest finite magnitude, as bits: they are ordered as the values are. */
KVK_INLINE uint32_t finite_amax(const float *values)
{
	uint32_t amax = 0;

	for (int i = 0; i < KVK_WRITE_TILE; i++) {
		uint32_t magnitude = kvk_f32_bits(values[i]) & 0x7fffffffu;

		magnitude = magnitude >= 0x7f800000u ? 0 : magnitude;
		amax = magnitude > amax ? magnitude : amax;
	}
	return amax;
}

/*
 * k of the scale 2^k: the least with amax <= 448 * 2^k, but -13, the next power of two above 1e-4, or more. 448 is 1.75 *
 * 2^8; 1.75 has the mantissa 0x600000.
 */
KVK_INLINE int32_t scale_exponent(uint32_t amax)
{
	int32_t k = (int32_t)(amax >> 23) - 127 - 8 + ((amax & 0x7fffffu) > 0x600000u);

	return k > -13 ? k : -13;
}

static void fill_fp8_row(char *row, const char *latent, const char *rope, uint32_t dtype)
{
	const int64_t bytes = element_bytes(dtype);
	float values[KVK_WRITE_TILE];

	for (int tile = 0; tile < KVK_MLA_LATENT / KVK_WRITE_TILE; tile++) {
		uint8_t *codes = (uint8_t *)row + tile * KVK_WRITE_TILE;
		int32_t k;
		float inverse;

		widen(values, latent + tile * KVK_WRITE_TILE * bytes, dtype, KVK_WRITE_TILE);
		k = scale_exponent(finite_amax(values));
		inverse = kvk_f32_from_bits((uint32_t)(127 - k) << 23);
		kvk_store(row + KVK_MLA_LATENT, KVK_F32, tile, kvk_f32_from_bits((uint32_t)(127 + k) << 23));
		for (int i = 0; i < KVK_WRITE_TILE; i++)
			codes[i] = kvk_to_e4m3(values[i] * inverse);
	}
	row += KVK_MLA_LATENT + 4 * sizeof(float);
	if (dtype == KVK_BF16)
		memcpy(row, rope, KVK_MLA_ROPE * 2);
	else
		conversion(dtype, KVK_BF16)(row, rope, KVK_MLA_ROPE);
}

static void write_fp8(const struct kvk_write_job *job, int32_t first, int32_t last)
{
	const struct kvk_write_lane *latent = &job->lane[0];
	const struct kvk_write_lane *rope = &job->lane[1];
	char buffer[KVK_MLA_FP8_ROW_BYTES] __attribute__((aligned(LINE)));

	for (int32_t t = first; t < last; t++) {
		const int64_t slot = kvk_slot(job->slots, job->slot_bytes, t);

		if (slot < 0)
			continue;
		fill_fp8_row(buffer, latent->src + t * latent->src_token, rope->src + t * rope->src_token,
			     job->src_dtype);
		put(row_of(latent, place_of(job, slot)), buffer, sizeof(buffer), job->past_cache);
	}
	FENCE();
}

extern const struct kvk_write_ops KVK_OPS(kvk_write);
const struct kvk_write_ops KVK_OPS(kvk_write) = {.write = write_rows, .write_fp8 = write_fp8};
