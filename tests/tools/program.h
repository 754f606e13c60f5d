/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running programs in tests: to their end with their output caught, or in the background until the test ends
 * them.
 */
#ifndef KVPOOL_TESTS_TOOLS_PROGRAM_H
#define KVPOOL_TESTS_TOOLS_PROGRAM_H

#include <jansson.h>
#include <stdio.h>
#include <sys/types.h>

struct kvt_output {
	int code;  /* exit code; 256 + signal */
	char *out; /* standard output */
	char *err;
};

/* Runs argv (NULL-terminated) to its end. Free with kvt_output_free(). */
struct kvt_output kvt_run(char *const *argv);
/* The same with the words given; the first is the program. */
struct kvt_output kvt_run_words(const char *program, ...) __attribute__((sentinel));
/*
 * Starts argv and returns when its standard error has said `word`, or has ended; what it said so far is lost to
 * kvt_finish(), which runs it to its end.
 */
struct kvt_running {
	pid_t pid;
	FILE *out;
	FILE *err; /* a pipe */
};
struct kvt_running kvt_start_until(char *const *argv, const char *word);
struct kvt_output kvt_finish(struct kvt_running *running);
void kvt_output_free(struct kvt_output *output);

/* Standard output as JSON; fails the test when it is none. */
json_t *kvt_output_json(const struct kvt_output *output);
/* A number of an object; fails the test when it is not there. */
double kvt_json_number(const json_t *object, const char *key);

/* A kvpoold with a socket in `folder` and "--set" options up to NULL; returns when it is ready. */
pid_t kvt_start_daemon(const char *program, const char *folder, const char *const *sets);
/* TERM; its exit code. */
int kvt_stop_daemon(pid_t pid);

#endif
