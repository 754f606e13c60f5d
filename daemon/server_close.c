/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Closing the daemon. All that may hang, which is the driver, is bounded (ending.h): what others can see of an orderly end, the socket's file
 * and the sessions, is gone before or with the process.
 */
#include "server.h"

#include <inttypes.h>
#include <stdlib.h>

#include "admin.h"
#include "ending.h"
#include "log.h"
#include "session.h"

static void free_unfreed(struct kvd_server *server)
{
	while (server->unfreed) {
		struct kvd_attach_memory *memory = server->unfreed;

		server->unfreed = memory->next;
		kvd_attach_memory_free(memory);
	}
}

static void note_job(const struct kvd_worker *worker)
{
	const char *job = "";
	uint64_t busy_ms = worker ? kvd_worker_busy_ms(worker, &job) : 0;

	if (busy_ms)
		kvd_ending_at("a worker at '%s', for %" PRIu64 " ms when the end came", job, busy_ms);
}

static void stop_worker(struct kvd_server *server, struct kvd_server_worker *worker)
{
	if (worker->watch)
		kvd_loop_forget(server->loop, worker->watch);
	worker->watch = NULL;
	note_job(worker->worker);
	kvd_worker_stop(worker->worker);
	worker->worker = NULL;
}

/* What calls the driver may hang, so these are the last of what is bounded; to free a large pool of the host's takes as long as it takes. */
static void close_pools(struct kvd_server *server)
{
	uint32_t count = server->pools ? server->config->pool_count : 0;
	uint32_t i;

	for (i = 0; i < count; i++) {
		const struct kvd_pool_config *config = server->pools[i].config;

		if (!config || !kvd_pool_config_is_cuda(config))
			continue;
		kvd_ending_at("the driver to take pool '%s' back", config->name);
		kvd_served_pool_close(&server->pools[i]);
	}
	kvd_ending_over();
	for (i = 0; i < count; i++)
		kvd_served_pool_close(&server->pools[i]);
	free(server->pools);
}

void kvd_server_close(struct kvd_server *server)
{
	uint32_t i;

	if (!server)
		return;
	if (server->listener_watch)
		kvd_loop_forget(server->loop, server->listener_watch);
	kvd_listener_close(&server->listener);
	kvd_ending_begin(server->config->stop_timeout_ms);
	/* First: it looks at what the sessions own. */
	stop_worker(server, &server->workers[KVD_WORKER_LOCKS]);
	/* Who is attached goes on mapping. */
	server->importers.ending = true;
	while (server->first)
		kvd_session_abandon(server->first);
	kvd_log_peer_flush();
	for (i = 0; i < KVD_WORKERS; i++)
		stop_worker(server, &server->workers[i]);
	kvd_closer_destroy(&server->closer);
	free_unfreed(server);
	kvd_importers_close(&server->importers);
	close_pools(server);
	kvd_loop_close(server->loop);
	kvw_hasher_destroy(server->hasher);
	free(server);
}
