/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conformance of the event loop: forgetting, from outside and from within callbacks.
 */
#include "loop_conform.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void forget_self(struct bell *bell)
{
	bell_forget(bell);
}

static void watch_forgets_itself_in_its_callback(void **state)
{
	struct bell bell;

	bell_open(*state, &bell);
	bell.hook = forget_self;
	bell_ring(&bell);
	bell_ring(&bell);
	settle(*state);
	bell_ring(&bell);
	assert_int_equal(settle(*state), 0);
	assert_int_equal(bell.rings, 1);
	bell_close(&bell);
}

#define CROWD 40

static void forget_all_others(struct bell *bell)
{
	struct bell *all = bell->hook_arg;

	for (int i = 0; i < CROWD; i++)
		if (&all[i] != bell)
			bell_forget(&all[i]);
}

/* All are ready in the same turn; whichever comes first forgets the rest. */
static void watch_forgets_others_that_are_ready_too(void **state)
{
	struct bell bells[CROWD];
	unsigned rings = 0;

	for (int i = 0; i < CROWD; i++) {
		bell_open(*state, &bells[i]);
		bells[i].hook = forget_all_others;
		bells[i].hook_arg = bells;
	}
	settle(*state);
	for (int i = 0; i < CROWD; i++)
		bell_ring(&bells[i]);
	settle(*state);
	for (int i = 0; i < CROWD; i++) {
		rings += bells[i].rings;
		bell_close(&bells[i]);
	}
	assert_int_equal(rings, 1);
}

static void forget_at_third(struct conn *conn, const uint8_t *bytes, int length)
{
	(void)bytes;
	(void)length;
	if (conn->messages == 3)
		conn_forget(conn);
}

static void connection_forgets_itself_with_messages_pending(void **state)
{
	struct conn conn;

	/* Often enough to show when what was received for nobody is not given back. */
	for (int round = 0; round < 20; round++) {
		conn_open(*state, &conn);
		conn.hook = forget_at_third;
		settle(*state);
		for (int i = 0; i < 50; i++)
			conn_send(&conn, "x", 1);
		conn_await_messages(&conn, 3);
		settle(*state);
		assert_int_equal(conn.messages, 3);
		conn_close(&conn);
	}
}

static void forget_at_end(struct conn *conn, const uint8_t *bytes, int length)
{
	(void)bytes;
	if (length <= 0)
		conn_forget(conn);
}

static void connection_forgets_itself_at_its_end(void **state)
{
	struct conn conn;

	for (int i = 0; i < 50; i++) {
		conn_open(*state, &conn);
		conn.hook = forget_at_end;
		conn_send(&conn, "x", 1);
		if (i % 2)
			settle(*state);
		close(conn.far_fd);
		conn.far_fd = -1;
		conn_await_end(&conn);
		conn_close(&conn);
	}
}

static void become_bell(struct conn *conn, const uint8_t *bytes, int length)
{
	(void)bytes;
	(void)length;
	conn_forget(conn);
	bell_open(conn->loop, conn->hook_arg);
}

/* What the loop kept of the connection may serve the bell: the connection's events must not. */
static void connection_gives_way_to_a_watch_in_its_callback(void **state)
{
	struct bell bell;
	struct conn conn;

	conn_open(*state, &conn);
	conn.hook = become_bell;
	conn.hook_arg = &bell;
	settle(*state);
	for (int i = 0; i < 5; i++)
		conn_send(&conn, "x", 1);
	conn_await_messages(&conn, 1);
	settle(*state);
	assert_int_equal(conn.messages, 1);
	assert_int_equal(bell.rings, 0);
	bell_close(&bell);
	conn_close(&conn);
}

/* ---- numbers used again ---- */

struct heir {
	struct bell bells[2];
	unsigned visits;
};

/* The other bell is ready as well: its number goes to a fresh, silent one. */
static void replace_other(struct bell *bell)
{
	struct heir *heir = bell->hook_arg;
	struct bell *other = &heir->bells[bell == &heir->bells[0]];
	int number = other->fd;

	if (heir->visits++)
		return;
	bell_close(other);
	bell_open(bell->loop, other);
	assert_int_equal(other->fd, number);
}

