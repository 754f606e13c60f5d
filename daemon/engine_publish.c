/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Publishing: a written block gets a name, or its engine learns the block that has it already.
 * Everything that can fail is done before the first change, block by block.
 */
#include <errno.h>
#include <string.h>

#include <kvpool/error.h>

#include "books.h"
#include "wait.h"

/*
 * A copy of a pending block with more children than this counts as its duplicate, instead of replacing
 * it: to move them is one indivisible change, and must stay well below 100 us.
 */
#define MOVED_CHILDREN_MAX 1024u

/* One block on its way. */
struct publication {
	struct kvd_engine *engine;
	struct kvd_hold *hold;
	const struct kvd_publish *job;
	const uint8_t *hash;
	int32_t id;     /* presented */
	int32_t parent; /* -1: the first of its chain */
	bool reached;   /* its own step */
};

static int check_job(const struct kvd_engine *engine, const struct kvd_publish *job,
		     struct kvd_hold **out_hold)
{
	struct kvd_hold *hold;
	int ret = kvd_engine_check_use(engine, job->timeline, job->step);

	if (ret)
		return ret;
	hold = kvd_hold_find(engine, job->hold);
	if (!hold || job->plane_set > UINT8_MAX || hold->length != (uint64_t)job->first + job->done)
		return -EINVAL;
	if ((uint64_t)job->first + job->count > engine->max_hold_blocks)
		return -KVP_ELIMIT;
	*out_hold = hold;
	return 0;
}

static int check_block(const struct publication *publication, uint64_t generation)
{
	const struct kvd_engine *engine = publication->engine;

	if (!kvd_engine_owns(engine, publication->id, generation)) {
		kvd_pool_count(engine->pool, KVW_COUNTER_stale_refusals, 1);
		return -KVP_ESTALE;
	}
	if (publication->parent >= 0 && !engine->pool->block[publication->parent].indexed)
		return -KVP_ELOST;
	return 0;
}

/*
 * A hash names a whole chain, so its block's parent is the block before it here too; else the hashes
 * are not chained. The quota: see struct kvd_tenant. A pending block of one's own counts twice, so
 * only who refers to others' blocks without end comes to twice the quota.
 */
static int check_canonical(const struct publication *publication, int32_t canonical)
{
	const struct kvd_tenant *tenant = publication->engine->tenant;

	if (publication->engine->pool->block[canonical].record.parent != publication->parent)
		return -EINVAL;
	if (tenant->used_blocks / 2 < tenant->quota_blocks)
		return 0;
	kvd_count_refusal(publication->engine->pool, -KVP_EQUOTA);
	return -KVP_EQUOTA;
}

static int make_room(const struct publication *publication)
{
	int ret = kvd_hold_reserve(publication->hold);

	if (ret || publication->reached)
		return ret;
	return kvd_wait_reserve(&publication->engine->waits[publication->job->timeline]);
}

static void answer(const struct publication *publication, int32_t canonical, uint32_t flags)
{
	const struct kvw_block_record *record = &publication->engine->pool->block[canonical].record;
	bool coming = record->state == KVW_BLOCK_PENDING;

	publication->job->answers[publication->job->done] = (struct kvw_answer){
		.id = canonical,
		.flags = flags | (coming ? KVW_ANSWER_COMING : 0),
		.generation = record->generation,
		.writer = record->session,
		.step = coming ? record->step : 0,
	};
}

static void name_block(const struct publication *publication)
{
	const struct kvd_engine *engine = publication->engine;
	struct kvd_pool *pool = engine->pool;
	struct kvw_block_record *record = &kvd_block(pool, publication->id)->record;
	int32_t parent = publication->parent;

	memcpy(record->hash, publication->hash, engine->hash_bytes);
	record->hash_bytes = (uint8_t)engine->hash_bytes;
	record->namespace_id = engine->namespace_id;
	record->plane_set = publication->job->plane_set ? (uint8_t)publication->job->plane_set : 1;
	record->parent = parent;
	record->parent_generation = parent < 0 ? 0 : kvd_block(pool, parent)->record.generation;
}

