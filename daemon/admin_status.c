/* SPDX-License-Identifier: Apache-2.0 */
/*
 * STATUS: what the daemon is, how it does, what it does without. POOLS: the counts of every pool.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <kvpool/version.h>

#include "admin.h"
#include "log_writer.h"

/* A job of the worker that takes longer, without progress, is reported; so is a turn of the loop. */
#define WORKER_STUCK_MS 10000u
#define LONG_TURN_US 1000u
/* Pools that the answer gives reasons for: with all of them it would be too long a message. */
#define MAX_REASONS 16u

struct text {
	char at[KVW_MAX_TEXT_BYTES + 1];
	size_t used;
};

static void add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(struct text *text, const char *format, ...)
{
	size_t room = sizeof(text->at) - text->used;
	va_list args;
	int wrote;

	if (text->used && room > 2) {
		memcpy(text->at + text->used, "; ", 3);
		text->used += 2;
		room -= 2;
	}
	va_start(args, format);
	wrote = vsnprintf(text->at + text->used, room, format, args);
	va_end(args);
	if (wrote > 0)
		text->used += (size_t)wrote < room ? (size_t)wrote : room - 1;
}

/*
 * Milliseconds since the worker last got anywhere: populating a large pool takes long and is no fault while
 * it moves.
 */
static uint64_t worker_stuck_ms(const struct kvd_server *server, uint64_t busy_ms)
{
	uint64_t now_us = kvd_now_us();
	uint64_t stuck_ms = busy_ms;
	uint32_t i;

	for (i = 0; i < server->config->pool_count; i++) {
		const struct kvd_served_pool *pool = &server->pools[i];
		uint64_t still_ms = (now_us - pool->progress_us) / 1000;

		if (!pool->ready && still_ms < stuck_ms)
			stuck_ms = still_ms;
	}
	return stuck_ms;
}

/* What the worker last found is said: a look of our own at each process would hold up the loop. */
static void describe_populating(const struct kvd_served_pool *pool, struct text *out)
{
	if (pool->room.left.count)
		add(out,
		    "pool '%s' waits for room on its device; of an earlier daemon's engines still live: "
		    "%.200s",
		    pool->config->name, pool->room.left.text);
	else
		add(out, "pool '%s' is being populated", pool->config->name);
}

static void describe_health(const struct kvd_server *server, uint64_t busy_ms, const char *job,
			    struct text *out)
{
	uint64_t stuck_ms = worker_stuck_ms(server, busy_ms);
	uint32_t i;

	if (stuck_ms > WORKER_STUCK_MS)
		add(out,
		    "the worker has been at '%s' for %" PRIu64 " ms, the last %" PRIu64
		    " ms without progress",
		    job, busy_ms, stuck_ms);
	if (server->clock.longest_us > LONG_TURN_US)
		add(out,
		    "the loop's longest turn took %" PRIu64 " us, more than %u; %" PRIu64 " us of it in: %s",
		    server->clock.longest_us, LONG_TURN_US, server->clock.longest_in.took_us,
		    server->clock.longest_in.name);
	if (kvd_log_writer_lost())
		add(out, "%" PRIu64 " lines of the log were lost: standard error does not take them",
		    kvd_log_writer_lost());
	if (server->importers.unrecorded)
		add(out,
		    "%" PRIu32
		    " engine%s map%s device memory without a record in '%s': a later daemon will not name "
		    "%s while it waits for room",
		    server->importers.unrecorded, server->importers.unrecorded == 1 ? "" : "s",
		    server->importers.unrecorded == 1 ? "s" : "", server->importers.path,
		    server->importers.unrecorded == 1 ? "it" : "them");
	for (i = 0; i < server->config->pool_count; i++) {
		const struct kvd_served_pool *pool = &server->pools[i];

		if (*kvd_served_pool_fault(pool))
			add(out, "pool '%s' %s", pool->config->name,
			    pool->lost ? "has lost its device" : "is switched off");
		else if (!pool->ready)
			describe_populating(pool, out);
	}
	if (!out->used)
		add(out, "ok");
}

/* What the machine lacks, and the pools that can't be had for it. */
static void describe_off(const struct kvd_server *server, struct text *out)
{
	uint32_t i;

	if (*server->off)
		add(out, "%s", server->off);
	for (i = 0; i < server->config->pool_count; i++) {
		const struct kvd_served_pool *pool = &server->pools[i];

		if (*kvd_served_pool_fault(pool))
			add(out, "pool '%s' on %s: %s", pool->config->name, pool->config->device,
			    kvd_served_pool_fault(pool));
	}
}

static uint64_t longest_busy_ms(const struct kvd_server *server, const char **out_job)
{
	uint64_t longest_ms = 0;
	uint32_t i;

	for (i = 0; i < KVD_WORKERS; i++) {
		const char *job = "";
		uint64_t busy_ms = kvd_worker_busy_ms(server->workers[i].worker, &job);

		if (busy_ms <= longest_ms)
			continue;
		longest_ms = busy_ms;
		*out_job = job;
	}
	return longest_ms;
}

