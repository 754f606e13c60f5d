/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client from the inside: what a connection owns, what an attached engine adds, and who may touch it.
 *
 *   lock      protects everything of struct kvc_engine, the cold part of rows, both ring ends, and the lease. Never held across a wait,
 *             a system call (the doorbell excepted) or a hash.
 *   control   one request at a time on the socket; it stays its caller's while the answer is awaited, at most until the deadline.
 *   sequence  struct kvp_seq belongs to its caller's thread, which reads and writes it without a lock. Other threads leave it
 *             notes in `inbox`.
 *
 * Lock order: control, then lock.
 */
#ifndef KVPOOL_LIBCLIENT_CLIENT_H
#define KVPOOL_LIBCLIENT_CLIENT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <kvpool/kvpool.h>

#include "ipc/geometry.h"
#include "ipc/ring.h"
#include "ipc/shm.h"
#include "ipc/wire.h"

#include "lease.h"
#include "row.h"
#include "shard.h"

struct kvc_cuda;
struct kvc_staging;
struct kvw_hasher;

/* A page that the kernel wipes in a forked child: the one thing a call may look at before it knows which process it is in. */
struct kvc_mark {
	_Atomic uint32_t alive;
};

/* A mapping that a forked child does not inherit. */
struct kvc_mapping {
	void *memory;   /* where the content begins */
	void *reserved; /* what munmap() takes */
	uint64_t reserved_bytes;
};

enum kvc_map {
	KVC_MAP_DIRECTORY,
	KVC_MAP_TABLES,
	KVC_MAP_CHANNEL,
	KVC_MAP_TIMELINES,
	KVC_MAP_ANSWERS,
	KVC_MAP_POOL,
	KVC_MAP_PRIVATE, /* the library's own bookkeeping, too big for the heap */
	KVC_MAPS
};

/* Requests on the socket. */
struct kvc_control {
	pthread_mutex_t lock; /* of `busy` */
	pthread_cond_t idle;
	bool busy; /* a request is on its way; all below is its caller's */
	int socket_fd;
	uint64_t sequence;
	uint8_t message[KVW_MAX_MESSAGE_BYTES +
			1]; /* a decoded answer points into it; a message that fills it is too long */
};

/* The pool of an attached engine, as POOL_OK told it and we checked it. */
struct kvc_pool {
	uint32_t id;
	char name[KVW_MAX_NAME_BYTES + 1];
	uint32_t data_blocks;
	uint32_t ready;
	struct kvw_geometry geometry;
	struct kvc_shard shard;
};

/* A record that will be answered. */
struct kvc_op {
	uint64_t ticket; /* 0: unused */
	uint32_t type;
	uint32_t row;
	uint32_t first;
	uint32_t count;
	uint32_t answers;     /* entry of the answers segment */
	uint32_t answers_end; /* the places' free-running index behind its own */
};
/* More than can be outstanding, so that a ticket finds its place unless one of long ago was never answered. */
#define KVC_OPS (2u * KVW_RING_RECORDS)

/* A step that uses something. */
struct kvc_use {
	uint64_t step;
	uint32_t timeline;
};

/* Everything that attach brings. All memory that any later call needs. */
struct kvc_engine {
	uint64_t engine;
	uint32_t namespace_id;
	int32_t sink;
	uint32_t max_seqs;
	uint32_t max_seq_tokens;
	uint32_t batch_tokens;
	uint32_t block_tokens;
	uint32_t own_hashes; /* 1: the engine hashes */
	struct kvw_tables_params tables_params;
	struct kvw_tables_layout tables;
	int doorbell_fd;
	int lock_fd; /* of a pool on a device, kept while anything of it may be used; -1: none */

