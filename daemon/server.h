/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon: one thread, one loop, all pools and sessions. kvd_server_turn() is one turn: wait, take what
 * the kernel has, then work for at most 200 us before the next look at the kernel.
 */
#ifndef KVPOOL_DAEMON_SERVER_H
#define KVPOOL_DAEMON_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "ipc/hash.h"
#include "ipc/limits.h"

#include "closer.h"
#include "config.h"
#include "importers.h"
#include "listener.h"
#include "loop.h"
#include "namespace.h"
#include "served_pool.h"
#include "turn.h"
#include "worker.h"

/* Work between two looks at the kernel, and one session's part of it. */
#define KVD_WORK_US 200u
#define KVD_STRETCH_US 100u
/* A connection that has not said hello by then is closed. */
#define KVD_HELLO_US 5000000u

struct kvd_session;
struct kvd_admin_job;
struct kvd_attach_memory;

/*
 * Several, so that an engine of a pool that is ready waits neither for another pool to be populated nor for the
 * locks that somebody set, be it on the pool or on what is closed. Every call of the CUDA driver is KVD_WORKER_CUDA's, since any of them may hang.
 */
enum kvd_worker_use { KVD_WORKER_POOLS, KVD_WORKER_SEGMENTS, KVD_WORKER_LOCKS, KVD_WORKER_CLOSES, KVD_WORKER_CUDA, KVD_WORKERS };

struct kvd_server_worker {
	struct kvd_server *server;
	struct kvd_worker *worker;
	struct kvd_watch *watch;
};

struct kvd_server {
	const struct kvd_config *config;
	struct kvd_loop *loop;
	struct kvd_server_worker workers[KVD_WORKERS];
	struct kvd_closer closer; /* descriptors of sessions, by KVD_WORKER_CLOSES */
	struct kvd_listener listener;
	struct kvd_watch *listener_watch;
	struct kvd_importers importers; /* of CUDA pools */
	struct kvd_served_pool *pools;  /* [config->pool_count] */
	struct kvd_namespaces namespaces;
	struct kvw_hasher *hasher;
	uint8_t probe[KVW_SHA256_BYTES];
	uint64_t incarnation;
	/* Every session in the order of ids, ending ones too. */
	struct kvd_session *first;
	struct kvd_session *last;
	struct kvd_session *cursor; /* whose turn it is in the work; NULL: the first's */
	uint64_t last_session_id;
	uint64_t last_engine_id;
	uint32_t connections; /* open sockets */
	uint32_t greeting;    /* of them, those that have not said hello */
	uint32_t attached;
	uint32_t ending;            /* sessions whose engine is awaited */
	bool dead;                  /* a session is to be swept */
	struct kvd_admin_job *jobs; /* checks and flushes in order; the first runs */
	struct kvd_attach_memory *unfreed;
	bool busy;     /* the last turn left work */
	bool log_owed; /* lines were left out and it was not said yet */
	uint64_t next_poll_us;
	uint64_t started_us;
	struct kvd_turn_clock clock;
	bool end;                               /* asked to end */
	int failed;                             /* why it must end: negative errno */
	char off[KVW_MAX_TEXT_BYTES + 1];       /* what this machine does without, and why */
	uint8_t message[KVW_MAX_MESSAGE_BYTES]; /* the reply being written */
};

/* Opens everything and begins to populate the pools; logs what fails. */
int kvd_server_open(const struct kvd_config *config, struct kvd_server **out);
/* A clean end: sockets closed, the socket's file removed. NULL is a no-op. */
void kvd_server_close(struct kvd_server *server);
/* One turn. Negative errno: the loop is broken, or a pool could not be populated. */
int kvd_server_turn(struct kvd_server *server);
/* Every pool can be attached to. */
bool kvd_server_ready(const struct kvd_server *server);

#endif
