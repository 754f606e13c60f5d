/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claiming rows, filling their positions, freeing them. Under the client's lock.
 */
#ifndef KVPOOL_LIBCLIENT_ROWS_H
#define KVPOOL_LIBCLIENT_ROWS_H

#include <stdbool.h>
#include <stdint.h>

struct kvp_client;
struct kvp_seq;
struct kvc_row;

/* A fresh row, OPENING. -KVP_ELIMIT: max_seqs are open; -KVP_EBACKLOG: the free ones still wait for their last answers. */
int kvc_row_claim(struct kvp_client *client, struct kvp_seq **out);
void kvc_row_free(struct kvp_client *client, uint32_t row);

/* Writes a position's id and generation, here and in the tables. */
void kvc_row_put(struct kvp_client *client, uint32_t row, uint32_t index, int32_t id, uint64_t generation);
/* The same for a position that nothing is known of yet. */
void kvc_row_set(struct kvp_client *client, uint32_t row, uint32_t index, int32_t id, uint64_t generation,
		 uint16_t flags, uint64_t writer);
struct kvw_answer;
/* A granted block goes straight into the position. */
int kvc_row_grant(struct kvp_client *client, uint32_t row, uint32_t index, const struct kvw_answer *answer);
/* Puts `count` blocks of the lease, which has them, behind the row's. */
void kvc_row_append(struct kvp_seq *seq, uint32_t count);
/* Gives up the row's own block at `index`, if the block there is ours: with the sequence's last use. */
void kvc_row_give(struct kvp_seq *seq, uint32_t index);
/* Whether giving up the row's blocks from `from` on makes one free at once. */
bool kvc_row_frees_from(const struct kvp_seq *seq, uint32_t from);
/* Says how much room `blocks` blocks are. */
void kvc_row_set_blocks(struct kvp_seq *seq, uint32_t blocks);

/* kvc_enter_engine() for a call on a sequence, which must be OPEN. Not under the lock. */
int kvc_enter_seq(const struct kvp_seq *seq);

#endif
