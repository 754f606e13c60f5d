/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every verb of the ring through a running daemon: what it answers, and that its errors are answers too.
 */
#include <errno.h>
#include <string.h>

#include <kvpool/error.h>

#include "raw.h"
#include "session_groups.h"

static void engines_share_published_blocks(void **state)
{
	struct kvt_raw *writer = kvt_raw_engine(*state);
	struct kvt_raw *reader = kvt_raw_engine(*state);
	struct kvw_completion wrote = kvt_open(writer, 0, 100, 4, 4);
	struct kvw_completion read;
	int i;

	assert_int_equal(wrote.status, 0);
	assert_int_equal(wrote.matched, 0);
	assert_int_equal(wrote.granted, 4);
	assert_int_equal(kvt_publish(writer, 0, wrote.hold, 0, 4, 0, 0).granted, 4);
	read = kvt_open(reader, 3, 100, 5, 5);
	assert_int_equal(read.status, 0);
	assert_int_equal(read.matched, 4);
	assert_int_equal(read.granted, 1);
	for (i = 0; i < 4; i++) {
		assert_int_equal(kvt_answers(reader, 3)[i].id, kvt_answers(writer, 0)[i].id);
		assert_int_equal(kvt_answers(reader, 3)[i].writer, writer->session);
		assert_int_equal(kvt_answers(reader, 3)[i].flags, KVW_ANSWER_MATCHED);
	}
	assert_int_equal(kvt_answers(reader, 3)[4].writer, 0);
	kvt_release(writer, wrote.hold);
	kvt_raw_close(writer);
	kvt_release(reader, read.hold);
	kvt_raw_close(reader);
}

static void block_is_found_once_its_step_is_reached(void **state)
{
	struct kvt_raw *writer = kvt_raw_engine(*state);
	struct kvt_raw *reader = kvt_raw_engine(*state);
	struct kvw_completion wrote = kvt_open(writer, 0, 101, 2, 2);
	struct kvw_completion read;

	assert_int_equal(kvt_publish(writer, 0, wrote.hold, 0, 2, 3, 7).status, 0);
	assert_int_equal(kvt_pool_state(writer).pending, 2);
	read = kvt_open(reader, 0, 101, 2, 0);
	assert_int_equal(read.matched, 0);
	kvt_release(reader, read.hold);
	kvt_step_done(writer, 3, 6);
	assert_int_equal(kvt_open(reader, 0, 101, 2, 0).matched, 0);
	kvt_step_done(writer, 3, 7);
	while (kvt_pool_state(writer).pending)
		;
	read = kvt_open(reader, 1, 101, 2, 0);
	assert_int_equal(read.matched, 2);
	kvt_raw_close(writer);
	kvt_raw_close(reader);
}

static void coming_blocks_are_matched_when_asked_for(void **state)
{
	struct kvt_raw *writer = kvt_raw_engine(*state);
	struct kvt_raw *reader = kvt_raw_engine(*state);
	struct kvw_completion wrote = kvt_open(writer, 0, 102, 2, 2);
	struct kvw_completion read;

	kvt_publish(writer, 0, wrote.hold, 0, 2, 0, 9);
	kvt_set_hashes(reader, 0, 102, 2);
	read = kvt_raw_do(reader, (struct kvw_request){.type = KVW_REQUEST_OPEN,
						       .first = 2,
						       .count = 2,
						       .flags = KVW_REQUEST_COMING |
								1u << KVW_REQUEST_PLANE_SET_SHIFT});
	assert_int_equal(read.matched, 2);
	assert_int_equal(kvt_answers(reader, 0)[1].flags, KVW_ANSWER_MATCHED | KVW_ANSWER_COMING);
	assert_int_equal(kvt_answers(reader, 0)[1].step, 9);
	kvt_step_done(writer, 0, 9);
	while (kvt_pool_state(writer).pending)
		;
	kvt_raw_close(writer);
	kvt_raw_close(reader);
}

static void same_hash_twice_is_a_duplicate(void **state)
{
	struct kvt_raw *first = kvt_raw_engine(*state);
	struct kvt_raw *second = kvt_raw_engine(*state);
	struct kvw_completion one = kvt_open(first, 0, 103, 1, 1);
	struct kvw_completion two = kvt_open(second, 0, 103, 1, 1);
	struct kvw_completion published;
	int32_t canonical = kvt_answers(first, 0)[0].id;

	assert_int_equal(two.matched, 0);
	assert_int_equal(kvt_publish(first, 0, one.hold, 0, 1, 0, 0).matched, 0);
	published = kvt_publish(second, 0, two.hold, 0, 1, 0, 0);
	assert_int_equal(published.status, 0);
	assert_int_equal(published.matched, 1);
	assert_int_equal(kvt_answers(second, 0)[0].id, canonical);
	assert_int_equal(kvt_answers(second, 0)[0].flags, KVW_ANSWER_DUPLICATE);
	assert_int_equal(kvt_client_state(first, second->session).leased, 1);
	kvt_return_blocks(second, 0, 0, 1);
	assert_int_equal(kvt_client_state(first, second->session).leased, 0);
	kvt_raw_close(first);
	kvt_raw_close(second);
}

