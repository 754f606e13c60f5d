/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conformance of the event loop: callbacks that take long. A turn ends by the clock; what it did not come to
 * is delivered by the next ones, once, and nobody starves.
 */
#include "loop_conform.h"

#include "daemon/loop_ops.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define EACH 20
/* Two of them are more than a turn's time. */
#define DEAR_US 60u
#define MOST_IN_TURN (KVD_DELIVER_US / DEAR_US + 1)
#define PATIENCE_TURNS 400

static void take_long(void)
{
	uint64_t until_ns = kvt_now_ns() + DEAR_US * 1000u;

	while (kvt_now_ns() < until_ns)
		;
}

static void on_bytes(struct conn *conn, const uint8_t *bytes, int length)
{
	(void)conn;
	(void)bytes;
	(void)length;
	take_long();
}

static void on_bell(struct bell *bell)
{
	(void)bell;
	take_long();
}

/* Turns until so many callbacks came, few in each. */
static void deliver_in_small_turns(struct kvd_loop *loop, int callbacks)
{
	int turns = 0;

	while (callbacks > 0) {
		int ret = kvd_loop_turn(loop, 0);

		assert_in_range(ret, 0, MOST_IN_TURN);
		assert_true(++turns < PATIENCE_TURNS);
		callbacks -= ret;
	}
	assert_int_equal(callbacks, 0);
}

static void dear_callbacks_end_a_turn_and_none_is_lost(void **state)
{
	struct conn conns[EACH];
	struct bell bells[EACH];

	for (int i = 0; i < EACH; i++) {
		conn_open(*state, &conns[i]);
		bell_open(*state, &bells[i]);
		conns[i].hook = on_bytes;
		bells[i].hook = on_bell;
	}
	settle(*state);
	for (int i = 0; i < EACH; i++) {
		conn_send(&conns[i], "x", 1);
		bell_ring(&bells[i]);
	}
	deliver_in_small_turns(*state, 2 * EACH);
	assert_int_equal(settle(*state), 0);
	for (int i = 0; i < EACH; i++) {
		assert_int_equal(conns[i].messages, 1);
		assert_int_equal(bells[i].rings, 1);
		conn_close(&conns[i]);
		bell_close(&bells[i]);
	}
}

/* What waits for the next turn may be forgotten before. */
static void what_is_forgotten_between_two_turns_is_not_called(void **state)
{
	struct bell bells[EACH];

	for (int i = 0; i < EACH; i++) {
		bell_open(*state, &bells[i]);
		bells[i].hook = on_bell;
	}
	settle(*state);
	for (int i = 0; i < EACH; i++)
		bell_ring(&bells[i]);
	assert_in_range(kvd_loop_turn(*state, LONG_US), 1, MOST_IN_TURN);
	for (int i = 0; i < EACH; i++)
		bell_close(&bells[i]);
	assert_int_equal(settle(*state), 0);
}

struct acceptor {
	int fds[EACH];
	int count;
};

static void on_accept(void *arg, int fd)
{
	struct acceptor *acceptor = arg;

	assert_true(acceptor->count < EACH);
	acceptor->fds[acceptor->count++] = fd;
	take_long();
}

/* Listens on a name that the kernel chooses. */
static int hear(struct sockaddr_un *address, socklen_t *length)
{
	int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	assert_true(listener >= 0);
	*address = (struct sockaddr_un){.sun_family = AF_UNIX};
	assert_int_equal(bind(listener, (struct sockaddr *)address, sizeof(address->sun_family)), 0);
	assert_int_equal(listen(listener, EACH), 0);
	*length = sizeof(*address);
	assert_int_equal(getsockname(listener, (struct sockaddr *)address, length), 0);
	return listener;
}

static int call(const struct sockaddr_un *address, socklen_t length)
{
	int client = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	assert_true(client >= 0);
	assert_int_equal(connect(client, (const struct sockaddr *)address, length), 0);
	return client;
}

static void storm_of_connections_is_accepted_in_small_turns(void **state)
{
	struct acceptor acceptor = {.count = 0};
	struct sockaddr_un address;
	socklen_t length;
	int listener = hear(&address, &length);
	struct kvd_watch *watch;
	int clients[EACH];

	assert_int_equal(kvd_loop_listen(*state, listener, on_accept, &acceptor, &watch), 0);
	settle(*state);
	for (int i = 0; i < EACH; i++)
		clients[i] = call(&address, length);
	deliver_in_small_turns(*state, EACH);
	assert_int_equal(acceptor.count, EACH);
	kvd_loop_forget(*state, watch);
	close(listener);
	for (int i = 0; i < EACH; i++) {
		close(acceptor.fds[i]);
		close(clients[i]);
	}
	settle(*state);
}

static void send_another(struct conn *conn, const uint8_t *bytes, int length)
{
	on_bytes(conn, bytes, length);
	while (conn_try_send(conn, "more", 4))
		;
}

static void quiet_peer_is_heard_beside_a_dear_flood(void **state)
{
	struct conn flood;
	struct conn quiet;
	int turns = 0;

	conn_open(*state, &flood);
	conn_open(*state, &quiet);
	settle(*state);
	flood.hook = send_another;
	conn_send(&flood, "more", 4);
	for (int i = 0; i < 10; i++)
		kvd_loop_turn(*state, 0);
	conn_send(&quiet, "x", 1);
	while (!quiet.messages) {
		assert_in_range(kvd_loop_turn(*state, 0), 0, MOST_IN_TURN);
		assert_true(++turns < PATIENCE_TURNS);
	}
	conn_close(&flood);
	conn_close(&quiet);
	settle(*state);
}

int run_time_tests(void)
{
	const struct CMUnitTest tests[] = {
		CONFORM_TEST(dear_callbacks_end_a_turn_and_none_is_lost),
		CONFORM_TEST(what_is_forgotten_between_two_turns_is_not_called),
		CONFORM_TEST(storm_of_connections_is_accepted_in_small_turns),
		CONFORM_TEST(quiet_peer_is_heard_beside_a_dear_flood),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
