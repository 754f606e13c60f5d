/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The entry points that choose: the fastest version that exists for this machine, else the reference. Every
 * version meets the same tests against the reference, so which one ran is never visible in more than
 * rounding.
 */
#include "cpu/cpu.h"
#include "cpu/tile.h"
#include "internal.h"

/* The best version of the inner loops that this machine can run. */
static const struct kvk_tile_ops *best_level(void)
{
	const struct kvk_tile_ops *levels[KVK_TILE_MAX_LEVELS];

	kvk_tile_levels(levels);
	return levels[0];
}

int kvk_mla_dense(const struct kvk_mla_dense_params *params)
{
	struct kvk_mla_dense_params ready;
	int ret = kvk_prepare_mla_dense(params, &ready);

	if (ret <= 0)
		return ret;
	kvk_mla_dense_cpu(&ready, best_level());
	return 0;
}

int kvk_gqa_dense(const struct kvk_gqa_dense_params *params)
{
	struct kvk_gqa_dense_params ready;
	int ret = kvk_prepare_gqa_dense(params, &ready);

	if (ret <= 0)
		return ret;
	kvk_gqa_dense_cpu(&ready, best_level());
	return 0;
}

int kvk_mla_sparse(const struct kvk_mla_sparse_params *params)
{
	return kvk_mla_sparse_ref(params);
}

int kvk_msa_scores(const struct kvk_msa_scores_params *params)
{
	return kvk_msa_scores_ref(params);
}

int kvk_msa_select(const struct kvk_msa_select_params *params)
{
	return kvk_msa_select_ref(params);
}

int kvk_msa_sparse(const struct kvk_msa_sparse_params *params)
{
	return kvk_msa_sparse_ref(params);
}

int kvk_mla_write(const struct kvk_mla_write_params *params)
{
	return kvk_mla_write_ref(params);
}

int kvk_kv_write(const struct kvk_kv_write_params *params)
{
	return kvk_kv_write_ref(params);
}

int kvk_combine(const struct kvk_combine_params *params)
{
	return kvk_combine_ref(params);
}

int kvk_mla_plan(const struct kvk_mla_plan_params *params)
{
	return kvk_mla_plan_ref(params);
}
