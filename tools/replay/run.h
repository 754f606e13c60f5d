/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the processes of one replay share: the plan (read only after the fork), and a page of results that
 * each engine writes and the main process reads. Engines are forked before any call into libkvpool; they
 * report faults through a pipe.
 */
#ifndef KVPOOL_TOOLS_REPLAY_RUN_H
#define KVPOOL_TOOLS_REPLAY_RUN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "../ctl.h"
#include "histogram.h"
#include "trace.h"

#define REP_MAX_ENGINES 64u
#define REP_MAX_BATCH 1024u

/* kvpoolctl replay's options. */
struct rep_options {
	struct ctl_global global;
	bool standalone;
	bool metadata_only;
	bool control_syscall;
	uint32_t engines;
	uint32_t requests; /* 0: all */
	uint32_t generate; /* 0: a file is given */
	uint64_t seed;
	uint32_t trace_block_tokens; /* 0: found from the trace */
	uint32_t batch;
	uint32_t heads;
	uint32_t attention_every; /* 0: never */
	uint32_t compare_every;
	uint32_t chunk_tokens;
	const char *pool;
	const char *inject;
	const char *count_syscalls;
	/* Of the daemon that --standalone starts. */
	uint32_t blocks;
	uint32_t block_tokens;
	const char *policy;
	const char *event_loop;
	const char *planes;
	const char *device;
	const char *share;
};

extern const struct ctl_verb ctl_verb_replay;

static inline bool rep_uses_kernels(const struct rep_options *options)
{
	return !options->metadata_only && options->attention_every;
}

/* How system calls of a step are counted. */
enum rep_counting { REP_COUNT_UNDECIDED, REP_COUNT_NONE, REP_COUNT_DISPATCH, REP_COUNT_PTRACE };

/* The block that --inject flip spoils. */
struct rep_target {
	bool wanted;
	uint64_t key; /* chain over the tokens up to the block's end */
	uint32_t index;
	const uint8_t *readers; /* [requests] 1: finds the block */
};

/* One engine's results; it is the only writer. */
#define REP_STAT_MAP(X)                                                                                      \
	X(requests)            /* done */                                                                    \
	X(work)                /* done, in units of rep_work() */                                            \
	X(prompt_tokens)       /* of requests done */                                                        \
	X(output_tokens)       /* decoded */                                                                 \
	X(lookup_blocks)       /* asked for by opens that were answered */                                   \
	X(hit_blocks)          /* answered as matched */                                                     \
	X(cross_engine_blocks) /* of these, written by another session */                                    \
	X(coming_blocks)       /* of these, incomplete when they were matched */                             \
	X(verified_blocks)     /* compared byte by byte */                                                   \
	X(block_failures)      /* blocks with wrong bytes */                                                 \
	X(attention_rows)      /* computed by the kernel */                                                  \
	X(compared_rows)       /* of these, computed by the reference too */                                 \
	X(attention_failures)  /* rows that differ */                                                        \
	X(decode_steps)                                                                                      \
	X(steady_steps)                                                                                      \
	X(steady_records) /* published in steady steps */                                                    \
	X(steady_syscalls)                                                                                   \
	X(worst_syscalls) /* of one steady step */                                                           \
	X(prefill_steps)                                                                                     \
	X(lease_waits)   /* steps that waited for the lease */                                               \
	X(refused_opens) /* opens that found no blocks, tried again */                                       \
	X(preemptions)                                                                                       \
	X(lost) /* sequences closed because a block's writer died */                                         \
	X(injected)                                                                                          \
	X(session)

struct rep_stats {
#define X(name) _Atomic uint64_t name;
	REP_STAT_MAP(X)
#undef X
	struct rep_histogram preparation_ns; /* reserve and begin, every decode step */
	/* Between an engine and its ptracer. */
	_Atomic uint32_t trace_window;
	_Atomic uint64_t traced_calls;
	_Atomic uint32_t counting; /* enum rep_counting that the engine got to work */
};

struct rep_shared {
	_Atomic uint32_t inject_claimed;
	_Atomic uint32_t stop;        /* an engine failed: the others end */
	_Atomic uint64_t block_bytes; /* of KV in a block, as the engines found it */
	struct rep_stats stats[REP_MAX_ENGINES];
};

/* The plan. */
struct rep_run {
	const struct rep_options *options;
	const struct rep_trace *trace;
	struct rep_target target;
	struct rep_shared *shared;
	enum rep_counting counting;
	uint32_t engines;
	uint32_t longest_tokens; /* prompt and output of the longest request */
	uint32_t lease_high;     /* most blocks of an engine's lease; 0: as many as the daemon thinks fit */
};

/* Single writer: a load and a store, no locked instruction. */
static inline void rep_stat_add(_Atomic uint64_t *stat, uint64_t value)
{
	atomic_store_explicit(stat, atomic_load_explicit(stat, memory_order_relaxed) + value,
			      memory_order_relaxed);
}
static inline uint64_t rep_stat(const _Atomic uint64_t *stat)
{
	return atomic_load_explicit(stat, memory_order_relaxed);
}

/* How long a request takes, roughly, in decode steps: for the progress bar only. */
static inline uint64_t rep_work(const struct rep_request *request)
{
	return 1 + request->output_length + request->input_length / 64;
}

#endif
