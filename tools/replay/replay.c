/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpoolctl replay: a trace through N engine processes and one daemon. This file has the options and the
 * order of things: the trace, a daemon when one is to be started, what the daemon counted before, the
 * engines, what it counted after, the report.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <kvpool/kernels.h>

#include "../text.h"
#include "fleet.h"
#include "generate.h"
#include "heading.h"
#include "ideal.h"
#include "ipc/frame.h"
#include "metadata.h"
#include "pool_state.h"
#include "report.h"
#include "standalone.h"
#include "syscalls.h"

/* An engine's lease where there is room: 8 blocks a sequence, as the daemon has it by itself. */
#define USUAL_LEASE(batch) (8 * ((uint64_t)(batch) + 1))

#define FIELD(name) offsetof(struct rep_options, name)
#define NUMBER(option, arg, fallback, min, max, field, help)                                                 \
	{                                                                                                    \
		option, CTL_U32, arg, fallback, NULL, min, max, FIELD(field), help                           \
	}
#define WORD(option, arg, fallback, choices, field, help)                                                    \
	{                                                                                                    \
		option, CTL_TEXT, arg, fallback, choices, 0, 0, FIELD(field), help                           \
	}
#define FLAG(option, field, help)                                                                            \
	{                                                                                                    \
		option, CTL_FLAG, NULL, NULL, NULL, 0, 0, FIELD(field), help                                 \
	}

static const struct ctl_option table[] = {
	FLAG("standalone", standalone, "start a daemon of one's own for it, and stop it"),
	NUMBER("engines", "N", "3", 1, REP_MAX_ENGINES, engines,
	       "engine processes; requests are dealt in turn"),
	NUMBER("requests", "N", "0", 0, REP_MAX_REQUESTS, requests, "only the first N of the trace; 0: all"),
	NUMBER("generate", "N", "0", 0, REP_MAX_REQUESTS, generate,
	       "instead of TRACE: N requests as 'trace generate' makes them"),
	{"seed", CTL_U64, "N", "1", NULL, 0, UINT64_MAX, FIELD(seed), "of the generated trace"},
	NUMBER("trace-block-tokens", "N", "0", 0, 65536, trace_block_tokens,
	       "tokens that one hash id names; 0: found from the lengths"),
	FLAG("metadata-only", metadata_only,
	     "look-ups alone: one engine, every trace id is one block, no KV"),
	WORD("pool", "NAME", NULL, NULL, pool, "of the daemon; else the only one"),
	NUMBER("batch", "N", "8", 1, REP_MAX_BATCH, batch, "sequences an engine decodes at a time"),
	NUMBER("heads", "N", "4", 1, 128, heads, "query heads of the attention"),
	NUMBER("attention-every", "N", "16", 0, UINT32_MAX, attention_every,
	       "attention at every Nth step; 0: never"),
	NUMBER("compare-every", "N", "64", 1, UINT32_MAX, compare_every,
	       "every Nth attention row is compared with the reference"),
	NUMBER("chunk-tokens", "N", "2048", 1, REP_MAX_TOKENS, chunk_tokens, "tokens of one prefill step"),
	WORD("inject", "FAULT", "none", "none|flip", inject,
	     "a fault that must be found; flip: one byte of one published block"),
	FLAG("control-syscall", control_syscall, "make one system call a step, so that the count must be 1"),
	WORD("count-syscalls", "HOW", "auto", "auto|dispatch|ptrace|none", count_syscalls,
	     "how system calls of a step are counted"),
	NUMBER("blocks", "N", "60000", 1, KVW_MAX_BLOCKS, blocks, "standalone: blocks of the pool"),
	NUMBER("block-tokens", "N", "64", 1, KVW_MAX_BLOCK_TOKENS, block_tokens,
	       "standalone: tokens of a block"),
	WORD("planes", "TEXT", NULL, NULL, planes,
	     "standalone: planes of the pool as kvpoold.conf(5) has them (default 'latent bf16'; with "
	     "metadata-only "
	     "'opaque 16')"),
	WORD("device", "NAME", "host", NULL, device,
	     "standalone: where the pool lies, 'cuda:0' or as kvpoold.conf(5) has it; rows go through a "
	     "stream there"),
	WORD("share", "HOW", "auto", "auto|ipc|fd", share,
	     "standalone: how engines get at a pool on a device"),
	WORD("policy", "NAME", "lru", NULL, policy, "standalone: which block is evicted first"),
	WORD("event-loop", "NAME", "auto", NULL, event_loop, "standalone: what the daemon waits on"),
};

