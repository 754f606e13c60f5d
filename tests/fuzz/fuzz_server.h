/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole daemon in this process, one turn at a time, and a client of it: for fuzz targets that must see
 * what the daemon's own sanitizers see. Everything aborts when it fails.
 */
#ifndef KVPOOL_TEST_FUZZ_SERVER_H
#define KVPOOL_TEST_FUZZ_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ipc/ring.h"
#include "ipc/shm.h"

#define FUZZ_SEGMENTS 7
enum fuzz_segment {
	FUZZ_DIRECTORY,
	FUZZ_TABLES,
	FUZZ_CHANNEL,
	FUZZ_TIMELINES,
	FUZZ_DOORBELL,
	FUZZ_ANSWERS,
	FUZZ_POOL
};
/* Of the client's tables. */
#define FUZZ_ROWS 4u
#define FUZZ_ROW_BLOCKS 8u
/* A few more than the rows': what a lease gets. */
#define FUZZ_ANSWERS_WANTED 48u

struct fuzz_client {
	int fd;
	bool ended; /* the daemon has closed the session */
	uint64_t bytes[FUZZ_SEGMENTS];
	int fds[FUZZ_SEGMENTS];
	void *memory[FUZZ_SEGMENTS];
	struct kvw_tables_layout layout;
	struct kvw_ring requests;
	struct kvw_ring completions;
};

/* Starts the daemon when it does not run yet. */
void fuzz_connect(struct fuzz_client *client);
void fuzz_hello(struct fuzz_client *client);
/* Attaches, pulls and maps. */
void fuzz_attach(struct fuzz_client *client);
void fuzz_send(struct fuzz_client *client, const uint8_t *bytes, size_t length);
/* Turns until everything that was sent and rung before is handled; takes the answers and drops them. */
void fuzz_turns(struct fuzz_client *client);
/*
 * Unmaps and closes; turns until nothing of the client is left; then the books must be right, and no block
 * be anybody's.
 */
void fuzz_close(struct fuzz_client *client);

#endif
