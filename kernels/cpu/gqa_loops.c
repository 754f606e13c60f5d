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
 * each step loads VECS vectors and broadcasts ROWS numbers for ROWS * VECS multiply-adds. The lines of the
 * next tile are asked for in between, one a step: a core waits for about a dozen at a time, and where all of
 * these places are taken the products' own loads wait too. Without asking the rate falls by half.
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
#include "gqa_tile.h"

#include "quads.h"
#include "simd.h"

#if defined(KVK_SIMD_AVX512) || defined(KVK_SIMD_NEON)
#define VECS 4 /* 32 registers: 24 sums */
#else
#define VECS 2 /* 16 registers: 12 sums */
#endif
#define ROWS 6

#define LINE 64
#define STEPS 4 /* of a product, while a piece is fetched */
#define PIECE 4 /* lines */
#define PAIR (2 * KVK_LANES)
#define KEYS KVK_GQA_KEYS
#define PANEL KVK_GQA_PANEL

/* Pieces still to be fetched: of keys and values in turn, each for all heads of the band. */
struct fetch {
	const char *const *row;
	const char *const *end;
	int64_t step[2]; /* to the next head, of the next row and of the one behind it */
	int heads;
	int head;   /* next one */
	int bytes;  /* of a row */
	int offset; /* of the next piece */
	int pace;   /* pieces at each visit, in 256ths */
	int due;    /* pieces, in 256ths */
};

/* Into L2: L1 is full of what is being worked on. */
KVK_INLINE void fetch_line(const char *piece, int line)
{
	__builtin_prefetch(piece + line * LINE, 0, 2);
}

KVK_INLINE const char *next_piece(struct fetch *fetch)
{
	const char *piece = *fetch->row + fetch->head * fetch->step[0] + fetch->offset;

	fetch->due -= 256;
	fetch->offset += PIECE * LINE;
	if (fetch->offset < fetch->bytes)
		return piece;
	fetch->offset = 0;
	if (++fetch->head == fetch->heads) {
		const int64_t step = fetch->step[0];

		fetch->head = 0;
		fetch->row++;
		fetch->step[0] = fetch->step[1];
		fetch->step[1] = step;
	}
	return piece;
}

/* The piece whose lines the caller is to ask for, or `idle`. More than one: the others are asked for at once. */
KVK_INLINE const char *visit(struct fetch *fetch, const void *idle)
{
	fetch->due += fetch->pace;
	while (fetch->due >= 512 && fetch->row < fetch->end) {
		const char *piece = next_piece(fetch);

		KVK_UNROLL
		for (int line = 0; line < PIECE; line++)
			fetch_line(piece, line);
	}
	return fetch->due >= 256 && fetch->row < fetch->end ? next_piece(fetch) : idle;
}

/*
 * The tile's head asks for its share of the next keys, and for these on behalf of all heads: where the heads
 * of a token lie side by side, memory is read in order. How many pieces each time, so that the last ones are
 * asked for shortly before the tile ends.
 */
static void begin_fetch(const struct kvk_gqa_tile *tile, const struct kvk_gqa_keys *keys, struct fetch *fetch)
{
	const int blocks = (tile->rows + ROWS - 1) / ROWS;
	const int visits = 2 * blocks * (KEYS / STEPS) * tile->width / (VECS * KVK_LANES);
	const int bytes = tile->dim * (tile->dtype == KVK_F32 ? 4 : 2);
	const int pieces = 2 * keys->count * ((bytes + PIECE * LINE - 1) / (PIECE * LINE));

	*fetch = (struct fetch){.row = keys->row + 2 * (keys->count * tile->head / tile->heads),
				.end = keys->row + 2 * (keys->count * (tile->head + 1) / tile->heads),
				.step = {tile->head_bytes[0], tile->head_bytes[1]},
				.heads = tile->heads,
				.bytes = bytes,
				.pace = pieces * 256 / visits + 1};
}

