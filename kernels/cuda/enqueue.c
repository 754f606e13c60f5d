/* SPDX-License-Identifier: Apache-2.0 */
#include "enqueue.h"

#include <errno.h>
#include <stdint.h>

int kvk_first_error(const int *results, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (results[i])
			return results[i];
	return 0;
}

int kvk_cuda_check_device(const struct kvk_cuda_device *device)
{
	if (!device || device->size < sizeof(*device) || !device->launch || device->units < 1)
		return -EINVAL;
	if (device->flags & ~(KVK_CUDA_PLAN_READY | KVK_CUDA_WARPGROUPS))
		return -EINVAL;
	return device->split_keys < 0 || device->split_keys % 64 ? -EINVAL : 0;
}

int kvk_cuda_check_aligned(const void *base, size_t alignment, size_t element_bytes, const int64_t *strides,
			   int count)
{
	if ((uintptr_t)base % alignment)
		return -EINVAL;
	for (int i = 0; i < count; i++)
		if (strides[i] % (int64_t)(alignment / element_bytes))
			return -EINVAL;
	return 0;
}

int kvk_cuda_enqueue(const struct kvk_cuda_device *device, const char *kernel, int64_t units,
		     uint32_t threads, uint32_t shared_bytes, const void *args, size_t args_bytes)
{
	const struct kvk_cuda_launch launch = {.kernel = kernel,
					       .threads = threads,
					       .shared_bytes = shared_bytes,
					       .args_bytes = (uint32_t)args_bytes,
					       .args = args};

	return kvk_cuda_enqueue_launch(device, units, &launch);
}

int kvk_cuda_enqueue_launch(const struct kvk_cuda_device *device, int64_t units,
			    const struct kvk_cuda_launch *launch)
{
	struct kvk_cuda_launch whole = *launch;

	whole.blocks = (uint32_t)(units < INT32_MAX ? units : INT32_MAX);
	return units > 0 ? device->launch(device->context, &whole) : 0;
}

int64_t kvk_cuda_place(int64_t *used, int64_t count, int64_t bytes)
{
	const int64_t at = *used;
	int64_t end;

	if (__builtin_mul_overflow(count, bytes, &end) || __builtin_add_overflow(end, at, &end) ||
	    __builtin_add_overflow(end, KVK_CUDA_SCRATCH_ALIGN - 1, &end))
		*used = INT64_MAX;
	else
		*used = end / KVK_CUDA_SCRATCH_ALIGN * KVK_CUDA_SCRATCH_ALIGN;
	return at;
}

int kvk_cuda_scratch_size(int64_t used, size_t *out_bytes)
{
	if (used == INT64_MAX)
		return -EOVERFLOW;
	*out_bytes = (size_t)used;
	return 0;
}

int kvk_cuda_check_scratch(const void *scratch, size_t bytes, int64_t used)
{
	if (used == INT64_MAX)
		return -EOVERFLOW;
	if (bytes < (size_t)used)
		return -ENOSPC;
	return used && (!scratch || (uintptr_t)scratch % KVK_CUDA_SCRATCH_ALIGN) ? -EINVAL : 0;
}

int kvk_cuda_enqueue_combine(const struct kvk_cuda_device *device, const struct kvk_cuda_combine_args *args)
{
	const int64_t rows = (int64_t)args->batch * args->s_q * args->heads;

	return kvk_cuda_enqueue(device, "kvk_cuda_combine", (rows + 3) / 4, 128, 0, args, sizeof(*args));
}

int kvk_combine_cuda(const struct kvk_cuda_device *device, const struct kvk_combine_params *params)
{
	struct kvk_combine_params p;
	struct kvk_cuda_combine_args args;
	int ret = kvk_take_params(&p, sizeof(p), params);

	if (!ret)
		ret = kvk_cuda_check_device(device);
	if (ret || !p.batch)
		return ret;
	if (p.flags || p.batch < 0 || p.s_q < 1 || p.heads < 1 || p.dim < 1 || p.dim > KVK_MAX_HEAD_DIM ||
	    p.partials < 0)
		return -EINVAL;
	ret = KVK_ALL_OF(kvk_check_dtype(p.out_dtype, 1u << KVK_BF16 | 1u << KVK_F16 | 1u << KVK_F32),
			 KVK_ARRAY(p.partial_out, 4, 1, (1), NULL), KVK_ARRAY(p.partial_lse, 4, 1, (1), NULL),
			 KVK_ARRAY(p.num_splits, 4, 1, (p.batch + 1ll), NULL),
			 KVK_ARRAY(p.out, kvk_dtype_bytes(p.out_dtype), 4, (p.batch, p.s_q, p.heads, p.dim),
				   &p.out_stride_batch, &p.out_stride_query, &p.out_stride_head),
			 p.lse ? KVK_ARRAY(p.lse, 4, 3, (p.batch, p.heads, p.s_q), &p.lse_stride_batch,
					   &p.lse_stride_head)
			       : 0);
	if (ret)
		return ret;
	args = (struct kvk_cuda_combine_args){.partial_out = p.partial_out,
					      .partial_lse = p.partial_lse,
					      .num_splits = p.num_splits,
					      .sink = p.sink,
					      .out = p.out,
					      .lse = p.lse,
					      .out_stride_batch = p.out_stride_batch,
					      .out_stride_query = p.out_stride_query,
					      .out_stride_head = p.out_stride_head,
					      .lse_stride_batch = p.lse_stride_batch,
					      .lse_stride_head = p.lse_stride_head,
					      .batch = p.batch,
					      .s_q = p.s_q,
					      .heads = p.heads,
					      .dim = p.dim,
					      .partials = p.partials,
					      .out_dtype = p.out_dtype};
	return kvk_cuda_enqueue_combine(device, &args);
}
