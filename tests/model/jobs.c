/* SPDX-License-Identifier: Apache-2.0 */
/* Opens and grants run in slices; what the model makes of each slice. */
#include "world.h"

#include "kvpool/error.h"

/* ---------------------------------------- why an open or a grant may fail */

static int wanted_blocks(const struct job *job)
{
	int want = (int)job->open.want - job->pinned;

	if (job->kind == JOB_GRANT)
		return (int)job->grant.count;
	if (want > (int)job->open.max_new)
		want = (int)job->open.max_new;
	return want > 0 ? want : 0;
}

static int match_limit(const struct job *job)
{
	if (job->kind == JOB_GRANT)
		return 0;
	return (int)(job->open.count < job->open.max_match ? job->open.count : job->open.max_match);
}

/*
 * The block that an open would match at `position`, behind `parent` (-1: at the front); or -1. A hash names
 * a whole chain.
 */
static int match_after(const struct world *w, int e, int position, int parent)
{
	const struct job *job = &w->job[e];
	const struct mdl *m = &w->model;
	int id;

	if (position >= match_limit(job))
		return -1;
	id = mdl_find(m, m->engine[e].namespace_id, job->hash[position]);
	if (id < 0 || m->block[id].parent != parent || !mdl_matchable(m, e, id, job->open.coming))
		return -1;
	return id;
}

/* The block that an open would match next, or -1. */
static int next_match(struct world *w, int e)
{
	const struct job *job = &w->job[e];
	const struct mdl_hold *hold = mdl_hold_by_id(&w->model, job->hold);

	return match_after(w, e, job->pinned, hold && job->pinned > 0 ? hold->blocks[job->pinned - 1] : -1);
}

/* How many more blocks an open would match. */
static int more_matches(struct world *w, int e)
{
	int id = next_match(w, e);
	int count = 0;

	while (id >= 0) {
		count++;
		id = match_after(w, e, w->job[e].pinned + count, id);
	}
	return count;
}

static void note_shortage(struct world *w, int e, bool *out_blocks, bool *out_quota)
{
	const struct mdl *m = &w->model;
	const struct job *job = &w->job[e];
	int tenant = m->engine[e].tenant;
	int rest = wanted_blocks(job) - job->granted_count;
	int pins = job->kind == JOB_OPEN ? more_matches(w, e) : 0;

	*out_blocks = rest > mdl_available(m);
	*out_quota = mdl_used(m, tenant) + (uint64_t)(rest + pins) > m->quota[tenant];
}

/*
 * Once a job gives back, what it was short of is settled; until then it may have been short in this slice or
 * in the one before.
 */
static void follow_shortage(struct world *w, int e)
{
	struct job *job = &w->job[e];
	bool blocks, quota;

	if (job->failing)
		return;
	note_shortage(w, e, &blocks, &quota);
	job->short_of_blocks |= blocks;
	job->short_of_quota |= quota;
}

static void end_shortage(struct world *w, int e)
{
	struct job *job = &w->job[e];

	if (!job->failing)
		note_shortage(w, e, &job->short_of_blocks, &job->short_of_quota);
}

/* A request that cannot be met is refused before it has cost the cache anything. */
static void judge_cost(struct world *w, int e, int rc, int fresh)
{
	if (rc < 0 && w->job[e].slices == 1 && fresh > 0)
		mdl_fault(&w->model, "engine %d was refused at once, after %d blocks had been taken for it",
			  e, fresh);
}

static void judge_failure(struct world *w, int e, int rc)
{
	const struct job *job = &w->job[e];
	struct mdl *m = &w->model;

	if (rc == -KVP_ENOBLOCKS) {
		m->counters[KVW_COUNTER_no_blocks]++;
		if (!job->short_of_blocks)
			mdl_fault(m, "engine %d was refused %d blocks of %d", e, wanted_blocks(job),
				  mdl_available(m));
	} else if (rc == -KVP_EQUOTA) {
		m->counters[KVW_COUNTER_quota_refusals]++;
		if (!job->short_of_quota)
			mdl_fault(m, "engine %d was refused by a quota that has room", e);
	} else {
		mdl_fault(m, "engine %d was refused: %s", e, world_error(rc));
	}
}

/* ---------------------------------------- giving back */

static void take_back_grants(struct world *w, int e, bool all)
{
	struct job *job = &w->job[e];
	int i = job->granted_count;

	while (i-- > 0) {
		if (!all && w->pool->block[job->granted[i]].record.state != KVW_BLOCK_FREE)
			continue;
		mdl_ungrant(&w->model, job->granted[i]);
		job->granted[i] = job->granted[--job->granted_count];
		job->failing = true;
	}
}

static void take_back_pins(struct world *w, int e, int keep)
{
	struct job *job = &w->job[e];
	struct mdl_hold *hold = mdl_hold_by_id(&w->model, job->hold);

	while (hold && hold->length > keep) {
		follow_drop(w, hold);
		job->failing = true;
	}
}

