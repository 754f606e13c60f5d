/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a step's arrays lie in a slot of the tables segment, each on a boundary that suits a copy engine:
 *
 *   block_table i32 [B][W], page_list i32 [B * W], slot_mapping [T] of 4 or 8 bytes, n_valid i32 [T],
 *   kv_lens, qo_lens, qo_offset i32 [B], cu_q, cu_kv, page_indptr i32 [B + 1]
 *
 * and what staging adds: row_index i32 [B], runs [B] of 16 bytes (struct kvk_stage_run), release u64.
 *
 * T counts one token of each padding row too.
 */
#ifndef KVPOOL_LIBCLIENT_BATCH_LAYOUT_H
#define KVPOOL_LIBCLIENT_BATCH_LAYOUT_H

#include <stdint.h>

struct kvc_batch_layout {
	uint64_t block_table;
	uint64_t page_list;
	uint64_t slot_mapping;
	uint64_t n_valid;
	uint64_t kv_lens;
	uint64_t qo_lens;
	uint64_t qo_offset;
	uint64_t cu_q;
	uint64_t cu_kv;
	uint64_t page_indptr;
	uint64_t row_index;
	uint64_t runs;
	uint64_t release;
	uint64_t bytes;
};

void kvc_batch_layout(uint32_t rows, uint32_t tokens, uint32_t width, uint32_t slot_bytes,
		      struct kvc_batch_layout *out);

/* Bytes to ask for, for batches of at most max_seqs rows (padding rows included), `tokens` query tokens and rows of `width`. */
uint64_t kvc_slot_bytes(uint32_t max_seqs, uint32_t tokens, uint32_t width);

#endif
