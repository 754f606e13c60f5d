/* SPDX-License-Identifier: Apache-2.0 */
/* Counts system calls by user dispatch, or with the help of a ptracer. */
#include "syscalls.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dispatch.h"

/* This process's counter. */
static struct {
	enum rep_counting counting;
	struct rep_stats *stats;
} self;

const char *rep_counting_name(enum rep_counting counting)
{
	if (counting == REP_COUNT_DISPATCH)
		return "dispatch";
	return counting == REP_COUNT_PTRACE ? "ptrace" : "none";
}

/* A child that lets itself be traced, or tells that it may not. */
static bool ptrace_works(void)
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(ptrace(PTRACE_TRACEME, 0, NULL, NULL) ? 1 : 0);
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return false;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

enum rep_counting rep_syscalls_choose(const char *wish)
{
	bool any = !strcmp(wish, "auto");

	if ((any || !strcmp(wish, "dispatch")) && rep_dispatch_works())
		return REP_COUNT_DISPATCH;
	if ((any || !strcmp(wish, "ptrace")) && ptrace_works())
		return REP_COUNT_PTRACE;
	return REP_COUNT_NONE;
}

/* The tracer, our parent, says in `counting` whether it holds us. */
static int wait_for_tracer(struct rep_stats *stats)
{
	uint32_t counting;

	while ((counting = atomic_load(&stats->counting)) == REP_COUNT_UNDECIDED)
		poll(NULL, 0, 1);
	return counting == REP_COUNT_PTRACE ? 0 : -EPERM;
}

int rep_syscalls_init(enum rep_counting counting, struct rep_stats *stats)
{
	int ret = 0;

	if (counting == REP_COUNT_DISPATCH)
		ret = rep_dispatch_init();
	else if (counting == REP_COUNT_PTRACE)
		ret = wait_for_tracer(stats);
	if (ret)
		return ret;
	self.counting = counting;
	self.stats = stats;
	atomic_store(&stats->counting, counting);
	return 0;
}

static void set_window(bool open)
{
	if (self.counting == REP_COUNT_DISPATCH)
		rep_dispatch_switch(open);
	else if (self.counting == REP_COUNT_PTRACE)
		atomic_store(&self.stats->trace_window, open);
}

void rep_syscalls_begin(void)
{
	rep_dispatch_reset();
	if (self.counting == REP_COUNT_PTRACE)
		atomic_store(&self.stats->traced_calls, 0);
	set_window(true);
}

void rep_syscalls_pause(void)
{
	set_window(false);
}

void rep_syscalls_resume(void)
{
	set_window(true);
}

uint64_t rep_syscalls_end(void)
{
	set_window(false);
	return self.counting == REP_COUNT_PTRACE ? atomic_load(&self.stats->traced_calls)
						 : rep_dispatch_count();
}

/* A stop at a system call comes twice, on entry and on exit; entry is what counts. */
static bool is_entry(pid_t pid)
{
	struct __ptrace_syscall_info info;

	return ptrace(PTRACE_GET_SYSCALL_INFO, pid, (void *)sizeof(info), &info) > 0 &&
	       info.op == PTRACE_SYSCALL_INFO_ENTRY;
}

/* What a stop delivers when the child goes on: its signal, unless the stop was ours. */
static int signal_of(pid_t pid, int status, struct rep_stats *stats)
{
	if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
		if (atomic_load(&stats->trace_window) && is_entry(pid))
			atomic_fetch_add(&stats->traced_calls, 1);
		return 0;
	}
	return status >> 16 ? 0 : WSTOPSIG(status);
}

int rep_ptrace_serve(pid_t pid, struct rep_stats *stats, int *status)
{
	long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL;
	bool held = ptrace(PTRACE_SEIZE, pid, NULL, (void *)options) == 0 &&
		    ptrace(PTRACE_INTERRUPT, pid, NULL, NULL) == 0;

	atomic_store(&stats->counting, held ? REP_COUNT_PTRACE : REP_COUNT_NONE);
	for (;;) {
		if (waitpid(pid, status, __WALL) != pid) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		if (!WIFSTOPPED(*status))
			return 0;
		/* Fails only when the child was killed meanwhile; the next wait tells. */
		(void)ptrace(PTRACE_SYSCALL, pid, NULL, (void *)(intptr_t)signal_of(pid, *status, stats));
	}
}
