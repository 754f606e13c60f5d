/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small things about a sequence's lengths: their copies in the tables segment, for whoever looks at an engine from outside, and
 * the tail, the block that the next token goes to.
 */
#ifndef KVPOOL_LIBCLIENT_MIRROR_H
#define KVPOOL_LIBCLIENT_MIRROR_H

#include "client.h"

enum kvc_length { KVC_RESERVED, KVC_STAGED, KVC_SETTLED, KVC_COMMITTED };

static inline uint32_t *kvc_mirror(const struct kvp_client *client, enum kvc_length length)
{
	const struct kvc_engine *engine = client->engine;

	return kvc_tables_at(client, engine->tables.lengths, (uint32_t)length,
			     engine->tables_params.rows * sizeof(uint32_t));
}

static inline void kvc_mirror_lengths(const struct kvp_seq *seq)
{
	kvc_mirror(seq->client, KVC_RESERVED)[seq->row] = seq->reserved;
	kvc_mirror(seq->client, KVC_STAGED)[seq->row] = seq->staged;
	kvc_mirror(seq->client, KVC_SETTLED)[seq->row] = seq->settled;
}

static inline void kvc_mirror_committed(const struct kvc_engine *engine, uint32_t row, uint32_t blocks)
{
	kvc_mirror(engine->seqs[row].client, KVC_COMMITTED)[row] = blocks * engine->block_tokens;
}

/* A launched step uses the sequence. */
static inline void kvc_seq_launch(struct kvp_seq *seq, uint32_t staged, uint32_t timeline, uint64_t step)
{
	/* What ran on another timeline has ended: kvc_stage_check(). */
	if (seq->last_timeline != timeline)
		seq->row_step = 0;
	seq->staged = staged;
	seq->last_timeline = (uint8_t)timeline;
	seq->last_step = step;
}

/* Leaves a note for the sequence's thread. Under the lock. */
static inline void kvc_note(struct kvc_engine *engine, uint32_t row, uint8_t note)
{
	atomic_fetch_or_explicit(&engine->seqs[row].inbox, note, memory_order_relaxed);
	/* Pairs with the acquire in kvc_batch_read_inboxes(). */
	atomic_fetch_add_explicit(&engine->noted, 1, memory_order_release);
}

/* After staged went back or entries changed: the tail is looked up again when it is needed. */
static inline void kvc_seq_find_tail(struct kvp_seq *seq)
{
	seq->tail_pages = 0;
}

static inline uint32_t kvc_blocks_for(uint32_t tokens, uint32_t block_tokens)
{
	return (uint32_t)(((uint64_t)tokens + block_tokens - 1) / block_tokens);
}

#endif
