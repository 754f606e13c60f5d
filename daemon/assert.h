/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Assertions about the daemon's own books, kept in every build: to hand one block to two owners is worse than to end.
 * Never for what a client sent; that is an error to answer.
 */
#ifndef KVPOOL_DAEMON_ASSERT_H
#define KVPOOL_DAEMON_ASSERT_H

#define kvd_assert(condition)                                                                                \
	((condition) ? (void)0 : kvd_assert_failed(#condition, __FILE__, __LINE__, __func__))

_Noreturn void kvd_assert_failed(const char *condition, const char *file, int line, const char *function);

#endif
