/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The frame of MLA decode, dense and sparse: a call as the frame sees it, and the working memory. mla.c
 * runs it.
 */
#ifndef KVPOOL_KERNELS_MLA_H
#define KVPOOL_KERNELS_MLA_H

#include "level.h"
#include "mla_loops.h"

/*
 * Keys that one worker takes at a time: fixed, so that a row's sums do not depend on who else is in the
 * call.
 */
#define KVK_MLA_SPLIT 512

/* Where the keys of a query come from. */
struct kvk_mla_source {
	const void *op; /* the operation's parameters */
	/* Keys that query i of sequence b sees, invalid ones included. */
	int32_t (*length)(const void *op, int32_t b, int32_t i);
	/* Rows of those among keys [first, first + count) that are valid; count is at most a tile. */
	void (*gather)(const void *op, int32_t b, int32_t i, int32_t first, int32_t count,
		       struct kvk_mla_keys *keys);
	/* Queries whose keys are the first ones of the last query's, and so share a tile: s_q or 1. */
	int32_t queries;
};

/* Fields as in the parameter structs. */
struct kvk_mla_job {
	struct kvk_mla_source source;
	int32_t batch, s_q, heads;
	uint32_t q_dtype, kv_dtype, out_dtype;
	float scale;
	const void *q;
	const float *sink;
	void *out;
	float *lse;
	int64_t q_stride_batch, q_stride_query, q_stride_head;
	int64_t out_stride_batch, out_stride_query, out_stride_head;
	int64_t lse_stride_batch, lse_stride_head;
	const struct kvk_threads *threads;
	void *scratch;
};

/* Fills the fields that have the same name in `params`. */
#define KVK_MLA_JOB(params, ...)                                                                             \
	{                                                                                                    \
		.source = {.op = (params), __VA_ARGS__}, .batch = (params)->batch, .s_q = (params)->s_q,     \
		.heads = (params)->heads, .q_dtype = (params)->q_dtype, .kv_dtype = (params)->kv_dtype,      \
		.out_dtype = (params)->out_dtype, .scale = (params)->scale, .q = (params)->q,                \
		.sink = (params)->sink, .out = (params)->out, .lse = (params)->lse,                          \
		.q_stride_batch = (params)->q_stride_batch, .q_stride_query = (params)->q_stride_query,      \
		.q_stride_head = (params)->q_stride_head, .out_stride_batch = (params)->out_stride_batch,    \
		.out_stride_query = (params)->out_stride_query,                                              \
		.out_stride_head = (params)->out_stride_head,                                                \
		.lse_stride_batch = (params)->lse_stride_batch,                                              \
		.lse_stride_head = (params)->lse_stride_head, .threads = (params)->threads,                  \
		.scratch = (params)->scratch                                                                 \
	}

/* Bytes of scratch: of a call with so many queries that share tiles, heads and threads. */
size_t kvk_mla_scratch(int32_t queries, int32_t heads, const struct kvk_threads *threads);

void kvk_mla_run(const struct kvk_mla_job *job, enum kvk_level level);

#endif
