/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MLA decode of few heads over bf16 rows. Widening a key to f32 into a tile (mla_loops.c) costs as much as both
 * products do for four heads; here no widened key is ever stored:
 *
 *	for each 16 keys, which stay in L1, for each 4 rows:
 *		for each block of keys:			scores = Q K^T, 576 columns deep
 *		for each row:				scores become weights 2^(scale * score - max)
 *		for each block of columns:		out = out * keep + P V, 16 keys deep
 *
 * A load of bf16 brings two columns in each lane: shifted left it is the even one as f32, with its low half
 * masked the odd one. So queries are packed in that order, results accumulate in it, and only the end puts
 * them back. An element of either product is one fixed sequence of operations, so a row's bits do not depend
 * on the rows beside it.
 *
 * Roofline: 8704 flop a key of 1152 bytes at 4 heads, 7.6 flop a byte: the limit is memory. The next 16 keys
 * are asked for meanwhile, half of them by each product, and each key's lines in their order: then the machine's own
 * prefetching joins in.
 */
#include "level.h"
#include "mla_few.h"
#include "simd.h"

#include <math.h>

#if KVK_LANES >= 8

#define L KVK_LANES
#define KEYS 16
#define ROWS 4
#define PAIR (2 * L)     /* columns that a load brings */
#define BLOCK (L / ROWS) /* keys of a block: its scores are one vector */
#define PAIRS (L / 8)    /* of columns in a block of sums */
#define SUM_BLOCKS (KVK_MLA_LATENT / (PAIRS * PAIR))
#define ASKERS (SUM_BLOCKS / (KEYS / 2))
#define LINE 64
#define ROW_LINES (KVK_MLA_WIDTH * 2 / LINE)

/* The keys at hand, and where the next ones lie. */
struct step {
	const char *key[KEYS]; /* past `count`, the last one again */
	const char *next[KEYS];
	int count;
};

KVK_INLINE void load_pair(vf pair[2], const char *row, int index)
{
	vu codes;

	memcpy(&codes, row + (size_t)index * sizeof(codes), sizeof(codes));
	pair[0] = (vf)(codes << 16);
	pair[1] = (vf)(codes & 0xffff0000u);
}

KVK_INLINE void ask(const char *row, int byte)
{
	__builtin_prefetch(row + byte, 0, 2);
}

/* Lane i becomes the sum of vector i's lanes. */
KVK_INLINE vf sum_each(vf part[L])
{
	KVK_UNROLL
	for (int half = L / 2; half > 0; half /= 2)
		KVK_UNROLL
	for (int i = 0; i < half; i++)
		part[i] = vf_interleave_low(part[i], part[i + half]) +
			  vf_interleave_high(part[i], part[i + half]);
	return part[0];
}

/* score[row][key] of BLOCK keys and 4 rows. Asks for half as many of the next keys. */
KVK_INLINE void dot_block(float *score, const char *const *key, const char *const *next, const float *q)
{
	float lane[L];
	vf sum[L];

	KVK_UNROLL
	for (int i = 0; i < L; i++)
		sum[i] = vf_set(0);
	KVK_NO_UNROLL
	for (int c = 0; c < KVK_MLA_WIDTH / PAIR; c++) {
		vf pair[BLOCK][2];

		for (int m = 0; m < BLOCK / 2 && c * 2 * PAIR % LINE == 0; m++)
			ask(next[m], c * 2 * PAIR);
		KVK_UNROLL
		for (int m = 0; m < BLOCK; m++)
			load_pair(pair[m], key[m], c);
		KVK_UNROLL
		for (int half = 0; half < 2; half++)
			KVK_UNROLL
		for (int r = 0; r < ROWS; r++) {
			const vf query = vf_load(q + r * KVK_MLA_WIDTH + c * PAIR + half * L);

			KVK_UNROLL
			for (int m = 0; m < BLOCK; m++)
				sum[r * BLOCK + m] = vf_fma(pair[m][half], query, sum[r * BLOCK + m]);
		}
	}
	vf_storeu(lane, sum_each(sum));
	KVK_UNROLL
	for (int r = 0; r < ROWS; r++)
		memcpy(score + r * KEYS, lane + r * BLOCK, BLOCK * sizeof(float));
}

/* 2^x, and 0 below 2^-64: smaller weights would make subnormal products, which are slow. NaN stays. */
KVK_INLINE vf weight_of(vf x)
{
	return (vf)(~(vi)(x < vf_set(-64)) & (vi)vf_exp2(x));
}