static void queue_block(const struct publication *publication)
{
	const struct kvd_publish *job = publication->job;
	struct kvd_engine *engine = publication->engine;
	uint64_t step = kvd_wait_push(&engine->waits[job->timeline], KVD_WAIT_BLOCK,
				      (uint32_t)publication->id, job->step);

	kvd_block_wait(engine->pool, publication->id, job->timeline, step);
}

/* The presented block gets its name and its state; the caller then makes it findable. */
static void begin_own(const struct publication *publication)
{
	name_block(publication);
	if (publication->reached)
		kvd_block_complete(publication->engine->pool, publication->id);
	else
		queue_block(publication);
}

static void end_own(const struct publication *publication)
{
	kvd_hold_push(publication->hold, publication->id);
	kvd_pool_count(publication->engine->pool, KVW_COUNTER_published_blocks, 1);
	answer(publication, publication->id, 0);
}

static void publish_fresh(const struct publication *publication)
{
	begin_own(publication);
	kvd_tree_add(publication->engine->pool, publication->id);
	end_own(publication);
}

static void publish_duplicate(const struct publication *publication, int32_t canonical)
{
	kvd_hold_push(publication->hold, canonical);
	kvd_pool_count(publication->engine->pool, KVW_COUNTER_duplicate_blocks, 1);
	answer(publication, canonical, KVW_ANSWER_DUPLICATE);
}

static void publish_replacement(const struct publication *publication, int32_t pending)
{
	begin_own(publication);
	kvd_tree_replace(publication->engine->pool, pending, publication->id);
	end_own(publication);
}

static bool replaces(const struct publication *publication, int32_t canonical)
{
	const struct kvd_block *block = &publication->engine->pool->block[canonical];

	if (block->record.state != KVW_BLOCK_PENDING || block->children > MOVED_CHILDREN_MAX)
		return false;
	return publication->reached || kvd_block_is_doubtful(block);
}

/* 1: a duplicate; 0: published. */
static int publish_one(const struct publication *publication, uint64_t generation)
{
	struct kvd_engine *engine = publication->engine;
	int32_t canonical;
	int ret = check_block(publication, generation);

	if (ret)
		return ret;
	canonical = kvd_pool_find(engine->pool, engine->namespace_id, publication->hash, engine->hash_bytes);
	ret = canonical >= 0 ? check_canonical(publication, canonical) : 0;
	if (!ret)
		ret = make_room(publication);
	if (ret)
		return ret;
	if (canonical < 0) {
		publish_fresh(publication);
	} else if (replaces(publication, canonical)) {
		publish_replacement(publication, canonical);
	} else {
		publish_duplicate(publication, canonical);
		return 1;
	}
	return 0;
}

static int publish_next(struct kvd_engine *engine, struct kvd_hold *hold, struct kvd_publish *job)
{
	struct publication publication = {
		.engine = engine,
		.hold = hold,
		.job = job,
		.hash = job->hashes + (size_t)job->done * engine->hash_bytes,
		.id = job->blocks[job->done].id,
		.parent = hold->length ? hold->blocks[hold->length - 1] : -1,
		.reached = kvd_engine_reached(engine, job->timeline, job->step),
	};
	int ret = publish_one(&publication, job->blocks[job->done].generation);

	if (ret < 0)
		return ret;
	job->duplicates += (uint32_t)ret;
	job->done++;
	return 0;
}

int kvd_publish_step(struct kvd_engine *engine, struct kvd_publish *job, uint32_t budget)
{
	struct kvd_hold *hold;
	int ret = check_job(engine, job, &hold);

	for (; !ret && job->done < job->count && budget > 0; budget--)
		ret = publish_next(engine, hold, job);
	if (ret)
		return ret;
	return job->done == job->count;
}