static void drop_hold(struct world *w, int e)
{
	struct mdl_hold *hold = mdl_hold_by_id(&w->model, w->job[e].hold);

	if (!hold)
		return;
	take_back_pins(w, e, 0);
	mdl_close(hold);
}

/* ---------------------------------------- answers */

static void judge_match(struct world *w, int e, int position, int id)
{
	const struct mdl_block *b = &w->model.block[id];
	const struct kvw_answer *answer = &w->job[e].answers[position];
	bool coming = b->state == KVW_BLOCK_PENDING;
	uint32_t flags =
		KVW_ANSWER_MATCHED |
		(coming ? KVW_ANSWER_COMING | (uint32_t)b->timeline << KVW_ANSWER_TIMELINE_SHIFT : 0);

	if (answer->id != id || answer->generation != b->generation || answer->flags != flags ||
	    answer->writer != b->session || answer->step != (coming ? b->step : 0))
		mdl_fault(&w->model,
			  "engine %d: answer %d names block %d, flags %u, step %lu; block %d matches", e,
			  position, answer->id, answer->flags, (unsigned long)answer->step, id);
}

static void judge_fresh(struct world *w, int e, const struct kvw_answer *answers)
{
	const struct job *job = &w->job[e];
	int i, k;

	for (i = 0; i < job->granted_count; i++) {
		const struct kvw_answer *answer = &answers[i];
		int told = 0;

		for (k = 0; k < job->granted_count; k++)
			told += answers[k].id == job->granted[i];
		if (told != 1)
			mdl_fault(&w->model, "engine %d: block %d was told %d times", e, job->granted[i],
				  told);
		if (answer->id < 0 || answer->id >= w->model.blocks || answer->flags || answer->writer ||
		    answer->generation != w->model.block[answer->id].generation)
			mdl_fault(&w->model, "engine %d: the answer for block %d is wrong", e, answer->id);
	}
	w->model.counters[KVW_COUNTER_granted_blocks] += (uint64_t)job->granted_count;
}

/* ---------------------------------------- open */

static void follow_pin(struct world *w, int e, struct mdl_hold *hold, int id)
{
	struct mdl *m = &w->model;
	int tenant = m->engine[e].tenant;

	if (mdl_used(m, tenant) >= m->quota[tenant])
		mdl_fault(m, "engine %d pins block %d beyond its quota", e, id);
	mdl_pin(m, hold, id);
}

/*
 * A failed job shows nothing of what it has matched in its last slice. What it has matched and released
 * again is younger than the slice; what could not be evicted before does not change by it.
 */
static bool was_released_again(const struct world *w, int e, int id)
{
	const struct mdl *m = &w->model;

	if (!m->block[id].stamp)
		return !w->job[e].nothing_more;
	return w->pool->block[id].record.last_use > w->job[e].clock;
}

static bool has_matched_more(struct world *w, int e, int rc)
{
	const struct job *job = &w->job[e];
	int tenant = w->model.engine[e].tenant;
	int id;

	if (rc >= 0)
		return job->pinned < (int)job->open.matched;
	id = next_match(w, e);
	return id >= 0 && !job->match_is_over && mdl_used(&w->model, tenant) < w->model.quota[tenant] &&
	       was_released_again(w, e, id);
}

static void follow_matches(struct world *w, int e, int rc)
{
	struct job *job = &w->job[e];
	struct mdl_hold *hold = mdl_hold_by_id(&w->model, job->hold);

	while (!w->model.fault[0] && has_matched_more(w, e, rc)) {
		int id = next_match(w, e);

		if (id < 0) {
			mdl_fault(&w->model, "engine %d: hash %d was matched", e, job->hash[job->pinned]);
			return;
		}
		if (rc >= 0)
			judge_match(w, e, job->pinned, id);
		follow_pin(w, e, hold, id);
		job->pinned++;
	}
}

/* Blocks are granted only when the prefix has come to its end. */
static void judge_prefix(struct world *w, int e, int rc, int fresh)
{
	struct job *job = &w->job[e];
	int id = next_match(w, e);

	if ((rc == 1 || fresh > 0) && !job->match_is_over && !job->nothing_more && id >= 0)
		mdl_fault(&w->model, "engine %d: the match ends before block %d (hash %d, state %d)", e, id,
			  w->model.block[id].hash, w->model.block[id].state);
	job->match_is_over |= fresh > 0;
}

static int seen_pins(const struct world *w, const struct job *job)
{
	const struct kvd_hold *hold = seen_hold(w, job->hold);

	return hold ? (int)hold->length : 0;
}

