/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The result of a replay: which keys it has, what is null when it was not measured, and what makes it a
 * failure.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support.h"
#include "tools/replay/report.h"

static struct rep_shared shared;
static struct rep_options options;
static struct rep_trace trace = {.block_tokens = 512};
static struct rep_run run;
static struct rep_report report;
static struct rep_fleet_result fleet;

/* A good run of two engines. */
static int set_up(void **state)
{
	(void)state;
	memset(&shared, 0, sizeof(shared));
	memset(&fleet, 0, sizeof(fleet));
	options = (struct rep_options){.batch = 8, .heads = 4, .attention_every = 16, .compare_every = 64};
	options.global.json = true;
	run = (struct rep_run){.options = &options,
			       .trace = &trace,
			       .shared = &shared,
			       .engines = 2,
			       .counting = REP_COUNT_DISPATCH};
	memset(&report, 0, sizeof(report));
	report.run = &run;
	report.fleet = &fleet;
	report.counted = true;
	report.block_bytes = 1000;
	report.wall_s = 1.5;
	report.ideal = (struct rep_ideal){.lookup_blocks = 100, .hit_blocks = 50};
	for (uint32_t i = 0; i < 2; i++) {
		struct rep_stats *stats = &shared.stats[i];

		atomic_store(&stats->requests, 10);
		atomic_store(&stats->lookup_blocks, 50);
		atomic_store(&stats->hit_blocks, 20);
		atomic_store(&stats->decode_steps, 100);
		atomic_store(&stats->steady_steps, 90);
		atomic_store(&stats->steady_records, 45);
		atomic_store(&stats->attention_rows, 8);
		atomic_store(&stats->compared_rows, 1);
		atomic_store(&stats->counting, REP_COUNT_DISPATCH);
		atomic_store(&stats->session, 7 + i);
		rep_histogram_add(&stats->preparation_ns, 2000);
	}
	report.before.counters[KVW_COUNTER_lookup_blocks] = 11;
	report.after.counters[KVW_COUNTER_lookup_blocks] = 111;
	report.after.counters[KVW_COUNTER_hit_blocks] = 40;
	report.after.counters[KVW_COUNTER_evicted_blocks] = 3;
	return 0;
}

/* The JSON that rep_report_print() writes; *code: what it returns. */
static json_t *print(int *code)
{
	FILE *file = tmpfile();
	int out = dup(STDOUT_FILENO);
	json_error_t error;
	json_t *root;

	rep_report_sum(&report);
	fflush(stdout);
	dup2(fileno(file), STDOUT_FILENO);
	*code = rep_report_print(&report);
	fflush(stdout);
	dup2(out, STDOUT_FILENO);
	close(out);
	rewind(file);
	root = json_loadf(file, JSON_REJECT_DUPLICATES, &error);
	assert_non_null(root);
	fclose(file);
	return root;
}

static void assert_number(const json_t *root, const char *key, double value)
{
	const json_t *field = json_object_get(root, key);

	if (!json_is_number(field) || json_number_value(field) != value)
		fail_msg("'%s' must be %g", key, value);
}

static void a_good_run_has_every_key_and_code_zero(void **state)
{
	static const char *const keys[] = {
		"requests",          "tokens",       "lookup_blocks",       "hit_blocks",
		"ideal_hit_blocks",  "evictions",    "cross_engine_blocks", "verification_failures",
		"compared_rows",     "decode_steps", "steady_steps",        "records_per_step",
		"syscalls_per_step", "wall_s",       "preemptions",         "bytes_not_recomputed",
		"step_us_p50",       "step_us_p99",  "verified_blocks",     "injected",
	};
	int code;
	json_t *root = print(&code);

	(void)state;
	assert_int_equal(code, CTL_OK);
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (!json_is_number(json_object_get(root, keys[i])))
			fail_msg("'%s' is no number", keys[i]);
	assert_number(root, "requests", 20);
	assert_number(root, "hit_blocks", 40);
	assert_number(root, "evictions", 3);
	assert_number(root, "records_per_step", 0.5);
	assert_number(root, "syscalls_per_step", 0);
	assert_number(root, "bytes_not_recomputed", 40000);
	assert_number(root, "compared_rows", 2);
	json_decref(root);
}

