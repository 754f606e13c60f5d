/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrices in shared memory as a warpgroup's products (wgmma) read them, and the two products of attention on
 * them. The layout is the matrix unit's with a swizzle of 128 bytes: a matrix is cut into columns of 64 halves; each
 * column is one row of 128 bytes after the other; of the eight 16-byte pieces of row r, piece i lies at place
 * i ^ r % 8. The unit swaps by address bits (7 to 9 into 4 to 6), so a column begins at a multiple of 1024.
 *
 * A descriptor (PTX manual, "Matrix descriptor" of wgmma) is a start address and two distances, all in 16 bytes:
 *
 *	rows run along the product's sum (queries, keys of the scores, weights)
 *		distance 2: from eight rows to the next eight, 1024 bytes. Steps of 16 halves begin 32 bytes on in
 *		the swizzled row. Distance 1 is not looked at.
 *	rows run along the result (values of the output: a row is one step of the sum)
 *		distance 1: from 64 columns of the result to the next 64; distance 2: from eight steps to the
 *		next eight, 1024 bytes. Sixteen steps begin 2048 bytes on.
 */
#ifndef KVPOOL_KERNELS_CUDA_GROUPS_H
#define KVPOOL_KERNELS_CUDA_GROUPS_H

#include "ptx.h"

#define KVK_COLUMN 64 /* halves of a matrix's column: 128 bytes */
#define KVK_SWIZZLE_128 (static_cast<uint64_t>(1) << 62)

/* Which half of a matrix of `rows` rows is (row, column). */
template <int ROWS> KVK_DEVICE int32_t kvk_group_place(int32_t row, int32_t column)
{
	return column / KVK_COLUMN * (ROWS * KVK_COLUMN) + row * KVK_COLUMN +
	       ((column % KVK_COLUMN / 8 ^ row % 8) * 8) + column % 8;
}

KVK_DEVICE uint64_t kvk_group_matrix(const uint16_t *start, uint32_t distance1, uint32_t distance2)
{
	return (kvk_shared_offset(start) >> 4 & 0x3fff) | static_cast<uint64_t>(distance1 >> 4) << 16 |
	       static_cast<uint64_t>(distance2 >> 4) << 32 | KVK_SWIZZLE_128;
}

/* 64 queries by the group's 32 keys, over DK elements. */
template <class S>
KVK_DEVICE void kvk_group_scores(const uint16_t *q, const uint16_t *k, int32_t group, float (&score)[4][4])
{
	kvk_group_begin();
	KVK_UNROLL
	for (int d = 0; d < S::DK; d += 16) {
		const int32_t column = d / KVK_COLUMN * KVK_COLUMN, step = d % KVK_COLUMN;
		const uint64_t a = kvk_group_matrix(q + column * S::ROWS + step, 16, 1024);
		const uint64_t b = kvk_group_matrix(
			k + column * S::KEYS + group * S::WARP_KEYS * KVK_COLUMN + step, 16, 1024);

		S::FORMAT::group_scores(score, a, b, d > 0);
	}
	kvk_group_wait();
}

/* Adds the weights of KEYS keys times the group's 256 columns of their values. */
template <class S>
KVK_DEVICE void kvk_group_values(const uint16_t *p, const uint16_t *v, int32_t group, float (&out)[32][4])
{
	kvk_group_begin();
	KVK_UNROLL
	for (int key = 0; key < S::KEYS; key += 16) {
		const uint64_t a = kvk_group_matrix(p + key, 16, 1024);
		const uint64_t b = kvk_group_matrix(v + group * S::WARP_VALUES * S::KEYS + key * KVK_COLUMN,
						    S::KEYS * KVK_COLUMN * 2, 1024);

		S::FORMAT::group_values(out, a, b, true);
	}
	kvk_group_wait();
}

#endif
