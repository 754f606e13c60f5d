/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's log: one line an event on standard error, lower case, naming the cause; with syslog priorities ("<4>") when
 * standard error is a journal stream ($JOURNAL_STREAM). The function that first knows a cause logs it; its callers don't.
 * A line has at most 1024 bytes, from any thread; what a peer said can't forge or colour one. Nobody waits for it to be written
 * while the daemon serves (log_writer.h).
 *
 * Lines that a peer can cause at will go through kvd_log_peer(): at most KVD_LOG_PEER_LINES of them in a
 * second, so that a storm of connections fills no disk. How many were left out is said when it is over.
 */
#ifndef KVPOOL_DAEMON_LOG_H
#define KVPOOL_DAEMON_LOG_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum kvd_log_level { KVD_LOG_ERROR, KVD_LOG_WARNING, KVD_LOG_INFO, KVD_LOG_DEBUG };

void kvd_log_set_level(enum kvd_log_level level);
void kvd_log(enum kvd_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* An error that is the process's last word: when it returns, it and all before it are written, if that takes a bounded time. */
void kvd_log_last(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Only makes the line, into KVD_LOG_LINE_BYTES (log_ring.h). Its length; no terminating null. */
size_t kvd_log_make(enum kvd_log_level level, char *line, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#define KVD_LOG_PEER_LINES 100u

/* The loop's thread only. */
void kvd_log_peer(enum kvd_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Says what was left out in a second that is over. True: something is still to be said when this one is. */
bool kvd_log_peer_poll(void);
/* Says what was left out until now. */
void kvd_log_peer_flush(void);

#define kvd_log_error(...) kvd_log(KVD_LOG_ERROR, __VA_ARGS__)
#define kvd_log_warning(...) kvd_log(KVD_LOG_WARNING, __VA_ARGS__)
#define kvd_log_info(...) kvd_log(KVD_LOG_INFO, __VA_ARGS__)
#define kvd_log_debug(...) kvd_log(KVD_LOG_DEBUG, __VA_ARGS__)

/* `text` with every byte but printable ASCII as \xNN, the backslash too; cut to capacity - 1 bytes, never inside an escape. */
void kvd_log_escape(const char *text, char *out, size_t capacity);

#endif
