/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entry points of the fast versions: prepared parameters (internal.h) whose scratch is as large as
 * kvk_<op>_cpu_scratch() says and aligned, and the level to run at. They cannot fail. The sizes take checked
 * shapes whose arrays have not been looked at; SIZE_MAX: it doesn't fit.
 */
#ifndef KVPOOL_KERNELS_CPU_H
#define KVPOOL_KERNELS_CPU_H

#include "level.h"

#include <kvpool/kernels.h>

size_t kvk_mla_dense_cpu_scratch(const struct kvk_mla_dense_params *shape);
void kvk_mla_dense_cpu(const struct kvk_mla_dense_params *ready, enum kvk_level level);

size_t kvk_mla_sparse_cpu_scratch(const struct kvk_mla_sparse_params *shape);
void kvk_mla_sparse_cpu(const struct kvk_mla_sparse_params *ready, enum kvk_level level);

size_t kvk_gqa_dense_cpu_scratch(const struct kvk_gqa_dense_params *shape);
void kvk_gqa_dense_cpu(const struct kvk_gqa_dense_params *ready, enum kvk_level level);

size_t kvk_msa_scores_cpu_scratch(const struct kvk_msa_scores_params *shape);
void kvk_msa_scores_cpu(const struct kvk_msa_scores_params *ready, enum kvk_level level);

void kvk_msa_select_cpu(const struct kvk_msa_select_params *ready);

size_t kvk_msa_sparse_cpu_scratch(const struct kvk_msa_sparse_params *shape);
void kvk_msa_sparse_cpu(const struct kvk_msa_sparse_params *ready, enum kvk_level level);

/* Without scratch. */
void kvk_mla_write_cpu(const struct kvk_mla_write_params *ready, enum kvk_level level);
void kvk_kv_write_cpu(const struct kvk_kv_write_params *ready, enum kvk_level level);

#endif
