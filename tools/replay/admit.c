/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests become sequences: posted when the batch has room, collected in a later round, and once the blocks
 * that others were still writing are complete they are verified, prefilled and put into the batch. A refused
 * or preempted one goes back and nothing is admitted until a sequence closes.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "ipc/frame.h"

/* How long a round waits when nothing else is to be done. */
#define IDLE_WAIT_MS 2

bool rep_admit_any(const struct rep_engine *engine)
{
	return engine->open_count || engine->again_count || engine->next_request < engine->run->trace->count;
}

static void active_free(struct rep_active *active)
{
	if (active)
		free(active->tokens);
	free(active);
}

void rep_admit_free(struct rep_engine *engine)
{
	for (uint32_t i = 0; engine->open && i < engine->open_count; i++)
		active_free(engine->open[i]);
	for (uint32_t i = 0; engine->again && i < engine->again_count; i++)
		active_free(engine->again[i]);
	free(engine->open);
	free(engine->again);
}

static struct rep_active *active_create(const struct rep_trace *trace, uint32_t request)
{
	const struct rep_request *from = &trace->requests[request];
	struct rep_active *active = calloc(1, sizeof(*active));

	if (!active)
		return NULL;
	active->request = request;
	active->opened_with = from->input_length;
	active->total = from->input_length + from->output_length;
	active->tokens = calloc(active->total, sizeof(*active->tokens));
	if (!active->tokens) {
		free(active);
		return NULL;
	}
	rep_tokens(trace, request, active->total, active->tokens);
	return active;
}

static struct rep_active *take_again(struct rep_engine *engine)
{
	struct rep_active *active = engine->again[0];

	engine->again_count--;
	memmove(engine->again, engine->again + 1, engine->again_count * sizeof(*engine->again));
	return active;
}

/* The next to admit: those queued again first, the oldest of them. NULL: none, or out of memory. */
static struct rep_active *take_next(struct rep_engine *engine)
{
	struct rep_active *active;

	if (engine->again_count)
		return take_again(engine);
	active = active_create(engine->run->trace, engine->next_request);
	if (active)
		engine->next_request += engine->run->engines;
	return active;
}

static void queue_again(struct rep_engine *engine, struct rep_active *active)
{
	active->phase = REP_WAITING;
	active->seq = NULL;
	active->opened_with = active->length > active->opened_with ? active->length : active->opened_with;
	active->length = 0;
	engine->again[engine->again_count++] = active;
}

/* A full ring empties while the daemon is waited for. */
static int close_seq(struct rep_engine *engine, struct kvp_seq *seq)
{
	int ret;

	while ((ret = kvp_seq_close(seq)) == -KVP_EBACKLOG) {
		ret = kvp_sync(engine->client, engine->run->options->global.timeout_ms);
		if (ret)
			break;
	}
	engine->changed = true;
	return ret ? rep_engine_fail(engine, "close", ret) : 0;
}

static void finish(struct rep_engine *engine, struct rep_active *active)
{
	const struct rep_request *request = &engine->run->trace->requests[active->request];

	rep_stat_add(&engine->stats->requests, 1);
	rep_stat_add(&engine->stats->prompt_tokens, request->input_length);
	rep_stat_add(&engine->stats->work, rep_work(request));
	active_free(active);
}

int rep_admit_close(struct rep_engine *engine, uint32_t at, bool again)
{
	struct rep_active *active = engine->open[at];
	int ret = close_seq(engine, active->seq);

	if (ret)
		return ret;
	if (active->phase == REP_RUNNING)
		engine->batch_changed = true;
	engine->open_count--;
	memmove(engine->open + at, engine->open + at + 1, (engine->open_count - at) * sizeof(*engine->open));
	if (again) {
		queue_again(engine, active);
		return 0;
	}
	engine->progress_ns = kvw_now_ns();
	engine->refused = false;
	finish(engine, active);
	return 0;
}

/* The answer to a posted one is not known yet, and has to be counted. */
static uint32_t youngest(const struct rep_engine *engine)
{
	uint32_t at = engine->open_count - 1;

	while (at && engine->open[at]->phase == REP_POSTED)
		at--;
	return at;
}

