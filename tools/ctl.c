/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the verb, reads its options and runs it. */
#include "ctl.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvpool/version.h>

#include "text.h"

/* Where kvpoold listens unless it is told otherwise; libkvpool has the same default. */
#define DEFAULT_SOCKET "/run/kvpool/kvpoold.sock"

const struct ctl_verb *const ctl_verbs[] = {
	&ctl_verb_status, &ctl_verb_pools, &ctl_verb_clients, &ctl_verb_blocks,   &ctl_verb_probe,
	&ctl_verb_check,  &ctl_verb_flush, &ctl_verb_replay,  &ctl_verb_generate, NULL,
};

const struct ctl_option ctl_global_options[] = {
	{"socket", CTL_TEXT, "PATH", NULL, NULL, 0, 0, offsetof(struct ctl_global, socket),
	 "the daemon's socket; else $KVPOOL_SOCKET, else " DEFAULT_SOCKET},
	{"timeout-ms", CTL_U32, "N", "10000", NULL, 1, 3600000, offsetof(struct ctl_global, timeout_ms),
	 "wait at most this long for an answer"},
	{"json", CTL_FLAG, NULL, NULL, NULL, 0, 0, offsetof(struct ctl_global, json), "print JSON"},
	{"help", CTL_FLAG, NULL, NULL, NULL, 0, 0, offsetof(struct ctl_global, help), "print this and end"},
	{"version", CTL_FLAG, NULL, NULL, NULL, 0, 0, offsetof(struct ctl_global, version),
	 "print the version and end"},
};
const uint32_t ctl_global_option_count = sizeof(ctl_global_options) / sizeof(ctl_global_options[0]);

static bool is_muted;

void ctl_mute(bool muted)
{
	is_muted = muted;
}

