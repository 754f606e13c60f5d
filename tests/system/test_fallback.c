/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon where io_uring is refused, as in most containers: it serves on epoll, and its status says what it does without and why.
 */
#include <errno.h>
#include <string.h>
#include <sys/wait.h>

#include "raw.h"

static const char *const small[] = {KVT_SMALL_POOL, NULL};

static void must_serve_on_epoll(int error)
{
	const struct kvw_msg_STATUS request = {.unused = 0};
	char text[KVW_MAX_TEXT_BYTES + 1];
	struct kvt_daemon *daemon;
	struct kvt_raw *raw;

	kvt_refuse_io_uring(error);
	daemon = kvt_daemon_start(small);
	raw = kvt_raw_engine(daemon);
	assert_int_equal(kvt_open(raw, 0, 1, 2, 4).granted, 4);
	assert_int_equal(kvt_raw_ask(raw, KVW_MSG_STATUS, &request), 0);
	kvw_text_copy(raw->answer.STATUS_OK.event_loop, text, sizeof(text));
	assert_string_equal(text, "epoll");
	kvw_text_copy(raw->answer.STATUS_OK.off, text, sizeof(text));
	assert_non_null(strstr(text, "io_uring"));
	assert_non_null(strstr(text, strerror(error)));
	kvt_raw_close(raw);
	kvt_daemon_stop(daemon);
	kvt_refuse_io_uring(0);
}

static void io_uring_refused_with_eperm_leaves_epoll(void **state)
{
	(void)state;
	must_serve_on_epoll(EPERM);
}

static void io_uring_refused_with_enosys_leaves_epoll(void **state)
{
	(void)state;
	must_serve_on_epoll(ENOSYS);
}

/* Who asks for it by name gets an error and not something else. */
static void io_uring_by_name_is_not_replaced(void **state)
{
	struct kvt_daemon *daemon;
	int status;

	(void)state;
	kvt_refuse_io_uring(EPERM);
	kvt_lane = "io_uring";
	daemon = kvt_daemon_launch(small);
	status = kvt_daemon_wait(daemon);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 1);
	assert_true(kvt_daemon_logged(daemon, "event_loop = auto"));
	kvt_daemon_kill(daemon);
	kvt_lane = "auto";
	kvt_refuse_io_uring(0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(io_uring_refused_with_eperm_leaves_epoll),
		cmocka_unit_test(io_uring_refused_with_enosys_leaves_epoll),
		cmocka_unit_test(io_uring_by_name_is_not_replaced),
	};

	kvt_take_lane(argc, argv, 60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
