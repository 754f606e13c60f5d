/* SPDX-License-Identifier: Apache-2.0 */
/* The replay of look-ups alone. */
#include "metadata.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <kvpool/kvpool.h>

#include "fleet.h"
#include "ipc/hash.h"
#include "progress.h"

#define TIMELINE 0u

struct metadata {
	const struct rep_run *run;
	struct rep_stats *stats;
	struct kvp_client *client;
	struct kvp_pool_info pool;
	struct kvw_hasher *hasher;
	uint8_t *hashes; /* [longest request][KVW_SHA256_BYTES] */
	uint32_t timeout_ms;
};

static int fail(const char *what, int error)
{
	const char *detail = kvp_last_error();

	rep_progress_clear();
	ctl_complain("%s: %s (%s)", what, kvp_error_name(error), *detail ? detail : kvp_error_text(error));
	return error;
}

static uint32_t longest_request(const struct rep_trace *trace)
{
	uint32_t longest = 1;

	for (uint32_t i = 0; i < trace->count; i++)
		if (trace->requests[i].id_count > longest)
			longest = trace->requests[i].id_count;
	return longest;
}

/* What of a request fits the pool. */
static uint32_t kept_blocks(const struct metadata *metadata, uint32_t request)
{
	uint32_t blocks = metadata->run->trace->requests[request].id_count;

	return blocks < metadata->pool.data_blocks ? blocks : metadata->pool.data_blocks;
}

/* The lease stays empty: every block comes with the open that needs it. */
static int attach(struct metadata *metadata)
{
	static const struct kvp_identity identity[] = {{"content", "kvpoolctl replay of look-ups 1"}};
	uint32_t longest = longest_request(metadata->run->trace);
	struct kvp_attach_params params = {
		.size = sizeof(params),
		.flags = KVP_ATTACH_LEASE_MARKS,
		.pool = metadata->run->options->pool,
		.timeout_ms = metadata->timeout_ms,
		.max_seqs = 1,
		.hash_bytes = KVW_SHA256_BYTES,
		.identity_count = 1,
		.identity = identity,
	};

	if (longest > metadata->pool.data_blocks)
		longest = metadata->pool.data_blocks;
	params.max_seq_tokens = longest * metadata->pool.block_tokens;
	return kvp_attach(metadata->client, &params);
}

static int connect_and_attach(struct metadata *metadata)
{
	const struct rep_options *options = metadata->run->options;
	struct kvp_connect_params params = {.size = sizeof(params),
					    .timeout_ms = metadata->timeout_ms,
					    .path = options->global.socket,
					    .name = "replay"};
	int ret = kvp_connect(&params, &metadata->client);

	if (ret)
		return fail("connect", ret);
	metadata->pool.size = sizeof(metadata->pool);
	ret = kvp_pool_info(metadata->client, options->pool, metadata->timeout_ms, &metadata->pool);
	if (ret)
		return fail("pool", ret);
	ret = attach(metadata);
	if (ret)
		return fail("attach", ret);
	atomic_store(&metadata->stats->session, kvp_session_id(metadata->client));
	return 0;
}

/* A trace's ids are chained already, so each is hashed alone. */
static int hash_ids(struct metadata *metadata, uint32_t request, uint32_t blocks)
{
	const uint64_t *ids = rep_request_ids(metadata->run->trace, request);
	int ret = 0;

	for (uint32_t i = 0; i < blocks && !ret; i++) {
		uint32_t words[2] = {(uint32_t)ids[i], (uint32_t)(ids[i] >> 32)};

		ret = kvw_hash_block(metadata->hasher, NULL, words, 2, NULL, 0,
				     metadata->hashes + (size_t)i * KVW_SHA256_BYTES);
	}
	return ret ? fail("hash", ret) : 0;
}

/* The missing blocks of an open request: one step writes them all. */
static int publish(struct metadata *metadata, struct kvp_seq *seq, uint32_t cached, uint32_t blocks)
{
	uint32_t tokens = (blocks - cached) * metadata->pool.block_tokens;
	uint64_t step = kvp_step_next(metadata->client, TIMELINE);
	int ret;

	if (!tokens)
		return 0;
	ret = kvp_seq_stage(seq, tokens, TIMELINE, step);
	if (ret)
		return fail("stage", ret);
	kvp_step_done(metadata->client, TIMELINE, step);
	ret = kvp_seq_settle_hashed(seq, tokens, metadata->hashes + (size_t)cached * KVW_SHA256_BYTES,
				    blocks - cached, 1, TIMELINE, step);
	return ret ? fail("settle", ret) : 0;
}

static int open_request(struct metadata *metadata, uint32_t blocks, struct kvp_seq **out)
{
	struct kvp_open_request request = {
		.size = sizeof(request),
		.hashes = metadata->hashes,
		.hash_count = blocks,
		.token_count = blocks * metadata->pool.block_tokens,
		.max_cached_tokens = UINT32_MAX,
	};
	int result = 0;
	int ret = kvp_open(metadata->client, &request, 1, metadata->timeout_ms, &result, out);

	if (!ret)
		ret = result;
	return ret ? fail("open", ret) : 0;
}

static int replay_one(struct metadata *metadata, uint32_t index)
{
	struct kvp_seq_info info = {.size = sizeof(info)};
	uint32_t blocks = kept_blocks(metadata, index);
	struct kvp_seq *seq;
	uint32_t cached;
	int ret = hash_ids(metadata, index, blocks);

	if (ret || !blocks)
		return ret;
	ret = open_request(metadata, blocks, &seq);
	if (ret)
		return ret;
	ret = kvp_seq_info(seq, &info);
	if (ret)
		return fail("sequence", ret);
	cached = info.cached_tokens / metadata->pool.block_tokens;
	rep_stat_add(&metadata->stats->lookup_blocks, blocks);
	rep_stat_add(&metadata->stats->hit_blocks, cached);
	ret = publish(metadata, seq, cached, blocks);
	if (ret)
		return ret;
	ret = kvp_seq_close(seq);
	return ret ? fail("close", ret) : 0;
}

static int replay_all(struct metadata *metadata)
{
	const struct rep_trace *trace = metadata->run->trace;
	struct rep_progress progress;
	int ret = 0;

	rep_progress_init(&progress, metadata->run);
	for (uint32_t i = 0; i < trace->count && !ret && !rep_interrupted(); i++) {
		ret = replay_one(metadata, i);
		rep_stat_add(&metadata->stats->requests, !ret);
		rep_stat_add(&metadata->stats->work, rep_work(&trace->requests[i]));
		if (i % 256 == 0)
			rep_progress_draw(&progress, metadata->run);
	}
	rep_progress_clear();
	if (!ret) {
		ret = kvp_sync(metadata->client, metadata->timeout_ms);
		if (ret)
			fail("sync", ret);
	}
	return ret;
}

int rep_metadata_run(const struct rep_run *run)
{
	struct metadata metadata = {
		.run = run, .stats = &run->shared->stats[0], .timeout_ms = run->options->global.timeout_ms};
	int ret = kvw_hasher_create(&metadata.hasher);

	if (ret)
		return fail("hash", ret);
	metadata.hashes = calloc(longest_request(run->trace), KVW_SHA256_BYTES);
	ret = metadata.hashes ? connect_and_attach(&metadata) : fail("memory", -ENOMEM);
	if (!ret)
		ret = replay_all(&metadata);
	kvp_close(metadata.client);
	free(metadata.hashes);
	kvw_hasher_destroy(metadata.hasher);
	return ret;
}
