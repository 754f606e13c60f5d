/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cuda pool's shard in this process. However many clients attach to the same pool of the same daemon's run in the same
 * context, it is mapped once: an allocation can be opened but once in a context, and addresses are to be the same for all.
 */
#ifndef KVPOOL_LIBCLIENT_MAP_CUDA_H
#define KVPOOL_LIBCLIENT_MAP_CUDA_H

#include <stdint.h>

struct kvc_cuda;

/* Pieces that a pool may have: the daemon makes no more. */
#define KVC_MAX_CHUNKS 256u

struct kvc_device_pool;

/* What the daemon tells of the shard. */
struct kvc_device_pool_params {
	uint64_t incarnation;
	uint32_t pool;
	uint32_t shard;
	const char *name;
	uint64_t bytes;
	/* An allocation's handle, ... */
	const uint8_t *handle; /* [64], or NULL */
	uint64_t offset;       /* of the pool in it */
	/* ... or descriptors of pieces, all but the last of chunk_bytes; they stay the caller's. */
	const int *fds;
	uint32_t chunk_count;
	uint64_t chunk_bytes;
};

/* All or nothing. May take seconds; other threads' attaches wait for it. */
int kvc_device_pool_map(struct kvc_cuda *cuda, const struct kvc_device_pool_params *params,
			struct kvc_device_pool **out);
/* Unmaps it when nobody else has it. NULL is fine, and so is a forked child. */
void kvc_device_pool_drop(const struct kvc_cuda *cuda, struct kvc_device_pool *pool);
/* Address of block 0's first byte. */
uint64_t kvc_device_pool_address(const struct kvc_device_pool *pool);

#endif
