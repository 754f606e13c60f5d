/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From connect to attach: what a greeting must be, what is refused and goes on, what ends the session.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <kvpool/error.h>

#include "raw.h"

static const char *const small[] = {KVT_SMALL_POOL, NULL};

static int start(void **state)
{
	*state = kvt_daemon_start(small);
	return 0;
}

static int stop(void **state)
{
	struct kvt_raw *admin = kvt_raw_hello(*state);

	kvt_wait_free(admin, 64);
	kvt_must_check(admin);
	kvt_raw_close(admin);
	kvt_daemon_stop(*state);
	return 0;
}

static void hello_names_session_and_incarnation(void **state)
{
	struct kvt_raw *first = kvt_raw_hello(*state);
	struct kvt_raw *second = kvt_raw_hello(*state);

	assert_int_not_equal(first->incarnation, 0);
	assert_int_equal(first->incarnation, second->incarnation);
	assert_true(second->session > first->session);
	kvt_raw_close(first);
	kvt_raw_close(second);
}

static void engine_attaches_and_publishes(void **state)
{
	struct kvt_raw *raw = kvt_raw_engine(*state);
	struct kvw_completion open = kvt_open(raw, 0, 1, 4, 4);
	struct kvw_completion publish;

	assert_int_equal(open.status, 0);
	assert_int_equal(open.matched, 0);
	assert_int_equal(open.granted, 4);
	publish = kvt_publish(raw, 0, open.hold, 0, 4, 0, 0);
	assert_int_equal(publish.status, 0);
	assert_int_equal(publish.granted, 4);
	kvt_release(raw, open.hold);
	kvt_raw_close(raw);
}

static void flush(void **state)
{
	struct kvt_raw *admin = kvt_raw_hello(*state);
	const struct kvw_msg_FLUSH request = {.unused = 0};

	while (kvt_pool_state(admin).engines)
		;
	kvt_must_check(admin);
	assert_int_equal(kvt_raw_ask(admin, KVW_MSG_FLUSH, &request), 0);
	assert_int_equal(admin->answer.FLUSH_OK.freed, 4);
	kvt_raw_close(admin);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hello_names_session_and_incarnation),
		cmocka_unit_test(engine_attaches_and_publishes),
		cmocka_unit_test(flush),
	};

	kvt_take_lane(argc, argv, 60);
	return cmocka_run_group_tests(tests, start, stop);
}
