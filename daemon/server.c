/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening and closing the daemon, and its turns.
 *
 * A turn: say that we sleep, look at every ring once more, wait, say that we are awake; then work. While an
 * engine is attached the wait ends at the next poll, since records that nobody waits for never ring.
 */
#include "server.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <kvpool/version.h>

#include "ipc/ring.h"

#include "admin.h"
#include "log.h"
#include "preflight.h"
#include "session.h"

/* How often time-outs and progress are looked at while nothing else asks for it. */
#define IDLE_WAIT_US 250000u
/* Sessions that a turn frees; each closes a pidfd. */
#define SWEEP_SESSIONS 32u
/* Descriptors beside those of sessions: loop, worker, listener, signals, log. */
#define OTHER_WATCHES 16u

/* -------------------------------------------------------------- a turn */

static bool populating(const struct kvd_server *server)
{
	uint32_t i;

	for (i = 0; i < server->config->pool_count; i++) {
		if (!server->pools[i].ready && !server->pools[i].failed)
			return true;
	}
	return false;
}

static uint64_t wait_us(const struct kvd_server *server)
{
	uint64_t now_us;

	if (server->busy)
		return 0;
	if (server->attached || server->ending) {
		now_us = kvd_now_us();
		return now_us < server->next_poll_us ? server->next_poll_us - now_us : 0;
	}
	if (server->greeting || server->unfreed || server->log_owed || populating(server))
		return IDLE_WAIT_US;
	return UINT64_MAX;
}

static void set_sleeping(struct kvd_server *server, uint32_t sleeping)
{
	uint32_t i;

	for (i = 0; i < server->config->pool_count; i++)
		atomic_store_explicit(&server->pools[i].pool->directory->daemon_sleeping, sleeping,
				      memory_order_relaxed);
}

static bool any_ring_ready(const struct kvd_server *server)
{
	struct kvd_session *session;

	for (session = server->first; session; session = session->next) {
		if (session->state == KVD_SESSION_ATTACHED && kvd_verbs_ready(session))
			return true;
	}
	return false;
}

/* The daemon's half of the doorbell rule (ipc/ring.h): sleeping word, fence, tails. */
static int wait_for_events(struct kvd_server *server)
{
	uint64_t us = wait_us(server);
	int ret;

	if (!us) {
		kvd_turn_end(&server->clock);
		return kvd_loop_turn(server->loop, 0);
	}
	kvd_turn_part(&server->clock, "a look at all rings");
	set_sleeping(server, 1);
	kvw_store_load_fence();
	if (any_ring_ready(server))
		us = 0;
	kvd_turn_end(&server->clock);
	ret = kvd_loop_turn(server->loop, us);
	kvd_turn_begin(&server->clock);
	set_sleeping(server, 0);
	return ret;
}

/* Without a device's pool the daemon serves the others; without any it has nothing to do. */
static void end_without_pools(struct kvd_server *server)
{
	uint32_t i;

	for (i = 0; i < server->config->pool_count; i++) {
		if (!server->pools[i].failed)
			return;
	}
	if (!server->failed)
		kvd_log_error("no pool is left to serve");
	server->failed = server->pools[0].failed;
}

static enum kvd_worker_use worker_of(const struct kvd_served_pool *pool)
{
	return kvd_pool_config_is_cuda(pool->config) ? KVD_WORKER_CUDA : KVD_WORKER_POOLS;
}

static void poll_clock(struct kvd_server *server)
{
	uint64_t now_us = kvd_now_us();
	uint32_t i;

	if (now_us < server->next_poll_us)
		return;
	server->next_poll_us = now_us + server->config->poll_ms * UINT64_C(1000);
	kvd_session_next_proofs(server);
	server->log_owed = kvd_log_peer_poll();
	for (i = 0; i < server->config->pool_count; i++) {
		struct kvd_served_pool *pool = &server->pools[i];

		atomic_fetch_add_explicit(&pool->pool->directory->heartbeat, 1, memory_order_relaxed);
		kvd_served_pool_report(pool, now_us);
		kvd_served_pool_try_again(pool, server->workers[worker_of(pool)].worker, now_us);
		kvd_served_pool_look(pool, server->workers[KVD_WORKER_CUDA].worker, now_us);
		if (pool->failed && !*kvd_served_pool_fault(pool))
			server->failed = pool->failed;
	}
	end_without_pools(server);
}

