/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who writes the log's lines. Standard error may be a pipe that nobody reads, a slow journal or a stopped terminal: while the
 * daemon serves, lines go through a ring (log_ring.h) to a thread that may wait for it, and lines that find the ring full are
 * counted, told and shown in health. Before that thread, after it and in a forked child the caller writes, and waits a bounded
 * time. Lines queued at a crash (SIGSEGV, SIGABRT and the like) are written first, for a bounded time as well.
 */
#ifndef KVPOOL_DAEMON_LOG_WRITER_H
#define KVPOOL_DAEMON_LOG_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The longest that anybody waits for standard error to take what is queued, or a line. */
#define KVD_LOG_WAIT_MS 2000u

/* Begins the thread, with every signal blocked. Negative errno; one that runs is left alone. */
int kvd_log_writer_start(void);
/* Writes what is queued and ends the thread. What standard error does not take in time is lost. */
void kvd_log_writer_stop(void);
/* Waits until everything queued before is written; false: not in KVD_LOG_WAIT_MS. From any thread or signal handler. */
bool kvd_log_writer_flush(void);
/* A whole line with its newline, at most KVD_LOG_LINE_BYTES. */
void kvd_log_writer_put(const char *line, size_t length);
/* The last line of a process that is about to end: after all others, by the caller itself. */
void kvd_log_writer_put_last(const char *line, size_t length);
/* Lines that were lost since the start. */
uint64_t kvd_log_writer_lost(void);

#endif
