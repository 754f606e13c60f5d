/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening a sequence: check the request, fill a row with tokens and hashes, post, await.
 */
#ifndef KVPOOL_LIBCLIENT_OPEN_H
#define KVPOOL_LIBCLIENT_OPEN_H

#include <stdint.h>

#include <kvpool/kvpool.h>

#include "ipc/hash.h"

struct kvp_client;
struct kvp_seq;
struct kvc_op;
struct kvw_completion;

/* Reads the caller's struct and checks what needs no row. */
int kvc_open_read(const struct kvp_client *client, const struct kvp_open_request *given,
		  struct kvp_open_request *out);
/* Fills a claimed row: tokens, extra keys, hashes. Without the lock. */
int kvc_open_fill(struct kvp_seq *seq, const struct kvp_open_request *request);
/* Posts the OPEN of a filled row. Under the lock. -KVP_EBACKLOG. */
int kvc_open_post(struct kvp_client *client, struct kvp_seq *seq, const struct kvp_open_request *request);
int kvc_open_answer(struct kvp_client *client, const struct kvc_op *op,
		    const struct kvw_completion *completion);
/* Why a row FAILED, with a text. Under the lock. */
int kvc_open_failure(struct kvp_client *client, const struct kvp_seq *seq);

/* The hasher's and the caller's form of an extra key. */
static inline struct kvw_extra_key kvc_extra_in(const struct kvp_extra_key *key)
{
	return (struct kvw_extra_key){.domain = key->domain, .length = key->length, .bytes = key->bytes};
}

static inline struct kvp_extra_key kvc_extra_out(const struct kvw_extra_key *key)
{
	return (struct kvp_extra_key){.domain = key->domain, .length = key->length, .bytes = key->bytes};
}

/* Most blocks to match. */
uint32_t kvc_open_match(const struct kvp_client *client, const struct kvp_open_request *request);
/* The same with one request, awaited; for kvp_seq_fork(). */
int kvc_open_one(struct kvp_client *client, const struct kvp_open_request *request, uint64_t deadline_ns,
		 struct kvp_seq **out);

#endif
