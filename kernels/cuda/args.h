/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels' parameters, one struct by value each: what the public structs of kvpool/kernels.h say, with
 * every stride filled in, plus what only the device needs. Host and device compile this; the sizes are
 * fixed here, and a test compares them with those in the compiled image.
 */
#ifndef KVPOOL_KERNELS_CUDA_ARGS_H
#define KVPOOL_KERNELS_CUDA_ARGS_H

#include <kvpool/kernels.h>

#include "stage.h"

#ifdef __cplusplus
#define KVK_STATIC_ASSERT static_assert
#else
#define KVK_STATIC_ASSERT _Static_assert
#endif

/* Dynamic shared memory of a block, in bytes; the kernels static_assert them. */
#define KVK_CUDA_MLA_R16_SHARED 96048
#define KVK_CUDA_MLA_R32_SHARED 116528
#define KVK_CUDA_MLA_R64_SHARED 156464
#define KVK_CUDA_MLA_G64_SHARED 232448
#define KVK_CUDA_MLA_R16_FP8_SHARED 80928
#define KVK_CUDA_MLA_R32_FP8_SHARED 102688
#define KVK_CUDA_MLA_R64_FP8_SHARED 145184
#define KVK_CUDA_PLAN_SHARED 34816
#define KVK_CUDA_CORRECT_SHARED 100360
#define KVK_CUDA_GQA_64_SHARED 45328
#define KVK_CUDA_GQA_128_SHARED 80144

#define KVK_CUDA_MAX_TOPK 64 /* of msa_sparse */

/* Dense MLA by a plan, sparse MLA by equal pieces of each list. */
struct kvk_cuda_mla_args {
	const void *q;
	const void *kv;
	const int32_t *block_table; /* dense */
	const int32_t *lens;        /* dense */
	const int32_t *indices;     /* sparse */
	const int32_t *topk_length; /* sparse, or NULL */
	const float *sink;          /* or NULL */
	void *out;
	float *lse; /* or NULL */

	const struct kvk_mla_plan_part *plan; /* dense: [parts] */
	const int32_t *num_splits;            /* dense: [batch + 1] */
	float *partial_out;                   /* [partials, s_q, heads, 512] */
	float *partial_lse;                   /* [partials, s_q, heads], log2 */

	int64_t q_stride_batch, q_stride_query, q_stride_head; /* elements */
	int64_t kv_page_bytes, kv_token_bytes;
	int64_t table_stride;
	int64_t indices_stride_batch, indices_stride_query;
	int64_t out_stride_batch, out_stride_query, out_stride_head;
	int64_t lse_stride_batch, lse_stride_head;

	int32_t batch, s_q, heads;
	int32_t page_tokens, pages, table_width;
	int32_t topk;
	int32_t causal;
	int32_t parts;       /* dense: of the plan */
	int32_t plan_tokens; /* dense: keys per block of the plan */
	int32_t splits;      /* sparse: pieces of a list; 1: no partials */
	int32_t split_keys;  /* sparse: entries of a piece */
	int32_t partials;    /* room in the partial buffers */
	uint32_t out_dtype;
	float scale;
	uint32_t reserved;
};

KVK_STATIC_ASSERT(sizeof(struct kvk_cuda_mla_args) == 272, "the device's layout");

/*
 * Halves [pages, tokens, width] that the device's copy engine fetches in boxes of KVK_CUDA_BOX tokens by as many
 * columns, swizzled by 128 bytes. Whoever launches puts the driver's map of it (CUtensorMap, as large) in its
 * place; the kernel sees that alone.
 */
#define KVK_CUDA_BOX 64
struct kvk_cuda_tensor {
	const void *base;
	uint64_t width, tokens, pages;
	uint64_t token_bytes, page_bytes; /* multiples of 16, below 2^40 */
	uint64_t reserved[10];
} __attribute__((aligned(64)));

KVK_STATIC_ASSERT(sizeof(struct kvk_cuda_tensor) == 128, "a map has 128 bytes");

/* Dense MLA by warpgroups. */
struct kvk_cuda_mla_group_args {
	struct kvk_cuda_tensor keys;
	struct kvk_cuda_mla_args mla;
	uint32_t boxed; /* keys is there */
	uint32_t reserved[11];
};

