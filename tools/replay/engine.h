/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One engine process of a full replay: the requests it was dealt, the sequences it has open, and a batch
 * that decodes. What stands where:
 *
 *   engine.c     the process: connect, attach, schedule until nothing is left, close
 *   admit.c      requests: posted, collected, ready, verified, prefilled; closed and queued again
 *   decode.c     steps: reserve, begin, write, attend, settle; what a step cost
 *   verify.c     matched blocks against what they must hold; the injected fault
 */
#ifndef KVPOOL_TOOLS_REPLAY_ENGINE_H
#define KVPOOL_TOOLS_REPLAY_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include <kvpool/kvpool.h>

#include "attention.h"
#include "events.h"
#include "plane.h"
#include "run.h"

/* The engine's steps run on this timeline. */
#define REP_TIMELINE 0u

enum rep_phase {
	REP_WAITING, /* no sequence: dealt, or closed and queued again */
	REP_POSTED,
	REP_COMING, /* open, but matched blocks are still being written by others */
	REP_RUNNING /* in the batch */
};

struct rep_active {
	enum rep_phase phase;
	uint32_t request;
	uint32_t opened_with; /* tokens given at open: the prompt, after a preemption also what was decoded */
	uint32_t total;       /* prompt and output */
	uint32_t length;      /* tokens whose KV is there */
	uint32_t *tokens;     /* [total] */
	uint64_t prefix;      /* chain over tokens[0 .. length) */
	struct kvp_seq *seq;  /* NULL while waiting */
};

struct rep_engine {
	const struct rep_run *run;
	struct rep_stats *stats;
	uint32_t index;
	int event_fd;
	struct kvp_client *client;
	struct kvp_pool_info pool;
	struct rep_planes planes;
	struct rep_attention attention;
	struct kvp_batch *batch;
	uint8_t *scratch; /* a row */
	/* Requests dealt and not begun: next_request, and every engines-th behind it. */
	uint32_t next_request;
	/* Closed and queued again, youngest last. At most as many as the batch. */
	struct rep_active **again;
	uint32_t again_count;
	/* Open ones in the order of their admission. */
	struct rep_active **open;
	uint32_t open_count;
	bool refused;         /* no blocks: nothing is admitted until something closes */
	uint64_t progress_ns; /* when something last went on */
	/* Of the decode steps. */
	bool changed;                /* a sequence opened or closed since the last step */
	bool batch_changed;          /* the running ones are others than the batch's */
	struct rep_active **running; /* the batch's, in its order */
	struct kvp_seq **seqs;
	uint32_t *step_tokens;
	uint32_t running_count;
	struct kvp_lease_info lease; /* after the last step */
	uint64_t steps;
	uint64_t attended_rows;
	uint64_t failure_events;
};

/* The child's whole life; its exit code. */
int rep_engine_main(const struct rep_run *run, uint32_t index, int event_fd);

/*
 * Tells the main process why the engine ends: what failed, and the library's sentence, whose error it is.
 * Returns error.
 */
int rep_engine_fail(struct rep_engine *engine, const char *what, int error);
/* The same for an error of ours or of a kernel, of which the library knows nothing. */
int rep_engine_fail_alone(struct rep_engine *engine, const char *what, int error);

/* The step's work is done: now, or when the stream has run it. 0 or a told error. */
int rep_engine_step_done(struct rep_engine *engine, uint64_t step);

/* admit.c: one round each. 0 or a told error. */
int rep_admit_collect(struct rep_engine *engine);
int rep_admit_post(struct rep_engine *engine);
/* Closes open[at]; again: it goes on later. */
int rep_admit_close(struct rep_engine *engine, uint32_t at, bool again);
/* The youngest open one is closed and queued again. */
int rep_admit_preempt(struct rep_engine *engine);
/* Whether requests are left, open or not. */
bool rep_admit_any(const struct rep_engine *engine);
void rep_admit_free(struct rep_engine *engine);

/* decode.c: one step of all running ones; finished ones are closed. 0 or a told error. */
int rep_decode(struct rep_engine *engine);

/* verify.c: the blocks that open[at] matched; its prefix stands behind them then. */
int rep_verify_matched(struct rep_engine *engine, struct rep_active *active);

#endif
