/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations of kvpool/kernels.h on a CUDA device: what to launch, in which order, with which
 * parameters. Who launches is the caller's: a function that takes a kernel by its name. So this knows
 * neither driver nor context, and the same code drives a GPU and the CPU's model of one.
 *
 * Each kvk_<op>_cuda() takes the struct that kvk_<op>() takes, with these differences:
 *
 * - Every array lies where the device can reach it and isn't looked at here, so tables are not checked: a
 *   page id, slot or list entry outside its bounds is skipped, a length past the table's row ends there.
 * - Nothing waits: results are there when the stream has come to it. Only arguments are copied.
 * - Rows of q and caches are 16-byte aligned, pairs of output elements are aligned to their size: else
 *   -EINVAL.
 * - -ENOTSUP for dtypes and sizes without a kernel; each declaration says which there are.
 * - `threads` are ignored. `scratch` is device memory, of kvk_<op>_cuda_scratch() bytes, aligned to 256.
 *
 * Launches of one call follow each other in the stream; two calls may use the same scratch if one follows
 * the other.
 */
#ifndef KVPOOL_KERNELS_CUDA_LAUNCH_H
#define KVPOOL_KERNELS_CUDA_LAUNCH_H

#include <kvpool/kernels.h>
#include <kvpool/prep.h>

#include <stdbool.h>

#include "stage.h"

#define KVK_CUDA_SCRATCH_ALIGN 256

struct kvk_cuda_launch {
	const char *kernel;
	uint32_t blocks, threads; /* one dimension each */
	uint32_t shared_bytes;    /* dynamic; above 48 KiB the driver must be told of the kernel's maximum */
	uint32_t args_bytes;
	const void *args; /* the kernel's one parameter; gone after the call */
	bool tensor; /* args begin with a struct kvk_cuda_tensor: the kernel gets its map there, aligned to 64 */
};

/* 0 or a negative errno, which the operation returns. */
typedef int (*kvk_cuda_launch_fn)(void *context, const struct kvk_cuda_launch *launch);

#define KVK_CUDA_PLAN_READY                                                                                  \
	(1u << 0) /* mla_dense: the scratch holds the plan of an earlier call, same lens and shape */

/*
 * mla_dense of more than 32 rows a sequence, bf16 or f16: by warpgroups, which only the sm_90a part of the image has.
 * For a device of compute capability 9.0; elsewhere the kernel ends in a trap.
 */
#define KVK_CUDA_WARPGROUPS (1u << 1)

struct kvk_cuda_device {
	uint32_t size;
	uint32_t flags;
	int32_t units; /* multiprocessors, >= 1 */
	/*
	 * 0: keys are shared out so that the device is busy, and a sequence's last bits depend on what else
	 * is in the batch. Else a multiple of 64: every sequence is cut each so many keys, and its bits are
	 * the same alone and in company.
	 */
	int32_t split_keys;
	kvk_cuda_launch_fn launch;
	void *context; /* of launch */
};

/* q, kv: both bf16, both f16, or q bf16 and kv KVK_MLA_FP8. */
int kvk_mla_dense_cuda(const struct kvk_cuda_device *device, const struct kvk_mla_dense_params *params);
int kvk_mla_dense_cuda_scratch(const struct kvk_cuda_device *device,
			       const struct kvk_mla_dense_params *params, size_t *out_bytes);

/* Dtypes as above. */
int kvk_mla_sparse_cuda(const struct kvk_cuda_device *device, const struct kvk_mla_sparse_params *params);
int kvk_mla_sparse_cuda_scratch(const struct kvk_cuda_device *device,
				const struct kvk_mla_sparse_params *params, size_t *out_bytes);

/* q, k and v all bf16 or all f16; head_dim 64 or 128. */
int kvk_gqa_dense_cuda(const struct kvk_cuda_device *device, const struct kvk_gqa_dense_params *params);
int kvk_gqa_dense_cuda_scratch(const struct kvk_cuda_device *device,
			       const struct kvk_gqa_dense_params *params, size_t *out_bytes);

/* Dtypes and head_dim as above; topk at most 64. */
int kvk_msa_sparse_cuda(const struct kvk_cuda_device *device, const struct kvk_msa_sparse_params *params);
int kvk_msa_sparse_cuda_scratch(const struct kvk_cuda_device *device,
				const struct kvk_msa_sparse_params *params, size_t *out_bytes);

/*
 * All dtypes and sizes; fast for dim 128, and q of bf16 or f16 with k of the same or e4m3. Needs no
 * scratch.
 */
int kvk_msa_scores_cuda(const struct kvk_cuda_device *device, const struct kvk_msa_scores_params *params);