KVK_STATIC_ASSERT(sizeof(struct kvk_cuda_mla_group_args) == 448, "the device's layout");

/* Dense grouped attention and MSA's sparse one: a row, a KV head and a piece of its keys at a time. */
struct kvk_cuda_gqa_args {
	const void *q, *k, *v;
	const int32_t *selected; /* sparse */
	const int32_t *block_table;
	const int32_t *lens;
	const int32_t *cu_q; /* or NULL */
	void *out;
	float *lse;         /* or NULL */
	float *partial_out; /* [rows * splits, heads, head_dim] */
	float *partial_lse; /* [rows * splits, heads], log2 */

	int64_t q_stride_row, q_stride_head; /* elements, but for those in bytes */
	int64_t k_page_bytes, k_token_bytes, k_head_bytes;
	int64_t v_page_bytes, v_token_bytes, v_head_bytes;
	int64_t selected_stride_head, selected_stride_row;
	int64_t table_stride;
	int64_t out_stride_row, out_stride_head;
	int64_t lse_stride_row;

	int32_t batch, s_q, rows;
	int32_t heads, kv_heads, head_dim;
	int32_t block_tokens, topk;
	int32_t page_tokens, pages, table_width;
	int32_t causal;
	int32_t splits;     /* pieces of a row's keys; 1: no partials */
	int32_t split_keys; /* keys of a piece */
	uint32_t q_dtype, kv_dtype, out_dtype;
	float scale;
};

KVK_STATIC_ASSERT(sizeof(struct kvk_cuda_gqa_args) == 272, "the device's layout");

struct kvk_cuda_combine_args {
	const float *partial_out;
	const float *partial_lse;
	const int32_t *num_splits; /* [batch + 1], or NULL: `splits` partials each */
	const float *sink;         /* or NULL */
	void *out;
	float *lse; /* or NULL */
	int64_t out_stride_batch, out_stride_query, out_stride_head;
	int64_t lse_stride_batch, lse_stride_head;
	int32_t batch, s_q, heads, dim;
	int32_t splits;
	int32_t partials; /* sequences whose partials lie past it are left alone */
	uint32_t out_dtype;
	uint32_t reserved;
};

KVK_STATIC_ASSERT(sizeof(struct kvk_cuda_combine_args) == 120, "the device's layout");

struct kvk_cuda_plan_args {
	const int32_t *lens;
	struct kvk_mla_plan_part *plan;
	int32_t *num_splits;
	int32_t batch, parts, block_tokens, overhead;
	int32_t split_blocks; /* 0: equal parts; else pieces of that many blocks, whatever else is there */
	int32_t most_blocks;  /* a length counts as at most that many */
};

KVK_STATIC_ASSERT(sizeof(struct kvk_cuda_plan_args) == 48, "the device's layout");

struct kvk_cuda_mla_write_args {
	const void *latent, *rope, *slots;
	void *kv;
	int64_t latent_stride, rope_stride;
	int64_t kv_stride_page, kv_stride_token;
	int32_t tokens, page_tokens, pages;
	uint32_t slot_bytes, src_dtype, kv_dtype;
};

KVK_STATIC_ASSERT(sizeof(struct kvk_cuda_mla_write_args) == 88, "the device's layout");

struct kvk_cuda_kv_write_args {
	const void *k, *v, *slots;
	void *k_cache, *v_cache;
	int64_t k_stride_token, k_stride_head;
	int64_t v_stride_token, v_stride_head;
	int64_t k_cache_stride_page, k_cache_stride_token, k_cache_stride_head;
	int64_t v_cache_stride_page, v_cache_stride_token, v_cache_stride_head;
	int32_t tokens, heads, head_dim, page_tokens, pages;
	uint32_t slot_bytes, src_dtype, cache_dtype;
	int32_t vector_bytes; /* 16: equal dtypes, every run of head_dim aligned and whole; else 0 */
	uint32_t reserved;
};

KVK_STATIC_ASSERT(sizeof(struct kvk_cuda_kv_write_args) == 160, "the device's layout");

