/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an engine tells the main process while it runs: one fixed record each, written to a pipe in one
 * piece.
 */
#ifndef KVPOOL_TOOLS_REPLAY_EVENTS_H
#define KVPOOL_TOOLS_REPLAY_EVENTS_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

/* Faults that an engine tells one by one; the rest is only counted. */
#define REP_EVENTS_TOLD 16u

enum rep_event_kind {
	REP_EVENT_BLOCK,     /* a matched block holds other bytes than its hash says */
	REP_EVENT_ATTENTION, /* kernel and reference differ */
	REP_EVENT_INJECTED,  /* a byte was flipped on purpose */
	REP_EVENT_FAILED     /* the engine cannot go on: text says why */
};

struct rep_event {
	uint32_t kind;
	uint32_t engine;
	uint32_t line; /* of the request in the trace; 0: none */
	int32_t block;
	uint64_t generation;
	uint64_t writer; /* sessions */
	uint64_t reader;
	uint32_t plane;
	uint32_t got; /* bytes */
	uint32_t wanted;
	uint32_t position; /* of the token in the prompt, or the row's length */
	uint64_t offset;   /* of the byte in the block, all planes end to end; of the element in the row */
	double got_value;  /* REP_EVENT_ATTENTION */
	double wanted_value;
	char text[384];
};
_Static_assert(sizeof(struct rep_event) <= PIPE_BUF, "an event is written in one piece");

/* 0 or a negative errno. */
int rep_event_send(int fd, const struct rep_event *event);
/* Room for any sentence. */
#define REP_EVENT_TEXT_BYTES 768u
/* One sentence. `writer_engine`: which engine the writing session is, -1: not one of this replay. */
void rep_event_text(const struct rep_event *event, int writer_engine, char *out, size_t capacity);

#endif
