/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpool/prep.h: what a host computes before a decode step, from integer tables to integer tables.
 *
 * These are the rules by which TensorRT-LLM's KV cache manager V2 and its MiniMax-M3 backend address pages, for
 * engines that keep such tables themselves; kvp_batch_begin() makes a step's arrays without them. Each function
 * is a pure function of its arguments: no daemon, no allocation, no lock, no state. The rules of kernels.h hold
 * (`size` first; a stride of 0 means contiguous, others count elements and are not negative; what is not "or
 * NULL" is required; nothing to do is success). Besides:
 *
 * - Outputs overlap no input unless a comment allows it, and are written only on success. One exception: when
 *   kvk_prep_block_ids() refuses an id, which it sees only while it converts, what `out` holds means nothing.
 * - With batch 0 no input is looked at; of the outputs only a count and the first entry of prefix sums are written.
 * - Arithmetic is exact: what does not fit its array is refused, never wrapped.
 * - Result: 0, or a negative errno, and with `fault` not NULL *fault says which field or entry was refused, its
 *   value and the limit it broke:
 *	-EINVAL		NULL where a pointer is required, an unknown flag, layout or dtype, a size below its
 *			minimum
 *	-E2BIG		`size` is larger than known here and the unknown tail is not zero (*fault is not set)
 *	-ERANGE		an entry of an array is outside its bounds: a negative count, an id below -1, a row that
 *			does not exist, a count that is wider than a row
 *	-EOVERFLOW	a result does not fit 32 bits (64 for slots of 8 bytes)
 *	-ENOSPC		an output array is too small
 *	-ENOENT		kvk_prep_correct(): a plan lacks an array that it must have
 *	-ENOTSUP	a view that is not a view: head-major with more than one head
 *
 * A page id of -1 is none (upstream's BAD_PAGE_INDEX).
 */
#ifndef KVPOOL_PREP_H
#define KVPOOL_PREP_H

#include <kvpool/kernels.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What was refused. Fields that say nothing of a fault are 0, `index` is -1. */
struct kvk_prep_fault {
	const char *name;    /* of the parameter or array; static storage */
	int64_t index;       /* entry of that array; of a plan's array: the plan */
	int64_t value;       /* what it is; the rows that an array of a plan has */
	int64_t limit;       /* the bound that it broke; rows expected with one a request */
	int64_t other_limit; /* rows expected with one a token */
	int32_t first, last; /* requests [first, last) of the plan */
};

/*
 * Block ids of sequences, from rows of slot ids:
 *
 *	id = floor(floor(slot * scale / divisor) / layers),  -1 staying none
 *
 *	get_batch_cache_indices		scale: the pool's index scale, or the layer's when one is named;
 *					divisor: kv_factor, manager-wide or the layer's own; layers 1;
 *					KVK_PREP_FLAT | KVK_PREP_KEEP_BAD
 *	... not aggregated, by pool	the same with divisor 1
 *	... raw_indices			scale and divisor 1
 *	get_batch_cache_indices_flat	the same as the first, num_blocks being what the caller asks for
 *	get_block_ids_per_seq		scale of pool 0, divisor kv_factor, layers: all local ones, not those of
 *					the pool; width 0
 *	MiniMax-M3's override		scale, divisor and layers 1; width: that of the rows
 *
 * Without KVK_PREP_FLAT out is a rectangle, filled up with 0 (with KVK_PREP_KEEP_BAD: -1) right of each row's
 * count. A 0 may be slot 0 or none: only lengths tell.
 */
#define KVK_PREP_FLAT (1u << 0)     /* rows one behind the other, without padding */
#define KVK_PREP_KEEP_BAD (1u << 1) /* -1 stays -1; without the flag it becomes 0 */

struct kvk_prep_block_ids_params {
	uint32_t size;
	uint32_t flags;    /* KVK_PREP_FLAT, KVK_PREP_KEEP_BAD */
	int32_t batch;     /* sequences */
	int32_t rows;      /* rows in slots */
	int32_t row_width; /* entries of a row */
	int32_t width;     /* columns of out; 0: the largest count. 0 with KVK_PREP_FLAT */
	int32_t scale;     /* index scale, >= 1 */
	int32_t divisor;   /* kv_factor, or 1, >= 1 */
	int32_t layers;    /* divides once more, >= 1 */
	uint32_t reserved; /* 0 */

	const int32_t *slots;      /* [rows, row_width] slot ids or -1; entries past a count are not read */
	const int32_t *row_of;     /* [batch] the row of each sequence, or NULL: its own number */
	const int32_t *num_blocks; /* [batch] entries used of each row, or NULL: row_width */
	const int32_t *most;       /* [batch] at most so many of them, or NULL */
	int32_t *out;              /* [batch, width], or flat [sum of counts] */
	int32_t *indptr;           /* [batch + 1] where each row begins in flat, then the sum; or NULL */
	int32_t *out_width;        /* columns of out (flat: the sum), or NULL */
	struct kvk_prep_fault *fault; /* or NULL */

	int64_t out_room; /* elements at out */
	int64_t slots_stride;
	int64_t out_stride;
};

KVK_API int kvk_prep_block_ids(const struct kvk_prep_block_ids_params *params);

/*
 * Slot mapping (out_cache_loc): where the i-th query token of request r is written,
 *
 *	pos  = clamp(qo_offset[r] + i, 0, table_width * page_tokens - 1)
 *	slot = block_ids[r][pos / page_tokens] * page_tokens + pos % page_tokens
 *
 * requests one behind the other. A padding row with offset -1 lands on its own position 0, an overhang on the
 * row's last position; kvk_prep_correct() puts such right. Where the table holds a negative id the slot is -1,
 * which the cache writes skip. With qo_offset 0 and qo_lens table_width * page_tokens this is req_to_token.
 */
struct kvk_prep_slots_params {
	uint32_t size;
	uint32_t flags;      /* 0 */
	int32_t batch;       /* requests */
	int32_t table_width; /* columns of block_ids, >= 1 if there is a token */
	int32_t page_tokens; /* tokens per page, >= 1 */
	int32_t room;        /* entries of out */
	uint32_t slot_bytes; /* 4: out is int32_t, 8: int64_t */
	uint32_t reserved;   /* 0 */

	const int32_t *block_ids;     /* [batch, table_width] */
	const int32_t *qo_lens;       /* [batch] query tokens, >= 0 */
	const int32_t *qo_offset;     /* [batch] position of the first of them */
	void *out;                    /* [sum of qo_lens] */
	int32_t *out_tokens;          /* the sum, or NULL */
	struct kvk_prep_fault *fault; /* or NULL */

	int64_t table_stride;
};

KVK_API int kvk_prep_slots(const struct kvk_prep_slots_params *params);

/*
 * Flat page list (build_kv_page_indices): the first ceil(max(kv_lens[r], 0) / page_tokens) ids of each row, as
 * they are, one row behind the other. kvk_prep_block_ids() makes the page table of a list from the differences
 * of indptr.
 */
struct kvk_prep_page_list_params {
	uint32_t size;
	uint32_t flags;      /* 0 */
	int32_t batch;       /* requests */
	int32_t table_width; /* columns of block_ids */
	int32_t page_tokens; /* tokens per page, >= 1 */
	int32_t room;        /* entries of out */

	const int32_t *block_ids;     /* [batch, table_width] */
	const int32_t *kv_lens;       /* [batch] tokens; < 0 is 0 */
	int32_t *out;                 /* [pages of all requests], or NULL with room 0: indptr alone */
	int32_t *indptr;              /* [batch + 1], or NULL */
	int32_t *out_pages;           /* pages of all requests, or NULL */
	struct kvk_prep_fault *fault; /* or NULL */

	int64_t table_stride;
};

KVK_API int kvk_prep_page_list(const struct kvk_prep_page_list_params *params);

/*
 * Blocks that each query token may attend to:
 *
 *	n_valid = max(ceil(min(qo_offset[r] + i + 1, kv_lens[r]) / block_tokens), 0)
 */
struct kvk_prep_valid_blocks_params {
	uint32_t size;
	uint32_t flags;       /* 0 */
	int32_t batch;        /* requests */
	int32_t block_tokens; /* tokens per block, >= 1 */
	int32_t room;         /* entries of out */
	uint32_t reserved;    /* 0 */

	const int32_t *qo_lens;       /* [batch] query tokens, >= 0 */
	const int32_t *kv_lens;       /* [batch] tokens, the query's own included */
	const int32_t *qo_offset;     /* [batch], or NULL: kv_lens - qo_lens */
	int32_t *out;                 /* [sum of qo_lens] */
	int32_t *out_tokens;          /* the sum, or NULL */
	struct kvk_prep_fault *fault; /* or NULL */
};

KVK_API int kvk_prep_valid_blocks(const struct kvk_prep_valid_blocks_params *params);

/*
 * Where a plan is split: the first request with more than `threshold` query tokens. Nobody, or request 0: not
 * split, *out_split = 0. Split, the first part covers [0, split), the second [split, batch). Thresholds
 * upstream: 32 for sparse plans, 128 for dense ones.
 */
#define KVK_PREP_SPARSE_THRESHOLD 32
#define KVK_PREP_DENSE_THRESHOLD 128
KVK_API int kvk_prep_plan_split(const int32_t *qo_lens, int32_t batch, int32_t threshold, int32_t *out_split);

/*
 * Expansion of a sparse plan whose longest query is short: one row per query token, with the request's length,
 * its own offset qo_offset[r] + j, and the request's first page; qo_lens of the rows are all 1.
 */
struct kvk_prep_expand_params {
	uint32_t size;
	uint32_t flags;      /* 0 */
	int32_t batch;       /* requests */
	int32_t page_tokens; /* tokens per page, >= 1 */
	int32_t room;        /* rows of the outputs */
	uint32_t reserved;   /* 0 */

	const int32_t *qo_lens;       /* [batch] query tokens, >= 0 */
	const int32_t *kv_lens;       /* [batch]; < 0 counts no page */
	const int32_t *qo_offset;     /* [batch] */
	int32_t *out_qo_lens;         /* [rows], or NULL */
	int32_t *out_kv_lens;         /* [rows] */
	int32_t *out_qo_offset;       /* [rows] */
	int32_t *out_page_indptr;     /* [rows + 1]; ends with the pages of all requests */
	int32_t *out_rows;            /* sum of qo_lens, or NULL */
	struct kvk_prep_fault *fault; /* or NULL */
};

KVK_API int kvk_prep_plan_expand(const struct kvk_prep_expand_params *params);

/*
 * The lengths of a sparse-flavour plan (longest query above 32): prefix sums, seqused_k = qo_lens + qo_offset,
 * and the totals.
 */
struct kvk_prep_lengths_params {
	uint32_t size;
	uint32_t flags;      /* 0 */
	int32_t batch;       /* requests */
	int32_t page_tokens; /* tokens per page, >= 1 */

	const int32_t *qo_lens;       /* [batch] query tokens, >= 0 */
	const int32_t *kv_lens;       /* [batch] tokens, >= 0 */
	const int32_t *qo_offset;     /* [batch] */
	int32_t *cu_q;                /* [batch + 1] */
	int32_t *cu_k;                /* [batch + 1] */
	int32_t *seqused_k;           /* [batch] */
	struct kvk_prep_fault *fault; /* or NULL */
};

struct kvk_prep_lengths {
	int32_t max_q, max_k;     /* longest */
	int32_t total_q, total_k; /* sums */
	int32_t total_rows;       /* pages: sum of ceil(kv / page_tokens) */
};

KVK_API int kvk_prep_plan_lengths(const struct kvk_prep_lengths_params *params, struct kvk_prep_lengths *out);

/*
 * One live part of a plan whose lengths kvk_prep_correct() puts right. A part of sparse flavour must have
 * seqused_k, another one kv_segment_lens and qo_offset; each with one row for each request of the part, or one
 * for each of its query tokens. Where both counts are the same the rows are requests.
 */
struct kvk_prep_plan_part {
	int32_t first, last;     /* requests [first, last) */
	uint32_t sparse_flavour; /* 0 or 1 (upstream's tag "MM-SA-Nv") */
	int32_t kv_segment_rows; /* entries of the arrays below */
	int32_t qo_offset_rows;
	int32_t seqused_rows;
	int32_t *kv_segment_lens;
	int32_t *qo_offset;
	int32_t *seqused_k;
};

/*
 * Length correction: the device has found that sequences are shorter than staged (drafts were rejected), and
 * what depends on lengths is derived anew. Lengths only shrink; doing it twice changes nothing.
 *
 *	kv  = min(corrected[r], staged[r])
 *	pos = kv - qo_lens[r] + i				for the i-th query token of request r
 *
 * on_update_kv_lens as of TensorRT-LLM's PR 16875 (the default):
 *	slot    = req_to_token[r][clamp(pos, 0, table_width - 1)]
 *	n_valid = ceil(max(pos + 1, 1) / page_tokens)		a padding row keeps one valid block
 *	parts:	per request  kv_segment_lens = kv,  qo_offset = max(kv - qo_lens, 0),  seqused_k = kv
 *		per token    kv_segment_lens = kv,  qo_offset = max(pos, 0),  seqused_k = max(pos + 1, 0)
 * and of its newest main (KVK_PREP_NEWEST), which patches no plans:
 *	slot    = block_table[r][min(p / page_tokens, table_width - 1)] * page_tokens + p % page_tokens,
 *		  p = max(pos, 0); -1 where the table holds a negative id
 *	n_valid = ceil(max(pos + 1, 0) / page_tokens)		a padding row has none
 * Entries past the query tokens, and past a part's rows, are not touched. Every part is looked at before
 * anything is written.
 */
#define KVK_PREP_NEWEST (1u << 0)

struct kvk_prep_correct_params {
	uint32_t size;
	uint32_t flags;      /* KVK_PREP_NEWEST */
	int32_t batch;       /* requests */
	int32_t page_tokens; /* tokens per page (block of n_valid), >= 1 */
	int32_t table_width; /* columns of table */
	int32_t room;        /* entries of slots and n_valid */
	uint32_t slot_bytes; /* 4: slots is int32_t, 8: int64_t */
	int32_t part_count;  /* entries of parts; 0 with KVK_PREP_NEWEST */

	const int32_t *qo_lens;   /* [batch] query tokens, >= 0 */
	const int32_t *staged;    /* [batch] lengths when the step was prepared: a snapshot */
	const int32_t *corrected; /* [batch] lengths as they turned out */
	const int32_t *table;     /* [batch, table_width] req_to_token, or block ids with KVK_PREP_NEWEST */
	const struct kvk_prep_plan_part *parts; /* or NULL with part_count 0 */
	void *slots;                            /* [sum of qo_lens] */
	int32_t *n_valid;                       /* [sum of qo_lens] */
	int32_t *seq_lens;                      /* [batch] kv; may be `corrected` itself */
	int32_t *cu_kv;                         /* [batch + 1] prefix sums of max(kv, 0), or NULL */
	struct kvk_prep_fault *fault;           /* or NULL */

	int64_t table_stride;
};

KVK_API int kvk_prep_correct(const struct kvk_prep_correct_params *params);

/* How a page's elements lie. */
#define KVK_PREP_NHD 1u /* [page_tokens, heads, head_dim] */
#define KVK_PREP_HND 2u /* [heads, page_tokens, head_dim] */

/* Pages of one layer inside a pool that other layers share, as a strided array: nothing is copied. */
struct kvk_prep_view {
	void *base;
	uint32_t dtype;
	uint32_t layout;
	int32_t slots; /* pages that can be reached */
	int32_t page_tokens;
	int32_t heads;
	int32_t head_dim;
	int64_t slot_stride, token_stride, head_stride; /* elements */
	int64_t extent_bytes;                           /* from base to the end of the last page */
};

/*
 * View of a layer's index-K pages (get_index_k_buffer). `scale` equally sized pages share a slot; base is the
 * layer's own page of slot 0, layer_offset pages into it. With scale 1 the view has page_upper_bound pages, else
 * (page_upper_bound + layer_offset) / scale slots, scale pages apart. Refused: head-major with more than one
 * head, where head-major and token-major are different bytes (-ENOTSUP); page_stride_bytes that is not the size
 * of a page (-EINVAL); a bound that is not whole slots (-ERANGE). A layer that has no index-K has no view, and
 * asks for none.
 */
struct kvk_prep_view_params {
	uint32_t size;
	uint32_t flags;           /* 0 */
	uint32_t layout;          /* KVK_PREP_NHD, KVK_PREP_HND */
	uint32_t dtype;           /* KVK_BF16, KVK_F16, KVK_F32, KVK_E4M3 */
	int32_t heads;            /* >= 1 */
	int32_t head_dim;         /* >= 1 */
	int32_t page_tokens;      /* >= 1 */
	int32_t scale;            /* pages that share a slot, >= 1 */
	int32_t layer_offset;     /* the layer's place among them, below scale */
	uint32_t reserved;        /* 0 */
	int64_t page_upper_bound; /* pages from base to the pool's end */
	int64_t page_stride_bytes;

	void *base;
	struct kvk_prep_fault *fault; /* or NULL */
};

KVK_API int kvk_prep_index_k_view(const struct kvk_prep_view_params *params, struct kvk_prep_view *out);

/*
 * Writes values to the slots of a view in its layout (write_kv_slots): the leading live_tokens rows, whatever
 * follows being padding. Slots < 0 are skipped. Conversions and the other refusals are kvk_kv_write()'s.
 */
struct kvk_prep_write_params {
	uint32_t size;
	uint32_t flags;      /* 0 */
	int32_t live_tokens; /* rows to write, at most slot_count and value_rows */
	int32_t slot_count;  /* entries of slots */
	int32_t value_rows;  /* rows of values */
	uint32_t slot_bytes; /* 4: slots is int32_t, 8: int64_t */
	uint32_t src_dtype;  /* KVK_BF16, KVK_F16, KVK_F32 */
	uint32_t reserved;   /* 0 */

	const struct kvk_prep_view *view; /* any: of kvk_prep_index_k_view(), or filled in for K or V */
	const void *values;               /* [value_rows, heads, head_dim] src_dtype */
	const void *slots;                /* [slot_count] */
	struct kvk_prep_fault *fault;     /* or NULL */

	int64_t value_stride_token, value_stride_head;
};

KVK_API int kvk_prep_write_slots(const struct kvk_prep_write_params *params);

#ifdef __cplusplus
}
#endif
#endif
