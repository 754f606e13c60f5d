/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens, prefixes and KV rows of a replay. */
#include "content.h"

#include <string.h>

/* Keeps tokens of ids and of requests apart. */
#define ID_DOMAIN 0x1d00000000000000u
#define REQUEST_DOMAIN 0x7e00000000000000u

static uint32_t token_of(uint64_t seed, uint32_t position)
{
	return (uint32_t)(rep_mix(seed + position * 0x9e3779b97f4a7c15u) >> (64 - REP_TOKEN_BITS));
}

void rep_tokens(const struct rep_trace *trace, uint32_t request, uint32_t count, uint32_t *out)
{
	const struct rep_request *from = &trace->requests[request];
	const uint64_t *ids = rep_request_ids(trace, request);
	uint64_t own = rep_mix(REQUEST_DOMAIN + request);
	uint32_t prompt = count < from->input_length ? count : from->input_length;
	uint32_t at = 0;

	for (uint32_t i = 0; i < from->id_count && at < prompt; i++) {
		uint64_t seed = rep_mix(ID_DOMAIN ^ ids[i]);

		for (uint32_t j = 0; j < trace->block_tokens && at < prompt; j++)
			out[at++] = token_of(seed, j);
	}
	for (; at < count; at++)
		out[at] = token_of(own, at);
}

uint64_t rep_prefix_over(uint64_t prefix, const uint32_t *tokens, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		prefix = rep_prefix_next(prefix, tokens[i]);
	return prefix;
}

/*
 * Bits kept and bits set in each 64 random ones, so that every element is finite with an exponent of 2^-7 to
 * 2^0.
 */
struct shape {
	uint64_t keep;
	uint64_t set;
};

static struct shape shape_of(enum rep_row_kind kind)
{
	switch (kind) {
	case REP_ROW_BF16: /* sign, exponents 120 .. 127, 7 bits */
		return (struct shape){0x83ff83ff83ff83ffu, 0x3c003c003c003c00u};
	case REP_ROW_F16: /* sign, exponents 8 .. 15, 10 bits */
		return (struct shape){0x9fff9fff9fff9fffu, 0x2000200020002000u};
	case REP_ROW_F32: /* sign, exponents 120 .. 127, 23 bits */
		return (struct shape){0x83ffffff83ffffffu, 0x3c0000003c000000u};
	case REP_ROW_E4M3: /* sign, exponents 0 .. 7, 3 bits: no NaN */
		return (struct shape){0xbfbfbfbfbfbfbfbfu, 0};
	case REP_ROW_FP8_V32:
	case REP_ROW_BYTES:
		break;
	}
	return (struct shape){UINT64_MAX, 0};
}

static void fill(uint64_t key, enum rep_row_kind kind, uint8_t *out, size_t bytes)
{
	struct shape shape = shape_of(kind);
	uint64_t word;
	size_t at;

	for (at = 0; at + 8 <= bytes; at += 8) {
		key += 0x9e3779b97f4a7c15u;
		word = (rep_mix(key) & shape.keep) | shape.set;
		memcpy(out + at, &word, 8);
	}
	if (at == bytes)
		return;
	word = (rep_mix(key + 0x9e3779b97f4a7c15u) & shape.keep) | shape.set;
	memcpy(out + at, &word, bytes - at);
}

/* 512 e4m3 latents, 4 f32 scales that are powers of two, 64 bf16 of the rope. */
static void fill_fp8_v32(uint64_t key, uint8_t *out)
{
	fill(key, REP_ROW_E4M3, out, 512);
	for (uint32_t i = 0; i < 4; i++) {
		float scale = (key >> i & 1) ? 0.25f : 0.5f;

		memcpy(out + 512 + 4 * (size_t)i, &scale, sizeof(scale));
	}
	fill(~key, REP_ROW_BF16, out + 528, 128);
}

void rep_row(uint64_t prefix, uint32_t token, uint32_t plane, uint32_t head, enum rep_row_kind kind,
	     uint8_t *out, size_t bytes)
{
	uint64_t key = rep_mix(prefix ^ rep_mix((uint64_t)plane << 40 ^ (uint64_t)head << 20 ^ token));

	if (kind == REP_ROW_FP8_V32 && bytes == 656)
		fill_fp8_v32(key, out);
	else
		fill(key, kind, out, bytes);
}

void rep_query(uint64_t seed, float *out, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		int32_t bits = (int32_t)(rep_mix(seed + i * 0x9e3779b97f4a7c15u) >> 40);

		out[i] = (float)(bits - (1 << 23)) * 0x1p-23f;
	}
}
