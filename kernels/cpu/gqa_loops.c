/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops of gqa_tile.h, compiled once a level. A tile of up to 64 keys goes through
 *
 *	for each panel of 64 elements
 *		turn	key rows -> f32, transposed to [elements][keys]
 *		score	score[row][key] += sum over the panel of q[d][row] * key[d][key]; q holds the scale
 *	softmax	row by row: maximum, weights, sums
 *	for each panel of 64 elements
 *		convert	value rows -> f32 [keys][elements], in passing while the first rows are computed
 *		weigh	out[row][d] = out[row][d] * keep[row] + sum of weight[row][key] * value[key][d]
 *
 * A panel (16 KiB), the queries' part that meets it and the scores stay in L1. Both products are one loop,
 * multiply(): columns (keys, then elements) in the lanes, ROWS x VECS vectors of the result in registers;
 * each step loads VECS vectors and broadcasts ROWS numbers for ROWS * VECS multiply-adds. Meanwhile the lines of
 * the next tile are asked for (gqa_fetch.h); without that the rate falls by half. Value rows, of which a step
 * reads two lines from L2, are asked for once more a few keys ahead.
 *
 * Roofline: a key costs 4 * rows * dim flop and 4 * dim bytes in bf16: with 16 rows, 16 flop a byte, more
 * than a core's FMA units can do with its share of memory bandwidth. So the FMA ports are the limit, and
 * the load ports come next: with AVX-512, where a load of 64 bytes takes as long as an FMA, 6 x 4 needs 10
 * loads for 24 of them. That is why keys are turned: rows of 16 heads in the lanes would need no turning,
 * but 17 loads for 16 FMAs. What else takes slots of the FMA ports, with 16 rows: turning 1/10 of the
 * products, conversions 1/30, softmax 1/12.
 *
 * bf16 rows are turned as 32-bit words of two elements, which halves the work; shifting and masking then
 * gives the two. Values are converted the same way, which leaves the even elements of 2 * KVK_LANES in one
 * vector and the odd ones in the next: the result comes out in that order and is put right when it is
 * stored.
 */
#include "gqa_fetch.h"
#include "gqa_softmax.h"
#include "gqa_tile.h"
#include "gqa_turn.h"
#include "simd.h"

KVK_INLINE void convert_values_of(struct kvk_gqa_tile *tile, const struct panel *panel,
				  const struct kvk_gqa_keys *keys, uint32_t dtype)
{
	const int skip = panel->first * panel->bytes;

	if (panel->dim == PANEL)
		for (int n = 0; n < keys->count; n++)
			convert_row(tile->panel + n * PANEL, keys->row[2 * n + 1] + skip, PANEL, PANEL,
				    dtype);
	else
		for (int n = 0; n < keys->count; n++)
			convert_row(tile->panel + n * PANEL, keys->row[2 * n + 1] + skip, panel->dim,
				    panel->width, dtype);
}

static void convert_values(struct kvk_gqa_tile *tile, const struct panel *panel,
			   const struct kvk_gqa_keys *keys)
{
	if (tile->dtype == KVK_BF16)
		convert_values_of(tile, panel, keys, KVK_BF16);
	else if (tile->dtype == KVK_F16)
		convert_values_of(tile, panel, keys, KVK_F16);
	else
		convert_values_of(tile, panel, keys, KVK_F32);
}

KVK_INLINE void add_products(vf sum[ROWS][VECS], const vf column[VECS], const float *left, const int left_row,
			     const int rows, const int vecs)
{
	KVK_UNROLL
	for (int r = 0; r < rows; r++) {
		const vf factor = vf_set(left[r * left_row]);

		KVK_UNROLL
		for (int v = 0; v < vecs; v++)
			sum[r][v] = vf_fma(column[v], factor, sum[r][v]);
	}
}

KVK_INLINE void multiply_step(vf sum[ROWS][VECS], const float *left, const int left_row, const float *right,
			      const int rows, const int vecs)
{
	vf column[VECS];

	KVK_UNROLL
	for (int v = 0; v < vecs; v++)
		column[v] = vf_load(right + v * KVK_LANES);
	add_products(sum, column, left, left_row, rows, vecs);
}

/* sum[r][v] += left[step * left_step + r * left_row] * right[step * right_step] */
KVK_INLINE void multiply(vf sum[ROWS][VECS], const float *left, int left_step, const int left_row,
			 const float *right, int right_step, int steps, const int rows, const int vecs,
			 struct fetch *fetch)
{
	const int visits = block_visits(fetch);

