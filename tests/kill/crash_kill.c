/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients killed at chosen and at random points: what must stay, what must go, and when. The argument is the
 * event loop.
 */
#include "crash_kill.h"

#include <linux/io_uring.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "facts.h"
#include "victim.h"

static const char *const options[] = {KVT_CRASH_POOL, NULL};

static int start(void **state)
{
	*state = kvt_daemon_start(options);
	return 0;
}

void kvt_crash_leaves_nothing(const struct kvt_daemon *daemon)
{
	struct kvt_raw *admin = kvt_raw_hello(daemon);

	kvt_wait_sessions(admin, 1);
	kvt_must_check(admin);
	kvt_flush(admin);
	kvt_wait_free(admin, KVT_CRASH_BLOCKS);
	kvt_must_check(admin);
	kvt_raw_close(admin);
}

static bool io_uring_is_refused(void)
{
	struct io_uring_params params = {0};
	long fd = syscall(SYS_io_uring_setup, 4, &params);

	if (fd >= 0)
		close((int)fd);
	return fd < 0;
}

/* Which no other test here can tell, and that is how it must be. */
static void the_loop_is_the_one_asked_for(void **state)
{
	const struct kvw_msg_STATUS request = {.unused = 0};
	struct kvt_raw *admin = kvt_raw_hello(*state);
	char name[64];

	assert_int_equal(kvt_raw_ask(admin, KVW_MSG_STATUS, &request), 0);
	kvw_text_copy(admin->answer.STATUS_OK.event_loop, name, sizeof(name));
	if (strcmp(kvt_lane, "auto") != 0)
		assert_string_equal(name, kvt_lane);
	else if (io_uring_is_refused())
		assert_string_equal(name, "epoll");
	else
		assert_string_not_equal(name, "epoll");
	kvt_raw_close(admin);
}

static int stop(void **state)
{
	kvt_daemon_stop(*state);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_loop_is_the_one_asked_for),
		cmocka_unit_test(published_and_finished_stays_findable),
		cmocka_unit_test(blocks_of_the_dead_wait_for_the_last_mapping),
		cmocka_unit_test(a_kept_socket_keeps_nothing_else),
		cmocka_unit_test(a_stopped_client_loses_nothing),
		cmocka_unit_test(pending_of_the_dead_is_never_served),
		cmocka_unit_test(pending_of_the_dead_goes_when_nobody_refers_to_it),
		cmocka_unit_test(references_of_the_dead_are_dropped),
		cmocka_unit_test(random_kills_leave_nothing),
	};

	kvt_victim_main(argc, argv);
	kvt_take_lane(argc, argv, 280);
	kvt_limit_quarantine();
	return cmocka_run_group_tests(tests, start, stop);
}
