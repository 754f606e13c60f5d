/* SPDX-License-Identifier: Apache-2.0 */
/* The lines, and what part of its limit each is to reach. */
#include "kernel_case.h"

/* "within 10 % of bf16" has no limit of its own: see fp8_lines() in bench_kernels.c. */
#define MLA(name_, dtype_, heads_, batch_, context_, target_)                                                \
	{                                                                                                    \
		.name = (name_), .kernel = &bench_mla, .kind = BENCH_FMA, .target = (target_),               \
		.heads = (heads_), .batch = (batch_), .context = (context_), .form = (dtype_)                \
	}
#define SPARSE(name_, kernel_, kind_, form_, target_)                                                        \
	{                                                                                                    \
		.name = (name_), .kernel = (kernel_), .kind = (kind_), .target = (target_),                  \
		.heads = 16 * BENCH_KV_HEADS, .context = BENCH_POOL_TOKENS, .form = (form_)                  \
	}
#define DENSE(name_, form_)                                                                                  \
	{                                                                                                    \
		.name = (name_), .kernel = &bench_gqa, .kind = BENCH_FMA, .target = 0.65,                    \
		.heads = 16 * BENCH_KV_HEADS, .context = 8192, .form = (form_)                               \
	}
#define WRITE(name_, kernel_, form_)                                                                         \
	{                                                                                                    \
		.name = (name_), .kernel = (kernel_), .kind = BENCH_COPY, .target = 0.8, .form = (form_)     \
	}

struct bench_case bench_cases[] = {
	MLA("mla_bf16_h128_b1", KVK_BF16, 128, 1, 8192, 0.75),
	MLA("mla_bf16_h128_b8", KVK_BF16, 128, 8, 8192, 0.75),
	MLA("mla_bf16_h16_b1", KVK_BF16, 16, 1, 4096, 0.65),
	MLA("mla_bf16_h16_b8", KVK_BF16, 16, 8, 4096, 0.65),
	MLA("mla_fp8_h16_b1", KVK_MLA_FP8, 16, 1, 4096, 0),
	MLA("mla_fp8_h128_b1", KVK_MLA_FP8, 128, 1, 8192, 0),
	{.name = "msa_index_128k",
	 .kernel = &bench_scores,
	 .kind = BENCH_READ,
	 .target = 0.85,
	 .heads = 4,
	 .context = 131072},
	SPARSE("msa_sparse", &bench_sparse, BENCH_FMA, BENCH_HND, 0.6),
	SPARSE("msa_sparse_nhd", &bench_sparse, BENCH_FMA, BENCH_NHD, 0.6),
	/* The same call against the memory it reads. */
	SPARSE("msa_sparse_nhd_read", &bench_sparse_read, BENCH_READ, BENCH_NHD, 0),
	DENSE("gqa_dense", BENCH_HND),
	DENSE("gqa_dense_nhd", BENCH_NHD),
	WRITE("write_mla", &bench_mla_write, 0),
	WRITE("write_nhd", &bench_kv_write, BENCH_NHD),
	WRITE("write_hnd", &bench_kv_write, BENCH_HND),
};
const size_t bench_case_count = sizeof(bench_cases) / sizeof(*bench_cases);
