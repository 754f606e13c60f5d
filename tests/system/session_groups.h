/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The groups of the session suite; each starts daemons of its own. Return the number of failed tests.
 */
#ifndef KVPOOL_TEST_SESSION_GROUPS_H
#define KVPOOL_TEST_SESSION_GROUPS_H

int kvt_group_greeting(void);
int kvt_group_attach(void);
int kvt_group_verbs(void);
int kvt_group_rings(void);
int kvt_group_violations(void);
int kvt_group_end(void);
int kvt_group_timelines(void);
int kvt_group_admin(void);
int kvt_group_daemon(void);

/*
 * Group set-up and tear-down: a daemon with KVT_SMALL_POOL, whose books must be clean and whose blocks free
 * at the end.
 */
int kvt_start_small(void **state);
int kvt_stop_small(void **state);

#endif
