/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Death at a chosen place: between two system calls of a process, and from there between two of its
 * instructions.
 */
#ifndef KVPOOL_TEST_TRACE_H
#define KVPOOL_TEST_TRACE_H

#include <stdint.h>
#include <sys/types.h>

/* Whether this machine lets a parent trace its child. */
int kvt_can_trace(void);
/*
 * `pid` is a child that asked to be traced and stopped itself. Lets it run to its stop number `stops` at the
 * beginning or end of a system call, then `instructions` further ones, and kills it there. The caller reaps
 * it.
 */
void kvt_trace_and_kill(pid_t pid, uint64_t stops, uint64_t instructions);

#endif
