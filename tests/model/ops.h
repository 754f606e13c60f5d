/* SPDX-License-Identifier: Apache-2.0 */
/* What a random operation chooses from, and the operations themselves. */
#ifndef KVPOOL_TEST_OPS_H
#define KVPOOL_TEST_OPS_H

#include "world.h"

/* -------- choose.c: mostly what makes sense, now and then what does not */
uint32_t some_budget(struct world *w);
uint32_t some_timeline(struct world *w);
/* Reached ones, coming ones, in no order, one that never comes, and rarely one that cannot be. */
uint64_t some_step(struct world *w, int e, uint32_t timeline);
/* An engine of which the condition holds, or -1. */
int some_engine(struct world *w, bool (*condition)(const struct world *, int));
/* A hold of the engine, or NULL. */
struct mdl_hold *some_hold(struct world *w, int e);
/* A block that the engine has leased; now and then any block, or one that is none. */
int some_leased(struct world *w, int e);
uint64_t some_generation(struct world *w, int id);
/* The hash that follows `last` in a chain (-1: none), or any one where clients make up their own. */
int next_hash(struct world *w, int last);
/* Of the hold's last block, -1: it is empty. */
int last_hash(const struct world *w, const struct mdl_hold *hold);
/* There is room in the row, and a hash that could come next. */
bool can_grow(const struct world *w, const struct mdl_hold *hold);

/* -------- verbs.c */
void begin_open(struct world *w, int e);
void begin_grant(struct world *w, int e);
void begin_publish(struct world *w, int e);
void release(struct world *w, int e);
void truncate_hold(struct world *w, int e);
void give_back(struct world *w, int e);
/* What an engine without a session asks for. */
void ask_too_late(struct world *w, int e);
/* Notes the answer and compares it with the wanted one. */
void expect(struct world *w, int e, int rc, int wanted);

/* -------- ends.c */
void latch(struct world *w, int e);
void progress(struct world *w, int e);
void attach(struct world *w);
void end_engine(struct world *w, int e, enum mdl_engine_state state);
void teardown(struct world *w, int e);
void flush(struct world *w);

#endif