static void open_is_all_or_nothing(void **state)
{
	struct kvt_raw *taker = kvt_raw_engine(*state);
	struct kvt_raw *raw = kvt_raw_engine(*state);
	struct kvw_completion refused;
	int row;

	for (row = 0; row < 3; row++)
		assert_int_equal(kvt_open(taker, (uint32_t)row, 0, 0, 16).granted, 16);
	assert_int_equal(kvt_open(taker, 3, 0, 0, 10).granted, 10);
	refused = kvt_open(raw, 0, 0, 0, 7);
	assert_int_equal(refused.status, -KVP_ENOBLOCKS);
	assert_int_equal(refused.hold, 0);
	assert_int_equal(refused.free_blocks + refused.evictable_blocks, 6);
	assert_int_equal(refused.draining_blocks, 0);
	assert_int_equal(refused.limit, 7);
	assert_int_equal(kvt_client_state(raw, raw->session).leased, 0);
	assert_int_equal(kvt_client_state(raw, raw->session).holds, 0);
	assert_int_equal(kvt_open(raw, 0, 0, 0, 6).granted, 6);
	kvt_raw_close(taker);
	kvt_raw_close(raw);
}

/* Of kvt_attach_message(). */
#define LAST_ANSWER (KVT_LEASED + 8 * 16 - 1)

static void extend_and_lease_grant_blocks(void **state)
{
	struct kvt_raw *raw = kvt_raw_engine(*state);
	const struct kvw_answer *lease = kvt_leased(raw);
	struct kvw_completion done;
	int i;

	done = kvt_raw_do(raw,
			  (struct kvw_request){.type = KVW_REQUEST_EXTEND, .row = 2, .first = 4, .count = 3});
	assert_int_equal(done.granted, 3);
	for (i = 4; i < 7; i++)
		assert_true(kvt_answers(raw, 2)[i].id > 0 && kvt_answers(raw, 2)[i].generation > 0);
	done = kvt_raw_do(raw, (struct kvw_request){.type = KVW_REQUEST_LEASE, .first = 10, .count = 5});
	assert_int_equal(done.granted, 5);
	assert_true(lease[9].id == 0 && lease[10].id > 0 && lease[14].id > 0 && lease[15].id == 0);
	assert_int_equal(kvt_client_state(raw, raw->session).leased, 8);
	kvt_accept(raw, 2, 4, 3);
	kvt_return_blocks(raw, 2, 4, 3);
	assert_int_equal(kvt_client_state(raw, raw->session).leased, 5);
	kvt_raw_close(raw);
}

/* A return that waits for a step drains until then. */
static void returned_block_drains_until_its_step(void **state)
{
	struct kvt_raw *raw = kvt_raw_engine(*state);
	struct kvw_block_ref *returns =
		(struct kvw_block_ref *)((uint8_t *)raw->memory[KVT_TABLES] + raw->layout.returns);

	kvt_open(raw, 0, 0, 0, 2);
	/* The area is a ring: these two lie at its end and at its start. */
	returns[KVW_RETURN_ENTRIES - 1] = (struct kvw_block_ref){
		.id = kvt_answers(raw, 0)[0].id, .generation = kvt_answers(raw, 0)[0].generation};
	returns[0] = (struct kvw_block_ref){.id = kvt_answers(raw, 0)[1].id,
					    .generation = kvt_answers(raw, 0)[1].generation};
	kvt_raw_post(raw, &(struct kvw_request){.type = KVW_REQUEST_RETURN,
						.first = KVW_RETURN_ENTRIES * 5 - 1,
						.count = 2,
						.timeline = 1,
						.step = 4});
	kvt_drain(raw);
	assert_int_equal(kvt_pool_state(raw).draining, 2);
	kvt_must_check(raw);
	kvt_step_done(raw, 1, 4);
	while (kvt_pool_state(raw).draining)
		;
	assert_int_equal(kvt_pool_state(raw).leased, 0);
	kvt_raw_close(raw);
}

/* A reached step's references are dropped soon after the ring was read, in slices: the watchdog ends a wait in vain. */
static void wait_references(struct kvt_raw *raw, uint64_t references)
{
	while (kvt_client_state(raw, raw->session).references != references)
		;
}

static void truncate_keeps_the_head_of_a_hold(void **state)
{
	struct kvt_raw *raw = kvt_raw_engine(*state);
	struct kvw_completion open = kvt_open(raw, 0, 104, 6, 6);

	kvt_publish(raw, 0, open.hold, 0, 6, 0, 0);
	assert_int_equal(kvt_client_state(raw, raw->session).references, 6);
	kvt_raw_post(raw, &(struct kvw_request){.type = KVW_REQUEST_TRUNCATE, .hold = open.hold, .first = 2});
	kvt_drain(raw);
	wait_references(raw, 2);
	kvt_release(raw, open.hold);
	assert_int_equal(kvt_client_state(raw, raw->session).references, 0);
	kvt_raw_close(raw);
}

