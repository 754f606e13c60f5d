/* SPDX-License-Identifier: Apache-2.0 */
/* Random operations, each judged by the model. */
#include "ops.h"

/* ---------------------------------------- which operation fits which engine */

static bool always(const struct world *w, int e)
{
	(void)w;
	(void)e;
	return true;
}

static bool lives(const struct world *w, int e)
{
	return w->model.engine[e].state == MDL_LIVE;
}

/* Its device may still reach steps. */
static bool runs(const struct world *w, int e)
{
	return w->model.engine[e].state <= MDL_FROZEN;
}

static bool is_idle(const struct world *w, int e)
{
	return lives(w, e) && w->job[e].kind == JOB_NONE;
}

static bool has_job(const struct world *w, int e)
{
	return w->job[e].kind != JOB_NONE;
}

static bool has_ended(const struct world *w, int e)
{
	return !lives(w, e);
}

static void end_some(struct world *w, int e)
{
	end_engine(w, e, (enum mdl_engine_state)(MDL_FROZEN + world_below(w, 3)));
}

/* Requests that make no sense for the engine are made now and then all the same. */
static bool has_room_for_hold(const struct world *w, int e)
{
	return mdl_holds_of(&w->model, e) < w->model.engine[e].max_holds;
}

static bool has_hold(const struct world *w, int e)
{
	int h;

	for (h = 0; h < MDL_HOLDS; h++)
		if (w->model.hold[h].used && w->model.hold[h].engine == e && !w->model.hold[h].releasing)
			return true;
	return false;
}

static bool has_leased(const struct world *w, int e)
{
	return mdl_owned(&w->model, e, KVW_BLOCK_LEASED) > 1;
}

static bool lacks_leased(const struct world *w, int e)
{
	return mdl_owned(&w->model, e, KVW_BLOCK_LEASED) < 5;
}

static bool can_publish(const struct world *w, int e)
{
	int h;

	for (h = 0; h < MDL_HOLDS; h++)
		if (w->model.hold[h].used && w->model.hold[h].engine == e && can_grow(w, &w->model.hold[h]))
			return has_leased(w, e);
	return false;
}

struct op {
	unsigned weight;
	bool (*condition)(const struct world *w, int e);
	bool (*sense)(const struct world *w, int e);
	void (*run)(struct world *w, int e);
};

static void step_job(struct world *w, int e)
{
	job_step(w, e, some_budget(w));
}

static const struct op ops[] = {
	{20, is_idle, has_room_for_hold, begin_open},
	{12, is_idle, lacks_leased, begin_grant},
	{60, is_idle, can_publish, begin_publish},
	{15, is_idle, has_hold, release},
	{6, is_idle, has_hold, truncate_hold},
	{5, is_idle, has_leased, give_back},
	{25, has_job, always, step_job},
	{15, runs, always, latch},
	{25, runs, always, progress},
	{1, always, always, end_some},
	{1, has_ended, always, end_some},
	{12, has_ended, always, teardown},
	{1, has_ended, always, ask_too_late},
};

static void engine_op(struct world *w)
{
	unsigned total = 0;
	unsigned at;
	size_t i;
	int e;

	for (i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
		total += ops[i].weight;
	at = (unsigned)world_below(w, total);
	for (i = 0; at >= ops[i].weight; i++)
		at -= ops[i].weight;
	e = some_engine(w, ops[i].condition);
	if (e >= 0 && (ops[i].sense(w, e) || world_chance(w, 4)))
		ops[i].run(w, e);
}

static void finish(struct world *w)
{
	world_judge(w);
	world_compare(w);
	world_judge(w);
}

void world_operate(struct world *w)
{
	unsigned kind = (unsigned)world_below(w, 100);

	w->op++;
	if (kind < 2)
		attach(w);
	else if (kind < 3)
		flush(w);
	else
		engine_op(w);
	finish(w);
}

void world_drain(struct world *w)
{
	int e;

	w->op++;
	for (e = 0; e < MDL_ENGINES; e++) {
		if (!w->model.engine[e].used)
			continue;
		end_engine(w, e, MDL_GONE);
		while (w->model.engine[e].used) {
			teardown(w, e);
			finish(w);
		}
	}
	while (mdl_count_evictable(&w->model) > 0) {
		flush(w);
		finish(w);
	}
	if (mdl_count(&w->model, KVW_BLOCK_FREE) != w->model.blocks - w->model.sinks - 1)
		world_fail(w, "blocks are left when every engine is gone and the cache is empty");
}