static void end_open(struct world *w, int e, int rc)
{
	struct job *job = &w->job[e];
	struct mdl *m = &w->model;

	job->kind = JOB_NONE;
	if (rc < 0) {
		take_back_grants(w, e, true);
		drop_hold(w, e);
		return;
	}
	if (job->granted_count != wanted_blocks(job))
		mdl_fault(m, "engine %d was granted %d blocks for %d", e, job->granted_count,
			  wanted_blocks(job));
	if ((int)job->open.matched != job->pinned || (int)job->open.granted != job->granted_count)
		mdl_fault(m, "engine %d: the open counts %u and %u blocks", e, job->open.matched,
			  job->open.granted);
	m->counters[KVW_COUNTER_lookup_blocks] += (uint64_t)match_limit(job);
	m->counters[KVW_COUNTER_hit_blocks] += (uint64_t)job->pinned;
	judge_fresh(w, e, job->answers + job->pinned);
}

static void follow_open(struct world *w, int e, int rc)
{
	struct job *job = &w->job[e];
	int fresh;

	if (!job->hold) {
		job->hold = job->open.hold ? job->open.hold->id : UINT64_MAX;
		mdl_open(&w->model, e, job->hold);
	}
	if (!job->failing)
		follow_matches(w, e, rc);
	fresh = follow_grants(w, e, job->granted + job->granted_count);
	job->granted_count += fresh;
	judge_cost(w, e, rc, fresh);
	judge_prefix(w, e, rc, fresh);
	follow_shortage(w, e);
	if (rc == 0) {
		take_back_grants(w, e, false);
		take_back_pins(w, e, seen_pins(w, job));
	}
	if (rc < 0)
		judge_failure(w, e, rc);
	if (rc != 0)
		end_open(w, e, rc);
	end_shortage(w, e);
	job->nothing_more = next_match(w, e) < 0;
}

static bool is_beyond_limits(const struct world *w, int e)
{
	const struct mdl_engine *engine = &w->model.engine[e];

	return mdl_holds_of(&w->model, e) == engine->max_holds ||
	       (int)w->job[e].open.want > engine->max_hold_blocks ||
	       match_limit(&w->job[e]) > engine->max_hold_blocks;
}

static void open_slice(struct world *w, int e, uint32_t budget)
{
	struct job *job = &w->job[e];
	bool beyond = !job->hold && is_beyond_limits(w, e);
	int rc;

	job->clock = w->pool->clock;
	rc = kvd_open_step(w->engine[e], &job->open, budget);

	world_log(w, "engine %d: open, budget %u: %s; %u matched, %u granted", e, budget, world_error(rc),
		  job->open.matched, job->open.granted);
	if (beyond != (rc == -KVP_ELIMIT))
		mdl_fault(&w->model, "engine %d has %d holds of %d and wants a row of %u", e,
			  mdl_holds_of(&w->model, e), w->model.engine[e].max_holds, job->open.want);
	if (beyond)
		job->kind = JOB_NONE;
	else
		follow_open(w, e, rc);
}

/* ---------------------------------------- grant */

static void grant_slice(struct world *w, int e, uint32_t budget)
{
	struct job *job = &w->job[e];
	int rc = kvd_grant_step(w->engine[e], &job->grant, budget);
	int fresh;

	world_log(w, "engine %d: grant of %u, budget %u: %s", e, job->grant.count, budget, world_error(rc));
	fresh = follow_grants(w, e, job->granted + job->granted_count);
	job->granted_count += fresh;
	judge_cost(w, e, rc, fresh);
	follow_shortage(w, e);
	if (rc < 0)
		judge_failure(w, e, rc);
	take_back_grants(w, e, rc < 0);
	end_shortage(w, e);
	if (rc == 1 && job->granted_count != (int)job->grant.count)
		mdl_fault(&w->model, "engine %d was granted %d blocks of %u", e, job->granted_count,
			  job->grant.count);
	if (rc == 1)
		judge_fresh(w, e, job->answers);
	if (rc != 0)
		job->kind = JOB_NONE;
}

/* ---------------------------------------- any of them */

void job_step(struct world *w, int e, uint32_t budget)
{
	w->job[e].slices++;
	switch (w->job[e].kind) {
	case JOB_OPEN:
		open_slice(w, e, budget);
		break;
	case JOB_GRANT:
		grant_slice(w, e, budget);
		break;
	case JOB_PUBLISH:
		publish_slice(w, e, budget);
		break;
	case JOB_NONE:
		break;
	}
}

void job_abort(struct world *w, int e)
{
	struct job *job = &w->job[e];

	if (job->kind == JOB_OPEN)
		kvd_open_abort(w->engine[e], &job->open);
	if (job->kind == JOB_GRANT)
		kvd_grant_abort(w->engine[e], &job->grant);
	if (job->kind == JOB_OPEN || job->kind == JOB_GRANT)
		take_back_grants(w, e, true);
	if (job->kind == JOB_OPEN)
		drop_hold(w, e);
	job->kind = JOB_NONE;
}
