/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The versions of each operation that exist here, each callable without scratch of the caller's: it is got for
 * the call, of exactly the size asked for, full of NaN and with a guard behind it.
 */
#ifndef KVPOOL_TEST_VERSIONS_H
#define KVPOOL_TEST_VERSIONS_H

#include <kvpool/kernels.h>

struct version {
	const char *name;
	double row_limit; /* of f32 outputs, relative to the row's largest magnitude */
	/* NULL: no version of its own at this level */
	int (*mla_dense)(const struct kvk_mla_dense_params *params);
	int (*gqa_dense)(const struct kvk_gqa_dense_params *params);
	int (*mla_sparse)(const struct kvk_mla_sparse_params *params);
	int (*msa_scores)(const struct kvk_msa_scores_params *params);
	int (*msa_select)(const struct kvk_msa_select_params *params);
	int (*msa_sparse)(const struct kvk_msa_sparse_params *params);
	int (*mla_write)(const struct kvk_mla_write_params *params);
	int (*kv_write)(const struct kvk_kv_write_params *params);
};

/*
 * The reference; what the entry points choose; then each instruction set level that this machine has, which the
 * entry points would hide but for one.
 */
extern struct version versions[];
extern int version_count;

/* The entry points, with scratch. A level that wrote past its scratch gives -EFAULT. */
int run_mla_dense(const struct kvk_mla_dense_params *params);
int run_gqa_dense(const struct kvk_gqa_dense_params *params);
int run_mla_sparse(const struct kvk_mla_sparse_params *params);
int run_msa_scores(const struct kvk_msa_scores_params *params);
int run_msa_sparse(const struct kvk_msa_sparse_params *params);

#endif
