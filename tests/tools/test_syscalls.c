/* SPDX-License-Identifier: Apache-2.0 */
/* Counting system calls: each in a child of its own, because dispatch and tracing cannot be taken back. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"
#include "tools/replay/syscalls.h"

static struct rep_stats *stats;

static uint64_t count_calls(unsigned calls)
{
	rep_syscalls_begin();
	for (unsigned i = 0; i < calls; i++)
		(void)syscall(SYS_getppid);
	return rep_syscalls_end();
}

/*
 * A call keeps its result and its errno, six arguments arrive, and pauses do not count. By syscall() alone: a
 * sanitizer's functions make calls of their own. 0, or the line that was wrong.
 */
static int check_counting(void)
{
	char text[8] = "";
	int fds[2];
	long self;
	long page;

	if (count_calls(0) != 0 || count_calls(1) != 1 || count_calls(1000) != 1000)
		return __LINE__;
	rep_syscalls_begin();
	self = syscall(SYS_getpid);
	if (syscall(SYS_pipe2, fds, 0) || syscall(SYS_write, fds[1], "abc", 3) != 3 ||
	    syscall(SYS_read, fds[0], text, 3) != 3)
		return __LINE__;
	errno = 0;
	if (syscall(SYS_close, -1) != -1 || errno != EBADF)
		return __LINE__;
	if (rep_syscalls_end() != 5 || self != getpid() || strcmp(text, "abc") != 0)
		return __LINE__;
	rep_syscalls_begin();
	page = syscall(SYS_mmap, NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	rep_syscalls_pause();
	(void)syscall(SYS_getppid);
	rep_syscalls_resume();
	(void)syscall(SYS_getppid);
	if (rep_syscalls_end() != 2 || page == -1)
		return __LINE__;
	return count_calls(3) == 3 ? 0 : __LINE__;
}

static int counting_child(enum rep_counting counting)
{
	int ret = rep_syscalls_init(counting, stats);
	int line = ret ? 0 : check_counting();

	rep_syscalls_pause();
	if (ret)
		fprintf(stderr, "init: %s\n", strerror(-ret));
	if (line)
		fprintf(stderr, "line %d\n", line);
	return ret || line;
}

static void run(enum rep_counting counting, int *status)
{
	pid_t pid;

	memset(stats, 0, sizeof(*stats));
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(counting_child(counting));
	if (counting == REP_COUNT_PTRACE)
		assert_int_equal(rep_ptrace_serve(pid, stats, status), 0);
	else
		assert_int_equal(waitpid(pid, status, 0), pid);
}

static void counts_by(const char *wish, enum rep_counting counting)
{
	int status = -1;

	if (rep_syscalls_choose(wish) != counting) {
		print_message("%s is not to be had here\n", wish);
		skip();
	}
	run(counting, &status);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_int_equal(atomic_load(&stats->counting), counting);
}

static void dispatch_counts_every_call_and_changes_none(void **state)
{
	(void)state;
	counts_by("dispatch", REP_COUNT_DISPATCH);
}

static void ptrace_counts_every_call_and_changes_none(void **state)
{
	(void)state;
	counts_by("ptrace", REP_COUNT_PTRACE);
}

static void none_is_none(void **state)
{
	(void)state;
	assert_int_equal(rep_syscalls_choose("none"), REP_COUNT_NONE);
	assert_string_equal(rep_counting_name(REP_COUNT_NONE), "none");
}

static void a_tracer_passes_signals_and_deaths_on(void **state)
{
	int status = 0;
	pid_t pid;

	(void)state;
	if (rep_syscalls_choose("ptrace") != REP_COUNT_PTRACE)
		skip();
	memset(stats, 0, sizeof(*stats));
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		if (rep_syscalls_init(REP_COUNT_PTRACE, stats))
			_exit(1);
		raise(SIGTERM);
		_exit(2);
	}
	assert_int_equal(rep_ptrace_serve(pid, stats, &status), 0);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGTERM);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(dispatch_counts_every_call_and_changes_none),
		cmocka_unit_test(ptrace_counts_every_call_and_changes_none),
		cmocka_unit_test(none_is_none),
		cmocka_unit_test(a_tracer_passes_signals_and_deaths_on),
	};

	kvt_watchdog(60);
	stats = mmap(NULL, sizeof(*stats), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(stats != MAP_FAILED);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
