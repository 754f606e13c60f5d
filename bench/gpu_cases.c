/* SPDX-License-Identifier: Apache-2.0 */
/* The lines, and what their arrays have in common. */
#include "gpu_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvpool/kvpool.h>

#include "pool.h"

#define MLA_BY(name_, dtype_, heads_, block_major_, against_, target_, by_warps_)                            \
	{                                                                                                    \
		.name = (name_), .op = &gpu_mla, .against = (against_), .target = (target_),                 \
		.heads = (heads_), .batch = 128, .s_q = 1, .context = 4096, .dtype = (dtype_),               \
		.block_major = (block_major_), .by_warps = (by_warps_)                                       \
	}
#define MLA(name_, dtype_, heads_, block_major_, against_, target_)                                          \
	MLA_BY(name_, dtype_, heads_, block_major_, against_, target_, false)
#define MLA_SPARSE(name_, heads_, s_q_, against_)                                                            \
	{                                                                                                    \
		.name = (name_), .op = &gpu_mla_sparse, .against = (against_), .heads = (heads_),            \
		.batch = 128, .s_q = (s_q_), .topk = 2048, .context = 8192, .dtype = KVK_MLA_FP8             \
	}
#define MSA(name_, op_, batch_, context_, dtype_, target_)                                                   \
	{                                                                                                    \
		.name = (name_), .op = (op_), .against = GPU_READ, .target = (target_), .batch = (batch_),   \
		.context = (context_), .topk = 16, .dtype = (dtype_)                                         \
	}
#define WRITE(name_, op_, dtype_)                                                                            \
	{                                                                                                    \
		.name = (name_), .op = (op_), .against = GPU_READ, .target = 0.85, .batch = 131072,          \
		.dtype = (dtype_)                                                                            \
	}

struct gpu_case gpu_cases[] = {
	MLA("mla_bf16_h16_layer_major", KVK_BF16, 16, false, GPU_READ, 0.85),
	MLA("mla_bf16_h16_block_major", KVK_BF16, 16, true, GPU_READ, 0.85),
	MLA("mla_bf16_h32_layer_major", KVK_BF16, 32, false, GPU_READ, 0.85),
	MLA("mla_bf16_h32_block_major", KVK_BF16, 32, true, GPU_READ, 0.85),
	MLA("mla_bf16_h128_layer_major", KVK_BF16, 128, false, GPU_GEMM, 0.75),
	MLA("mla_bf16_h128_block_major", KVK_BF16, 128, true, GPU_GEMM, 0.75),
	/* The first of them without warpgroups. */
	MLA_BY("mla_bf16_h128_by_mma", KVK_BF16, 128, false, GPU_GEMM, 0, true),
	MLA("mla_fp8_h16_layer_major", KVK_MLA_FP8, 16, false, GPU_READ, 0),
	MLA("mla_fp8_h128_layer_major", KVK_MLA_FP8, 128, false, GPU_GEMM, 0),
	MLA_SPARSE("mla_sparse_fp8_h16", 16, 1, GPU_READ),
	MLA_SPARSE("mla_sparse_fp8_h128_q2", 128, 2, GPU_GEMM),
	MSA("msa_index_bf16_b32_64k", &gpu_scores, 32, 65536, KVK_BF16, 0.88),
	MSA("msa_index_fp8_b32_64k", &gpu_scores, 32, 65536, KVK_E4M3, 0),
	MSA("msa_sparse_b8", &gpu_sparse, 8, 65536, KVK_BF16, 0),
	MSA("msa_sparse_b32", &gpu_sparse, 32, 65536, KVK_BF16, 0.85),
	MSA("msa_sparse_b128", &gpu_sparse, 128, 32768, KVK_BF16, 0.85),
	MSA("gqa_dense_b32_8k", &gpu_gqa, 32, 8192, KVK_BF16, 0),
	WRITE("write_mla_bf16", &gpu_mla_write, KVK_BF16),
	WRITE("write_mla_fp8", &gpu_mla_write, KVK_MLA_FP8),
	WRITE("write_kv_nhd", &gpu_kv_write, KVK_BF16),
	{.name = "correct_lens_b128",
	 .op = &gpu_correct,
	 .against = GPU_TIME,
	 .target = 1,
	 .limit_us = 5,
	 .batch = 128,
	 .context = 8192},
};
const size_t gpu_case_count = sizeof(gpu_cases) / sizeof(*gpu_cases);

const int32_t *gpu_random_ids(struct bench_gpu *gpu, int64_t count, int32_t bound)
{
	int32_t *order = bench_shuffle(bound);
	int32_t *ids = bench_memory((size_t)count * sizeof(*ids));
	const int32_t *there;

	for (int64_t i = 0; i < count; i++)
		ids[i] = i < bound ? order[i] : (int32_t)bench_random((uint32_t)bound);
	there = bench_gpu_copy_of(gpu, ids, (size_t)count * sizeof(*ids));
	free(order);
	free(ids);
	return there;
}

int32_t *gpu_constant(struct bench_gpu *gpu, int32_t count, int32_t value)
{
	const uint64_t to = bench_gpu_memory(gpu, (size_t)count * sizeof(value));

	GPU_CALL(gpu, cuMemsetD32Async, to, (uint32_t)value, (size_t)count, gpu->stream);
	return (int32_t *)(uintptr_t)to;
}

void *gpu_scratch(struct bench_gpu *gpu, int ret, const size_t *bytes)
{
	if (ret)
		bench_gpu_fail("scratch", kvp_error_name(ret));
	return (void *)(uintptr_t)bench_gpu_memory(gpu, *bytes);
}

void *gpu_output(struct gpu_case *self, struct bench_gpu *gpu, size_t elements, uint32_t dtype)
{
	self->out_dtype = dtype;
	self->out_bytes = elements * (dtype == KVK_F32 ? 4 : 2);
	self->out = (void *)(uintptr_t)bench_gpu_memory(gpu, self->out_bytes);
	return self->out;
}
