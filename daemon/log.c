/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the log's lines; log_writer.c writes them. The whole line is escaped after formatting, not argument by argument: no caller can forget a peer's text.
 */
#include "log.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "log_ring.h"
#include "log_writer.h"

static _Atomic int max_level = KVD_LOG_INFO;
static pthread_once_t stream_once = PTHREAD_ONCE_INIT;
static bool to_journal;

static const struct {
	const char *text;
	int priority; /* syslog(3) */
} levels[] = {
	[KVD_LOG_ERROR] = {"error", 3},
	[KVD_LOG_WARNING] = {"warning", 4},
	[KVD_LOG_INFO] = {"info", 6},
	[KVD_LOG_DEBUG] = {"debug", 7},
};

/* $JOURNAL_STREAM is "device:inode" of the stream that the service manager connected. */
static void look_at_stream(void)
{
	const char *text = getenv("JOURNAL_STREAM");
	unsigned long long device;
	unsigned long long inode;
	struct stat status;

	if (!text || sscanf(text, "%llu:%llu", &device, &inode) != 2 || fstat(STDERR_FILENO, &status) < 0)
		return;
	to_journal = status.st_dev == (dev_t)device && status.st_ino == (ino_t)inode;
}

void kvd_log_escape(const char *text, char *out, size_t capacity)
{
	static const char hex[] = "0123456789abcdef";
	size_t used = 0;

	if (!capacity)
		return;
	for (; *text; text++) {
		unsigned char byte = (unsigned char)*text;
		bool plain = byte >= 0x20 && byte < 0x7f && byte != '\\';
		size_t need = plain ? 1 : 4;

		if (used + need >= capacity)
			break;
		if (plain) {
			out[used++] = (char)byte;
			continue;
		}
		out[used++] = '\\';
		out[used++] = 'x';
		out[used++] = hex[byte >> 4];
		out[used++] = hex[byte & 15];
	}
	out[used] = '\0';
}

void kvd_log_set_level(enum kvd_log_level level)
{
	max_level = (int)level;
}

static int write_prefix(enum kvd_log_level level, char *line, size_t capacity)
{
	if (to_journal)
		return snprintf(line, capacity, "<%d>", levels[level].priority);
	return snprintf(line, capacity, "kvpoold: %s: ", levels[level].text);
}

static size_t __attribute__((format(printf, 3, 0)))
make_line(enum kvd_log_level level, char *line, const char *format, va_list args)
{
	char text[KVD_LOG_LINE_BYTES];
	size_t used;

	pthread_once(&stream_once, look_at_stream);
	vsnprintf(text, sizeof(text), format, args);
	used = (size_t)write_prefix(level, line, KVD_LOG_LINE_BYTES);
	kvd_log_escape(text, line + used, KVD_LOG_LINE_BYTES - used - 1);
	used += strlen(line + used);
	line[used++] = '\n';
	return used;
}

static void __attribute__((format(printf, 2, 0)))
write_line(enum kvd_log_level level, const char *format, va_list args)
{
	char line[KVD_LOG_LINE_BYTES];

	kvd_log_writer_put(line, make_line(level, line, format, args));
}

size_t kvd_log_make(enum kvd_log_level level, char *line, const char *format, ...)
{
	va_list args;
	size_t used;

	va_start(args, format);
	used = make_line(level, line, format, args);
	va_end(args);
	return used;
}

void kvd_log_last(const char *format, ...)
{
	char line[KVD_LOG_LINE_BYTES];
	va_list args;
	size_t used;

	va_start(args, format);
	used = make_line(KVD_LOG_ERROR, line, format, args);
	va_end(args);
	kvd_log_writer_put_last(line, used);
}

void kvd_log(enum kvd_log_level level, const char *format, ...)
{
	va_list args;

	if ((int)level > max_level)
		return;
	va_start(args, format);
	write_line(level, format, args);
	va_end(args);
}

/* -------------------------------------------------------------- lines of peers */

/* The second that runs, and its lines. */
static struct {
	time_t second;
	uint32_t written;
	uint64_t left_out;
} peers;

void kvd_log_peer_flush(void)
{
	if (peers.left_out)
		kvd_log_warning("%" PRIu64 " lines about clients left out: more than %u in a second",
				peers.left_out, KVD_LOG_PEER_LINES);
	peers.left_out = 0;
}

bool kvd_log_peer_poll(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	if (now.tv_sec != peers.second) {
		kvd_log_peer_flush();
		peers.second = now.tv_sec;
		peers.written = 0;
	}
	return peers.left_out > 0;
}

void kvd_log_peer(enum kvd_log_level level, const char *format, ...)
{
	va_list args;

	if ((int)level > max_level)
		return;
	kvd_log_peer_poll();
	if (peers.written == KVD_LOG_PEER_LINES) {
		peers.left_out++;
		return;
	}
	peers.written++;
	va_start(args, format);
	write_line(level, format, args);
	va_end(args);
}
