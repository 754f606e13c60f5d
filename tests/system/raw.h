/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client that speaks the protocol by ipc/ alone and can be told to do every step wrong: the tests of the
 * daemon must not depend on the library's good manners. Calls that say "must" fail the test otherwise.
 */
#ifndef KVPOOL_TEST_RAW_H
#define KVPOOL_TEST_RAW_H

#include "harness.h"
#include "ipc/ring.h"
#include "ipc/shm.h"
#include "ipc/wire.h"

#define KVT_SEGMENTS 7
/* Their order in ATTACH_OK. */
enum kvt_segment {
	KVT_DIRECTORY,
	KVT_TABLES,
	KVT_CHANNEL,
	KVT_TIMELINES,
	KVT_DOORBELL,
	KVT_ANSWERS,
	KVT_POOL /* of a pool on a device: the lock */
};

/* A pool's memory on a device, as ATTACH_OK told it. */
struct kvt_memory {
	uint32_t share; /* 0: the pool is the host's */
	uint32_t chunks;
	uint64_t bytes;
	uint64_t offset;
	uint64_t chunk_bytes;
	uint8_t uuid[16];
	uint8_t handle[64];
	int fds[KVW_MAX_CHUNKS]; /* whoever imports them closes them */
};

/* Answers to LEASE lie here, by `first`; those of the rows behind them, as the rows lie in the tables. */
#define KVT_LEASED 16384u

struct kvt_raw {
	int fd; /* -1: closed */
	uint64_t sequence;
	uint64_t session;
	uint64_t incarnation;
	char error[KVW_MAX_TEXT_BYTES + 1]; /* of the last ERROR */
	/* After the attach. */
	uint64_t engine;
	uint32_t namespace_id;
	int32_t sink;
	struct kvw_tables_params params;
	struct kvw_tables_layout layout;
	uint32_t answer_count;
	uint64_t bytes[KVT_SEGMENTS];
	int fds[KVT_SEGMENTS];
	void *memory[KVT_SEGMENTS];
	struct kvt_memory device;
	int lent_fd; /* of the last TIMELINES_OK; whoever asked closes it */
	struct kvw_ring requests;
	struct kvw_ring completions;
	uint64_t ticket;
	/* The last message, which a decoded answer points into. */
	uint8_t received[KVW_MAX_MESSAGE_BYTES];
	union kvw_any answer;
};

/* -------- messages */

/* A connection that has said nothing yet. */
struct kvt_raw *kvt_raw_connect(const struct kvt_daemon *daemon);
/* And one that said hello. */
struct kvt_raw *kvt_raw_hello(const struct kvt_daemon *daemon);
/* A HELLO that must be accepted, to be spoilt. */
struct kvw_msg_HELLO kvt_hello_message(void);
/* Sends any bytes, which the daemon must be there to take. */
void kvt_raw_send(struct kvt_raw *raw, const void *bytes, size_t length);
void kvt_raw_send_message(struct kvt_raw *raw, uint32_t type, const void *message);
/*
 * Waits for the next message: its type, with `answer` set; 0 at the end of file. ERROR sets `error`.
 */
uint32_t kvt_raw_receive(struct kvt_raw *raw);
/* A request and its answer: 0, or the negative error that was answered; -KVP_EDAEMON at the end of file. */
int kvt_raw_ask(struct kvt_raw *raw, uint32_t type, const void *message);
/* The next thing must be an ERROR with this code, and the one after that the end of file. */
void kvt_raw_must_be_revoked(struct kvt_raw *raw, int error);
/* Closes and frees, in the order of a well-behaved client: unmaps, then closes. */
void kvt_raw_close(struct kvt_raw *raw);

/* -------- attaching */

