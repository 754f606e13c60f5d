/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A line of bench_gpu: what is launched, and what it is held against. Bytes and operations are counted as FlashMLA counts
 * them: queries, each key or cache row once, and outputs; two for each multiply-add of scores and of values.
 */
#ifndef KVPOOL_BENCH_GPU_CASE_H
#define KVPOOL_BENCH_GPU_CASE_H

#include "gpu.h"

#include <kvpool/prep.h>

enum gpu_against {
	GPU_READ, /* GB/s beside a plain read */
	GPU_GEMM, /* TFLOP/s beside cuBLAS */
	GPU_TIME  /* us, at most limit_us; 0: no limit */
};

struct gpu_case;

struct gpu_op {
	/* Fills params, bytes, flop, out. */
	void (*open)(struct gpu_case *self, struct bench_gpu *gpu);
	/* Queues it; 0 or an error. */
	int (*run)(const struct gpu_case *self, const struct kvk_cuda_device *device);
};

struct gpu_case {
	const char *name;
	const struct gpu_op *op;
	enum gpu_against against;
	double target; /* of the ratio; 0: none */
	double limit_us;
	int32_t heads, batch, s_q, context, topk;
	uint32_t dtype;   /* of the cache */
	bool block_major; /* a layer's pages lie a whole block of all layers apart */
	bool by_warps;    /* by mma where warpgroups could do it */
	double bytes, flop;
	/* An output, of bf16 or f32: no NaN may be left in it. NULL: not looked at. */
	void *out;
	size_t out_bytes;
	uint32_t out_dtype;
	int32_t layers; /* that the pool has, one of which is used */
	union {
		struct kvk_mla_dense_params mla;
		struct kvk_mla_sparse_params mla_sparse;
		struct kvk_gqa_dense_params gqa;
		struct kvk_msa_scores_params scores;
		struct kvk_msa_sparse_params sparse;
		struct kvk_mla_write_params mla_write;
		struct kvk_kv_write_params kv_write;
		struct kvk_prep_correct_params correct;
	} params;
};

extern struct gpu_case gpu_cases[];
extern const size_t gpu_case_count;

extern const struct gpu_op gpu_mla, gpu_mla_sparse, gpu_scores, gpu_sparse, gpu_gqa, gpu_mla_write,
	gpu_kv_write, gpu_correct;

/* [count] random ids of [0, bound), on the device; without repetition where count <= bound. */
const int32_t *gpu_random_ids(struct bench_gpu *gpu, int64_t count, int32_t bound);
/* [count] times `value`, on the device. */
int32_t *gpu_constant(struct bench_gpu *gpu, int32_t count, int32_t value);
/* Scratch of a call: `ret` is what kvk_<op>_cuda_scratch() said, which is called before *bytes is read. */
void *gpu_scratch(struct bench_gpu *gpu, int ret, const size_t *bytes);
/* Remembers where the results are, for the check. */
void *gpu_output(struct gpu_case *self, struct bench_gpu *gpu, size_t elements, uint32_t dtype);

/* us of host time of kvp_batch_stage() for `seqs` sequences, the median; 0 in a rehearsal, which does all the rest. */
double gpu_staging_us(struct bench_gpu *gpu, uint32_t seqs);

#endif
