/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which backend the event loop takes: the best that the kernel grants, and epoll in a
 * container whose filter refuses io_uring, with whatever error it does so.
 */
#include "daemon/loop.h"
#include "seccomp.h"
#include "support.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int open_loop(enum kvd_loop_backend backend, struct kvd_loop **out)
{
	const struct kvd_loop_params params = {
		.backend = backend,
		.max_watches = 16,
		.max_message_bytes = 4096,
	};

	return kvd_loop_open(&params, out);
}

static void count(void *arg)
{
	++*(int *)arg;
}

/* Exit status of a child: 0, or the line that failed. Assertions of the test framework stay in the parent. */
#define EXPECT(condition)                                                                                    \
	do {                                                                                                 \
		if (!(condition))                                                                            \
			return __LINE__ & 0x7f;                                                              \
	} while (0)

static int use_epoll(struct kvd_loop *loop)
{
	struct kvd_watch *watch;
	int fd = eventfd(1, EFD_CLOEXEC);
	int calls = 0;

	EXPECT(!strcmp(kvd_loop_name(loop), "epoll"));
	EXPECT(kvd_loop_watch(loop, fd, count, &calls, &watch) == 0);
	EXPECT(kvd_loop_turn(loop, UINT64_MAX) == 1);
	EXPECT(calls == 1);
	kvd_loop_close(loop);
	close(fd);
	return 0;
}

/* In the child, under the filter. */
static int check_fallback(int error)
{
	struct kvd_loop *loop = NULL;
	int fds = kvt_count_fds();

	EXPECT(open_loop(KVD_LOOP_IO_URING, &loop) == -error);
	EXPECT(open_loop(KVD_LOOP_IO_URING_PLAIN, &loop) == -error);
	EXPECT(!loop);
	EXPECT(kvt_count_fds() == fds);
	EXPECT(open_loop(KVD_LOOP_AUTO, &loop) == 0);
	EXPECT(use_epoll(loop) == 0);
	EXPECT(kvt_count_fds() == fds);
	return 0;
}

/* `number` 0: all of io_uring. */
static void assert_falls_back(long number, int error)
{
	pid_t child = fork();
	int status;

	assert_true(child >= 0);
	if (!child) {
		if ((number ? kvt_forbid_syscall(number, error) : kvt_forbid_io_uring(error)) < 0)
			_exit(255);
		_exit(check_fallback(error));
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void auto_takes_epoll_where_io_uring_is_refused(void **state)
{
	const int errors[] = {EPERM, ENOSYS, EACCES, EINVAL, ENOMEM, EMFILE};

	(void)state;
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		assert_falls_back(0, errors[i]);
}

/* The ring is granted, its use is not. */
static void auto_takes_epoll_where_only_the_use_of_a_ring_is_refused(void **state)
{
	(void)state;
	assert_falls_back(SYS_io_uring_enter, EPERM);
	assert_falls_back(SYS_io_uring_register, EPERM);
}

static void auto_takes_the_first_that_is_granted(void **state)
{
	struct kvd_loop *first;
	struct kvd_loop *chosen;
	enum kvd_loop_backend backend = KVD_LOOP_IO_URING;

	(void)state;
	while (open_loop(backend, &first) < 0)
		backend++;
	assert_int_equal(open_loop(KVD_LOOP_AUTO, &chosen), 0);
	assert_string_equal(kvd_loop_name(chosen), kvd_loop_name(first));
	kvd_loop_close(chosen);
	kvd_loop_close(first);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(auto_takes_the_first_that_is_granted),
		cmocka_unit_test(auto_takes_epoll_where_io_uring_is_refused),
		cmocka_unit_test(auto_takes_epoll_where_only_the_use_of_a_ring_is_refused),
	};

	kvt_watchdog(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
