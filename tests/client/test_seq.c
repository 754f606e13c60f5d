/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sequences against the fake daemon, blocks of 4 tokens.
 */
#include <stdlib.h>
#include <string.h>

#include "ipc/hash.h"

#include "fixture.h"

#define NONE UINT32_MAX
#define ALL UINT32_MAX

static const struct fake_options lease_of_8 = {.low = 4, .critical = 2, .high = 8};

static void open_reserves_to_the_end_of_the_prompt(void **state)
{
	struct fixture *fixture = fixture_open(&lease_of_8, NULL);
	struct kvp_seq *seq = fixture_seq(fixture, 100, 10, 0, 0);
	struct kvp_seq_info info = fixture_info(seq);

	(void)state;
	assert_int_equal(info.prompt_tokens, 10);
	assert_int_equal(info.cached_tokens, 0);
	assert_int_equal(info.blocks, 3);
	assert_int_equal(info.reserved, 12);
	assert_int_equal(info.staged, 0);
	assert_ok(kvp_seq_close(seq));
	fixture_close(fixture);
}

static void a_published_prefix_is_matched_and_the_last_token_is_not(void **state)
{
	struct fixture *fixture = fixture_open(&lease_of_8, NULL);
	struct kvp_seq *first = fixture_seq(fixture, 100, 12, 0, 0);
	struct kvp_seq *second, *third;

	(void)state;
	fixture_advance(fixture, first, 100, 12);
	assert_int_equal(fixture_info(first).committed, 12);
	assert_ok(kvp_sync(fixture->client, WAIT_MS));
	assert_int_equal(fixture_block(first, 2).flags, KVP_BLOCK_PUBLISHED);
	/* 12 tokens: the last one stays uncached, so its block is not matched. */
	second = fixture_seq(fixture, 100, 12, 0, NONE);
	assert_int_equal(fixture_info(second).cached_tokens, 8);
	assert_int_equal(fixture_info(second).blocks, 2);
	assert_int_equal(fixture_block(second, 1).id, fixture_block(first, 1).id);
	assert_int_equal(fixture_block(second, 1).flags, KVP_BLOCK_MATCHED);
	third = fixture_seq(fixture, 100, 12, ALL, NONE);
	assert_int_equal(fixture_info(third).cached_tokens, 12);
	assert_ok(kvp_seq_close(first));
	assert_ok(kvp_seq_close(second));
	assert_ok(kvp_seq_close(third));
	fixture_close(fixture);
}

static void extra_keys_keep_prompts_apart(void **state)
{
	struct fixture *fixture = fixture_open(&lease_of_8, NULL);
	static const uint32_t tokens[8] = {1, 2, 3, 4, 5, 6, 7, 8};
	const struct kvp_extra_key salt = {.domain = KVP_EXTRA_SALT, .length = 3, .bytes = "abc"};
	const struct kvp_extra_key adapter = {.domain = KVP_EXTRA_ADAPTER, .length = 3, .bytes = "abc"};
	struct kvp_open_request request = {.size = sizeof(request),
					   .tokens = tokens,
					   .token_count = 8,
					   .max_cached_tokens = ALL,
					   .extra_count = 1,
					   .extras = &salt};
	struct kvp_seq *first = NULL;
	struct kvp_seq *other = NULL;
	int result;

	(void)state;
	assert_ok(kvp_open(fixture->client, &request, 1, WAIT_MS, &result, &first));
	assert_ok(result);
	fixture_advance(fixture, first, 1, 8);
	assert_ok(kvp_sync(fixture->client, WAIT_MS));
	assert_int_equal(kvp_probe(fixture->client, &request), 2);
	request.extras = &adapter;
	assert_int_equal(kvp_probe(fixture->client, &request), 0);
	assert_ok(kvp_open(fixture->client, &request, 1, WAIT_MS, &result, &other));
	assert_int_equal(fixture_info(other).cached_tokens, 0);
	assert_ok(kvp_seq_close(first));
	assert_ok(kvp_seq_close(other));
	fixture_close(fixture);
}

static void the_four_lengths_keep_their_order_and_rejected_drafts_are_cut(void **state)
{
	struct fixture *fixture = fixture_open(&lease_of_8, NULL);
	struct kvp_seq *seq = fixture_seq(fixture, 100, 6, 0, 0);
	const uint32_t tokens[4] = {106, 107, 108, 109};
	uint64_t step;

	(void)state;
	fixture_advance(fixture, seq, 100, 6);
	assert_ok(kvp_lease_wait(fixture->client, 4, WAIT_MS));
	assert_ok(kvp_seq_reserve(seq, 4));
	assert_int_equal(fixture_info(seq).reserved, 12);
	step = kvp_step_next(fixture->client, 0);
	assert_ok(kvp_seq_stage(seq, 4, 0, step));
	assert_int_equal(fixture_info(seq).staged, 10);
	assert_int_equal(fixture_info(seq).settled, 6);
	assert_error(kvp_seq_stage(seq, 3, 0, step), KVP_ESTATE);
	assert_error(kvp_seq_settle(seq, 5, tokens, 1, 0, step), EINVAL);
	assert_ok(kvp_seq_settle(seq, 1, tokens, 1, 0, step));
	kvp_step_done(fixture->client, 0, step);
	assert_int_equal(fixture_info(seq).staged, 7);
	assert_int_equal(fixture_info(seq).settled, 7);
	assert_int_equal(fixture_info(seq).committed, 4);
	assert_int_equal(fixture_info(seq).reserved, 12);
	assert_ok(kvp_seq_close(seq));
	fixture_close(fixture);
}

