/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches: random lives of sequences, every array of every step compared with the naive model; refusals change nothing.
 */
#include <stdlib.h>
#include <string.h>

#include "batch_model.h"
#include "fixture.h"

#define BLOCK_TOKENS 4u
#define MAX_SEQS 12u
#define SEQ_TOKENS 96u
#define MAX_STEP_TOKENS 40u
#define SLOTS 3u

struct life {
	struct fixture *fixture;
	struct kvt_rng rng;
	struct kvp_batch *batch;
	struct kvp_batch_params params;
	struct model_params model;
	struct kvp_seq *seqs[MAX_SEQS]; /* open */
	uint32_t open;
	uint64_t steps[SLOTS]; /* launched and not done, oldest first */
	uint32_t running;
	uint32_t token; /* the next token id, so that sequences differ */
};

static uint32_t below(struct life *life, uint32_t bound)
{
	return (uint32_t)kvt_rng_below(&life->rng, bound);
}

static void finish_oldest(struct life *life)
{
	kvp_step_done(life->fixture->client, 0, life->steps[0]);
	memmove(life->steps, life->steps + 1, --life->running * sizeof(life->steps[0]));
}

static void set_batch(struct life *life)
{
	assert_ok(kvp_batch_set(life->batch, life->seqs, life->open));
}

static void shuffle(struct life *life)
{
	uint32_t i, j;

	for (i = life->open; i > 1; i--) {
		struct kvp_seq *seq = life->seqs[i - 1];

		j = below(life, i);
		life->seqs[i - 1] = life->seqs[j];
		life->seqs[j] = seq;
	}
}

static void close_at(struct life *life, uint32_t i)
{
	assert_ok(kvp_seq_close(life->seqs[i]));
	life->seqs[i] = life->seqs[--life->open];
}

static void open_one(struct life *life)
{
	uint32_t base = below(life, 2) ? 1000 : (life->token += 1000);

	life->seqs[life->open++] = fixture_seq(life->fixture, base, 1 + below(life, 30), 0, 0);
}

static void settle_all(struct life *life, uint64_t step)
{
	uint32_t i;

	for (i = 0; i < life->open; i++) {
		struct kvp_seq_info info = fixture_info(life->seqs[i]);
		uint32_t pending = info.staged - info.settled;
		uint32_t accepted = pending ? 1 + below(life, pending) : 0;
		uint32_t tokens[MAX_STEP_TOKENS + 1];
		uint32_t j;

		for (j = 0; j < accepted; j++)
			tokens[j] = 7 * (info.settled + j);
		assert_ok(kvp_seq_settle(life->seqs[i], accepted, tokens, 1, 0, step));
	}
}

/* How many tokens each stages: what fits the row, and all of them the batch. */
static bool choose_tokens(struct life *life, uint32_t *tokens)
{
	bool ones = below(life, 2);
	uint32_t all = 0;
	uint32_t i;

	for (i = 0; i < life->open; i++) {
		tokens[i] = ones ? 1 : below(life, 4);
		if (fixture_info(life->seqs[i]).staged + tokens[i] > SEQ_TOKENS) {
			close_at(life, i);
			return false;
		}
		all += tokens[i];
	}
	return all <= MAX_STEP_TOKENS;
}

static void one_step(struct life *life)
{
	struct kvp_batch_view view = {.size = sizeof(view)};
	struct model_row rows[MAX_SEQS];
	uint32_t tokens[MAX_SEQS];
	bool ones = true;
	uint64_t step;
	uint32_t i;

	if (!choose_tokens(life, tokens)) {
		set_batch(life);
		return;
	}
	for (i = 0; i < life->open; i++)
		ones &= tokens[i] == 1;
	assert_ok(kvp_lease_wait(life->fixture->client, 16, WAIT_MS));
	assert_ok(kvp_batch_reserve(life->batch, ones ? NULL : tokens));
	if (life->running == SLOTS)
		finish_oldest(life);
	for (i = 0; i < life->open; i++)
		rows[i] =
			(struct model_row){.before = fixture_info(life->seqs[i]).staged, .tokens = tokens[i]};
	step = kvp_step_next(life->fixture->client, 0);
	assert_ok(kvp_batch_begin(life->batch, ones ? NULL : tokens, 0, step, &view));
	for (i = 0; i < life->open; i++) {
		rows[i].ids = kvp_seq_blocks(life->seqs[i]);
		rows[i].blocks = fixture_info(life->seqs[i]).blocks;
	}
	model_check(&life->model, rows, life->open, &view);
	life->steps[life->running++] = step;
	settle_all(life, step);
}

static void truncate_one(struct life *life)
{
	struct kvp_seq *seq = life->seqs[below(life, life->open)];
	uint32_t settled = fixture_info(seq).settled;

	assert_ok(kvp_sync(life->fixture->client, WAIT_MS));
	assert_ok(kvp_lease_wait(life->fixture->client, 1, WAIT_MS));
	assert_ok(kvp_seq_truncate(seq, below(life, settled + 1)));
}