int kvk_msa_select_cuda(const struct kvk_cuda_device *device, const struct kvk_msa_select_params *params);
int kvk_combine_cuda(const struct kvk_cuda_device *device, const struct kvk_combine_params *params);
/* With device->split_keys: pieces of so many keys instead of equal parts, as many as `parts` has room for. */
int kvk_mla_plan_cuda(const struct kvk_cuda_device *device, const struct kvk_mla_plan_params *params);

/* All dtypes. A slot past the cache is skipped. */
int kvk_mla_write_cuda(const struct kvk_cuda_device *device, const struct kvk_mla_write_params *params);
int kvk_kv_write_cuda(const struct kvk_cuda_device *device, const struct kvk_kv_write_params *params);

/*
 * kvk_prep_correct() on the device: one launch, no look at the lengths. batch is at most
 * KVK_CUDA_CORRECT_BATCH, part_count at most 8 (-ENOTSUP). params->parts is host memory, its arrays are the
 * device's; a missing one is -ENOENT, as there. Whether a part's rows are one a request or one a token only
 * the device knows: `faults` [part_count], or NULL, gets 1 for a part that is neither, which is then left
 * alone, and 0 for the others. seq_lens may be `corrected`.
 *
 * n_valid counts blocks of valid_tokens; 0: of page_tokens.
 *
 * With the flag KVK_CUDA_CORRECT_PAGES the table holds page ids whatever the generation, and a token before
 * position 0 (a padding row's, say) gets slot -1: a block that others share is not written by it.
 */
#define KVK_CUDA_CORRECT_BATCH 8192
#define KVK_CUDA_CORRECT_PAGES (1u << 31)
int kvk_prep_correct_cuda(const struct kvk_cuda_device *device, const struct kvk_prep_correct_params *params,
			  int32_t valid_tokens, int32_t *faults);

/*
 * Copies blocks, or changes their layout: block from_ids[i] goes to to_ids[i]; both are [outer, inner] rows
 * of row_bytes, at the strides of either side. NHD to HND, say: outer = tokens, inner = heads. Ids out of
 * bounds are skipped.
 */
struct kvk_block_copy_params {
	uint32_t size;
	uint32_t flags; /* 0 */
	int32_t blocks; /* entries of the ids */
	int32_t outer, inner;
	int32_t from_blocks, to_blocks; /* bounds of the ids */
	uint32_t reserved;              /* 0 */
	int64_t row_bytes;
	const void *from;
	void *to;
	const int32_t *from_ids, *to_ids;
	int64_t from_stride_block, to_stride_block; /* bytes; 0 is not filled in here */
	int64_t from_stride_outer, to_stride_outer;
	int64_t from_stride_inner, to_stride_inner;
};
int kvk_block_copy_cuda(const struct kvk_cuda_device *device, const struct kvk_block_copy_params *params);

/*
 * to[i] = from[rows[i]], rows of `width`; a row that is out of bounds gives `fill`. With `list` also the first
 * indptr[i + 1] - indptr[i] entries of each, from list[indptr[i]] on.
 */
struct kvk_table_gather_params {
	uint32_t size;
	uint32_t flags; /* 0 */
	int32_t count, width, from_rows;
	int32_t fill;
	const int32_t *from; /* [from_rows, width] */
	const int32_t *rows; /* [count] */
	int32_t *to;         /* [count, width] */
	int64_t from_stride, to_stride;
	int32_t *list;         /* [room], or NULL */
	const int32_t *indptr; /* [count + 1], with list */
	int32_t room;
	uint32_t reserved; /* 0 */
};
int kvk_table_gather_cuda(const struct kvk_cuda_device *device, const struct kvk_table_gather_params *params);

/*
 * Copies arrays of words, each to a place of its own, and for each run the entries [first, end) of from[position]
 * to to[row]. The sources may be pinned memory of the host. A run that is out of bounds is skipped or cut.
 */
struct kvk_stage_params {
	uint32_t size;
	uint32_t flags; /* 0 */
	int32_t array_count;
	int32_t run_count;
	int32_t positions, rows, width;
	uint32_t reserved; /* 0 */
	struct kvk_stage_array arrays[KVK_STAGE_ARRAYS];
	const struct kvk_stage_run *runs; /* [run_count], of the device's or pinned memory */
	int64_t run_words;                /* in all: how much the device has to do */
	const int32_t *from;              /* [positions, width] */
	int32_t *to;                      /* [rows, width] */
	int64_t from_stride, to_stride;
};
int kvk_stage_cuda(const struct kvk_cuda_device *device, const struct kvk_stage_params *params);

#endif
