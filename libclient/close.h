/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVPOOL_LIBCLIENT_CLOSE_H
#define KVPOOL_LIBCLIENT_CLOSE_H

#include <stdint.h>

struct kvp_client;
struct kvp_seq;

/* Carries a CLOSING row on as far as it goes now: release the hold, await the answers, give up what is ours, free the row. Under the lock. */
void kvc_close_advance(struct kvp_client *client, uint32_t row);

/* Closes whatever the state, under the lock: for sequences of which the caller never heard. What finds no room is owed. */
void kvc_close_quietly(struct kvp_client *client, struct kvp_seq *seq);

#endif