static void reserve_says_at_once_that_the_lease_is_empty_and_changes_nothing(void **state)
{
	const struct kvp_attach_params params = {
		.size = sizeof(params), .max_seqs = 4, .max_seq_tokens = 64, .flags = KVP_ATTACH_LEASE_MARKS};
	struct fixture *fixture = fixture_open(NULL, &params);
	struct kvp_seq *seq = fixture_seq(fixture, 1, 4, 0, 0);

	(void)state;
	assert_error(kvp_seq_reserve(seq, 5), KVP_ELEASE);
	assert_int_equal(fixture_info(seq).blocks, 1);
	assert_ok(kvp_seq_extend(seq, 5, WAIT_MS));
	assert_int_equal(fixture_info(seq).blocks, 2);
	assert_error(kvp_seq_extend(seq, 65, WAIT_MS), KVP_ELIMIT);
	assert_ok(kvp_seq_close(seq));
	/* With a high mark of 0 nothing stays in the lease. */
	assert_ok(kvp_sync(fixture->client, WAIT_MS));
	assert_int_equal(fixture_lease(fixture).blocks, 0);
	assert_int_equal(fake_count(fixture->fake, KVW_BLOCK_LEASED), 0);
	fixture_close(fixture);
}

static void given_up_blocks_wait_for_their_step_and_are_used_again(void **state)
{
	struct fixture *fixture = fixture_open(&lease_of_8, NULL);
	struct kvp_seq *seq = fixture_seq(fixture, 1, 7, 0, 0);
	uint64_t step = kvp_step_next(fixture->client, 0);

	(void)state;
	assert_ok(kvp_lease_wait(fixture->client, 8, WAIT_MS));
	assert_ok(kvp_seq_stage(seq, 3, 0, step));
	assert_ok(kvp_seq_close(seq));
	/* The lease is full: its two blocks are returned, to drain at the daemon's. */
	assert_ok(kvp_sync(fixture->client, WAIT_MS));
	assert_int_equal(fixture_lease(fixture).blocks + fixture_lease(fixture).draining, 8);
	assert_true(fake_count(fixture->fake, KVW_BLOCK_DRAINING) + fixture_lease(fixture).draining <= 2);
	kvp_step_done(fixture->client, 0, step);
	assert_ok(kvp_sync(fixture->client, WAIT_MS));
	assert_int_equal(fixture_lease(fixture).draining, 0);
	assert_int_equal(fake_count(fixture->fake, KVW_BLOCK_DRAINING), 0);
	assert_int_equal(fake_count(fixture->fake, KVW_BLOCK_LEASED), fixture_lease(fixture).blocks);
	fixture_close(fixture);
}

static void a_drained_block_stays_local_while_there_is_room(void **state)
{
	const struct kvp_attach_params params = {.size = sizeof(params),
						 .max_seqs = 4,
						 .max_seq_tokens = 64,
						 .flags = KVP_ATTACH_LEASE_MARKS,
						 .lease_high = 8};
	struct fixture *fixture = fixture_open(NULL, &params);
	struct kvp_seq *seq = fixture_seq(fixture, 1, 7, 0, 0);
	uint64_t step = kvp_step_next(fixture->client, 3);

	(void)state;
	assert_ok(kvp_seq_stage(seq, 3, 3, step));
	assert_ok(kvp_seq_close(seq));
	assert_int_equal(fixture_lease(fixture).draining, 2);
	assert_int_equal(fixture_lease(fixture).blocks, 0);
	kvp_step_done(fixture->client, 3, step);
	assert_int_equal(fixture_lease(fixture).draining, 0);
	assert_int_equal(fixture_lease(fixture).blocks, 2);
	assert_int_equal(fake_count(fixture->fake, KVW_BLOCK_LEASED), 2);
	fixture_close(fixture);
}

/* ------------------------------------------------------------------ duplicates */

