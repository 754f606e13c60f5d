/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpool/kernels.h: attention, selection and cache writes over paged KV caches.
 *
 * The kernels know neither daemon nor client: pointers, strides and lengths in, numbers out.
 * Each operation has
 *
 *	kvk_<op>_ref()	plain C in double precision: the specification, what other versions are tested against
 *	kvk_<op>()	the fastest version that exists for this machine
 *
 * and both take the same parameter struct. Rules that hold for all of them:
 *
 * - `size` is sizeof(the struct) as the caller compiled it. A shorter struct is extended with zeros; a longer
 *   one is accepted when what this library does not know is zero. Later releases may append fields.
 * - Strides count elements of the array's dtype (bytes for KVK_MLA_FP8 and KVK_E4M3). A stride of 0 means:
 *   contiguous in the shape that the pointer's comment gives. The last dimension is always contiguous.
 *   Strides are not negative.
 * - A pointer is required unless its comment says "or NULL". Arrays are owned by the caller and not kept.
 * - Outputs overlap no input. Calls on distinct outputs, and with distinct scratch, may run on several threads
 *   at once. Nothing is allocated, no lock taken, at most 256 KiB of stack used on each thread.
 * - `threads` are those that a call may use beside its own; NULL: the calling thread alone. Results are bitwise
 *   the same whatever their number. kvk_<op>_ref() ignores them.
 * - `scratch`, where an operation has it, is memory for kvk_<op>() to work in, aligned to KVK_SCRATCH_ALIGN, of
 *   at least the size that kvk_<op>_scratch() says; its content means nothing before or after. The size depends
 *   on sizes, dtypes, flags and the number of threads, not on pointers, strides, lengths or tables: those are not
 *   looked at, and a size asked for once holds for every call of that shape. It may be 0, and then scratch may be
 *   NULL. kvk_<op>_ref() needs none.
 * - Result: 0, or a negative errno, and then no output was written:
 *	-EINVAL		NULL where a pointer is required, a negative or impossible size, an unknown dtype or
 *			flag, a scale that is not finite and positive, a reserved field that is not zero,
 *			scratch that is NULL or not aligned, threads without a count or a run function
 *	-ENOSPC		scratch_bytes is less than kvk_<op>_scratch() says
 *	-ENOTSUP	a known dtype in a place that does not take it; kvk_<op>() also when $KVPOOL_KERNELS
 *			names a level that is unknown or that this machine lacks, see kvk_level_error()
 *	-E2BIG		`size` is larger than known here and the unknown tail is not zero
 *	-EOVERFLOW	the address of some element does not fit into 63 bits
 *	-ERANGE		a length, page id, slot or row offset in the used part of a table leaves its bounds
 * - Nothing to do (batch, rows or tokens 0) is success, and pointers are not looked at then.
 *
 * Padding is harmless: a length <= 0 is an empty sequence, whose table row is not read; table entries at or
 * past ceil(length / page_tokens) are not read; cache bytes of tokens that a query cannot see are never
 * multiplied, so they may hold NaN. A query that sees no key has out = 0 and lse = +INF, with or without a
 * sink.
 *
 * lse is the natural logarithm of the sum of exponentials, f32, and never includes the sink.
 */
#ifndef KVPOOL_KERNELS_H
#define KVPOOL_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KVK_API __attribute__((visibility("default")))

/* Element types. 0 is none, so that a forgotten field is refused. */
#define KVK_BF16 1u
#define KVK_F16 2u
#define KVK_F32 3u
#define KVK_E4M3 4u /* OCP FP8 e4m3fn: no infinity, 0x7f and 0xff are NaN, largest value 448 */
/*
 * One MLA token in 656 bytes, little-endian: 512 e4m3 latents; 4 f32 scales, one for each 128 latents,
 * powers of two when written here (readers accept any): value = e4m3 * scale; then 64 bf16 rope values.
 */
#define KVK_MLA_FP8 5u

