/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ceiling of arithmetic: cuBLAS, opened at run time. It brings the toolkit's runtime, which uses the device's primary
 * context, as this program does. $KVP_CUBLAS names the file where the loader doesn't find it.
 */
#include "gpu.h"

#include <dlfcn.h>
#include <stdlib.h>

#define SIZE 8192
#define BF16 14        /* CUDA_R_16BF */
#define COMPUTE_F32 68 /* CUBLAS_COMPUTE_32F */
#define TRANSPOSED 1
#define PLAIN 0
#define DEFAULT_ALGORITHM (-1)

typedef int (*create_fn)(void **handle);
typedef int (*set_stream_fn)(void *handle, void *stream);
typedef int (*gemm_fn)(void *handle, int transpose_a, int transpose_b, int m, int n, int k, const void *alpha,
		       const void *a, int a_type, int lda, const void *b, int b_type, int ldb,
		       const void *beta, void *c, int c_type, int ldc, int compute, int algorithm);

static struct gemm {
	bool tried;
	void *handle;
	gemm_fn run;
	uint64_t a, b, c;
} gemm;

static void *open_library(void)
{
	const char *const names[] = {getenv("KVP_CUBLAS"),
				     "libcublas.so.13",
				     "libcublas.so.12",
				     "libcublas.so.11",
				     "/usr/local/cuda/lib64/libcublas.so.13",
				     "/usr/local/cuda/lib64/libcublas.so.12"};
	void *library = NULL;

	for (size_t i = 0; i < sizeof(names) / sizeof(*names) && !library; i++)
		if (names[i])
			library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
	return library;
}

/* ISO C has no conversion from an object's pointer to a function's; POSIX says that the bytes are the same. */
static bool find(void *library, const char *name, void *out)
{
	void *symbol = dlsym(library, name);

	*(void **)out = symbol;
	return symbol != NULL;
}

static void open_gemm(struct bench_gpu *gpu)
{
	const size_t bytes = (size_t)SIZE * SIZE * 2;
	void *library = gpu->rehearsal ? NULL : open_library();
	set_stream_fn set_stream;
	create_fn create;

	gemm.tried = true;
	if (!library || !find(library, "cublasCreate_v2", &create) ||
	    !find(library, "cublasSetStream_v2", &set_stream) || !find(library, "cublasGemmEx", &gemm.run) ||
	    create(&gemm.handle) || set_stream(gemm.handle, gpu->stream)) {
		gemm.run = NULL;
		return;
	}
	GPU_CALL(gpu, cuMemAlloc, &gemm.c, bytes); /* to the end */
	gemm.a = gpu->read;                        /* random, and large enough for both */
	gemm.b = gemm.a + bytes;
}

static void multiply(struct bench_gpu *gpu, void *context)
{
	const float one = 1, zero = 0;

	(void)gpu;
	(void)context;
	if (gemm.run(gemm.handle, TRANSPOSED, PLAIN, SIZE, SIZE, SIZE, &one, (void *)(uintptr_t)gemm.a, BF16,
		     SIZE, (void *)(uintptr_t)gemm.b, BF16, SIZE, &zero, (void *)(uintptr_t)gemm.c, BF16,
		     SIZE, COMPUTE_F32, DEFAULT_ALGORITHM))
		bench_gpu_fail("cuBLAS", "cublasGemmEx failed");
}

double bench_gpu_gemm_limit(struct bench_gpu *gpu)
{
	double us;

	if (!gemm.tried)
		open_gemm(gpu);
	if (!gemm.run)
		return 0;
	us = bench_gpu_time(gpu, multiply, NULL);
	return us > 0 ? 2.0 * SIZE * SIZE * SIZE / us * 1e-6 : 0;
}
