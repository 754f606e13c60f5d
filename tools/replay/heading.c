/* SPDX-License-Identifier: Apache-2.0 */
/* The lines before a replay. */
#include "heading.h"

#include <string.h>

#include <kvpool/kernels.h>

#include "../text.h"
#include "syscalls.h"

#define COLUMNS 80u
#define INDENT 8u

void rep_heading_wrap(const char *label, const char *text, FILE *out)
{
	size_t column = INDENT;

	fprintf(out, "%-*s", (int)INDENT, label);
	while (*text) {
		size_t span = strcspn(text, " ");

		if (column > INDENT && column + 1 + span > COLUMNS) {
			fprintf(out, "\n%*s", (int)INDENT, "");
			column = INDENT;
		} else if (column > INDENT) {
			fputc(' ', out);
			column++;
		}
		fprintf(out, "%.*s", (int)span, text);
		column += span;
		text += span + (text[span] == ' ');
	}
	fputc('\n', out);
}

static void tell_pool(const struct rep_pool_state *pool)
{
	char number[3][CTL_TEXT_BYTES];
	char text[512];

	snprintf(text, sizeof(text), "'%s': %s blocks of %s tokens, %s on %s pages%s%s", pool->name,
		 ctl_number(pool->blocks, number[0], sizeof(number[0])),
		 ctl_number(pool->block_tokens, number[1], sizeof(number[1])),
		 ctl_bytes(pool->bytes, number[2], sizeof(number[2])), pool->memory,
		 pool->counted ? ", policy " : "", pool->policy);
	rep_heading_wrap("pool", text, stderr);
}

/* What it does without here belongs to any number that is measured here. */
static void tell_daemon(const struct rep_pool_state *pool)
{
	char text[2 * KVW_MAX_TEXT_BYTES];

	if (!pool->counted)
		snprintf(text, sizeof(text), "this user may not read its counters");
	else
		snprintf(text, sizeof(text), "event loop %s; %s%s", pool->event_loop,
			 *pool->off ? "not to be had here: " : "nothing is switched off", pool->off);
	rep_heading_wrap("daemon", text, stderr);
}

static void tell_trace(const struct rep_trace *trace)
{
	char number[CTL_TEXT_BYTES];
	char text[128];

	snprintf(text, sizeof(text), "%s requests, %u tokens an id",
		 ctl_number(trace->count, number, sizeof(number)), trace->block_tokens);
	rep_heading_wrap("trace", text, stderr);
}

static void attention_text(const struct rep_run *run, bool possible, char *out, size_t capacity)
{
	const struct rep_options *options = run->options;

	if (!possible)
		snprintf(out, capacity, "no attention (the pool has no latent plane)");
	else if (!options->attention_every)
		snprintf(out, capacity, "no attention");
	else
		snprintf(out, capacity,
			 "%u heads, attention by %s kernels at every %uth step, every %uth row compared",
			 options->heads, kvk_level_name(), options->attention_every, options->compare_every);
}

static void tell_work(const struct rep_run *run, const struct rep_pool_state *pool)
{
	char attention[128];
	char text[320];

	if (run->options->metadata_only) {
		rep_heading_wrap("work", "look-ups alone, by one engine", stderr);
		return;
	}
	attention_text(run, pool->has_latent, attention, sizeof(attention));
	snprintf(text, sizeof(text), "engines: %u, batch %u, %s, system calls counted by %s", run->engines,
		 run->options->batch, attention, rep_counting_name(run->counting));
	rep_heading_wrap("work", text, stderr);
}

void rep_heading(const struct rep_run *run, const struct rep_pool_state *pool)
{
	tell_pool(pool);
	tell_daemon(pool);
	tell_trace(run->trace);
	tell_work(run, pool);
}
