/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is in a batch: members that are closed, batches that are made anew, copies that are exchanged while steps run.
 */
#include <string.h>

#include "fixture.h"

static const struct fake_options lease_of_8 = {.low = 4, .critical = 2, .high = 8};

struct team {
	struct fixture *fixture;
	struct kvp_batch *batch;
	struct kvp_batch_view view;
};

static void make_batch(struct team *team)
{
	team->view.size = sizeof(team->view);
	assert_ok(kvp_batch_create(team->fixture->client, NULL, &team->batch));
}

static struct team open_team(void)
{
	struct team team = {.fixture = fixture_open(&lease_of_8, NULL)};

	make_batch(&team);
	return team;
}

static void begin(struct team *team, const uint32_t *tokens, uint64_t step)
{
	assert_ok(kvp_batch_reserve(team->batch, tokens));
	assert_ok(kvp_batch_begin(team->batch, tokens, 0, step, &team->view));
}

static void a_batch_leaves_the_next_user_of_a_closed_members_row_alone(void **state)
{
	struct team team = open_team();
	struct kvp_seq *member = fixture_seq(team.fixture, 1, 4, 0, 0);
	uint32_t row = fixture_info(member).row;
	struct kvp_seq *next;

	(void)state;
	assert_ok(kvp_batch_set(team.batch, &member, 1));
	assert_ok(kvp_seq_close(member));
	next = fixture_seq(team.fixture, 100, 4, 0, 0);
	assert_int_equal(fixture_info(next).row, row);
	/* A note waits for the next user's own thread: blocks that came late. */
	fixture_extend_late(team.fixture, next, 12);
	assert_int_equal(fixture_info(next).blocks, 1);
	assert_error(kvp_batch_reserve(team.batch, NULL), KVP_ESTATE);
	assert_error(kvp_batch_begin(team.batch, NULL, 0, 1, &team.view), KVP_ESTATE);
	assert_error(kvp_batch_settle(team.batch, NULL, NULL, 0, 1), KVP_ESTATE);
	assert_int_equal(fixture_info(next).blocks, 1);
	assert_ok(kvp_seq_reserve(next, 0));
	assert_int_equal(fixture_info(next).blocks, 3);
	assert_ok(kvp_seq_close(next));
	fixture_close(team.fixture);
}

static void a_sequence_can_go_from_a_destroyed_batch_into_the_next(void **state)
{
	struct team team = open_team();
	struct kvp_seq *seq = fixture_seq(team.fixture, 1, 4, 0, 0);

	(void)state;
	assert_ok(kvp_batch_set(team.batch, &seq, 1));
	kvp_batch_destroy(team.batch);
	make_batch(&team);
	assert_ok(kvp_batch_set(team.batch, &seq, 1));
	begin(&team, NULL, 1);
	assert_int_equal(team.view.rows, 1);
	assert_ok(kvp_seq_close(seq));
	fixture_close(team.fixture);
}

static void a_new_batch_waits_for_the_steps_of_the_destroyed_one(void **state)
{
	struct team team = open_team();
	struct kvp_seq *seq = fixture_seq(team.fixture, 1, 4, 0, 0);

	(void)state;
	assert_ok(kvp_batch_set(team.batch, &seq, 1));
	begin(&team, NULL, 1);
	kvp_batch_destroy(team.batch);
	/* Its arrays would be written under the step. */
	assert_error(kvp_batch_create(team.fixture->client, NULL, &team.batch), KVP_ESLOTS);
	assert_int_equal(team.view.block_table[0], kvp_seq_blocks(seq)[0]);
	kvp_step_done(team.fixture->client, 0, 1);
	make_batch(&team);
	assert_ok(kvp_seq_close(seq));
	fixture_close(team.fixture);
}

static void a_refused_membership_leaves_the_old_one(void **state)
{
	struct team team = open_team();
	struct kvp_seq *seqs[3] = {fixture_seq(team.fixture, 1, 4, 0, 0),
				   fixture_seq(team.fixture, 20, 4, 0, 0), NULL};

	(void)state;
	assert_ok(kvp_batch_set(team.batch, seqs, 1));
	assert_error(kvp_batch_set(team.batch, &seqs[1], 2), EINVAL);
	begin(&team, NULL, 1);
	assert_int_equal(team.view.rows, 1);
	assert_int_equal(team.view.block_table[0], kvp_seq_blocks(seqs[0])[0]);
	/* The one that was refused company can be closed without a word to the batch. */
	assert_ok(kvp_seq_close(seqs[1]));
	begin(&team, NULL, 2);
	assert_ok(kvp_seq_close(seqs[0]));
	fixture_close(team.fixture);
}

