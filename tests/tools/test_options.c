/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The option tables, the parser, --help, and the exit codes of wrong usage. Standard output and error are
 * caught in files.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support.h"
#include "tools/ctl.h"

struct caught {
	int code;
	char out[32768];
	char err[4096];
};

static void read_back(int fd, char *text, size_t capacity)
{
	ssize_t length = pread(fd, text, capacity - 1, 0);

	assert_true(length >= 0);
	text[length] = '\0';
}

/* Runs ctl_run() with the words of a line. */
static struct caught *run(const char *line)
{
	static struct caught caught;
	char copy[512];
	char *rest = copy;
	char *argv[40] = {NULL};
	int argc = 0;
	int out = dup(STDOUT_FILENO);
	int err = dup(STDERR_FILENO);
	FILE *out_file = tmpfile();
	FILE *err_file = tmpfile();

	snprintf(copy, sizeof(copy), "kvpoolctl %s", line);
	for (char *word; (word = strsep(&rest, " "));)
		if (*word)
			argv[argc++] = word;
	fflush(NULL);
	dup2(fileno(out_file), STDOUT_FILENO);
	dup2(fileno(err_file), STDERR_FILENO);
	caught.code = ctl_run(argc, argv);
	fflush(NULL);
	dup2(out, STDOUT_FILENO);
	dup2(err, STDERR_FILENO);
	close(out);
	close(err);
	read_back(fileno(out_file), caught.out, sizeof(caught.out));
	read_back(fileno(err_file), caught.err, sizeof(caught.err));
	fclose(out_file);
	fclose(err_file);
	return &caught;
}

static void assert_usage(const char *line, const char *word)
{
	const struct caught *caught = run(line);

	if (caught->code != CTL_USAGE || !strstr(caught->err, word) || caught->out[0])
		fail_msg("'%s' ends with %d: %s", line, caught->code, caught->err);
}

static void every_row_is_complete_and_its_default_is_valid(void **state)
{
	(void)state;
	for (uint32_t v = 0; ctl_verbs[v]; v++) {
		const struct ctl_verb *verb = ctl_verbs[v];

		assert_true(verb->option_count + ctl_global_option_count <= CTL_MAX_OPTIONS);
		assert_true(verb->options_bytes >= sizeof(struct ctl_global));
		for (uint32_t i = 0; i < verb->option_count; i++) {
			const struct ctl_option *row = &verb->options[i];
			uint64_t number;

			assert_true(row->help && *row->help);
			assert_true((row->type == CTL_FLAG) == !row->arg);
			assert_true(row->offset >= sizeof(struct ctl_global) &&
				    row->offset < verb->options_bytes);
			if (row->type == CTL_U32 || row->type == CTL_U64) {
				assert_true(row->min <= row->max);
				assert_true(row->type == CTL_U64 || row->max <= UINT32_MAX);
				assert_true(!row->fallback ||
					    !ctl_parse_number(row->fallback, row->min, row->max, &number));
			}
			for (uint32_t j = 0; j < i; j++)
				assert_string_not_equal(row->name, verb->options[j].name);
			for (uint32_t j = 0; j < ctl_global_option_count; j++)
				assert_string_not_equal(row->name, ctl_global_options[j].name);
		}
	}
}

static void help_names_every_option_and_ends_well(void **state)
{
	(void)state;
	for (uint32_t v = 0; ctl_verbs[v]; v++) {
		const struct ctl_verb *verb = ctl_verbs[v];
		const struct caught *caught;
		char word[128];

		snprintf(word, sizeof(word), "%s --help", verb->name);
		caught = run(word);
		assert_int_equal(caught->code, 0);
		assert_non_null(strstr(caught->out, verb->summary));
		for (uint32_t i = 0; i < verb->option_count; i++) {
			snprintf(word, sizeof(word), "  --%s ", verb->options[i].name);
			assert_non_null(strstr(caught->out, word));
		}
		caught = run("--help");
		snprintf(word, sizeof(word), "\n  %s ", verb->name);
		assert_non_null(strstr(caught->out, word));
	}
}

static void assert_help(const char *line, const char *first_line, const char *word)
{
	const struct caught *caught = run(line);

	if (caught->code || strncmp(caught->out, first_line, strlen(first_line)) ||
	    !strstr(caught->out, word))
		fail_msg("'%s' ends with %d: %s%s", line, caught->code, caught->out, caught->err);
}

