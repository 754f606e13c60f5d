/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A seeded trace of multi-turn chats: users talk in conversations, each begins with one of a few shared
 * system prompts, and a turn's prompt is the whole conversation so far and a new message. Equal parameters
 * give equal traces, on every machine.
 */
#ifndef KVPOOL_TOOLS_REPLAY_GENERATE_H
#define KVPOOL_TOOLS_REPLAY_GENERATE_H

#include <stdint.h>
#include <stdio.h>

#include "trace.h"

struct rep_generate {
	uint64_t seed;
	uint32_t requests;
	uint32_t users;          /* who talk at the same time */
	uint32_t system_prompts; /* that conversations begin with, the first most often */
	uint32_t block_tokens;   /* tokens an id stands for */
	uint32_t max_tokens;     /* of a prompt: then the conversation ends */
};

#define REP_GENERATE_MAX_USERS 4096u

/* *out is freed by rep_trace_free(). 0 or -ENOMEM. */
int rep_generate(const struct rep_generate *params, struct rep_trace *out);

/*
 * Writes it as JSON lines: to standard output (path NULL), or to a file, compressed when its name ends in
 * .gz. 0 or a negative errno.
 */
int rep_trace_write(const struct rep_trace *trace, const char *path);

#endif
