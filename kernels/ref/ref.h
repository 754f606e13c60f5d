/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pieces of the references: loads and stores of single elements in double precision, the address of a paged
 * token, and softmax as it stands in the book: a running maximum, a sum, and a weighted sum of value rows.
 * Nothing here is fast.
 */
#ifndef KVPOOL_KERNELS_REF_H
#define KVPOOL_KERNELS_REF_H

#include "../dtype.h"
#include "../internal.h"

#define KVK_REF_MAX_ROW KVK_MLA_WIDTH /* longest key row: MLA's, and more than KVK_MAX_HEAD_DIM */

/* `count` elements from element `offset` of an array, as doubles. */
void kvk_ref_row(double *row, const void *array, uint32_t dtype, int64_t offset, int count);

/* An MLA key row of any dtype; `offset` in elements (bytes for KVK_MLA_FP8). */
void kvk_ref_mla_row(double *row, const void *kv, uint32_t dtype, int64_t offset);

double kvk_ref_dot(const double *a, const double *b, int count);

/* Element offset of token `position` of the sequence whose table row is given. */
static inline int64_t kvk_ref_token(const int32_t *table, int32_t page_tokens, int64_t stride_page,
				    int64_t stride_token, int32_t position)
{
	return table[position / page_tokens] * stride_page + position % page_tokens * stride_token;
}

/*
 * Query rows in order, each with the sequence that it is of (-1: padding) and the keys it sees (0 then). `op` is
 * the operation's parameters.
 */
struct kvk_ref_rows {
	const void *op;
	const int32_t *cu_q; /* or NULL */
	const int32_t *lens;
	int32_t s_q;
	int32_t batch;
	int32_t rows;
	int causal;
	void (*visit)(const void *op, int32_t sequence, int32_t row, int32_t visible);
};
void kvk_ref_each_row(const struct kvk_ref_rows *rows);

/* One query's attention while its keys go by. */
struct kvk_ref_softmax {
	int dim;
	double max; /* largest score so far; -INF before the first */
	double sum; /* of exp(score - max) */
	double value[KVK_MAX_HEAD_DIM];
};

void kvk_ref_softmax_begin(struct kvk_ref_softmax *state, int dim);
/* A score of -INF weighs nothing, and its value is not touched. */
void kvk_ref_softmax_add(struct kvk_ref_softmax *state, double score, const double *value);
/* Natural logarithm of the sum; +INF when no key had weight. */
double kvk_ref_softmax_lse(const struct kvk_ref_softmax *state);
/* Writes the normalised row to element `offset` of `out`; `sink` NULL or one more logit that has no value. */
void kvk_ref_softmax_store(const struct kvk_ref_softmax *state, const float *sink, void *out, uint32_t dtype,
			   int64_t offset);

#endif