void ctl_complain(const char *format, ...)
{
	char text[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	ctl_make_safe(text);
	if (!is_muted)
		fprintf(stderr, "kvpoolctl: %s\n", text);
}

/* Whether the verb is `group` and a word more; any is in group "". */
static bool is_in_group(const struct ctl_verb *verb, const char *group)
{
	size_t length = strlen(group);

	return !length || (!strncmp(verb->name, group, length) && verb->name[length] == ' ');
}

static bool is_group(const char *word)
{
	for (uint32_t i = 0; ctl_verbs[i]; i++)
		if (*word && is_in_group(ctl_verbs[i], word))
			return true;
	return false;
}

static void print_verbs(const char *group)
{
	for (uint32_t i = 0; ctl_verbs[i]; i++)
		if (is_in_group(ctl_verbs[i], group))
			printf("  %-16s %s\n", ctl_verbs[i]->name, ctl_verbs[i]->summary);
}

static int print_help(const char *group)
{
	puts("usage: kvpoolctl [OPTION...] VERB [OPTION...] [OPERAND...]\n"
	     "Inspects and administers a kvpoold, and replays request traces through it.\n\nVerbs:");
	print_verbs(group);
	puts("\nOptions of every verb:");
	ctl_options_print(ctl_global_options, ctl_global_option_count, stdout);
	puts("\n'kvpoolctl VERB --help' tells a verb's options. Exit codes: 0 good; 1 a check or a "
	     "verification\n"
	     "failed; 2 wrong usage; 3 no daemon, or it refused.");
	return CTL_OK;
}

/* For the test that holds the page against the tables: verb, option, value's name, default. */
static int print_tables(void)
{
	for (uint32_t i = 0; ctl_verbs[i]; i++)
		for (uint32_t j = 0; j < ctl_verbs[i]->option_count; j++) {
			const struct ctl_option *row = &ctl_verbs[i]->options[j];

			printf("%s\t--%s\t%s\t%s\n", ctl_verbs[i]->name, row->name, row->arg ? row->arg : "",
			       row->fallback ? row->fallback : "");
		}
	for (uint32_t j = 0; j < ctl_global_option_count; j++)
		printf("\t--%s\t%s\t%s\n", ctl_global_options[j].name,
		       ctl_global_options[j].arg ? ctl_global_options[j].arg : "",
		       ctl_global_options[j].fallback ? ctl_global_options[j].fallback : "");
	return CTL_OK;
}

/* Words of argv that `name` ("trace generate") takes, 0 when it is another verb. */
static int words_matched(const char *name, int argc, char **argv)
{
	int words = 0;

	for (const char *at = name; *at; words++) {
		size_t span = strcspn(at, " ");

		if (words >= argc || strlen(argv[words]) != span || memcmp(argv[words], at, span) != 0)
			return 0;
		at += span + (at[span] == ' ');
	}
	return words;
}

static const struct ctl_verb *find_verb(int argc, char **argv, int *words)
{
	for (uint32_t i = 0; ctl_verbs[i]; i++) {
		*words = words_matched(ctl_verbs[i]->name, argc, argv);
		if (*words)
			return ctl_verbs[i];
	}
	return NULL;
}

static int usage(const char *verb, const char *error)
{
	ctl_complain("%s; 'kvpoolctl%s%s --help' tells more", error, *verb ? " " : "", verb);
	return CTL_USAGE;
}

static void default_socket(struct ctl_global *global)
{
	const char *socket = getenv("KVPOOL_SOCKET");

	if (!global->socket)
		global->socket = socket && *socket ? socket : DEFAULT_SOCKET;
}

/* argv[0] is the last word of the verb. */
static int run_verb(const struct ctl_verb *verb, const struct ctl_global *before, int argc, char **argv)
{
	char **operands;
	uint32_t operand_count;
	char error[512];
	int ret;
	struct ctl_global *options = calloc(1, verb->options_bytes);

	if (!options) {
		ctl_complain("out of memory");
		return CTL_FAULT;
	}
	*options = *before;
	ret = ctl_options_parse(verb, argc, argv, options, &operands, &operand_count, error, sizeof(error));
	if (ret) {
		ret = usage(verb->name, error);
	} else if (options->help) {
		ctl_options_help(verb, stdout);
	} else if (options->version) {
		puts("kvpoolctl " KVP_VERSION_STRING);
	} else {
		default_socket(options);
		ret = verb->run(options, operands);
	}
	free(options);
	return ret;
}

static bool asks_for_help(const char *word)
{
	return !strcmp(word, "help") || !strcmp(word, "--help") || !strcmp(word, "-h");
}

/* argv[0] begins no verb. "trace" may still ask what follows it. */
static int run_other(int argc, char **argv)
{
	bool more = argc > 1;
	char error[256];

	if (is_group(argv[0]) && more && asks_for_help(argv[1]))
		return print_help(argv[0]);
	if (is_group(argv[0]))
		snprintf(error, sizeof(error), "'%.40s%s%.40s' is no verb", argv[0], more ? " " : "",
			 more ? argv[1] : "");
	else
		snprintf(error, sizeof(error), "'%.80s' is no verb", argv[0]);
	return usage(is_group(argv[0]) ? argv[0] : "", error);
}

/* argv[0] is "help"; what follows is a verb, a group of them or nothing. */
static int run_help(int argc, char **argv)
{
	const struct ctl_verb *verb;
	int words;

	if (argc < 2)
		return print_help("");
	verb = find_verb(argc - 1, argv + 1, &words);
	if (!verb)
		return argc == 2 && is_group(argv[1]) ? print_help(argv[1]) : run_other(argc - 1, argv + 1);
	ctl_options_help(verb, stdout);
	return CTL_OK;
}

static int run_words(const struct ctl_global *global, int argc, char **argv)
{
	int words;
	const struct ctl_verb *verb = find_verb(argc, argv, &words);

	if (verb)
		return run_verb(verb, global, argc - words + 1, argv + words - 1);
	return strcmp(argv[0], "help") ? run_other(argc, argv) : run_help(argc, argv);
}

int ctl_run(int argc, char **argv)
{
	struct ctl_global global = {0};
	char error[512];
	int at;

	if (argc == 2 && !strcmp(argv[1], "--print-options"))
		return print_tables();
	at = ctl_globals_parse(argc, argv, &global, error, sizeof(error));
	if (at < 0)
		return usage("", error);
	if (global.version) {
		puts("kvpoolctl " KVP_VERSION_STRING);
		return CTL_OK;
	}
	if (global.help)
		return print_help("");
	if (at >= argc)
		return usage("", "a verb is missing");
	return run_words(&global, argc - at, argv + at);
}