static void errors_of_verbs_are_completions(void **state)
{
	static const struct {
		struct kvw_request request;
		int status;
	} wrong[] = {
		{{.type = KVW_REQUEST_OPEN, .row = 8}, -EINVAL},
		{{.type = KVW_REQUEST_OPEN, .count = 17}, -EINVAL},
		{{.type = KVW_REQUEST_OPEN, .first = 17}, -EINVAL},
		{{.type = KVW_REQUEST_OPEN, .want = 17}, -EINVAL},
		{{.type = KVW_REQUEST_OPEN, .want = UINT32_MAX}, -EINVAL},
		{{.type = KVW_REQUEST_OPEN, .flags = 2u << KVW_REQUEST_PLANE_SET_SHIFT}, -KVP_ERESERVED},
		{{.type = KVW_REQUEST_EXTEND, .row = 8, .count = 1}, -EINVAL},
		{{.type = KVW_REQUEST_EXTEND, .first = 10, .count = 7}, -EINVAL},
		{{.type = KVW_REQUEST_EXTEND, .first = UINT32_MAX, .count = 2}, -EINVAL},
		{{.type = KVW_REQUEST_LEASE, .count = 1, .answers = LAST_ANSWER + 1}, -EINVAL},
		{{.type = KVW_REQUEST_LEASE, .count = 2, .answers = LAST_ANSWER}, -EINVAL},
		{{.type = KVW_REQUEST_LEASE, .count = 1, .answers = UINT32_MAX}, -EINVAL},
		{{.type = KVW_REQUEST_EXTEND, .count = 2, .answers = LAST_ANSWER}, -EINVAL},
		{{.type = KVW_REQUEST_PUBLISH, .count = 2, .answers = LAST_ANSWER}, -EINVAL},
		{{.type = KVW_REQUEST_OPEN, .want = 2, .most = 2, .answers = LAST_ANSWER}, -EINVAL},
		{{.type = KVW_REQUEST_OPEN, .first = 2, .count = 2, .answers = LAST_ANSWER}, -EINVAL},
		{{.type = KVW_REQUEST_LEASE, .count = UINT32_MAX}, -EINVAL},
		{{.type = KVW_REQUEST_PUBLISH, .row = 8}, -EINVAL},
		{{.type = KVW_REQUEST_PUBLISH, .hold = 999, .count = 1}, -EINVAL},
		{{.type = KVW_REQUEST_PUBLISH, .timeline = 8}, -EINVAL},
		{{.type = KVW_REQUEST_TRUNCATE, .hold = 999}, -EINVAL},
		{{.type = KVW_REQUEST_RELEASE, .hold = 999}, -EINVAL},
		{{.type = KVW_REQUEST_RELEASE, .timeline = 8}, -EINVAL},
		{{.type = KVW_REQUEST_RETURN, .count = KVW_RETURN_ENTRIES + 1}, -EINVAL},
		{{.type = KVW_REQUEST_RETURN, .count = 1}, -KVP_ESTALE},
		{{.type = KVW_REQUEST_RETURN, .count = 1, .timeline = 9}, -EINVAL},
	};
	struct kvt_raw *raw = kvt_raw_engine(*state);
	size_t i;

	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct kvw_completion done = kvt_raw_do(raw, wrong[i].request);

		if (done.status != wrong[i].status)
			fail_msg("record %zu is answered by %d", i, done.status);
		assert_int_equal(done.type, wrong[i].request.type);
	}
	assert_int_equal(kvt_pool_state(raw).leased, 0);
	kvt_raw_close(raw);
}

static void stale_block_is_refused_and_those_before_it_stand(void **state)
{
	struct kvt_raw *raw = kvt_raw_engine(*state);
	struct kvw_completion open = kvt_open(raw, 0, 105, 3, 3);
	uint64_t *generations = (uint64_t *)((uint8_t *)raw->memory[KVT_TABLES] + raw->layout.generations);
	struct kvw_completion done;

	generations[1]++;
	done = kvt_publish(raw, 0, open.hold, 0, 3, 0, 0);
	assert_int_equal(done.status, -KVP_ESTALE);
	assert_int_equal(done.granted, 1);
	assert_int_equal(kvt_pool_state(raw).cached, kvt_pool_state(raw).evictable + 1);
	generations[1]--;
	assert_int_equal(kvt_publish(raw, 0, open.hold, 1, 2, 0, 0).granted, 2);
	kvt_raw_close(raw);
}

int kvt_group_verbs(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(engines_share_published_blocks),
		cmocka_unit_test(block_is_found_once_its_step_is_reached),
		cmocka_unit_test(coming_blocks_are_matched_when_asked_for),
		cmocka_unit_test(same_hash_twice_is_a_duplicate),
		cmocka_unit_test(open_is_all_or_nothing),
		cmocka_unit_test(extend_and_lease_grant_blocks),
		cmocka_unit_test(returned_block_drains_until_its_step),
		cmocka_unit_test(truncate_keeps_the_head_of_a_hold),
		cmocka_unit_test(errors_of_verbs_are_completions),
		cmocka_unit_test(stale_block_is_refused_and_those_before_it_stand),
	};

	return cmocka_run_group_tests_name("verbs", tests, kvt_start_small, kvt_stop_small);
}
