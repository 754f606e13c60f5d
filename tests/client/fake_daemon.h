/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon in a thread: speaks ipc/ to one client at a time and keeps naive books, by linear searches. It shares no code with daemon/ or
 * libclient/. It refuses what a correct client never asks and counts that as a fault, and its hooks make it lie.
 */
#ifndef KVPOOL_TEST_FAKE_DAEMON_H
#define KVPOOL_TEST_FAKE_DAEMON_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "ipc/geometry.h"
#include "ipc/ring.h"
#include "ipc/shm.h"
#include "ipc/wire.h"

#define FAKE_SESSION 77u
#define FAKE_FOREIGN_SESSION 78u
#define FAKE_INCARNATION 0x1234u
#define FAKE_SINK 1
#define FAKE_FIRST_DATA 2 /* null, one sink */

struct fake_options {
	uint32_t data_blocks;  /* 0: 256 */
	uint32_t block_tokens; /* 0: 4 */
	uint32_t low, critical, high;
	/* Lies. Each may be NULL. */
	void *arg;
	int (*on_message)(void *arg, uint32_t type, union kvw_any *reply); /* not 0: don't answer */
	int (*on_completion)(void *arg, const struct kvw_request *request,
			     struct kvw_completion *completion); /* not 0: none */
	void (*on_answer)(void *arg, const struct kvw_request *request, uint32_t index,
			  struct kvw_answer *answer);
	uint32_t unsealed_kind;    /* a segment without seals */
	uint32_t short_kind;       /* a segment a page too short */
	uint32_t wrong_magic_kind; /* directory or channel */
	uint32_t tail_lie;         /* added to the tail of the completion ring when the first record comes */
};

struct fake_block {
	uint64_t generation;
	uint64_t step;
	uint64_t last_use;
	uint64_t writer;
	uint32_t timeline;
	uint32_t references;
	uint32_t state; /* enum kvw_block_state */
	uint8_t hash[KVW_MAX_HASH_BYTES];
};

struct fake_hold {
	uint64_t id; /* 0: none */
	uint32_t length;
	bool releasing;
	uint32_t timeline;
	uint64_t step;
	int32_t *blocks;
};

struct fake_books {
	uint32_t blocks;
	uint32_t hash_bytes;
	struct fake_block *block;
	struct fake_hold *holds;
	uint32_t hold_count;
	uint64_t next_hold;
	uint64_t clock;
	uint64_t opens, published, duplicates, returned, records;
	uint32_t faults; /* things that a correct client never does */
	char fault[160];
};

struct fake_daemon {
	char *dir;
	char path[108];
	struct fake_options options;
	struct kvw_geometry geometry;
	pthread_t thread;
	int listen_fd;
	int stop_fd;
	_Atomic bool paused; /* the ring is not served */
	_Atomic uint32_t doorbells;
	pthread_mutex_t lock; /* of all below, held by the thread while it serves */
	int socket_fd;
	int fds[8]; /* by enum kvw_segment_kind */
	uint64_t bytes[8];
	struct kvw_tables_params tables_params;
	struct kvw_tables_layout tables;
	uint32_t answer_count;
	uint32_t answer_ends[KVW_MAX_ANSWERS]; /* of the completion that announced it: index behind it */
	struct kvw_directory_header *directory;
	struct kvw_channel_header *channel;
	struct kvw_timelines *timelines;
	struct kvw_ring requests;
	struct kvw_ring completions;
	struct fake_books books;
};

struct fake_daemon *fake_start(const struct fake_options *options);
/* Ends the thread; the client sees the end of the connection. */
void fake_stop(struct fake_daemon *fake);
/* Ends the session only, as a dying daemon would. */
void fake_hang_up(struct fake_daemon *fake);
/* From its return on the ring is not served (or is again): under the lock, so that no turn is half-way. */
void fake_pause(struct fake_daemon *fake, bool paused);
void fake_revoke(struct fake_daemon *fake);

/* A complete or pending block of another engine, under this hash. Returns its id. */
int32_t fake_add_foreign(struct fake_daemon *fake, const uint8_t *hash, bool complete);
/* Its step is reached (CACHED), or its writer dies (ORPHAN). */
void fake_finish_foreign(struct fake_daemon *fake, int32_t id, bool complete);
uint32_t fake_count(struct fake_daemon *fake, enum kvw_block_state state);

/* fake_books.c; under the lock. */
void fake_books_init(struct fake_daemon *fake, uint32_t blocks);
void fake_books_end_session(struct fake_daemon *fake);
void fake_books_free(struct fake_daemon *fake);
/* Serves the ring until it is empty; reached steps first. */
void fake_books_serve(struct fake_daemon *fake);

#endif
