/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the reference, the fast versions and the dispatcher share: prepared parameters, and the three small
 * rules about which rows, keys and slots there are.
 */
#ifndef KVPOOL_KERNELS_INTERNAL_H
#define KVPOOL_KERNELS_INTERNAL_H

#include <kvpool/kernels.h>

/*
 * Each copies the caller's parameters, checks all that can be checked and fills in default strides
 * (validate.c). 1: *ready is complete and there is work. 0: nothing to do. Negative errno: refused.
 */
int kvk_prepare_mla_dense(const struct kvk_mla_dense_params *params, struct kvk_mla_dense_params *ready);
int kvk_prepare_mla_sparse(const struct kvk_mla_sparse_params *params, struct kvk_mla_sparse_params *ready);
int kvk_prepare_gqa_dense(const struct kvk_gqa_dense_params *params, struct kvk_gqa_dense_params *ready);
int kvk_prepare_msa_scores(const struct kvk_msa_scores_params *params, struct kvk_msa_scores_params *ready);
int kvk_prepare_msa_select(const struct kvk_msa_select_params *params, struct kvk_msa_select_params *ready);
int kvk_prepare_msa_sparse(const struct kvk_msa_sparse_params *params, struct kvk_msa_sparse_params *ready);
int kvk_prepare_mla_write(const struct kvk_mla_write_params *params, struct kvk_mla_write_params *ready);
int kvk_prepare_kv_write(const struct kvk_kv_write_params *params, struct kvk_kv_write_params *ready);
int kvk_prepare_combine(const struct kvk_combine_params *params, struct kvk_combine_params *ready);
int kvk_prepare_mla_plan(const struct kvk_mla_plan_params *params, struct kvk_mla_plan_params *ready);

/*
 * The first part of it alone, for those that have scratch: sizes, dtypes, flags and threads. 0 or a negative
 * errno; *shape has the caller's pointers and strides, not looked at.
 */
int kvk_shape_mla_dense(const struct kvk_mla_dense_params *params, struct kvk_mla_dense_params *shape);
int kvk_shape_mla_sparse(const struct kvk_mla_sparse_params *params, struct kvk_mla_sparse_params *shape);
int kvk_shape_gqa_dense(const struct kvk_gqa_dense_params *params, struct kvk_gqa_dense_params *shape);
int kvk_shape_msa_scores(const struct kvk_msa_scores_params *params, struct kvk_msa_scores_params *shape);
int kvk_shape_msa_sparse(const struct kvk_msa_sparse_params *params, struct kvk_msa_sparse_params *shape);

/* First query row of sequence `sequence`; that of `batch` ends the last one's. */
static inline int32_t kvk_first_row(const int32_t *cu_q, int32_t s_q, int32_t sequence)
{
	return cu_q ? cu_q[sequence] : sequence * s_q;
}

/* Keys that query `index` of `count` sees: bottom-right aligned when causal. */
static inline int32_t kvk_visible(int32_t len, int32_t count, int32_t index, int causal)
{
	int32_t visible = len > 0 ? len : 0;

	if (causal)
		visible -= count - 1 - index;
	return visible > 0 ? visible : 0;
}

static inline int64_t kvk_slot(const void *slots, uint32_t slot_bytes, int32_t token)
{
	if (slot_bytes == 4)
		return ((const int32_t *)slots)[token];
	return ((const int64_t *)slots)[token];
}

#endif
