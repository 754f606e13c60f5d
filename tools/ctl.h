/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every verb of kvpoolctl shares: exit codes, the options that stand before or after any verb, and the
 * verbs' table. A verb prints its result on standard output and everything else on standard error, and
 * returns the exit code.
 */
#ifndef KVPOOL_TOOLS_CTL_H
#define KVPOOL_TOOLS_CTL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "options.h"

enum ctl_exit {
	CTL_OK = 0,
	CTL_FAULT = 1, /* a check or a verification failed */
	CTL_USAGE = 2,
	CTL_DAEMON = 3 /* no daemon, or it refused */
};

/* First member of every verb's options. */
struct ctl_global {
	const char *socket; /* never NULL after parsing */
	uint32_t timeout_ms;
	bool json;
	bool help;
	bool version;
	uint64_t given; /* bit i: option i of the verb's own table stood on the command line */
};

struct ctl_verb {
	const char *name; /* "status", "trace generate" */
	const char *operands;
	const char *summary;
	const char *description; /* more lines of --help, or NULL */
	uint32_t min_operands;
	uint32_t max_operands;
	const struct ctl_option *options;
	uint32_t option_count;
	size_t options_bytes; /* of the struct that begins with struct ctl_global */
	int (*run)(const void *options, char *const *operands); /* operands end with NULL */
};

extern const struct ctl_verb ctl_verb_status;
extern const struct ctl_verb ctl_verb_pools;
extern const struct ctl_verb ctl_verb_clients;
extern const struct ctl_verb ctl_verb_blocks;
extern const struct ctl_verb ctl_verb_probe;
extern const struct ctl_verb ctl_verb_check;
extern const struct ctl_verb ctl_verb_flush;
extern const struct ctl_verb ctl_verb_replay;
extern const struct ctl_verb ctl_verb_generate;

/* All verbs in the order of --help; NULL ends it. */
extern const struct ctl_verb *const ctl_verbs[];

/* Options before the verb and behind any. */
extern const struct ctl_option ctl_global_options[];
extern const uint32_t ctl_global_option_count;

/* The program, less main(): argv as main() gets it. */
int ctl_run(int argc, char **argv);

/*
 * Prints "kvpoolctl: ..." on standard error, one line of at most 1023 characters. What a file or a daemon brought
 * into it cannot move a terminal's cursor.
 */
/* While muted, nothing is printed: for questions whose answer is not needed. */
void ctl_mute(bool muted);
void ctl_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
