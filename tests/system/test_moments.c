/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moments that no client can choose: the server in the test's process, turned by hand, so that it is exactly
 * there.
 */
#include "raw.h"

#include "daemon/session.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#define ENGINES 3

struct scene {
	char *dir;
	int fds;
	struct kvt_daemon daemon; /* its socket is all that clients need */
	struct kvd_config config;
	struct kvd_server *server;
	struct kvt_raw *raws[ENGINES];
};

static void turn(struct scene *scene)
{
	/* So that it looks and does not wait. */
	scene->server->busy = true;
	assert_int_equal(kvd_server_turn(scene->server), 0);
}

static void close_raw(struct scene *scene, int i)
{
	if (scene->raws[i])
		kvt_raw_close(scene->raws[i]);
	scene->raws[i] = NULL;
}

static int open_scene(void **state)
{
	static struct scene scene;
	char socket[176];
	char *arguments[] = {"kvpoold",
			     "--config=/dev/null",
			     socket,
			     "--event-loop=epoll",
			     "--set=pool.p.blocks=64",
			     "--set=pool.p.block_tokens=16",
			     "--set=pool.p.planes=k f16 1x8",
			     "--set=pool.p.pages=4k",
			     NULL};
	char error[512];

	scene = (struct scene){.fds = kvt_count_fds(), .dir = kvt_mkdtemp()};
	snprintf(scene.daemon.socket, sizeof(scene.daemon.socket), "%s/sock", scene.dir);
	snprintf(socket, sizeof(socket), "--socket=%s", scene.daemon.socket);
	assert_int_equal(kvd_config_load((int)(sizeof(arguments) / sizeof(arguments[0])) - 1, arguments,
					 &scene.config, error, sizeof(error)),
			 0);
	/* What is left to a poll would come too late. */
	scene.config.poll_ms = 60000;
	assert_int_equal(kvd_server_open(&scene.config, &scene.server), 0);
	while (!kvd_server_ready(scene.server))
		turn(&scene);
	*state = &scene;
	return 0;
}

/* The end is part of each test: it left no descriptor. */
static int close_scene(void **state)
{
	struct scene *scene = *state;
	int i;

	kvd_server_close(scene->server);
	for (i = 0; i < ENGINES; i++)
		close_raw(scene, i);
	kvd_config_free(&scene->config);
	kvt_rmdir(scene->dir);
	assert_int_equal(kvt_count_fds(), scene->fds);
	return 0;
}

static bool is_readable(int fd)
{
	struct pollfd event = {.fd = fd, .events = POLLIN};

	assert_return_code(poll(&event, 1, 0), errno);
	return event.revents;
}

static void ask(struct scene *scene, struct kvt_raw *raw, uint32_t type, const void *message)
{
	kvt_raw_send_message(raw, type, message);
	while (!is_readable(raw->fd))
		turn(scene);
	assert_int_equal(kvt_raw_receive(raw), type + 1);
}

static struct kvt_raw *greet(struct scene *scene)
{
	const struct kvw_msg_HELLO hello = kvt_hello_message();
	struct kvt_raw *raw = kvt_raw_connect(&scene->daemon);

	ask(scene, raw, KVW_MSG_HELLO, &hello);
	return raw;
}

static struct kvt_raw *attach(struct scene *scene)
{
	const struct kvw_msg_ATTACH attach = kvt_attach_message();
	struct kvt_raw *raw = greet(scene);

	ask(scene, raw, KVW_MSG_ATTACH, &attach);
	return raw;
}

/* -------------------------------------------------------------- the end */

/* What the queue holds back until it is let go. */
static bool all_queued(const struct kvd_server *server)
{
	const struct kvd_session *session;

	for (session = server->first; session; session = session->next) {
		if (!session->attachment->lock.queued)
			return false;
	}
	return true;
}

static void ask_all_for_descriptors(struct scene *scene)
{
	const struct kvw_msg_FDS request = {.first = 0};
	int i;

	for (i = 0; i < ENGINES; i++)
		scene->raws[i] = attach(scene);
	scene->server->pools[0].locks.proofs.next_us = UINT64_MAX;
	for (i = 0; i < ENGINES; i++)
		kvt_raw_send_message(scene->raws[i], KVW_MSG_FDS, &request);
	while (!all_queued(scene->server))
		turn(scene);
}

static void ends_while_descriptors_of_a_pool_wait_to_be_made(void **state)
{
	ask_all_for_descriptors(*state);
}

/* The worker has made them, and the loop does not know it yet. */
static void ends_while_descriptors_of_a_pool_are_made(void **state)
{
	struct scene *scene = *state;
	struct pollfd event = {.events = POLLIN};

	ask_all_for_descriptors(scene);
	scene->server->pools[0].locks.proofs.next_us = 0;
	turn(scene);
	event.fd = kvd_worker_fd(scene->server->workers[KVD_WORKER_LOCKS].worker);
	assert_int_equal(poll(&event, 1, -1), 1);
}

/* -------------------------------------------------------------- the worker's queue */

static int wait_for_go(void *arg, const _Atomic int *cancel)
{
	while (!atomic_load((_Atomic int *)arg) && !*cancel)
		sched_yield();
	return 0;
}

static void ignore(void *arg, int result)
{
	(void)arg;
	(void)result;
}

/* Of a worker that makes no step before `go`. */
static void fill_queue(struct kvd_worker *worker, _Atomic int *go)
{
	while (!kvd_worker_submit(worker, "test", wait_for_go, ignore, go))
		;
}

/* Else clients that attach and end could make segments faster than they are freed. */
static void what_is_freed_goes_before_what_is_made(void **state)
{
	static _Atomic int go;
	const struct kvw_msg_ATTACH attach_message = kvt_attach_message();
	struct scene *scene = *state;
	struct kvd_server *server = scene->server;
	const struct kvd_session *other;

	scene->raws[0] = attach(scene);
	scene->raws[1] = greet(scene);
	other = server->last;
	fill_queue(server->workers[KVD_WORKER_SEGMENTS].worker, &go);
	close_raw(scene, 0);
	while (!server->unfreed)
		turn(scene);
	kvt_raw_send_message(scene->raws[1], KVW_MSG_ATTACH, &attach_message);
	while (!other->waiting)
		turn(scene);
	atomic_store(&go, 1);
	while (!other->attach_memory && !other->attachment)
		turn(scene);
	assert_null(server->unfreed);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, open_scene, close_scene)
	const struct CMUnitTest tests[] = {
		T(ends_while_descriptors_of_a_pool_wait_to_be_made),
		T(ends_while_descriptors_of_a_pool_are_made),
		T(what_is_freed_goes_before_what_is_made),
	};

	kvt_watchdog(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
