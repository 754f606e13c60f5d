/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server and its end of every input.
 */
#include "inprocess.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/check.h"
#include "daemon/log.h"

/* A session's end is some turns; more is a session that does not end. */
#define MOST_TURNS 200000u

static struct kvd_server *server;

_Noreturn void inprocess_fail(const char *what)
{
	fprintf(stderr, "fuzz: %s\n", what);
	abort();
}

static struct kvd_config *load_config(void)
{
	static struct kvd_config config;
	static char socket[64];
	static char dir[] = "/tmp/kvpool-fuzz-XXXXXX";
	char *arguments[] = {"kvpoold",
			     "--config=/dev/null",
			     socket,
			     "--event-loop=epoll",
			     "--poll-ms=1",
			     "--set=pool.p.blocks=48",
			     "--set=pool.p.block_tokens=16",
			     "--set=pool.p.planes=k f16 1x8",
			     "--set=pool.p.pages=4k",
			     "--set=pool.p.max_engines=8",
			     "--set=pool.p.quota_blocks=40",
			     NULL};
	char error[512];

	if (!mkdtemp(dir))
		inprocess_fail("no folder for the socket");
	snprintf(socket, sizeof(socket), "--socket=%s/sock", dir);
	if (kvd_config_load((int)(sizeof(arguments) / sizeof(arguments[0])) - 1, arguments, &config, error,
			    sizeof(error)))
		inprocess_fail(error);
	return &config;
}

static void close_server(void)
{
	char path[sizeof(server->config->socket)];

	snprintf(path, sizeof(path), "%s", server->config->socket);
	kvd_server_close(server);
	*strrchr(path, '/') = '\0';
	remove(path);
}

struct kvd_server *inprocess_server(void)
{
	if (server)
		return server;
	kvd_log_set_level(KVD_LOG_ERROR);
	if (kvd_server_open(load_config(), &server))
		inprocess_fail("the server can't be opened");
	while (!kvd_server_ready(server))
		inprocess_turn(1);
	atexit(close_server);
	return server;
}

void inprocess_turn(uint32_t turns)
{
	while (turns--) {
		/* So that it looks and does not wait. */
		server->busy = true;
		if (kvd_server_turn(server))
			inprocess_fail("a turn of the server failed");
	}
}

static void end_sessions(void)
{
	uint32_t turns;

	for (turns = 0; server->first; turns++) {
		if (turns == MOST_TURNS)
			inprocess_fail("a session whose client is gone does not end");
		inprocess_turn(1);
		sched_yield();
	}
}

void inprocess_must_be_clean(void)
{
	struct kvd_pool *pool = server->pools[0].pool;
	char text[160];

	end_sessions();
	if (kvd_check_now(pool, text, sizeof(text)))
		inprocess_fail(text);
	while (kvd_pool_flush_one(pool))
		;
	if (pool->free.length != INPROCESS_BLOCKS || pool->engines || pool->holds)
		inprocess_fail("blocks, engines or holds are left of clients that are gone");
	if (server->connections || server->attached || server->ending || server->greeting || server->jobs)
		inprocess_fail("counts of sessions are left of clients that are gone");
	if (kvd_check_now(pool, text, sizeof(text)))
		inprocess_fail(text);
}