static void duplicates_converge_to_the_canonical_block_when_it_is_complete_and_no_step_runs(void **state)
{
	struct fixture *fixture = fixture_open(&lease_of_8, NULL);
	struct kvp_seq *seq = fixture_seq(fixture, 100, 9, 0, 0);
	uint8_t hashes[2][KVW_SHA256_BYTES];
	int32_t own[2], canonical[2];
	uint64_t step;
	uint32_t i;

	(void)state;
	fixture_hash(100, 2, hashes);
	for (i = 0; i < 2; i++) {
		own[i] = fixture_block(seq, i).id;
		canonical[i] = fake_add_foreign(fixture->fake, hashes[i], false);
	}
	fixture_advance(fixture, seq, 100, 8);
	assert_ok(kvp_sync(fixture->client, WAIT_MS));
	assert_int_equal(fixture_info(seq).duplicates, 2);
	assert_ok(kvp_seq_reserve(seq, 1));
	assert_int_equal(kvp_seq_blocks(seq)[0], own[0]);
	/* Complete now, but a step reads the row. */
	fake_finish_foreign(fixture->fake, canonical[0], true);
	fake_finish_foreign(fixture->fake, canonical[1], true);
	step = kvp_step_next(fixture->client, 0);
	assert_ok(kvp_seq_reserve(seq, 1));
	assert_int_equal(kvp_seq_blocks(seq)[0], canonical[0]);
	assert_int_equal(fixture_block(seq, 1).id, canonical[1]);
	assert_int_equal(fixture_block(seq, 1).writer, FAKE_FOREIGN_SESSION);
	assert_ok(kvp_seq_stage(seq, 1, 0, step));
	assert_ok(kvp_seq_close(seq));
	kvp_step_done(fixture->client, 0, step);
	assert_ok(kvp_sync(fixture->client, WAIT_MS));
	assert_int_equal(fake_count(fixture->fake, KVW_BLOCK_LEASED), fixture_lease(fixture).blocks);
	fixture_close(fixture);
}

static void entries_stay_while_a_launched_step_reads_them(void **state)
{
	struct fixture *fixture = fixture_open(&lease_of_8, NULL);
	struct kvp_seq *seq = fixture_seq(fixture, 100, 5, 0, 0);
	uint8_t hashes[1][KVW_SHA256_BYTES];
	int32_t own = kvp_seq_blocks(seq)[0];
	int32_t canonical;
	uint64_t step;

	(void)state;
	fixture_hash(100, 1, hashes);
	canonical = fake_add_foreign(fixture->fake, hashes[0], true);
	step = kvp_step_next(fixture->client, 0);
	assert_ok(kvp_seq_stage(seq, 5, 0, step));
	assert_ok(kvp_seq_settle(seq, 4, NULL, 0, 0, step));
	assert_ok(kvp_sync(fixture->client, WAIT_MS));
	assert_ok(kvp_seq_reserve(seq, 1));
	assert_int_equal(kvp_seq_blocks(seq)[0], own);
	kvp_step_done(fixture->client, 0, step);
	assert_ok(kvp_seq_reserve(seq, 1));
	assert_int_equal(kvp_seq_blocks(seq)[0], canonical);
	assert_ok(kvp_seq_close(seq));
	fixture_close(fixture);
}

static void a_row_keeps_its_own_copy_when_the_canonical_writer_dies(void **state)
{
	struct fixture *fixture = fixture_open(&lease_of_8, NULL);
	struct kvp_seq *seq = fixture_seq(fixture, 100, 5, 0, 0);
	uint8_t hashes[1][KVW_SHA256_BYTES];
	int32_t own = kvp_seq_blocks(seq)[0];
	int32_t canonical;

	(void)state;
	fixture_hash(100, 1, hashes);
	canonical = fake_add_foreign(fixture->fake, hashes[0], false);
	fixture_advance(fixture, seq, 100, 4);
	assert_ok(kvp_sync(fixture->client, WAIT_MS));
	fake_finish_foreign(fixture->fake, canonical, false);
	assert_ok(kvp_seq_reserve(seq, 1));
	assert_int_equal(kvp_seq_blocks(seq)[0], own);
	assert_ok(kvp_seq_close(seq));
	assert_ok(kvp_sync(fixture->client, WAIT_MS));
	assert_int_equal(fake_count(fixture->fake, KVW_BLOCK_ORPHAN), 0);
	assert_int_equal(fake_count(fixture->fake, KVW_BLOCK_LEASED), fixture_lease(fixture).blocks);
	fixture_close(fixture);
}

static void coming_blocks_become_ready_or_lost(void **state)
{
	struct fixture *fixture = fixture_open(&lease_of_8, NULL);
	static const uint32_t tokens[9] = {100, 101, 102, 103, 104, 105, 106, 107, 108};
	struct kvp_open_request request = {
		.size = sizeof(request), .tokens = tokens, .token_count = 9, .flags = KVP_OPEN_COMING};
	uint8_t hashes[2][KVW_SHA256_BYTES];
	struct kvp_seq *seq = NULL;
	int32_t first, second;
	int result;

	(void)state;
	fixture_hash(100, 2, hashes);
	first = fake_add_foreign(fixture->fake, hashes[0], false);
	second = fake_add_foreign(fixture->fake, hashes[1], false);
	assert_int_equal(kvp_probe(fixture->client, &request), 0);
	assert_ok(kvp_open(fixture->client, &request, 1, WAIT_MS, &result, &seq));
	assert_int_equal(fixture_info(seq).cached_tokens, 8);
	assert_int_equal(fixture_block(seq, 0).flags, KVP_BLOCK_MATCHED | KVP_BLOCK_COMING);
	assert_int_equal(kvp_seq_ready(seq), 0);
	fake_finish_foreign(fixture->fake, first, true);
	assert_int_equal(kvp_seq_ready(seq), 0);
	fake_finish_foreign(fixture->fake, second, true);
	assert_int_equal(kvp_seq_ready(seq), 1);
	fake_finish_foreign(fixture->fake, second, false);
	assert_error(kvp_seq_ready(seq), KVP_ELOST);
	assert_ok(kvp_seq_close(seq));
	fixture_close(fixture);
}

