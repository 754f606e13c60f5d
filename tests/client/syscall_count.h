/* SPDX-License-Identifier: Apache-2.0 */
/*
 * System calls of the calling thread, counted by the kernel: with PR_SET_SYSCALL_USER_DISPATCH each raises SIGSYS, whose handler counts it
 * and carries it out.
 */
#ifndef KVPOOL_TEST_SYSCALL_COUNT_H
#define KVPOOL_TEST_SYSCALL_COUNT_H

#include <stdbool.h>
#include <stdint.h>

/* false: this kernel or machine can't. */
bool syscall_count_init(void);
/* From here on. */
void syscall_count_begin(void);
/* Whether there was one since; the handler counts the first, and lets the rest pass. */
bool syscall_count_end(void);

#endif
