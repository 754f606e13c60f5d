/* SPDX-License-Identifier: Apache-2.0 */
/* Entry points of the portable versions: prepared parameters, the level to run at; they cannot fail. */
#ifndef KVPOOL_KERNELS_CPU_H
#define KVPOOL_KERNELS_CPU_H

#include <kvpool/kernels.h>

struct kvk_tile_ops;

void kvk_mla_dense_cpu(const struct kvk_mla_dense_params *ready, const struct kvk_tile_ops *ops);
void kvk_gqa_dense_cpu(const struct kvk_gqa_dense_params *ready, const struct kvk_tile_ops *ops);

#endif
