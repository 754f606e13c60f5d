/* SPDX-License-Identifier: Apache-2.0 */
/* Sums, judgement and the table of a replay; report_json.c has the same as JSON. */
#include "report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "../table.h"
#include "../text.h"
#include "report_json.h"
#include "syscalls.h"

void rep_report_sum(struct rep_report *report)
{
	const struct rep_run *run = report->run;
	struct rep_totals *totals = &report->totals;
	uint64_t worst = 0;

	report->syscalls_counted = run->engines > 0;
	for (uint32_t i = 0; i < run->engines; i++) {
		const struct rep_stats *stats = &run->shared->stats[i];
		uint32_t counting = atomic_load(&stats->counting);

#define X(name) totals->name += rep_stat(&stats->name);
		REP_STAT_MAP(X)
#undef X
		if (rep_stat(&stats->worst_syscalls) > worst)
			worst = rep_stat(&stats->worst_syscalls);
		rep_histogram_merge(&report->preparation_ns, &stats->preparation_ns);
		report->syscalls_counted &= counting == REP_COUNT_DISPATCH || counting == REP_COUNT_PTRACE;
	}
	totals->worst_syscalls = worst;
}

uint64_t rep_report_counter(const struct rep_report *report, enum kvw_counter counter)
{
	return report->after.counters[counter] - report->before.counters[counter];
}

/* Each judge: whether it has something to say. */
static bool judge_blocks(const struct rep_report *report, char *out, size_t capacity)
{
	snprintf(out, capacity, "%" PRIu64 " blocks held other bytes than they must",
		 report->totals.block_failures);
	return report->totals.block_failures > 0;
}

static bool judge_attention(const struct rep_report *report, char *out, size_t capacity)
{
	snprintf(out, capacity, "%" PRIu64 " of %" PRIu64 " attention rows differ from the reference",
		 report->totals.attention_failures, report->totals.compared_rows);
	return report->totals.attention_failures > 0;
}

static bool judge_engines(const struct rep_report *report, char *out, size_t capacity)
{
	if (!report->fleet)
		return false;
	snprintf(out, capacity, "%u of %u engines failed", report->fleet->engines_failed,
		 report->run->engines);
	return report->fleet->engines_failed > 0;
}

static bool judge_interrupt(const struct rep_report *report, char *out, size_t capacity)
{
	snprintf(out, capacity, "interrupted");
	return report->fleet && report->fleet->interrupted;
}

/* The last answers to an engine that was stopped are counted by the daemon alone. */
static bool both_counted(const struct rep_report *report)
{
	return report->counted &&
	       !(report->fleet && (report->fleet->interrupted || report->fleet->engines_failed));
}

static bool judge_lookups(const struct rep_report *report, char *out, size_t capacity)
{
	uint64_t counted = rep_report_counter(report, KVW_COUNTER_lookup_blocks);

	snprintf(out, capacity, "engines asked for %" PRIu64 " blocks, the daemon counts %" PRIu64,
		 report->totals.lookup_blocks, counted);
	return both_counted(report) && counted != report->totals.lookup_blocks;
}

static bool judge_hits(const struct rep_report *report, char *out, size_t capacity)
{
	uint64_t counted = rep_report_counter(report, KVW_COUNTER_hit_blocks);

	snprintf(out, capacity,
		 "engines were answered %" PRIu64 " matched blocks, the daemon counts %" PRIu64,
		 report->totals.hit_blocks, counted);
	return both_counted(report) && counted != report->totals.hit_blocks;
}

static bool judge_end(const struct rep_report *report, char *out, size_t capacity)
{
	const struct rep_pool_state *after = &report->after;

	snprintf(out, capacity,
		 "the pool ends with %" PRIu64 " blocks leased, %" PRIu64 " draining, %" PRIu64 " waiting",
		 after->leased, after->draining, after->waiting);
	return report->counted && (after->leased || after->draining || after->waiting);
}

static bool judge_injection(const struct rep_report *report, char *out, size_t capacity)
{
	if (!report->run->target.wanted)
		return false;
	if (!report->totals.injected) {
		snprintf(out, capacity, "no byte was flipped: no engine matched the chosen block in time");
		return true;
	}
	snprintf(out, capacity,
		 "the flipped byte was not found: its block was never matched again, or the check is blind");
	return !report->totals.block_failures;
}

/* A control run whose calls are not seen would make any zero worthless. */
static bool judge_control(const struct rep_report *report, char *out, size_t capacity)
{
	const struct rep_totals *totals = &report->totals;

	snprintf(out, capacity,
		 "%" PRIu64 " steady steps made a control call each, but only %" PRIu64 " calls were counted",
		 totals->steady_steps, totals->steady_syscalls);
	return report->run->options->control_syscall && report->syscalls_counted &&
	       totals->steady_syscalls < totals->steady_steps;
}

static bool judge_daemon(const struct rep_report *report, char *out, size_t capacity)
{
	snprintf(out, capacity, "the daemon did not end in order");
	return report->daemon_failed;
}

