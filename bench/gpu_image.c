/* SPDX-License-Identifier: Apache-2.0 */
/* The benchmark's own kernel, compiled by nvcc; BENCH_GPU_FATBIN is the file's path. */
#include "gpu.h"

__asm__(".section .rodata\n"
	".balign 64\n"
	".hidden bench_gpu_image_begin\n"
	".globl bench_gpu_image_begin\n"
	"bench_gpu_image_begin:\n"
	".incbin \"" BENCH_GPU_FATBIN "\"\n"
	".byte 0\n"
	".previous\n");

extern const char bench_gpu_image_begin[] __attribute__((visibility("hidden")));

const void *bench_gpu_image(void)
{
	return bench_gpu_image_begin;
}
