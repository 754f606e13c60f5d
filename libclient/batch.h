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

#include "client.h"

/* What a slot's arrays say of a position since its last use. */
struct kvc_position {
	uint64_t stamp;  /* of the row's content; 0: padding */
	uint32_t blocks; /* entries of the row */
	uint32_t pages;  /* blocks that hold the attended tokens */
};

struct kvk_stage_run;

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
	/* For staging; the last is stored by a stream. */
	int32_t *row_index;
	struct kvk_stage_run *runs;
	_Atomic uint64_t *release;

	struct kvc_use use;         /* busy until it has ended */
	uint64_t staged;            /* busy until `release` has come to this instead; 0: was not staged */
	struct kvp_batch_view view; /* of its last step */
	uint32_t ones; /* 1 + rows for which qo_lens and cu_q are those of one token each; 0: they are not */
	uint32_t rows; /* positions of `had` that are not padding */
	struct kvc_position *had; /* [max_seqs] */
	uint32_t *row_of;         /* [max_seqs] whose row each position's is */
	/* [max_seqs + 1] where each row's pages begin, then the end of all; a copy that nobody else can write */
	uint32_t *page_start;
};

struct kvp_batch {
	struct kvp_client *client;
	uint32_t count;
	uint32_t left;  /* 1 + position of a member that was closed, whose seqs[] is NULL; 0: all are there */
	uint32_t noted; /* engine->noted when no member had a note left */
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

	struct kvp_seq **seqs;    /* [max_seqs] */
	uint32_t *kv;             /* of this step: tokens attended, */
	uint32_t *pages;          /* blocks that hold them, */
	uint32_t *changed;        /* and positions that differ from what the slot has, ascending */
	struct kvp_seq **lacking; /* sequences of a reserve that need blocks ... */
	uint32_t *needs;          /* ... and how many */
	uint32_t *filled;         /* sequences of a settle that filled a block */
	uint32_t *staged_mirror;

	uint32_t staging;       /* KVP_STAGING_* */
	struct kvc_slot *begun; /* of the last step, while it was not staged */

	struct kvc_slot slot[KVW_MAX_SLOTS];
	void *memory; /* all private arrays */
};

void kvc_batch_free(struct kvp_batch *batch);
/* A member is closed: the batch says so until it is set anew. */
void kvc_batch_leave(struct kvp_batch *batch, struct kvp_seq *seq);
/* -KVP_ESTATE when a member was closed. */
int kvc_batch_check(const struct kvp_batch *batch);
/* Takes the members' notes out of their inboxes; looks at them only when some sequence has got one. */
void kvc_batch_read_inboxes(struct kvp_batch *batch);

static inline uint32_t kvc_tokens_of(const uint32_t *tokens, uint32_t i)
{
	return tokens ? tokens[i] : 1;
}

static inline bool kvc_slot_is_free(const struct kvc_engine *engine, const struct kvc_slot *slot)
{
	/* Pairs with the stream's store: what it has read before may be written again. */
	if (slot->staged)
		return atomic_load_explicit(slot->release, memory_order_acquire) >= slot->staged;
	return kvc_use_ended(engine, &slot->use);
}

static inline void kvc_put_slot(const struct kvp_batch *batch, const struct kvc_slot *slot, uint32_t at,
				int64_t value)
{
	if (batch->slot_bytes == sizeof(int32_t))
		((int32_t *)slot->slot_mapping)[at] = (int32_t)value;
	else
		((int64_t *)slot->slot_mapping)[at] = value;
}

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
