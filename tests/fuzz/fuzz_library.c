/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library on top of a daemon that lies: in completions, in answers, in the directory, in the words of
 * the rings. Every call must end in its time, with an error or with block ids that exist.
 *
 *   byte 0     how many of the following bytes are lies for completions and answers, in eighths of the input
 *   the rest   steps: calls of the library, and words of the directory and the channel
 *
 * The daemon is a thread, so what it has seen of a lie when a call is made is not the same in every run.
 */
#include <stdio.h>
#include <stdlib.h>

#include <kvpool/kvpool.h>

#include "fake_daemon.h"
#include "fuzz.h"
#include "script.h"
#include "support.h"

#define SEQS 4u
#define MOST_STEPS 24u
#define MOST_TOKENS 64u
#define WAIT_MS 10u
/* Words of a cache line. */
#define FIRST_LINE 8u
/* A call with a deadline of WAIT_MS that is still there after this has forgotten it. */
#define PATIENCE_NS 5000000000u

struct engine {
	struct fake_daemon *fake;
	struct kvp_client *client;
	struct kvp_batch *batch;
	struct kvp_seq *seqs[SEQS];
	struct script lies;
	uint64_t step;
};

static void require(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "fuzz library: %s\n", what);
	abort();
}

/* -------------------------------------------------------------- lies */

/* Any 4-byte field of a record becomes another number; most records stay as they are. */
static void spoil(struct script *lies, void *record, size_t bytes)
{
	uint8_t choice = script_u8(lies);
	uint32_t value;

	if (!choice || choice > 4 * bytes)
		return;
	value = (uint32_t)script_number(lies);
	memcpy((uint8_t *)record + choice % (bytes / 4) * 4, &value, sizeof(value));
}

static int lie_in_completion(void *arg, const struct kvw_request *request, struct kvw_completion *completion)
{
	struct engine *engine = arg;

	(void)request;
	spoil(&engine->lies, completion, sizeof(*completion));
	return 0;
}

static void lie_in_answer(void *arg, const struct kvw_request *request, uint32_t index,
			  struct kvw_answer *answer)
{
	struct engine *engine = arg;

	(void)request;
	(void)index;
	spoil(&engine->lies, answer, sizeof(*answer));
}

static void lie_in_memory(struct engine *engine, struct script *script, bool channel)
{
	struct fake_daemon *fake = engine->fake;
	uint64_t at = script_number(script);
	uint64_t value = script_u64(script);
	_Atomic uint64_t *words;
	uint64_t count;

	pthread_mutex_lock(&fake->lock);
	words = channel ? (void *)fake->channel : (void *)fake->directory;
	count = (channel ? (uint64_t)KVW_PAGE_BYTES : fake->bytes[KVW_SEGMENT_DIRECTORY]) / sizeof(*words);
	/* The first line of both says what they are and where: read once, before this. */
	if (words)
		atomic_store(&words[FIRST_LINE + at % (count - FIRST_LINE)], value);
	pthread_mutex_unlock(&fake->lock);
}

/* -------------------------------------------------------------- calls */

static void open_seq(struct engine *engine, uint32_t at, struct script *script)
{
	uint32_t tokens[MOST_TOKENS];
	struct kvp_open_request request = {.size = sizeof(request), .tokens = tokens};
	uint8_t chain = script_u8(script) % 4;
	int result;
	uint32_t i;

	request.token_count = 1 + script_u8(script) % MOST_TOKENS;
	request.flags = script_u8(script) % 2 ? KVP_OPEN_COMING : 0;
	for (i = 0; i < request.token_count; i++)
		tokens[i] = (uint32_t)chain << 16 | i;
	if (kvp_probe(engine->client, &request) > (int)MOST_TOKENS)
		require(false, "probe finds more blocks than were asked for");
	if (!engine->seqs[at])
		(void)!kvp_open(engine->client, &request, 1, WAIT_MS, &result, &engine->seqs[at]);
}

static void close_seq(struct engine *engine, uint32_t at)
{
	if (engine->seqs[at] && !kvp_seq_close(engine->seqs[at]))
		engine->seqs[at] = NULL;
}

static void grow(struct engine *engine, struct kvp_seq *seq, struct script *script)
{
	uint32_t tokens = 1 + script_u8(script) % 16;
	uint32_t ids[16] = {0};

	if (kvp_seq_reserve(seq, tokens) && kvp_seq_extend(seq, tokens, WAIT_MS))
		return;
	engine->step = kvp_step_next(engine->client, 0);
	if (kvp_seq_stage(seq, tokens, 0, engine->step))
		return;
	(void)!kvp_seq_settle(seq, tokens, ids, 1, 0, engine->step);
	if (script_u8(script) % 2)
		kvp_step_done(engine->client, 0, engine->step);
}

