/* SPDX-License-Identifier: Apache-2.0 */
#include "versions.h"

#include "cpu/cpu.h"
#include "internal.h"

static int mla_dense_baseline(const struct kvk_mla_dense_params *params)
{
	struct kvk_mla_dense_params ready;
	int ret = kvk_prepare_mla_dense(params, &ready);

	if (ret <= 0)
		return ret;
	kvk_mla_dense_cpu(&ready, KVK_LEVEL_SCALAR);
	return 0;
}

static int gqa_dense_baseline(const struct kvk_gqa_dense_params *params)
{
	struct kvk_gqa_dense_params ready;
	int ret = kvk_prepare_gqa_dense(params, &ready);

	if (ret <= 0)
		return ret;
	kvk_gqa_dense_cpu(&ready, KVK_LEVEL_SCALAR);
	return 0;
}

const struct version versions[VERSION_COUNT] = {
	{.name = "reference",
	 .row_limit = 1e-6,
	 .mla_dense = kvk_mla_dense_ref,
	 .gqa_dense = kvk_gqa_dense_ref,
	 .mla_sparse = kvk_mla_sparse_ref,
	 .msa_scores = kvk_msa_scores_ref,
	 .msa_select = kvk_msa_select_ref,
	 .msa_sparse = kvk_msa_sparse_ref},
	{.name = "dispatched",
	 .row_limit = 1e-4,
	 .mla_dense = kvk_mla_dense,
	 .gqa_dense = kvk_gqa_dense,
	 .mla_sparse = kvk_mla_sparse,
	 .msa_scores = kvk_msa_scores,
	 .msa_select = kvk_msa_select,
	 .msa_sparse = kvk_msa_sparse},
	{.name = "baseline",
	 .row_limit = 1e-4,
	 .mla_dense = mla_dense_baseline,
	 .gqa_dense = gqa_dense_baseline},
};