static void one_event(struct life *life)
{
	uint32_t kind = below(life, 20);

	if (kind == 0 && life->open < MAX_SEQS)
		open_one(life);
	else if (kind == 1 && life->open > 1)
		close_at(life, below(life, life->open));
	else if (kind == 2)
		shuffle(life);
	else if (kind == 3 && life->open)
		truncate_one(life);
	else if (kind == 4 && life->running)
		finish_oldest(life);
	else if (kind == 5)
		assert_ok(kvp_sync(life->fixture->client, WAIT_MS));
	if (kind < 3)
		set_batch(life);
}

static int32_t pad_id(uint32_t pad)
{
	return pad == KVP_PAD_MINUS ? -1 : pad == KVP_PAD_SINK ? FAKE_SINK : 0;
}

static void live(uint64_t seed, const struct kvp_batch_params *params, uint32_t steps)
{
	const struct fake_options options = {.low = 20, .critical = 16, .high = 40, .data_blocks = 700};
	const struct kvp_attach_params attach = {.size = sizeof(attach),
						 .max_seqs = MAX_SEQS,
						 .slots = SLOTS,
						 .max_seq_tokens = SEQ_TOKENS,
						 .batch_tokens = MAX_STEP_TOKENS};
	struct life life = {
		.fixture = fixture_open(&options, &attach), .rng = {seed}, .params = *params, .token = 5000};
	uint32_t i;

	life.model = (struct model_params){
		.block_tokens = BLOCK_TOKENS,
		.width = params->width ? params->width : SEQ_TOKENS / BLOCK_TOKENS,
		.valid_tokens = params->valid_tokens ? params->valid_tokens : BLOCK_TOKENS,
		.slot_bytes = params->slot_bytes ? params->slot_bytes : 4,
		.pad_rows = params->pad_rows,
		.pad_id = pad_id(params->pad_table),
	};
	assert_ok(kvp_batch_create(life.fixture->client, params, &life.batch));
	open_one(&life);
	set_batch(&life);
	for (i = 0; i < steps; i++) {
		one_event(&life);
		one_step(&life);
	}
	while (life.running)
		finish_oldest(&life);
	kvp_batch_destroy(life.batch);
	while (life.open)
		close_at(&life, 0);
	assert_ok(kvp_sync(life.fixture->client, WAIT_MS));
	assert_int_equal(fake_count(life.fixture->fake, KVW_BLOCK_LEASED),
			 fixture_lease(life.fixture).blocks);
	fixture_close(life.fixture);
}

static void every_array_of_random_steps_equals_the_model(void **state)
{
	static const struct kvp_batch_params variants[] = {
		{.size = sizeof(variants[0])},
		{.size = sizeof(variants[0]), .pad_rows = 9, .pad_table = KVP_PAD_MINUS, .slot_bytes = 8},
		{.size = sizeof(variants[0]),
		 .pad_rows = 3,
		 .pad_table = KVP_PAD_SINK,
		 .valid_tokens = 3,
		 .width = 24},
		{.size = sizeof(variants[0]), .valid_tokens = 1},
	};
	uint64_t seed = kvt_seed();
	uint32_t i;

	(void)state;
	for (i = 0; i < sizeof(variants) / sizeof(*variants); i++)
		live(seed + i, &variants[i], 700);
}

/* ------------------------------------------------------------------ refusals */

static void begin_with_every_slot_in_flight_is_an_error_and_not_a_wait(void **state)
{
	const struct fake_options options = {.low = 4, .critical = 2, .high = 8};
	struct fixture *fixture = fixture_open(&options, NULL);
	struct kvp_batch_view view = {.size = sizeof(view)};
	struct kvp_seq *seq = fixture_seq(fixture, 1, 8, 0, 0);
	struct kvp_batch *batch = NULL;
	struct kvp_batch *second = NULL;

	(void)state;
	assert_ok(kvp_batch_create(fixture->client, NULL, &batch));
	assert_error(kvp_batch_create(fixture->client, NULL, &second), KVP_ESTATE);
	assert_ok(kvp_batch_set(batch, &seq, 1));
	assert_ok(kvp_batch_begin(batch, NULL, 0, 1, &view));
	assert_ok(kvp_batch_begin(batch, NULL, 0, 2, &view));
	assert_error(kvp_batch_begin(batch, NULL, 0, 3, &view), KVP_ESLOTS);
	assert_int_equal(fixture_info(seq).staged, 2);
	kvp_step_done(fixture->client, 0, 1);
	assert_ok(kvp_batch_begin(batch, NULL, 0, 3, &view));
	assert_int_equal(view.slot, 0);
	kvp_batch_destroy(batch);
	assert_ok(kvp_seq_close(seq));
	fixture_close(fixture);
}

