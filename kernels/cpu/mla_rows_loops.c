/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MLA decode around its two products: packing queries, widening keys, merging partial results. Each touches
 * an element once: queries once a sequence (a transposition in registers, tile by tile), a key's 576
 * elements once a tile of keys for all rows, a partial result's once a split.
 *
 * Roofline: a key costs 1152 bytes (bf16) from memory and 2304 bytes of stores to L2, against 2176 flop a
 * row: a few percent of the whole from 16 rows on.
 */
#include "level.h"
#include "mla_loops.h"
#include "simd.h"

#define KEYS KVK_MLA_TILE_KEYS
#define PANEL KVK_MLA_PANEL
#define L KVK_LANES

/* A query row as it is; rows up to a multiple of 4 are 0. */
static void copy_queries(float *q, const void *const *rows, int count, uint32_t dtype)
{
	for (int r = 0; r < (count + 3) / 4 * 4; r++)
		for (int d = 0; d < KVK_MLA_WIDTH; d += L)
			vf_store(q + (int64_t)r * KVK_MLA_WIDTH + d,
				 r < count ? vf_load_plain(rows[r], d, dtype) : vf_set(0));
}

/* L rows, transposed, into the lanes at `q` of a group `width` rows wide. */
KVK_INLINE void pack_rows(float *q, const void *const *rows, int count, int width, uint32_t dtype)
{
	for (int d = 0; d < KVK_MLA_WIDTH; d += L) {
		vf block[L];

		KVK_UNROLL
		for (int i = 0; i < L; i++)
			block[i] = i < count ? vf_load_plain(rows[i], d, dtype) : vf_set(0);
		vf_transpose(block);
		KVK_UNROLL
		for (int i = 0; i < L; i++)
			vf_store(q + (d + i) * width, block[i]);
	}
}

static void pack_queries(float *q, const void *const *rows, int count, bool wide, uint32_t dtype)
{
	if (L == 16 && !wide) {
		copy_queries(q, rows, count, dtype);
		return;
	}
	for (int r = 0; r < count; r += L) {
		const int group = r / KVK_MLA_GROUP(L, wide) * KVK_MLA_GROUP(L, wide);
		const int width = KVK_MLA_GROUP_WIDTH(L, wide, count, group);
		float *to = q + (int64_t)group * KVK_MLA_WIDTH + (r - group);

		if (dtype == KVK_BF16)
			pack_rows(to, rows + r, count - r, width, KVK_BF16);
		else if (dtype == KVK_F16)
			pack_rows(to, rows + r, count - r, width, KVK_F16);
		else
			pack_rows(to, rows + r, count - r, width, KVK_F32);
	}
}

KVK_INLINE float exp2_one(float x)
{
	return vf_exp2(vf_set(x))[0];
}

/* What the results so far, and then those of a partial, are to be multiplied with. */
struct weights {
	float old, new;
};

/* Brings in a partial's max and sum; a result that has nothing yet weighs 0, and the first one 1. */
static struct weights merge_sums(float *max, float *sum, float new_max, float new_sum)
{
	struct weights weights = {.old = 0, .new = 1};
	float larger = new_max;

	if (new_sum == 0)
		return (struct weights){.old = 1, .new = 0};
	if (*sum != 0) {
		larger = *max > new_max ? *max : new_max;
		weights = (struct weights){.old = exp2_one(*max - larger), .new = exp2_one(new_max - larger)};
	}
	*sum = *sum * weights.old + new_sum * weights.new;
	*max = larger;
	return weights;
}

/* Four vectors of columns of all partials. Empty partials hold garbage and are not read. */
KVK_INLINE void fold_columns(const struct kvk_mla_fold *fold, const struct weights *weights, int column,
			     bool empty)
{
	vf sum[4];

	KVK_UNROLL
	for (int v = 0; v < 4; v++)
		sum[v] = empty ? vf_set(0) : vf_load(fold->acc_out + column + v * L);
	for (int i = 0; i < fold->partials; i++) {
		const float *out = fold->out + i * fold->out_stride + column;

		if (fold->sum[i * fold->stat_stride] == 0)
			continue;
		KVK_UNROLL
		for (int v = 0; v < 4; v++)
			sum[v] = vf_fma(vf_load(out + v * L), vf_set(weights[i].new),
					sum[v] * vf_set(weights[i].old));
	}
	KVK_UNROLL
	for (int v = 0; v < 4; v++)
		vf_store(fold->acc_out + column + v * L, sum[v]);
}

static void fold(const struct kvk_mla_fold *fold)
{
	const bool empty = *fold->acc_sum == 0;
	struct weights weights[KVK_MLA_FOLD];

	for (int i = 0; i < fold->partials; i++)
		weights[i] = merge_sums(fold->acc_max, fold->acc_sum, fold->max[i * fold->stat_stride],
					fold->sum[i * fold->stat_stride]);
	for (int column = 0; column < KVK_MLA_LATENT; column += 4 * L)
		fold_columns(fold, weights, column, empty);
}

static void store_row(void *out, uint32_t dtype, const float *row, float factor)
{
	char *to = out;

	if (!row) {
		memset(out, 0, KVK_MLA_LATENT * kvk_dtype_bytes(dtype));
		return;
	}
	for (int d = 0; d < KVK_MLA_LATENT; d += L) {
		const vf value = vf_load(row + d) * vf_set(factor);

		if (dtype == KVK_BF16)
			vf_store_bf16(to + 2 * d, value);
		else if (dtype == KVK_F16)
			vf_store_f16(to + 2 * d, value);
		else
			vf_storeu((float *)(void *)(to + 4 * d), value);
	}
}

const struct kvk_mla_row_ops KVK_OPS(kvk_mla_rows) = {
	.pack_queries = pack_queries, .fold = fold, .store_row = store_row};