/* A sequence whose second block is still written, when it is opened. */
static struct kvp_seq *open_coming(struct fixture *fixture, uint32_t base, int32_t *out_second)
{
	uint32_t tokens[9];
	const struct kvp_open_request request = {
		.size = sizeof(request), .tokens = tokens, .token_count = 9, .flags = KVP_OPEN_COMING};
	uint8_t hashes[2][KVW_SHA256_BYTES];
	struct kvp_seq *seq = NULL;
	int result;
	uint32_t i;

	for (i = 0; i < 9; i++)
		tokens[i] = base + i;
	fixture_hash(base, 2, hashes);
	fake_add_foreign(fixture->fake, hashes[0], true);
	*out_second = fake_add_foreign(fixture->fake, hashes[1], false);
	assert_ok(kvp_open(fixture->client, &request, 1, WAIT_MS, &result, &seq));
	assert_int_equal(fixture_info(seq).cached_tokens, 8);
	return seq;
}

/* Guards kvc_coming_settle() in kvc_settle_check(), and kvc_coming_look() in kvc_stage_check(). */
static void what_was_computed_from_a_lost_block_is_no_outcome(void **state)
{
	struct fixture *fixture = fixture_open(&lease_of_8, NULL);
	int32_t lost, found;
	struct kvp_seq *poor = open_coming(fixture, 100, &lost);
	struct kvp_seq *lucky = open_coming(fixture, 500, &found);

	(void)state;
	/* Both read what is not there yet, as a stream does that waits for it. */
	assert_ok(kvp_seq_stage(poor, 1, 0, 1));
	assert_ok(kvp_seq_stage(lucky, 1, 0, 1));
	fake_finish_foreign(fixture->fake, lost, false);
	fake_finish_foreign(fixture->fake, found, true);
	kvp_step_done(fixture->client, 0, 1);
	assert_error(kvp_seq_settle(poor, 1, NULL, 1, 0, 1), KVP_ELOST);
	assert_error(kvp_seq_settle(poor, 1, NULL, 1, 0, 1), KVP_ELOST);
	assert_int_equal(fixture_info(poor).settled, 8);
	assert_ok(kvp_seq_reserve(poor, 1));
	assert_error(kvp_seq_stage(poor, 1, 0, 2), KVP_ELOST);
	assert_ok(kvp_seq_settle(lucky, 1, NULL, 1, 0, 1));
	assert_int_equal(fixture_info(lucky).settled, 9);
	/* What was complete once stays so: nobody asks again. */
	fake_finish_foreign(fixture->fake, found, false);
	assert_int_equal(kvp_seq_ready(lucky), 1);
	assert_ok(kvp_seq_close(poor));
	assert_ok(kvp_seq_close(lucky));
	fixture_close(fixture);
}

/* Guards that gather_ones() leaves a coming sequence to the whole of the checks. */
static void a_batch_with_a_lost_block_settles_without_that_sequence(void **state)
{
	struct fixture *fixture = fixture_open(&lease_of_8, NULL);
	struct kvp_batch_view view = {.size = sizeof(view)};
	const uint32_t tokens[2] = {7, 8};
	struct kvp_batch *batch;
	struct kvp_seq *seqs[2];
	int32_t lost;

	(void)state;
	seqs[0] = fixture_seq(fixture, 900, 3, 0, 8);
	fixture_advance(fixture, seqs[0], 900, 3);
	seqs[1] = open_coming(fixture, 100, &lost);
	assert_ok(kvp_batch_create(fixture->client, NULL, &batch));
	assert_ok(kvp_batch_set(batch, seqs, 2));
	assert_ok(kvp_batch_begin(batch, NULL, 1, 1, &view));
	fake_finish_foreign(fixture->fake, lost, false);
	kvp_step_done(fixture->client, 1, 1);
	assert_error(kvp_batch_settle(batch, NULL, tokens, 1, 1), KVP_ELOST);
	assert_int_equal(fixture_info(seqs[0]).settled, 3);
	assert_error(kvp_batch_begin(batch, NULL, 1, 2, &view), KVP_ELOST);
	assert_int_equal(fixture_info(seqs[0]).staged, 4);
	assert_int_equal(kvp_seq_ready(seqs[0]), 1);
	assert_error(kvp_seq_ready(seqs[1]), KVP_ELOST);
	assert_ok(kvp_seq_close(seqs[1]));
	assert_ok(kvp_batch_set(batch, seqs, 1));
	assert_ok(kvp_batch_settle(batch, NULL, tokens, 1, 1));
	assert_int_equal(fixture_info(seqs[0]).settled, 4);
	assert_ok(kvp_seq_close(seqs[0]));
	fixture_close(fixture);
}