	for (int n = 0; n < visits && steps >= STEPS; n++, steps -= STEPS) {
		const char *piece = visit(fetch);

		KVK_NO_UNROLL
		for (int line = 0; line < STEPS; line++, left += left_step, right += right_step) {
			multiply_step(sum, left, left_row, right, rows, vecs);
			fetch_line(piece, line);
		}
	}
	KVK_NO_UNROLL
	for (; steps > 0; steps--, left += left_step, right += right_step)
		multiply_step(sum, left, left_row, right, rows, vecs);
}

KVK_INLINE void multiply_bf16_step(vf sum[ROWS][VECS], const float *left, float *right, const char *value,
				   const int rows)
{
	vf column[VECS];

	KVK_UNROLL
	for (int v = 0; v < VECS; v += 2) {
		const vu words = *(const vu_unaligned *)(value + 2 * v * KVK_LANES);

		column[v] = (vf)(words << 16);
		column[v + 1] = (vf)(words & 0xffff0000u);
		vf_store(right + v * KVK_LANES, column[v]);
		vf_store(right + (v + 1) * KVK_LANES, column[v + 1]);
	}
	add_products(sum, column, left, KEYS, rows, VECS);
}

/* A panel's part of a row some keys ahead, into L1. */
KVK_INLINE void fetch_values(const char *const *value, int skip)
{
	KVK_UNROLL
	for (int line = 0; line < PANEL * 2; line += LINE)
		__builtin_prefetch(value[2 * KVK_GQA_VALUES_AHEAD] + skip + line, 0, 3);
}

/* The same of weights and bf16 values, which are left behind, converted, for the next rows. */
KVK_INLINE void multiply_bf16(vf sum[ROWS][VECS], const float *left, float *right, const char *const *value,
			      int skip, int steps, const int rows, struct fetch *fetch)
{
	const int visits = block_visits(fetch);

	for (int n = 0; n < visits && steps >= STEPS; n++, steps -= STEPS) {
		const char *piece = visit(fetch);

		KVK_NO_UNROLL
		for (int line = 0; line < STEPS; line++, left++, right += PANEL, value += 2) {
			multiply_bf16_step(sum, left, right, *value + skip, rows);
			fetch_line(piece, line);
			fetch_values(value, skip);
		}
	}
	KVK_NO_UNROLL
	for (; steps > 0; steps--, left++, right += PANEL, value += 2) {
		multiply_bf16_step(sum, left, right, *value + skip, rows);
		fetch_values(value, skip);
	}
}

/* Of the head in turn. */
KVK_INLINE float *head_queries(struct kvk_gqa_tile *tile)
{
	return tile->q + tile->head * tile->rows * tile->width;
}

/* Rows [row, row + rows) and VECS vectors of keys from `key` on, over a panel. */
KVK_INLINE void score_block(struct kvk_gqa_tile *tile, const struct panel *panel, int row, const int rows,
			    int key, struct fetch *fetch)
{
	float *score = tile->score + row * KEYS + key;
	vf sum[ROWS][VECS];

	KVK_UNROLL
	for (int r = 0; r < rows; r++)
		KVK_UNROLL
	for (int v = 0; v < VECS; v++)
		sum[r][v] = panel->first ? vf_load(score + r * KEYS + v * KVK_LANES) : (vf){0};
	multiply(sum, head_queries(tile) + panel->first * tile->rows + row, tile->rows, 1, tile->panel + key,
		 KEYS, panel->width, rows, VECS, fetch);
	KVK_UNROLL
	for (int r = 0; r < rows; r++)
		KVK_UNROLL
	for (int v = 0; v < VECS; v++)
		vf_store(score + r * KEYS + v * KVK_LANES, sum[r][v]);
}

/* What the values of a panel are added to. */
struct weighing {
	float *out; /* [rows][width], the panel's columns */
	const char *const
		*value; /* bf16 to be converted on the way, every other pointer; or NULL: it is done */
	int skip;       /* bytes of a value row in front of the panel */
	int column;     /* first one of the block */
	int vecs;       /* of the block */
	int keys;       /* leading values of the tile */
};

/* `vecs` vectors of columns of the rows [row, row + rows). */
KVK_INLINE void weigh_block(struct kvk_gqa_tile *tile, const struct weighing *w, int row, const int rows,
			    const int vecs, const int convert, struct fetch *fetch)
{
	const float *weight = tile->score + row * KEYS;
	float *panel = tile->panel + w->column;
	float *out = w->out + w->column + row * tile->width;
	const int width = tile->width;
	vf sum[ROWS][VECS];

	KVK_UNROLL
	for (int r = 0; r < rows; r++)
		KVK_UNROLL
	for (int v = 0; v < vecs; v++)
		sum[r][v] = vf_load(out + r * width + v * KVK_LANES) * vf_set(tile->keep[row + r]);
	if (convert)
		multiply_bf16(sum, weight, panel, w->value, w->skip + 2 * w->column, w->keys, rows, fetch);
	else
		multiply(sum, weight, 1, KEYS, panel, PANEL, w->keys, rows, vecs, fetch);
	KVK_UNROLL
	for (int r = 0; r < rows; r++)
		KVK_UNROLL
	for (int v = 0; v < vecs; v++)
		vf_store(out + r * width + v * KVK_LANES, sum[r][v]);
}