/* The fake has a complete copy of the first block of tokens base, base + 1, .. */
static int32_t add_canonical(struct fixture *fixture, uint32_t base)
{
	uint8_t hash[KVW_SHA256_BYTES];

	fixture_hash(base, 1, &hash);
	return fake_add_foreign(fixture->fake, hash, true);
}

static void an_engine_that_always_has_a_step_in_flight_converges_too(void **state)
{
	const uint32_t five = 5;
	struct team team = open_team();
	struct kvp_seq *seq = fixture_seq(team.fixture, 100, 5, 0, 0);
	int32_t own = kvp_seq_blocks(seq)[0];
	int32_t canonical = add_canonical(team.fixture, 100);
	const int32_t *first;

	(void)state;
	assert_ok(kvp_batch_set(team.batch, &seq, 1));
	begin(&team, &five, 1);
	first = team.view.block_table;
	/* Settled, and told to be a duplicate, before step 1 has ended. */
	assert_ok(kvp_batch_settle(team.batch, &five, NULL, 0, 1));
	assert_ok(kvp_sync(team.fixture->client, WAIT_MS));
	assert_int_equal(fixture_info(seq).duplicates, 1);
	begin(&team, NULL, 2);
	assert_int_equal(team.view.block_table[0], canonical);
	assert_int_equal(team.view.page_list[0], canonical);
	/* Step 1 goes on with what it was given, and that block is nobody else's until then. */
	assert_int_equal(first[0], own);
	assert_int_equal(fixture_lease(team.fixture).draining, 1);
	kvp_step_done(team.fixture->client, 0, 1);
	assert_int_equal(fixture_lease(team.fixture).draining, 0);
	kvp_step_done(team.fixture->client, 0, 2);
	assert_ok(kvp_seq_close(seq));
	assert_ok(kvp_sync(team.fixture->client, WAIT_MS));
	assert_int_equal(fake_count(team.fixture->fake, KVW_BLOCK_LEASED),
			 fixture_lease(team.fixture).blocks);
	fixture_close(team.fixture);
}

/* A step that kvp_seq_stage() gave reads the row itself. */
static void a_batch_step_changes_no_row_that_a_single_step_reads(void **state)
{
	struct team team = open_team();
	struct kvp_seq *seq = fixture_seq(team.fixture, 100, 5, 0, 0);
	int32_t own = kvp_seq_blocks(seq)[0];
	int32_t canonical = add_canonical(team.fixture, 100);

	(void)state;
	assert_ok(kvp_batch_set(team.batch, &seq, 1));
	assert_ok(kvp_seq_stage(seq, 5, 0, 1));
	assert_ok(kvp_seq_settle(seq, 5, NULL, 1, 0, 1));
	assert_ok(kvp_sync(team.fixture->client, WAIT_MS));
	begin(&team, NULL, 2);
	assert_int_equal(kvp_seq_blocks(seq)[0], own);
	kvp_step_done(team.fixture->client, 0, 1);
	begin(&team, NULL, 3);
	assert_int_equal(kvp_seq_blocks(seq)[0], canonical);
	kvp_step_done(team.fixture->client, 0, 3);
	assert_ok(kvp_seq_close(seq));
	fixture_close(team.fixture);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_batch_leaves_the_next_user_of_a_closed_members_row_alone),
		cmocka_unit_test(a_sequence_can_go_from_a_destroyed_batch_into_the_next),
		cmocka_unit_test(a_new_batch_waits_for_the_steps_of_the_destroyed_one),
		cmocka_unit_test(a_refused_membership_leaves_the_old_one),
		cmocka_unit_test(an_engine_that_always_has_a_step_in_flight_converges_too),
		cmocka_unit_test(a_batch_step_changes_no_row_that_a_single_step_reads),
	};

	kvt_watchdog(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
