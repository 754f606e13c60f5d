/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every matched block is compared with what its tokens say, whoever wrote it. And the fault for --inject
 * flip: one byte of the block that most requests share, by the first engine that has matched it, found it
 * right, and has itself a later request that will match it again.
 */
#include <errno.h>

#include "engine.h"

static int tell_mismatch(struct rep_engine *engine, const struct rep_active *active, uint32_t index,
			 const struct kvp_block_info *block, const struct rep_mismatch *mismatch)
{
	struct rep_event event = {
		.kind = REP_EVENT_BLOCK,
		.engine = engine->index,
		.line = engine->run->trace->requests[active->request].line,
		.block = block->id,
		.generation = block->generation,
		.writer = block->writer,
		.reader = kvp_session_id(engine->client),
		.plane = mismatch->plane,
		.position = index * engine->pool.block_tokens + mismatch->token,
		.offset = mismatch->offset,
		.got = mismatch->got,
		.wanted = mismatch->wanted,
	};

	rep_stat_add(&engine->stats->block_failures, 1);
	if (engine->failure_events++ >= REP_EVENTS_TOLD)
		return 0;
	return rep_event_send(engine->event_fd, &event);
}

/* A request of this engine, not begun yet, that will match the target. */
static bool will_read_again(const struct rep_engine *engine)
{
	const struct rep_run *run = engine->run;

	for (uint32_t i = engine->next_request; i < run->trace->count; i += run->engines)
		if (run->target.readers[i])
			return true;
	return false;
}

static bool is_to_inject(const struct rep_engine *engine, uint32_t index, uint64_t key)
{
	const struct rep_run *run = engine->run;
	uint32_t unclaimed = 0;

	return run->target.wanted && run->target.index == index && run->target.key == key &&
	       will_read_again(engine) &&
	       atomic_compare_exchange_strong(&run->shared->inject_claimed, &unclaimed, 1);
}

/* The low byte of an element in the middle of the first row: the number stays finite. */
static int inject(struct rep_engine *engine, const struct kvp_block_info *block)
{
	const struct rep_plane *plane = &engine->planes.at[0];
	uint32_t at = plane->row_bytes / 2 & ~3u;
	uint8_t was = rep_planes_flip(&engine->planes, plane, block->id, at, 0x55);
	struct rep_event event = {
		.kind = REP_EVENT_INJECTED,
		.engine = engine->index,
		.block = block->id,
		.generation = block->generation,
		.writer = block->writer,
		.offset = plane->start + at,
		.got = was ^ 0x55u,
		.wanted = was,
	};

	rep_stat_add(&engine->stats->injected, 1);
	return rep_event_send(engine->event_fd, &event);
}

static int verify_block(struct rep_engine *engine, struct rep_active *active, uint32_t index)
{
	const uint32_t *tokens = active->tokens + (size_t)index * engine->pool.block_tokens;
	struct kvp_block_info block = {.size = sizeof(block)};
	struct rep_mismatch mismatch;
	int ret = kvp_seq_block(active->seq, index, &block);

	if (ret)
		return rep_engine_fail(engine, "block of a sequence", ret);
	rep_stat_add(&engine->stats->verified_blocks, 1);
	if (rep_planes_compare(&engine->planes, block.id, tokens, &active->prefix, engine->scratch,
			       &mismatch))
		ret = tell_mismatch(engine, active, index, &block, &mismatch);
	else if (is_to_inject(engine, index, active->prefix))
		ret = inject(engine, &block);
	return ret;
}

int rep_verify_matched(struct rep_engine *engine, struct rep_active *active)
{
	uint32_t blocks = active->length / engine->pool.block_tokens;
	int ret = 0;

	active->prefix = REP_PREFIX_START;
	for (uint32_t i = 0; i < blocks && !ret; i++)
		ret = verify_block(engine, active, i);
	return ret;
}