/* ------------------------------------------------------------------ truncate, fork, stop */

static void truncate_above_the_published_part_gives_blocks_up(void **state)
{
	struct fixture *fixture = fixture_open(&lease_of_8, NULL);
	struct kvp_seq *seq = fixture_seq(fixture, 100, 19, 0, 0);

	(void)state;
	assert_ok(kvp_seq_stop_publish(seq));
	fixture_advance(fixture, seq, 100, 19);
	assert_int_equal(fixture_info(seq).committed, 0);
	assert_error(kvp_seq_truncate(seq, 20), EINVAL);
	assert_ok(kvp_seq_truncate(seq, 6));
	assert_int_equal(fixture_info(seq).settled, 6);
	assert_int_equal(fixture_info(seq).blocks, 2);
	assert_ok(kvp_seq_close(seq));
	fixture_close(fixture);
}

static void truncate_through_a_published_block_starts_again_at_its_beginning(void **state)
{
	struct fixture *fixture = fixture_open(&lease_of_8, NULL);
	struct kvp_seq *seq = fixture_seq(fixture, 100, 12, 0, 0);
	int32_t cut;

	(void)state;
	fixture_advance(fixture, seq, 100, 12);
	assert_ok(kvp_lease_wait(fixture->client, 4, WAIT_MS));
	cut = fixture_block(seq, 1).id;
	assert_ok(kvp_sync(fixture->client, WAIT_MS));
	assert_ok(kvp_seq_truncate(seq, 6));
	assert_int_equal(fixture_info(seq).settled, 4);
	assert_int_equal(fixture_info(seq).staged, 4);
	assert_int_equal(fixture_info(seq).committed, 4);
	assert_int_equal(fixture_info(seq).blocks, 2);
	assert_int_not_equal(fixture_block(seq, 1).id, cut);
	assert_ok(kvp_sync(fixture->client, WAIT_MS));
	/* The tokens are known still: NULL stands for them. */
	{
		uint64_t step = kvp_step_next(fixture->client, 0);

		assert_ok(kvp_seq_stage(seq, 4, 0, step));
		assert_ok(kvp_seq_settle(seq, 4, NULL, 1, 0, step));
		kvp_step_done(fixture->client, 0, step);
	}
	assert_ok(kvp_sync(fixture->client, WAIT_MS));
	/* Its content is the old block's: a duplicate, to which the row goes over. */
	assert_int_equal(fixture_info(seq).duplicates, 1);
	assert_ok(kvp_seq_reserve(seq, 1));
	assert_int_equal(fixture_block(seq, 1).id, cut);
	assert_ok(kvp_seq_close(seq));
	assert_ok(kvp_sync(fixture->client, WAIT_MS));
	assert_int_equal(fake_count(fixture->fake, KVW_BLOCK_LEASED), fixture_lease(fixture).blocks);
	fixture_close(fixture);
}

/* Nothing stays in this lease, so the cut itself must bring the fresh block. */
static void truncate_takes_the_fresh_block_from_what_it_cuts(void **state)
{
	const struct kvp_attach_params params = {
		.size = sizeof(params), .max_seqs = 4, .max_seq_tokens = 64, .flags = KVP_ATTACH_LEASE_MARKS};
	struct fixture *fixture = fixture_open(NULL, &params);
	struct kvp_seq *seq = fixture_seq(fixture, 100, 9, 0, 0);
	int32_t behind;

	(void)state;
	fixture_advance(fixture, seq, 100, 9);
	assert_ok(kvp_sync(fixture->client, WAIT_MS));
	assert_int_equal(fixture_info(seq).committed, 8);
	assert_int_equal(fixture_lease(fixture).blocks, 0);
	behind = fixture_block(seq, 2).id;
	assert_ok(kvp_seq_truncate(seq, 6));
	assert_int_equal(fixture_info(seq).settled, 4);
	assert_int_equal(fixture_info(seq).blocks, 2);
	assert_int_equal(fixture_block(seq, 1).id, behind);
	/* Now that one is published too, and there is nothing else. */
	fixture_advance(fixture, seq, 500, 4);
	assert_ok(kvp_sync(fixture->client, WAIT_MS));
	assert_int_equal(fixture_info(seq).committed, 8);
	assert_error(kvp_seq_truncate(seq, 6), KVP_ELEASE);
	assert_int_equal(fixture_info(seq).settled, 8);
	assert_ok(kvp_seq_close(seq));
	fixture_close(fixture);
}

