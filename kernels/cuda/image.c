/* SPDX-License-Identifier: Apache-2.0 */
/* KVK_CUDA_FATBIN is the file's path, where the build has one. */
#include "image.h"

#ifdef KVK_CUDA_FATBIN
__asm__(".section .rodata\n"
	".balign 64\n"
	".hidden kvk_cuda_image_begin\n"
	".globl kvk_cuda_image_begin\n"
	"kvk_cuda_image_begin:\n"
	".incbin \"" KVK_CUDA_FATBIN "\"\n"
	".hidden kvk_cuda_image_end\n"
	".globl kvk_cuda_image_end\n"
	"kvk_cuda_image_end:\n"
	".byte 0\n"
	".previous\n");

extern const char kvk_cuda_image_begin[] __attribute__((visibility("hidden")));
extern const char kvk_cuda_image_end[] __attribute__((visibility("hidden")));

const void *kvk_cuda_image(size_t *out_bytes)
{
	*out_bytes = (size_t)(kvk_cuda_image_end - kvk_cuda_image_begin);
	return kvk_cuda_image_begin;
}
#else
const void *kvk_cuda_image(size_t *out_bytes)
{
	*out_bytes = 0;
	return NULL;
}
#endif