/* Two vectors of codes become f32. */
KVK_INLINE void convert_pair(float *first, float *second, const char *codes, uint32_t dtype)
{
	if (dtype == KVK_BF16) {
		const vu words = *(const vu_unaligned *)codes;

		vf_store(first, (vf)(words << 16));
		vf_store(second, (vf)(words & 0xffff0000u));
	} else if (dtype == KVK_F16) {
		vf_store(first, vf_load_f16(codes));
		vf_store(second, vf_load_f16(codes + 2 * KVK_LANES));
	} else {
		vf_store(first, vf_loadu((const float *)(const void *)codes));
		vf_store(second, vf_loadu((const float *)(const void *)codes + KVK_LANES));
	}
}

/* A row of `dim` elements becomes `width` f32, zeros behind the last. */
KVK_INLINE void convert_row(float *dst, const char *src, int dim, int width, uint32_t dtype)
{
	const int bytes = dtype == KVK_F32 ? 4 : 2;
	int d;

	for (d = 0; d + PAIR <= dim; d += PAIR)
		convert_pair(dst + d, dst + d + KVK_LANES, src + d * bytes, dtype);
	for (; d < width; d += PAIR) {
		char rest[PAIR * 4] = {0};

		if (d < dim)
			memcpy(rest, src + d * bytes, (size_t)(dim - d) * (size_t)bytes);
		convert_pair(dst + d, dst + d + KVK_LANES, rest, dtype);
	}
}

/* A converted pair of bf16 vectors, even elements first, gets its elements in order. */
KVK_INLINE void restore_order(vf pair[2])
{
	const vf even = pair[0];

	pair[0] = vf_interleave_low(even, pair[1]);
	pair[1] = vf_interleave_high(even, pair[1]);
}

/* Each 128 bits of four rows are transposed: word i of each of the rows to out[i]. */
KVK_INLINE void turn_quads(vf out[4], vf a, vf b, vf c, vf d)
{
	const vf ab_low = LOW_WORDS(a, b); /* a0 b0 a1 b1 */
	const vf cd_low = LOW_WORDS(c, d);
	const vf ab_high = HIGH_WORDS(a, b);
	const vf cd_high = HIGH_WORDS(c, d);

	out[0] = LOW_PAIRS(ab_low, cd_low); /* a0 b0 c0 d0 */
	out[1] = HIGH_PAIRS(ab_low, cd_low);
	out[2] = LOW_PAIRS(ab_high, cd_high);
	out[3] = HIGH_PAIRS(ab_high, cd_high);
}

/* word[i] is word i behind `offset` of KVK_LANES rows, a lane a row. Every other pointer of `row` counts. */
KVK_INLINE void turn_words(vf word[KVK_LANES], const char *const *row, int offset)
{
	vf quad[KVK_LANES / 4][4];

	KVK_UNROLL
	for (int g = 0; g < KVK_LANES / 4; g++)
		turn_quads(quad[g], vf_loadu((const float *)(const void *)(row[2 * (4 * g)] + offset)),
			   vf_loadu((const float *)(const void *)(row[2 * (4 * g + 1)] + offset)),
			   vf_loadu((const float *)(const void *)(row[2 * (4 * g + 2)] + offset)),
			   vf_loadu((const float *)(const void *)(row[2 * (4 * g + 3)] + offset)));
	KVK_UNROLL
	for (int i = 0; i < 4; i++) {
#if KVK_LANES == 16
		const vf low01 = LOW_HALVES(quad[0][i], quad[1][i]);
		const vf low23 = LOW_HALVES(quad[2][i], quad[3][i]);
		const vf high01 = HIGH_HALVES(quad[0][i], quad[1][i]);
		const vf high23 = HIGH_HALVES(quad[2][i], quad[3][i]);

		word[i] = EVEN_QUADS(low01, low23);
		word[4 + i] = ODD_QUADS(low01, low23);
		word[8 + i] = EVEN_QUADS(high01, high23);
		word[12 + i] = ODD_QUADS(high01, high23);
#elif KVK_LANES == 8
		word[i] = LOW_HALVES(quad[0][i], quad[1][i]);
		word[4 + i] = HIGH_HALVES(quad[0][i], quad[1][i]);
#else
		word[i] = quad[0][i];
#endif
	}
}

