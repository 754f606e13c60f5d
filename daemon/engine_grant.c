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

int kvd_check_room(struct kvd_engine *engine, uint32_t count)
{
	const struct kvd_tenant *tenant = engine->tenant;

	if (count == 0)
		return 0;
	if (tenant->used_blocks >= tenant->quota_blocks || tenant->quota_blocks - tenant->used_blocks < count)
		return -KVP_EQUOTA;
	if (kvd_pool_available(engine->pool) >= count)
		return 0;
	return kvd_idle_ripen(engine->pool) ? 1 : -KVP_ENOBLOCKS;
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

/* Before its first block the job makes sure of all of them. */
static void advance_grant(struct kvd_engine *engine, struct kvd_grant *job)
{
	int ret = job->granted ? 0 : kvd_check_room(engine, job->count);

	if (!ret)
		ret = kvd_grant_one(engine, &job->answers[job->granted]);
	if (!ret)
		job->granted++;
	else if (ret < 0)
		job->failed = ret;
}

int kvd_grant_step(struct kvd_engine *engine, struct kvd_grant *job, uint32_t budget)
{
	if (engine->state != KVD_ENGINE_LIVE)
		return -KVP_EREVOKED;
	kvd_idle_begin(engine->pool, budget);
	for (; !job->failed && job->granted < job->count && budget > 0; budget--)
		advance_grant(engine, job);
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
