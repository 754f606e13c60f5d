/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Granting blocks to an engine: as many as it asks for, or none. A job that fails gives back what it
 * took before it tells the error.
 */
#include <kvpool/error.h>

#include "books.h"

void kvd_count_refusal(struct kvd_pool *pool, int error)
{
	kvd_pool_count(pool, error == -KVP_EQUOTA ? KVW_COUNTER_quota_refusals : KVW_COUNTER_no_blocks, 1);
}

int kvd_check_room(const struct kvd_engine *engine, uint32_t count)
{
	const struct kvd_tenant *tenant = engine->tenant;

	if (count == 0)
		return 0;
	if (tenant->used_blocks >= tenant->quota_blocks || tenant->quota_blocks - tenant->used_blocks < count)
		return -KVP_EQUOTA;
	return kvd_pool_available(engine->pool) < count ? -KVP_ENOBLOCKS : 0;
}

int kvd_grant_one(struct kvd_engine *engine, struct kvw_answer *answer)
{
	int32_t id;
	int ret = kvd_pool_grant(engine->pool, engine, &id);

	if (ret)
		return ret;
	*answer = (struct kvw_answer){
		.id = id,
		.generation = engine->pool->block[id].record.generation,
	};
	return 0;
}

/* True: everything is back. */
static bool undo_grant(struct kvd_engine *engine, struct kvd_grant *job, uint32_t budget)
{
	for (; job->granted > 0 && budget > 0; budget--)
		kvd_pool_ungrant(engine->pool, job->answers[--job->granted].id);
	return job->granted == 0;
}

static int end_failed(struct kvd_engine *engine, struct kvd_grant *job, uint32_t budget)
{
	if (!undo_grant(engine, job, budget))
		return 0;
	kvd_count_refusal(engine->pool, job->failed);
	return job->failed;
}

int kvd_grant_step(struct kvd_engine *engine, struct kvd_grant *job, uint32_t budget)
{
	if (engine->state != KVD_ENGINE_LIVE)
		return -KVP_EREVOKED;
	if (!job->failed && job->granted == 0)
		job->failed = kvd_check_room(engine, job->count);
	for (; !job->failed && job->granted < job->count && budget > 0; budget--) {
		job->failed = kvd_grant_one(engine, &job->answers[job->granted]);
		job->granted += !job->failed;
	}
	if (job->failed)
		return end_failed(engine, job, budget);
	if (job->granted < job->count)
		return 0;
	kvd_pool_count(engine->pool, KVW_COUNTER_granted_blocks, job->granted);
	return 1;
}

void kvd_grant_abort(struct kvd_engine *engine, struct kvd_grant *job)
{
	undo_grant(engine, job, UINT32_MAX);
}
