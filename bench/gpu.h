/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A GPU to measure on: its context, one stream, memory full of random values, and times between two events with the
 * caches cold. What fails ends the program.
 *
 * A rehearsal makes every call with small sizes and has no times: on the driver double, whose kernels run on a CPU.
 */
#ifndef KVPOOL_BENCH_GPU_H
#define KVPOOL_BENCH_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ipc/cuda_driver.h"
#include "libclient/launch_cuda.h"

#define BENCH_GPU_SKIP 77

struct bench_gpu {
	struct kvw_cuda *cuda;
	struct kvw_cuda_context *context;
	struct kvw_cuda_stream *stream;
	struct kvw_cuda_event *begin, *end;
	struct kvc_cuda_launcher kernels, own; /* kvpool's kernels; the benchmark's */
	bool rehearsal;
	char name[96];
	int major, minor, driver;
	size_t l2_bytes, free_bytes;
	uint64_t flush, read; /* memory for cold caches; for the ceiling */
	size_t flush_bytes, read_bytes;
};

/* Device 0. Ends the program with BENCH_GPU_SKIP and one sentence where there is no driver or no device. */
void bench_gpu_open(struct bench_gpu *gpu, bool rehearsal);
void bench_gpu_close(struct bench_gpu *gpu);
const void *bench_gpu_image(void);

/* `full` on a GPU, `small` in a rehearsal. */
static inline int32_t bench_gpu_size(const struct bench_gpu *gpu, int32_t full, int32_t small)
{
	return gpu->rehearsal ? small : full;
}

_Noreturn void bench_gpu_fail(const char *what, const char *why);
#define GPU_CALL(gpu, name, ...) bench_gpu_check((gpu), (gpu)->cuda->name(__VA_ARGS__), #name)
void bench_gpu_check(const struct bench_gpu *gpu, unsigned result, const char *call);

/* Aligned to 256, all bytes 0xff: a NaN in every dtype. Until bench_gpu_free_all(). */
uint64_t bench_gpu_memory(struct bench_gpu *gpu, size_t bytes);
void bench_gpu_free_all(struct bench_gpu *gpu);
/* With the bytes of `from`. */
void *bench_gpu_copy_of(struct bench_gpu *gpu, const void *from, size_t bytes);
/* Random bf16 in +-[1/8, 2); random bytes repeat after 64 MiB, more than an L2 holds. */
void *bench_gpu_bf16(struct bench_gpu *gpu, size_t bytes);
/* `count` pieces of `bytes` each, `stride` apart, from a random sample of `sample_bytes`. */
void bench_gpu_fill(struct bench_gpu *gpu, uint64_t to, size_t count, size_t bytes, size_t stride,
		    const void *sample, size_t sample_bytes);

/* Work to time: queues on gpu->stream. */
typedef void (*bench_gpu_work)(struct bench_gpu *gpu, void *context);
/*
 * Microseconds from the first to the last byte of work, after memory of twice the L2 was read; 0 in a rehearsal. That
 * read also gives the host time to queue all of the work before the device comes to it.
 */
double bench_gpu_time(struct bench_gpu *gpu, bench_gpu_work work, void *context);

/* GB/s of a plain read of gpu->read_bytes; 0 in a rehearsal. */
double bench_gpu_read_limit(struct bench_gpu *gpu);
/* TFLOP/s of cuBLAS on random bf16, 8192 x 8192 x 8192; 0 where it is not to be had, and in a rehearsal. */
double bench_gpu_gemm_limit(struct bench_gpu *gpu);

#endif
