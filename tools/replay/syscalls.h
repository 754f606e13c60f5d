/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts the system calls of the calling thread between begin and end, by the kernel: a call counts even if
 * it fails, and also one that a library makes. One counter a process.
 *
 *   dispatch  PR_SET_SYSCALL_USER_DISPATCH (x86-64, Linux 5.11): calls arrive as SIGSYS, are counted and
 *             made. One byte switches it.
 *   ptrace    another process, the parent, stops this one at every call: slow, but wherever ptrace is
 *             allowed.
 */
#ifndef KVPOOL_TOOLS_REPLAY_SYSCALLS_H
#define KVPOOL_TOOLS_REPLAY_SYSCALLS_H

#include <stdint.h>
#include <sys/types.h>

#include "run.h"

/* The best way this machine allows, of "auto", "dispatch", "ptrace", "none". */
enum rep_counting rep_syscalls_choose(const char *wish);
const char *rep_counting_name(enum rep_counting counting);

/* In the engine, once. *stats carries the words that a ptracer shares. 0 or a negative errno. */
int rep_syscalls_init(enum rep_counting counting, struct rep_stats *stats);
/* All four make no system call themselves. Between pause and resume nothing is counted. */
void rep_syscalls_begin(void);
void rep_syscalls_pause(void);
void rep_syscalls_resume(void);
/* Calls since begin. */
uint64_t rep_syscalls_end(void);

/*
 * In the parent of `pid`, which waits in rep_syscalls_init() to be seized: counts its calls until it ends. 0
 * and its wait status, or a negative errno.
 */
int rep_ptrace_serve(pid_t pid, struct rep_stats *stats, int *status);

#endif