static void stale_events_do_not_reach_the_next_owner_of_a_number(void **state)
{
	for (int round = 0; round < 20; round++) {
		struct heir heir = {0};

		for (int i = 0; i < 2; i++) {
			bell_open(*state, &heir.bells[i]);
			heir.bells[i].hook = replace_other;
			heir.bells[i].hook_arg = &heir;
		}
		settle(*state);
		bell_ring(&heir.bells[0]);
		bell_ring(&heir.bells[1]);
		settle(*state);
		assert_int_equal(heir.bells[0].rings + heir.bells[1].rings, 1);
		for (int i = 0; i < 2; i++)
			bell_close(&heir.bells[i]);
	}
}

struct heir_conns {
	struct conn conns[2];
	unsigned replaced;
};

static void replace_other_conn(struct conn *conn, const uint8_t *bytes, int length)
{
	struct heir_conns *heir = conn->hook_arg;
	struct conn *other = &heir->conns[conn == &heir->conns[0]];
	int number = other->near_fd;

	(void)bytes;
	(void)length;
	if (heir->replaced++)
		return;
	conn_close(other);
	conn_open(conn->loop, other);
	assert_int_equal(other->near_fd < number ? other->far_fd : other->near_fd, number);
}

static void stale_messages_do_not_reach_the_next_owner_of_a_number(void **state)
{
	for (int round = 0; round < 20; round++) {
		struct heir_conns heir = {0};

		for (int i = 0; i < 2; i++) {
			conn_open(*state, &heir.conns[i]);
			heir.conns[i].hook = replace_other_conn;
			heir.conns[i].hook_arg = &heir;
		}
		settle(*state);
		conn_send(&heir.conns[0], "old", 3);
		conn_send(&heir.conns[1], "old", 3);
		settle(*state);
		assert_int_equal(heir.conns[0].messages + heir.conns[1].messages, 1);
		for (int i = 0; i < 2; i++) { /* the fresh one works, too */
			unsigned before = heir.conns[i].messages;

			conn_send(&heir.conns[i], "new", 3);
			conn_await_messages(&heir.conns[i], before + 1);
			conn_close(&heir.conns[i]);
		}
	}
}

/* Forgotten before the kernel heard of it: what it was to do must not happen to the next owner. */
static void request_not_yet_submitted_does_not_touch_the_next_owner(void **state)
{
	struct conn conn;
	char byte;
	int fds[2];

	conn_open(*state, &conn);
	conn_close(&conn);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	assert_int_equal(fds[0], conn.near_fd);
	assert_int_equal(send(fds[1], "x", 1, 0), 1);
	assert_int_equal(settle(*state), 0);
	assert_int_equal(recv(fds[0], &byte, 1, MSG_DONTWAIT), 1);
	close(fds[0]);
	close(fds[1]);
}

/* ---- the kernel lets go ---- */

static void assert_peer_sees_the_end(struct kvd_loop *loop, struct conn *conn)
{
	struct pollfd far_end = {.fd = conn->far_fd};

	/* The near end closes at once on epoll, with the next submission on io_uring. */
	settle(loop);
	assert_int_equal(poll(&far_end, 1, 0), 1);
	assert_true(far_end.revents & POLLHUP);
	close(conn->far_fd);
}

static void forgotten_and_closed_connection_ends_for_its_peer(void **state)
{
	struct conn conn;

	for (int armed = 0; armed < 2; armed++) {
		conn_open(*state, &conn);
		if (armed)
			settle(*state);
		conn_forget(&conn);
		close(conn.near_fd);
		assert_peer_sees_the_end(*state, &conn);
	}
}

