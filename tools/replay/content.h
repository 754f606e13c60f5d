/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the replayed engines compute instead of a model: tokens as a function of the trace, and KV bytes as a
 * function of everything a real KV row depends on (all tokens up to its own, the plane, the head). So any
 * engine can tell what any block must hold, without knowing who wrote it, and a block found under a wrong
 * hash shows as wrong bytes.
 *
 *   token   f(trace id, position in the trace block); behind the last id, and for output, of the request
 *           number and the position
 *   prefix  a 64-bit chain over tokens 0 .. t
 *   row     g(prefix, token, plane, head), finite and at most 2 in magnitude, so that attention over it means
 *           something
 */
#ifndef KVPOOL_TOOLS_REPLAY_CONTENT_H
#define KVPOOL_TOOLS_REPLAY_CONTENT_H

#include <stddef.h>
#include <stdint.h>

#include "trace.h"

/* Bits of a token: the vocabularies of today's models. */
#define REP_TOKEN_BITS 17u

/* A bijection of 64 bits that looks random. */
static inline uint64_t rep_mix(uint64_t x)
{
	x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
	x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
	return x ^ x >> 32;
}

/* The first `count` tokens of a request: its prompt, then its output. */
void rep_tokens(const struct rep_trace *trace, uint32_t request, uint32_t count, uint32_t *out);

/* The chain over tokens: start, and one step. */
#define REP_PREFIX_START 0x6b76706f6f6c3031u
static inline uint64_t rep_prefix_next(uint64_t prefix, uint32_t token)
{
	return rep_mix(prefix + 0x9e3779b97f4a7c15u) ^ ((uint64_t)token << 20 | token);
}
uint64_t rep_prefix_over(uint64_t prefix, const uint32_t *tokens, uint32_t count);

/* How the elements of a row are made. */
enum rep_row_kind { REP_ROW_BF16, REP_ROW_F16, REP_ROW_F32, REP_ROW_E4M3, REP_ROW_FP8_V32, REP_ROW_BYTES };

/* Writes the `bytes` of the row whose last token is `token`; prefix includes that token. */
void rep_row(uint64_t prefix, uint32_t token, uint32_t plane, uint32_t head, enum rep_row_kind kind,
	     uint8_t *out, size_t bytes);

/* A query's elements, in [-1, 1). */
void rep_query(uint64_t seed, float *out, uint32_t count);

#endif
