/* SPDX-License-Identifier: Apache-2.0 */
/* The parameter of bench_gpu_read, a plain read of memory. C and CUDA. */
#ifndef KVPOOL_BENCH_GPU_READ_H
#define KVPOOL_BENCH_GPU_READ_H

#include <stdint.h>

struct bench_gpu_read_args {
	const void *from; /* aligned to 16 */
	int64_t pieces;   /* of 16 bytes */
	uint32_t *sink;   /* never written in practice: the sum would have to be `never` */
	uint64_t never;
};

#define BENCH_GPU_READ_THREADS 512
#define BENCH_GPU_READ_BLOCKS 4 /* that fit a multiprocessor */

#endif
