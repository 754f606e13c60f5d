/* SPDX-License-Identifier: Apache-2.0 */
/* Dense and sparse grouped attention are one thing: queries over a list of keys. gqa_call.c says how. */
#ifndef KVPOOL_KERNELS_GQA_CALL_H
#define KVPOOL_KERNELS_GQA_CALL_H

#include "level.h"

#include <kvpool/kernels.h>

/* The fields of kvk_gqa_dense_params and kvk_msa_sparse_params, checked and with strides filled in. */
struct kvk_gqa_call {
	int32_t batch, s_q, rows, heads, kv_heads, head_dim, page_tokens;
	int sparse; /* keys are those of `selected`, else all */
	int32_t block_tokens, topk;
	uint32_t q_dtype, kv_dtype, out_dtype;
	float scale;
	int causal;

	const char *q, *k, *v;
	const int32_t *block_table, *lens, *cu_q;
	const int32_t *selected;
	char *out;
	float *lse;

	int64_t q_stride_row, q_stride_head;
	int64_t k_stride_page, k_stride_token, k_stride_head;
	int64_t v_stride_page, v_stride_token, v_stride_head;
	int64_t selected_stride_head, selected_stride_row;
	int64_t table_stride;
	int64_t out_stride_row, out_stride_head;
	int64_t lse_stride_row;

	const struct kvk_threads *threads;
	char *scratch;
};

/* From the shape alone; SIZE_MAX when it doesn't fit. */
size_t kvk_gqa_call_scratch(const struct kvk_gqa_call *call);
void kvk_gqa_call_run(const struct kvk_gqa_call *call, enum kvk_level level);

/* The fields that both parameter structs have, under the same names. */
#define KVK_GQA_CALL(p)                                                                                      \
	.batch = (p)->batch, .s_q = (p)->s_q, .rows = (p)->rows, .heads = (p)->heads,                        \
	.kv_heads = (p)->kv_heads, .head_dim = (p)->head_dim, .page_tokens = (p)->page_tokens,               \
	.q_dtype = (p)->q_dtype, .kv_dtype = (p)->kv_dtype, .out_dtype = (p)->out_dtype,                     \
	.scale = (p)->scale, .q = (p)->q, .k = (p)->k, .v = (p)->v, .block_table = (p)->block_table,         \
	.lens = (p)->lens, .cu_q = (p)->cu_q, .out = (p)->out, .lse = (p)->lse,                              \
	.q_stride_row = (p)->q_stride_row, .q_stride_head = (p)->q_stride_head,                              \
	.k_stride_page = (p)->k_stride_page, .k_stride_token = (p)->k_stride_token,                          \
	.k_stride_head = (p)->k_stride_head, .v_stride_page = (p)->v_stride_page,                            \
	.v_stride_token = (p)->v_stride_token, .v_stride_head = (p)->v_stride_head,                          \
	.table_stride = (p)->table_stride, .out_stride_row = (p)->out_stride_row,                            \
	.out_stride_head = (p)->out_stride_head, .lse_stride_row = (p)->lse_stride_row,                      \
	.threads = (p)->threads, .scratch = (p)->scratch

#endif
