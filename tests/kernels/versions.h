/* SPDX-License-Identifier: Apache-2.0 */
/* The versions of each operation that exist: where there is no version of its own, `baseline` is NULL. */
#ifndef KVPOOL_TEST_VERSIONS_H
#define KVPOOL_TEST_VERSIONS_H

#include <kvpool/kernels.h>

struct version {
	const char *name;
	double row_limit; /* of f32 outputs, relative to the row's largest magnitude */
	int (*mla_dense)(const struct kvk_mla_dense_params *params);
	int (*gqa_dense)(const struct kvk_gqa_dense_params *params);
	int (*mla_sparse)(const struct kvk_mla_sparse_params *params);
	int (*msa_scores)(const struct kvk_msa_scores_params *params);
	int (*msa_select)(const struct kvk_msa_select_params *params);
	int (*msa_sparse)(const struct kvk_msa_sparse_params *params);
};

/*
 * The reference; what the dispatcher chooses; and the portable loops built for the plain instruction set,
 * which the dispatcher hides on better machines.
 */
#define VERSION_COUNT 3
extern const struct version versions[VERSION_COUNT];

#endif