static void a_refused_step_changes_no_sequence(void **state)
{
	const struct kvp_attach_params params = {.size = sizeof(params),
						 .max_seqs = 4,
						 .max_seq_tokens = 64,
						 .batch_tokens = 6,
						 .flags = KVP_ATTACH_LEASE_MARKS};
	struct kvp_batch_params narrow = {.size = sizeof(narrow), .width = 2};
	struct fixture *fixture = fixture_open(NULL, &params);
	struct kvp_batch_view view = {.size = sizeof(view)};
	struct kvp_seq *seqs[2] = {fixture_seq(fixture, 1, 8, 0, 0), fixture_seq(fixture, 100, 2, 0, 0)};
	struct kvp_seq *twice[2] = {seqs[0], seqs[0]};
	const uint32_t many[2] = {5, 2};
	const uint32_t over[2] = {1, 5};
	struct kvp_batch *batch = NULL;

	(void)state;
	assert_ok(kvp_batch_create(fixture->client, &narrow, &batch));
	assert_error(kvp_batch_set(batch, twice, 2), EINVAL);
	assert_ok(kvp_batch_set(batch, seqs, 2));
	assert_error(kvp_batch_set(batch, twice, 2), EINVAL);
	/* The lease is empty and the second needs a block: neither gets any. */
	assert_error(kvp_batch_reserve(batch, over), KVP_ELEASE);
	assert_error(kvp_batch_begin(batch, over, 0, 1, &view), KVP_ESTATE);
	assert_error(kvp_batch_begin(batch, many, 0, 1, &view), KVP_ELIMIT);
	assert_error(kvp_batch_begin(batch, NULL, 0, 0, &view), EINVAL);
	view.size = 0;
	assert_error(kvp_batch_begin(batch, NULL, 0, 1, &view), EINVAL);
	view.size = sizeof(view);
	assert_int_equal(fixture_info(seqs[0]).staged, 0);
	assert_int_equal(fixture_info(seqs[1]).staged, 0);
	assert_ok(kvp_batch_begin(batch, NULL, 0, 1, &view));
	assert_error(kvp_batch_settle(batch, many, NULL, 0, 1), EINVAL);
	assert_int_equal(fixture_info(seqs[0]).settled, 0);
	assert_ok(kvp_batch_settle(batch, NULL, NULL, 0, 1));
	assert_int_equal(fixture_info(seqs[0]).settled, 1);
	/* Wider than the batch. */
	assert_ok(kvp_seq_extend(seqs[0], 8, WAIT_MS));
	assert_error(kvp_batch_begin(batch, NULL, 0, 2, &view), KVP_ELIMIT);
	assert_ok(kvp_seq_close(seqs[0]));
	assert_error(kvp_batch_begin(batch, NULL, 0, 2, &view), KVP_ESTATE);
	assert_error(kvp_batch_reserve(batch, NULL), KVP_ESTATE);
	assert_error(kvp_batch_settle(batch, NULL, NULL, 0, 2), KVP_ESTATE);
	assert_ok(kvp_batch_set(batch, &seqs[1], 1));
	assert_ok(kvp_batch_begin(batch, NULL, 0, 2, &view));
	assert_ok(kvp_seq_close(seqs[1]));
	kvp_batch_destroy(batch);
	fixture_close(fixture);
}

static void batch_parameters_stay_within_the_attach(void **state)
{
	const struct fake_options options = {.low = 4, .critical = 2, .high = 8};
	struct fixture *fixture = fixture_open(&options, NULL);
	struct kvp_batch_params params = {.size = sizeof(params), .max_seqs = 17};
	struct kvp_batch *batch = NULL;

	(void)state;
	assert_error(kvp_batch_create(fixture->client, &params, &batch), KVP_ELIMIT);
	params.max_seqs = 0;
	params.width = 33;
	assert_error(kvp_batch_create(fixture->client, &params, &batch), KVP_ELIMIT);
	params.width = 0;
	params.slot_bytes = 2;
	assert_error(kvp_batch_create(fixture->client, &params, &batch), EINVAL);
	params.slot_bytes = 0;
	params.pad_table = 3;
	assert_error(kvp_batch_create(fixture->client, &params, &batch), EINVAL);
	params.pad_table = 0;
	params.pad_rows = 17;
	assert_error(kvp_batch_create(fixture->client, &params, &batch), KVP_ELIMIT);
	assert_null(batch);
	fixture_close(fixture);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_array_of_random_steps_equals_the_model),
		cmocka_unit_test(begin_with_every_slot_in_flight_is_an_error_and_not_a_wait),
		cmocka_unit_test(a_refused_step_changes_no_sequence),
		cmocka_unit_test(batch_parameters_stay_within_the_attach),
	};

	kvt_watchdog(110);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
