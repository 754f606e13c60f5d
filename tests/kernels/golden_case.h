/* SPDX-License-Identifier: Apache-2.0 */
/* One folder of tests/golden/kernels: its scalars and its arrays, by name. */
#ifndef KVPOOL_TEST_GOLDEN_CASE_H
#define KVPOOL_TEST_GOLDEN_CASE_H

#include "npy.h"

#include <stdbool.h>

#define GOLDEN_MAX_ARRAYS 24
#define GOLDEN_MAX_ARGS 16
#define GOLDEN_NAME_BYTES 32

struct golden_case {
	const char *dir; /* the caller's */
	char op[GOLDEN_NAME_BYTES];
	int arg_count;
	struct {
		char key[GOLDEN_NAME_BYTES];
		double value;
	} args[GOLDEN_MAX_ARGS];
	int array_count;
	struct {
		char name[GOLDEN_NAME_BYTES];
		struct npy npy;
	} arrays[GOLDEN_MAX_ARRAYS];
};

/* Reads all of `dir`. 0, or -EINVAL with a line on stderr. */
int golden_load(const char *dir, struct golden_case *out);
void golden_free(struct golden_case *golden);

/* The scalar, or `fallback` when args.txt lacks it. */
double golden_arg(const struct golden_case *golden, const char *key, double fallback);

/* The array, or NULL with a line on stderr when it is missing or has another rank or element type. */
const struct npy *golden_array(const struct golden_case *golden, const char *name, int rank,
			       const char *descr);
/* The same without a word about a missing one. */
const struct npy *golden_optional(const struct golden_case *golden, const char *name);

#endif
