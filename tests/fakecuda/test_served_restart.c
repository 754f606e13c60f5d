/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon is killed under two engines. Device memory that they map outlives it, so the next daemon waits for
 * room, and says for whom; when they have let go, both are served anew.
 */
#include "served.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void wait_for_word(void)
{
	char byte;

	kvt_cuda_receive(KVT_CUDA_ROLE_SOCKET, &byte, 1, NULL);
}

static void tell(uint64_t number)
{
	kvt_cuda_send(KVT_CUDA_ROLE_SOCKET, &number, sizeof(number), -1);
}

static uint64_t hear(int role_socket)
{
	uint64_t number;

	kvt_cuda_receive(role_socket, &number, sizeof(number), NULL);
	return number;
}

/* The role "engine": is one, lets go when it is told, and is one again, with a block that its device writes. */
static int engine_role(void)
{
	struct served_engine engine;
	uint64_t before;
	uint32_t word = 0;

	fixture_setup(NULL);
	engine = served_attach(served_of_role());
	before = engine.raw->incarnation;
	tell(before);
	wait_for_word();
	/* The mapping still works; what is in it is nobody's any more. */
	fill_words(engine.pointer, 5, 1);
	served_detach(&engine);
	tell(0);
	wait_for_word();
	engine = served_attach(served_of_role());
	assert_true(engine.raw->incarnation != before);
	assert_int_equal(kvt_open(engine.raw, 0, (uint64_t)getpid(), 2, 2).granted, 2);
	fill_words(served_block(&engine, kvt_answers(engine.raw, 0)[0].id), 6, SERVED_BLOCK_WORDS);
	read_words(served_block(&engine, kvt_answers(engine.raw, 0)[0].id), &word, 1);
	tell(word);
	served_detach(&engine);
	fixture_teardown(NULL);
	return 0;
}

/*
 * Guards look_who_is_left() in populate.c and register_importer() in session_attach.c: without the one
 * the daemon gives up its pool, without the other it knows nobody to wait for.
 */
static void run(const char *share)
{
	char share_option[64];
	const char *options[] = {SERVED_LARGE_POOL, share_option, "--set=pool.p.device_grace_ms=0", NULL};
	struct kvt_daemon *daemon;
	int sockets[2];
	char line[64];
	pid_t pids[2];
	int i;

	snprintf(share_option, sizeof(share_option), "--set=pool.p.share=%s", share);
	daemon = kvt_daemon_start(options);
	setenv(SERVED_SOCKET, daemon->socket, 1);
	for (i = 0; i < 2; i++)
		pids[i] = kvt_cuda_spawn("engine", NULL, &sockets[i]);
	for (i = 0; i < 2; i++)
		assert_int_not_equal(hear(sockets[i]), 0);
	assert_int_equal(kill(daemon->pid, SIGKILL), 0);
	assert_int_equal(kvt_daemon_wait(daemon), SIGKILL);
	kvt_daemon_launch_again(daemon, options);
	for (i = 0; i < 2; i++) {
		snprintf(line, sizeof(line), "process %d (196.", (int)pids[i]);
		assert_true(kvt_daemon_logged(daemon, line));
	}
	assert_true(kvt_daemon_logged(daemon, "2 processes of an earlier daemon may still map"));
	for (i = 0; i < 2; i++) {
		kvt_cuda_send(sockets[i], "", 1, -1);
		assert_int_equal(hear(sockets[i]), 0);
	}
	kvt_daemon_wait_ready(daemon);
	for (i = 0; i < 2; i++)
		kvt_cuda_send(sockets[i], "", 1, -1);
	for (i = 0; i < 2; i++) {
		assert_int_equal(hear(sockets[i]), 6);
		assert_int_equal(kvt_cuda_reap(pids[i]), 0);
		close(sockets[i]);
	}
	kvt_daemon_stop(daemon);
}

static void engines_of_a_killed_daemon_are_awaited_by_handle(void **state)
{
	(void)state;
	run("ipc");
}

static void engines_of_a_killed_daemon_are_awaited_by_descriptors(void **state)
{
	(void)state;
	run("fd");
}

static bool small_pool_is_ready(void *arg)
{
	const struct kvw_msg_POOL pool = {.name = kvw_text_of("small")};
	struct kvt_raw *admin = arg;

	return !kvt_raw_ask(admin, KVW_MSG_POOL, &pool) && admin->answer.POOL_OK.ready;
}

static bool hangs(void *arg)
{
	return kvt_cuda_hanging(*(pid_t *)arg) > 0;
}

static bool health_names(struct kvt_raw *admin, pid_t pid)
{
	const struct kvw_msg_STATUS request = {.unused = 0};
	char health[KVW_MAX_TEXT_BYTES + 1];
	char name[64];

	assert_int_equal(kvt_raw_ask(admin, KVW_MSG_STATUS, &request), 0);
	kvw_text_copy(admin->answer.STATUS_OK.health, health, sizeof(health));
	snprintf(name, sizeof(name), "process %d (196.", (int)pid);
	return strstr(health, "pool 'p' waits for room") && strstr(health, name);
}

/*
 * Guards await_room(), by which the worker is free between two tries: a small pool of the same device is populated while the large one waits. And
 * describe_populating(): health is told from the last try, with no look of the loop's own at who lives.
 */
static void the_wait_for_room_keeps_no_other_pool_waiting(void **state)
{
	static const char *const before[] = {SERVED_LARGE_POOL, "--set=pool.p.share=fd", NULL};
	static const char *const after[] = {SERVED_LARGE_POOL,
					    "--set=pool.p.share=fd",
					    "--set=pool.small.blocks=8",
					    "--set=pool.small.block_tokens=16",
					    "--set=pool.small.planes=k f16 1x128",
					    "--set=pool.small.devices=cuda:0",
					    NULL};
	struct kvt_daemon *daemon = kvt_daemon_start(before);
	struct kvt_raw *admin;
	int role_socket;
	pid_t pid;

	(void)state;
	setenv(SERVED_SOCKET, daemon->socket, 1);
	pid = kvt_cuda_spawn("engine", NULL, &role_socket);
	hear(role_socket);
	assert_int_equal(kill(daemon->pid, SIGKILL), 0);
	assert_int_equal(kvt_daemon_wait(daemon), SIGKILL);
	kvt_daemon_launch_again(daemon, after);
	assert_true(kvt_daemon_logged(daemon, "1 process of an earlier daemon may still map"));
	admin = kvt_raw_hello(daemon);
	kvt_wait_until(small_pool_is_ready, admin);
	assert_true(health_names(admin, pid));
	kvt_cuda_hang(daemon->pid, "cuMemGetInfo");
	kvt_wait_until(hangs, &daemon->pid);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(kvt_cuda_reap(pid), 128 + SIGKILL);
	assert_true(health_names(admin, pid));
	kvt_cuda_hang(daemon->pid, NULL);
	kvt_daemon_wait_ready(daemon);
	assert_false(health_names(admin, pid));
	close(role_socket);
	kvt_raw_close(admin);
	kvt_daemon_stop(daemon);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(engines_of_a_killed_daemon_are_awaited_by_handle),
		cmocka_unit_test(engines_of_a_killed_daemon_are_awaited_by_descriptors),
		cmocka_unit_test(the_wait_for_room_keeps_no_other_pool_waiting),
	};

	(void)argc;
	/* One large pool fits, two don't. */
	setenv("FAKECUDA_MEMORY_MIB", "256", 0);
	kvt_cuda_start(argv);
	kvt_watchdog(120);
	if (kvt_cuda_role())
		return engine_role();
	return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