bool rep_report_problem(const struct rep_report *report, uint32_t at, char *out, size_t capacity)
{
	static bool (*const judges[])(const struct rep_report *report, char *out, size_t capacity) = {
		judge_blocks, judge_attention, judge_engines,   judge_interrupt, judge_lookups,
		judge_hits,   judge_end,       judge_injection, judge_control,   judge_daemon,
	};

	for (size_t i = 0; i < sizeof(judges) / sizeof(judges[0]); i++)
		if (judges[i](report, out, capacity) && at-- == 0)
			return true;
	return false;
}

static void row(struct ctl_table *table, const char *name, uint64_t value)
{
	ctl_table_text(table, name);
	ctl_table_number(table, value);
	ctl_table_text(table, "");
}

/* A number and what part of another it is. */
static void row_of(struct ctl_table *table, const char *name, uint64_t value, uint64_t whole, const char *of)
{
	char text[CTL_TEXT_BYTES];

	ctl_table_text(table, name);
	ctl_table_number(table, value);
	if (whole)
		ctl_table_format(table, "%s of %s", ctl_percent(value, whole, text, sizeof(text)), of);
	else
		ctl_table_text(table, "");
}

static void add_hits(struct ctl_table *table, const struct rep_report *report)
{
	const struct rep_totals *totals = &report->totals;
	char text[CTL_TEXT_BYTES];

	row(table, "blocks looked up", totals->lookup_blocks);
	row_of(table, "blocks found", totals->hit_blocks, totals->lookup_blocks, "those looked up");
	row_of(table, "the trace's ideal", report->ideal.hit_blocks, report->ideal.lookup_blocks,
	       "those looked up");
	if (report->counted)
		row(table, "evictions", rep_report_counter(report, KVW_COUNTER_evicted_blocks));
	if (report->run->options->metadata_only)
		return;
	row_of(table, "written by another engine", totals->cross_engine_blocks, totals->hit_blocks,
	       "those found");
	ctl_table_text(table, "not recomputed");
	ctl_table_text(table, ctl_bytes(totals->hit_blocks * report->block_bytes, text, sizeof(text)));
	ctl_table_text(table, "");
}

static void row_unmeasured(struct ctl_table *table, const char *name)
{
	ctl_table_text(table, name);
	ctl_table_text(table, "-");
	ctl_table_text(table, "not measured");
}

static void add_preparation(struct ctl_table *table, const struct rep_histogram *ns)
{
	static const char name[] = "step preparation";

	if (!rep_histogram_count(ns)) {
		row_unmeasured(table, name);
		return;
	}
	ctl_table_text(table, name);
	ctl_table_format(table, "%.1f us", (double)rep_histogram_quantile(ns, 500) / 1000);
	ctl_table_format(table, "median; 99 %%: %.1f us", (double)rep_histogram_quantile(ns, 990) / 1000);
}

static void add_syscalls(struct ctl_table *table, const struct rep_report *report)
{
	static const char name[] = "system calls a steady step";
	const struct rep_totals *totals = &report->totals;

	if (!report->syscalls_counted || !totals->steady_steps) {
		row_unmeasured(table, name);
		return;
	}
	ctl_table_text(table, name);
	ctl_table_format(table, "%.4g", (double)totals->steady_syscalls / (double)totals->steady_steps);
	ctl_table_format(table, "most: %" PRIu64, totals->worst_syscalls);
}

static void add_steps(struct ctl_table *table, const struct rep_report *report)
{
	const struct rep_totals *totals = &report->totals;

	row(table, "preemptions", totals->preemptions);
	row(table, "decode steps", totals->decode_steps);
	row_of(table, "steady steps", totals->steady_steps, totals->decode_steps, "the decode steps");
	add_preparation(table, &report->preparation_ns);
	add_syscalls(table, report);
}

static void add_failures(struct ctl_table *table, const struct rep_report *report)
{
	const struct rep_totals *totals = &report->totals;

	row(table, "blocks verified", totals->verified_blocks);
	if (totals->attention_rows)
		row(table, "attention rows compared", totals->compared_rows);
	else
		row_unmeasured(table, "attention rows compared");
	row(table, "failures", totals->block_failures + totals->attention_failures);
}

static int print_table(const struct rep_report *report)
{
	const struct rep_totals *totals = &report->totals;
	bool full = !report->run->options->metadata_only;
	struct ctl_table *table = ctl_table_create("|>|");

	row(table, "requests", totals->requests);
	if (full) {
		row(table, "prompt tokens", totals->prompt_tokens);
		row(table, "tokens decoded", totals->output_tokens);
	}
	add_hits(table, report);
	if (full) {
		add_steps(table, report);
		add_failures(table, report);
	}
	ctl_table_text(table, "time");
	ctl_table_format(table, "%.1f s", report->wall_s);
	ctl_table_text(table, "");
	return ctl_table_finish(table);
}

int rep_report_print(const struct rep_report *report)
{
	char problem[256];
	bool bad = false;
	int code = report->run->options->global.json ? rep_report_json(report) : print_table(report);

	for (uint32_t i = 0; rep_report_problem(report, i, problem, sizeof(problem)); i++) {
		ctl_complain("FAILED: %s", problem);
		bad = true;
	}
	return bad ? CTL_FAULT : code;
}