/* Only a daemon that is started here can be told these. */
static const char *const standalone_options[] = {"blocks", "block-tokens", "planes",    "device",
						 "share",  "policy",       "event-loop"};

static int check_standalone(const struct rep_options *options)
{
	if (options->standalone && options->pool) {
		ctl_complain("--pool names a pool of a running daemon; leave it out with --standalone");
		return CTL_USAGE;
	}
	for (size_t i = 0; i < sizeof(standalone_options) / sizeof(standalone_options[0]); i++)
		if (!options->standalone &&
		    ctl_option_given(&ctl_verb_replay, options, standalone_options[i])) {
			ctl_complain("--%s needs --standalone: a running daemon has its own",
				     standalone_options[i]);
			return CTL_USAGE;
		}
	return CTL_OK;
}

/* What asks for a check that would silently not take place. */
static int check_metadata(const struct rep_options *options)
{
	bool injects = strcmp(options->inject, "none") != 0;

	if (!options->metadata_only || (!injects && !options->control_syscall))
		return CTL_OK;
	ctl_complain("--%s has no effect with --metadata-only: it neither writes blocks nor decodes",
		     injects ? "inject" : "control-syscall");
	return CTL_USAGE;
}

/* Refused before a daemon is started for it. */
static int check_kernels(const struct rep_options *options)
{
	const char *error = rep_uses_kernels(options) ? kvk_level_error() : NULL;

	if (error)
		ctl_complain("%s", error);
	return error ? CTL_USAGE : CTL_OK;
}

static int check_usage(const struct rep_options *options, const char *path)
{
	int code;

	if (!path == !options->generate) {
		ctl_complain("replay needs either TRACE or --generate N");
		return CTL_USAGE;
	}
	if (path && ctl_option_given(&ctl_verb_replay, options, "seed")) {
		ctl_complain("--seed is of the trace that --generate makes; TRACE is as it is");
		return CTL_USAGE;
	}
	code = check_standalone(options);
	if (!code)
		code = check_metadata(options);
	return code ? code : check_kernels(options);
}

static int make_trace(const struct rep_options *options, struct rep_trace *out)
{
	struct rep_generate params = {.seed = options->seed,
				      .requests = options->generate,
				      .users = 16,
				      .system_prompts = 8,
				      .block_tokens = options->trace_block_tokens
							      ? options->trace_block_tokens
							      : REP_TRACE_BLOCK_TOKENS,
				      .max_tokens = 4096};
	int ret = rep_generate(&params, out);

	if (ret)
		ctl_complain("out of memory");
	return ret;
}

static int get_trace(const struct rep_options *options, const char *path, struct rep_trace *out)
{
	char error[512];
	int ret;

	if (!path)
		return make_trace(options, out);
	ret = rep_trace_load(path, options->trace_block_tokens, options->requests, out, error, sizeof(error));
	if (ret)
		ctl_complain("%s", error);
	return ret;
}

static uint32_t all_tokens(const struct rep_request *request)
{
	return request->input_length + request->output_length;
}

/* A trace has at least one. */
static const struct rep_request *longest_request(const struct rep_trace *trace)
{
	const struct rep_request *longest = &trace->requests[0];

	for (uint32_t i = 1; i < trace->count; i++)
		if (all_tokens(&trace->requests[i]) > all_tokens(longest))
			longest = &trace->requests[i];
	return longest;
}

/*
 * The longest request must fit beside what all engines keep in their leases, which no daemon takes back, or
 * the replay could not end. In a small pool they keep less than they would.
 */
static int check_fit(struct rep_run *run, const struct rep_pool_state *pool)
{
	const struct rep_request *longest = longest_request(run->trace);
	uint64_t wanted;
	uint64_t each;

	run->longest_tokens = all_tokens(longest);
	if (run->options->metadata_only)
		return CTL_OK;
	wanted = (run->longest_tokens + pool->block_tokens - 1) / pool->block_tokens;
	if (wanted + run->engines > pool->blocks) {
		ctl_complain(
			"the request of line %u needs %llu blocks, and each engine (%u) one more for its "
			"lease, but the pool has %llu; give it more (--blocks) or take fewer (--engines)",
			longest->line, (unsigned long long)wanted, run->engines,
			(unsigned long long)pool->blocks);
		return CTL_USAGE;
	}
	each = (pool->blocks - wanted) / run->engines;
	run->lease_high = each < USUAL_LEASE(run->options->batch) ? (uint32_t)each : 0;
	return CTL_OK;
}

