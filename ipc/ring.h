/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Single-producer single-consumer rings of 64-byte records in a channel, and the doorbell rule.
 *
 * Neither side trusts the other's index: a fill level above the ring's size is an error
 * (-KVP_EPROTO), and a record is copied out once before it is looked at.
 *
 * Doorbell (sleeping word S in the directory, ring tail T):
 *   client: store T (release); fence seq_cst; load S; if 1: write the eventfd
 *   daemon: store S = 1; fence seq_cst; load every T; if none moved: wait; S = 0
 * Acquire and release alone lose wake-ups: store-load order is what matters.
 */
#ifndef KVPOOL_IPC_RING_H
#define KVPOOL_IPC_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "shm.h"

/* One end of one ring. `own` caches the index that this side writes; the peer cannot change it. */
struct kvw_ring {
	struct kvw_ring_words *words;
	void *records; /* KVW_RING_RECORDS of 64 bytes */
	uint32_t own;
};

/* Ends start at index 0 of a fresh channel. */
void kvw_ring_init(struct kvw_ring *ring, struct kvw_ring_words *words, void *records);

/* Producer: records that can be posted now (0..KVW_RING_RECORDS), or -KVP_EPROTO. */
int kvw_ring_space(struct kvw_ring *ring);
/*
 * Producer: copies one 64-byte record in and releases it. -KVP_EBACKLOG when the ring is full, -KVP_EPROTO.
 */
int kvw_ring_post(struct kvw_ring *ring, const void *record);
/* Consumer: records waiting (0..KVW_RING_RECORDS), or -KVP_EPROTO. */
int kvw_ring_waiting(struct kvw_ring *ring);
/* Consumer: copies the oldest record out and frees its place. Returns 1, 0 when empty, or -KVP_EPROTO. */
int kvw_ring_take(struct kvw_ring *ring, void *record);
/* Consumer: copies the oldest record out without freeing its place. Returns as kvw_ring_take(). */
int kvw_ring_peek(struct kvw_ring *ring, void *record);

/*
 * Producer: whether the consumer has taken everything posted up to index `mark` (an earlier value of
 * ring->own).
 */
bool kvw_ring_passed(struct kvw_ring *ring, uint32_t mark);

/*
 * The seq_cst fence of the doorbell rule, for every side that stores one word and then looks at another: the
 * daemon between its sleeping words and the tails, either side around client_waiting.
 */
void kvw_store_load_fence(void);

/* Client, after a post: whether the daemon sleeps and the doorbell must be written. */
bool kvw_must_ring(const struct kvw_directory_header *directory);

/*
 * Waits on a futex word shared between processes until it differs from `seen` or timeout_ms passed. 0,
 * -EAGAIN, -ETIMEDOUT, -EINTR.
 */
int kvw_futex_wait(_Atomic uint32_t *word, uint32_t seen, uint32_t timeout_ms);
/* Wakes at most so many waiters, who each cost the caller time; how many were woken, negative on failure. */
int kvw_futex_wake(_Atomic uint32_t *word, int most);

#endif
