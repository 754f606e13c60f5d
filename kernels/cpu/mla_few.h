/* SPDX-License-Identifier: Apache-2.0 */
/* MLA decode of few heads over bf16 rows: what takes the place of mla_loops.c's functions then. */
#ifndef KVPOOL_KERNELS_MLA_FEW_H
#define KVPOOL_KERNELS_MLA_FEW_H

#include "mla_loops.h"

/* Up to so many heads. By heads and not by rows: a row's bits must not depend on how many queries a call has. */
#define KVK_MLA_FEW 4

/* See kvk_mla_ops and kvk_mla_row_ops. attend NULL: not at this level. */
struct kvk_mla_few_ops {
	void (*attend)(const struct kvk_mla_rows *rows, int first, const struct kvk_mla_keys *keys,
		       const struct kvk_mla_keys *next, uint32_t kv_dtype);
	void (*pack_queries)(float *q, const void *const *rows, int count, bool wide, uint32_t q_dtype);
	void (*store_row)(void *out, uint32_t dtype, const float *row, float factor);
};

#endif
