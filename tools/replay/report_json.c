/* SPDX-License-Identifier: Apache-2.0 */
/* The result as JSON: one flat object, then what was wrong. */
#include "report_json.h"

#include <kvpool/kernels.h>

#include "../json.h"
#include "syscalls.h"

/* Whole when it is: 0 and 1 are what is asked about. */
static json_t *ratio(uint64_t value, uint64_t of)
{
	if (!of)
		return json_null();
	return value % of ? json_real((double)value / (double)of) : json_integer((json_int_t)(value / of));
}

static void add_what(json_t *root, const struct rep_report *report)
{
	const struct rep_options *options = report->run->options;
	bool full = !options->metadata_only;

	ctl_json_string(root, "mode", full ? "full" : "metadata");
	ctl_json_u64(root, "engines", report->run->engines);
	ctl_json_number_or_null(root, "batch", full, options->batch);
	ctl_json_number_or_null(root, "heads", full, options->heads);
	if (rep_uses_kernels(options))
		ctl_json_string(root, "kernels", kvk_level_name());
	else
		ctl_json_null(root, "kernels");
	ctl_json_number_or_null(root, "attention_every", full, options->attention_every);
	ctl_json_number_or_null(root, "compare_every", full, options->compare_every);
	ctl_json_u64(root, "trace_block_tokens", report->run->trace->block_tokens);
	ctl_json_number_or_null(root, "blocks", report->after.blocks, report->after.blocks);
	ctl_json_number_or_null(root, "block_tokens", report->after.block_tokens, report->after.block_tokens);
	ctl_json_number_or_null(root, "pool_bytes", report->after.bytes, report->after.bytes);
	ctl_json_string(root, "memory", report->after.memory);
	if (report->after.counted) {
		ctl_json_string(root, "event_loop", report->after.event_loop);
		ctl_json_string(root, "policy", report->after.policy);
	} else {
		ctl_json_null(root, "event_loop");
		ctl_json_null(root, "policy");
	}
}

static void add_hits(json_t *root, const struct rep_report *report)
{
	const struct rep_totals *totals = &report->totals;
	const struct rep_ideal *ideal = &report->ideal;

	ctl_json_u64(root, "lookup_blocks", totals->lookup_blocks);
	ctl_json_u64(root, "hit_blocks", totals->hit_blocks);
	json_object_set_new(root, "hit_rate", ratio(totals->hit_blocks, totals->lookup_blocks));
	ctl_json_u64(root, "ideal_lookup_blocks", ideal->lookup_blocks);
	ctl_json_u64(root, "ideal_hit_blocks", ideal->hit_blocks);
	json_object_set_new(root, "ideal_hit_rate", ratio(ideal->hit_blocks, ideal->lookup_blocks));
}

static void add_sharing(json_t *root, const struct rep_report *report)
{
	const struct rep_totals *totals = &report->totals;
	bool full = !report->run->options->metadata_only;

	ctl_json_number_or_null(root, "cross_engine_blocks", full, totals->cross_engine_blocks);
	ctl_json_number_or_null(root, "coming_blocks", full, totals->coming_blocks);
	ctl_json_number_or_null(root, "bytes_not_recomputed", full, totals->hit_blocks * report->block_bytes);
}

static void add_counter(json_t *root, const char *key, const struct rep_report *report,
			enum kvw_counter counter)
{
	ctl_json_number_or_null(root, key, report->counted, rep_report_counter(report, counter));
}

/* What the daemon says. */
static void add_counters(json_t *root, const struct rep_report *report)
{
	add_counter(root, "evictions", report, KVW_COUNTER_evicted_blocks);
	add_counter(root, "daemon_lookup_blocks", report, KVW_COUNTER_lookup_blocks);
	add_counter(root, "daemon_hit_blocks", report, KVW_COUNTER_hit_blocks);
	ctl_json_number_or_null(root, "leased_at_end", report->counted, report->after.leased);
	ctl_json_number_or_null(root, "draining_at_end", report->counted, report->after.draining);
	ctl_json_number_or_null(root, "longest_turn_us", report->counted, report->after.longest_turn_us);
}

static void add_quantile(json_t *root, const char *key, const struct rep_report *report, uint32_t per_mille)
{
	uint64_t ns = rep_histogram_quantile(&report->preparation_ns, per_mille);

	json_object_set_new(root, key,
			    rep_histogram_count(&report->preparation_ns) ? json_real((double)ns / 1000)
									 : json_null());
}

static void add_syscalls(json_t *root, const struct rep_report *report)
{
	const struct rep_totals *totals = &report->totals;
	bool counted = report->syscalls_counted && totals->steady_steps;

	json_object_set_new(root, "syscalls_per_step",
			    counted ? ratio(totals->steady_syscalls, totals->steady_steps) : json_null());
	ctl_json_number_or_null(root, "most_syscalls_of_a_step", counted, totals->worst_syscalls);
	ctl_json_string(root, "syscalls_counted_by",
			report->syscalls_counted ? rep_counting_name(report->run->counting) : "none");
}