int rep_admit_preempt(struct rep_engine *engine)
{
	int ret = rep_admit_close(engine, youngest(engine), true);

	rep_stat_add(&engine->stats->preemptions, 1);
	engine->refused = true;
	return ret;
}

static int post_one(struct rep_engine *engine, struct rep_active *active)
{
	struct kvp_open_request request = {
		.size = sizeof(request),
		.flags = KVP_OPEN_COMING,
		.tokens = active->tokens,
		.token_count = active->opened_with,
	};
	int ret = kvp_open_post(engine->client, &request, &active->seq);

	if (ret == -KVP_EBACKLOG) {
		queue_again(engine, active);
		return 0;
	}
	engine->changed = true;
	if (ret) {
		active_free(active);
		return rep_engine_fail(engine, "open", ret);
	}
	active->phase = REP_POSTED;
	engine->open[engine->open_count++] = active;
	return 0;
}

static bool may_admit(const struct rep_engine *engine)
{
	return !engine->refused && engine->open_count < engine->run->options->batch &&
	       (engine->again_count || engine->next_request < engine->run->trace->count);
}

int rep_admit_post(struct rep_engine *engine)
{
	while (may_admit(engine)) {
		struct rep_active *active = take_next(engine);
		int ret =
			active ? post_one(engine, active) : rep_engine_fail_alone(engine, "tokens", -ENOMEM);

		if (ret)
			return ret;
		if (active->phase == REP_WAITING)
			break;
	}
	return 0;
}

static int count_block(struct rep_engine *engine, const struct kvp_seq *seq, uint32_t index)
{
	struct kvp_block_info block = {.size = sizeof(block)};
	int ret = kvp_seq_block(seq, index, &block);

	if (ret)
		return rep_engine_fail(engine, "block of a sequence", ret);
	rep_stat_add(&engine->stats->cross_engine_blocks, block.writer != kvp_session_id(engine->client));
	rep_stat_add(&engine->stats->coming_blocks, (block.flags & KVP_BLOCK_COMING) != 0);
	return 0;
}

/* What the daemon answered, counted. */
static int count_answer(struct rep_engine *engine, struct rep_active *active)
{
	uint32_t blocks = active->length / engine->pool.block_tokens;
	int ret = 0;

	rep_stat_add(&engine->stats->lookup_blocks, (active->opened_with - 1) / engine->pool.block_tokens);
	rep_stat_add(&engine->stats->hit_blocks, blocks);
	for (uint32_t i = 0; i < blocks && !ret; i++)
		ret = count_block(engine, active->seq, i);
	return ret;
}

static int collected(struct rep_engine *engine, struct rep_active *active)
{
	struct kvp_seq_info info = {.size = sizeof(info)};
	int ret = kvp_seq_info(active->seq, &info);

	if (ret)
		return rep_engine_fail(engine, "sequence", ret);
	active->phase = REP_COMING;
	active->length = info.cached_tokens;
	engine->changed = true;
	engine->progress_ns = kvw_now_ns();
	return count_answer(engine, active);
}

/* The answer to open[at]. *gone: it is not open any more. */
static int collect_one(struct rep_engine *engine, uint32_t at, uint32_t timeout_ms, bool *gone)
{
	struct rep_active *active = engine->open[at];
	int ret = kvp_open_collect(active->seq, timeout_ms);

	*gone = false;
	if (ret == -EAGAIN)
		return 0;
	if (!ret)
		return collected(engine, active);
	if (ret != -KVP_ENOBLOCKS && ret != -KVP_EQUOTA)
		return rep_engine_fail(engine, "open", ret);
	rep_stat_add(&engine->stats->refused_opens, 1);
	*gone = true;
	ret = rep_admit_close(engine, at, true);
	engine->refused = true;
	return ret;
}

