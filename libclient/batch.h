/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A batch and its slots. A slot keeps a step's arrays in the tables segment; beside them, in private memory, what it holds for each
 * position, so that the next use of the slot writes only what has changed since.
 */
#ifndef KVPOOL_LIBCLIENT_BATCH_H
#define KVPOOL_LIBCLIENT_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include <kvpool/kvpool.h>

#include "ipc/limits.h"

/* Per position, what the arrays say; of the current step, and of a slot's last use. */
struct kvc_positions {
	uint64_t *stamp;  /* of the row's content; 0: padding */
	uint32_t *blocks; /* entries of the row */
	uint32_t *pages;  /* blocks that hold the attended tokens */
};

struct kvc_slot {
	int32_t *block_table;
	int32_t *page_list;
	void *slot_mapping;
	int32_t *n_valid;
	int32_t *kv_lens;
	int32_t *qo_lens;
	int32_t *qo_offset;
	int32_t *cu_q;
	int32_t *cu_kv;
	int32_t *page_indptr;

	uint64_t step; /* busy until the timeline reaches it */
	uint32_t timeline;
	uint32_t uniform_rows; /* != 0: qo_lens and cu_q are those of one token for each of this many rows */
	struct kvc_positions had; /* at its last use */
	uint32_t *
		page_start; /* [max_seqs + 1] where each row's pages began; a copy that nobody else can write */
	uint32_t pages;     /* of all rows */
};

struct kvp_batch {
	struct kvp_client *client;
	uint32_t serial; /* of the membership: sequences that were closed or taken elsewhere have another */
	uint32_t count;
	uint32_t max_seqs;
	uint32_t max_tokens;
	uint32_t width;
	uint32_t valid_tokens;
	uint64_t valid_magic; /* floor(2^64 / valid_tokens) + 1: division by it is a multiplication */
	uint32_t slot_bytes;
	uint32_t pad_rows;
	int32_t pad_id;
	uint32_t block_tokens;
	uint32_t slots;
	uint32_t next_slot;

	struct kvp_seq **seqs; /* [max_seqs] */
	struct kvc_positions now;
	uint32_t *kv;             /* tokens attended */
	uint32_t *changed;        /* positions, for the passes over arrays */
	struct kvp_seq **lacking; /* sequences of a reserve that need blocks */
	uint32_t *filled;         /* sequences of a settle that filled a block */
	uint32_t *staged_mirror;

	struct kvc_slot slot[KVW_MAX_SLOTS];
	void *memory; /* all private arrays */
};

void kvc_batch_free(struct kvp_batch *batch);

/* Rows of the step: the sequences, then padding. */
static inline uint32_t kvc_batch_rows(const struct kvp_batch *batch)
{
	return batch->count > batch->pad_rows ? batch->count : batch->pad_rows;
}

__extension__ typedef unsigned __int128 kvc_u128;

/* ceil(tokens / valid_tokens), exact for 32 bits. */
static inline uint32_t kvc_valid_blocks(const struct kvp_batch *batch, uint32_t tokens)
{
	uint64_t rounded = (uint64_t)tokens + batch->valid_tokens - 1;

	if (batch->valid_tokens == 1)
		return tokens;
	return (uint32_t)(((kvc_u128)batch->valid_magic * rounded) >> 64);
}

#endif
