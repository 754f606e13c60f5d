/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the device reads: every thread takes 16 bytes a whole grid apart, eight of them under way at a time. 2048
 * threads a multiprocessor so keep 256 KiB under way, more than latency times bandwidth of any memory so far. The sum
 * of all words is kept, so that no load can be left out.
 */
#include "gpu_read.h"

#include "ptx.h"

#define UNDER_WAY 8

KVK_DEVICE uint32_t sum_of(kvk_16_bytes piece)
{
	return piece.word[0] ^ piece.word[1] ^ piece.word[2] ^ piece.word[3];
}

KVK_KERNEL(bench_gpu_read, bench_gpu_read_args, BENCH_GPU_READ_THREADS, BENCH_GPU_READ_BLOCKS)
{
	const int64_t stride = kvk_blocks() * kvk_threads_of_block();
	const char *from = static_cast<const char *>(p.from);
	int64_t at = kvk_block() * kvk_threads_of_block() + kvk_thread();
	uint32_t sum = 0;

	for (; at + (UNDER_WAY - 1) * stride < p.pieces; at += UNDER_WAY * stride) {
		kvk_16_bytes piece[UNDER_WAY];

		KVK_UNROLL
		for (int i = 0; i < UNDER_WAY; i++)
			piece[i] = kvk_load16(from + (at + i * stride) * 16);
		KVK_UNROLL
		for (int i = 0; i < UNDER_WAY; i++)
			sum ^= sum_of(piece[i]);
	}
	for (; at < p.pieces; at += stride)
		sum ^= sum_of(kvk_load16(from + at * 16));
	if (sum == p.never)
		*p.sink = sum;
}
