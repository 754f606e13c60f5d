/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon without a process: the server itself, turned by hand on the epoll loop, and clients that may do
 * every step wrong. One server serves all inputs of a run; after each its books must be as at the beginning.
 */
#ifndef KVPOOL_TEST_INPROCESS_H
#define KVPOOL_TEST_INPROCESS_H

#include <stdbool.h>

#include "daemon/server.h"
#include "ipc/ring.h"
#include "ipc/shm.h"
#include "ipc/wire.h"
#include "script.h"

#define INPROCESS_BLOCKS 48u
#define INPROCESS_SEGMENTS 7u
#define INPROCESS_ROWS 4u
#define INPROCESS_ROW_BLOCKS 8u
/* The rows' answers, then a lease's. */
#define INPROCESS_LEASED (INPROCESS_ROWS * INPROCESS_ROW_BLOCKS)
#define INPROCESS_ANSWERS_WANTED (INPROCESS_LEASED + 2 * INPROCESS_ROW_BLOCKS)
enum inprocess_segment {
	INPROCESS_DIRECTORY,
	INPROCESS_TABLES,
	INPROCESS_CHANNEL,
	INPROCESS_TIMELINES,
	INPROCESS_DOORBELL,
	INPROCESS_ANSWERS,
	INPROCESS_POOL
};

struct inprocess_client {
	int fd; /* -1: none */
	uint64_t sequence;
	uint32_t namespace_id;
	bool mapped;
	struct kvw_tables_params params;
	struct kvw_tables_layout layout;
	uint64_t bytes[INPROCESS_SEGMENTS];
	int fds[INPROCESS_SEGMENTS];
	uint8_t *memory[INPROCESS_SEGMENTS];
	struct kvw_ring requests;
	struct kvw_ring completions;
	uint64_t holds[8]; /* the last ones that were answered */
	uint32_t hold_count;
	uint8_t received[KVW_MAX_MESSAGE_BYTES];
	union kvw_any answer;
};

/* The server, opened at the first call. Aborts when that fails. */
struct kvd_server *inprocess_server(void);
/* So many turns that do not wait. */
void inprocess_turn(uint32_t turns);
/* Every session is gone, every block free, the deep check clean; aborts otherwise. */
void inprocess_must_be_clean(void);
/* Aborts with a sentence. */
_Noreturn void inprocess_fail(const char *what);

/* -------- a client; all calls are allowed in any order, and do nothing when they can't */

void inprocess_init(struct inprocess_client *client);
void inprocess_connect(struct inprocess_client *client);
void inprocess_send(struct inprocess_client *client, const void *bytes, size_t length);
void inprocess_send_message(struct inprocess_client *client, uint32_t type, const void *message);
/* Takes one message that is there: its type, or 0. An end of file closes the socket. */
uint32_t inprocess_receive(struct inprocess_client *client);
/* Turns the server until there is a message or the end; takes it. */
uint32_t inprocess_await(struct inprocess_client *client);
void inprocess_hello(struct inprocess_client *client);
void inprocess_attach(struct inprocess_client *client);
void inprocess_map(struct inprocess_client *client);
/* All three. */
void inprocess_open(struct inprocess_client *client);
void inprocess_unmap(struct inprocess_client *client);
void inprocess_close(struct inprocess_client *client);

/* What a script's bytes make of a record, mostly in range. */
struct kvw_request inprocess_record(const struct inprocess_client *client, struct script *script);
/* Takes the completions, keeps their holds, puts the answers of every row into its ids and generations. */
void inprocess_take_completions(struct inprocess_client *client);
/* Hashes of a row: of a chain that all clients share. */
void inprocess_set_hashes(struct inprocess_client *client, uint32_t row, uint8_t chain);

#endif