/* The same for one that is busy when it is forgotten, as a flooding peer's is. */
static void forgotten_and_closed_flooder_ends_for_its_peer(void **state)
{
	struct conn conn;

	for (int turns = 0; turns < 6; turns++) {
		conn_open(*state, &conn);
		for (int i = 0; i < turns; i++) {
			while (conn_try_send(&conn, "f", 1))
				;
			assert_true(kvd_loop_turn(*state, 0) >= 0);
		}
		while (conn_try_send(&conn, "f", 1))
			;
		conn_forget(&conn);
		close(conn.near_fd);
		assert_peer_sees_the_end(*state, &conn);
	}
}

static void forget_listener(void *arg, int fd)
{
	struct bell *listener = arg;

	listener->rings++;
	close(fd);
	bell_forget(listener);
}

static void listener_forgotten_in_its_callback_leaks_no_connection(void **state)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	socklen_t length = sizeof(sa_family_t);
	struct bell listener = {.loop = *state};
	int clients[20];

	listener.fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_int_equal(bind(listener.fd, (struct sockaddr *)&address, length), 0); /* autobind */
	assert_int_equal(listen(listener.fd, 20), 0);
	length = sizeof(address);
	assert_int_equal(getsockname(listener.fd, (struct sockaddr *)&address, &length), 0);
	assert_int_equal(kvd_loop_listen(*state, listener.fd, forget_listener, &listener, &listener.watch),
			 0);
	settle(*state);
	for (int i = 0; i < 20; i++) {
		clients[i] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
		assert_int_equal(connect(clients[i], (struct sockaddr *)&address, length), 0);
	}
	settle(*state);
	assert_int_equal(listener.rings, 1);
	for (int i = 0; i < 20; i++)
		close(clients[i]);
	close(listener.fd); /* the teardown counts descriptors */
}

#define LIMIT 8

static void never(void *arg)
{
	(void)arg;
	fail_msg("a silent descriptor was delivered");
}

static void watches_come_and_go_within_the_limit(void **state)
{
	struct kvd_watch *watches[LIMIT];
	struct kvd_watch *extra;
	struct kvd_loop *loop;
	int fds[LIMIT];

	(void)state;
	assert_int_equal(conform_open(LIMIT, &loop), 0);
	for (int i = 0; i < LIMIT; i++)
		fds[i] = eventfd(0, EFD_CLOEXEC);
	for (int round = 0; round < 2000; round++) {
		for (int i = 0; i < LIMIT; i++)
			assert_int_equal(kvd_loop_watch(loop, fds[i], never, NULL, &watches[i]), 0);
		assert_int_equal(kvd_loop_watch(loop, fds[0], never, NULL, &extra), -ENOSPC);
		if (round % 2)
			assert_int_equal(kvd_loop_turn(loop, 0), 0);
		for (int i = 0; i < LIMIT; i++)
			kvd_loop_forget(loop, watches[i]);
		if (round % 4 < 2)
			assert_int_equal(kvd_loop_turn(loop, 0), 0);
	}
	kvd_loop_close(loop);
	for (int i = 0; i < LIMIT; i++)
		close(fds[i]);
}

int run_forget_tests(void)
{
	const struct CMUnitTest tests[] = {
		CONFORM_TEST(watch_forgets_itself_in_its_callback),
		CONFORM_TEST(watch_forgets_others_that_are_ready_too),
		CONFORM_TEST(connection_forgets_itself_with_messages_pending),
		CONFORM_TEST(connection_gives_way_to_a_watch_in_its_callback),
		CONFORM_TEST(connection_forgets_itself_at_its_end),
		CONFORM_TEST(stale_events_do_not_reach_the_next_owner_of_a_number),
		CONFORM_TEST(stale_messages_do_not_reach_the_next_owner_of_a_number),
		CONFORM_TEST(request_not_yet_submitted_does_not_touch_the_next_owner),
		CONFORM_TEST(forgotten_and_closed_connection_ends_for_its_peer),
		CONFORM_TEST(forgotten_and_closed_flooder_ends_for_its_peer),
		CONFORM_TEST(listener_forgotten_in_its_callback_leaks_no_connection),
		CONFORM_TEST(watches_come_and_go_within_the_limit),
	};

	return cmocka_run_group_tests_name("forgetting", tests, NULL, NULL);
}