struct kvk_cuda_scores_args {
	const void *index_q, *index_k;
	const int32_t *block_table;
	const int32_t *lens;
	const int32_t *cu_q; /* or NULL */
	float *score;
	int32_t *n_valid; /* or NULL */
	int64_t q_stride_row, q_stride_head;
	int64_t k_stride_page, k_stride_token;
	int64_t table_stride;
	int64_t score_stride_head, score_stride_row;
	int32_t batch, s_q, rows, index_heads, dim, block_tokens, blocks, page_tokens, pages, table_width;
	uint32_t q_dtype, k_dtype;
};

KVK_STATIC_ASSERT(sizeof(struct kvk_cuda_scores_args) == 160, "the device's layout");

struct kvk_cuda_select_args {
	const float *score;
	const int32_t *n_valid;
	int32_t *selected;
	int64_t score_stride_head, score_stride_row;
	int64_t selected_stride_head, selected_stride_row;
	int32_t heads, rows, blocks, topk, init_blocks, local_blocks;
};

KVK_STATIC_ASSERT(sizeof(struct kvk_cuda_select_args) == 80, "the device's layout");

#define KVK_CUDA_CORRECT_PARTS 8

/* See kvpool/prep.h. */
struct kvk_cuda_correct_part {
	int32_t *kv_segment_lens, *qo_offset, *seqused_k;
	int32_t first, last;
	int32_t sparse_flavour;
	int32_t kv_segment_rows, qo_offset_rows, seqused_rows;
};

struct kvk_cuda_correct_args {
	const int32_t *qo_lens, *staged, *corrected, *table;
	void *slots;
	int32_t *n_valid, *seq_lens;
	int32_t *cu_kv;  /* or NULL */
	int32_t *faults; /* [part_count] parts whose rows match neither count, or NULL */
	int64_t table_stride;
	int32_t batch, page_tokens, table_width, room;
	uint32_t slot_bytes;
	int32_t newest;
	int32_t part_count;
	int32_t valid_tokens; /* of a block of n_valid */
	uint32_t reserved;
	int32_t pages; /* table holds page ids; a token before position 0 is written nowhere */
	struct kvk_cuda_correct_part parts[KVK_CUDA_CORRECT_PARTS];
};

KVK_STATIC_ASSERT(sizeof(struct kvk_cuda_correct_args) == 504, "the device's layout");

/*
 * Copies of blocks, or of rows in another layout: `rows` pieces of `row_bytes` a block, each with strides
 * of its own.
 */
struct kvk_cuda_block_copy_args {
	const void *from;
	void *to;
	const int32_t *from_ids, *to_ids;           /* [blocks]; a negative one is padding */
	int64_t from_stride_block, to_stride_block; /* bytes, all */
	int64_t from_stride_outer, to_stride_outer;
	int64_t from_stride_inner, to_stride_inner;
	int64_t row_bytes;
	int32_t blocks, outer, inner; /* a block is [outer, inner] rows */
	int32_t from_blocks, to_blocks;
	int32_t vector_bytes; /* 16, 4 or 1: divides row_bytes, strides and addresses */
};

KVK_STATIC_ASSERT(sizeof(struct kvk_cuda_block_copy_args) == 112, "the device's layout");

/*
 * The rectangle of a step from rows that stay on the device: to[i] = from[rows[i]]; a row < 0 gives `fill`.
 */
struct kvk_cuda_gather_args {
	const int32_t *from;   /* [from_rows, width] */
	const int32_t *rows;   /* [count] */
	int32_t *to;           /* [count, width] */
	int32_t *list;         /* rows end to end, or NULL */
	const int32_t *indptr; /* [count + 1] where each begins in it */
	int64_t from_stride, to_stride;
	int32_t count, width, from_rows, fill;
	int32_t room; /* entries of list */
	uint32_t reserved;
};

KVK_STATIC_ASSERT(sizeof(struct kvk_cuda_gather_args) == 80, "the device's layout");

struct kvk_cuda_stage_args {
	const struct kvk_stage_run *runs; /* [run_count] */
	const int32_t *from;              /* [positions, width] */
	int32_t *to;                      /* [rows, width] */
	int64_t from_stride, to_stride;
	int32_t run_count, array_count;
	int32_t positions, rows, width;
	uint32_t reserved;
	struct kvk_stage_array arrays[KVK_STAGE_ARRAYS];
};

KVK_STATIC_ASSERT(sizeof(struct kvk_cuda_stage_args) == 64 + 24 * KVK_STAGE_ARRAYS, "the device's layout");

#endif