int kvd_request_status(struct kvd_session *session, const struct kvw_envelope *request,
		       const union kvw_any *message)
{
	const struct kvd_server *server = session->server;
	const char *longest_part = server->clock.longest_in.name;
	const char *job = "";
	uint64_t busy_ms = longest_busy_ms(server, &job);
	struct text health = {.used = 0};
	struct text off = {.used = 0};

	(void)message;
	describe_health(server, busy_ms, job, &health);
	describe_off(server, &off);
	const struct kvw_msg_STATUS_OK reply = {
		.daemon_version = kvw_text_of(KVP_VERSION_STRING),
		.event_loop = kvw_text_of(kvd_loop_name(server->loop)),
		.incarnation = server->incarnation,
		.pid = (uint64_t)getpid(),
		.uptime_ms = (kvd_now_us() - server->started_us) / 1000,
		.sessions = server->connections,
		.pools = server->config->pool_count,
		.longest_turn_us = server->clock.longest_us,
		.turns = server->clock.turns,
		.longest_part = kvw_text_of(longest_part ? longest_part : ""),
		.longest_part_us = server->clock.longest_in.took_us,
		.poll_ms = server->config->poll_ms,
		.health = kvw_text_of(health.at),
		.off = kvw_text_of(off.at),
		.socket = kvw_text_of(server->config->socket),
		.worker_busy_ms = busy_ms,
		.worker_job = kvw_text_of(job),
	};
	kvd_session_reply(session, request, &reply);
	return 0;
}

static void read_counters(const struct kvd_pool *pool, uint64_t out[KVW_COUNTERS])
{
	uint32_t i;

	for (i = 0; i < KVW_COUNTERS; i++)
		out[i] = kvd_pool_counter(pool, (enum kvw_counter)i);
}

static struct kvw_item_POOL_ITEM pool_item(const struct kvd_served_pool *served, const uint64_t *counters)
{
	const struct kvd_pool *pool = served->pool;
	const struct kvd_pool_config *config = served->config;
	const uint32_t *counts = pool->counts;

	return (struct kvw_item_POOL_ITEM){
		.id = served->number,
		.name = kvw_text_of(config->name),
		.blocks = config->data_blocks,
		.block_tokens = config->geometry.block_tokens,
		.bytes = config->geometry.bytes,
		.engines = served->engines,
		.epoch = pool->epoch,
		.policy = kvw_text_of(config->policy),
		.memory = kvw_text_of(served->device->backing(served->memory)),
		.free = counts[KVW_BLOCK_FREE],
		.leased = counts[KVW_BLOCK_LEASED],
		.pending = counts[KVW_BLOCK_PENDING],
		.cached = counts[KVW_BLOCK_CACHED],
		.orphan = counts[KVW_BLOCK_ORPHAN],
		.draining = counts[KVW_BLOCK_DRAINING],
		.frozen = counts[KVW_BLOCK_FROZEN],
		.quarantined = counts[KVW_BLOCK_QUARANTINED],
		.referenced = counts[KVW_BLOCK_CACHED] - pool->evictable,
		.evictable = pool->evictable,
		.counters = kvw_bytes_of(counters, KVW_COUNTERS * sizeof(*counters)),
		.quota_blocks = config->quota_blocks,
		.ready = served->ready,
		.populated_bytes = atomic_load_explicit(&served->populated_bytes, memory_order_relaxed),
		.device = kvw_text_of(config->device),
		.lost = served->lost,
	};
}

/* Why it is shared as it is, or why it can't be had. */
static struct kvw_text why_shared(const struct kvd_served_pool *pool, char out[KVD_CUDA_WHY_BYTES])
{
	struct kvd_cuda_sharing sharing;
	const char *fault = kvd_served_pool_fault(pool);

	if (!*fault && kvd_served_pool_sharing(pool, &sharing))
		fault = sharing.why;
	snprintf(out, KVD_CUDA_WHY_BYTES, "%s", fault);
	return kvw_text_of(out);
}

int kvd_request_pools(struct kvd_session *session, const struct kvw_envelope *request,
		      const union kvw_any *message)
{
	const struct kvd_server *server = session->server;
	struct kvw_item_POOL_ITEM items[KVW_MAX_POOLS];
	uint64_t counters[KVW_MAX_POOLS][KVW_COUNTERS];
	char why[MAX_REASONS][KVD_CUDA_WHY_BYTES];
	uint32_t i;

	(void)message;
	for (i = 0; i < server->config->pool_count && i < KVW_MAX_POOLS; i++) {
		read_counters(server->pools[i].pool, counters[i]);
		items[i] = pool_item(&server->pools[i], counters[i]);
		if (i < MAX_REASONS)
			items[i].why = why_shared(&server->pools[i], why[i]);
	}
	const struct kvw_msg_POOLS_OK reply = {.pools = kvw_list_of(items, i)};
	kvd_session_reply(session, request, &reply);
	return 0;
}
