/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool's geometry as the daemon tells it, checked against what its declared planes must give.
 */
#ifndef KVPOOL_LIBCLIENT_POOL_INFO_H
#define KVPOOL_LIBCLIENT_POOL_INFO_H

#include <stdint.h>

struct kvp_client;
struct kvc_pool;

/* Asks for pool `name` (NULL: the only one). Between kvc_control_begin() and kvc_control_end(). */
int kvc_pool_fetch(struct kvp_client *client, const char *name, uint64_t deadline_ns, struct kvc_pool *out);

#endif