KVK_INLINE void weigh_any_block(struct kvk_gqa_tile *tile, const struct weighing *w, int row, const int rows,
				struct fetch *fetch)
{
	if (w->vecs < VECS)
		weigh_block(tile, w, row, rows, 2, 0, fetch);
	else if (w->value)
		weigh_block(tile, w, row, rows, VECS, 1, fetch);
	else
		weigh_block(tile, w, row, rows, VECS, 0, fetch);
}

/* A function with the number of rows as a constant. */
#define CALL_ROWS(rows, function, ...)                                                                       \
	do {                                                                                                 \
		switch (rows) {                                                                              \
		case 6:                                                                                      \
			function(6, __VA_ARGS__);                                                            \
			break;                                                                               \
		case 5:                                                                                      \
			function(5, __VA_ARGS__);                                                            \
			break;                                                                               \
		case 4:                                                                                      \
			function(4, __VA_ARGS__);                                                            \
			break;                                                                               \
		case 3:                                                                                      \
			function(3, __VA_ARGS__);                                                            \
			break;                                                                               \
		case 2:                                                                                      \
			function(2, __VA_ARGS__);                                                            \
			break;                                                                               \
		default:                                                                                     \
			function(1, __VA_ARGS__);                                                            \
		}                                                                                            \
	} while (0)
#define SCORE(rows, tile, panel, row, key, fetch) score_block(tile, panel, row, rows, key, fetch)
#define WEIGH(rows, tile, w, row, fetch) weigh_any_block(tile, w, row, rows, fetch)

/* Rows from `row` on that are computed together: steps as equal as can be. */
static int rows_at(const struct kvk_gqa_tile *tile, int row)
{
	const int left = tile->rows - row;
	const int blocks = (left + ROWS - 1) / ROWS;

	return (left + blocks - 1) / blocks;
}

static void score_panel(struct kvk_gqa_tile *tile, const struct panel *panel, int keys, struct fetch *fetch)
{
	for (int key = 0; key < keys; key += VECS * KVK_LANES)
		for (int row = 0, rows; row < tile->rows; row += rows) {
			rows = rows_at(tile, row);
			CALL_ROWS(rows, SCORE, tile, panel, row, key, fetch);
		}
}

/* bf16 values of a whole panel are converted by the first rows that use them; others beforehand. */
static void begin_weighing(struct kvk_gqa_tile *tile, const struct panel *panel,
			   const struct kvk_gqa_state *state, const struct kvk_gqa_keys *keys,
			   struct weighing *w)
{
	const int on_the_way = tile->dtype == KVK_BF16 && panel->dim == PANEL && !keys->mixed;

	*w = (struct weighing){.out = state->out + panel->first,
			       .value = on_the_way ? keys->row + 1 : NULL,
			       .skip = panel->first * panel->bytes,
			       .keys = keys->count};
	if (!on_the_way)
		convert_values(tile, panel, keys);
}

/* Row by row where rows see different keys: a value that a row does not see is not multiplied. */
static void weigh_panel(struct kvk_gqa_tile *tile, const struct panel *panel,
			const struct kvk_gqa_state *state, const struct kvk_gqa_keys *keys,
			struct fetch *fetch)
{
	const char *const *value;
	struct weighing w;

	begin_weighing(tile, panel, state, keys, &w);
	value = w.value;
	for (; w.column < panel->width; w.column += w.vecs * KVK_LANES) {
		w.vecs = panel->width - w.column < VECS * KVK_LANES ? 2 : VECS;
		w.value = value;
		for (int row = 0, rows; row < tile->rows; row += rows) {
			rows = rows_at(tile, row);
			if (keys->mixed) {
				rows = 1;
				w.keys = keys->seen[row];
			}
			CALL_ROWS(rows, WEIGH, tile, &w, row, fetch);
			w.value = NULL;
		}
	}
}

static struct panel panel_at(const struct kvk_gqa_tile *tile, int first)
{
	const int dim = tile->dim - first;
	const int width = tile->width - first;

