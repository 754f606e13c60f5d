/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every test needs: CMocka with its own prerequisites, a watchdog instead of
 * time-outs, a seeded generator, a private directory, and a count of open descriptors.
 */
#ifndef KVPOOL_TEST_SUPPORT_H
#define KVPOOL_TEST_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define KVT_SKIP 77

/* Kills the process with a message when the test has not ended after `seconds`. Call once at the top of main(). */
void kvt_watchdog(unsigned seconds);

/* Seed of this run: $KVP_SEED, else the clock. Printed, so that a failure can be repeated. */
uint64_t kvt_seed(void);

/* A small generator of its own (splitmix64): a test's stream must not change with the library. */
struct kvt_rng {
	uint64_t state;
};
uint64_t kvt_rng_next(struct kvt_rng *rng);
/* Uniform enough in [0, bound); bound > 0. */
uint64_t kvt_rng_below(struct kvt_rng *rng, uint64_t bound);

/* A private directory under $TMPDIR, removed with its plain files, sockets and folders by kvt_rmdir(). Aborts on failure. */
char *kvt_mkdtemp(void);
/* Removes and frees what kvt_mkdtemp() returned. */
void kvt_rmdir(char *dir);

/* Descriptors this process has open now. */
int kvt_count_fds(void);
/* Resident set of process `pid` in KiB, or -1. */
long kvt_rss_kib(int pid);

/*
 * How long a wait lasts before it is a failure that says so: longer than any proof takes on a crowded machine, and shorter
 * than CTest waits.
 */
#define KVT_PATIENCE_NS UINT64_C(40000000000)

/* Polls `fd` for input until it is there; fails the test after `timeout_ms`. */
void kvt_wait_readable(int fd, int timeout_ms);

/*
 * Spins with sched_yield() until cond(arg) holds; the watchdog ends a wait that never does, and says which: the condition's name and the place.
 */
#define kvt_wait_until(cond, arg) kvt_wait_for((cond), (arg), #cond " in " __FILE__)
void kvt_wait_for(bool (*cond)(void *arg), void *arg, const char *what);

/* Monotonic clock in nanoseconds. */
uint64_t kvt_now_ns(void);

#endif
