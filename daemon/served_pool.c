/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening and closing a pool; its lock bytes and its session table. (Populating: populate.c.)
 */
#include "served_pool.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include <xxhash.h>

#include <kvpool/error.h>

#include "log.h"
#include "turn.h"

#define LOOK_EVERY_US 1000000u

static int open_memory(struct kvd_served_pool *pool)
{
	const struct kvd_memory_params params = {
		.name = pool->config->name,
		.bytes = pool->config->geometry.bytes,
		.pages = pool->config->pages,
		.device = pool->config->device,
		.share = pool->config->share,
		.allow_mps = pool->config->allow_mps != 0,
	};

	pool->device = kvd_pool_config_is_cuda(pool->config) ? &kvd_device_cuda : &kvd_device_host;
	return pool->device->create(&params, &pool->memory);
}

static int open_segments(struct kvd_served_pool *pool)
{
	uint32_t blocks = pool->config->geometry.blocks;
	uint64_t state_bytes = kvd_pool_state_bytes(blocks);
	struct kvw_directory_layout layout;
	int ret;

	kvw_directory_layout(blocks, &layout);
	ret = kvd_segment_create("kvpool-state", state_bytes, KVD_SEGMENT_PRIVATE, &pool->state);
	if (!ret)
		ret = kvd_segment_create("kvpool-directory", layout.bytes, KVD_SEGMENT_READ,
					 &pool->directory);
	if (ret)
		kvd_log_error("pool '%s': its books need %" PRIu64
			      " bytes of shared memory: %s; give it fewer "
			      "blocks than %" PRIu32 ", or the machine more memory",
			      pool->config->name, state_bytes + layout.bytes, strerror(-ret), blocks);
	return ret;
}

static int open_books(struct kvd_served_pool *pool, uint64_t incarnation)
{
	const struct kvd_pool_config *config = pool->config;
	struct kvd_pool_params params = {
		.pool = pool->number,
		.data_blocks = config->data_blocks,
		.sink_blocks = config->max_engines,
		.incarnation = incarnation,
		.policy = kvd_policy_find(config->policy),
		.state = pool->state.memory,
		.directory = pool->directory.memory,
	};
	int ret;

	if (getrandom(&params.seed, sizeof(params.seed), 0) != sizeof(params.seed))
		return -EIO;
	ret = kvd_pool_create(&params, &pool->pool);
	if (ret)
		kvd_log_error("pool '%s': the books of %" PRIu32 " blocks could not be set up: %s",
			      config->name, config->geometry.blocks, strerror(-ret));
	return ret;
}

int kvd_served_pool_open(const struct kvd_pool_config *config, uint32_t number, uint64_t incarnation,
			 struct kvd_served_pool *pool)
{
	int ret;

	*pool = (struct kvd_served_pool){
		.config = config,
		.number = number,
		.state = {.fd = -1, .send_fd = -1},
		.directory = {.fd = -1, .send_fd = -1},
		.tenants.quota_blocks = config->quota_blocks,
	};
	ret = open_memory(pool);
	kvd_lock_queue_init(&pool->locks, pool->device, pool->memory);
	if (!ret)
		ret = open_segments(pool);
	if (!ret)
		ret = open_books(pool, incarnation);
	if (ret)
		kvd_served_pool_close(pool);
	return ret;
}

void kvd_served_pool_close(struct kvd_served_pool *pool)
{
	if (!pool->config)
		return;
	if (pool->pool)
		((struct kvw_state_header *)pool->state.memory)->clean_end = 1;
	kvd_pool_destroy(pool->pool);
	kvd_tenants_destroy(&pool->tenants);
	kvd_segment_destroy(&pool->directory);
	kvd_segment_destroy(&pool->state);
	if (pool->memory)
		pool->device->destroy(pool->memory);
	memset(pool, 0, sizeof(*pool));
}