#define KVK_MLA_LATENT 512        /* leading part of a key row; also the value row */
#define KVK_MLA_ROPE 64           /* trailing part of a key row */
#define KVK_MLA_WIDTH 576         /* elements of a key row: latent, then rope */
#define KVK_MLA_FP8_ROW_BYTES 656 /* a key row as KVK_MLA_FP8 */

#define KVK_MAX_HEAD_DIM 512 /* of gqa_dense, msa_scores, msa_sparse and combine: bounds their working set */

#define KVK_CAUSAL (1u << 0) /* flag: query i of n sees keys j < length - (n - 1 - i) instead of all */

/* Bytes of one element, the unit of strides (1 for KVK_MLA_FP8); 0 for an unknown dtype. */
KVK_API size_t kvk_dtype_bytes(uint32_t dtype);

/*
 * The vector instructions that kvk_<op>() uses: "avx512_bf16", "avx512", "avx2", "neon" or "scalar" (plain C).
 * Chosen once a process, at the first call: the first of these that the machine has; those with AVX-512 only
 * where a short self-test agrees with the reference. $KVPOOL_KERNELS, set to one of the names, forces that one;
 * when it cannot be had, nothing else is taken in its place: this is then "none", and every kvk_<op>() refuses
 * with -ENOTSUP. The reference is always there.
 */
KVK_API const char *kvk_level_name(void);

/*
 * Why kvk_level_name() is "none": a sentence with the variable, its value, what this machine has, and what to do. NULL when
 * kernels can be had. Static text.
 */
KVK_API const char *kvk_level_error(void);

#define KVK_SCRATCH_ALIGN 64
#define KVK_MAX_THREADS 1024

/* Task `index` of a run. It waits for no other task, so that a run may do them in any order, at once or not. */
typedef void (*kvk_task_fn)(void *arg, uint32_t index);

/*
 * Threads that a kernel may use. The caller owns them; kvp_threads_create() of kvpool.h makes some, and any pool can
 * be fitted. `run` calls task(arg, i) once for each i in [0, count) and returns when all have returned; what they
 * wrote is then visible to the caller. It's called by the thread that called the kernel.
 */
struct kvk_threads {
	uint32_t size;
	uint32_t count; /* tasks at the same time, 1 to KVK_MAX_THREADS */
	void *context;  /* of run */
	void (*run)(void *context, kvk_task_fn task, void *arg);
};

/*
 * Dense MLA decode in absorbed form (DeepSeek-V2/V3): one key row of 576 serves all heads, its first 512 are
 * the value.
 *	s[j] = scale * dot(q, kv[j]);  p = softmax(s);  out = sum_j p[j] * kv[j][:512]
 * with the sink, if any, as one more logit that has no value.
 * The formula is that of FlashMLA's dense decode; the model's scale is 192^-0.5 times its YaRN factor, never
 * a default.
 */
struct kvk_mla_dense_params {
	uint32_t size;
	uint32_t flags;      /* KVK_CAUSAL */
	int32_t batch;       /* sequences */
	int32_t s_q;         /* queries per sequence, >= 1 */
	int32_t heads;       /* query heads, >= 1; there is one KV head */
	int32_t page_tokens; /* tokens per page, >= 1 */
	int32_t pages;       /* pages in kv; ids at or above it are refused */
	int32_t table_width; /* columns of block_table */
	uint32_t q_dtype;    /* KVK_BF16, KVK_F16, KVK_F32 */
	uint32_t kv_dtype;   /* KVK_BF16, KVK_F16, KVK_F32, KVK_MLA_FP8 */
	uint32_t out_dtype;  /* KVK_BF16, KVK_F16, KVK_F32 */
	float scale;         /* of the logits, before softmax */

	const void *q;              /* [batch, s_q, heads, 576] q_dtype */
	const void *kv;             /* [pages, page_tokens, 576] kv_dtype ([.., 656] bytes as KVK_MLA_FP8) */
	const int32_t *block_table; /* [batch, table_width] page ids */
	const int32_t *lens;        /* [batch] tokens, the s_q newest included */
	const float *sink;          /* [heads] logits, +-INF allowed, or NULL */
	void *out;                  /* [batch, s_q, heads, 512] out_dtype */
	float *lse;                 /* [batch, heads, s_q], or NULL */

