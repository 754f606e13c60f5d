/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Publishing the blocks of a row, and moving a row over to the canonical copies of those that were there already. Under the lock, but
 * for the hashing.
 */
#ifndef KVPOOL_LIBCLIENT_PUBLISH_H
#define KVPOOL_LIBCLIENT_PUBLISH_H

#include <stdbool.h>
#include <stdint.h>

struct kvp_client;
struct kvp_seq;
struct kvc_op;
struct kvw_completion;

/* Posts what is hashed and not posted; what finds no room is owed. */
void kvc_publish_post(struct kvp_client *client, uint32_t row);
int kvc_publish_answer(struct kvp_client *client, const struct kvc_op *op,
		       const struct kvw_completion *completion);

/*
 * Blocks [from, to) of the row became full by (timeline, step): notes it and posts. Their hashes lie in the tables already
 * (kvc_publish_hash()).
 */
void kvc_publish_full(struct kvp_client *client, uint32_t row, uint32_t to, uint32_t timeline, uint64_t step);
/* Hashes blocks [from, to) of the row's tokens, chained. Without the lock: by the sequence's thread. */
int kvc_publish_hash(struct kvp_seq *seq, uint32_t from, uint32_t to);

/* Takes notes out of the inbox; moves the row to canonical copies where no launched step reads the old ones any more. Takes the lock. */
void kvc_read_inbox(struct kvp_seq *seq);
/* kvc_enter_seq(), and reads the inbox when something lies in it. */
int kvc_enter_seq_and_read(struct kvp_seq *seq);

#endif