bool kvd_served_pool_sharing(const struct kvd_served_pool *pool, struct kvd_cuda_sharing *out)
{
	return pool->ready && kvd_pool_config_is_cuda(pool->config) && !kvd_cuda_sharing(pool->memory, out);
}

bool kvd_served_pool_memory(const struct kvd_served_pool *pool, struct kvw_item_MEMORY *out,
			    struct kvd_cuda_sharing *out_sharing)
{
	struct kvd_cuda_sharing *sharing = out_sharing;

	if (!kvd_served_pool_sharing(pool, sharing))
		return false;
	*out = (struct kvw_item_MEMORY){
		.share = sharing->share == KVD_SHARE_FD ? KVW_SHARE_FD : KVW_SHARE_IPC,
		.device = kvw_text_of(pool->config->device),
		.uuid = kvw_bytes_of(sharing->uuid, sizeof(sharing->uuid)),
		.bytes = sharing->bytes,
		.offset = sharing->offset,
		.chunk_bytes = sharing->chunk_bytes,
		.chunks = sharing->chunk_count,
	};
	return true;
}

const char *kvd_served_pool_fault(const struct kvd_served_pool *pool)
{
	const char *problem;

	if (!pool->lost && !(pool->failed && kvd_pool_config_is_cuda(pool->config)))
		return "";
	problem = kvd_cuda_problem(pool->memory);
	return *problem ? problem : strerror(-pool->failed);
}

/* On the worker's thread. */
static int look(void *arg, const _Atomic int *cancel)
{
	struct kvd_served_pool *pool = arg;

	return *cancel ? -ECANCELED : kvd_cuda_look(pool->memory);
}

static void looked(void *arg, int result)
{
	struct kvd_served_pool *pool = arg;

	(void)result;
	pool->looking = false;
	if (pool->lost || !kvd_cuda_lost(pool->memory))
		return;
	pool->lost = true;
	kvd_log_error("pool '%s': its device '%s' is lost; its engines are told, and no new ones taken: "
		      "restart kvpoold when the device answers again",
		      pool->config->name, pool->config->device);
}

void kvd_served_pool_look(struct kvd_served_pool *pool, struct kvd_worker *worker, uint64_t now_us)
{
	if (!pool->ready || pool->lost || pool->looking || now_us < pool->next_look_us ||
	    !kvd_pool_config_is_cuda(pool->config))
		return;
	pool->next_look_us = now_us + LOOK_EVERY_US;
	pool->looking = !kvd_worker_submit(worker, "look at a CUDA device", look, looked, pool);
}

int kvd_lock_byte_take(struct kvd_served_pool *pool, uint64_t *out_byte)
{
	uint32_t byte;

	for (byte = 0; byte < pool->config->max_engines; byte++) {
		if (pool->lock_taken[byte])
			continue;
		pool->lock_taken[byte] = true;
		*out_byte = byte;
		return 0;
	}
	return -KVP_ELIMIT;
}

void kvd_lock_byte_give(struct kvd_served_pool *pool, uint64_t byte)
{
	pool->lock_taken[byte] = false;
}

void kvd_session_record_write(struct kvd_served_pool *pool, uint64_t lock_byte,
			      const struct kvw_session_record *record)
{
	const struct kvw_state_header *header = pool->state.memory;
	struct kvw_session_record *entry;

	if (lock_byte >= header->sessions)
		return;
	entry = (struct kvw_session_record *)((uint8_t *)pool->state.memory + header->session_table) +
		lock_byte;
	/*
	 * As with block records: no commit, then the body, then the commit, so that a torn entry reads as
	 * unused.
	 */
	entry->commit = 0;
	atomic_thread_fence(memory_order_release);
	if (!record)
		return;
	memcpy(entry, record, offsetof(struct kvw_session_record, commit));
	atomic_thread_fence(memory_order_release);
	entry->commit = XXH3_64bits(record, offsetof(struct kvw_session_record, commit));
}
