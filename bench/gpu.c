/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvpool/kvpool.h>

#include "gpu_read.h"
#include "image.h"
#include "pool.h"

#define MAX_MEMORIES 64
#define SAMPLE_BYTES ((size_t)64 << 20)
#define SMALL_SAMPLE_BYTES ((size_t)256 << 10)
#define READ_BYTES ((size_t)4 << 30)
/* What the driver double calls its devices. */
#define DOUBLE_NAME "kvpool test device"

static uint64_t memories[MAX_MEMORIES];
static size_t memory_count;

void bench_gpu_fail(const char *what, const char *why)
{
	fprintf(stderr, "bench_gpu: %s: %s\n", what, why);
	exit(2);
}

void bench_gpu_check(const struct bench_gpu *gpu, unsigned result, const char *call)
{
	struct kvw_cuda_error error;

	if (kvw_cuda_check(gpu->cuda, &error, result, call))
		bench_gpu_fail("the driver", error.text);
}

/* ------------------------------------------------------------------ open */

static void open_driver(struct bench_gpu *gpu)
{
	struct kvw_cuda_error error;
	int ret = kvw_cuda_open(&gpu->cuda, &error);

	if (ret == -ENODEV) {
		fprintf(stderr, "bench_gpu: skipped: no device: %s\n", error.text);
		exit(BENCH_GPU_SKIP);
	}
	if (ret)
		bench_gpu_fail("the driver", error.text);
}

static void describe(struct bench_gpu *gpu)
{
	size_t total;
	int l2;

	GPU_CALL(gpu, cuDeviceGetName, gpu->name, (int)sizeof(gpu->name), 0);
	GPU_CALL(gpu, cuDriverGetVersion, &gpu->driver);
	GPU_CALL(gpu, cuDeviceGetAttribute, &gpu->major, KVW_CUDA_ATTR_MAJOR, 0);
	GPU_CALL(gpu, cuDeviceGetAttribute, &gpu->minor, KVW_CUDA_ATTR_MINOR, 0);
	GPU_CALL(gpu, cuDeviceGetAttribute, &l2, KVW_CUDA_ATTR_L2_BYTES, 0);
	GPU_CALL(gpu, cuMemGetInfo, &gpu->free_bytes, &total);
	gpu->l2_bytes = (size_t)l2;
	if (!strncmp(gpu->name, DOUBLE_NAME, strlen(DOUBLE_NAME)))
		gpu->rehearsal = true;
}

static void load(struct bench_gpu *gpu, const void *image, struct kvc_cuda_launcher *launcher)
{
	struct kvc_cuda_kernels *kernels;

	if (kvc_cuda_kernels_load(gpu->cuda, image, &kernels))
		bench_gpu_fail("kernels", kvp_last_error());
	kvc_cuda_launcher_init(launcher, kernels, gpu->stream);
}

/* Of its own: bench_gpu_free_all() leaves it. */
static uint64_t permanent(struct bench_gpu *gpu, size_t bytes)
{
	uint64_t memory;

	GPU_CALL(gpu, cuMemAlloc, &memory, bytes);
	return memory;
}

static const void *sample(const struct bench_gpu *gpu, size_t *out_bytes)
{
	static void *words;

	*out_bytes = gpu->rehearsal ? SMALL_SAMPLE_BYTES : SAMPLE_BYTES;
	if (!words)
		words = bench_bf16(*out_bytes);
	return words;
}

static void open_buffers(struct bench_gpu *gpu)
{
	size_t sample_bytes;
	const void *words = sample(gpu, &sample_bytes);

	gpu->flush_bytes = gpu->rehearsal ? 4096 : 4 * gpu->l2_bytes;
	gpu->read_bytes = gpu->rehearsal ? 65536 : READ_BYTES;
	gpu->flush = permanent(gpu, gpu->flush_bytes);
	gpu->read = permanent(gpu, gpu->read_bytes);
	bench_gpu_fill(gpu, gpu->flush, 1, gpu->flush_bytes, 0, words, sample_bytes);
	bench_gpu_fill(gpu, gpu->read, 1, gpu->read_bytes, 0, words, sample_bytes);
}

void bench_gpu_open(struct bench_gpu *gpu, bool rehearsal)
{
	size_t bytes;

	*gpu = (struct bench_gpu){.rehearsal = rehearsal};
	open_driver(gpu);
	GPU_CALL(gpu, cuDevicePrimaryCtxRetain, &gpu->context, 0);
	GPU_CALL(gpu, cuCtxPushCurrent, gpu->context);
	describe(gpu);
	GPU_CALL(gpu, cuStreamCreate, &gpu->stream, KVW_CUDA_STREAM_NON_BLOCKING);
	GPU_CALL(gpu, cuEventCreate, &gpu->begin, 0);
	GPU_CALL(gpu, cuEventCreate, &gpu->end, 0);
	load(gpu, kvk_cuda_image(&bytes), &gpu->kernels);
	load(gpu, bench_gpu_image(), &gpu->own);
	open_buffers(gpu);
}

