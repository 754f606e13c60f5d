/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Posting records. Everything here is under the client's lock.
 */
#ifndef KVPOOL_LIBCLIENT_POST_H
#define KVPOOL_LIBCLIENT_POST_H

#include <stdbool.h>
#include <stdint.h>

#include "ipc/shm.h"

struct kvp_client;
struct kvc_engine;
struct kvc_op;

/* Places of the ring that only a RELEASE or TRUNCATE may take: a full ring must not keep sequences from being closed. */
#define KVC_RING_KEPT 64u

/*
 * Posts a record that is always answered (OPEN, EXTEND, LEASE, PUBLISH); fills in the ticket and the place of
 * its answers, and remembers (type, row, first, count). -KVP_EBACKLOG: no room.
 */
int kvc_post_asking(struct kvp_client *client, struct kvw_request *record);
/* Posts a record that is answered only when it fails. RELEASE and TRUNCATE may use the kept places. */
int kvc_post_telling(struct kvp_client *client, struct kvw_request *record);

/* The op of a ticket, or NULL; kvc_op_end() frees its place. */
struct kvc_op *kvc_op_find(struct kvc_engine *engine, uint64_t ticket);
void kvc_op_end(struct kvc_engine *engine, struct kvc_op *op);
/* What was answered to it, and that this was read: the places go to other records. */
const struct kvw_answer *kvc_op_answers(const struct kvc_engine *engine, const struct kvc_op *op);
void kvc_op_answers_read(struct kvc_engine *engine, const struct kvc_op *op);
/* Whether `ticket` is one that kvc_post_telling() gave out. */
bool kvc_is_telling(const struct kvc_engine *engine, uint64_t ticket);

/* Wakes the daemon when it sleeps: a system call then. */
void kvc_ring_doorbell(const struct kvc_engine *engine);

#endif
