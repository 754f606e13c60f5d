/* SPDX-License-Identifier: Apache-2.0 */
/* The option tables' parser (by getopt_long) and their help. */
#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ctl.h"

/* Verb rows first, then the global ones, as getopt_long numbers them. */
struct rows {
	const struct ctl_option *own;
	uint32_t own_count;
	uint32_t count;
	struct option long_options[CTL_MAX_OPTIONS + 1];
};

static const struct ctl_option *row_at(const struct rows *rows, uint32_t index)
{
	return index < rows->own_count ? &rows->own[index] : &ctl_global_options[index - rows->own_count];
}

static void rows_init(struct rows *rows, const struct ctl_option *own, uint32_t own_count)
{
	memset(rows, 0, sizeof(*rows));
	rows->own = own;
	rows->own_count = own_count;
	rows->count = own_count + ctl_global_option_count;
	for (uint32_t i = 0; i < rows->count && i < CTL_MAX_OPTIONS; i++) {
		const struct ctl_option *row = row_at(rows, i);

		rows->long_options[i].name = row->name;
		rows->long_options[i].has_arg = row->type == CTL_FLAG ? no_argument : required_argument;
		rows->long_options[i].val = (int)(256 + i);
	}
}

int ctl_parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
	char *end;
	uint64_t value;

	if (!isdigit((unsigned char)text[0]))
		return -EINVAL;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (*end)
		return -EINVAL;
	if (errno || value < min || value > max)
		return -ERANGE;
	*out = value;
	return 0;
}

/* Whether `value` is one of "a|b|c". */
static int is_choice(const char *choices, const char *value)
{
	size_t length = strlen(value);

	for (const char *at = choices; *at;) {
		size_t span = strcspn(at, "|");

		if (span == length && !memcmp(at, value, length))
			return 1;
		at += span + (at[span] == '|');
	}
	return 0;
}

static int store_number(const struct ctl_option *row, const char *value, void *field, char *error,
			size_t capacity)
{
	uint64_t number;
	int ret = ctl_parse_number(value, row->min, row->max, &number);

	if (ret == -EINVAL)
		snprintf(error, capacity, "option '--%s' takes a number, not '%s'", row->name, value);
	else if (ret)
		snprintf(error, capacity, "option '--%s' is %s, but must be %" PRIu64 " to %" PRIu64,
			 row->name, value, row->min, row->max);
	if (ret)
		return -EINVAL;
	if (row->type == CTL_U32)
		*(uint32_t *)field = (uint32_t)number;
	else
		*(uint64_t *)field = number;
	return 0;
}

static int store(const struct ctl_option *row, const char *value, void *options, char *error, size_t capacity)
{
	void *field = (char *)options + row->offset;

	switch (row->type) {
	case CTL_FLAG:
		*(bool *)field = true;
		return 0;
	case CTL_U32:
	case CTL_U64:
		return store_number(row, value, field, error, capacity);
	case CTL_TEXT:
		break;
	}
	if (row->choices && !is_choice(row->choices, value)) {
		snprintf(error, capacity, "option '--%s' is '%s', but must be one of %s", row->name, value,
			 row->choices);
		return -EINVAL;
	}
	*(const char **)field = value;
	return 0;
}

static int store_fallbacks(const struct ctl_option *rows, uint32_t count, void *options, char *error,
			   size_t capacity)
{
	int ret = 0;

	for (uint32_t i = 0; i < count && !ret; i++)
		if (rows[i].fallback)
			ret = store(&rows[i], rows[i].fallback, options, error, capacity);
	return ret;
}

static int refuse(int code, char **argv, char *error, size_t capacity)
{
	const char *word = argv[optind - 1];

	if (code == ':')
		snprintf(error, capacity, "option '%s' needs a value", word);
	else
		snprintf(error, capacity, "there is no option '%.*s' here", (int)strcspn(word, "="), word);
	return -EINVAL;
}

/* One pass of getopt_long; optind stands behind what was read. */
static int read_options(struct rows *rows, const char *mode, int argc, char **argv, void *options,
			char *error, size_t capacity)
{
	int code;

	optind = 0; /* GNU: start anew */
	opterr = 0;
	while ((code = getopt_long(argc, argv, mode, rows->long_options, NULL)) != -1) {
		uint32_t index = (uint32_t)code - 256;
		int ret;

		if (code == '?' || code == ':')
			return refuse(code, argv, error, capacity);
		if (code == 'h') {
			((struct ctl_global *)options)->help = true;
			continue;
		}
		ret = store(row_at(rows, index), optarg, options, error, capacity);
		if (ret)
			return ret;
		if (index < rows->own_count)
			((struct ctl_global *)options)->given |= 1ull << index;
	}
	return 0;
}

int ctl_options_parse(const struct ctl_verb *verb, int argc, char **argv, void *options, char ***operands,
		      uint32_t *operand_count, char *error, size_t capacity)
{
	struct rows rows;
	int ret;

	rows_init(&rows, verb->options, verb->option_count);
	ret = store_fallbacks(verb->options, verb->option_count, options, error, capacity);
	if (!ret)
		ret = read_options(&rows, ":h", argc, argv, options, error, capacity);
	if (ret)
		return ret;
	*operands = argv + optind;
	*operand_count = (uint32_t)(argc - optind);
	if (((struct ctl_global *)options)->help)
		return 0;
	if (*operand_count < verb->min_operands || *operand_count > verb->max_operands) {
		snprintf(error, capacity, "%s: usage: kvpoolctl %s [OPTION...]%s%s",
			 *operand_count < verb->min_operands ? "an operand is missing" : "too many operands",
			 verb->name, *verb->operands ? " " : "", verb->operands);
		return -EINVAL;
	}
	return 0;
}

int ctl_globals_parse(int argc, char **argv, void *global, char *error, size_t capacity)
{
	struct rows rows;
	int ret;

	rows_init(&rows, NULL, 0);
	ret = store_fallbacks(ctl_global_options, ctl_global_option_count, global, error, capacity);
	if (!ret)
		ret = read_options(&rows, "+:h", argc, argv, global, error, capacity);
	return ret ? ret : optind;
}

int ctl_option_given(const struct ctl_verb *verb, const void *options, const char *name)
{
	const struct ctl_global *global = options;

	for (uint32_t i = 0; i < verb->option_count; i++)
		if (!strcmp(verb->options[i].name, name))
			return (global->given >> i & 1) != 0;
	return 0;
}

static void print_row(const struct ctl_option *row, FILE *out)
{
	char left[64];

	snprintf(left, sizeof(left), "--%s%s%s", row->name, row->arg ? " " : "", row->arg ? row->arg : "");
	fprintf(out, "  %-26s %s", left, row->help);
	if (row->choices)
		fprintf(out, ": %s", row->choices);
	if (row->fallback)
		fprintf(out, " (default %s)", row->fallback);
	fputc('\n', out);
}

void ctl_options_print(const struct ctl_option *rows, uint32_t count, FILE *out)
{
	for (uint32_t i = 0; i < count; i++)
		print_row(&rows[i], out);
}

void ctl_options_help(const struct ctl_verb *verb, FILE *out)
{
	fprintf(out, "usage: kvpoolctl %s [OPTION...]%s%s\n%s.\n", verb->name, *verb->operands ? " " : "",
		verb->operands, verb->summary);
	if (verb->description)
		fprintf(out, "%s\n", verb->description);
	fputs("\nOptions:\n", out);
	ctl_options_print(verb->options, verb->option_count, out);
	ctl_options_print(ctl_global_options, ctl_global_option_count, out);
}