	return (struct panel){.first = first,
			      .dim = dim < PANEL ? dim : PANEL,
			      .width = width < PANEL ? width : PANEL,
			      .bytes = tile->dtype == KVK_F32 ? 4 : 2};
}

static void attend(struct kvk_gqa_tile *tile, const struct kvk_gqa_state *state,
		   const struct kvk_gqa_keys *now, const struct kvk_gqa_keys *next)
{
	struct fetch fetch;

	begin_fetch(tile, next, &fetch);
	for (int first = 0; first < tile->width; first += PANEL) {
		const struct panel panel = panel_at(tile, first);

		turn_keys(tile, &panel, now);
		score_panel(tile, &panel, now->count, &fetch);
	}
	if (now->mixed || now->count < KEYS)
		mask_scores(tile, now);
	softmax(tile, state);
	for (int first = 0; first < tile->width; first += PANEL) {
		const struct panel panel = panel_at(tile, first);

		weigh_panel(tile, &panel, state, now, &fetch);
	}
	end_fetch(&fetch);
}

static void load_query(struct kvk_gqa_tile *tile, int row, const void *q, uint32_t dtype)
{
	float converted[KVK_GQA_MAX_WIDTH] KVK_GQA_ALIGNED;
	float *place = head_queries(tile) + row;

	if (dtype == KVK_BF16)
		convert_row(converted, q, tile->dim, tile->width, KVK_BF16);
	else if (dtype == KVK_F16)
		convert_row(converted, q, tile->dim, tile->width, KVK_F16);
	else
		convert_row(converted, q, tile->dim, tile->width, KVK_F32);
	for (int d = 0; d < tile->width; d += PAIR) {
		vf pair[2] = {vf_load(converted + d), vf_load(converted + d + KVK_LANES)};
		float natural[PAIR] KVK_GQA_ALIGNED;

		if (dtype == KVK_BF16)
			restore_order(pair);
		vf_store(natural, pair[0] * vf_set(tile->scale_log2));
		vf_store(natural + KVK_LANES, pair[1] * vf_set(tile->scale_log2));
		for (int i = 0; i < PAIR; i++)
			place[(d + i) * tile->rows] = natural[i];
	}
}

static void merge(const struct kvk_gqa_tile *tile, const struct kvk_gqa_state *state,
		  const struct kvk_gqa_state *more)
{
	for (int row = 0; row < tile->rows; row++) {
		const vf old = vf_set(state->max[row]);
		const vf new = vf_set(more->max[row]);
		const vf top = vf_max(old, new);
		const vf keep = vf_exp2(old - top);
		const vf add = vf_exp2(new - top);
		float *sum = state->sum + row * KVK_GQA_MAX_LANES;

		state->max[row] = top[0];
		vf_store(sum, vf_fma(vf_load(more->sum + row * KVK_GQA_MAX_LANES), add, vf_load(sum) * keep));
		for (int d = row * tile->width; d < (row + 1) * tile->width; d += KVK_LANES)
			vf_store(state->out + d,
				 vf_fma(vf_load(more->out + d), add, vf_load(state->out + d) * keep));
	}
}

/* `out` need not be aligned. */
static void store_row(void *out, uint32_t dtype, const float *row, int dim)
{
	uint16_t codes[KVK_GQA_MAX_WIDTH];

	if (dtype == KVK_F32) {
		memcpy(out, row, (size_t)dim * sizeof(*row));
		return;
	}
	for (int d = 0; d < dim; d += KVK_LANES)
		if (dtype == KVK_BF16)
			vf_store_bf16(codes + d, vf_load(row + d));
		else
			vf_store_f16(codes + d, vf_load(row + d));
	memcpy(out, codes, (size_t)dim * sizeof(*codes));
}

static void store(const struct kvk_gqa_tile *tile, const struct kvk_gqa_state *state, int row, float sum,
		  void *out, uint32_t dtype)
{
	const float *src = state->out + row * tile->width;
	const float factor = sum == 0 ? 0 : 1 / sum;
	float natural[KVK_GQA_MAX_WIDTH] KVK_GQA_ALIGNED;

	for (int d = 0; d < tile->width; d += PAIR) {
		vf pair[2] = {vf_load(src + d) * vf_set(factor),
			      vf_load(src + d + KVK_LANES) * vf_set(factor)};

		if (tile->dtype == KVK_BF16)
			restore_order(pair);
		vf_store(natural + d, pair[0]);
		vf_store(natural + d + KVK_LANES, pair[1]);
	}
	store_row(out, dtype, natural, tile->dim);
}

const struct kvk_gqa_ops KVK_OPS(kvk_gqa) = {
	.load_query = load_query, .attend = attend, .merge = merge, .store = store};
