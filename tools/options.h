/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options of a verb as one table: the parser, --help and the test that holds the page against the program
 * read the same rows.
 */
#ifndef KVPOOL_TOOLS_OPTIONS_H
#define KVPOOL_TOOLS_OPTIONS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct ctl_verb;

/* Type of the field at `offset`: bool, uint32_t, uint64_t, const char *. */
enum ctl_option_type { CTL_FLAG, CTL_U32, CTL_U64, CTL_TEXT };

/* Most rows of a table: `given` has a bit for each. */
#define CTL_MAX_OPTIONS 48u

struct ctl_option {
	const char *name; /* without the dashes */
	enum ctl_option_type type;
	const char *arg;      /* what --help calls the value; NULL for a flag */
	const char *fallback; /* value when absent, as text; NULL: 0, NULL, false */
	const char *choices;  /* CTL_TEXT: the values allowed, "a|b"; NULL: any */
	uint64_t min;         /* of a number */
	uint64_t max;
	size_t offset;
	const char *help;
};

/*
 * Reads argv[1 ..) by the verb's rows and the global ones; operands may stand between options. options
 * (options_bytes of it) already holds the globals that stood before the verb. Operands are moved to
 * *operands. 0, or -EINVAL with a sentence in error.
 */
int ctl_options_parse(const struct ctl_verb *verb, int argc, char **argv, void *options, char ***operands,
		      uint32_t *operand_count, char *error, size_t capacity);

/*
 * Reads the options that stand before the verb; returns the index of the verb in argv (argc when there is
 * none) or -EINVAL.
 */
int ctl_globals_parse(int argc, char **argv, void *global, char *error, size_t capacity);

/* Whether the verb's own option `name` stood on the command line. */
int ctl_option_given(const struct ctl_verb *verb, const void *options, const char *name);

void ctl_options_help(const struct ctl_verb *verb, FILE *out);
/* Rows as --help shows them. */
void ctl_options_print(const struct ctl_option *rows, uint32_t count, FILE *out);

/* Decimal number, nothing else around it, within [min, max]. 0 or -EINVAL, -ERANGE. */
int ctl_parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *out);

#endif