static void what_was_not_measured_is_null(void **state)
{
	int code;
	json_t *root;

	(void)state;
	report.counted = false;
	atomic_store(&shared.stats[1].counting, REP_COUNT_NONE);
	for (uint32_t i = 0; i < 2; i++) {
		atomic_store(&shared.stats[i].attention_rows, 0);
		atomic_store(&shared.stats[i].compared_rows, 0);
	}
	root = print(&code);
	assert_int_equal(code, CTL_OK);
	assert_true(json_is_null(json_object_get(root, "evictions")));
	assert_true(json_is_null(json_object_get(root, "syscalls_per_step")));
	assert_true(json_is_null(json_object_get(root, "compared_rows")));
	json_decref(root);
}

static void look_ups_alone_measure_no_steps(void **state)
{
	int code;
	json_t *root;

	(void)state;
	options.metadata_only = true;
	root = print(&code);
	assert_int_equal(code, CTL_OK);
	assert_number(root, "hit_blocks", 40);
	assert_true(json_is_null(json_object_get(root, "decode_steps")));
	assert_true(json_is_null(json_object_get(root, "cross_engine_blocks")));
	assert_true(json_is_null(json_object_get(root, "verified_blocks")));
	json_decref(root);
}

/* Prints, and wants code 1 and one problem with the word. */
static void assert_problem(const char *word)
{
	int code;
	json_t *root = print(&code);
	const json_t *problems = json_object_get(root, "problems");

	assert_int_equal(code, CTL_FAULT);
	assert_int_equal(json_array_size(problems), 1);
	if (!strstr(json_string_value(json_array_get(problems, 0)), word))
		fail_msg("'%s' is not in '%s'", word, json_string_value(json_array_get(problems, 0)));
	json_decref(root);
}

static void a_wrong_block_is_a_failure(void **state)
{
	(void)state;
	atomic_store(&shared.stats[0].block_failures, 1);
	assert_problem("other bytes");
}

static void a_wrong_attention_row_is_a_failure(void **state)
{
	(void)state;
	atomic_store(&shared.stats[1].attention_failures, 1);
	assert_problem("attention");
}

static void counts_that_differ_from_the_daemons_are_failures(void **state)
{
	(void)state;
	report.after.counters[KVW_COUNTER_hit_blocks]++;
	assert_problem("daemon counts 41");
}

static void look_ups_that_differ_are_failures(void **state)
{
	(void)state;
	report.after.counters[KVW_COUNTER_lookup_blocks]--;
	assert_problem("daemon counts 99");
}

static void a_failed_engine_is_a_failure(void **state)
{
	(void)state;
	fleet.engines_failed = 1;
	assert_problem("1 of 2 engines");
}

static void blocks_left_leased_are_a_failure(void **state)
{
	(void)state;
	report.after.leased = 4;
	assert_problem("4 blocks leased");
}

static void a_daemon_that_ends_badly_is_a_failure(void **state)
{
	(void)state;
	report.daemon_failed = true;
	assert_problem("daemon");
}

static void an_injected_fault_must_be_found(void **state)
{
	(void)state;
	run.target.wanted = true;
	assert_problem("no byte was flipped");
	set_up(NULL);
	run.target.wanted = true;
	atomic_store(&shared.stats[0].injected, 1);
	assert_problem("not found");
}

static void an_event_names_block_writer_and_reader(void **state)
{
	struct rep_event event = {.kind = REP_EVENT_BLOCK,
				  .engine = 1,
				  .block = 137,
				  .generation = 5,
				  .writer = 7,
				  .reader = 8,
				  .line = 20,
				  .offset = 576,
				  .got = 0x50,
				  .wanted = 5};
	char text[768];
	int code;
	json_t *root;
	const json_t *first;

	(void)state;
	rep_event_text(&event, rep_engine_of_session(&run, event.writer), text, sizeof(text));
	assert_string_equal(
		text, "block 137 generation 5, written by session 7 (engine 0), read by session 8 (engine 1) "
		      "for the request of line 20: byte 576 (plane 0, token 0) is 0x50, must be 0x05");
	fleet.events[0] = event;
	fleet.event_count = 1;
	atomic_store(&shared.stats[1].block_failures, 1);
	root = print(&code);
	first = json_array_get(json_object_get(root, "events"), 0);
	assert_number(first, "block", 137);
	assert_number(first, "writer_session", 7);
	assert_number(first, "writer_engine", 0);
	assert_number(first, "reader_session", 8);
	json_decref(root);
}

