/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rectangle of a decode step from block-table rows that stay on the device, and the same rows end to end:
 * a thread takes one entry.
 */
#include "args.h"
#include "ptx.h"

KVK_DEVICE void put_in_list(const kvk_cuda_gather_args &p, int64_t index, int64_t column, int32_t entry)
{
	const int64_t at = p.indptr[index] + column;

	if (at >= 0 && at < p.indptr[index + 1] && at < p.room)
		p.list[at] = entry;
}

KVK_KERNEL(kvk_cuda_table_gather, kvk_cuda_gather_args, 256, 4)
{
	const int64_t entries = static_cast<int64_t>(p.count) * p.width;
	const int64_t stride = kvk_blocks() * kvk_threads_of_block();

	for (int64_t i = kvk_block() * kvk_threads_of_block() + kvk_thread(); i < entries; i += stride) {
		const int64_t column = i % p.width;
		const int32_t row = p.rows[i / p.width];

		const int32_t entry =
			row < 0 || row >= p.from_rows ? p.fill : p.from[row * p.from_stride + column];

		p.to[i / p.width * p.to_stride + column] = entry;
		if (p.list)
			put_in_list(p, i / p.width, column, entry);
	}
}
