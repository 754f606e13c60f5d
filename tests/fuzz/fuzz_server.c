/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon and its client. A second connection, the ticker, asks a question after each step: its answer
 * says that the daemon has come round, so that no turn waits for ever and none is missed.
 */
#include "fuzz_server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/check.h"
#include "daemon/config.h"
#include "daemon/log.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "ipc/frame.h"
#include "ipc/wire.h"

static struct kvd_config config;
static struct kvd_server *server;
static struct fuzz_client ticker = {.fd = -1};

static void require(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "fuzz server: %s\n", what);
	abort();
}

static void turn(void)
{
	require(!kvd_server_turn(server), "a turn failed");
}

static void stop_server(void)
{
	close(ticker.fd);
	kvd_server_close(server);
	kvd_config_free(&config);
}

static void start_server(void)
{
	static char socket[64];
	static char *argv[] = {"kvpoold",
			       "--config=/dev/null",
			       socket,
			       "--event-loop=epoll",
			       "--poll-ms=1",
			       "--log-level=error",
			       "--set=pool.p.blocks=24",
			       "--set=pool.p.block_tokens=4",
			       "--set=pool.p.planes=opaque 16",
			       "--set=pool.p.pages=4k",
			       "--set=pool.p.max_engines=4",
			       NULL};
	char error[512];

	snprintf(socket, sizeof(socket), "--socket=/tmp/kvpool-fuzz-%d", (int)getpid());
	if (kvd_config_load((int)(sizeof(argv) / sizeof(argv[0])) - 1, argv, &config, error, sizeof(error))) {
		fprintf(stderr, "%s\n", error);
		abort();
	}
	kvd_log_set_level(KVD_LOG_ERROR);
	require(!kvd_server_open(&config, &server), "the daemon did not start");
	while (!kvd_server_ready(server))
		turn();
	atexit(stop_server);
}

/* -------------------------------------------------------------- messages */

static void open_client(struct fuzz_client *client)
{
	int i;

	memset(client, 0, sizeof(*client));
	for (i = 0; i < FUZZ_SEGMENTS; i++)
		client->fds[i] = -1;
	client->fd = kvw_connect(config.socket);
	require(client->fd >= 0, "the daemon takes no connection");
}

/* 0: none there; else its type, 1 for the end of file too. */
static uint32_t receive(struct fuzz_client *client, union kvw_any *message)
{
	static uint8_t bytes[KVW_MAX_MESSAGE_BYTES];
	struct kvw_envelope envelope;
	int fds[FUZZ_SEGMENTS];
	uint32_t count = FUZZ_SEGMENTS;
	uint32_t i;
	int got = kvw_receive(client->fd, 0, bytes, sizeof(bytes), fds, &count);

	if (got == -EAGAIN || got == -ETIMEDOUT)
		return 0;
	if (got <= 0) {
		client->ended = true;
		return KVW_MSG_ERROR;
	}
	require(!kvw_decode(bytes, (size_t)got, &envelope, message), "an answer is malformed");
	for (i = 0; i < count; i++) {
		if (client->fds[i] < 0)
			client->fds[i] = fds[i];
		else
			close(fds[i]);
	}
	return envelope.type;
}

static void send_message(struct fuzz_client *client, uint32_t type, const void *message)
{
	uint8_t bytes[4096];
	int length = kvw_encode(type, 1, message, bytes, sizeof(bytes));

	require(length > 0, "a message can't be written");
	require(!kvw_send(client->fd, bytes, (size_t)length, NULL, 0), "a message can't be sent");
}

/* Turns until it is answered. */
static void ask(struct fuzz_client *client, uint32_t type, const void *message, union kvw_any *answer)
{
	uint32_t got;

	send_message(client, type, message);
	while (!(got = receive(client, answer)))
		turn();
	require(got == type + 1, "a good request is refused");
}

void fuzz_hello(struct fuzz_client *client)
{
	const struct kvw_msg_HELLO hello = {
		.version_min = KVW_VERSION_MIN,
		.version_max = KVW_VERSION_MAX,
		.hash_algorithm = KVW_HASH_SHA256,
		.probe = kvw_bytes_of(server->probe, sizeof(server->probe)),
	};
	union kvw_any answer;

	ask(client, KVW_MSG_HELLO, &hello, &answer);
}