	int64_t q_stride_batch, q_stride_query, q_stride_head;
	int64_t kv_stride_page, kv_stride_token;
	int64_t table_stride;
	int64_t out_stride_batch, out_stride_query, out_stride_head;
	int64_t lse_stride_batch, lse_stride_head; /* the query dimension is contiguous */

	const struct kvk_threads *threads; /* or NULL */
	void *scratch;
	size_t scratch_bytes;
};

KVK_API int kvk_mla_dense(const struct kvk_mla_dense_params *params);
KVK_API int kvk_mla_dense_scratch(const struct kvk_mla_dense_params *params, size_t *out_bytes);
KVK_API int kvk_mla_dense_ref(const struct kvk_mla_dense_params *params);

/*
 * Sparse MLA decode over physical token slots (DeepSeek-V3.2's sparse attention): as above, over the listed
 * keys. Slot = page * page_tokens + offset. An index < 0 or >= pages * page_tokens is skipped; a slot listed
 * twice counts twice.
 */
struct kvk_mla_sparse_params {
	uint32_t size;
	uint32_t flags;      /* 0: the list is the mask */
	int32_t batch;       /* sequences */
	int32_t s_q;         /* queries per sequence, >= 1 */
	int32_t heads;       /* query heads, >= 1 */
	int32_t topk;        /* entries of a list */
	int32_t page_tokens; /* tokens per page, >= 1 */
	int32_t pages;       /* pages in kv */
	uint32_t q_dtype;    /* KVK_BF16, KVK_F16, KVK_F32 */
	uint32_t kv_dtype;   /* KVK_BF16, KVK_F16, KVK_F32, KVK_MLA_FP8 */
	uint32_t out_dtype;  /* KVK_BF16, KVK_F16, KVK_F32 */
	float scale;         /* of the logits */

	const void *q;              /* [batch, s_q, heads, 576] q_dtype */
	const void *kv;             /* [pages, page_tokens, 576] kv_dtype ([.., 656] bytes as KVK_MLA_FP8) */
	const int32_t *indices;     /* [batch, s_q, topk] slots */
	const int32_t *topk_length; /* [batch] leading entries used, clamped to [0, topk], or NULL: all */
	const float *sink;          /* [heads], or NULL */
	void *out;                  /* [batch, s_q, heads, 512] out_dtype */
	float *lse;                 /* [batch, heads, s_q], or NULL */

	int64_t q_stride_batch, q_stride_query, q_stride_head;
	int64_t kv_stride_page, kv_stride_token;
	int64_t indices_stride_batch, indices_stride_query;
	int64_t out_stride_batch, out_stride_query, out_stride_head;
	int64_t lse_stride_batch, lse_stride_head;

	const struct kvk_threads *threads; /* or NULL */
	void *scratch;
	size_t scratch_bytes;
};

KVK_API int kvk_mla_sparse(const struct kvk_mla_sparse_params *params);
KVK_API int kvk_mla_sparse_scratch(const struct kvk_mla_sparse_params *params, size_t *out_bytes);
KVK_API int kvk_mla_sparse_ref(const struct kvk_mla_sparse_params *params);

/*
 * Query rows of the operations below: sequence r has the rows [cu_q[r], cu_q[r + 1]), or, with cu_q NULL, [r
 * * s_q, (r + 1) * s_q). cu_q does not decrease and stays in [0, rows]. Query i of n in a sequence of length
 * len has position len - n + i. Rows of no sequence are padding and get the empty result.
 */

/*
 * Dense decode attention with grouped query heads: query heads [g * heads / kv_heads, (g + 1) * heads /
 * kv_heads) read KV head g.
 *	out = sum_j softmax_j(scale * dot(q, k[j])) * v[j]
 * K and V have their own base and strides, which covers NHD, HND, packed and split pages.
 */