static void truncate_waits_for_the_answer_to_the_publish_of_what_it_cuts(void **state)
{
	struct fixture *fixture = fixture_open(&lease_of_8, NULL);
	struct kvp_seq *seq = fixture_seq(fixture, 100, 12, 0, 0);
	uint8_t hashes[3][KVW_SHA256_BYTES];
	uint32_t i;

	(void)state;
	fixture_hash(100, 3, hashes);
	for (i = 0; i < 2; i++)
		fake_add_foreign(fixture->fake, hashes[i], true);
	assert_ok(kvp_lease_wait(fixture->client, 4, WAIT_MS));
	fake_pause(fixture->fake, true);
	fixture_advance(fixture, seq, 100, 12);
	assert_error(kvp_seq_truncate(seq, 2), KVP_EBACKLOG);
	assert_int_equal(fixture_info(seq).settled, 12);
	fake_pause(fixture->fake, false);
	assert_ok(kvp_sync(fixture->client, WAIT_MS));
	assert_ok(kvp_seq_truncate(seq, 2));
	assert_int_equal(fixture_info(seq).settled, 0);
	/* Other tokens in the same place. */
	fixture_advance(fixture, seq, 500, 4);
	assert_ok(kvp_sync(fixture->client, WAIT_MS));
	assert_int_equal(fixture_info(seq).committed, 4);
	assert_int_equal(fixture_info(seq).duplicates, 2);
	assert_ok(kvp_seq_close(seq));
	assert_ok(kvp_sync(fixture->client, WAIT_MS));
	assert_int_equal(fake_count(fixture->fake, KVW_BLOCK_LEASED), fixture_lease(fixture).blocks);
	fixture_close(fixture);
}

static void fork_starts_at_the_last_full_block_and_shares_it(void **state)
{
	struct fixture *fixture = fixture_open(&lease_of_8, NULL);
	struct kvp_seq *seq = fixture_seq(fixture, 100, 11, 0, 0);
	struct kvp_seq *child = NULL;

	(void)state;
	fixture_advance(fixture, seq, 100, 11);
	assert_ok(kvp_seq_fork(seq, WAIT_MS, &child));
	assert_int_equal(fixture_info(child).cached_tokens, 8);
	assert_int_equal(fixture_info(child).settled, 8);
	assert_int_equal(fixture_block(child, 1).id, fixture_block(seq, 1).id);
	assert_ok(kvp_lease_wait(fixture->client, 2, WAIT_MS));
	assert_ok(kvp_seq_reserve(child, 4));
	fixture_advance(fixture, child, 900, 4);
	assert_int_not_equal(fixture_block(child, 2).id, fixture_block(seq, 2).id);
	assert_ok(kvp_seq_close(seq));
	assert_ok(kvp_seq_close(child));
	fixture_close(fixture);
}

/* ------------------------------------------------------------------ ring and rows */

static void a_full_ring_delays_publishing_and_refuses_closes_without_losing_anything(void **state)
{
	const struct kvp_attach_params params = {.size = sizeof(params),
						 .max_seqs = 2048,
						 .max_seq_tokens = 16,
						 .flags = KVP_ATTACH_LEASE_MARKS};
	const struct fake_options options = {.data_blocks = 6000};
	struct fixture *fixture = fixture_open(&options, &params);
	struct kvp_seq **seqs = calloc(2048, sizeof(struct kvp_seq *));
	struct kvp_open_request *requests = calloc(2048, sizeof(*requests));
	static const uint32_t tokens[8] = {1, 2, 3, 4, 5, 6, 7, 8};
	int *results = calloc(2048, sizeof(*results));
	uint32_t backlog = 0;
	uint32_t i, k;

	(void)state;
	for (i = 0; i < 2048; i++)
		requests[i] = (struct kvp_open_request){
			.size = sizeof(*requests), .token_count = 0, .tokens = tokens, .reserve_tokens = 8};
	assert_ok(kvp_open(fixture->client, requests, 2048, WAIT_MS, results, seqs));
	fake_pause(fixture->fake, true);
	/* 4,096 publishes do not fit beside the places that are kept for closes. */
	for (k = 0; k < 2; k++)
		for (i = 0; i < 2048; i++)
			fixture_advance(fixture, seqs[i], i << 8, 4);
	for (i = 0; i < 2048; i++)
		backlog += fixture_info(seqs[i]).committed < fixture_info(seqs[i]).settled;
	assert_true(backlog > 0 && backlog < 2048);
	for (i = 0, k = 0; i < 2048; i++)
		k += kvp_seq_close(seqs[i]) == -KVP_EBACKLOG;
	assert_true(k > 0);
	assert_int_equal(fixture_info(seqs[2047]).settled, 8);
	fake_pause(fixture->fake, false);
	assert_ok(kvp_sync(fixture->client, WAIT_MS));
	assert_int_equal(fixture_info(seqs[2047]).committed, 8);
	for (i = 2048 - k; i < 2048; i++)
		assert_ok(kvp_seq_close(seqs[i]));
	assert_ok(kvp_sync(fixture->client, WAIT_MS));
	assert_int_equal(fake_count(fixture->fake, KVW_BLOCK_LEASED), 0);
	free(seqs);
	free(requests);
	free(results);
	fixture_close(fixture);
}

