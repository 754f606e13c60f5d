/* SPDX-License-Identifier: Apache-2.0 */
#include "map_cuda.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <kvpool/error.h>

#include "cuda.h"
#include "error.h"

struct kvc_device_pool {
	struct kvc_device_pool *next;
	/* The key. */
	uint64_t incarnation;
	uint32_t pool;
	uint32_t shard;
	struct kvw_cuda_context *context;

	uint32_t references;
	uint64_t address;
	uint64_t opened;   /* what cuIpcOpenMemHandle() gave; 0: pieces */
	uint64_t reserved; /* base of the addresses of pieces */
	uint64_t reserved_bytes;
	uint64_t chunk_bytes;
	uint32_t mapped_chunks;
};

/* All that this process has mapped. A forked child never comes here. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct kvc_device_pool *all;

static struct kvc_device_pool *find(const struct kvc_cuda *cuda, const struct kvc_device_pool_params *params)
{
	struct kvc_device_pool *pool = all;

	while (pool && !(pool->incarnation == params->incarnation && pool->pool == params->pool &&
			 pool->shard == params->shard && pool->context == cuda->context))
		pool = pool->next;
	return pool;
}

static void take_out(struct kvc_device_pool *pool)
{
	struct kvc_device_pool **at = &all;

	while (*at != pool)
		at = &(*at)->next;
	*at = pool->next;
}

/* ------------------------------------------------------------------ one allocation */

static int open_handle(struct kvc_cuda *cuda, const struct kvc_device_pool_params *params,
		       struct kvc_device_pool *pool)
{
	struct kvw_cuda_ipc_handle handle;
	struct kvw_cuda_error error;
	uint64_t base = 0;
	size_t bytes = 0;
	int ret;

	memcpy(handle.bytes, params->handle, sizeof(handle.bytes));
	ret = KVW_CUDA(cuda->driver, &error, cuIpcOpenMemHandle, &pool->opened, handle,
		       KVW_CUDA_IPC_LAZY_PEER);
	if (ret < 0)
		return kvc_fail(
			ret,
			"pool '%s': opening the daemon's allocation: %s; engines need another pid than the "
			"daemon has "
			"in its own pid namespace, the same driver, no capture running; or set 'share = fd'",
			params->name, error.text);
	ret = KVW_CUDA(cuda->driver, &error, cuMemGetAddressRange, &base, &bytes, pool->opened);
	if (ret < 0)
		return kvc_cuda_fail(ret, &error, "asking how large the daemon's allocation is");
	if (params->offset > bytes || params->bytes > bytes - params->offset)
		return kvc_fail(KVP_ELAYOUT,
				"pool '%s': the daemon's allocation has %zu bytes, %" PRIu64 " from %" PRIu64
				" on were announced",
				params->name, bytes, params->bytes, params->offset);
	pool->address = pool->opened + params->offset;
	return 0;
}

/* ------------------------------------------------------------------ pieces */

static int map_chunk(struct kvc_cuda *cuda, const struct kvc_device_pool_params *params, uint32_t chunk,
		     const struct kvc_device_pool *pool, struct kvw_cuda_error *error)
{
	uint64_t at = chunk * params->chunk_bytes;
	uint64_t rest = params->bytes - at;
	uint64_t handle;
	int ret = KVW_CUDA(cuda->driver, error, cuMemImportFromShareableHandle, &handle,
			   (void *)(intptr_t)params->fds[chunk], KVW_CUDA_HANDLE_FD);

	if (ret < 0)
		return ret;
	ret = KVW_CUDA(cuda->driver, error, cuMemMap, pool->reserved + at,
		       rest < params->chunk_bytes ? rest : params->chunk_bytes, 0, handle, 0);
	/* The mapping keeps the memory. */
	(void)KVW_CUDA(cuda->driver, NULL, cuMemRelease, handle);
	return ret;
}

/* One call for all pieces: each costs the driver a round through the device's page tables. */
static int allow_access(struct kvc_cuda *cuda, const struct kvc_device_pool *pool,
			struct kvw_cuda_error *error)
{
	const struct kvw_cuda_access access = {
		.location = {KVW_CUDA_LOCATION_DEVICE, cuda->device},
		.flags = KVW_CUDA_ACCESS_READ_WRITE,
	};

	return KVW_CUDA(cuda->driver, error, cuMemSetAccess, pool->reserved, pool->reserved_bytes, &access,
			1);
}

static int map_chunks(struct kvc_cuda *cuda, const struct kvc_device_pool_params *params,
		      struct kvc_device_pool *pool)
{
	struct kvw_cuda_error error;
	int ret =
		KVW_CUDA(cuda->driver, &error, cuMemAddressReserve, &pool->reserved, params->bytes, 0, 0, 0);

