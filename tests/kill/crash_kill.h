/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon of the crash tests, and the tests by file.
 */
#ifndef KVPOOL_TEST_CRASH_KILL_H
#define KVPOOL_TEST_CRASH_KILL_H

#include "raw.h"

#define KVT_CRASH_BLOCKS 256u
#define KVT_CRASH_POOL                                                                                       \
	"--set=pool.p.blocks=256", "--set=pool.p.block_tokens=16", "--set=pool.p.planes=k f16 1x128",        \
		"--set=pool.p.pages=4k"

/* Every test leaves the pool as it found it: all blocks free, no session but the one that asks. */
void kvt_crash_leaves_nothing(const struct kvt_daemon *daemon);

/* crash_shared.c */
void published_and_finished_stays_findable(void **state);
void blocks_of_the_dead_wait_for_the_last_mapping(void **state);
void a_kept_socket_keeps_nothing_else(void **state);
void a_stopped_client_loses_nothing(void **state);
void pending_of_the_dead_is_never_served(void **state);
void pending_of_the_dead_goes_when_nobody_refers_to_it(void **state);
void references_of_the_dead_are_dropped(void **state);

/* crash_random.c */
void random_kills_leave_nothing(void **state);

#endif
