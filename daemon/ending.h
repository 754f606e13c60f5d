/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bound for the daemon's end. What it waits for then can hang: a call of the CUDA driver, on the worker or in giving memory back, waits for as long
 * as the driver likes. A thread of its own watches; at the deadline it says in the log for what was still waited, and the process ends without
 * it. What the process had goes with it: no other way is left to give it back.
 */
#ifndef KVPOOL_DAEMON_ENDING_H
#define KVPOOL_DAEMON_ENDING_H

#include <stdint.h>

/* The status of a process that ended so. */
#define KVD_ENDING_STATUS 2

/* From now until kvd_ending_over(). timeout_ms 0: without a bound. */
void kvd_ending_begin(uint32_t timeout_ms);
/* What is waited for next, a phrase. */
void kvd_ending_at(const char *format, ...) __attribute__((format(printf, 1, 2)));
void kvd_ending_over(void);

#endif