	if (ret < 0)
		return kvc_cuda_fail(ret, &error, "addresses for the pool on the device");
	pool->reserved_bytes = params->bytes;
	pool->chunk_bytes = params->chunk_bytes;
	while (!ret && pool->mapped_chunks < params->chunk_count) {
		ret = map_chunk(cuda, params, pool->mapped_chunks, pool, &error);
		if (!ret)
			pool->mapped_chunks++;
	}
	if (ret < 0)
		return kvc_fail(ret, "pool '%s': mapping piece %u of %u: %s; is a capture running?",
				params->name, pool->mapped_chunks, params->chunk_count, error.text);
	ret = allow_access(cuda, pool, &error);
	if (ret < 0)
		return kvc_cuda_fail(ret, &error, "access to the pool on the device");
	pool->address = pool->reserved;
	return 0;
}

static int check_chunks(const struct kvc_device_pool_params *params)
{
	uint64_t count =
		params->chunk_bytes ? (params->bytes + params->chunk_bytes - 1) / params->chunk_bytes : 0;

	if (!params->bytes || params->chunk_count > KVC_MAX_CHUNKS || count != params->chunk_count)
		return kvc_fail(KVP_ELAYOUT,
				"pool '%s': %u pieces of %" PRIu64 " bytes were announced for %" PRIu64
				" bytes; at most %u",
				params->name, params->chunk_count, params->chunk_bytes, params->bytes,
				KVC_MAX_CHUNKS);
	return 0;
}

/* ------------------------------------------------------------------ both */

/* In the context: the reverse of mapping, as far as it came. */
static void unmap(const struct kvc_cuda *cuda, struct kvc_device_pool *pool)
{
	uint32_t i;

	if (pool->opened)
		(void)KVW_CUDA(cuda->driver, NULL, cuIpcCloseMemHandle, pool->opened);
	for (i = 0; i < pool->mapped_chunks; i++) {
		uint64_t at = i * pool->chunk_bytes;
		uint64_t rest = pool->reserved_bytes - at;

		(void)KVW_CUDA(cuda->driver, NULL, cuMemUnmap, pool->reserved + at,
			       rest < pool->chunk_bytes ? rest : pool->chunk_bytes);
	}
	if (pool->reserved)
		(void)KVW_CUDA(cuda->driver, NULL, cuMemAddressFree, pool->reserved, pool->reserved_bytes);
}

static int create(struct kvc_cuda *cuda, const struct kvc_device_pool_params *params,
		  struct kvc_device_pool **out)
{
	struct kvc_device_pool *pool = calloc(1, sizeof(*pool));
	bool pushed;
	int ret;

	if (!pool)
		return kvc_fail_plain(ENOMEM, "a pool on the device");
	ret = kvc_cuda_enter(cuda, &pushed);
	if (ret)
		goto free_pool;
	ret = params->handle ? open_handle(cuda, params, pool) : map_chunks(cuda, params, pool);
	if (ret)
		unmap(cuda, pool);
	kvc_cuda_leave(cuda, pushed);
free_pool:
	if (ret) {
		free(pool);
		return ret;
	}
	pool->incarnation = params->incarnation;
	pool->pool = params->pool;
	pool->shard = params->shard;
	pool->context = cuda->context;
	pool->next = all;
	all = *out = pool;
	return 0;
}

int kvc_device_pool_map(struct kvc_cuda *cuda, const struct kvc_device_pool_params *params,
			struct kvc_device_pool **out)
{
	struct kvc_device_pool *pool;
	int ret = params->handle ? 0 : check_chunks(params);

	if (ret)
		return ret;
	pthread_mutex_lock(&lock);
	pool = find(cuda, params);
	if (!pool)
		ret = create(cuda, params, &pool);
	if (!ret)
		pool->references++;
	pthread_mutex_unlock(&lock);
	if (!ret)
		*out = pool;
	return ret;
}

void kvc_device_pool_drop(const struct kvc_cuda *cuda, struct kvc_device_pool *pool)
{
	bool pushed = false;

	if (!pool || !kvw_cuda_alive(cuda->driver))
		return;
	pthread_mutex_lock(&lock);
	if (!--pool->references) {
		take_out(pool);
		(void)kvc_cuda_enter(cuda, &pushed);
		unmap(cuda, pool);
		kvc_cuda_leave(cuda, pushed);
		free(pool);
	}
	pthread_mutex_unlock(&lock);
}

uint64_t kvc_device_pool_address(const struct kvc_device_pool *pool)
{
	return pool->address;
}
