/* SPDX-License-Identifier: Apache-2.0 */
#include "batch_layout.h"

#include "ipc/shm.h"
#include "kernels/cuda/stage.h"

#define ARRAY_ALIGN 256u

static uint64_t place(uint64_t *end, uint64_t count, uint32_t element_bytes)
{
	uint64_t start = *end;

	*end = start + ((count * element_bytes + ARRAY_ALIGN - 1) & ~(uint64_t)(ARRAY_ALIGN - 1));
	return start;
}

void kvc_batch_layout(uint32_t rows, uint32_t tokens, uint32_t width, uint32_t slot_bytes,
		      struct kvc_batch_layout *out)
{
	uint64_t all_tokens = (uint64_t)tokens + rows;
	uint64_t pages = (uint64_t)rows * width;
	uint64_t end = 0;

	out->block_table = place(&end, pages, sizeof(int32_t));
	out->page_list = place(&end, pages, sizeof(int32_t));
	out->slot_mapping = place(&end, all_tokens, slot_bytes);
	out->n_valid = place(&end, all_tokens, sizeof(int32_t));
	out->kv_lens = place(&end, rows, sizeof(int32_t));
	out->qo_lens = place(&end, rows, sizeof(int32_t));
	out->qo_offset = place(&end, rows, sizeof(int32_t));
	out->cu_q = place(&end, (uint64_t)rows + 1, sizeof(int32_t));
	out->cu_kv = place(&end, (uint64_t)rows + 1, sizeof(int32_t));
	out->page_indptr = place(&end, (uint64_t)rows + 1, sizeof(int32_t));
	out->row_index = place(&end, rows, sizeof(int32_t));
	out->runs = place(&end, rows, sizeof(struct kvk_stage_run));
	out->release = place(&end, 1, sizeof(uint64_t));
	out->bytes = end;
}

uint64_t kvc_slot_bytes(uint32_t max_seqs, uint32_t tokens, uint32_t width)
{
	struct kvc_batch_layout layout;

	kvc_batch_layout(max_seqs, tokens, width, sizeof(int64_t), &layout);
	return (layout.bytes + KVW_PAGE_BYTES - 1) & ~(uint64_t)(KVW_PAGE_BYTES - 1);
}
