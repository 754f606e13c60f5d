/* SPDX-License-Identifier: Apache-2.0 */
#include "attach_cuda.h"

#include "ipc/frame.h"

#include "client.h"
#include "control.h"
#include "cuda.h"
#include "error.h"
#include "map_cuda.h"
#include "peers_cuda.h"
#include "plan.h"

/* Many times the daemon's poll interval. */
#define SILENCE_NS UINT64_C(50000000)

int kvc_device_open(struct kvp_client *client, const struct kvc_plan *plan)
{
	const struct kvc_shard *shard = &client->pool->shard;
	const struct kvc_cuda_choice choice = {
		.given = plan->params.cuda_context,
		.uuid = shard->share ? shard->uuid : NULL,
		.pool = client->pool->name,
	};

	return shard->share || choice.given ? kvc_cuda_open(&choice, &client->cuda) : 0;
}

static int map_pool(struct kvp_client *client, const int *chunk_fds)
{
	const struct kvc_shard *shard = &client->pool->shard;
	const struct kvc_device_pool_params params = {
		.incarnation = client->incarnation,
		.pool = client->pool->id,
		.name = client->pool->name,
		.bytes = shard->bytes,
		.offset = shard->offset,
		.handle = shard->share == KVW_SHARE_IPC ? shard->handle : NULL,
		.fds = chunk_fds,
		.chunk_count = shard->chunks,
		.chunk_bytes = shard->chunk_bytes,
	};

	return shard->share ? kvc_device_pool_map(client->cuda, &params, &client->cuda->pool) : 0;
}

int kvc_device_bind(struct kvp_client *client, const int *chunk_fds)
{
	struct kvc_cuda *cuda = client->cuda;
	bool pushed;
	int ret;

	if (!cuda)
		return 0;
	ret = map_pool(client, chunk_fds);
	if (!ret)
		ret = kvc_cuda_load(cuda);
	if (!ret)
		ret = kvc_cuda_enter(cuda, &pushed);
	if (ret)
		return ret;
	ret = kvc_pin(cuda, client->maps[KVC_MAP_TIMELINES].memory, sizeof(struct kvw_timelines), "timelines",
		      &cuda->timelines);
	kvc_cuda_leave(cuda, pushed);
	return ret;
}

/*
 * Before the attach has ended nothing of ours could be launched, and the context's streams are the engine's own: an attach that failed waits for
 * none of them. (The driver may, where something was mapped already: unmapping can wait for the whole context.)
 */
static bool is_quiet(const struct kvp_client *client)
{
	return !atomic_load_explicit(&client->attached, memory_order_acquire) ||
	       !kvc_cuda_quiet(client->cuda);
}

void kvc_device_close(struct kvp_client *client, const struct kvc_engine *engine, bool forked)
{
	struct kvw_channel_header *channel = client->maps[KVC_MAP_CHANNEL].memory;
	bool quiet;

	if (!client->cuda)
		return;
	quiet = !forked && is_quiet(client);
	kvc_peers_close(client->cuda, forked);
	kvc_cuda_close(client->cuda);
	client->cuda = NULL;
	/* Pairs with the daemon's acquire: what was queued before has ended. */
	if (quiet && engine && channel && client->pool->shard.share)
		atomic_store_explicit(&channel->drained, 1, memory_order_release);
}

/* Now and then a look at the socket, so that a daemon that stands still is not taken for a dead one. */
static int look(struct kvp_client *client, uint64_t heartbeat)
{
	struct kvc_cuda *cuda = client->cuda;
	uint64_t now_ns = kvw_now_ns();

	if (heartbeat != cuda->heartbeat || !cuda->heartbeat_ns) {
		cuda->heartbeat = heartbeat;
		cuda->heartbeat_ns = now_ns;
	}
	if (now_ns - cuda->heartbeat_ns < SILENCE_NS)
		return 0;
	cuda->heartbeat_ns = now_ns;
	return kvc_control_look(client);
}

int kvc_device_check(struct kvp_client *client)
{
	uint64_t heartbeat;

	if (client->pool->shard.share != KVW_SHARE_IPC)
		return 0;
	heartbeat = atomic_load_explicit(&client->engine->directory->heartbeat, memory_order_relaxed);
	if (kvc_is_gone(client) || look(client, heartbeat))
		return kvc_fail(KVP_EDAEMON,
				"the daemon is gone, and pool '%s' was its allocation: end the device's work "
				"and kvp_close(); the "
				"next daemon waits for that",
				client->pool->name);
	return 0;
}
