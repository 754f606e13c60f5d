/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests on the socket: one at a time, each with a deadline, each with exactly one answer.
 */
#ifndef KVPOOL_LIBCLIENT_CONTROL_H
#define KVPOOL_LIBCLIENT_CONTROL_H

#include <stdint.h>

#include "ipc/wire.h"

struct kvp_client;
struct kvc_control;

int kvc_control_init(struct kvc_control *control);
void kvc_control_destroy(struct kvc_control *control);

/* Takes the socket for a request; -ETIMEDOUT. Ended by kvc_control_end(). */
int kvc_control_begin(struct kvp_client *client, uint64_t deadline_ns);
void kvc_control_end(struct kvp_client *client);

/*
 * Sends request `type` and waits for its answer, whose text and lists stay valid until the next call or kvc_control_end(). An ERROR
 * answer becomes its error and text. fds, fd_count: room for descriptors, or NULL; the caller owns what came.
 */
int kvc_control_call(struct kvp_client *client, uint64_t deadline_ns, uint32_t type, const void *request,
		     union kvw_any *answer, int *fds, uint32_t *fd_count);

/* Whether the daemon has closed the socket: a system call that does not wait. Remembers it, returns the error or 0. */
int kvc_control_look(struct kvp_client *client);

#endif
