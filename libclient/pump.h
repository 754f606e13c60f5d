/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library has no thread: whatever is due is done by the next call that holds the lock.
 */
#ifndef KVPOOL_LIBCLIENT_PUMP_H
#define KVPOOL_LIBCLIENT_PUMP_H

#include <stdbool.h>
#include <stdint.h>

struct kvp_client;

/* Takes answers in, posts what is owed, tends the lease. Under the lock; no system call unless the lease is below its critical mark. */
void kvc_pump(struct kvp_client *client);

/*
 * Waits under the lock (given up while asleep) until done(client, arg) is not 0 and returns it when it is negative, else 0. Pumps before it
 * looks. -ETIMEDOUT; -KVP_EDAEMON, -KVP_EREVOKED, -KVP_EPROTO as soon as they are seen.
 */
int kvc_wait(struct kvp_client *client, uint64_t deadline_ns,
	     int (*done)(struct kvp_client *client, void *arg), void *arg);

/* Asks for the first blocks, right after attach. */
void kvc_first_lease(struct kvp_client *client);

/* A row with records that found no room; kvc_pump() tries again. */
void kvc_owe(struct kvp_client *client, uint32_t row, uint8_t what);

#endif