struct kvk_gqa_dense_params {
	uint32_t size;
	uint32_t flags;      /* KVK_CAUSAL */
	int32_t batch;       /* sequences */
	int32_t s_q;         /* queries per sequence when cu_q is NULL, else 0 */
	int32_t rows;        /* query rows in q and out, padding included */
	int32_t heads;       /* query heads, a multiple of kv_heads */
	int32_t kv_heads;    /* >= 1 */
	int32_t head_dim;    /* 1 to KVK_MAX_HEAD_DIM */
	int32_t page_tokens; /* tokens per page, >= 1 */
	int32_t pages;       /* pages in k and v */
	int32_t table_width; /* columns of block_table */
	uint32_t q_dtype;    /* KVK_BF16, KVK_F16, KVK_F32 */
	uint32_t kv_dtype;   /* KVK_BF16, KVK_F16, KVK_F32 */
	uint32_t out_dtype;  /* KVK_BF16, KVK_F16, KVK_F32 */
	float scale;         /* of the logits */
	uint32_t reserved;   /* 0 */

	const void *q;              /* [rows, heads, head_dim] q_dtype */
	const void *k;              /* [pages, page_tokens, kv_heads, head_dim] kv_dtype */
	const void *v;              /* like k */
	const int32_t *block_table; /* [batch, table_width] page ids */
	const int32_t *lens;        /* [batch] tokens, the queries' own included */
	const int32_t *cu_q;        /* [batch + 1] row offsets, or NULL */
	void *out;                  /* [rows, heads, head_dim] out_dtype */
	float *lse;                 /* [rows, heads], or NULL */

	int64_t q_stride_row, q_stride_head;
	int64_t k_stride_page, k_stride_token, k_stride_head;
	int64_t v_stride_page, v_stride_token, v_stride_head;
	int64_t table_stride;
	int64_t out_stride_row, out_stride_head;
	int64_t lse_stride_row;

	const struct kvk_threads *threads; /* or NULL */
	void *scratch;
	size_t scratch_bytes;
};

KVK_API int kvk_gqa_dense(const struct kvk_gqa_dense_params *params);
KVK_API int kvk_gqa_dense_scratch(const struct kvk_gqa_dense_params *params, size_t *out_bytes);
KVK_API int kvk_gqa_dense_ref(const struct kvk_gqa_dense_params *params);

/*
 * MSA (MiniMax-M3) block scores. Block B holds the positions [B * block_tokens, (B + 1) * block_tokens) of a
 * sequence.
 *	score[h, t, B] = max over j in block B, j <= position(t), of dot(index_q[t, h], index_k[j])
 *	n_valid[t] = position(t) / block_tokens + 1, or 0 for a negative position
 * Blocks without a visible key score -INF. A NaN product makes its block's score NaN.
 */
struct kvk_msa_scores_params {
	uint32_t size;
	uint32_t flags;       /* 0: always causal */
	int32_t batch;        /* sequences */
	int32_t s_q;          /* queries per sequence when cu_q is NULL, else 0 */
	int32_t rows;         /* query rows, padding included */
	int32_t index_heads;  /* >= 1; index_k has one head */
	int32_t dim;          /* of an index vector, 1 to KVK_MAX_HEAD_DIM */
	int32_t block_tokens; /* tokens per scored block, >= 1 */
	int32_t blocks;       /* columns of score; more visible blocks than that are refused */
	int32_t page_tokens;  /* tokens per page of index_k, >= 1 */
	int32_t pages;        /* pages in index_k */
	int32_t table_width;  /* columns of block_table */
	uint32_t q_dtype;     /* KVK_BF16, KVK_F16, KVK_F32, KVK_E4M3 */
	uint32_t k_dtype;     /* KVK_BF16, KVK_F16, KVK_F32, KVK_E4M3 (cast without a scale) */

	const void *index_q;        /* [rows, index_heads, dim] q_dtype */
	const void *index_k;        /* [pages, page_tokens, dim] k_dtype */
	const int32_t *block_table; /* [batch, table_width] page ids */
	const int32_t *lens;        /* [batch] tokens, the queries' own included */
	const int32_t *cu_q;        /* [batch + 1] row offsets, or NULL */
	float *score;               /* [index_heads, rows, blocks] */
	int32_t *n_valid;           /* [rows], or NULL */