/* Without KV there is nothing that a full replay could write or verify. */
static int check_planes(const struct rep_run *run, const struct rep_pool_state *pool)
{
	if (run->options->metadata_only || pool->kv_planes)
		return CTL_OK;
	ctl_complain("pool '%s' has opaque planes only; it takes --metadata-only, a full replay needs planes "
		     "such as 'latent bf16'",
		     pool->name);
	return CTL_USAGE;
}

/*
 * The most shared block, when requests enough find it: one to flip it after, another of the same engine to
 * find out.
 */
static int choose_target(struct rep_run *run, uint32_t block_tokens, uint8_t *readers)
{
	struct rep_target *target = &run->target;
	int found = rep_most_shared(run->trace, block_tokens, &target->key, &target->index, readers);

	if (found < 0) {
		ctl_complain("out of memory");
		return CTL_FAULT;
	}
	if (found < 2) {
		ctl_complain("--inject flip needs a block that three requests share; this trace has none");
		return CTL_USAGE;
	}
	target->wanted = true;
	target->readers = readers;
	return CTL_OK;
}

static int run_engines(struct rep_run *run, struct rep_report *report)
{
	int ret;

	if (run->options->metadata_only) {
		ret = rep_metadata_run(run);
		if (rep_interrupted())
			ctl_complain("interrupted");
		return ret || rep_interrupted() ? CTL_FAULT : CTL_OK;
	}
	report->fleet = calloc(1, sizeof(*report->fleet));
	ret = report->fleet ? rep_fleet_run(run, report->fleet) : -ENOMEM;
	if (!ret)
		return CTL_OK;
	ctl_complain("cannot start the engines: %s", strerror(-ret));
	return CTL_FAULT;
}

static int compute_ideal(const struct rep_run *run, const struct rep_pool_state *pool, struct rep_ideal *out)
{
	int ret = run->options->metadata_only
			  ? rep_ideal_ids(run->trace, (uint32_t)pool->blocks, out)
			  : rep_ideal_tokens(run->trace, (uint32_t)pool->block_tokens, out);

	if (ret)
		ctl_complain("out of memory");
	return ret ? CTL_FAULT : CTL_OK;
}

/* Whether the daemon's counters grew by this replay alone: no engine but ours was there, or came and went. */
static bool is_alone(const struct rep_run *run, const struct rep_pool_state *before,
		     const struct rep_pool_state *after)
{
	return before->counted && !before->engines && !after->engines &&
	       rep_pool_state_over(after) - rep_pool_state_over(before) == run->engines;
}

/* Engines that failed may never have attached. NULL: there was one, and it is this process. */
static bool all_ran(const struct rep_fleet_result *fleet)
{
	return !fleet || !(fleet->interrupted || fleet->engines_failed);
}

/* Everything between two looks at the daemon's counters. */
static int run_counted(struct rep_run *run, struct rep_report *report)
{
	const struct rep_options *options = run->options;
	uint64_t began_ns = kvw_now_ns();
	int code = run_engines(run, report);
	uint32_t ended = 0;

	report->wall_s = (double)(kvw_now_ns() - began_ns) / 1e9;
	if (!code && all_ran(report->fleet))
		ended = run->engines;
	if (rep_pool_state_settle(&options->global, options->pool, &report->before, ended, &report->after))
		return CTL_DAEMON;
	report->counted = is_alone(run, &report->before, &report->after);
	report->block_bytes = atomic_load(&run->shared->block_bytes);
	rep_report_sum(report);
	return code;
}

static int read_before(const struct rep_options *options, struct rep_pool_state *out)
{
	int ret = rep_pool_state_read(&options->global, options->pool, out);

	if (!options->standalone && (ret == -ENOENT || ret == -ECONNREFUSED))
		ctl_complain("--standalone starts a daemon for the replay alone");
	return ret;
}