/* Sessions in rotation, so that one that always has work keeps nobody else waiting. */
static bool serve_sessions(struct kvd_server *server)
{
	uint64_t until_us = kvd_now_us() + KVD_WORK_US;
	struct kvd_session *start = server->cursor ? server->cursor : server->first;
	struct kvd_session *session = start;
	bool more = false;

	while (session) {
		more |= kvd_session_work(session, until_us);
		session = session->next ? session->next : server->first;
		if (session == start)
			break;
		if (kvd_now_us() >= until_us) {
			more = true;
			break;
		}
	}
	server->cursor = session;
	return more;
}

/* Nothing holds a session from one turn to the next but this list. A thousand that ended at once take several turns. */
static void sweep(struct kvd_server *server)
{
	struct kvd_session *session = server->first;
	uint32_t left = SWEEP_SESSIONS;

	if (!server->dead)
		return;
	while (session && left) {
		struct kvd_session *next = session->next;

		if (session->gone) {
			kvd_session_free(session);
			left--;
		}
		session = next;
	}
	server->dead = session != NULL;
	server->busy |= server->dead;
}

static void submit_locks(struct kvd_server *server)
{
	struct kvd_worker *worker = server->workers[KVD_WORKER_LOCKS].worker;
	uint64_t now_us = kvd_now_us();
	uint32_t i;

	for (i = 0; i < server->config->pool_count; i++)
		kvd_lock_queue_submit(&server->pools[i].locks, worker, now_us);
}

int kvd_server_turn(struct kvd_server *server)
{
	int ret = wait_for_events(server);
	bool more;

	kvd_turn_part(&server->clock, "the poll");
	if (ret < 0) {
		kvd_log_error("event loop '%s': %s", kvd_loop_name(server->loop), strerror(-ret));
		return ret;
	}
	poll_clock(server);
	kvd_attach_memory_retry(server);
	server->busy = false;
	more = serve_sessions(server);
	kvd_turn_part(&server->clock, "a check or flush");
	more |= kvd_admin_jobs_work(server);
	server->busy |= more;
	kvd_turn_part(&server->clock, "the sweep");
	sweep(server);
	submit_locks(server);
	server->busy |= kvd_closer_submit(&server->closer, server->workers[KVD_WORKER_CLOSES].worker);
	return server->failed;
}

bool kvd_server_ready(const struct kvd_server *server)
{
	return !populating(server);
}

/* -------------------------------------------------------------- opening */

static void on_accept(void *arg, int fd)
{
	struct kvd_server *server = arg;

	kvd_turn_part(&server->clock, "a connection");
	kvd_session_accept(server, fd);
}

static void on_worker(void *arg)
{
	const struct kvd_server_worker *worker = arg;

	kvd_turn_part(&worker->server->clock, "what the worker did");
	kvd_worker_deliver(worker->worker);
}

static uint32_t max_watches(const struct kvd_config *config)
{
	/* A session's socket, pidfd and doorbell; an ending one's pidfd. */
	uint32_t watches = 3 * config->max_sessions + OTHER_WATCHES;
	uint32_t i;

	for (i = 0; i < config->pool_count; i++)
		watches += config->pools[i].max_engines;
	return watches;
}