/* What an engine would index its memory with. */
static void look_at(struct engine *engine, const struct kvp_seq *seq)
{
	struct kvp_seq_info info = {.size = sizeof(info)};
	struct kvp_block_info block = {.size = sizeof(block)};
	const int32_t *ids = kvp_seq_blocks(seq);
	uint32_t i;

	(void)!kvp_seq_ready(seq);
	if (kvp_seq_info(seq, &info) || !ids)
		return;
	require(info.reserved >= info.staged && info.staged >= info.settled && info.settled >= info.committed,
		"the lengths are out of order");
	for (i = 0; i < info.blocks; i++) {
		require(ids[i] > 0 && (uint32_t)ids[i] < engine->fake->geometry.blocks,
			"a block does not exist");
		(void)!kvp_seq_block(seq, i, &block);
	}
}

static void run_batch(struct engine *engine)
{
	const struct kvp_batch_params params = {.size = sizeof(params)};
	struct kvp_batch_view view = {.size = sizeof(view)};
	struct kvp_seq *seqs[SEQS];
	uint32_t n = 0;
	uint32_t i;

	if (!engine->batch && kvp_batch_create(engine->client, &params, &engine->batch))
		return;
	for (i = 0; i < SEQS; i++)
		if (engine->seqs[i])
			seqs[n++] = engine->seqs[i];
	if (kvp_batch_set(engine->batch, seqs, n) || kvp_batch_reserve(engine->batch, NULL))
		return;
	engine->step = kvp_step_next(engine->client, 0);
	if (kvp_batch_begin(engine->batch, NULL, 0, engine->step, &view))
		return;
	kvp_step_done(engine->client, 0, engine->step);
	(void)!kvp_batch_settle(engine->batch, NULL, (const uint32_t[SEQS]){1, 2, 3, 4}, 0, engine->step);
}

static void call_on_seq(struct engine *engine, struct kvp_seq *seq, struct script *script, uint8_t what)
{
	struct kvp_seq *copy = NULL;

	if (!seq)
		return;
	switch (what) {
	case 2:
	case 3:
		grow(engine, seq, script);
		break;
	case 4:
		(void)!kvp_seq_truncate(seq, script_u8(script) % MOST_TOKENS);
		break;
	case 5:
		if (!kvp_seq_fork(seq, WAIT_MS, &copy))
			(void)!kvp_seq_close(copy);
		break;
	default:
		look_at(engine, seq);
	}
}

static void call(struct engine *engine, struct script *script, uint8_t what)
{
	struct kvp_lease_info lease = {.size = sizeof(lease)};
	uint32_t at = what >> 6;

	switch (what & 15) {
	case 0:
		open_seq(engine, at, script);
		break;
	case 1:
		close_seq(engine, at);
		break;
	case 7:
		(void)!kvp_lease_wait(engine->client, script_u8(script) % 9, WAIT_MS);
		(void)!kvp_lease_info(engine->client, &lease);
		break;
	case 8:
		(void)!kvp_sync(engine->client, WAIT_MS);
		break;
	case 9:
		run_batch(engine);
		break;
	case 10:
	case 11:
		lie_in_memory(engine, script, false);
		break;
	case 12:
		lie_in_memory(engine, script, true);
		break;
	default:
		call_on_seq(engine, engine->seqs[at], script, what & 15);
	}
}

/* -------------------------------------------------------------- a run */

static void start(struct engine *engine)
{
	const struct fake_options options = {.low = 4,
					     .critical = 2,
					     .high = 8,
					     .arg = engine,
					     .on_completion = lie_in_completion,
					     .on_answer = lie_in_answer};
	const struct kvp_attach_params attach = {.size = sizeof(attach),
						 .max_seqs = SEQS,
						 .max_seq_tokens = 2 * MOST_TOKENS,
						 .timeout_ms = 100};
	struct kvp_connect_params connect = {.size = sizeof(connect), .timeout_ms = 5000};

	engine->fake = fake_start(&options);
	connect.path = engine->fake->path;
	require(!kvp_connect(&connect, &engine->client), "no connection");
	/* The first lease is part of it, and so are the first lies. */
	if (kvp_attach(engine->client, &attach))
		engine->lies.left = 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	struct engine engine = {.batch = NULL};
	struct script script;
	size_t lies;
	uint32_t i;

	if (!length)
		return 0;
	lies = (length - 1) * (bytes[0] % 8) / 8;
	engine.lies = (struct script){.at = bytes + 1, .left = lies};
	script = (struct script){.at = bytes + 1 + lies, .left = length - 1 - lies};
	start(&engine);
	for (i = 0; i < MOST_STEPS && script.left; i++) {
		uint64_t before_ns = kvt_now_ns();

		call(&engine, &script, script_u8(&script));
		require(kvt_now_ns() - before_ns < PATIENCE_NS, "a call forgot its deadline");
	}
	for (i = 0; i < SEQS; i++)
		if (engine.seqs[i])
			look_at(&engine, engine.seqs[i]);
	kvp_close(engine.client);
	fake_stop(engine.fake);
	return 0;
}
