/* SPDX-License-Identifier: Apache-2.0 */
/* See ref.h. */
#include "ref.h"

#include "../cpu/level.h"
#include "row_loops.h"

#include <stdatomic.h>

KVK_LEVEL_TABLES(kvk_ref_ops, kvk_ref);

/* Asked once: the answer costs an instruction that a hypervisor may want to see. Any thread's is the same. */
static const struct kvk_ref_ops *ops(void)
{
	static _Atomic(const struct kvk_ref_ops *) chosen;
	const struct kvk_ref_ops *table = atomic_load_explicit(&chosen, memory_order_relaxed);

	if (table)
		return table;
	table = KVK_LEVEL_TABLE(kvk_ref,
				kvk_level_usable(KVK_LEVEL_AVX2) ? KVK_LEVEL_AVX2 : KVK_LEVEL_SCALAR);
	atomic_store_explicit(&chosen, table, memory_order_relaxed);
	return table;
}

void kvk_ref_row(double *row, const void *array, uint32_t dtype, int64_t offset, int count)
{
	ops()->load(row, array, dtype, offset, count);
}

static void load_fp8_row(double *row, const unsigned char *bytes)
{
	const unsigned char *scales = bytes + KVK_MLA_LATENT;

	for (int i = 0; i < KVK_MLA_LATENT; i++)
		row[i] = (double)kvk_e4m3_to_f32(bytes[i]) * kvk_load(scales, KVK_F32, i / 128);
	kvk_ref_row(row + KVK_MLA_LATENT, scales + 4 * sizeof(float), KVK_BF16, 0, KVK_MLA_ROPE);
}

void kvk_ref_mla_row(double *row, const void *kv, uint32_t dtype, int64_t offset)
{
	if (dtype == KVK_MLA_FP8)
		load_fp8_row(row, (const unsigned char *)kv + offset);
	else
		kvk_ref_row(row, kv, dtype, offset, KVK_MLA_WIDTH);
}

double kvk_ref_dot(const double *a, const double *b, int count)
{
	return ops()->dot(a, b, count);
}

void kvk_ref_softmax_begin(struct kvk_ref_softmax *state, int dim)
{
	state->dim = dim;
	state->max = -INFINITY;
	state->sum = 0;
	for (int i = 0; i < dim; i++)
		state->value[i] = 0;
}

/* Moves sum and values from the old maximum to a larger one. */
static void raise_max(struct kvk_ref_softmax *state, double max)
{
	double factor = exp(state->max - max);

	state->max = max;
	state->sum *= factor;
	for (int i = 0; i < state->dim; i++)
		state->value[i] *= factor;
}

void kvk_ref_softmax_add(struct kvk_ref_softmax *state, double score, const double *value)
{
	double weight;

	if (score == -INFINITY)
		return;
	if (score > state->max)
		raise_max(state, score);
	weight = exp(score - state->max);
	state->sum += weight;
	ops()->add(state->value, weight, value, state->dim);
}

double kvk_ref_softmax_lse(const struct kvk_ref_softmax *state)
{
	return state->sum == 0 ? INFINITY : log(state->sum) + state->max;
}

void kvk_ref_softmax_store(const struct kvk_ref_softmax *state, const float *sink, void *out, uint32_t dtype,
			   int64_t offset)
{
	double factor = state->sum == 0 ? 0 : 1 / state->sum;

	if (sink && state->sum != 0)
		factor /= 1 + exp((double)*sink - kvk_ref_softmax_lse(state));
	for (int i = 0; i < state->dim; i++)
		kvk_store(out, dtype, offset + i, (float)(state->value[i] * factor));
}
