/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's own life: its socket, its end, its next run.
 */
#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
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

/* Another daemon on this one's socket, with its log, as `uid`; its exit status. */
static int run_second(struct kvt_daemon *daemon, uid_t uid)
{
	struct kvt_daemon second = *daemon;
	char socket[200] = "--socket=";
	int status;

	second.pid = fork();
	if (!second.pid) {
		strcat(socket, daemon->socket);
		freopen(daemon->log, "a", stderr);
		if (setgroups(0, NULL) && geteuid() == 0)
			_exit(126);
		if (setresuid(uid, uid, uid))
			_exit(126);
		execl(KVT_KVPOOLD, KVT_KVPOOLD, "--config=/dev/null", socket, KVT_SMALL_POOL, NULL);
		_exit(127);
	}
	status = kvt_daemon_wait(&second);
	daemon->ready_fd = -1;
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void second_daemon_is_refused(void **state)
{
	struct kvt_daemon *daemon = kvt_daemon_start(small);

	(void)state;
	assert_int_equal(run_second(daemon, getuid()), 1);
	assert_true(kvt_daemon_logged(daemon, "another kvpoold serves it"));
	kvt_raw_close(kvt_raw_hello(daemon));
	kvt_daemon_stop(daemon);
}

/* A socket at the path of a daemon that has ended; not of a daemon's kind. */
static int bind_foreign(const struct kvt_daemon *daemon, int type)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

	strcpy(address.sun_path, daemon->socket);
	assert_return_code(fd, errno);
	assert_return_code(bind(fd, (struct sockaddr *)&address, sizeof(address)), errno);
	return fd;
}

static struct kvt_daemon *ended_daemon(void)
{
	struct kvt_daemon *daemon = kvt_daemon_start(small);

	kill(daemon->pid, SIGTERM);
	assert_int_equal(kvt_daemon_wait(daemon), 0);
	return daemon;
}

/*
 * What a killed daemon's io_uring held the kernel closes a moment after the process's end: its socket is answered on until then. Guards the wait in
 * ask_for_owner() (listener.c).
 */
static void a_socket_that_closes_while_it_is_asked_is_taken_over(void **state)
{
	struct kvt_daemon *daemon = ended_daemon();
	int foreign = bind_foreign(daemon, SOCK_SEQPACKET);
	int asked;

	(void)state;
	assert_return_code(listen(foreign, 1), errno);
	kvt_daemon_launch_again(daemon, small);
	asked = accept(foreign, NULL, NULL);
	assert_return_code(asked, errno);
	close(foreign);
	close(asked);
	kvt_daemon_wait_ready(daemon);
	kvt_daemon_stop(daemon);
}

static void other_programs_live_socket_is_left_alone(void **state)
{
	struct kvt_daemon *daemon = ended_daemon();
	int foreign = bind_foreign(daemon, SOCK_STREAM);
	struct stat before;
	struct stat after;

	(void)state;
	assert_return_code(listen(foreign, 1), errno);
	assert_return_code(stat(daemon->socket, &before), errno);
	assert_int_equal(run_second(daemon, getuid()), 1);
	assert_true(kvt_daemon_logged(daemon, "another process answers on it"));
	assert_return_code(stat(daemon->socket, &after), errno);
	assert_int_equal(after.st_ino, before.st_ino);
	close(foreign);
	kvt_daemon_kill(daemon);
}

static void stale_socket_that_cannot_be_removed_is_named(void **state)
{
	struct kvt_daemon *daemon = ended_daemon();

	(void)state;
	if (geteuid()) {
		kvt_daemon_kill(daemon);
		skip();
	}
	close(bind_foreign(daemon, SOCK_STREAM));
	assert_return_code(chmod(daemon->dir, 01777), errno);
	assert_return_code(chmod(daemon->socket, 0666), errno);
	assert_int_equal(run_second(daemon, 65533), 1);
	assert_true(kvt_daemon_logged(daemon, "(of uid 0) can't be removed: Operation not permitted"));
	kvt_daemon_kill(daemon);
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
		cmocka_unit_test(other_programs_live_socket_is_left_alone),
		cmocka_unit_test(a_socket_that_closes_while_it_is_asked_is_taken_over),
		cmocka_unit_test(stale_socket_that_cannot_be_removed_is_named),
		cmocka_unit_test(daemon_ends_in_order_with_open_sessions),
		cmocka_unit_test(socket_has_the_configured_mode),
		cmocka_unit_test(pools_are_told_apart_by_name),
	};

	return cmocka_run_group_tests_name("daemon", tests, NULL, NULL);
}
