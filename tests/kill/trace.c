/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tracer of a few lines.
 */
#include "trace.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

/* The signal of a stop that is no system call's, to be passed on. */
static int signal_of(int status)
{
	int signal_number = WSTOPSIG(status);

	return signal_number == (SIGTRAP | 0x80) || signal_number == SIGTRAP ? 0 : signal_number;
}

/* False: it is dead. */
static bool wait_stop(pid_t pid, int *status)
{
	siginfo_t info;

	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WSTOPPED | WNOWAIT), 0);
	if (info.si_code != CLD_TRAPPED && info.si_code != CLD_STOPPED)
		return false;
	assert_int_equal(waitpid(pid, status, __WALL), pid);
	return true;
}

static bool go_on(pid_t pid, int request, uint64_t times)
{
	int status = 0;

	while (times--) {
		if (ptrace(request, pid, NULL, (void *)(intptr_t)signal_of(status)) ||
		    !wait_stop(pid, &status))
			return false;
	}
	return true;
}

void kvt_trace_and_kill(pid_t pid, uint64_t stops, uint64_t instructions)
{
	int status = 0;

	if (wait_stop(pid, &status)) {
		ptrace(PTRACE_SETOPTIONS, pid, NULL,
		       (void *)(uintptr_t)(PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL));
		if (go_on(pid, PTRACE_SYSCALL, stops))
			go_on(pid, PTRACE_SINGLESTEP, instructions);
	}
	kill(pid, SIGKILL);
}

int kvt_can_trace(void)
{
	pid_t pid = fork();
	int status = 0;

	assert_true(pid >= 0);
	if (!pid) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
			_exit(1);
		raise(SIGSTOP);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, __WALL), pid);
	if (!WIFSTOPPED(status))
		return 0;
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, __WALL), pid);
	return 1;
}
