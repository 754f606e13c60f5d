/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's end in the middle of something: the server in the test's process, turned by hand, so that it
 * ends exactly there.
 */
#include "raw.h"

#include "daemon/session.h"

#include <errno.h>
#include <poll.h>
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
	assert_int_equal(kvd_server_open(&scene.config, &scene.server), 0);
	while (!kvd_server_ready(scene.server))
		turn(&scene);
	*state = &scene;
	return 0;
}

/* The end is the test: it left no descriptor. */
static int close_scene(void **state)
{
	struct scene *scene = *state;
	int i;

	kvd_server_close(scene->server);
	for (i = 0; i < ENGINES; i++)
		kvt_raw_close(scene->raws[i]);
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

static struct kvt_raw *attach(struct scene *scene)
{
	const struct kvw_msg_HELLO hello = kvt_hello_message();
	const struct kvw_msg_ATTACH attach = kvt_attach_message();
	struct kvt_raw *raw = kvt_raw_connect(&scene->daemon);

	ask(scene, raw, KVW_MSG_HELLO, &hello);
	ask(scene, raw, KVW_MSG_ATTACH, &attach);
	return raw;
}

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

static void while_descriptors_of_a_pool_wait_to_be_made(void **state)
{
	ask_all_for_descriptors(*state);
}

/* The worker has made them, and the loop does not know it yet. */
static void while_descriptors_of_a_pool_are_made(void **state)
{
	struct scene *scene = *state;
	struct pollfd event = {.events = POLLIN};

	ask_all_for_descriptors(scene);
	scene->server->pools[0].locks.proofs.next_us = 0;
	turn(scene);
	event.fd = kvd_worker_fd(scene->server->workers[KVD_WORKER_LOCKS].worker);
	assert_int_equal(poll(&event, 1, -1), 1);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, open_scene, close_scene)
	const struct CMUnitTest tests[] = {
		T(while_descriptors_of_a_pool_wait_to_be_made),
		T(while_descriptors_of_a_pool_are_made),
	};

	kvt_watchdog(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
