/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A publish runs in slices: each of its blocks is published in the model too, or refused for the same
 * reason.
 */
#include "world.h"

#include <errno.h>

#include "kvpool/error.h"

#include "differences.h"

/* What holds for the request as a whole: 0, or the error that refuses all of it. */
static int judge_request(struct world *w, int e)
{
	const struct kvd_publish *p = &w->job[e].publish;
	const struct mdl_hold *hold = mdl_hold_by_id(&w->model, p->hold);

	if (!hold || hold->engine != e || hold->releasing || p->timeline >= KVW_TIMELINES ||
	    p->step & KVW_TIMELINE_POISON || (int)(p->first + p->done) != hold->length)
		return -EINVAL;
	return (int)(p->first + p->count) > w->model.engine[e].max_hold_blocks ? -KVP_ELIMIT : 0;
}

static struct mdl_publish next_publish(struct world *w, int e)
{
	const struct job *job = &w->job[e];
	const struct kvd_publish *p = &job->publish;
	int i = job->published;

	return (struct mdl_publish){
		.engine = e,
		.hold = mdl_hold_by_id(&w->model, p->hold),
		.id = p->blocks[i].id,
		.generation = p->blocks[i].generation,
		.hash = job->hash[i],
		.timeline = p->timeline,
		.step = p->step,
		.plane_set = p->plane_set,
	};
}

static void judge_answer(struct world *w, int e, int canonical, bool duplicate)
{
	const struct mdl_block *b = &w->model.block[canonical];
	const struct kvw_answer *answer = &w->job[e].answers[w->job[e].published];
	bool coming = b->state == KVW_BLOCK_PENDING;
	uint32_t flags = (duplicate ? KVW_ANSWER_DUPLICATE : 0) | (coming ? KVW_ANSWER_COMING : 0);

	world_log_more(w, " %d%s", canonical, duplicate ? "(duplicate)" : "");
	if (answer->id != canonical || answer->generation != b->generation || answer->flags != flags ||
	    answer->writer != b->session || answer->step != (coming ? b->step : 0))
		mdl_fault(&w->model,
			  "engine %d: block %d is canonical, flags %u; the answer has block %d, flags %u", e,
			  canonical, flags, answer->id, answer->flags);
}

static void follow_publish_one(struct world *w, int e)
{
	struct mdl_publish p = next_publish(w, e);
	unsigned refusals = mdl_publish_refusals(&w->model, &p);
	bool duplicate;
	int canonical;

	if (refusals) {
		mdl_fault(&w->model, "engine %d: the publish of block %d was accepted (reasons %x)", e, p.id,
			  refusals);
		return;
	}
	canonical = mdl_publish(&w->model, &p, &duplicate);
	judge_answer(w, e, canonical, duplicate);
	w->job[e].published++;
	w->job[e].duplicates += duplicate;
}

static unsigned refusal_of(int rc)
{
	switch (rc) {
	case -KVP_ESTALE:
		return MDL_STALE;
	case -KVP_ELOST:
		return MDL_LOST;
	case -KVP_EQUOTA:
		return MDL_QUOTA;
	case -EINVAL:
		return MDL_UNCHAINED;
	default:
		return 0;
	}
}

static void judge_refusal(struct world *w, int e, int rc)
{
	struct mdl_publish p = next_publish(w, e);

	if (w->model.fault[0])
		return;
	if (!(mdl_publish_refusals(&w->model, &p) & refusal_of(rc)))
		mdl_fault(&w->model, "engine %d: the publish of block %d was refused: %s", e, p.id,
			  world_error(rc));
	if (rc == -KVP_ESTALE)
		w->model.counters[KVW_COUNTER_stale_refusals]++;
	if (rc == -KVP_EQUOTA && !DIFFERS_QUOTA_REFUSALS)
		w->model.counters[KVW_COUNTER_quota_refusals]++;
}

static void follow_publish(struct world *w, int e, int rc)
{
	struct job *job = &w->job[e];

	while (!w->model.fault[0] && job->published < (int)job->publish.done)
		follow_publish_one(w, e);
	if ((int)job->publish.duplicates != job->duplicates)
		mdl_fault(&w->model, "engine %d: %u duplicates were counted for %d", e,
			  job->publish.duplicates, job->duplicates);
	if (rc < 0)
		judge_refusal(w, e, rc);
	if (rc == 1 && job->published != (int)job->publish.count)
		mdl_fault(&w->model, "engine %d: %d blocks of %u were published", e, job->published,
			  job->publish.count);
}

void publish_slice(struct world *w, int e, uint32_t budget)
{
	struct job *job = &w->job[e];
	int refusal = judge_request(w, e);
	int rc = kvd_publish_step(w->engine[e], &job->publish, budget);

	world_log(w, "engine %d: publish of %u at (%u, %lu), budget %u: %s;", e, job->publish.count,
		  job->publish.timeline, (unsigned long)job->publish.step, budget, world_error(rc));
	if (!refusal)
		follow_publish(w, e, rc);
	else if (rc != refusal)
		mdl_fault(&w->model, "engine %d: %s instead of %s", e, world_error(rc), world_error(refusal));
	if (rc != 0)
		job->kind = JOB_NONE;
}
