/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For gqa_loops.c: the next tile's rows are brought into L2 while this one is worked on, a line at a time. A
 * core waits for about a dozen lines at once, and where all of these places are taken the products' own loads
 * wait too: so every part of the work asks, turning keys as well as both products, at one pace.
 */
#ifndef KVPOOL_KERNELS_GQA_FETCH_H
#define KVPOOL_KERNELS_GQA_FETCH_H

#include "gqa_tile.h"
#include "simd.h"

/* Results that are kept in registers: rows, and vectors of columns. */
#if defined(KVK_SIMD_AVX512) || defined(KVK_SIMD_NEON)
#define VECS 4 /* 32 registers: 24 sums */
#else
#define VECS 2 /* 16 registers: 12 sums */
#endif
#define ROWS 6

#define LINE 64
#define STEPS 4 /* of a product, while a piece is fetched */
#define PIECE (KVK_GQA_PIECE / LINE)
#define PAIR (2 * KVK_LANES)
#define KEYS KVK_GQA_KEYS
#define PANEL KVK_GQA_PANEL

/*
 * Pieces of the next tile's rows, asked for evenly over the visits. In a row there are 2^shift of them, the heads
 * of the band together.
 */
struct fetch {
	const char *const *row; /* keys and values in turn */
	const int64_t (*offset)[KVK_GQA_ROW_PIECES];
	int shift;
	int64_t last; /* piece */
	int64_t pace; /* pieces a visit, times 2^16 */
	int64_t due;  /* times 2^16 */
};

/* Into L2: L1 is full of what is being worked on. */
KVK_INLINE void fetch_line(const char *piece, int line)
{
	__builtin_prefetch(piece + line * LINE, 0, 2);
}

KVK_INLINE void fetch_piece(const char *piece)
{
	KVK_UNROLL
	for (int line = 0; line < PIECE; line++)
		fetch_line(piece, line);
}

KVK_INLINE const char *piece_at(const struct fetch *fetch, int64_t at)
{
	const int64_t row = at >> fetch->shift;

	return fetch->row[row] + fetch->offset[row & 1][at - (row << fetch->shift)];
}

/*
 * The piece whose lines the caller is to ask for; the same one again costs less than finding out. Where the pace
 * is above one, the others are asked for at once.
 */
KVK_INLINE const char *visit(struct fetch *fetch)
{
	const int64_t at = fetch->due >> 16;

	fetch->due += fetch->pace;
	if (fetch->pace > 1 << 16)
		for (int64_t more = at + 1; more < fetch->due >> 16 && more <= fetch->last; more++)
			fetch_piece(piece_at(fetch, more));
	return piece_at(fetch, at < fetch->last ? at : fetch->last);
}

/*
 * The tile's head asks for its share of the next keys, and for these on behalf of all heads: where the heads
 * of a token lie side by side, memory is read in order. How many pieces each time, so that the last ones are
 * asked for shortly before the tile ends. Without a next key it asks for a key of its own again.
 */
static void begin_fetch(const struct kvk_gqa_tile *tile, const struct kvk_gqa_keys *now,
			const struct kvk_gqa_keys *next, struct fetch *fetch)
{
	const int blocks = (tile->rows + ROWS - 1) / ROWS;
	const int products = 2 * blocks * (KEYS / STEPS) * tile->width / (VECS * KVK_LANES);
	const int turns = KEYS / KVK_LANES * tile->width / PAIR;
	const int first = next->count * tile->head / tile->heads;
	const int count = next->count * (tile->head + 1) / tile->heads - first;
	const int64_t pieces = (int64_t)(2 * count) << tile->row_pieces_log2;

	*fetch = (struct fetch){.row = count ? next->row + 2 * first : now->row,
				.offset = tile->piece_offset,
				.shift = tile->row_pieces_log2,
				.last = pieces ? pieces - 1 : 0,
				.pace = (pieces << 16) / (products + turns) + 1};
}

#endif
