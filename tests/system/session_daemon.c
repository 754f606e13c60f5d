/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's own life: its socket, its end, its next run.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kvpool/error.h>

#include "raw.h"
#include "session_groups.h"

static const char *const small[] = {KVT_SMALL_POOL, NULL};

static void killed_daemons_socket_is_taken_over(void **state)
{
	struct kvt_daemon *daemon = kvt_daemon_start(small);
	struct kvt_raw *raw = kvt_raw_engine(daemon);
	uint64_t incarnation = raw->incarnation;
	struct kvw_msg_HELLO hello = kvt_hello_message();
	struct kvt_raw *next;

	(void)state;
	kill(daemon->pid, SIGKILL);
	kvt_daemon_wait(daemon);
	assert_int_equal(access(daemon->socket, F_OK), 0);
	assert_int_equal(kvt_raw_receive(raw), 0);
	kvt_daemon_restart(daemon, small);
	/* The old run's memory is still the engine's; its blocks mean nothing to the new one. */
	((volatile uint8_t *)raw->memory[KVT_POOL])[0] = 1;
	next = kvt_raw_connect(daemon);
	hello.incarnation = incarnation;
	kvt_raw_send_message(next, KVW_MSG_HELLO, &hello);
	kvt_raw_must_be_revoked(next, -KVP_EINCARNATION);
	kvt_raw_close(next);
	next = kvt_raw_hello(daemon);
	assert_true(next->incarnation != incarnation);
	assert_int_equal(kvt_pool_state(next).free, 64);
	kvt_raw_close(next);
	kvt_raw_close(raw);
	kvt_daemon_stop(daemon);
}

static void second_daemon_is_refused(void **state)
{
	struct kvt_daemon *daemon = kvt_daemon_start(small);
	struct kvt_daemon second = *daemon;
	struct kvt_raw *raw;
	int status;

	(void)state;
	pid_t pid = fork();
	if (!pid) {
		char socket[200] = "--socket=";

		strcat(socket, daemon->socket);
		freopen(daemon->log, "a", stderr);
		execl(KVT_KVPOOLD, KVT_KVPOOLD, "--config=/dev/null", socket, "--set=pool.p.blocks=8", NULL);
		_exit(127);
	}
	second.pid = pid;
	status = kvt_daemon_wait(&second);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 1);
	assert_true(kvt_daemon_logged(daemon, "another kvpoold serves it"));
	raw = kvt_raw_hello(daemon);
	kvt_raw_close(raw);
	kvt_daemon_stop(daemon);
}

/* Sessions of every kind are open; the files are gone afterwards (kvt_daemon_stop() looks). */
static void daemon_ends_in_order_with_open_sessions(void **state)
{
	struct kvt_daemon *daemon = kvt_daemon_start(small);
	struct kvt_raw *greeting = kvt_raw_connect(daemon);
	struct kvt_raw *greeted = kvt_raw_hello(daemon);
	struct kvt_raw *engine = kvt_raw_engine(daemon);
	struct kvt_raw *ending = kvt_raw_engine(daemon);

	(void)state;
	assert_int_equal(kvt_open(engine, 0, 500, 4, 8).granted, 8);
	close(ending->fd);
	ending->fd = -1;
	kvt_wait_state(greeted, ending->session, "unmap");
	kvt_daemon_stop(daemon);
	assert_int_equal(kvt_raw_receive(engine), 0);
	assert_int_equal(kvt_raw_receive(greeted), 0);
	assert_int_equal(kvt_raw_receive(greeting), 0);
	assert_int_equal(atomic_load(&kvt_channel(engine)->revoked), -KVP_EREVOKED);
	kvt_raw_close(greeting);
	kvt_raw_close(greeted);
	kvt_raw_close(engine);
	kvt_raw_close(ending);
}

static void socket_has_the_configured_mode(void **state)
{
	static const char *const options[] = {KVT_SMALL_POOL, "--socket-mode=0600", NULL};
	struct kvt_daemon *daemon = kvt_daemon_start(options);
	struct stat status;

	(void)state;
	assert_int_equal(stat(daemon->socket, &status), 0);
	assert_int_equal(status.st_mode & 07777, 0600);
	kvt_daemon_stop(daemon);
}

static void pools_are_told_apart_by_name(void **state)
{
	static const char *const options[] = {KVT_SMALL_POOL,
					      "--set=pool.q.blocks=32",
					      "--set=pool.q.block_tokens=16",
					      "--set=pool.q.planes=k f16 1x128",
					      "--set=pool.q.pages=4k",
					      NULL};
	struct kvt_daemon *daemon = kvt_daemon_start(options);
	struct kvw_msg_ATTACH attach = kvt_attach_message();
	struct kvt_raw *raw = kvt_raw_hello(daemon);

	(void)state;
	assert_int_equal(kvt_raw_ask(raw, KVW_MSG_ATTACH, &attach), -KVP_ENOPOOL);
	assert_non_null(strstr(raw->error, "'p', 'q'"));
	attach.pool = kvw_text_of("q");
	assert_int_equal(kvt_raw_attach(raw, &attach), 0);
	kvt_must_check(raw);
	assert_int_equal(raw->answer.CHECK_OK.blocks, 65 + 64 + 65 + 32);
	kvt_raw_close(raw);
	kvt_daemon_stop(daemon);
}

int kvt_group_daemon(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(killed_daemons_socket_is_taken_over),
		cmocka_unit_test(second_daemon_is_refused),
		cmocka_unit_test(daemon_ends_in_order_with_open_sessions),
		cmocka_unit_test(socket_has_the_configured_mode),
		cmocka_unit_test(pools_are_told_apart_by_name),
	};

	return cmocka_run_group_tests_name("daemon", tests, NULL, NULL);
}
