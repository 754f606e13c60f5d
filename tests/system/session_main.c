/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions of a running daemon, by the raw protocol, on the event loop that the argument names. A second
 * argument names one group.
 */
#include <stdio.h>
#include <string.h>

#include "raw.h"
#include "session_groups.h"

static const char *const small[] = {KVT_SMALL_POOL, NULL};

int kvt_start_small(void **state)
{
	*state = kvt_daemon_start(small);
	return 0;
}

int kvt_stop_small(void **state)
{
	struct kvt_raw *admin = kvt_raw_hello(*state);
	const struct kvw_msg_FLUSH flush = {.unused = 0};

	while (kvt_pool_state(admin).leased || kvt_pool_state(admin).referenced)
		;
	kvt_must_check(admin);
	assert_int_equal(kvt_raw_ask(admin, KVW_MSG_FLUSH, &flush), 0);
	kvt_wait_free(admin, 64);
	kvt_must_check(admin);
	kvt_raw_close(admin);
	kvt_daemon_stop(*state);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(void);
	} groups[] = {
		{"greeting", kvt_group_greeting},     {"attach", kvt_group_attach},
		{"verbs", kvt_group_verbs},           {"rings", kvt_group_rings},
		{"violations", kvt_group_violations}, {"end", kvt_group_end},
		{"timelines", kvt_group_timelines},   {"admin", kvt_group_admin},
		{"daemon", kvt_group_daemon},
	};
	int failed = 0;
	size_t i;

	kvt_take_lane(argc, argv, 100);
	for (i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
		if (argc < 3 || !strcmp(argv[2], groups[i].name))
			failed += groups[i].run();
	}
	return failed ? 1 : 0;
}