static void an_interrupt_is_one_failure_and_not_three(void **state)
{
	char problem[256];

	(void)state;
	fleet.interrupted = true;
	report.after.counters[KVW_COUNTER_hit_blocks]++;
	report.after.counters[KVW_COUNTER_lookup_blocks]++;
	rep_report_sum(&report);
	assert_true(rep_report_problem(&report, 0, problem, sizeof(problem)));
	assert_string_equal(problem, "interrupted");
	assert_false(rep_report_problem(&report, 1, problem, sizeof(problem)));
}

static void a_control_run_must_be_counted(void **state)
{
	int code;

	(void)state;
	options.control_syscall = true;
	assert_problem("control call");
	set_up(NULL);
	options.control_syscall = true;
	for (int i = 0; i < 2; i++)
		atomic_store(&shared.stats[i].steady_syscalls, 90);
	json_decref(print(&code));
	assert_int_equal(code, CTL_OK);
}

static const char *print_table(void)
{
	static char text[4096];
	FILE *file = tmpfile();
	int out = dup(STDOUT_FILENO);

	options.global.json = false;
	rep_report_sum(&report);
	fflush(stdout);
	dup2(fileno(file), STDOUT_FILENO);
	assert_int_equal(rep_report_print(&report), CTL_OK);
	fflush(stdout);
	dup2(out, STDOUT_FILENO);
	close(out);
	rewind(file);
	memset(text, 0, sizeof(text));
	assert_true(fread(text, 1, sizeof(text) - 1, file) > 0);
	fclose(file);
	return text;
}

/* Whether a line has both words. */
static bool has_line(const char *text, const char *name, const char *word)
{
	const char *line = strstr(text, name);
	const char *found = line ? strstr(line, word) : NULL;

	return found && found < line + strcspn(line, "\n");
}

static void the_table_ends_with_the_failures(void **state)
{
	const char *text = print_table();

	(void)state;
	assert_true(has_line(text, "blocks found", "40.0 % of those looked up"));
	assert_true(has_line(text, "step preparation", "2.0 us"));
	assert_true(has_line(text, "attention rows compared", "2"));
	assert_non_null(strstr(text, "failures"));
}

static void the_table_says_what_was_not_measured(void **state)
{
	const char *text;

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct rep_stats *stats = &shared.stats[i];

		atomic_store(&stats->attention_rows, 0);
		atomic_store(&stats->compared_rows, 0);
		atomic_store(&stats->counting, REP_COUNT_NONE);
		memset(&stats->preparation_ns, 0, sizeof(stats->preparation_ns));
	}
	text = print_table();
	assert_true(has_line(text, "step preparation", "not measured"));
	assert_true(has_line(text, "system calls", "not measured"));
	assert_true(has_line(text, "attention rows compared", "not measured"));
}

#define CASE(name) cmocka_unit_test_setup(name, set_up)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_good_run_has_every_key_and_code_zero),
		CASE(what_was_not_measured_is_null),
		CASE(look_ups_alone_measure_no_steps),
		CASE(a_wrong_block_is_a_failure),
		CASE(a_wrong_attention_row_is_a_failure),
		CASE(counts_that_differ_from_the_daemons_are_failures),
		CASE(look_ups_that_differ_are_failures),
		CASE(a_failed_engine_is_a_failure),
		CASE(blocks_left_leased_are_a_failure),
		CASE(a_daemon_that_ends_badly_is_a_failure),
		CASE(an_injected_fault_must_be_found),
		CASE(an_event_names_block_writer_and_reader),
		CASE(an_interrupt_is_one_failure_and_not_three),
		CASE(a_control_run_must_be_counted),
		CASE(the_table_ends_with_the_failures),
		CASE(the_table_says_what_was_not_measured),
	};

	kvt_watchdog(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