/* KVK_LANES rows of `width` bf16, `skip` bytes behind the pointers. */
static void turn_bf16(float *dst, const char *const *row, int skip, int width)
{
	for (int d = 0; d < width; d += PAIR) {
		vf word[KVK_LANES];

		turn_words(word, row, skip + d * 2);
		KVK_UNROLL
		for (int i = 0; i < KVK_LANES; i++) {
			vf_store(dst + (d + 2 * i) * KEYS, (vf)((vu)word[i] << 16));
			vf_store(dst + (d + 2 * i + 1) * KEYS, (vf)((vu)word[i] & 0xffff0000u));
		}
	}
}

static void turn_f32(float *dst, const char *const *row, int skip, int width)
{
	for (int d = 0; d < width; d += KVK_LANES) {
		vf word[KVK_LANES];

		turn_words(word, row, skip + d * 4);
		KVK_UNROLL
		for (int i = 0; i < KVK_LANES; i++)
			vf_store(dst + (d + i) * KEYS, word[i]);
	}
}

/* Which elements of the rows a panel has: `dim` of memory, `width` with zeros behind. */
struct panel {
	int first;
	int dim;
	int width;
	int bytes; /* of an element */
};

/* Elements of a key row as turn_bf16() or turn_f32() read them. */
static void stage_row(const struct panel *panel, const char *row, char *staged, uint32_t dtype)
{
	row += panel->first * panel->bytes;
	if (dtype == KVK_F16) {
		convert_row((float *)(void *)staged, row, panel->dim, panel->width, KVK_F16);
	} else {
		memset(staged, 0, (size_t)panel->width * (size_t)panel->bytes);
		memcpy(staged, row, (size_t)panel->dim * (size_t)panel->bytes);
	}
}

/*
 * Up to KVK_LANES rows that cannot be read as they lie. Lanes without a key get the first: scores are
 * masked.
 */
static void turn_staged(struct kvk_gqa_tile *tile, const struct panel *panel, float *dst,
			const char *const *key, int count)
{
	const char *row[2 * KVK_LANES];

	for (int n = 0; n < KVK_LANES; n++) {
		char *staged = (char *)(tile->some + n * PANEL);

		row[2 * n] = n < count ? staged : (char *)tile->some;
		if (n < count)
			stage_row(panel, key[2 * n], staged, tile->dtype);
	}
	if (tile->dtype == KVK_BF16)
		turn_bf16(dst, row, 0, panel->width);
	else
		turn_f32(dst, row, 0, panel->width);
}

static void turn_keys(struct kvk_gqa_tile *tile, const struct panel *panel, const struct kvk_gqa_keys *keys)
{
	const int skip = panel->first * panel->bytes;
	const int in_place = tile->dtype != KVK_F16 && panel->dim == panel->width;

	for (int n = 0; n < keys->count; n += KVK_LANES) {
		const char *const *row = keys->row + 2 * n;
		const int left = keys->count - n;

		if (left < KVK_LANES || !in_place)
			turn_staged(tile, panel, tile->panel + n, row, left < KVK_LANES ? left : KVK_LANES);
		else if (tile->dtype == KVK_BF16)
			turn_bf16(tile->panel + n, row, skip, panel->width);
		else
			turn_f32(tile->panel + n, row, skip, panel->width);
	}
}

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
	for (; steps >= STEPS; steps -= STEPS) {
		const char *piece = visit(fetch, left);

		KVK_UNROLL
		for (int n = 0; n < STEPS; n++, left += left_step, right += right_step) {
			multiply_step(sum, left, left_row, right, rows, vecs);
			if (n % (STEPS / PIECE) == 0)
				fetch_line(piece, n / (STEPS / PIECE));
		}
	}
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

