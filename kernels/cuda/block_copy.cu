/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies blocks between and within pools, and changes their layout on the way: a thread takes one piece of
 * 16, 4 or 1 bytes of one row. Reads and writes every byte once.
 */
#include "args.h"
#include "ptx.h"

KVK_DEVICE void copy_piece(char *to, const char *from, int32_t bytes)
{
	if (bytes == 16)
		kvk_store16(to, kvk_load16(from));
	else if (bytes == 4)
		kvk_store4(to, *reinterpret_cast<const uint32_t *>(from));
	else
		*to = *from;
}

KVK_KERNEL(kvk_cuda_block_copy, kvk_cuda_block_copy_args, 256, 4)
{
	const int64_t pieces = p.row_bytes / p.vector_bytes;
	const int64_t rows = static_cast<int64_t>(p.outer) * p.inner;
	const int64_t units = p.blocks * rows * pieces;
	const int64_t stride = kvk_blocks() * kvk_threads_of_block();

	for (int64_t unit = kvk_block() * kvk_threads_of_block() + kvk_thread(); unit < units;
	     unit += stride) {
		const int64_t byte = unit % pieces * p.vector_bytes;
		const int64_t row = unit / pieces % rows;
		const int64_t outer = row / p.inner, inner = row % p.inner;
		const int32_t from = p.from_ids[unit / pieces / rows];
		const int32_t to = p.to_ids[unit / pieces / rows];

		if (from < 0 || from >= p.from_blocks || to < 0 || to >= p.to_blocks)
			continue;
		copy_piece(static_cast<char *>(p.to) + to * p.to_stride_block + outer * p.to_stride_outer +
				   inner * p.to_stride_inner + byte,
			   static_cast<const char *>(p.from) + from * p.from_stride_block +
				   outer * p.from_stride_outer + inner * p.from_stride_inner + byte,
			   p.vector_bytes);
	}
}
