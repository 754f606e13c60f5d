/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon whose standard error is a pipe that nobody reads: it serves on, says what of its log was lost, and ends in time.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "raw.h"

#define PIPE_BYTES 4096
#define TEXT_BYTES (4u << 20)

static const char *const small[] = {KVT_SMALL_POOL, NULL};

static struct kvt_daemon *start_unread(int *out_log)
{
	struct kvt_daemon *daemon;
	int ends[2];

	assert_return_code(pipe2(ends, O_CLOEXEC), errno);
	assert_return_code(fcntl(ends[1], F_SETPIPE_SZ, PIPE_BYTES), errno);
	kvt_log_to(ends[1]);
	daemon = kvt_daemon_start(small);
	kvt_log_to(-1);
	close(ends[1]);
	*out_log = ends[0];
	return daemon;
}

static bool health_says_lost(struct kvt_raw *admin)
{
	const struct kvw_msg_STATUS status = {.unused = 0};
	char health[KVW_MAX_TEXT_BYTES + 1] = "";

	assert_int_equal(kvt_raw_ask(admin, KVW_MSG_STATUS, &status), 0);
	memcpy(health, admin->answer.STATUS_OK.health.at, admin->answer.STATUS_OK.health.length);
	return strstr(health, "lines of the log were lost") != NULL;
}

/* One life of an engine's blocks: leased, published, found again, given up. */
static void use_pool(struct kvt_raw *engine)
{
	struct kvw_completion opened = kvt_open(engine, 0, 7, 2, 2);

	assert_int_equal(opened.status, 0);
	if (opened.granted) {
		kvt_accept(engine, 0, 0, 2);
		assert_int_equal(kvt_publish(engine, 0, opened.hold, 0, 2, 0, 0).status, 0);
	} else {
		assert_int_equal(opened.matched, 2);
	}
	kvt_release(engine, opened.hold);
	kvt_drain(engine);
}

/* Every connection is a line or two, a hundred of them in a second at most. */
static void log_until_lost(const struct kvt_daemon *daemon, struct kvt_raw *admin, struct kvt_raw *engine)
{
	while (!health_says_lost(admin)) {
		kvt_raw_close(kvt_raw_engine(daemon));
		use_pool(engine);
	}
}

static char *read_all(int fd)
{
	char *text = calloc(1, TEXT_BYTES);
	size_t used = 0;
	ssize_t got;

	assert_non_null(text);
	do {
		got = read(fd, text + used, TEXT_BYTES - 1 - used);
		assert_true(got >= 0);
		used += (size_t)got;
	} while (got > 0);
	return text;
}

/* TERM with nobody reading still; then what the pipe holds is read, which is less than what was said. */
static void daemon_serves_and_ends_though_nobody_reads_its_log(void **state)
{
	int log;
	struct kvt_daemon *daemon = start_unread(&log);
	struct kvt_raw *admin = kvt_raw_hello(daemon);
	struct kvt_raw *engine = kvt_raw_engine(daemon);
	int i;

	(void)state;
	log_until_lost(daemon, admin, engine);
	for (i = 0; i < 100; i++)
		use_pool(engine);
	kvt_must_check(admin);
	kvt_raw_close(engine);
	kvt_raw_close(admin);
	kvt_daemon_stop(daemon);
	close(log);
}

static void lost_lines_are_told_once_somebody_reads(void **state)
{
	int log;
	struct kvt_daemon *daemon = start_unread(&log);
	struct kvt_raw *admin = kvt_raw_hello(daemon);
	struct kvt_raw *engine = kvt_raw_engine(daemon);
	unsigned long long lost = 0;
	char *text;
	char *told;

	(void)state;
	log_until_lost(daemon, admin, engine);
	kvt_raw_close(engine);
	kvt_raw_close(admin);
	kill(daemon->pid, SIGTERM);
	text = read_all(log);
	told = strstr(text, "lines of the log lost here: standard error took no more\n");
	assert_non_null(told);
	while (told > text && told[-1] != '\n')
		told--;
	assert_int_equal(sscanf(told, "kvpoold: warning: %llu lines", &lost), 1);
	assert_true(lost > 0);
	assert_ptr_equal(strstr(text, "kvpoold: info: ended\n"),
			 text + strlen(text) - strlen("kvpoold: info: ended\n"));
	assert_int_equal(kvt_daemon_wait(daemon), 0);
	free(text);
	close(log);
	kvt_daemon_kill(daemon);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(daemon_serves_and_ends_though_nobody_reads_its_log),
		cmocka_unit_test(lost_lines_are_told_once_somebody_reads),
	};

	kvt_take_lane(argc, argv, 90);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