void fuzz_connect(struct fuzz_client *client)
{
	if (!server) {
		start_server();
		open_client(&ticker);
		fuzz_hello(&ticker);
	}
	open_client(client);
}

static void map(struct fuzz_client *client)
{
	struct kvw_channel_header *channel;
	int i;

	for (i = 0; i < FUZZ_SEGMENTS; i++) {
		int protection =
			i == FUZZ_DIRECTORY || i == FUZZ_ANSWERS ? PROT_READ : PROT_READ | PROT_WRITE;

		if (i == FUZZ_DOORBELL)
			continue;
		client->memory[i] = mmap(NULL, client->bytes[i], protection, MAP_SHARED, client->fds[i], 0);
		require(client->memory[i] != MAP_FAILED, "a segment can't be mapped");
	}
	channel = client->memory[FUZZ_CHANNEL];
	kvw_ring_init(&client->requests, &channel->requests, (uint8_t *)channel + KVW_CHANNEL_REQUESTS);
	kvw_ring_init(&client->completions, &channel->completions,
		      (uint8_t *)channel + KVW_CHANNEL_COMPLETIONS);
}

void fuzz_attach(struct fuzz_client *client)
{
	const struct kvw_msg_ATTACH attach = {.role = 1,
					      .max_seqs = FUZZ_ROWS,
					      .rows = FUZZ_ROWS,
					      .row_blocks = FUZZ_ROW_BLOCKS,
					      .hash_bytes = 8,
					      .slots = 2,
					      .slot_bytes = KVW_PAGE_BYTES,
					      .answers = FUZZ_ANSWERS_WANTED};
	const struct kvw_tables_params params = {.rows = FUZZ_ROWS,
						 .row_blocks = FUZZ_ROW_BLOCKS,
						 .block_tokens = 4,
						 .hash_bytes = 8,
						 .slots = 2,
						 .slot_bytes = KVW_PAGE_BYTES};
	const struct kvw_msg_FDS pull = {.first = 0};
	const struct kvw_msg_MAPPED mapped = {.unused = 0};
	struct kvw_item_SEGMENT segment;
	union kvw_any answer;
	int i = 0;

	ask(client, KVW_MSG_ATTACH, &attach, &answer);
	while (i < FUZZ_SEGMENTS && kvw_list_next(&answer.ATTACH_OK.segments, KVW_ITEM_SEGMENT, &segment))
		client->bytes[i++] = segment.bytes;
	ask(client, KVW_MSG_FDS, &pull, &answer);
	require(!kvw_tables_layout(&params, &client->layout), "the tables can't be laid out");
	map(client);
	ask(client, KVW_MSG_MAPPED, &mapped, &answer);
}

void fuzz_send(struct fuzz_client *client, const uint8_t *bytes, size_t length)
{
	if (!client->ended)
		kvw_send(client->fd, bytes, length, NULL, 0);
}

/* -------------------------------------------------------------- turns and the end */

static void tick(void)
{
	const struct kvw_msg_STATUS status = {.unused = 0};
	union kvw_any answer;

	ask(&ticker, KVW_MSG_STATUS, &status, &answer);
}

void fuzz_turns(struct fuzz_client *client)
{
	union kvw_any answer;

	/* What the first round began (a job, a stretch) the second finds further on. */
	tick();
	tick();
	while (!client->ended && receive(client, &answer))
		;
}

static void check_books(void)
{
	struct kvd_pool *pool = server->pools[0].pool;
	char text[256] = "";
	uint32_t s;

	require(kvd_check_now(pool, text, sizeof(text)) == 0, text);
	for (s = 0; s < KVW_BLOCK_STATES; s++)
		require(s == KVW_BLOCK_FREE || s == KVW_BLOCK_CACHED || !pool->counts[s],
			"blocks are left without an owner");
	require(pool->evictable == pool->counts[KVW_BLOCK_CACHED], "a reference is left");
}

void fuzz_close(struct fuzz_client *client)
{
	int i;

	for (i = 0; i < FUZZ_SEGMENTS; i++) {
		if (client->memory[i])
			munmap(client->memory[i], client->bytes[i]);
		if (client->fds[i] >= 0)
			close(client->fds[i]);
	}
	close(client->fd);
	/* The ticker's session is the first and stays. */
	do
		tick();
	while (server->first->next || server->ending);
	check_books();
}
