/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step's small arrays and the changed entries of its rows, from the host's pinned slot to where they stay on
 * the device. Reads over the bus, each word once; arrays by all threads, a run of row entries by one block.
 */
#include "args.h"
#include "ptx.h"

KVK_DEVICE void copy_array(const kvk_stage_array &array)
{
	const int64_t stride = kvk_blocks() * kvk_threads_of_block();

	for (int64_t i = kvk_block() * kvk_threads_of_block() + kvk_thread(); i < array.words; i += stride)
		array.to[i] = array.from[i];
}

/* What the run says is checked: it lies in memory that other processes map. */
KVK_DEVICE void copy_run(const kvk_cuda_stage_args &p, const kvk_stage_run &run)
{
	const int32_t first = run.first > 0 ? run.first : 0;
	const int32_t end = run.end < p.width ? run.end : p.width;

	if (run.row < 0 || run.row >= p.rows || run.position < 0 || run.position >= p.positions)
		return;
	for (int32_t column = first + kvk_thread(); column < end; column += kvk_threads_of_block())
		p.to[run.row * p.to_stride + column] = p.from[run.position * p.from_stride + column];
}

KVK_KERNEL(kvk_cuda_stage, kvk_cuda_stage_args, 256, 4)
{
	for (int32_t i = 0; i < p.array_count; i++)
		copy_array(p.arrays[i]);
	for (int64_t i = kvk_block(); i < p.run_count; i += kvk_blocks())
		copy_run(p, p.runs[i]);
}
