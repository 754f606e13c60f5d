/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client process that is there to be killed. It is this program run again with its order on the command
 * line, so that it shares nothing with the test: no memory, no descriptor but two pipes. It reports when it
 * has done what it was told (or is about to work for ever) and then lives until it is killed, or until the
 * test ends.
 */
#ifndef KVPOOL_TEST_VICTIM_H
#define KVPOOL_TEST_VICTIM_H

#include "raw.h"

enum kvt_victim_work {
	/* Matches chain [0 .. matched), publishes `published` behind it, leases `blocks`; writes all of them. */
	KVT_VICTIM_LEASE,
	/* Publishes blocks [0 .. blocks) of `chain` at (timeline 0, step). */
	KVT_VICTIM_PUBLISH,
	/* Reports, works by the raw protocol until `ops` operations are done, and kills itself. */
	KVT_VICTIM_RANDOM,
	/* The same through libkvpool. */
	KVT_VICTIM_LIBRARY
};
enum kvt_victim_child {
	KVT_NO_CHILD,
	KVT_CHILD_MAPS,        /* keeps the mappings, not the socket */
	KVT_CHILD_KEEPS_SOCKET /* and every other descriptor, but not the pool */
};
enum kvt_victim_trace {
	KVT_NOT_TRACED,
	KVT_TRACED_READY, /* from its report on */
	KVT_TRACED_START  /* from before it connects */
};

struct kvt_victim_order {
	enum kvt_victim_work work;
	enum kvt_victim_child child;
	enum kvt_victim_trace trace;
	uint64_t seed;
	uint64_t ops; /* 0: for ever */
	uint64_t chain;
	uint32_t matched;
	uint32_t published;
	uint32_t blocks;
	uint64_t step;
};

struct kvt_victim_report {
	uint64_t session;
	uint64_t child; /* pid, or 0 */
	uint32_t matched;
	uint32_t leased;
	struct kvw_block_ref blocks[16]; /* the first published, or leased, ones */
};

struct kvt_victim {
	pid_t pid;
	int hold;   /* closing it ends the victim's child */
	int report; /* the reading end */
	struct kvt_victim_report told;
};

/* Starts one and waits for its report (KVT_TRACED_START: does not wait). */
struct kvt_victim kvt_victim_start(const struct kvt_daemon *daemon, const struct kvt_victim_order *order);
/* Reads the report; false when it died before. */
bool kvt_victim_told(struct kvt_victim *victim);
/* Waits for its death, which must be by SIGKILL. */
void kvt_victim_reap(struct kvt_victim *victim);
void kvt_victim_kill(struct kvt_victim *victim);
/* Ends its child, if it has one, and closes the pipes. */
void kvt_victim_forget(struct kvt_victim *victim);

/* To be called first in main(): does not return in a victim. */
void kvt_victim_main(int argc, char **argv);

/* -------- what a victim does: for ever, or `ops` operations */

void kvt_victim_random(struct kvt_raw *raw, const struct kvt_victim_order *order);
/* Connects by itself; reports by `report` when attached. */
void kvt_victim_library(const char *socket, const struct kvt_victim_order *order,
			void (*report)(uint64_t session));

#endif
