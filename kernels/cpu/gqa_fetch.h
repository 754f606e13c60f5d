/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For gqa_loops.c: the next tile's rows are brought into L2 while this one is worked on, a line at a time. A
 * core waits for about a dozen lines at once, and where all of these places are taken the products' own loads
 * wait too: so the products ask at one pace, a line a step. What a step can bear is little more than the
 * instruction that asks: so the pieces are listed beforehand, and after the visits a plain loop goes on.
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
_Static_assert(STEPS == PIECE, "a step asks for a line");
#define PAIR (2 * KVK_LANES)
#define KEYS KVK_GQA_KEYS
#define PANEL KVK_GQA_PANEL

/* Pieces of the next tile's rows, asked for evenly: each block of a product makes the same number of visits. */
struct fetch {
	const char *const *piece; /* next one */
	int a_visit;              /* pieces of a visit */
	int a_block;              /* visits of a block */
	int left;                 /* visits */
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

/* The piece whose lines the caller is to ask for; others of the visit are asked for at once. */
KVK_INLINE const char *visit(struct fetch *fetch)
{
	for (int n = 1; n < fetch->a_visit; n++)
		fetch_piece(*fetch->piece++);
	return *fetch->piece++;
}

/* How many visits a block is to make. */
KVK_INLINE int block_visits(struct fetch *fetch)
{
	const int visits = fetch->left < fetch->a_block ? fetch->left : fetch->a_block;

	fetch->left -= visits;
	return visits;
}

/* What the blocks of the tile left over. */
static void end_fetch(struct fetch *fetch)
{
	for (int n = 0; n < fetch->left; n++)
		fetch_piece(visit(fetch));
}

/* `pieces` of a row, most often a constant. */
KVK_INLINE int list_rows(struct kvk_gqa_tile *tile, const struct kvk_gqa_keys *keys, int first, int end,
			 const int pieces)
{
	const char **piece = tile->piece;

	for (int row = first; row < end; row++, piece += pieces)
		for (int i = 0; i < pieces; i++)
			piece[i] = keys->row[row] + tile->piece_offset[row & 1][i];
	for (int i = 0; end > first && i < KVK_GQA_REPEATED; i++)
		piece[i] = piece[-1];
	return (end - first) * pieces;
}

/*
 * The pieces of rows [first, end), keys and values in turn, and behind them some repeated; returns their number.
 * Rows of one piece are a list as they stand.
 */
static int list_pieces(struct kvk_gqa_tile *tile, const struct kvk_gqa_keys *keys, int first, int end,
		       const char *const **list)
{
	*list = tile->piece;
	if (tile->row_pieces == 4)
		return list_rows(tile, keys, first, end, 4);
	if (tile->row_pieces > 1)
		return list_rows(tile, keys, first, end, tile->row_pieces);
	*list = keys->row + first;
	return end - first;
}

/*
 * The tile's head asks for its share of the next keys, and for these on behalf of all heads: where the heads
 * of a token lie side by side, memory is read in order. As many pieces each time that the last ones are asked
 * for shortly before the tile ends.
 */
static void begin_fetch(struct kvk_gqa_tile *tile, const struct kvk_gqa_keys *next, struct fetch *fetch)
{
	const int columns = VECS * KVK_LANES;
	const int panels = (tile->width + PANEL - 1) / PANEL;
	const int blocks = (tile->rows + ROWS - 1) / ROWS *
			   (panels * KEYS / columns + (tile->width + columns - 1) / columns);
	const int first = next->count * tile->head / tile->heads;
	const int end = next->count * (tile->head + 1) / tile->heads;
	const int pieces = list_pieces(tile, next, 2 * first, 2 * end, &fetch->piece);

	fetch->a_visit = 1 + pieces / (blocks * (KEYS / STEPS));
	fetch->left = (pieces + fetch->a_visit - 1) / fetch->a_visit;
	fetch->a_block = (fetch->left + blocks - 1) / blocks;
}

#endif
