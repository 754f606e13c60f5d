/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the processes of a run tell each other: one shared page range. The hostile process writes its mode's
 * row, the two well-behaved ones their latencies of the phase that the main process names.
 */
#ifndef KVPOOL_TEST_BOARD_H
#define KVPOOL_TEST_BOARD_H

#include <stdatomic.h>
#include <stdint.h>

#define KVT_MAX_PHASES 48u
/* Where the board lies in a process that was started by the main one. */
#define KVT_BOARD_FD 201

/* How a session of the hostile process ended. */
#define KVT_ENDING_MAP(X)                                                                                    \
	X(OWN, "closed")      /* by itself, still welcome */                                                 \
	X(REVOKED, "revoked") /* by the daemon, with an error */                                             \
	X(EOF, "eof")         /* by the daemon, without a word */                                            \
	X(DIED, "killed")     /* with its process */
enum kvt_ending {
#define X(name, text) KVT_ENDING_##name,
	KVT_ENDING_MAP(X)
#undef X
		KVT_ENDINGS
};

struct kvt_mode_row {
	uint64_t sessions; /* attached */
	uint64_t refused;  /* connections and attaches that were turned away */
	uint64_t bytes;    /* sent, posted or written */
	uint64_t endings[KVT_ENDINGS];
	uint64_t breaches; /* of what must never work */
	char breach[160];  /* the first */
	char error[160];   /* the last error that ended a session */
	char refusal[160]; /* the last that turned one away, and where */
};

/* Log-linear: 32 bins an octave of microseconds. */
#define KVT_BINS 1024u
struct kvt_latency {
	_Atomic uint32_t bins[KVT_BINS];
	_Atomic uint32_t cycles;
};
void kvt_latency_add(struct kvt_latency *latency, uint64_t ns);
/* Microseconds that `per_mille` of the cycles did not exceed; 0 without any. */
double kvt_latency_at(const struct kvt_latency *latency, uint32_t per_mille);
void kvt_latency_merge(struct kvt_latency *into, const struct kvt_latency *from);

/*
 * The well-behaved clients: one verifies its bytes on a pool of its own, one goes on with the books of the
 * attacked pool.
 */
enum kvt_friend { KVT_FRIEND_OWN_POOL, KVT_FRIEND_SAME_POOL, KVT_FRIENDS };

struct kvt_board {
	_Atomic uint32_t phase;
	_Atomic uint32_t end;                   /* the friends are to stop */
	_Atomic uint32_t ready;                 /* friends that are at work */
	_Atomic uint32_t refusals[KVT_FRIENDS]; /* for want of quota, where the hostile one shares it */
	struct kvt_latency latency[KVT_FRIENDS][KVT_MAX_PHASES];
	struct kvt_mode_row modes[KVT_MAX_PHASES];
};

/* Makes it, at KVT_BOARD_FD, inherited by children; or maps the inherited one. NULL on failure. */
struct kvt_board *kvt_board_create(void);
struct kvt_board *kvt_board_open(void);

#endif
