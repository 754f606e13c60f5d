/* SPDX-License-Identifier: Apache-2.0 */
/* kvpoolctl trace generate: a seeded trace of multi-turn chats. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ctl.h"
#include "replay/generate.h"

struct options {
	struct ctl_global global;
	struct rep_generate generate;
	const char *output;
};

#define FIELD(name) offsetof(struct options, generate.name)

static const struct ctl_option table[] = {
	{"requests", CTL_U32, "N", "1000", NULL, 1, REP_MAX_REQUESTS, FIELD(requests), "requests to make"},
	{"seed", CTL_U64, "N", "1", NULL, 0, UINT64_MAX, FIELD(seed), "equal seeds give equal traces"},
	{"users", CTL_U32, "N", "16", NULL, 1, REP_GENERATE_MAX_USERS, FIELD(users),
	 "who talk at the same time"},
	{"system-prompts", CTL_U32, "N", "8", NULL, 1, 100000, FIELD(system_prompts),
	 "shared beginnings of conversations"},
	{"trace-block-tokens", CTL_U32, "N", "512", NULL, 1, 65536, FIELD(block_tokens),
	 "tokens that one hash id names"},
	{"max-tokens", CTL_U32, "N", "4096", NULL, 2048, 1u << 20, FIELD(max_tokens), "longest prompt"},
	{"output", CTL_TEXT, "FILE", NULL, NULL, 0, 0, offsetof(struct options, output),
	 "write there (compressed when its name ends in .gz), not to standard output"},
};

static int write_trace(const struct rep_trace *trace, const char *path)
{
	int ret = rep_trace_write(trace, path);

	if (!ret)
		return CTL_OK;
	ctl_complain("cannot write '%s': %s", path ? path : "standard output", strerror(-ret));
	return CTL_FAULT;
}

static int run(const void *opaque, char *const *operands)
{
	const struct options *options = opaque;
	struct rep_trace trace;
	int code;

	(void)operands;
	if (rep_generate(&options->generate, &trace)) {
		ctl_complain("out of memory");
		return CTL_FAULT;
	}
	code = write_trace(&trace, options->output);
	rep_trace_free(&trace);
	return code;
}

const struct ctl_verb ctl_verb_generate = {
	.name = "trace generate",
	.operands = "",
	.summary = "Make a trace of multi-turn chats with shared system prompts",
	.description = "Lengths follow the Azure conversation trace of 2023, reuse follows Mooncake's "
		       "conversation trace.",
	.options = table,
	.option_count = sizeof(table) / sizeof(table[0]),
	.options_bytes = sizeof(struct options),
	.run = run,
};
