/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks that were matched while another engine still wrote them. What became of them is in the directory, and only there: the
 * writer's word on its timeline may say less (it was poisoned, and a dying device stored a step over that) and never speaks of a block that is lost
 * because one before it is.
 *
 * A block is lost, too, when another engine's complete copy of it has taken its place: who waits for the first one can't tell that its writer
 * goes on, and finds the copy when it opens again.
 *
 * A block that still says PENDING after the end of a step that waited for its writer was waited for in earnest: the daemon poisons a dead
 * writer's words only when none of its blocks says so any more.
 */
#ifndef KVPOOL_LIBCLIENT_COMING_H
#define KVPOOL_LIBCLIENT_COMING_H

#include <stdbool.h>
#include <stdint.h>

struct kvc_engine;
struct kvp_seq;

/* One step of one writer, and the block that is complete when it is done. */
struct kvc_awaited {
	uint64_t writer; /* session */
	uint64_t step;
	uint64_t generation;
	int32_t id;
	uint32_t timeline;
};

/* Of all blocks that a step reads: one entry for each writer and timeline, the last of its steps. */
#define KVC_AWAITED 32u
struct kvc_awaits {
	uint32_t count;
	bool more; /* than have room */
	struct kvc_awaited of[KVC_AWAITED];
};

/* 1: every matched block is complete. 0: some are still written. -KVP_ELOST, with a text. */
int kvc_coming_look(const struct kvp_seq *seq);
/* The same; where all are complete they stay so, and the sequence is not asked about again. Its own thread. */
int kvc_coming_settle(struct kvp_seq *seq);
/* Adds what the sequence's blocks wait for; those of the engine's own are its streams' business. */
void kvc_coming_collect(const struct kvp_seq *seq, struct kvc_awaits *awaits);
/* Of one entry: 1, 0, -KVP_ELOST as above. */
int kvc_awaited_look(const struct kvc_engine *engine, const struct kvc_awaited *awaited);

#endif