static void a_posted_open_is_collected_later_and_may_be_closed_before(void **state)
{
	const struct kvp_attach_params params = {.size = sizeof(params), .max_seqs = 2, .max_seq_tokens = 64};
	struct fixture *fixture = fixture_open(&lease_of_8, &params);
	static const uint32_t tokens[8] = {1, 2, 3, 4, 5, 6, 7, 8};
	struct kvp_open_request request = {.size = sizeof(request), .tokens = tokens, .token_count = 8};
	struct kvp_seq *a = NULL;
	struct kvp_seq *b = NULL;
	struct kvp_seq *c = NULL;

	(void)state;
	fake_pause(fixture->fake, true);
	assert_ok(kvp_open_post(fixture->client, &request, &a));
	assert_error(kvp_open_collect(a, 0), EAGAIN);
	assert_error(kvp_seq_reserve(a, 1), KVP_ESTATE);
	assert_ok(kvp_open_post(fixture->client, &request, &b));
	assert_error(kvp_open_post(fixture->client, &request, &c), KVP_ELIMIT);
	assert_ok(kvp_seq_close(b));
	fake_pause(fixture->fake, false);
	assert_ok(kvp_open_collect(a, WAIT_MS));
	assert_ok(kvp_open_collect(a, WAIT_MS));
	assert_int_equal(fixture_info(a).blocks, 2);
	assert_ok(kvp_seq_close(a));
	assert_ok(kvp_sync(fixture->client, WAIT_MS));
	assert_int_equal(fake_count(fixture->fake, KVW_BLOCK_LEASED), fixture_lease(fixture).blocks);
	fixture_close(fixture);
}

static void a_refused_request_of_many_leaves_the_others_open(void **state)
{
	const struct fake_options options = {.data_blocks = 8};
	const struct kvp_attach_params params = {
		.size = sizeof(params), .max_seqs = 4, .max_seq_tokens = 64, .flags = KVP_ATTACH_LEASE_MARKS};
	struct fixture *fixture = fixture_open(&options, &params);
	static const uint32_t tokens[64];
	struct kvp_open_request requests[4];
	struct kvp_seq *seqs[4];
	int results[4];
	uint32_t i;

	(void)state;
	for (i = 0; i < 4; i++)
		requests[i] = (struct kvp_open_request){
			.size = sizeof(requests[i]), .tokens = tokens, .token_count = 20};
	requests[2].token_count = 65;
	requests[3].token_count = 12;
	assert_ok(kvp_open(fixture->client, requests, 4, WAIT_MS, results, seqs));
	assert_int_equal(results[0], 0);
	assert_int_equal(results[1], -KVP_ENOBLOCKS);
	assert_int_equal(results[2], -KVP_ELIMIT);
	assert_int_equal(results[3], 0);
	assert_null(seqs[1]);
	assert_null(seqs[2]);
	assert_ok(kvp_seq_close(seqs[0]));
	assert_ok(kvp_seq_close(seqs[3]));
	assert_ok(kvp_sync(fixture->client, WAIT_MS));
	assert_int_equal(fake_count(fixture->fake, KVW_BLOCK_FREE), 8);
	fixture_close(fixture);
}

static void the_engines_own_hashes_are_taken_as_they_are(void **state)
{
	const struct kvp_attach_params params = {
		.size = sizeof(params), .max_seqs = 4, .max_seq_tokens = 64, .hash_bytes = 8};
	struct fixture *fixture = fixture_open(&lease_of_8, &params);
	static const uint8_t hashes[3][8] = {"block 0", "block 1", "block 2"};
	struct kvp_open_request request = {.size = sizeof(request),
					   .hashes = hashes[0],
					   .hash_count = 2,
					   .token_count = 8,
					   .max_cached_tokens = ALL};
	struct kvp_seq *seq = NULL;
	struct kvp_seq *again = NULL;
	int result;

	(void)state;
	assert_ok(kvp_open(fixture->client, &request, 1, WAIT_MS, &result, &seq));
	assert_ok(result);
	assert_ok(kvp_seq_stage(seq, 8, 0, 1));
	assert_ok(kvp_seq_settle(seq, 8, NULL, 1, 0, 1));
	assert_ok(kvp_lease_wait(fixture->client, 1, WAIT_MS));
	assert_ok(kvp_seq_reserve(seq, 4));
	assert_ok(kvp_seq_stage(seq, 4, 0, 2));
	assert_error(kvp_seq_settle(seq, 4, NULL, 1, 0, 2), EINVAL);
	assert_error(kvp_seq_settle_hashed(seq, 4, hashes[2], 2, 1, 0, 2), EINVAL);
	assert_ok(kvp_seq_settle_hashed(seq, 4, hashes[2], 1, 1, 0, 2));
	kvp_step_done(fixture->client, 0, 2);
	assert_ok(kvp_sync(fixture->client, WAIT_MS));
	request.hash_count = 3;
	request.token_count = 12;
	assert_int_equal(kvp_probe(fixture->client, &request), 3);
	assert_ok(kvp_open(fixture->client, &request, 1, WAIT_MS, &result, &again));
	assert_int_equal(fixture_info(again).cached_tokens, 12);
	assert_ok(kvp_seq_close(seq));
	assert_ok(kvp_seq_close(again));
	fixture_close(fixture);
}