static int settle_chunk(struct rep_engine *engine, struct kvp_seq *seq, uint32_t tokens, uint64_t step)
{
	int ret;

	while ((ret = kvp_seq_settle(seq, tokens, NULL, 0, REP_TIMELINE, step)) == -KVP_EBACKLOG) {
		ret = kvp_sync(engine->client, engine->run->options->global.timeout_ms);
		if (ret)
			break;
	}
	return ret ? rep_engine_fail(engine, "settle", ret) : 0;
}

/* The KV of the next token. */
static void write_token(struct rep_engine *engine, struct rep_active *active, const int32_t *row)
{
	uint32_t block_tokens = engine->pool.block_tokens;
	uint32_t token = active->tokens[active->length];

	active->prefix = rep_prefix_next(active->prefix, token);
	rep_planes_write(&engine->planes, row[active->length / block_tokens], active->length % block_tokens,
			 active->prefix, token);
	active->length++;
}

/*
 * One step for all tokens of a chunk: published first, as a GPU's work is launched, and written while others
 * may wait for it.
 */
static int prefill_chunk(struct rep_engine *engine, struct rep_active *active, uint32_t tokens)
{
	uint64_t step = kvp_step_next(engine->client, REP_TIMELINE);
	int ret = kvp_seq_stage(active->seq, tokens, REP_TIMELINE, step);

	if (ret)
		return rep_engine_fail(engine, "stage", ret);
	ret = settle_chunk(engine, active->seq, tokens, step);
	while (!ret && tokens--)
		write_token(engine, active, kvp_seq_blocks(active->seq));
	if (!ret)
		ret = rep_engine_step_done(engine, step);
	rep_stat_add(&engine->stats->prefill_steps, 1);
	return ret;
}

static int start(struct rep_engine *engine, struct rep_active *active)
{
	uint32_t chunk = engine->run->options->chunk_tokens;
	int ret = rep_verify_matched(engine, active);

	while (!ret && active->length < active->opened_with) {
		uint32_t left = active->opened_with - active->length;

		ret = prefill_chunk(engine, active, left < chunk ? left : chunk);
	}
	active->phase = REP_RUNNING;
	engine->batch_changed = true;
	engine->progress_ns = kvw_now_ns();
	return ret;
}

/* open[at] may begin once nothing of it is still being written. */
static int start_when_ready(struct rep_engine *engine, uint32_t at, bool *gone)
{
	struct rep_active *active = engine->open[at];
	int ready = kvp_seq_ready(active->seq);
	int ret;

	*gone = false;
	if (ready == 0)
		return 0;
	if (ready == -KVP_ELOST) {
		rep_stat_add(&engine->stats->lost, 1);
		*gone = true;
		return rep_admit_close(engine, at, true);
	}
	if (ready < 0)
		return rep_engine_fail(engine, "ready", ready);
	ret = start(engine, active);
	if (ret || active->total > active->opened_with)
		return ret;
	*gone = true;
	return rep_admit_close(engine, at, false);
}

static bool has_running(const struct rep_engine *engine)
{
	for (uint32_t i = 0; i < engine->open_count; i++)
		if (engine->open[i]->phase == REP_RUNNING)
			return true;
	return false;
}

/* Nothing runs: what was refused is tried again after a while. */
static void idle(struct rep_engine *engine)
{
	poll(NULL, 0, IDLE_WAIT_MS);
	engine->refused = false;
}

/* open[at] goes on as far as it can. */
static int advance(struct rep_engine *engine, uint32_t at, uint32_t wait_ms, bool *gone)
{
	int ret = 0;

	*gone = false;
	if (engine->open[at]->phase == REP_POSTED)
		ret = collect_one(engine, at, wait_ms, gone);
	if (!ret && !*gone && engine->open[at]->phase == REP_COMING)
		ret = start_when_ready(engine, at, gone);
	return ret;
}

int rep_admit_collect(struct rep_engine *engine)
{
	uint32_t wait_ms = has_running(engine) ? 0 : IDLE_WAIT_MS;
	bool gone = false;
	int ret = 0;

	for (uint32_t i = 0; i < engine->open_count && !ret; i += !gone)
		ret = advance(engine, i, wait_ms, &gone);
	if (!ret && !has_running(engine))
		idle(engine);
	return ret;
}
