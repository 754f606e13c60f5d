/* SPDX-License-Identifier: Apache-2.0 */
/* Connecting by path: at once or not at all, and never a wait. */
#include "support.h"

#include "ipc/frame.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int listen_at(const char *path, int backlog)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	memcpy(address.sun_path, path, strlen(path) + 1);
	assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(fd, backlog), 0);
	return fd;
}

static void connect_reaches_a_listener(void **state)
{
	char *dir = kvt_mkdtemp();
	char path[100];
	uint8_t out[8];
	int listener, near, far;

	(void)state;
	snprintf(path, sizeof(path), "%s/socket", dir);
	assert_int_equal(kvw_connect(path), -ENOENT);
	listener = listen_at(path, 4);
	near = kvw_connect(path);
	assert_true(near >= 0);
	assert_int_equal(fcntl(near, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	far = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	assert_int_equal(kvw_send(near, (const uint8_t *)"hello", 5, NULL, 0), 0);
	assert_int_equal(kvw_receive(far, kvw_deadline_ns(10000), out, sizeof(out), NULL, NULL), 5);
	close(near);
	close(far);
	close(listener);
	assert_int_equal(kvw_connect(path), -ECONNREFUSED);
	kvt_rmdir(dir);
}

static void connect_does_not_wait_for_a_full_backlog(void **state)
{
	char *dir = kvt_mkdtemp();
	int listener, count = 0;
	int fds[64];
	char path[100];
	int ret = 0;

	(void)state;
	snprintf(path, sizeof(path), "%s/socket", dir);
	listener = listen_at(path, 1);
	while (count < 64 && (ret = kvw_connect(path)) >= 0)
		fds[count++] = ret;
	assert_int_equal(ret, -EAGAIN);
	while (count > 0)
		close(fds[--count]);
	close(listener);
	kvt_rmdir(dir);
}

static void connect_refuses_paths_that_are_none(void **state)
{
	char path[sizeof(((struct sockaddr_un *)NULL)->sun_path) + 1];

	(void)state;
	memset(path, 'x', sizeof(path));
	path[sizeof(path) - 1] = '\0';
	assert_int_equal(kvw_connect(path), -ENAMETOOLONG);
	path[sizeof(path) - 2] = '\0';
	assert_int_equal(kvw_connect(path), -ENOENT);
	assert_int_equal(kvw_connect(""), -EINVAL);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(connect_reaches_a_listener),
		cmocka_unit_test(connect_does_not_wait_for_a_full_backlog),
		cmocka_unit_test(connect_refuses_paths_that_are_none),
	};

	kvt_watchdog(60);
	return cmocka_run_group_tests_name("unit.connect", tests, NULL, NULL);
}
