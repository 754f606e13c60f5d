/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hostile process: a client whose every call may fail, and that goes on. A mode gets an attached session
 * and misbehaves until its stretch is over or the session has ended; then the next session begins, until the
 * mode's share of time is used up.
 */
#ifndef KVPOOL_TEST_FOE_H
#define KVPOOL_TEST_FOE_H

#include "board.h"
#include "raw.h"

/* What it becomes when it is started by root, so that it is a tenant of its own and no administrator. */
#define KVT_FOE_ID 61234u
#define KVT_FOE_POOL "shared"
#define KVT_FRIEND_POOL "own"
/* Of the attacked pool. */
#define KVT_FOE_BLOCKS 4096
#define KVT_FOE_QUOTA 1024

struct kvt_foe {
	struct kvt_daemon daemon; /* its socket alone */
	struct kvt_rng rng;
	struct kvt_mode_row *row;
	uint64_t until_ns;   /* the mode's share */
	uint64_t stretch_ns; /* this session's */
	uint32_t answer_ms;  /* how long an answer is waited for */
	bool thorough;       /* a long run: time-outs of the daemon may be waited for */
	bool stranger;       /* no administrator */
	bool silent;         /* it does not say what it has mapped */
	bool ended;          /* the end of file was seen */
	int error;           /* of the last message that was read, 0 when that was no ERROR */
	uint64_t answered;   /* the sequence of the last message that was read */
	uint32_t answers;    /* read */
	struct kvt_raw raw;
};

struct kvt_mode {
	const char *name;
	void (*run)(struct kvt_foe *foe);
};
extern const struct kvt_mode kvt_modes[];
extern const uint32_t kvt_mode_count;

#define KVT_FOE_ANSWER_MS 5000u

/* To be called first in main(): does not return in a hostile process. */
void kvt_foe_main(int argc, char **argv);

/* -------- sessions */

/*
 * Connects, says hello, attaches and maps: true; or false, and nothing is left. `attach` NULL:
 * kvt_attach_message().
 */
bool kvt_foe_open(struct kvt_foe *foe, const struct kvw_msg_ATTACH *attach);
/* The steps of it. Each 0 or a negative error. */
int kvt_foe_connect(struct kvt_foe *foe);
int kvt_foe_hello(struct kvt_foe *foe);
int kvt_foe_attach(struct kvt_foe *foe, const struct kvw_msg_ATTACH *attach);
int kvt_foe_map(struct kvt_foe *foe);
/* Finds out how the session ended, counts it, unmaps and closes. */
void kvt_foe_close(struct kvt_foe *foe);
/* Unmaps and closes, nothing else. */
void kvt_foe_drop(struct kvt_foe *foe);
struct kvw_msg_ATTACH kvt_foe_attach_message(void);

/* -------- what modes do */

/* From now on this session lasts at most so long. */
void kvt_foe_begin(struct kvt_foe *foe, uint32_t stretch_ms);
/* Whether it goes on: time is left and its end was not seen. */
bool kvt_foe_goes_on(const struct kvt_foe *foe);
uint32_t kvt_foe_pick(struct kvt_foe *foe, uint32_t bound);
void kvt_foe_random(struct kvt_foe *foe, void *out, size_t length);
/* Any bytes by the socket; never waits. 0, -EAGAIN, another negative errno (the session has ended). */
int kvt_foe_send(struct kvt_foe *foe, const void *bytes, size_t length);
int kvt_foe_send_message(struct kvt_foe *foe, uint32_t type, const void *message);
/*
 * Reads what is there, waiting at most so long for the first message; the type of the last, 0 when there was
 * none.
 */
uint32_t kvt_foe_read(struct kvt_foe *foe, uint32_t wait_ms);
/* A request and its answer, in time: 0, the error that was answered, or -KVP_EDAEMON. */
int kvt_foe_ask(struct kvt_foe *foe, uint32_t type, const void *message);
/* A record; -KVP_EBACKLOG and -KVP_EPROTO as kvw_ring_post(). */
int kvt_foe_post(struct kvt_foe *foe, const struct kvw_request *request);
void kvt_foe_ring(struct kvt_foe *foe);
/* Takes all completions that are there: how many; those without an error in *out_good. */
uint32_t kvt_foe_completions(struct kvt_foe *foe, uint32_t *out_good);
/* Posts, rings and waits: false when there was no completion in time. */
bool kvt_foe_do(struct kvt_foe *foe, const struct kvw_request *request, struct kvw_completion *out);
/* Something that must never work did. */
void kvt_foe_breach(struct kvt_foe *foe, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A place in the tables. */
void *kvt_foe_table(const struct kvt_foe *foe, uint64_t area);

/* A record whose fields are mostly in range. */
struct kvw_request kvt_foe_plausible(struct kvt_foe *foe);

/* -------- the modes, by file */

#define KVT_MODE_MAP(X)                                                                                      \
	/* modes_socket.c */                                                                                 \
	X(random_bytes)                                                                                      \
	X(mutated_messages)                                                                                  \
	X(oversized)                                                                                         \
	X(zero_length)                                                                                       \
	X(half_conversation)                                                                                 \
	X(request_flood)                                                                                     \
	X(admin_as_stranger)                                                                                 \
	/* modes_connections.c */                                                                            \
	X(slow_loris)                                                                                        \
	X(connection_storm)                                                                                  \
	X(unread_fds)                                                                                        \
	X(attached_fds)                                                                                      \
	/* modes_processes.c */                                                                              \
	X(fork_bomb_lite)                                                                                    \
	X(reattach_loop)                                                                                     \
	X(stopped_client)                                                                                    \
	/* modes_ring.c */                                                                                   \
	X(random_records)                                                                                    \
	X(torn_ring)                                                                                         \
	X(completion_ring_stuck)                                                                             \
	X(doorbell_storm)                                                                                    \
	X(stolen_doorbell)                                                                                   \
	/* modes_verbs.c */                                                                                  \
	X(bad_blocks)                                                                                        \
	X(timeline_garbage)                                                                                  \
	X(quota_hog)                                                                                         \
	/* modes_hashes.c */                                                                                 \
	X(hash_bombs)                                                                                        \
	X(colliding_keys)                                                                                    \
	/* modes_memory.c */                                                                                 \
	X(punched_holes)                                                                                     \
	X(held_inode)                                                                                        \
	X(punched_always)                                                                                    \
	X(ofd_lock_games)                                                                                    \
	X(many_locks)                                                                                        \
	X(writes_everywhere)                                                                                 \
	X(revoked_goes_on)
#define X(name) void kvt_mode_##name(struct kvt_foe *foe);
KVT_MODE_MAP(X)
#undef X
void kvt_shape_hash_bombs(struct kvw_msg_ATTACH *attach);
void kvt_shape_colliding_keys(struct kvw_msg_ATTACH *attach);
void kvt_shape_held_inode(struct kvw_msg_ATTACH *attach);

#endif
