/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines of the log on their way to the thread that writes them: bounded, many writers, one reader, no lock. Nobody waits for
 * anybody: a thread that is preempted while it fills its place delays the reader and not the next writer, and a full ring takes
 * no line but counts it.
 */
#ifndef KVPOOL_DAEMON_LOG_RING_H
#define KVPOOL_DAEMON_LOG_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of a line, its newline included. */
#define KVD_LOG_LINE_BYTES 1024u
/* A power of two: two full seconds of lines about clients (KVD_LOG_PEER_LINES) and room for others. */
#define KVD_LOG_RING_LINES 256u

/*
 * Place `p` of the free-running `tail` is slot p % 256, whose sequence is p while it is free, p + 1 (release) when it is filled,
 * and p + 256 (release) when it was read, which is the next round's p.
 */
struct kvd_log_slot {
	_Atomic uint32_t sequence;
	uint32_t length;
	uint64_t lost; /* lines before this one that found no place */
	char text[KVD_LOG_LINE_BYTES];
};

struct kvd_log_ring {
	_Atomic uint32_t tail; /* places given to writers */
	_Atomic uint32_t head; /* places read; the reader's */
	_Atomic uint64_t lost; /* since the last line that found a place */
	_Atomic uint64_t lost_ever;
	struct kvd_log_slot slots[KVD_LOG_RING_LINES];
};

/* Also writes to every page, so that no writer meets a page fault. */
void kvd_log_ring_init(struct kvd_log_ring *ring);
/* Any thread. length <= KVD_LOG_LINE_BYTES. False: no place; counted. */
bool kvd_log_ring_put(struct kvd_log_ring *ring, const char *text, size_t length);
/* The reader's: the oldest line, until kvd_log_ring_next(); NULL: none, or its writer is still at it. */
const struct kvd_log_slot *kvd_log_ring_first(struct kvd_log_ring *ring);
void kvd_log_ring_next(struct kvd_log_ring *ring);
/* The reader's: lines lost after the last one in the ring. They are the caller's to tell. */
uint64_t kvd_log_ring_take_lost(struct kvd_log_ring *ring);
/* Any thread: every place that was given was read. */
bool kvd_log_ring_empty(struct kvd_log_ring *ring);

#endif