static int prepare(struct rep_run *run, struct rep_report *report, uint8_t *readers)
{
	const struct rep_options *options = run->options;
	int code;

	if (read_before(options, &report->before))
		return CTL_DAEMON;
	code = check_planes(run, &report->before);
	if (!code)
		code = check_fit(run, &report->before);
	if (!code)
		code = compute_ideal(run, &report->before, &report->ideal);
	if (!code && !options->metadata_only && strcmp(options->inject, "flip") == 0)
		code = choose_target(run, (uint32_t)report->before.block_tokens, readers);
	return code;
}

/* With a daemon there. The report is printed by the caller, after its own daemon's end. */
static int run_with_daemon(struct rep_run *run, struct rep_report *report)
{
	uint8_t *readers = calloc(run->trace->count, 1);
	int code = CTL_FAULT;

	if (!readers)
		ctl_complain("out of memory");
	else
		code = prepare(run, report, readers);
	if (!code) {
		rep_heading(run, &report->before);
		code = run_counted(run, report);
	}
	free(readers);
	return code;
}

static void daemon_params(const struct rep_options *options, struct rep_daemon_params *out)
{
	uint64_t token_bytes = options->metadata_only ? 0 : 1152;

	*out = (struct rep_daemon_params){
		.blocks = options->blocks,
		.block_tokens = options->block_tokens,
		.planes = options->planes          ? options->planes
			  : options->metadata_only ? "opaque 16"
						   : "latent bf16",
		.device = options->device,
		.share = options->share,
		.policy = options->policy,
		.event_loop = options->event_loop,
		.timeout_ms = options->global.timeout_ms,
		.pool_bytes = options->blocks * (16 + options->block_tokens * token_bytes),
	};
}

static int run_standalone(struct rep_run *run, struct rep_report *report, struct rep_options *options)
{
	struct rep_daemon_params params;
	struct rep_daemon daemon;
	int code;

	daemon_params(options, &params);
	if (rep_daemon_start(&params, &daemon))
		return rep_interrupted() ? CTL_FAULT : CTL_DAEMON;
	options->global.socket = daemon.socket;
	code = run_with_daemon(run, report);
	if (rep_daemon_stop(&daemon, options->global.timeout_ms))
		report->daemon_failed = true;
	return code;
}

static int replay_trace(struct rep_options *options, const struct rep_trace *trace)
{
	struct rep_shared *shared =
		mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct rep_run run = {.options = options, .trace = trace, .shared = shared};
	struct rep_report *report = calloc(1, sizeof(*report));
	int code;

	if (shared == MAP_FAILED || !report) {
		ctl_complain("out of memory");
		free(report);
		return CTL_FAULT;
	}
	rep_catch_interrupts();
	run.engines = options->metadata_only ? 1 : options->engines;
	/* On a device the calls of a step are the driver's. */
	run.counting = options->metadata_only || strcmp(options->device, "host")
			       ? REP_COUNT_NONE
			       : rep_syscalls_choose(options->count_syscalls);
	report->run = &run;
	code = options->standalone ? run_standalone(&run, report, options) : run_with_daemon(&run, report);
	/* An engine that failed still leaves results worth reading. */
	if (!code || (code == CTL_FAULT && report->fleet))
		code = rep_report_print(report);
	free(report->fleet);
	free(report);
	munmap(shared, sizeof(*shared));
	return code;
}

static int run_verb(const void *opaque, char *const *operands)
{
	struct rep_options options = *(const struct rep_options *)opaque;
	struct rep_trace trace;
	int code = check_usage(&options, operands[0]);

	if (code)
		return code;
	if (get_trace(&options, operands[0], &trace))
		return CTL_USAGE;
	code = replay_trace(&options, &trace);
	rep_trace_free(&trace);
	return code;
}

const struct ctl_verb ctl_verb_replay = {
	.name = "replay",
	.operands = "[TRACE]",
	.summary = "Replay a request trace through engine processes and verify every shared block",
	.description = "TRACE has one JSON object a line with timestamp, input_length, output_length and "
		       "hash_ids; plain or .gz.",
	.max_operands = 1,
	.options = table,
	.option_count = sizeof(table) / sizeof(table[0]),
	.options_bytes = sizeof(struct rep_options),
	.run = run_verb,
};