/* Scores of the first `visible` keys become weights, the others 0; returns the row's new maximum. */
KVK_INLINE float soften(float *score, int visible, float old_max, float scale, float *total)
{
	vf largest, sum = vf_set(0);
	float max;

	for (int n = visible; n < KEYS; n++)
		score[n] = -INFINITY;
	largest = vf_load(score);
	KVK_UNROLL
	for (int n = L; n < KEYS; n += L)
		largest = vf_max(vf_load(score + n), largest);
	max = vf_largest(largest) * scale;
	max = max > old_max ? max : old_max;
	KVK_UNROLL
	for (int n = 0; n < KEYS; n += L) {
		const vf weight = weight_of(vf_fma(vf_load(score + n), vf_set(scale), vf_set(-max)));

		vf_store(score + n, weight);
		sum += weight;
	}
	*total = vf_sum(sum);
	return max;
}

/* Rows [r, r + 4): keep is what their older sums and results are to be multiplied with. */
KVK_INLINE void soften_rows(const struct kvk_mla_rows *rows, int r, float *score, const int *visible,
			    float *keep)
{
	float total[ROWS], step[L];

	memset(step, 0, sizeof(step));
	for (int m = 0; m < ROWS; m++) {
		const float old = rows->max[r + m];

		rows->max[r + m] = soften(score + m * KEYS, visible[m], old, rows->scale_log2, &total[m]);
		step[m] = old - rows->max[r + m];
	}
	vf_store(keep, vf_exp2(vf_loadu(step)));
	for (int m = 0; m < ROWS; m++)
		rows->sum[r + m] = rows->sum[r + m] * keep[m] + total[m];
}

/* Block `block` of columns of `count` rows. Each ASKERS blocks together ask for one of the next keys. */
KVK_INLINE void sum_block(float *out, const float *keep, const float *weight, const struct step *step,
			  int keys, int block, bool first, int count)
{
	const char *next = step->next[KEYS / 2 + block / ASKERS];
	vf sum[ROWS][2 * PAIRS];

	KVK_UNROLL
	for (int m = 0; m < count; m++)
		KVK_UNROLL
	for (int v = 0; v < 2 * PAIRS; v++) {
		sum[m][v] = vf_set(0);
		if (!first)
			sum[m][v] = vf_load(out + m * KVK_MLA_LATENT + v * L) * vf_set(keep[m]);
	}
	KVK_NO_UNROLL
	for (int n = 0; n < keys; n++) {
		vf value[2 * PAIRS];

		KVK_UNROLL
		for (int v = 0; v < PAIRS; v++)
			load_pair(value + 2 * v, step->key[n], block * PAIRS + v);
		if (n % ASKERS == block % ASKERS)
			ask(next, n * LINE);
		KVK_UNROLL
		for (int m = 0; m < count; m++) {
			const vf w = vf_set(weight[m * KEYS + n]);

			KVK_UNROLL
			for (int v = 0; v < 2 * PAIRS; v++)
				sum[m][v] = vf_fma(w, value[v], sum[m][v]);
		}
	}
	for (int line = KEYS; line < ROW_LINES && block % ASKERS == 0; line++)
		ask(next, line * LINE);
	KVK_UNROLL
	for (int m = 0; m < count; m++)
		KVK_UNROLL
	for (int v = 0; v < 2 * PAIRS; v++)
		vf_store(out + m * KVK_MLA_LATENT + v * L, sum[m][v]);
}

static void sum_four(float *out, const float *keep, const float *weight, const struct step *step, int keys,
		     bool first)
{
	for (int i = 0; i < SUM_BLOCKS; i++)
		sum_block(out + i * PAIRS * PAIR, keep, weight, step, keys, i, first, ROWS);
}

static void sum_one(float *out, const float *keep, const float *weight, const struct step *step, int keys,
		    bool first)
{
	for (int i = 0; i < SUM_BLOCKS; i++)
		sum_block(out + i * PAIRS * PAIR, keep, weight, step, keys, i, first, 1);
}

/* Rows that see equally many keys are summed together: no weight, be it 0, meets a key that its row does not see. */
static void sum_rows(float *out, const float *keep, const float *weight, const struct step *step,
		     const int *visible, bool first)
{
	if (visible[0] == visible[1] && visible[0] == visible[2] && visible[0] == visible[3]) {
		sum_four(out, keep, weight, step, visible[0], first);
		return;
	}
	for (int m = 0; m < ROWS; m++)
		if (visible[m] > 0)
			sum_one(out + m * KVK_MLA_LATENT, keep + m, weight + m * KEYS, step, visible[m],
				first);
}