	const struct kvw_directory_header *directory;
	const _Atomic uint64_t *block_words;
	const struct kvw_bucket *buckets;
	uint32_t bucket_mask;
	struct kvw_channel_header *channel;
	struct kvw_timelines *timelines;
	/*
	 * Read only. Records that are answered take places in a ring: kvc_post_asking() at the tail, their
	 * answers free the head.
	 */
	const struct kvw_answer *answers;
	uint32_t answer_count; /* a power of two */
	uint32_t answers_head;
	uint32_t answers_tail;
	_Atomic uint64_t next_step[KVW_TIMELINES];
	uint64_t published[KVW_TIMELINES]; /* last step that a publish named */

	struct kvw_ring requests;
	struct kvw_ring completions;
	struct kvc_op *ops; /* [KVC_OPS] */
	uint64_t next_ticket;
	uint64_t next_async;  /* tickets of records that are answered only when they fail */
	uint32_t outstanding; /* ops in use */
	uint32_t waiters;
	bool pumping;

	struct kvc_lease lease;

	struct kvp_seq *seqs;   /* [rows] */
	struct kvc_row *rows;   /* [rows] */
	struct kvc_cell *cells; /* [rows][row_blocks] */
	uint32_t *free_rows;    /* a stack */
	uint32_t free_row_count;
	uint32_t open_seqs;
	int32_t owed_head; /* rows with records that found no room; -1: none */
	int32_t owed_tail;
	uint64_t stamp;
	_Atomic uint32_t noted; /* notes left in inboxes so far */
	struct kvw_hasher *probe_hasher;
	pthread_mutex_t probe_lock;
	struct kvp_batch *batch;
	struct kvc_use slot_uses[KVW_MAX_SLOTS]; /* of a batch that was destroyed: its steps may still run */
	struct kvc_staging *staging;             /* NULL until a batch wants it */
};

struct kvp_client {
	struct kvc_mark *mark;
	_Atomic int
		fault; /* 0, or -KVP_EPROTO: the other side broke the protocol; nothing of it is believed any more */
	_Atomic int gone; /* 0, or -KVP_EDAEMON: its end was seen */
	uint64_t incarnation;
	uint64_t session;
	uint64_t features; /* of the daemon */
	pthread_mutex_t lock;
	struct kvc_control control;
	struct kvc_mapping maps[KVC_MAPS];
	struct kvc_pool *pool;     /* NULL before attach */
	struct kvc_engine *engine; /* NULL before attach */
	struct kvc_cuda *cuda;     /* NULL: no device is used */
	_Atomic bool attached;     /* release: `pool`, `engine` and `maps` are there for all threads */
	bool attach_tried;
};

/* -KVP_EFORKED in a forked child. First of all in every call. */
static inline int kvc_check_forked(const struct kvp_client *client)
{
	return atomic_load_explicit(&client->mark->alive, memory_order_relaxed) ? 0 : -KVP_EFORKED;
}

/* NULL before attach, also when another thread attaches meanwhile. */
static inline struct kvc_engine *kvc_engine_of(const struct kvp_client *client)
{
	/* Pairs with the release in kvp_attach(). */
	return atomic_load_explicit(&client->attached, memory_order_acquire) ? client->engine : NULL;
}

/* One load of the daemon's word: -KVP_EREVOKED, or -KVP_EDEVICE when the pool's device is lost. */
static inline int kvc_check_revoked(const struct kvp_client *client)
{
	const struct kvc_engine *engine = kvc_engine_of(client);

	int word = engine ? atomic_load_explicit(&engine->channel->revoked, memory_order_acquire) : 0;

	if (!word)
		return 0;
	return word == -KVP_EDEVICE ? word : -KVP_EREVOKED;
}

/* 0, -KVP_EREVOKED, -KVP_EDEVICE, -KVP_EPROTO: whether the session stands. A dead daemon is no obstacle here. */
static inline int kvc_check_session(const struct kvp_client *client)
{
	int ret = kvc_check_revoked(client);

	return ret ? ret : atomic_load_explicit(&client->fault, memory_order_relaxed);
}

