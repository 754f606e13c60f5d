/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a golden case's operation in every version and prints each measure. */
#ifndef KVPOOL_TEST_GOLDEN_RUN_H
#define KVPOOL_TEST_GOLDEN_RUN_H

#include "golden_case.h"
#include "measure.h"
#include "versions.h"

#define GOLDEN_PASS 0
#define GOLDEN_FAIL 1
#define GOLDEN_UNREADABLE 2 /* the case lacks an array, or shapes disagree */

/* Each returns one of the three; the operation is the case's `op`. */
int golden_run_mla_dense(const struct golden_case *golden);
int golden_run_mla_sparse(const struct golden_case *golden);
int golden_run_msa(const struct golden_case *golden);
int golden_run_msa_select(const struct golden_case *golden);

/* For the runners. */

/* Prints the line of one measure; returns GOLDEN_PASS or GOLDEN_FAIL. */
int golden_report(const struct golden_case *golden, const struct version *version, const char *what,
		  struct measure measure);

/* The array, when it has the element type (NULL: any) and the shape; a dimension of -1 is free. */
const struct npy *golden_shaped(const struct golden_case *golden, const char *name, const char *descr,
				int rank, int64_t d0, int64_t d1, int64_t d2, int64_t d3);

/* dtype of an array of values: bf16 as "<u2", else as its type says; "|u1" is `bytes_dtype`. */
uint32_t golden_dtype(const struct npy *npy, uint32_t bytes_dtype);

/* Zero-filled memory for `count` elements; exits on failure. */
void *golden_buffer(int64_t count, size_t element_bytes);

#endif
