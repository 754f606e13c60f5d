/* SPDX-License-Identifier: Apache-2.0 */
/* What the daemon tells of a pool's memory on a device. */
#ifndef KVPOOL_LIBCLIENT_SHARD_H
#define KVPOOL_LIBCLIENT_SHARD_H

#include <stdbool.h>
#include <stdint.h>

#include "ipc/limits.h"
#include "ipc/wire.h"

struct kvp_client;

struct kvc_shard {
	uint32_t share; /* enum kvw_share; 0: the pool is the host's */
	uint32_t chunks;
	uint64_t bytes;  /* of the allocation */
	uint64_t offset; /* of the pool in it */
	uint64_t chunk_bytes;
	uint8_t uuid[16];
	uint8_t handle[64]; /* KVW_SHARE_IPC, once attached */
	char device[KVW_MAX_NAME_BYTES + 1];
};

/* Checks and copies the one item of `memories`; none: a pool of the host. `handle`: it has one, if shared so. */
int kvc_shard_read(struct kvp_client *client, struct kvw_list memories, uint64_t pool_bytes, bool handle,
		   struct kvc_shard *out);
/* Whether two answers speak of the same memory. */
bool kvc_shard_same(const struct kvc_shard *a, const struct kvc_shard *b);

#endif