static void add_steps(json_t *root, const struct rep_report *report)
{
	const struct rep_totals *totals = &report->totals;
	bool full = !report->run->options->metadata_only;

	ctl_json_number_or_null(root, "decode_steps", full, totals->decode_steps);
	ctl_json_number_or_null(root, "steady_steps", full, totals->steady_steps);
	ctl_json_number_or_null(root, "prefill_steps", full, totals->prefill_steps);
	json_object_set_new(root, "records_per_step", ratio(totals->steady_records, totals->steady_steps));
	add_quantile(root, "step_us_p50", report, 500);
	add_quantile(root, "step_us_p99", report, 990);
}

/* What did not go straight on. */
static void add_setbacks(json_t *root, const struct rep_report *report)
{
	const struct rep_totals *totals = &report->totals;
	bool full = !report->run->options->metadata_only;

	ctl_json_number_or_null(root, "preemptions", full, totals->preemptions);
	ctl_json_number_or_null(root, "refused_opens", full, totals->refused_opens);
	ctl_json_number_or_null(root, "lease_waits", full, totals->lease_waits);
	ctl_json_number_or_null(root, "lost_sequences", full, totals->lost);
}

static void add_verification(json_t *root, const struct rep_report *report)
{
	const struct rep_totals *totals = &report->totals;
	bool full = !report->run->options->metadata_only;
	bool attended = full && totals->attention_rows;

	ctl_json_number_or_null(root, "verified_blocks", full, totals->verified_blocks);
	ctl_json_u64(root, "verification_failures", totals->block_failures + totals->attention_failures);
	ctl_json_number_or_null(root, "block_failures", full, totals->block_failures);
	ctl_json_number_or_null(root, "attention_rows", full, totals->attention_rows);
	ctl_json_number_or_null(root, "compared_rows", attended, totals->compared_rows);
	ctl_json_number_or_null(root, "attention_failures", attended, totals->attention_failures);
	ctl_json_number_or_null(root, "injected", full, totals->injected);
}

/* Which block, by whom, and the byte. */
static void add_mismatch(json_t *object, const struct rep_event *event, int writer)
{
	json_object_set_new(object, "block", json_integer(event->block));
	ctl_json_u64(object, "generation", event->generation);
	ctl_json_u64(object, "writer_session", event->writer);
	json_object_set_new(object, "writer_engine", writer < 0 ? json_null() : json_integer(writer));
	ctl_json_u64(object, "reader_session", event->reader);
	ctl_json_u64(object, "line", event->line);
	ctl_json_u64(object, "offset", event->offset);
	ctl_json_u64(object, "got", event->got);
	ctl_json_u64(object, "wanted", event->wanted);
}

static json_t *event_json(const struct rep_report *report, const struct rep_event *event)
{
	int writer = rep_engine_of_session(report->run, event->writer);
	json_t *object = json_object();
	char text[REP_EVENT_TEXT_BYTES];

	rep_event_text(event, writer, text, sizeof(text));
	ctl_json_string(object, "text", text);
	ctl_json_u64(object, "engine", event->engine);
	if (event->kind == REP_EVENT_BLOCK)
		add_mismatch(object, event, writer);
	return object;
}

static void add_problems(json_t *root, const struct rep_report *report)
{
	json_t *problems = json_array();
	char problem[256];

	for (uint32_t i = 0; rep_report_problem(report, i, problem, sizeof(problem)); i++)
		json_array_append_new(problems, json_string(problem));
	json_object_set_new(root, "problems", problems);
}

static void add_events(json_t *root, const struct rep_report *report)
{
	json_t *events = json_array();

	for (uint32_t i = 0; report->fleet && i < report->fleet->event_count; i++)
		json_array_append_new(events, event_json(report, &report->fleet->events[i]));
	json_object_set_new(root, "events", events);
}

int rep_report_json(const struct rep_report *report)
{
	const struct rep_totals *totals = &report->totals;
	bool full = !report->run->options->metadata_only;
	json_t *root = json_object();

	add_what(root, report);
	ctl_json_u64(root, "requests", totals->requests);
	ctl_json_number_or_null(root, "tokens", full, totals->prompt_tokens + totals->output_tokens);
	ctl_json_number_or_null(root, "prompt_tokens", full, totals->prompt_tokens);
	ctl_json_number_or_null(root, "output_tokens", full, totals->output_tokens);
	add_hits(root, report);
	add_sharing(root, report);
	add_counters(root, report);
	add_steps(root, report);
	add_syscalls(root, report);
	add_setbacks(root, report);
	add_verification(root, report);
	json_object_set_new(root, "wall_s", json_real(report->wall_s));
	add_problems(root, report);
	add_events(root, report);
	return ctl_json_print(root);
}
