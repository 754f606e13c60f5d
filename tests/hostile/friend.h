/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The well-behaved client beside the hostile one, in a process of its own: hostile --friend SOCKET POOL
 * NUMBER It opens, writes, publishes, matches again, verifies and releases, without a pause, and puts the
 * time of each such cycle on the board. Any error ends it with exit status 1.
 */
#ifndef KVPOOL_TEST_FRIEND_H
#define KVPOOL_TEST_FRIEND_H

/* To be called first in main(): does not return in a friend. */
void kvt_friend_main(int argc, char **argv);

#endif