	int64_t q_stride_row, q_stride_head;
	int64_t k_stride_page, k_stride_token;
	int64_t table_stride;
	int64_t score_stride_head, score_stride_row;

	const struct kvk_threads *threads; /* or NULL */
	void *scratch;
	size_t scratch_bytes;
};

KVK_API int kvk_msa_scores(const struct kvk_msa_scores_params *params);
KVK_API int kvk_msa_scores_scratch(const struct kvk_msa_scores_params *params, size_t *out_bytes);
KVK_API int kvk_msa_scores_ref(const struct kvk_msa_scores_params *params);

/*
 * MSA selection, per head (index heads and KV heads are the same in number: nothing is pooled). In this
 * order: NaN counts as -1e30; blocks below init_blocks count as 1e30; the blocks [max(n_valid -
 * local_blocks, 0), n_valid) count as 1e29; blocks at or past n_valid, and scores of -INF, are never taken.
 * The topk best, equal ones by lower id, are written as ascending ids, then -1. The forced blocks are among
 * the topk, not in addition. n_valid above `blocks` ends the valid ones at `blocks`.
 */
struct kvk_msa_select_params {
	uint32_t size;
	uint32_t flags;       /* 0 */
	int32_t heads;        /* >= 1 */
	int32_t rows;         /* query rows */
	int32_t blocks;       /* columns of score */
	int32_t topk;         /* >= 1 */
	int32_t init_blocks;  /* leading blocks that are always taken (0 in M3) */
	int32_t local_blocks; /* trailing blocks that are always taken (1 in M3) */

	const float *score;     /* [heads, rows, blocks] */
	const int32_t *n_valid; /* [rows] */
	int32_t *selected;      /* [heads, rows, topk] logical block ids */

	int64_t score_stride_head, score_stride_row;
	int64_t selected_stride_head, selected_stride_row;

	const struct kvk_threads *threads; /* or NULL */
};

KVK_API int kvk_msa_select(const struct kvk_msa_select_params *params);
KVK_API int kvk_msa_select_ref(const struct kvk_msa_select_params *params);

/*
 * MSA sparse decode: dense GQA attention, always causal, over the union of the blocks selected for the row's
 * KV head. Ids come in any order; ids < 0 or past the row's last visible block are skipped; an id listed
 * twice counts once.
 */
struct kvk_msa_sparse_params {
	uint32_t size;
	uint32_t flags;       /* 0 */
	int32_t batch;        /* sequences */
	int32_t s_q;          /* queries per sequence when cu_q is NULL, else 0 */
	int32_t rows;         /* query rows, padding included */
	int32_t heads;        /* query heads, a multiple of kv_heads */
	int32_t kv_heads;     /* >= 1 */
	int32_t head_dim;     /* 1 to KVK_MAX_HEAD_DIM */
	int32_t block_tokens; /* tokens per selected block, >= 1 */
	int32_t topk;         /* entries of a selection */
	int32_t page_tokens;  /* tokens per page, >= 1 */
	int32_t pages;        /* pages in k and v */
	int32_t table_width;  /* columns of block_table */
	uint32_t q_dtype;     /* KVK_BF16, KVK_F16, KVK_F32 */
	uint32_t kv_dtype;    /* KVK_BF16, KVK_F16, KVK_F32 */
	uint32_t out_dtype;   /* KVK_BF16, KVK_F16, KVK_F32 */
	float scale;          /* of the logits */
	uint32_t reserved;    /* 0 */

	const void *q;              /* [rows, heads, head_dim] q_dtype */
	const void *k;              /* [pages, page_tokens, kv_heads, head_dim] kv_dtype */
	const void *v;              /* like k */
	const int32_t *selected;    /* [kv_heads, rows, topk] logical block ids */
	const int32_t *block_table; /* [batch, table_width] page ids */
	const int32_t *lens;        /* [batch] tokens, the queries' own included */
	const int32_t *cu_q;        /* [batch + 1] row offsets, or NULL */
	void *out;                  /* [rows, heads, head_dim] out_dtype */
	float *lse;                 /* [rows, heads], or NULL */