/* The same of weights and bf16 values, which are left behind, converted, for the next rows. */
KVK_INLINE void multiply_bf16(vf sum[ROWS][VECS], const float *left, float *right, const char *const *value,
			      int skip, int steps, const int rows, struct fetch *fetch)
{
	for (; steps >= STEPS; steps -= STEPS) {
		const char *piece = visit(fetch, left);

		KVK_UNROLL
		for (int n = 0; n < STEPS; n++, left++, right += PANEL, value += 2) {
			multiply_bf16_step(sum, left, right, *value + skip, rows);
			if (n % (STEPS / PIECE) == 0)
				fetch_line(piece, n / (STEPS / PIECE));
		}
	}
	for (; steps > 0; steps--, left++, right += PANEL, value += 2)
		multiply_bf16_step(sum, left, right, *value + skip, rows);
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

/* Scores of keys that a row does not see, or that are not there, become -INF. */
static void mask_scores(struct kvk_gqa_tile *tile, const struct kvk_gqa_keys *keys)
{
	for (int row = 0; row < tile->rows; row++)
		for (int n = keys->mixed ? keys->seen[row] : keys->count; n < KEYS; n++)
			tile->score[row * KEYS + n] = -INFINITY;
}

/* The largest lane, in all lanes. */
KVK_INLINE vf spread_largest(vf a)
{
#if KVK_LANES == 16
	a = vf_max(a, KVK_SHUFFLE(a, a, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
	a = vf_max(a, KVK_SHUFFLE(a, a, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
	a = vf_max(a, KVK_SHUFFLE(a, a, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13));
	return vf_max(a, KVK_SHUFFLE(a, a, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14));
#elif KVK_LANES == 8
	a = vf_max(a, KVK_SHUFFLE(a, a, 4, 5, 6, 7, 0, 1, 2, 3));
	a = vf_max(a, KVK_SHUFFLE(a, a, 2, 3, 0, 1, 6, 7, 4, 5));
	return vf_max(a, KVK_SHUFFLE(a, a, 1, 0, 3, 2, 5, 4, 7, 6));
#else
	a = vf_max(a, KVK_SHUFFLE(a, a, 2, 3, 0, 1));
	return vf_max(a, KVK_SHUFFLE(a, a, 1, 0, 3, 2));
#endif
}

/* The largest score of a row, in all lanes. */
KVK_INLINE vf row_largest(const float *score)
{
	vf part[4];

	KVK_UNROLL
	for (int i = 0; i < 4; i++)
		part[i] = vf_load(score + i * KVK_LANES);
	for (int n = 4 * KVK_LANES; n < KEYS; n += 4 * KVK_LANES)
		KVK_UNROLL
	for (int i = 0; i < 4; i++)
		part[i] = vf_max(vf_load(score + n + i * KVK_LANES), part[i]);
	return spread_largest(vf_max(vf_max(part[0], part[1]), vf_max(part[2], part[3])));
}

/* A row's scores become weights; returns their sums. */
KVK_INLINE vf row_weights(float *score, vf top)
{
	vf part[4];

	KVK_UNROLL
	for (int i = 0; i < 4; i++)
		part[i] = (vf){0};
	for (int n = 0; n < KEYS; n += 4 * KVK_LANES)
		KVK_UNROLL
	for (int i = 0; i < 4; i++) {
		float *place = score + n + i * KVK_LANES;
		const vf weight = vf_exp2(vf_load(place) - top);

		part[i] += weight;
		vf_store(place, weight);
	}
	return (part[0] + part[1]) + (part[2] + part[3]);
}

/* In three passes, so that no row waits for another step of its own. */
static void softmax(struct kvk_gqa_tile *tile, const struct kvk_gqa_state *state)
{
	float fall[KVK_GQA_ROWS] KVK_GQA_ALIGNED = {0}; /* from the old maximum to the new one */

	for (int row = 0; row < tile->rows; row++) {
		const float old = state->max[row];
		const float top = vf_max(row_largest(tile->score + row * KEYS), vf_set(old))[0];

		fall[row] = old - top;
		state->max[row] = top;
	}
	for (int row = 0; row < tile->rows; row += KVK_LANES)
		vf_store(tile->keep + row, vf_exp2(vf_load(fall + row)));
	for (int row = 0; row < tile->rows; row++) {
		float *sum = state->sum + row * KVK_GQA_MAX_LANES;
		const vf more = row_weights(tile->score + row * KEYS, vf_set(state->max[row]));

		vf_store(sum, vf_fma(vf_load(sum), vf_set(tile->keep[row]), more));
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
