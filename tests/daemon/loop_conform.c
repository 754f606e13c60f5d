/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One suite for every backend of the event loop: loop_conform LANE, where LANE is
 * io_uring, io_uring_plain, io_uring_one_shot (as on a kernel without multishot requests)
 * or epoll. Exit 77 when the kernel does not grant it.
 */
#include "loop_conform.h"

#include "daemon/loop_ops.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

static const char *lane_name;

static const struct kvd_loop_lane one_shot = {"io_uring_one_shot", &kvd_loop_uring_ops,
					      KVD_URING_DEFER | KVD_URING_ONE_SHOT};

static enum kvd_loop_backend backend_of(const char *name)
{
	if (!strcmp(name, "io_uring"))
		return KVD_LOOP_IO_URING;
	return strcmp(name, "epoll") ? KVD_LOOP_IO_URING_PLAIN : KVD_LOOP_EPOLL;
}

int conform_open(uint32_t max_watches, struct kvd_loop **out)
{
	struct kvd_loop_params params = {
		.backend = backend_of(lane_name),
		.max_watches = max_watches,
		.max_message_bytes = MAX_MESSAGE,
	};

	if (!strcmp(lane_name, one_shot.name))
		return kvd_loop_open_lane(&one_shot, &params, out);
	return kvd_loop_open(&params, out);
}

static int fds_before;

int conform_setup(void **state)
{
	struct kvd_loop *loop;

	fds_before = kvt_count_fds();
	assert_int_equal(conform_open(512, &loop), 0);
	*state = loop;
	return 0;
}

int conform_teardown(void **state)
{
	kvd_loop_close(*state);
	assert_int_equal(kvt_count_fds(), fds_before);
	return 0;
}

/* ---- connections ---- */

static void on_message(void *arg, const uint8_t *bytes, int length)
{
	struct conn *conn = arg;

	assert_non_null(conn->watch);
	assert_int_equal(conn->ends, 0);
	if (length > 0)
		conn->messages++;
	else
		conn->ends++;
	conn->in_turn++;
	conn->last = length;
	if (conn->hook)
		conn->hook(conn, bytes, length);
}

void conn_receive(struct conn *conn)
{
	assert_int_equal(kvd_loop_receive(conn->loop, conn->near_fd, on_message, conn, &conn->watch), 0);
}

void conn_open(struct kvd_loop *loop, struct conn *conn)
{
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
	*conn = (struct conn){.loop = loop, .near_fd = fds[0], .far_fd = fds[1]};
	conn_receive(conn);
}

void conn_forget(struct conn *conn)
{
	struct kvd_watch *watch = conn->watch;

	if (!watch)
		return;
	conn->watch = NULL;
	kvd_loop_forget(conn->loop, watch);
}

void conn_close(struct conn *conn)
{
	conn_forget(conn);
	close(conn->near_fd);
	if (conn->far_fd >= 0)
		close(conn->far_fd);
}

bool conn_try_send(struct conn *conn, const void *bytes, size_t length)
{
	ssize_t sent = send(conn->far_fd, bytes, length, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (sent < 0) {
		assert_int_equal(errno, EAGAIN);
		return false;
	}
	assert_int_equal(sent, length);
	return true;
}

void conn_send(struct conn *conn, const void *bytes, size_t length)
{
	assert_true(conn_try_send(conn, bytes, length));
}

void conn_await_messages(struct conn *conn, unsigned count)
{
	while (conn->messages < count)
		assert_true(kvd_loop_turn(conn->loop, LONG_US) >= 0);
}

void conn_await_end(struct conn *conn)
{
	while (!conn->ends)
		assert_true(kvd_loop_turn(conn->loop, LONG_US) >= 0);
}

int settle(struct kvd_loop *loop)
{
	int callbacks = 0;
	int ret;

	do {
		/* Not 0: what the loop does for itself may take a turn without callbacks. */
		ret = kvd_loop_turn(loop, 2000);
		assert_true(ret >= 0);
		callbacks += ret;
	} while (ret > 0);
	return callbacks;
}

/* ---- bells ---- */

static void on_ring(void *arg)
{
	struct bell *bell = arg;

	assert_non_null(bell->watch);
	bell->rings++;
	if (bell->hook)
		bell->hook(bell);
}

void bell_watch(struct bell *bell)
{
	assert_int_equal(kvd_loop_watch(bell->loop, bell->fd, on_ring, bell, &bell->watch), 0);
}

void bell_open(struct kvd_loop *loop, struct bell *bell)
{
	*bell = (struct bell){.loop = loop, .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
	assert_true(bell->fd >= 0);
	bell_watch(bell);
}

void bell_forget(struct bell *bell)
{
	struct kvd_watch *watch = bell->watch;

	if (!watch)
		return;
	bell->watch = NULL;
	kvd_loop_forget(bell->loop, watch);
}

void bell_close(struct bell *bell)
{
	bell_forget(bell);
	close(bell->fd);
}

void bell_ring(struct bell *bell)
{
	assert_int_equal(eventfd_write(bell->fd, 1), 0);
}

/* ---- main ---- */

static void usage(void)
{
	fprintf(stderr, "usage: loop_conform io_uring|io_uring_plain|io_uring_one_shot|epoll\n");
}

int main(int argc, char **argv)
{
	struct kvd_loop *loop;
	int ret;

	if (argc != 2) {
		usage();
		return 2;
	}
	lane_name = argv[1];
	kvt_watchdog(100);
	ret = conform_open(512, &loop);
	if (ret < 0) {
		fprintf(stderr, "%s is not granted here: %s\n", lane_name, strerror(-ret));
		return KVT_SKIP;
	}
	if (strcmp(kvd_loop_name(loop), lane_name)) {
		usage();
		return 2;
	}
	kvd_loop_close(loop);
	ret = run_message_tests() + run_watch_tests() + run_forget_tests() + run_limit_tests() +
	      run_storm_tests() + run_time_tests();
	return ret ? 1 : 0;
}
