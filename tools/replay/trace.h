/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Request traces in Mooncake's format: one JSON object a line,
 *
 *   {"timestamp": ms, "input_length": tokens, "output_length": tokens, "hash_ids": [id, ...]}
 *
 * hash_ids name the prompt's blocks of block_tokens tokens in order, the last of which may be partial or
 * left out; equal ids mean equal tokens and the same predecessor. Other fields are ignored. Plain or gzip.
 */
#ifndef KVPOOL_TOOLS_REPLAY_TRACE_H
#define KVPOOL_TOOLS_REPLAY_TRACE_H

#include <stddef.h>
#include <stdint.h>

/* What Mooncake's traces use. */
#define REP_TRACE_BLOCK_TOKENS 512u
/*
 * Limits of one line and of one request: far above any model's context, so that a broken file ends early and
 * clearly.
 */
#define REP_MAX_LINE_BYTES (8u << 20)
#define REP_MAX_TOKENS (1u << 24)
#define REP_MAX_IDS (1u << 20)
#define REP_MAX_REQUESTS (1u << 24)

struct rep_request {
	uint64_t timestamp_ms;
	uint64_t first_id; /* index into ids */
	uint32_t id_count;
	uint32_t input_length;
	uint32_t output_length;
	uint32_t line; /* in the file, from 1 */
};

struct rep_trace {
	struct rep_request *requests;
	uint64_t *ids;
	uint64_t id_count;
	uint64_t id_capacity;
	uint32_t count;
	uint32_t capacity;
	uint32_t block_tokens;
};

/*
 * Reads at most max_requests (0: all). block_tokens 0: the one of the usual sizes that fits every request,
 * REP_TRACE_BLOCK_TOKENS when several do. 0, or a negative errno with one sentence that names file and line.
 */
int rep_trace_load(const char *path, uint32_t block_tokens, uint32_t max_requests, struct rep_trace *out,
		   char *error, size_t capacity);
void rep_trace_free(struct rep_trace *trace);
/* Room for `ids` more of them; 0 or -ENOMEM. */
int rep_trace_reserve_ids(struct rep_trace *trace, uint64_t ids);

/*
 * Appends one request; what it names is checked. 0, -EINVAL, -ENOMEM; a sentence without file and line in
 * error.
 */
int rep_trace_line(struct rep_trace *trace, const char *text, size_t length, uint32_t line, char *error,
		   size_t capacity);
/*
 * Settles block_tokens (see rep_trace_load()) and checks every request against it; *line: of the one that
 * does not fit.
 */
int rep_trace_settle(struct rep_trace *trace, uint32_t block_tokens, uint32_t *line, char *error,
		     size_t capacity);

static inline const uint64_t *rep_request_ids(const struct rep_trace *trace, uint32_t request)
{
	return trace->ids + trace->requests[request].first_id;
}

#endif
