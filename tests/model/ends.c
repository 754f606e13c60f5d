/* SPDX-License-Identifier: Apache-2.0 */
/* What devices reach, how engines begin and end, and what the loop does for them in between. */
#include "ops.h"

#include "kvpool/error.h"

/* ---------------------------------------- time */

void latch(struct world *w, int e)
{
	uint32_t timeline = some_timeline(w);
	uint64_t reached = w->model.engine[e].reached[timeline];
	uint64_t step = reached + world_below(w, 4);

	if (world_chance(w, 5))
		step = reached / 2;
	if (world_chance(w, 3))
		step |= KVW_TIMELINE_POISON;
	world_log(w, "engine %d: timeline %u shows %lx", e, timeline, (unsigned long)step);
	kvd_engine_latch(w->engine[e], timeline, step);
	mdl_latch(&w->model, e, timeline, step);
}

void progress(struct world *w, int e)
{
	uint32_t budget = some_budget(w);
	int rc = kvd_engine_progress(w->engine[e], budget);

	world_log(w, "engine %d: progress, budget %u: %d", e, budget, rc);
	follow_progress(w, e, budget, rc);
}

/* ---------------------------------------- beginnings and ends */

static int free_slot(const struct world *w)
{
	int e = 0;

	while (e < MDL_ENGINES && w->model.engine[e].used)
		e++;
	return e < MDL_ENGINES ? e : -1;
}

static int free_sinks(const struct world *w)
{
	int sinks = 0;
	int id;

	for (id = 1; id <= w->model.sinks; id++)
		sinks += w->model.block[id].state == KVW_BLOCK_FREE;
	return sinks;
}

static void adopt(struct world *w, int slot, struct kvd_engine *engine, const struct mdl_engine *model)
{
	int e;

	w->engine[slot] = engine;
	e = mdl_attach(&w->model, model, engine->sink, w->pool->block[engine->sink].record.generation);
	if (e != slot)
		mdl_fault(&w->model, "engine %d in slot %d", e, slot);
}

void attach(struct world *w)
{
	int slot = free_slot(w);
	struct mdl_engine model = {
		.namespace_id = 1 + (uint32_t)world_below(w, (uint64_t)w->namespaces),
		.tenant = (int)world_below(w, (uint64_t)w->tenants),
		.session = w->next_session++,
		.max_holds = 1 + (int)world_below(w, 12),
		.max_hold_blocks = 1 + (int)world_below(w, MDL_ROW),
	};
	struct kvd_engine_params params = {
		.session = model.session,
		.engine = 1000 + model.session,
		.namespace_id = model.namespace_id,
		.hash_bytes = w->hash_bytes,
		.max_holds = (uint32_t)model.max_holds,
		.max_hold_blocks = (uint32_t)model.max_hold_blocks,
		.tenant = &w->tenant[model.tenant],
	};
	struct kvd_engine *engine = NULL;
	int rc;

	if (slot < 0)
		return;
	rc = kvd_engine_create(w->pool, &params, &engine);
	world_log(w, "engine %d attaches: tenant %d, namespace %u, holds %d of %d", slot, model.tenant,
		  model.namespace_id, model.max_holds, model.max_hold_blocks);
	expect(w, slot, rc, free_sinks(w) ? 0 : -KVP_ELIMIT);
	if (rc == 0)
		adopt(w, slot, engine, &model);
}

void end_engine(struct world *w, int e, enum mdl_engine_state state)
{
	struct mdl_engine *model = &w->model.engine[e];

	world_log(w, "engine %d is %s%s", e,
		  state == MDL_FROZEN ? "frozen"
		  : state == MDL_DEAD ? "dead"
				      : "proved gone",
		  w->job[e].kind ? ", in the middle of a job" : "");
	job_abort(w, e);
	if (state == MDL_FROZEN)
		kvd_engine_freeze(w->engine[e]);
	else if (state == MDL_DEAD)
		kvd_engine_die(w->engine[e]);
	else
		kvd_engine_prove_gone(w->engine[e]);
	if (model->state < state)
		model->state = state;
}

void teardown(struct world *w, int e)
{
	uint32_t budget = some_budget(w);
	int rc = kvd_engine_teardown_step(w->engine[e], budget);

	world_log(w, "engine %d: teardown, budget %u: %d", e, budget, rc);
	follow_teardown(w, e, budget, rc);
	if (w->model.fault[0] || w->model.engine[e].state != MDL_GONE || !mdl_empty(&w->model, e))
		return;
	world_log_more(w, ", destroyed");
	if (!kvd_engine_empty(w->engine[e])) {
		mdl_fault(&w->model, "engine %d is not empty", e);
		return;
	}
	kvd_engine_destroy(w->engine[e]);
	w->engine[e] = NULL;
	w->model.engine[e].used = false;
}

/* ---------------------------------------- the pool */

void flush(struct world *w)
{
	int victim = -1;
	int id, rc;

	rc = kvd_pool_flush_one(w->pool);
	for (id = 1; id < w->model.blocks; id++)
		if (w->model.block[id].state == KVW_BLOCK_CACHED &&
		    w->pool->block[id].record.state == KVW_BLOCK_FREE)
			victim = id;
	world_log(w, "flush: %d, block %d", rc, victim);
	if ((rc == 1) != (victim >= 0) || (rc == 1) != (mdl_count_evictable(&w->model) > 0))
		mdl_fault(&w->model, "a flush answered %d and freed block %d", rc, victim);
	if (victim >= 0)
		mdl_flush(&w->model, victim);
}