void bench_gpu_close(struct bench_gpu *gpu)
{
	bench_gpu_free_all(gpu);
	GPU_CALL(gpu, cuMemFree, gpu->flush);
	GPU_CALL(gpu, cuMemFree, gpu->read);
	kvc_cuda_kernels_unload(gpu->kernels.kernels);
	kvc_cuda_kernels_unload(gpu->own.kernels);
	GPU_CALL(gpu, cuEventDestroy, gpu->begin);
	GPU_CALL(gpu, cuEventDestroy, gpu->end);
	GPU_CALL(gpu, cuStreamDestroy, gpu->stream);
	GPU_CALL(gpu, cuCtxPopCurrent, NULL);
	GPU_CALL(gpu, cuDevicePrimaryCtxRelease, 0);
	kvw_cuda_close(gpu->cuda);
}

/* ------------------------------------------------------------------ memory */

uint64_t bench_gpu_memory(struct bench_gpu *gpu, size_t bytes)
{
	uint64_t memory;

	if (memory_count == MAX_MEMORIES)
		bench_gpu_fail("memory", "too many pieces");
	GPU_CALL(gpu, cuMemAlloc, &memory, bytes ? bytes : 1);
	memories[memory_count++] = memory;
	GPU_CALL(gpu, cuMemsetD8Async, memory, 0xff, bytes, gpu->stream);
	return memory;
}

void bench_gpu_free_all(struct bench_gpu *gpu)
{
	GPU_CALL(gpu, cuStreamSynchronize, gpu->stream);
	while (memory_count)
		GPU_CALL(gpu, cuMemFree, memories[--memory_count]);
}

void *bench_gpu_copy_of(struct bench_gpu *gpu, const void *from, size_t bytes)
{
	const uint64_t to = bench_gpu_memory(gpu, bytes);

	GPU_CALL(gpu, cuMemcpyHtoDAsync, to, from, bytes, gpu->stream);
	GPU_CALL(gpu, cuStreamSynchronize, gpu->stream);
	return (void *)(uintptr_t)to;
}

/* One piece, from the sample's start over and over. */
static void fill_piece(struct bench_gpu *gpu, uint64_t to, size_t bytes, uint64_t from, size_t from_bytes)
{
	for (size_t done = 0; done < bytes; done += from_bytes) {
		const size_t rest = bytes - done;

		GPU_CALL(gpu, cuMemcpyDtoDAsync, to + done, from, rest < from_bytes ? rest : from_bytes,
			 gpu->stream);
	}
}

void bench_gpu_fill(struct bench_gpu *gpu, uint64_t to, size_t count, size_t bytes, size_t stride,
		    const void *words, size_t sample_bytes)
{
	uint64_t from;

	GPU_CALL(gpu, cuMemAlloc, &from, sample_bytes);
	GPU_CALL(gpu, cuMemcpyHtoDAsync, from, words, sample_bytes, gpu->stream);
	for (size_t i = 0; i < count; i++) {
		/* Pieces differ: each begins elsewhere in the sample where they are smaller. */
		const size_t room = sample_bytes > bytes ? sample_bytes / bytes : 1;

		fill_piece(gpu, to + i * stride, bytes, from + i % room * bytes,
			   sample_bytes > bytes ? bytes : sample_bytes);
	}
	GPU_CALL(gpu, cuStreamSynchronize, gpu->stream);
	GPU_CALL(gpu, cuMemFree, from);
}

void *bench_gpu_bf16(struct bench_gpu *gpu, size_t bytes)
{
	const uint64_t to = bench_gpu_memory(gpu, bytes);
	size_t sample_bytes;
	const void *words = sample(gpu, &sample_bytes);

	bench_gpu_fill(gpu, to, 1, bytes, 0, words, sample_bytes);
	return (void *)(uintptr_t)to;
}

/* ------------------------------------------------------------------ times */

static void read_memory(struct bench_gpu *gpu, uint64_t from, size_t bytes)
{
	const struct bench_gpu_read_args args = {.from = (const void *)(uintptr_t)from,
						 .pieces = (int64_t)(bytes / 16),
						 .sink = (uint32_t *)(uintptr_t)gpu->flush,
						 .never = UINT64_MAX};
	const struct kvk_cuda_launch launch = {
		.kernel = "bench_gpu_read",
		.blocks = (uint32_t)bench_gpu_size(gpu, gpu->own.device.units * BENCH_GPU_READ_BLOCKS, 2),
		.threads = BENCH_GPU_READ_THREADS,
		.args_bytes = sizeof(args),
		.args = &args};

	if (gpu->own.device.launch(gpu->own.device.context, &launch))
		bench_gpu_fail("the reading kernel", kvp_last_error());
}

double bench_gpu_time(struct bench_gpu *gpu, bench_gpu_work work, void *context)
{
	float milliseconds;

	read_memory(gpu, gpu->flush, gpu->flush_bytes);
	GPU_CALL(gpu, cuEventRecord, gpu->begin, gpu->stream);
	work(gpu, context);
	GPU_CALL(gpu, cuEventRecord, gpu->end, gpu->stream);
	GPU_CALL(gpu, cuEventSynchronize, gpu->end);
	GPU_CALL(gpu, cuEventElapsedTime, &milliseconds, gpu->begin, gpu->end);
	return gpu->rehearsal ? 0 : (double)milliseconds * 1000;
}

static void read_all(struct bench_gpu *gpu, void *context)
{
	(void)context;
	read_memory(gpu, gpu->read, gpu->read_bytes);
}

double bench_gpu_read_limit(struct bench_gpu *gpu)
{
	const double us = bench_gpu_time(gpu, read_all, NULL);

	return us > 0 ? (double)gpu->read_bytes / us * 1e-3 : 0;
}
