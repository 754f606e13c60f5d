/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an attached session has: its engine in a pool, its segments, its rings, and the request of its ring
 * that is being carried out.
 *
 * Its memory is made and unmade by the worker: populating a channel, and freeing the tables of a client that
 * is gone, take longer than a turn of the loop may.
 */
#ifndef KVPOOL_DAEMON_ATTACHMENT_H
#define KVPOOL_DAEMON_ATTACHMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "ipc/ring.h"
#include "ipc/shm.h"

#include "engine.h"
#include "lock_queue.h"
#include "segment.h"
#include "served_pool.h"
#include "verbs.h"

struct kvd_attach_plan;
struct kvd_session;

/* Made by the worker for one session. */
struct kvd_attach_memory {
	struct kvd_server *server;
	struct kvd_attach_memory *next; /* of those that wait to be freed */
	struct kvw_tables_params tables_params;
	struct kvw_tables_layout tables_layout;
	uint32_t answer_count;
	struct kvd_segment tables;
	struct kvd_segment answers;
	struct kvd_segment channel;
	struct kvd_segment timelines;
	struct kvd_scratch scratch;
	/* While it is being made, and again while it is being guarded. */
	bool done;
	bool abandoned; /* its session has ended meanwhile */
	int result;
};

struct kvd_lease_marks {
	uint32_t low;
	uint32_t critical;
	uint32_t high;
};

struct kvd_attachment {
	struct kvd_served_pool *pool;
	struct kvd_engine *engine;
	struct kvd_tenant *tenant;
	uint64_t lock_byte;
	struct kvd_lock_job lock; /* its descriptor of the pool, then the proof */
	bool lock_free;           /* its lock byte was found free: no descriptor that it was given is left */
	uint64_t died_us;         /* when its process's end was seen */
	uint32_t namespace_id;
	int32_t importer; /* of a CUDA pool: what kvd_importers_add() gave */
	struct kvd_lease_marks lease;
	struct kvd_attach_memory *memory;
	int doorbell; /* -1: closed */
	struct kvd_watch *doorbell_watch;
	struct kvw_ring requests;
	struct kvw_ring completions;
	uint32_t fds_sent;
	bool guarding; /* MAPPED has come */
	bool live;     /* and was carried out: from now on channel and timelines may be looked at */
	bool posted;   /* completions that the client was not woken for yet */
	struct kvd_verb verb;
};

/*
 * A session's descriptors, in the order of ATTACH_OK: the directory, the engine's own five, the pool's or its
 * lock; then the pieces of a CUDA pool that is shared by descriptors.
 */
#define KVD_ATTACH_SEGMENTS 7u
#define KVD_ATTACH_LOCK (KVD_ATTACH_SEGMENTS - 1)

static inline struct kvw_channel_header *kvd_attachment_channel(const struct kvd_attachment *attachment)
{
	return attachment->memory->channel.memory;
}

/* Has the worker make it; `done` and `result` tell. -EAGAIN: its queue is full, or some wait to be freed. -ENOMEM. */
int kvd_attach_memory_make(struct kvd_server *server, const struct kvd_attach_plan *plan,
			   struct kvd_attach_memory **out);
/* Has the worker guard channel and timelines; `done` and `result` tell again. -EAGAIN. */
int kvd_attach_memory_guard(struct kvd_attach_memory *memory);
/* Has the worker unmake it, also one that is still being made. NULL is a no-op. */
void kvd_attach_memory_drop(struct kvd_attach_memory *memory);
/* Tries again for those that found the worker's queue full. Call once a turn, before anything is made. */
void kvd_attach_memory_retry(struct kvd_server *server);
/* At the daemon's end, here and now. */
void kvd_attach_memory_free(struct kvd_attach_memory *memory);

/* No more wake-ups by the client; a closed one is a no-op. */
void kvd_attachment_close_doorbell(struct kvd_server *server, struct kvd_attachment *attachment);
/* Its engine is gone and empty: gives back all that the session's attachment took. */
void kvd_attachment_destroy(struct kvd_session *session);

/*
 * Its process has ended: whoever waits for a step of it goes on. Only when none of its blocks is pending any more, so that who went on
 * because of it finds that out in the directory; again and again, since a device may store steps for a while yet.
 */
void kvd_attachment_poison(struct kvd_attachment *attachment);

/* Raises the timelines' words that engine waits for, or all. */
void kvd_attachment_latch(struct kvd_attachment *attachment, bool all);
void kvd_attachment_latch_one(struct kvd_attachment *attachment, uint32_t timeline);

#endif