/* What each of rows [r, r + 4) sees of the step's keys; rows past the last see what the last one does. */
static void see(const struct kvk_mla_rows *rows, int r, int first, int count, int visible[ROWS])
{
	for (int m = 0; m < ROWS; m++) {
		const int row = r + m < rows->count ? r + m : rows->count - 1;
		const int sees = rows->visible ? rows->visible[row] - first : count;

		visible[m] = sees < 0 ? 0 : sees < count ? sees : count;
	}
}

static void attend_step(const struct kvk_mla_rows *rows, int first, const struct step *step)
{
	_Alignas(4 * L) float score[ROWS * KEYS];
	_Alignas(4 * L) float keep[L];

	for (int r = 0; r < rows->count; r += ROWS) {
		const float *q = rows->q + (int64_t)r * KVK_MLA_WIDTH;
		int visible[ROWS];

		see(rows, r, first, step->count, visible);
		if (visible[ROWS - 1] <= 0)
			continue;
		for (int n = 0; n < step->count; n += BLOCK)
			dot_block(score + n, step->key + n, step->next + n / 2, q);
		soften_rows(rows, r, score, visible, keep);
		sum_rows(rows->out + (int64_t)r * KVK_MLA_LATENT, keep, score, step, visible, first == 0);
	}
}

/* Row n of the tile, or of the next one; past both, the last of what there is. */
static const char *row_at(const struct kvk_mla_keys *keys, const struct kvk_mla_keys *next, int n)
{
	if (n >= keys->count && next && next->count > 0) {
		n -= keys->count;
		keys = next;
	}
	return keys->row[n < keys->count ? n : keys->count - 1];
}

static void attend(const struct kvk_mla_rows *rows, int first, const struct kvk_mla_keys *keys,
		   const struct kvk_mla_keys *next, uint32_t dtype)
{
	struct step step;

	(void)dtype;
	for (int n = 0; n < keys->count; n += KEYS) {
		step.count = keys->count - n < KEYS ? keys->count - n : KEYS;
		for (int i = 0; i < KEYS; i++) {
			step.key[i] = row_at(keys, NULL, n + i);
			step.next[i] = row_at(keys, next, n + step.count + i);
		}
		attend_step(rows, first + n, &step);
	}
}

/* Column d of a row in the order of pairs. */
KVK_INLINE int place(int d)
{
	return d / PAIR * PAIR + d % 2 * L + d % PAIR / 2;
}

/* Rows up to a multiple of 4 are 0. */
static void pack_queries(float *q, const void *const *rows, int count, bool wide, uint32_t dtype)
{
	(void)wide;
	for (int r = 0; r < (count + ROWS - 1) / ROWS * ROWS; r++)
		for (int d = 0; d < KVK_MLA_WIDTH; d += L) {
			const vf part = r < count ? vf_load_plain(rows[r], d, dtype) : vf_set(0);

			for (int i = 0; i < L; i++)
				q[(int64_t)r * KVK_MLA_WIDTH + place(d + i)] = part[i];
		}
}

KVK_INLINE void store_part(char *out, uint32_t dtype, int d, vf part)
{
	if (dtype == KVK_BF16)
		vf_store_bf16(out + 2 * d, part);
	else if (dtype == KVK_F16)
		vf_store_f16(out + 2 * d, part);
	else
		vf_storeu((float *)(void *)(out + 4 * d), part);
}

static void store_row(void *out, uint32_t dtype, const float *row, float factor)
{
	if (!row) {
		memset(out, 0, KVK_MLA_LATENT * kvk_dtype_bytes(dtype));
		return;
	}
	for (int d = 0; d < KVK_MLA_LATENT; d += PAIR) {
		const vf even = vf_load(row + d) * vf_set(factor);
		const vf odd = vf_load(row + d + L) * vf_set(factor);

		store_part(out, dtype, d, vf_interleave_low(even, odd));
		store_part(out, dtype, d + L, vf_interleave_high(even, odd));
	}
}

const struct kvk_mla_few_ops KVK_OPS(kvk_mla_few) = {
	.attend = attend, .pack_queries = pack_queries, .store_row = store_row};

#else

/* Four lanes are too few to win anything. */
const struct kvk_mla_few_ops KVK_OPS(kvk_mla_few) = {0};

#endif