/* Whether the daemon's end was seen. */
static inline bool kvc_is_gone(const struct kvp_client *client)
{
	return atomic_load_explicit(&client->gone, memory_order_relaxed) != 0;
}

static inline uint32_t kvc_min(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static inline uint32_t kvc_max(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

/* The same with a text, for the beginning of a call. */
int kvc_enter(const struct kvp_client *client);
/* And for calls of an attached engine: -KVP_ESTATE before. */
int kvc_enter_engine(const struct kvp_client *client);
/* kvc_check_session(), then -KVP_EDAEMON when its end was seen; with a text. */
int kvc_need_daemon(const struct kvp_client *client);
/* -KVP_EBACKLOG; what to do again later. */
int kvc_fail_ring_full(const char *what);
/* Remembers that the peer broke the protocol; returns -KVP_EPROTO. `what` is one clause. */
int kvc_break(struct kvp_client *client, const char *what);

/* Last step that is done. The poison bit is for importers. */
static inline uint64_t kvc_reached(const struct kvc_engine *engine, uint32_t timeline)
{
	/* Pairs with the release in kvp_step_done(). */
	return atomic_load_explicit(&engine->timelines->line[timeline].step, memory_order_acquire) &
	       ~KVW_TIMELINE_POISON;
}

static inline bool kvc_use_ended(const struct kvc_engine *engine, const struct kvc_use *use)
{
	return kvc_reached(engine, use->timeline) >= use->step;
}

/* State and generation of a block, as the directory has it now. */
static inline uint64_t kvc_block_word(const struct kvc_engine *engine, int32_t id)
{
	return atomic_load_explicit(&engine->block_words[id], memory_order_acquire);
}

static inline struct kvc_engine *kvc_seq_engine(const struct kvp_seq *seq)
{
	return seq->client->engine;
}

static inline struct kvc_row *kvc_seq_row(const struct kvp_seq *seq)
{
	return &seq->client->engine->rows[seq->row];
}

/*
 * An answer, loaded once: the daemon has stored it before its completion, but nothing stops it from storing
 * again.
 */
static inline struct kvw_answer kvc_load_answer(const struct kvw_answer *answer)
{
	const _Atomic uint64_t *words = (const _Atomic uint64_t *)(const void *)answer;
	uint64_t copy[sizeof(*answer) / sizeof(uint64_t)];
	struct kvw_answer out;
	uint32_t i;

	for (i = 0; i < sizeof(copy) / sizeof(*copy); i++)
		copy[i] = atomic_load_explicit(&words[i], memory_order_relaxed);
	memcpy(&out, copy, sizeof(out));
	return out;
}

/* Arrays of a row in the tables segment. */
static inline void *kvc_tables_at(const struct kvp_client *client, uint64_t area, uint32_t row,
				  uint64_t stride)
{
	return (uint8_t *)client->maps[KVC_MAP_TABLES].memory + area + row * stride;
}

/* An area with `cell_bytes` for each block of a row. */
static inline void *kvc_row_at(const struct kvp_client *client, const struct kvc_engine *engine,
			       uint64_t area, uint32_t row, uint64_t cell_bytes)
{
	return kvc_tables_at(client, area, row, engine->tables_params.row_blocks * cell_bytes);
}

static inline uint8_t *kvc_row_hashes(const struct kvp_client *client, uint32_t row)
{
	const struct kvc_engine *engine = client->engine;

	return kvc_row_at(client, engine, engine->tables.hashes, row, engine->tables_params.hash_bytes);
}

static inline uint64_t *kvc_row_generations(const struct kvp_client *client, uint32_t row)
{
	const struct kvc_engine *engine = client->engine;

	return kvc_row_at(client, engine, engine->tables.generations, row, sizeof(uint64_t));
}

static inline struct kvc_cell *kvc_row_cells(const struct kvp_client *client, uint32_t row)
{
	const struct kvc_engine *engine = client->engine;

	return engine->cells + (uint64_t)row * engine->tables_params.row_blocks;
}

#endif
