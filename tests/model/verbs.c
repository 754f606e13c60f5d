/* SPDX-License-Identifier: Apache-2.0 */
/* What clients ask for: sensible requests, stale ones and wrong ones. */
#include "ops.h"

#include <errno.h>
#include <string.h>

#include "kvpool/error.h"

/* ---------------------------------------- jobs begin */

static void put_hash(struct world *w, struct job *job, int position, int hash)
{
	job->hash[position] = hash;
	memcpy(job->hashes + (size_t)position * w->hash_bytes, w->hash[hash], w->hash_bytes);
}
static struct job *new_job(struct world *w, int e, enum job_kind kind)
{
	struct job *job = &w->job[e];

	memset(job, 0, sizeof(*job));
	job->kind = kind;
	return job;
}

void begin_open(struct world *w, int e)
{
	uint64_t row = (uint64_t)w->model.engine[e].max_hold_blocks;
	struct job *job = new_job(w, e, JOB_OPEN);
	int count = (int)world_below(w, MDL_ROW + 1);
	int i;

	for (i = 0; i < count; i++)
		put_hash(w, job, i, next_hash(w, i ? job->hash[i - 1] : -1));
	job->open.hashes = job->hashes;
	job->open.count = (uint32_t)count;
	job->open.max_match =
		(uint32_t)(world_chance(w, 70) ? row : world_below(w, row + (world_chance(w, 5) ? 3 : 1)));
	job->open.want = (uint32_t)world_below(w, row + (world_chance(w, 3) ? 3 : 1));
	job->open.max_new = (uint32_t)(world_chance(w, 60) ? row : world_below(w, 4));
	job->open.coming = world_chance(w, 50);
	job->open.answers = job->answers;
	world_log(w, "engine %d: opens with %d hashes, match %u, want %u, new %u%s", e, count,
		  job->open.max_match, job->open.want, job->open.max_new, job->open.coming ? ", coming" : "");
	job_step(w, e, some_budget(w));
}

void begin_grant(struct world *w, int e)
{
	struct job *job = new_job(w, e, JOB_GRANT);

	job->grant.count = 1 + (uint32_t)world_below(w, world_chance(w, 80) ? 4 : MDL_ROW);
	job->grant.answers = job->answers;
	job_step(w, e, some_budget(w));
}

/* Blocks that may be published behind the hold at once, at least 1, at most 4. */
static uint64_t room_in(const struct world *w, const struct mdl_hold *hold)
{
	int room = w->model.engine[hold->engine].max_hold_blocks - hold->length;

	return room < 1 ? 1 : room > 4 ? 4 : (uint64_t)room;
}

static void fill_publish(struct world *w, int e, const struct mdl_hold *hold)
{
	struct job *job = new_job(w, e, JOB_PUBLISH);
	struct kvd_publish *p = &job->publish;
	uint32_t i;

	p->hold = hold && !world_chance(w, 1) ? hold->id : world_below(w, 50);
	p->first = (hold ? (uint32_t)hold->length : 0) + (world_chance(w, 2) ? 1 : 0);
	p->count = 1 + (uint32_t)world_below(w, hold && !world_chance(w, 5) ? room_in(w, hold) : 4);
	p->timeline = world_chance(w, 1) ? KVW_TIMELINES : some_timeline(w);
	p->step = some_step(w, e, p->timeline);
	p->plane_set = 1 + (uint32_t)world_below(w, 3);
	for (i = 0; i < p->count; i++) {
		put_hash(w, job, (int)i, next_hash(w, i ? job->hash[i - 1] : last_hash(w, hold)));
		job->refs[i].id = some_leased(w, e);
		job->refs[i].generation = some_generation(w, job->refs[i].id);
	}
	p->blocks = job->refs;
	p->hashes = job->hashes;
	p->answers = job->answers;
}

void begin_publish(struct world *w, int e)
{
	const struct job *job = &w->job[e];

	struct mdl_hold *hold = some_hold(w, e);
	int tries;

	for (tries = 0; hold && !can_grow(w, hold) && tries < 8; tries++)
		hold = some_hold(w, e);
	fill_publish(w, e, hold);
	world_log(w, "engine %d: publishes %u from %u of hold %lu: block %d as hash %d ..", e,
		  job->publish.count, job->publish.first, (unsigned long)job->publish.hold, job->refs[0].id,
		  job->hash[0]);
	job_step(w, e, some_budget(w));
}

/* ---------------------------------------- the other verbs */

/* A point in time that a request may name. */
static bool use_is_valid(uint32_t timeline, uint64_t step)
{
	return timeline < KVW_TIMELINES && !(step & KVW_TIMELINE_POISON);
}

static bool hold_is_valid(const struct mdl_hold *hold, int e, uint32_t timeline, uint64_t step)
{
	return hold && hold->engine == e && !hold->releasing && use_is_valid(timeline, step);
}

