/* SPDX-License-Identifier: Apache-2.0 */
/* What a service manager is told, and that its absence is no fault. */
#include "daemon/notify.h"

#include "support.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* A manager's socket; the name that $NOTIFY_SOCKET has for it. */
static int hear(const char *path, char name[128])
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	socklen_t length = sizeof(address.sun_family); /* the kernel chooses an abstract name */
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	if (path) {
		snprintf(address.sun_path, sizeof(address.sun_path), "%s/notify", path);
		length = sizeof(address);
	}
	assert_int_equal(bind(fd, (struct sockaddr *)&address, length), 0);
	length = sizeof(address);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
	if (!path)
		address.sun_path[0] = '@';
	snprintf(name, 128, "%.*s", (int)(length - sizeof(address.sun_family)), address.sun_path);
	return fd;
}

static void assert_heard(int fd, const char *expected)
{
	char text[64] = "";

	assert_int_equal(recv(fd, text, sizeof(text) - 1, MSG_DONTWAIT), strlen(expected));
	assert_string_equal(text, expected);
}

static void manager_at_a_path_is_told(void **state)
{
	char *dir = kvt_mkdtemp();
	char name[128];
	int fd = hear(dir, name);

	(void)state;
	setenv("NOTIFY_SOCKET", name, 1);
	assert_int_equal(kvd_notify("READY=1"), 0);
	assert_int_equal(kvd_notify("STOPPING=1"), 0);
	assert_heard(fd, "READY=1");
	assert_heard(fd, "STOPPING=1");
	close(fd);
	assert_int_equal(kvd_notify("READY=1"), -ECONNREFUSED);
	kvt_rmdir(dir);
	assert_int_equal(kvd_notify("READY=1"), -ENOENT);
}

static void manager_of_an_abstract_name_is_told(void **state)
{
	char name[128];
	int fd = hear(NULL, name);

	(void)state;
	setenv("NOTIFY_SOCKET", name, 1);
	assert_int_equal(kvd_notify("READY=1"), 0);
	assert_heard(fd, "READY=1");
	close(fd);
}

static void without_a_manager_nobody_is_told(void **state)
{
	int before = kvt_count_fds();

	(void)state;
	unsetenv("NOTIFY_SOCKET");
	assert_int_equal(kvd_notify("READY=1"), 0);
	setenv("NOTIFY_SOCKET", "", 1);
	assert_int_equal(kvd_notify("READY=1"), 0);
	assert_int_equal(kvt_count_fds(), before);
}

static void name_that_is_no_address_is_refused(void **state)
{
	char name[sizeof(((struct sockaddr_un *)NULL)->sun_path) + 1];

	(void)state;
	setenv("NOTIFY_SOCKET", "vsock:2:1", 1);
	assert_int_equal(kvd_notify("READY=1"), -EINVAL);
	memset(name, '/', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	setenv("NOTIFY_SOCKET", name, 1);
	assert_int_equal(kvd_notify("READY=1"), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(manager_at_a_path_is_told),
		cmocka_unit_test(manager_of_an_abstract_name_is_told),
		cmocka_unit_test(without_a_manager_nobody_is_told),
		cmocka_unit_test(name_that_is_no_address_is_refused),
	};

	kvt_watchdog(30);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
