/* SPDX-License-Identifier: Apache-2.0 */
/* What the launchers share: the checks that need no look at device memory, and the launch itself. */
#ifndef KVPOOL_KERNELS_CUDA_ENQUEUE_H
#define KVPOOL_KERNELS_CUDA_ENQUEUE_H

#include "../check.h"
#include "args.h"
#include "launch.h"

/* An array of `rank` dimensions; see kvk_check_array(). */
#define KVK_ARRAY(base_, element_bytes_, rank_, dimensions, ...)                                             \
	kvk_check_array(&(const struct kvk_array){.base = (base_),                                           \
						  .element_bytes = (element_bytes_),                         \
						  .rank = (rank_),                                           \
						  .sizes = {KVK_LIST dimensions},                            \
						  .strides = {__VA_ARGS__}})
#define KVK_LIST(...) __VA_ARGS__

#define KVK_ALL_OF(...)                                                                                      \
	kvk_first_error((const int[]){__VA_ARGS__}, sizeof((const int[]){__VA_ARGS__}) / sizeof(int))

/* The first that is not 0, or 0. */
int kvk_first_error(const int *results, size_t count);

/* -EINVAL for a struct that is not complete. */
int kvk_cuda_check_device(const struct kvk_cuda_device *device);

/* Address and strides (elements) are multiples of `alignment` bytes; else -EINVAL. */
int kvk_cuda_check_aligned(const void *base, size_t alignment, size_t element_bytes, const int64_t *strides,
			   int count);

/* `units` of work in blocks of `threads`: at most 2^31 - 1 blocks, the kernels walk on from there. */
int kvk_cuda_enqueue(const struct kvk_cuda_device *device, const char *kernel, int64_t units,
		     uint32_t threads, uint32_t shared_bytes, const void *args, size_t args_bytes);

/* The same for a launch that is complete but for its blocks. */
int kvk_cuda_enqueue_launch(const struct kvk_cuda_device *device, int64_t units,
			    const struct kvk_cuda_launch *launch);

/* Cuts scratch into arrays: the offset of the next one of `bytes`. Saturates at INT64_MAX. */
int64_t kvk_cuda_place(int64_t *used, int64_t count, int64_t bytes);
int kvk_cuda_scratch_size(int64_t used, size_t *out_bytes);
/* The caller's scratch holds `used` bytes. */
int kvk_cuda_check_scratch(const void *scratch, size_t bytes, int64_t used);

/* NULL where there is no scratch. */
static inline void *kvk_cuda_at(void *scratch, int64_t offset)
{
	return scratch ? (char *)scratch + offset : NULL;
}

/* Merges `splits` partials (0: those of num_splits) of each row; args is complete but for them. */
int kvk_cuda_enqueue_combine(const struct kvk_cuda_device *device, const struct kvk_cuda_combine_args *args);

#endif
