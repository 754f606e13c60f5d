/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A Python script that does the same work, kept running so that its rounds can take turns with ours: a task's name on its
 * stdin, "<median us> <checksum>" or "none" on its stdout.
 */
#ifndef KVPOOL_BENCH_PEER_H
#define KVPOOL_BENCH_PEER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct bench_peer {
	int pid; /* 0: there is none */
	FILE *to, *from;
};

/* Debian's python3 with a script and one argument. Without it every task is "none". */
void bench_peer_start(struct bench_peer *peer, const char *script, const char *argument);
void bench_peer_stop(struct bench_peer *peer);
/* One round of a task. false: none. */
bool bench_peer_ask(struct bench_peer *peer, const char *task, double *out_us, uint64_t *out_sum);

#endif
