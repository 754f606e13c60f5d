/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients killed at chosen and at random points: what must stay, what must go, and when. The argument is the event loop.
 */
#include "crash_kill.h"

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

static int stop(void **state)
{
	kvt_daemon_stop(*state);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
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
