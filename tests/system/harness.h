/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A private kvpoold for a test: started on a socket in a directory of its own, with options, waited for
 * until it is ready, and ended with its exit status looked at.
 */
#ifndef KVPOOL_TEST_HARNESS_H
#define KVPOOL_TEST_HARNESS_H

#include <stdbool.h>
#include <sys/types.h>

#include "support.h"

/* Options most tests start with: one small pool "p" of 4 KiB pages, 16-token blocks of 256 bytes a token. */
#define KVT_SMALL_POOL                                                                                       \
	"--set=pool.p.blocks=64", "--set=pool.p.block_tokens=16", "--set=pool.p.planes=k f16 1x128",         \
		"--set=pool.p.pages=4k"

struct kvt_daemon {
	char *dir;
	char socket[160];
	char log[160];
	pid_t pid;
	int ready_fd; /* the reading end */
};

/* The event loop that the suite runs on: the first argument of main(), "auto" without one. */
extern const char *kvt_lane;
/*
 * Takes the lane and starts the watchdog. Ends the process with KVT_SKIP when this kernel does not grant the
 * lane.
 */
void kvt_take_lane(int argc, char **argv, unsigned watchdog_seconds);

/* Daemons started from now on find io_uring refused with this errno, as under a container's seccomp filter; 0: not refused. */
void kvt_refuse_io_uring(int error);

/* Daemons started from now on have this descriptor as their standard error; -1: their log. */
void kvt_log_to(int fd);

/* options: NULL-terminated, appended to --socket, --event-loop and --ready-fd. */
struct kvt_daemon *kvt_daemon_start(const char *const *options);
/* The same without waiting for it. */
struct kvt_daemon *kvt_daemon_launch(const char *const *options);
/* Waits until it says that it is ready; fails the test when it ends instead. */
void kvt_daemon_wait_ready(struct kvt_daemon *daemon);
/* Another one on the same directory and socket, after kvt_daemon_wait() or a kill. */
void kvt_daemon_restart(struct kvt_daemon *daemon, const char *const *options);
/* The same without waiting for it. */
void kvt_daemon_launch_again(struct kvt_daemon *daemon, const char *const *options);
/* Waits for its end; the wait status. */
int kvt_daemon_wait(struct kvt_daemon *daemon);
/* TERM; it must end with status 0 and leave nothing in its directory but its log. Frees. */
void kvt_daemon_stop(struct kvt_daemon *daemon);
/* KILL; frees. */
void kvt_daemon_kill(struct kvt_daemon *daemon);
/* Whether the log has this text; of a daemon that runs, whether it comes within a few seconds. */
bool kvt_daemon_logged(const struct kvt_daemon *daemon, const char *text);

#endif
