/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lease: blocks that were granted to this engine and are in no row.
 *
 *   free      can be put into a row now
 *   draining  given up by a row; a launched step may still touch them. One list a timeline, in the order in which they came
 *
 * Both are lists through one array indexed by block id, so that no operation can run out of room, and a block that is granted
 * twice is noticed. Everything here is under the client's lock.
 */
#ifndef KVPOOL_LIBCLIENT_LEASE_H
#define KVPOOL_LIBCLIENT_LEASE_H

#include <stdbool.h>
#include <stdint.h>

#include "ipc/limits.h"

struct kvp_client;
struct kvc_engine;
struct kvw_answer;
struct kvw_completion;

enum kvc_owned { KVC_FOREIGN, KVC_IN_ROW, KVC_FREE, KVC_DRAINING };

struct kvc_block {
	uint64_t generation;
	uint64_t step; /* KVC_DRAINING */
	int32_t next;
	uint32_t owned; /* enum kvc_owned */
};

struct kvc_drain {
	int32_t head; /* -1: none */
	int32_t tail;
};

/* RETURN records on their way: which part of the returns area each names. */
#define KVC_RETURNS_FLIGHT 64u

struct kvc_lease {
	struct kvc_block *blocks; /* [blocks of the pool] */
	int32_t free_head;
	uint32_t free_count;
	uint32_t draining_count;
	struct kvc_drain drains[KVW_TIMELINES];
	uint32_t low, critical, high;

	bool asking; /* a LEASE is on its way */
	bool rung;   /* the doorbell was written for it */
	uint32_t coming;
	uint32_t ask_most; /* after a refusal: what the pool had */
	int refusal;       /* of the last LEASE; 0: it was granted */
	uint64_t retry_ns; /* and then not before */
	uint32_t wanted;   /* kvp_lease_wait() waits for this many, at most `high` */

	uint32_t returns_tail; /* free-running index into the returns area */
	uint32_t returns_head; /* entries before it were read */
	uint32_t flight_tail;
	uint32_t flight_head;
	struct {
		uint32_t mark; /* ring index behind the record */
		uint32_t end;  /* returns index behind its entries */
	} flight[KVC_RETURNS_FLIGHT];

	uint64_t taken; /* blocks, since attach */
	uint64_t pace_since_ns;
	uint64_t pace_taken;
	uint64_t pace_per_1024s; /* blocks in 1,024 seconds, of the last finished window */
};

void kvc_lease_init(struct kvc_lease *lease, struct kvc_block *blocks);

/* A granted block, as it was answered: -KVP_EPROTO when it is ours already. */
int kvc_lease_add(struct kvp_client *client, const struct kvw_answer *granted);
/* Takes one for a row, or -1. */
int32_t kvc_lease_take(struct kvc_engine *engine, uint64_t *out_generation);
/* A granted block that goes straight into a row. */
int kvc_lease_adopt(struct kvp_client *client, int32_t id, uint64_t generation);
/* A block that is to be the pool's: -KVP_EPROTO when it is ours, or no data block. `what` is one clause. */
int kvc_lease_check_foreign(struct kvp_client *client, int32_t id, uint64_t generation, const char *what);
/* A block of a row that became the pool's. */
void kvc_lease_forget(struct kvc_engine *engine, int32_t id);
/* A row gives a block up: reusable when (timeline, step) is reached. */
void kvc_lease_give(struct kvc_engine *engine, int32_t id, uint32_t timeline, uint64_t step);

/* Drained blocks become free; what is above the high mark is returned; what is below the low mark is asked for. */
void kvc_lease_pump(struct kvp_client *client);
/* The answer to the LEASE on its way. */
int kvc_lease_answer(struct kvp_client *client, const struct kvw_answer *answers,
		     const struct kvw_completion *completion);

#endif
