/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rings and the socket beside them: order, fullness, records that never ring.
 */
#include <errno.h>
#include <string.h>

#include <kvpool/error.h>

#include "raw.h"
#include "session_groups.h"

static const struct kvw_request empty_lease = {.type = KVW_REQUEST_LEASE};

static void record_that_does_not_ring_is_found_by_the_poll(void **state)
{
	struct kvt_raw *raw = kvt_raw_engine(*state);
	struct kvt_raw *admin = kvt_raw_hello(*state);
	struct kvw_completion open = kvt_open(raw, 0, 0, 0, 2);

	assert_int_equal(open.status, 0);
	kvt_raw_post(raw, &(struct kvw_request){.type = KVW_REQUEST_RELEASE, .hold = open.hold});
	while (kvt_client_state(admin, raw->session).holds)
		;
	kvt_raw_close(raw);
	kvt_raw_close(admin);
}

/* The answer to a request on the socket comes after everything that was posted before it. */
static void requests_wait_for_the_records_before_them(void **state)
{
	struct kvt_raw *raw = kvt_raw_engine(*state);
	uint32_t i;

	for (i = 0; i < 1000; i++)
		kvt_raw_post(raw, &empty_lease);
	kvt_drain(raw);
	assert_int_equal(kvw_ring_waiting(&raw->completions), 1000);
	for (i = 0; i < 1000; i++)
		assert_int_equal(kvt_raw_completion(raw, i + 1).status, 0);
	kvt_raw_post(raw, &(struct kvw_request){.type = KVW_REQUEST_LEASE, .count = 9});
	assert_int_equal(kvt_pool_state(raw).leased, 9);
	kvt_raw_close(raw);
}

static void drain_beyond_the_tail_is_refused(void **state)
{
	struct kvt_raw *raw = kvt_raw_engine(*state);
	struct kvw_msg_DRAIN drain = {.tail = 1};

	assert_int_equal(kvt_raw_ask(raw, KVW_MSG_DRAIN, &drain), -EINVAL);
	drain.tail = 1ull << 32;
	assert_int_equal(kvt_raw_ask(raw, KVW_MSG_DRAIN, &drain), -EINVAL);
	kvt_drain(raw);
	kvt_raw_close(raw);
}

/* Who does not take its completions waits alone. */
static void full_completion_ring_stalls_its_session_only(void **state)
{
	struct kvt_raw *lazy = kvt_raw_engine(*state);
	struct kvt_raw *other = kvt_raw_engine(*state);
	const struct kvw_msg_DRAIN drain = {.tail = KVW_RING_RECORDS + 10};
	uint32_t i;

	for (i = 0; i < KVW_RING_RECORDS; i++)
		kvt_raw_post(lazy, &empty_lease);
	kvt_drain(lazy);
	for (i = 0; i < 10; i++)
		kvt_raw_post(lazy, &empty_lease);
	kvt_raw_send_message(lazy, KVW_MSG_DRAIN, &drain);
	assert_int_equal(kvt_open(other, 0, 0, 0, 4).granted, 4);
	assert_int_equal(kvw_ring_waiting(&lazy->completions), KVW_RING_RECORDS);
	for (i = 0; i < KVW_RING_RECORDS + 10; i++)
		kvt_raw_completion(lazy, i + 1);
	assert_int_equal(kvt_raw_receive(lazy), KVW_MSG_DRAIN_OK);
	assert_int_equal(lazy->answer.DRAIN_OK.head, KVW_RING_RECORDS + 10);
	kvt_raw_close(lazy);
	kvt_raw_close(other);
}

static void requests_without_waiting_are_answered_in_order(void **state)
{
	struct kvt_raw *raw = kvt_raw_engine(*state);
	const struct kvw_msg_CHECK check = {.unused = 0};
	const struct kvw_msg_POOLS pools = {.unused = 0};
	const struct kvw_msg_STATUS status = {.unused = 0};

	kvt_raw_send_message(raw, KVW_MSG_CHECK, &check);
	kvt_raw_send_message(raw, KVW_MSG_POOLS, &pools);
	kvt_raw_send_message(raw, KVW_MSG_STATUS, &status);
	assert_int_equal(kvt_raw_receive(raw), KVW_MSG_CHECK_OK);
	assert_int_equal(kvt_raw_receive(raw), KVW_MSG_POOLS_OK);
	assert_int_equal(kvt_raw_receive(raw), KVW_MSG_STATUS_OK);
	kvt_raw_close(raw);
}

/* As many requests unanswered as a session may have, and one more. */
static void too_many_unanswered_requests_end_the_session(void **state)
{
	struct kvt_raw *raw = kvt_raw_engine(*state);
	const struct kvw_msg_POOLS pools = {.unused = 0};
	uint32_t answered = 0;
	uint32_t type;
	uint32_t i;

	for (i = 0; i < KVW_RING_RECORDS; i++)
		kvt_raw_post(raw, &empty_lease);
	kvt_drain(raw);
	kvt_raw_post(raw, &empty_lease);
	for (i = 0; i < 5; i++)
		kvt_raw_send_message(raw, KVW_MSG_POOLS, &pools);
	while ((type = kvt_raw_receive(raw)) == KVW_MSG_POOLS_OK)
		answered++;
	assert_int_equal(answered, 0);
	assert_int_equal(type, KVW_MSG_ERROR);
	assert_int_equal(raw->answer.ERROR.error, KVP_ELIMIT);
	assert_int_equal(kvt_raw_receive(raw), 0);
	kvt_raw_close(raw);
}

int kvt_group_rings(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(record_that_does_not_ring_is_found_by_the_poll),
		cmocka_unit_test(requests_wait_for_the_records_before_them),
		cmocka_unit_test(drain_beyond_the_tail_is_refused),
		cmocka_unit_test(full_completion_ring_stalls_its_session_only),
		cmocka_unit_test(requests_without_waiting_are_answered_in_order),
		cmocka_unit_test(too_many_unanswered_requests_end_the_session),
	};

	return cmocka_run_group_tests_name("rings", tests, kvt_start_small, kvt_stop_small);
}