	int64_t q_stride_row, q_stride_head;
	int64_t k_stride_page, k_stride_token, k_stride_head;
	int64_t v_stride_page, v_stride_token, v_stride_head;
	int64_t selected_stride_head, selected_stride_row;
	int64_t table_stride;
	int64_t out_stride_row, out_stride_head;
	int64_t lse_stride_row;

	const struct kvk_threads *threads; /* or NULL */
	void *scratch;
	size_t scratch_bytes;
};

KVK_API int kvk_msa_sparse(const struct kvk_msa_sparse_params *params);
KVK_API int kvk_msa_sparse_scratch(const struct kvk_msa_sparse_params *params, size_t *out_bytes);
KVK_API int kvk_msa_sparse_ref(const struct kvk_msa_sparse_params *params);

/*
 * Slots of the cache writes: token t goes to slot s = slots[t]: page s / page_tokens, offset s %
 * page_tokens. A slot < 0 is padding: nothing is written. No two tokens of a call have the same slot.
 */

/*
 * MLA cache write: latent and rope side by side into one row. Equal dtypes are copied bit for bit; otherwise
 * values are rounded to nearest even. As KVK_MLA_FP8, per 128 latents: scale = 2^ceil(log2(max(amax / 448,
 * 1e-4))), e4m3 = value / scale, saturated at +-448; the rope becomes bf16. amax is over finite values;
 * infinities saturate, NaN stays NaN.
 */
struct kvk_mla_write_params {
	uint32_t size;
	uint32_t flags;      /* 0 */
	int32_t tokens;      /* entries of slots; latent and rope may have more rows */
	int32_t page_tokens; /* tokens per page, >= 1 */
	int32_t pages;       /* pages in kv; slots past them are refused */
	uint32_t slot_bytes; /* 4: slots is int32_t, 8: int64_t */
	uint32_t src_dtype;  /* KVK_BF16, KVK_F16, KVK_F32 */
	uint32_t kv_dtype;   /* KVK_BF16, KVK_F16, KVK_F32, KVK_MLA_FP8 */

	const void *latent; /* [tokens, 512] src_dtype */
	const void *rope;   /* [tokens, 64] src_dtype */
	const void *slots;  /* [tokens] */
	void *kv;           /* [pages, page_tokens, 576] kv_dtype ([.., 656] bytes as KVK_MLA_FP8) */

	int64_t latent_stride, rope_stride;
	int64_t kv_stride_page, kv_stride_token;

	const struct kvk_threads *threads; /* or NULL */
};

KVK_API int kvk_mla_write(const struct kvk_mla_write_params *params);
KVK_API int kvk_mla_write_ref(const struct kvk_mla_write_params *params);

/*
 * K and V cache write; with v NULL a single lane, such as index_k. NHD and HND are strides. Equal dtypes are
 * copied bit for bit; otherwise values are rounded to nearest even, and saturated (no scale) as KVK_E4M3.
 */
struct kvk_kv_write_params {
	uint32_t size;
	uint32_t flags;       /* 0 */
	int32_t tokens;       /* entries of slots; k and v may have more rows */
	int32_t heads;        /* KV heads, >= 1 */
	int32_t head_dim;     /* >= 1 */
	int32_t page_tokens;  /* tokens per page, >= 1 */
	int32_t pages;        /* pages in the caches; slots past them are refused */
	uint32_t slot_bytes;  /* 4: slots is int32_t, 8: int64_t */
	uint32_t src_dtype;   /* KVK_BF16, KVK_F16, KVK_F32 */
	uint32_t cache_dtype; /* KVK_BF16, KVK_F16, KVK_F32, KVK_E4M3 */

	const void *k;     /* [tokens, heads, head_dim] src_dtype */
	const void *v;     /* like k, or NULL */
	const void *slots; /* [tokens] */
	void *k_cache;     /* [pages, page_tokens, heads, head_dim] cache_dtype */
	void *v_cache;     /* like k_cache, or NULL with v */

	int64_t k_stride_token, k_stride_head;
	int64_t v_stride_token, v_stride_head;
	int64_t k_cache_stride_page, k_cache_stride_token, k_cache_stride_head;
	int64_t v_cache_stride_page, v_cache_stride_token, v_cache_stride_head;