static void a_sequence_runs_on_one_timeline_at_a_time(void **state)
{
	struct fixture *fixture = fixture_open(&lease_of_8, NULL);
	struct kvp_seq *seq = fixture_seq(fixture, 100, 8, 0, 0);

	(void)state;
	assert_ok(kvp_seq_stage(seq, 1, 0, 7));
	assert_error(kvp_seq_stage(seq, 1, 1, 1), KVP_ESTATE);
	assert_error(kvp_seq_stage(seq, 1, 0, 6), EINVAL);
	assert_error(kvp_seq_stage(seq, 1, 8, 1), EINVAL);
	assert_error(kvp_seq_stage(seq, 1, 0, 0), EINVAL);
	kvp_step_done(fixture->client, 0, 7);
	assert_ok(kvp_seq_stage(seq, 1, 1, 1));
	assert_int_equal(fixture_info(seq).staged, 2);
	assert_ok(kvp_seq_close(seq));
	fixture_close(fixture);
}

static void rows_are_used_again_only_when_the_daemon_has_answered_for_them(void **state)
{
	const struct kvp_attach_params params = {.size = sizeof(params), .max_seqs = 1, .max_seq_tokens = 64};
	struct fixture *fixture = fixture_open(&lease_of_8, &params);
	static const uint32_t tokens[4] = {9, 9, 9, 9};
	struct kvp_open_request request = {.size = sizeof(request), .tokens = tokens, .token_count = 4};
	struct kvp_seq *seq = NULL;
	uint32_t i;

	(void)state;
	fake_pause(fixture->fake, true);
	/* Two rows: the third open finds none that is clean. */
	for (i = 0; i < 2; i++) {
		assert_ok(kvp_open_post(fixture->client, &request, &seq));
		assert_ok(kvp_seq_close(seq));
	}
	assert_error(kvp_open_post(fixture->client, &request, &seq), KVP_EBACKLOG);
	fake_pause(fixture->fake, false);
	assert_ok(kvp_sync(fixture->client, WAIT_MS));
	assert_ok(kvp_open_post(fixture->client, &request, &seq));
	assert_ok(kvp_open_collect(seq, WAIT_MS));
	assert_ok(kvp_seq_close(seq));
	fixture_close(fixture);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(open_reserves_to_the_end_of_the_prompt),
		cmocka_unit_test(a_published_prefix_is_matched_and_the_last_token_is_not),
		cmocka_unit_test(extra_keys_keep_prompts_apart),
		cmocka_unit_test(the_four_lengths_keep_their_order_and_rejected_drafts_are_cut),
		cmocka_unit_test(reserve_says_at_once_that_the_lease_is_empty_and_changes_nothing),
		cmocka_unit_test(given_up_blocks_wait_for_their_step_and_are_used_again),
		cmocka_unit_test(a_drained_block_stays_local_while_there_is_room),
		cmocka_unit_test(
			duplicates_converge_to_the_canonical_block_when_it_is_complete_and_no_step_runs),
		cmocka_unit_test(entries_stay_while_a_launched_step_reads_them),
		cmocka_unit_test(a_row_keeps_its_own_copy_when_the_canonical_writer_dies),
		cmocka_unit_test(coming_blocks_become_ready_or_lost),
		cmocka_unit_test(what_was_computed_from_a_lost_block_is_no_outcome),
		cmocka_unit_test(a_batch_with_a_lost_block_settles_without_that_sequence),
		cmocka_unit_test(truncate_above_the_published_part_gives_blocks_up),
		cmocka_unit_test(truncate_through_a_published_block_starts_again_at_its_beginning),
		cmocka_unit_test(truncate_takes_the_fresh_block_from_what_it_cuts),
		cmocka_unit_test(truncate_waits_for_the_answer_to_the_publish_of_what_it_cuts),
		cmocka_unit_test(fork_starts_at_the_last_full_block_and_shares_it),
		cmocka_unit_test(a_full_ring_delays_publishing_and_refuses_closes_without_losing_anything),
		cmocka_unit_test(a_posted_open_is_collected_later_and_may_be_closed_before),
		cmocka_unit_test(a_refused_request_of_many_leaves_the_others_open),
		cmocka_unit_test(the_engines_own_hashes_are_taken_as_they_are),
		cmocka_unit_test(a_sequence_runs_on_one_timeline_at_a_time),
		cmocka_unit_test(rows_are_used_again_only_when_the_daemon_has_answered_for_them),
	};

	kvt_watchdog(110);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