/* An ATTACH that must be accepted, to be spoilt: 8 rows of 16 blocks. */
struct kvw_msg_ATTACH kvt_attach_message(void);
int kvt_raw_attach(struct kvt_raw *raw, const struct kvw_msg_ATTACH *attach);
/* Takes what an ATTACH_OK in `answer` says. */
void kvt_raw_take_attach(struct kvt_raw *raw, const struct kvw_msg_ATTACH *attach);
/* Pulls all descriptors and maps what can be mapped; then says so. */
void kvt_raw_map(struct kvt_raw *raw);
/* All but the last. */
void kvt_raw_map_silently(struct kvt_raw *raw);
/* Unmaps the pool and closes its descriptor: from then on the daemon can prove that it is gone. */
void kvt_raw_unmap_pool(struct kvt_raw *raw);
/* hello, attach and map with kvt_attach_message(). */
struct kvt_raw *kvt_raw_engine(const struct kvt_daemon *daemon);

/* -------- the ring */

struct kvw_channel_header *kvt_channel(const struct kvt_raw *raw);
/* Where the answers of a record go, unless it says so itself. */
void kvt_raw_place(const struct kvt_raw *raw, struct kvw_request *request);
/* Posts a record without ringing. Its ticket. */
uint64_t kvt_raw_post(struct kvt_raw *raw, const struct kvw_request *request);
/* Rings when the daemon sleeps. */
void kvt_raw_ring(struct kvt_raw *raw);
/* Waits for the next completion, which must have this ticket. */
struct kvw_completion kvt_raw_completion(struct kvt_raw *raw, uint64_t ticket);
/* Post, ring, wait. */
struct kvw_completion kvt_raw_do(struct kvt_raw *raw, struct kvw_request request);

/* -------- verbs, on small rows */

/* Hash of block `index` of chain `chain`: any two numbers. */
void kvt_set_hashes(struct kvt_raw *raw, uint32_t row, uint64_t chain, uint32_t count);
struct kvw_completion kvt_open(struct kvt_raw *raw, uint32_t row, uint64_t chain, uint32_t count,
			       uint32_t want);
/* Puts the answers [first .. first + count) of the row into its ids and generations. */
void kvt_accept(struct kvt_raw *raw, uint32_t row, uint32_t first, uint32_t count);
struct kvw_completion kvt_publish(struct kvt_raw *raw, uint32_t row, uint64_t hold, uint32_t first,
				  uint32_t count, uint32_t timeline, uint64_t step);
/* The row's leased blocks [first .. first + count) by RETURN, the hold by RELEASE; both without a step. */
void kvt_return_blocks(struct kvt_raw *raw, uint32_t row, uint32_t first, uint32_t count);
void kvt_release(struct kvt_raw *raw, uint64_t hold);
/* Everything posted is consumed. */
void kvt_drain(struct kvt_raw *raw);
const struct kvw_answer *kvt_answers(const struct kvt_raw *raw, uint32_t row);
const struct kvw_answer *kvt_leased(const struct kvt_raw *raw);
void kvt_step_done(struct kvt_raw *raw, uint32_t timeline, uint64_t step);

/* -------- administration, by a connection of its own */

struct kvt_pool_state {
	uint64_t free, leased, pending, cached, orphan, draining, frozen, quarantined;
	uint64_t referenced, evictable, engines, blocks;
	uint64_t counters[KVW_COUNTERS];
};
struct kvt_pool_state kvt_pool_state(struct kvt_raw *admin);
struct kvt_client_state {
	bool found;
	char state[KVW_MAX_NAME_BYTES + 1];
	char waits_for[128];
	uint64_t waiting, leased, references, holds;
};
struct kvt_client_state kvt_client_state(struct kvt_raw *admin, uint64_t session);
/* Deep check of every pool: no fault. */
void kvt_must_check(struct kvt_raw *admin);
/* Asks until it is so; the watchdog ends a wait for what never comes. */
void kvt_wait_gone(struct kvt_raw *admin, uint64_t session);
void kvt_wait_state(struct kvt_raw *admin, uint64_t session, const char *waits_for_part);
void kvt_wait_free(struct kvt_raw *admin, uint64_t blocks);

#endif