	const struct kvk_threads *threads; /* or NULL */
};

KVK_API int kvk_kv_write(const struct kvk_kv_write_params *params);
KVK_API int kvk_kv_write_ref(const struct kvk_kv_write_params *params);

/*
 * Merge of partial results (FlashMLA's combine). Sequence r has the partials [num_splits[r], num_splits[r +
 * 1]), each normalised, with its lse in units of log2; an empty partial has lse -INF and its values are not
 * read.
 *	g = log2(sum_i exp2(lse2_i));  lse = g * ln 2;  out = sum_i exp2(lse2_i - g') * o_i
 * where g' adds the sink as one more logit. Sequences with fewer than two partials are left alone: who
 * computed them wrote their result, sink included.
 */
struct kvk_combine_params {
	uint32_t size;
	uint32_t flags;     /* 0 */
	int32_t batch;      /* sequences */
	int32_t s_q;        /* queries per sequence, >= 1 */
	int32_t heads;      /* >= 1 */
	int32_t dim;        /* of an output row, 1 to KVK_MAX_HEAD_DIM (512 for MLA) */
	int32_t partials;   /* partials in the buffers; num_splits past it are refused */
	uint32_t out_dtype; /* KVK_BF16, KVK_F16, KVK_F32 */

	const float *partial_out;  /* [partials, s_q, heads, dim] */
	const float *partial_lse;  /* [partials, s_q, heads], log2 */
	const int32_t *num_splits; /* [batch + 1], cumulative, does not decrease */
	const float *sink;         /* [heads] natural logits, or NULL */
	void *out;                 /* [batch, s_q, heads, dim] out_dtype */
	float *lse;                /* [batch, heads, s_q], or NULL */

	int64_t out_stride_batch, out_stride_query, out_stride_head;
	int64_t lse_stride_batch, lse_stride_head;

	const struct kvk_threads *threads; /* or NULL */
};

KVK_API int kvk_combine(const struct kvk_combine_params *params);
KVK_API int kvk_combine_ref(const struct kvk_combine_params *params);

/*
 * Work plan of a split MLA decode (FlashMLA's scheduler metadata): all (sequence, key block) work is cut
 * into `parts` equal contiguous runs, each visit of a sequence costing `overhead` blocks more. A part whose
 * begin_seq is >= batch has nothing to do. kvk_combine() takes num_splits as it is. At most batch + parts
 * partials arise.
 */
struct kvk_mla_plan_part {
	int32_t begin_seq, end_seq;     /* sequences, both inclusive */
	int32_t begin_block, end_block; /* first block in begin_seq; end (exclusive) in end_seq */
	int32_t begin_split;            /* which split of begin_seq this part computes */
	int32_t first_is_split;         /* begin_seq has other parts: its result is a partial */
	int32_t last_is_split;          /* the same of end_seq */
	int32_t pad;                    /* 0 */
};

struct kvk_mla_plan_params {
	uint32_t size;
	uint32_t flags;       /* 0 */
	int32_t batch;        /* sequences */
	int32_t parts;        /* >= 1; kvk_mla_plan_parts() */
	int32_t block_tokens; /* keys per block (64 in FlashMLA), >= 1 */
	int32_t overhead;     /* blocks (5 in FlashMLA) */

	const int32_t *lens;            /* [batch] keys; <= 0 costs one block */
	struct kvk_mla_plan_part *plan; /* [parts] */
	int32_t *num_splits;            /* [batch + 1], cumulative */
};

KVK_API int kvk_mla_plan(const struct kvk_mla_plan_params *params);
KVK_API int kvk_mla_plan_ref(const struct kvk_mla_plan_params *params);

/*
 * Parts for a device of `units` processors: dense max(units / ceil(s_q * heads / 64), 1);
 * sparse max(units / s_q / max(heads / 64, 1), 1).
 */
KVK_API int32_t kvk_mla_plan_parts(int32_t units, int32_t s_q, int32_t heads, int sparse);

#ifdef __cplusplus
}
#endif
#endif