void expect(struct world *w, int e, int rc, int wanted)
{
	world_log_more(w, ": %s", world_error(rc));
	if (rc != wanted)
		mdl_fault(&w->model, "engine %d: %s instead of %s", e, world_error(rc), world_error(wanted));
}

void release(struct world *w, int e)
{
	struct mdl_hold *hold = some_hold(w, e);
	uint64_t id = hold && !world_chance(w, 1) ? hold->id : world_below(w, 50);
	uint32_t timeline = world_chance(w, 1) ? KVW_TIMELINES : some_timeline(w);
	uint64_t step = some_step(w, e, timeline);

	hold = mdl_hold_by_id(&w->model, id);
	world_log(w, "engine %d: releases hold %lu at (%u, %lu)", e, (unsigned long)id, timeline,
		  (unsigned long)step);
	expect(w, e, kvd_engine_release(w->engine[e], id, timeline, step),
	       hold_is_valid(hold, e, timeline, step) ? 0 : -EINVAL);
	if (hold_is_valid(hold, e, timeline, step))
		mdl_release(&w->model, hold, timeline, step);
}

/* The id under which the daemon keeps what was cut off. */
static uint64_t new_hold(struct world *w, int e)
{
	const struct kvd_hold *hold;

	for (hold = w->pool->holds; hold; hold = hold->next)
		if (hold->engine == w->engine[e] && !mdl_hold_by_id(&w->model, hold->id))
			return hold->id;
	mdl_fault(&w->model, "engine %d: nothing is kept of what was cut off", e);
	return 0;
}

void truncate_hold(struct world *w, int e)
{
	struct mdl_hold *hold = some_hold(w, e);
	uint64_t id = hold && !world_chance(w, 1) ? hold->id : world_below(w, 50);
	uint32_t timeline = world_chance(w, 1) ? KVW_TIMELINES : some_timeline(w);
	uint64_t step = some_step(w, e, timeline);
	int keep = hold ? (int)world_below(w, (uint64_t)hold->length + 2) : 0;
	bool valid, full;

	hold = mdl_hold_by_id(&w->model, id);
	valid = hold_is_valid(hold, e, timeline, step);
	full = valid && keep < hold->length && mdl_holds_of(&w->model, e) == w->model.engine[e].max_holds;
	world_log(w, "engine %d: truncates hold %lu to %d at (%u, %lu)", e, (unsigned long)id, keep, timeline,
		  (unsigned long)step);
	expect(w, e, kvd_engine_truncate(w->engine[e], id, (uint32_t)keep, timeline, step),
	       full    ? -KVP_ELIMIT
	       : valid ? 0
		       : -EINVAL);
	if (valid && !full && keep < hold->length)
		mdl_truncate(&w->model, hold, keep, new_hold(w, e), timeline, step);
}

void give_back(struct world *w, int e)
{
	int id = some_leased(w, e);
	uint64_t generation = some_generation(w, id);
	uint32_t timeline = some_timeline(w);
	uint64_t step = some_step(w, e, timeline);
	unsigned refusals = mdl_return_refusals(&w->model, e, id, generation);

	world_log(w, "engine %d: returns block %d, generation %lu, at (%u, %lu)", e, id,
		  (unsigned long)generation, timeline, (unsigned long)step);
	if (!use_is_valid(timeline, step)) {
		expect(w, e, kvd_engine_return(w->engine[e], id, generation, timeline, step), -EINVAL);
		return;
	}
	expect(w, e, kvd_engine_return(w->engine[e], id, generation, timeline, step),
	       refusals ? -KVP_ESTALE : 0);
	if (refusals)
		w->model.counters[KVW_COUNTER_stale_refusals]++;
	else
		mdl_return(&w->model, e, id, timeline, step);
}

void ask_too_late(struct world *w, int e)
{
	struct job *job = new_job(w, e, JOB_NONE);

	job->open.hashes = job->hashes;
	job->open.answers = job->answers;
	job->grant.answers = job->answers;
	job->grant.count = 1;
	world_log(w, "engine %d asks without a session", e);
	expect(w, e, kvd_open_step(w->engine[e], &job->open, 1), -KVP_EREVOKED);
	expect(w, e, kvd_grant_step(w->engine[e], &job->grant, 1), -KVP_EREVOKED);
	expect(w, e, kvd_engine_return(w->engine[e], some_leased(w, e), 1, 0, 0), -KVP_EREVOKED);
	expect(w, e, kvd_engine_release(w->engine[e], world_below(w, 50), 0, 0), -KVP_EREVOKED);
	expect(w, e, kvd_engine_truncate(w->engine[e], world_below(w, 50), 0, 0, 0), -KVP_EREVOKED);
}