static void help_may_be_asked_for_in_any_usual_way(void **state)
{
	static const char all[] = "usage: kvpoolctl [OPTION...] VERB";

	(void)state;
	assert_help("help", all, "\n  status ");
	assert_help("-h", all, "\n  status ");
	assert_help("help status", "usage: kvpoolctl status [OPTION...]\n", "--json");
	assert_help("status -h", "usage: kvpoolctl status [OPTION...]\n", "--json");
	assert_help("help trace generate", "usage: kvpoolctl trace generate", "--seed");
	assert_help("help trace", all, "\n  trace generate ");
	assert_help("trace --help", all, "\n  trace generate ");
	assert_null(strstr(run("trace --help")->out, "\n  status "));
	assert_usage("help frobnicate", "'frobnicate' is no verb");
	assert_usage("trace", "'trace' is no verb; 'kvpoolctl trace --help'");
}

static void control_characters_do_not_reach_the_terminal(void **state)
{
	(void)state;
	assert_usage("\x1b[31mred", "'?[31mred' is no verb");
}

static void the_printed_tables_have_every_row(void **state)
{
	const struct caught *caught = run("--print-options");
	uint32_t rows = ctl_global_option_count;
	uint32_t lines = 0;

	(void)state;
	for (uint32_t v = 0; ctl_verbs[v]; v++)
		rows += ctl_verbs[v]->option_count;
	for (const char *at = caught->out; *at; at++)
		lines += *at == '\n';
	assert_int_equal(caught->code, 0);
	assert_int_equal(lines, rows);
	assert_non_null(strstr(caught->out, "replay\t--blocks\tN\t60000\n"));
	assert_non_null(strstr(caught->out, "\n\t--json\t\t\n"));
}

static void version_is_printed_before_and_behind_a_verb(void **state)
{
	(void)state;
	assert_non_null(strstr(run("--version")->out, "kvpoolctl "));
	assert_int_equal(run("--version")->code, 0);
	assert_non_null(strstr(run("pools --version")->out, "kvpoolctl "));
}

static void wrong_usage_is_told_with_the_word(void **state)
{
	(void)state;
	assert_usage("", "verb");
	assert_usage("frobnicate", "frobnicate");
	assert_usage("trace", "trace");
	assert_usage("trace frobnicate", "frobnicate");
	assert_usage("status --frobnicate", "--frobnicate");
	assert_usage("--frobnicate status", "--frobnicate");
	assert_usage("status --json=1", "--json");
	assert_usage("status extra", "too many");
	assert_usage("status --timeout-ms", "--timeout-ms");
	assert_usage("status --timeout-ms 0", "1 to 3600000");
	assert_usage("status --timeout-ms 1x", "number");
	assert_usage("status --timeout-ms -1", "number");
	assert_usage("status --timeout-ms 99999999999999999999", "--timeout-ms");
	assert_usage("blocks --state melted", "melted");
	assert_usage("blocks --limit 0", "--limit");
	assert_usage("probe", "HASH");
	assert_usage("probe 00 --tokens /dev/null", "HASH");
	assert_usage("replay", "TRACE");
	assert_usage("replay x --generate 3", "TRACE");
	assert_usage("replay --generate 3 --blocks 7", "--standalone");
	assert_usage("replay --generate 3 --standalone --pool a", "--pool");
	assert_usage("replay /nowhere/trace", "/nowhere/trace");
	assert_usage("replay --generate 3 --inject burn", "burn");
	assert_usage("replay --generate 3 --standalone --metadata-only --inject flip", "--inject");
	assert_usage("replay --generate 3 --metadata-only --control-syscall", "--control-syscall");
	assert_usage("replay /nowhere/trace --seed 3", "--seed");
	assert_usage("trace generate --max-tokens 1", "--max-tokens");
}

static void no_daemon_is_exit_code_three(void **state)
{
	static const char *const verbs[] = {"status", "pools", "clients",  "blocks",
					    "check",  "flush", "probe 00", "replay --generate 1"};
	char line[128];

	(void)state;
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
		const struct caught *caught;

		snprintf(line, sizeof(line), "--socket /nowhere/at/all %s", verbs[i]);
		caught = run(line);
		assert_int_equal(caught->code, CTL_DAEMON);
		assert_non_null(strstr(caught->err, "/nowhere/at/all"));
		assert_non_null(strstr(caught->err, "$KVPOOL_SOCKET"));
	}
}