static void note_off(struct kvd_server *server, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
static void note_off(struct kvd_server *server, const char *format, ...)
{
	size_t used = strlen(server->off);
	va_list args;

	if (used && used + 2 < sizeof(server->off)) {
		memcpy(server->off + used, "; ", 3);
		used += 2;
	}
	va_start(args, format);
	vsnprintf(server->off + used, sizeof(server->off) - used, format, args);
	va_end(args);
}

/* Why the first choice was not had: asked again, since a loop that was opened tells only what it is. */
static void note_loop(struct kvd_server *server, struct kvd_loop_params params)
{
	struct kvd_loop *loop;
	int ret;

	if (params.backend != KVD_LOOP_AUTO)
		return;
	params.backend = KVD_LOOP_IO_URING;
	ret = kvd_loop_open(&params, &loop);
	if (ret)
		note_off(server, "io_uring with DEFER_TASKRUN (%s): the event loop is %s", strerror(-ret),
			 kvd_loop_name(server->loop));
	else
		kvd_loop_close(loop);
}

static int open_loop(struct kvd_server *server)
{
	const struct kvd_loop_params params = {
		.backend = server->config->event_loop,
		.max_watches = max_watches(server->config),
		.max_message_bytes = KVW_MAX_MESSAGE_BYTES,
	};
	int ret = kvd_loop_open(&params, &server->loop);

	if (ret) {
		kvd_log_error(
			"the event loop can't be opened: %s; with 'event_loop = auto' the next one is taken",
			strerror(-ret));
		return ret;
	}
	note_loop(server, params);
	return 0;
}

static int open_worker(struct kvd_server_worker *worker)
{
	int ret = kvd_worker_start(&worker->worker);

	if (ret)
		return ret;
	return kvd_loop_watch(worker->server->loop, kvd_worker_fd(worker->worker), on_worker, worker,
			      &worker->watch);
}

static int open_workers(struct kvd_server *server)
{
	uint32_t i;
	int ret = 0;

	for (i = 0; !ret && i < KVD_WORKERS; i++) {
		server->workers[i].server = server;
		ret = open_worker(&server->workers[i]);
	}
	if (ret)
		kvd_log_error("the worker threads can't be started: %s", strerror(-ret));
	return ret;
}

static int open_identity(struct kvd_server *server)
{
	int ret = kvw_hasher_create(&server->hasher);

	if (!ret)
		ret = kvw_hash_probe(server->hasher, server->probe);
	while (!ret && !server->incarnation) {
		if (getrandom(&server->incarnation, sizeof(server->incarnation), 0) !=
		    sizeof(server->incarnation))
			ret = -EIO;
	}
	if (ret)
		kvd_log_error("no SHA-256 by OpenSSL, or no random numbers: %s", strerror(-ret));
	return ret;
}

static bool any_cuda(const struct kvd_config *config)
{
	uint32_t i;

	for (i = 0; i < config->pool_count; i++) {
		if (kvd_pool_config_is_cuda(&config->pools[i]))
			return true;
	}
	return false;
}

static int open_pools(struct kvd_server *server)
{
	uint32_t count = server->config->pool_count;
	uint32_t i;
	int ret = 0;

	server->pools = calloc(count, sizeof(*server->pools));
	if (!server->pools)
		return -ENOMEM;
	if (any_cuda(server->config))
		kvd_importers_open(server->config->socket, &server->importers);
	for (i = 0; !ret && i < count; i++)
		ret = kvd_served_pool_open(&server->config->pools[i], i, server->incarnation,
					   &server->pools[i]);
	for (i = 0; !ret && i < count; i++) {
		struct kvd_served_pool *pool = &server->pools[i];
		const char *pages = pool->device->backing(pool->memory);

		pool->importers = &server->importers;

		if (!kvd_pool_config_is_cuda(pool->config) && pool->config->pages == KVD_PAGES_AUTO &&
		    strcmp(pages, "hugetlb") != 0)
			note_off(server, "hugetlb pages for pool '%s': it has %s pages", pool->config->name,
				 pages);
		ret = kvd_served_pool_populate(pool, server->workers[worker_of(pool)].worker);
	}
	return ret;
}

static int open_listener(struct kvd_server *server)
{
	int ret = kvd_listener_open(server->config, &server->listener);

	if (!ret)
		ret = kvd_loop_listen(server->loop, server->listener.fd, on_accept, server,
				      &server->listener_watch);
	return ret;
}

/*
 * From here on the heap grows rarely and never shrinks, and only tens of megabytes are mapped on their own: mapping and unmapping
 * would wait for the worker, which holds the same lock of the address space while it frees the segments of the dead.
 */
static void settle_heap(void)
{
	mallopt(M_MMAP_THRESHOLD, 32 << 20);
	mallopt(M_TRIM_THRESHOLD, INT_MAX);
	mallopt(M_TOP_PAD, 1 << 20);
}

int kvd_server_open(const struct kvd_config *config, struct kvd_server **out)
{
	struct kvd_server *server = calloc(1, sizeof(*server));
	int ret;

	if (!server)
		return -ENOMEM;
	server->config = config;
	server->listener = (struct kvd_listener){.fd = -1, .lock_fd = -1};
	server->started_us = kvd_now_us();
	kvd_preflight_raise_descriptors(config);
	ret = open_identity(server);
	if (!ret)
		ret = open_loop(server);
	if (!ret)
		ret = open_workers(server);
	if (!ret)
		ret = kvd_closer_init(&server->closer, max_watches(server->config));
	/* The socket before the pools: a second daemon must fail before it takes memory. */
	if (!ret)
		ret = open_listener(server);
	if (!ret)
		ret = open_pools(server);
	if (ret) {
		kvd_server_close(server);
		return ret;
	}
	settle_heap();
	kvd_log_info("kvpoold %s: serving '%s', event loop %s, %" PRIu32 " pool%s, incarnation %" PRIu64,
		     KVP_VERSION_STRING, config->socket, kvd_loop_name(server->loop), config->pool_count,
		     config->pool_count == 1 ? "" : "s", server->incarnation);
	*out = server;
	return 0;
}
