/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that hold a session's descriptor or mapping in every way that a client can. Each says over a pipe that it has what it was
 * told to have, and lives until it is killed.
 */
#ifndef KVPOOL_TEST_HOLDER_H
#define KVPOOL_TEST_HOLDER_H

#include <stdint.h>
#include <sys/types.h>

enum holder_kind {
	HOLDER_MAPS,          /* a mapping; the descriptor is closed */
	HOLDER_KEEPS_FD,      /* the descriptor; no mapping */
	HOLDER_CHILD_MAPS,    /* a mapping that its own child inherits: `child` */
	HOLDER_EXECS,         /* had both, close-on-exec, and runs another program */
	HOLDER_EXECS_WITH_FD, /* the other program inherits the descriptor */
	HOLDER_FD_IN_FLIGHT   /* a descriptor that nobody received from a socket; no other */
};

struct holder {
	pid_t pid;
	pid_t child; /* 0: none */
};

/* Makes the calling process a reaper of orphans; call once in main(). */
void holder_init(void);
/* Forks a holder of `fd`, whose memory has `bytes`; returns when it holds. The caller's own fd stays open. */
struct holder holder_start(enum holder_kind kind, int fd, uint64_t bytes);
/* Kills and reaps one process. */
void holder_kill(pid_t pid);

#endif