/* A verb's own struct for the parser alone. */
struct sample {
	struct ctl_global global;
	uint32_t small;
	uint64_t large;
	const char *text;
	bool flag;
};
static const struct ctl_option sample_rows[] = {
	{"small", CTL_U32, "N", "7", NULL, 1, 100, offsetof(struct sample, small), "small"},
	{"large", CTL_U64, "N", NULL, NULL, 0, UINT64_MAX, offsetof(struct sample, large), "large"},
	{"text", CTL_TEXT, "T", "a", "a|bc", 0, 0, offsetof(struct sample, text), "text"},
	{"flag", CTL_FLAG, NULL, NULL, NULL, 0, 0, offsetof(struct sample, flag), "flag"},
};
static const struct ctl_verb sample_verb = {.name = "sample",
					    .operands = "A [B]",
					    .summary = "Sample",
					    .min_operands = 1,
					    .max_operands = 2,
					    .options = sample_rows,
					    .option_count = 4,
					    .options_bytes = sizeof(struct sample)};

static void options_and_operands_may_be_mixed(void **state)
{
	char words[][24] = {"sample", "one",    "--small=100", "--large", "18446744073709551615",
			    "two",    "--text", "bc",          "--json"};
	char *argv[10] = {NULL};
	struct sample sample = {0};
	char **operands;
	uint32_t count;
	char error[256];

	(void)state;
	for (int i = 0; i < 9; i++)
		argv[i] = words[i];
	assert_int_equal(
		ctl_options_parse(&sample_verb, 9, argv, &sample, &operands, &count, error, sizeof(error)),
		0);
	assert_int_equal(count, 2);
	assert_string_equal(operands[0], "one");
	assert_string_equal(operands[1], "two");
	assert_int_equal(sample.small, 100);
	assert_true(sample.large == UINT64_MAX);
	assert_string_equal(sample.text, "bc");
	assert_true(sample.global.json && !sample.flag);
	assert_true(ctl_option_given(&sample_verb, &sample, "small"));
	assert_false(ctl_option_given(&sample_verb, &sample, "flag"));
}

static void what_is_not_given_has_its_default(void **state)
{
	char words[][10] = {"sample", "one", "--flag"};
	char *argv[] = {words[0], words[1], words[2], NULL};
	struct sample sample = {0};
	char **operands;
	uint32_t count;
	char error[256];

	(void)state;
	assert_int_equal(
		ctl_options_parse(&sample_verb, 3, argv, &sample, &operands, &count, error, sizeof(error)),
		0);
	assert_int_equal(sample.small, 7);
	assert_string_equal(sample.text, "a");
	assert_true(sample.flag);
	assert_false(ctl_option_given(&sample_verb, &sample, "text"));
}

static void a_choice_is_a_whole_word(void **state)
{
	char words[][10] = {"sample", "one", "--text", "b"};
	char *argv[] = {words[0], words[1], words[2], words[3], NULL};
	struct sample sample = {0};
	char **operands;
	uint32_t count;
	char error[256];

	(void)state;
	assert_true(ctl_options_parse(&sample_verb, 4, argv, &sample, &operands, &count, error,
				      sizeof(error)) < 0);
	assert_non_null(strstr(error, "a|bc"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_row_is_complete_and_its_default_is_valid),
		cmocka_unit_test(help_names_every_option_and_ends_well),
		cmocka_unit_test(help_may_be_asked_for_in_any_usual_way),
		cmocka_unit_test(control_characters_do_not_reach_the_terminal),
		cmocka_unit_test(the_printed_tables_have_every_row),
		cmocka_unit_test(version_is_printed_before_and_behind_a_verb),
		cmocka_unit_test(wrong_usage_is_told_with_the_word),
		cmocka_unit_test(no_daemon_is_exit_code_three),
		cmocka_unit_test(options_and_operands_may_be_mixed),
		cmocka_unit_test(what_is_not_given_has_its_default),
		cmocka_unit_test(a_choice_is_a_whole_word),
	};

	kvt_watchdog(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
