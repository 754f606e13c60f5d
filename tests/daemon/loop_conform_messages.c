/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conformance of the event loop: connections and their messages.
 */
#include "loop_conform.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* Byte `i` of message `n` of connection `id`: wrong bytes, order or receiver all show. */
static uint8_t pattern(unsigned id, unsigned n, size_t i)
{
	return (uint8_t)(id * 31 + n * 7 + i + (i >> 8));
}

static void fill(uint8_t *bytes, size_t length, unsigned id, unsigned n)
{
	for (size_t i = 0; i < length; i++)
		bytes[i] = pattern(id, n, i);
}

static void assert_pattern(const uint8_t *bytes, int length, unsigned id, unsigned n)
{
	for (int i = 0; i < length; i++)
		if (bytes[i] != pattern(id, n, (size_t)i))
			fail_msg("message %u of connection %u: byte %d of %d is wrong", n, id, i, length);
}

/* ---- accepting ---- */

#define CONNECTIONS 200

struct door {
	int fd;
	int clients[CONNECTIONS];
	int accepted[CONNECTIONS];
	unsigned count;
	struct sockaddr_un address;
	char *dir;
};

static void door_open(struct door *door, int backlog)
{
	*door = (struct door){.dir = kvt_mkdtemp(), .address = {.sun_family = AF_UNIX}};
	snprintf(door->address.sun_path, sizeof(door->address.sun_path), "%s/socket", door->dir);
	/* Blocking, as a listener from a service manager may be. */
	door->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(door->fd, (struct sockaddr *)&door->address, sizeof(door->address)), 0);
	assert_int_equal(listen(door->fd, backlog), 0);
}

static void door_connect(struct door *door, unsigned i)
{
	door->clients[i] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_int_equal(connect(door->clients[i], (struct sockaddr *)&door->address, sizeof(door->address)),
			 0);
}

static void door_close(struct door *door, unsigned clients)
{
	for (unsigned i = 0; i < clients; i++)
		close(door->clients[i]);
	for (unsigned i = 0; i < door->count; i++)
		close(door->accepted[i]);
	close(door->fd);
	kvt_rmdir(door->dir);
}

static void on_accept(void *arg, int fd)
{
	struct door *door = arg;

	assert_true(door->count < CONNECTIONS);
	door->accepted[door->count++] = fd;
}

/* More at once than the completion queue of so small a loop has room for. */
static void accepts_every_connection(void **state)
{
	struct kvd_watch *watch;
	struct kvd_loop *loop;
	struct door door;

	(void)state;
	assert_int_equal(conform_open(4, &loop), 0);
	door_open(&door, CONNECTIONS + 1);
	assert_int_equal(kvd_loop_listen(loop, door.fd, on_accept, &door, &watch), 0);
	settle(loop);
	for (unsigned i = 0; i < CONNECTIONS; i++)
		door_connect(&door, i);
	while (door.count < CONNECTIONS)
		assert_true(kvd_loop_turn(loop, LONG_US) >= 0);
	for (unsigned i = 0; i < CONNECTIONS; i++) {
		assert_true(fcntl(door.accepted[i], F_GETFD) & FD_CLOEXEC);
		assert_true(fcntl(door.accepted[i], F_GETFL) & O_NONBLOCK);
	}
	kvd_loop_close(loop);
	door_close(&door, CONNECTIONS);
}

static void accepts_until_forgotten(void **state)
{
	struct kvd_loop *loop = *state;
	struct kvd_watch *watch;
	struct door door;

	door_open(&door, 16);
	assert_int_equal(kvd_loop_listen(loop, door.fd, on_accept, &door, &watch), 0);
	for (unsigned i = 0; i < 5; i++) {
		door_connect(&door, i);
		while (door.count < i + 1)
			assert_true(kvd_loop_turn(loop, LONG_US) >= 0);
	}
	door_connect(&door, 5);
	kvd_loop_forget(loop, watch);
	assert_int_equal(settle(loop), 0);
	assert_int_equal(door.count, 5);
	door_close(&door, 6);
}

/* ---- messages ---- */

struct stream {
	unsigned id;
	unsigned sent;
	unsigned received;
	int lengths[400];
};

static void check_stream(struct conn *conn, const uint8_t *bytes, int length)
{
	struct stream *stream = conn->hook_arg;

	assert_int_equal(length, stream->lengths[stream->received]);
	assert_pattern(bytes, length, stream->id, stream->received);
	stream->received++;
}

static int length_of(struct kvt_rng *rng, unsigned n)
{
	static const int edges[] = {1, 2, 63, 64, 65, 4095, 4096, 4097, MAX_MESSAGE - 1, MAX_MESSAGE};
	const unsigned count = sizeof(edges) / sizeof(edges[0]);

	if (n < count)
		return edges[n];
	return 1 + (int)kvt_rng_below(rng, n % 8 ? 512 : MAX_MESSAGE);
}

/* True when the socket had room for it. */
static bool send_next(struct conn *conn, struct stream *stream, uint8_t *bytes, int length)
{
	fill(bytes, (size_t)length, stream->id, stream->sent);
	if (!conn_try_send(conn, bytes, (size_t)length))
		return false;
	stream->lengths[stream->sent++] = length;
	return true;
}

static void messages_arrive_in_order_and_intact(void **state)
{
	struct kvt_rng rng = {kvt_seed()};
	struct stream stream = {.id = 1};
	uint8_t *bytes = malloc(MAX_MESSAGE);
	struct conn conn;

	conn_open(*state, &conn);
	conn.hook = check_stream;
	conn.hook_arg = &stream;
	while (stream.sent < 400) {
		int length = length_of(&rng, stream.sent);

		while (!send_next(&conn, &stream, bytes, length))
			assert_true(kvd_loop_turn(conn.loop, LONG_US) >= 0);
	}
	conn_await_messages(&conn, stream.sent);
	conn_close(&conn);
	free(bytes);
}

#define MANY 300

static void hundreds_of_connections_keep_their_messages_apart(void **state)
{
	struct kvt_rng rng = {kvt_seed()};
	struct stream *streams = calloc(MANY, sizeof(*streams));
	struct conn *conns = calloc(MANY, sizeof(*conns));
	uint8_t *bytes = malloc(MAX_MESSAGE);

	for (unsigned i = 0; i < MANY; i++) {
		conn_open(*state, &conns[i]);
		streams[i].id = i;
		conns[i].hook = check_stream;
		conns[i].hook_arg = &streams[i];
	}
	for (unsigned n = 0; n < 20 * MANY; n++) {
		unsigned i = (unsigned)kvt_rng_below(&rng, MANY);

		if (streams[i].sent < 400)
			send_next(&conns[i], &streams[i], bytes, 1 + (int)kvt_rng_below(&rng, 300));
		if (n % 150 == 0)
			assert_true(kvd_loop_turn(*state, 0) >= 0);
	}
	for (unsigned i = 0; i < MANY; i++) {
		conn_await_messages(&conns[i], streams[i].sent);
		conn_close(&conns[i]);
	}
	free(bytes);
	free(conns);
	free(streams);
}

static void assert_too_large(struct kvd_loop *loop, size_t length)
{
	uint8_t *bytes = calloc(1, length);
	struct conn conn;

	conn_open(loop, &conn);
	conn_send(&conn, "before", 6);
	conn_send(&conn, bytes, length);
	conn_send(&conn, "after", 5);
	conn_await_end(&conn);
	settle(loop);
	/* Nobody reads any more. */
	while (conn_try_send(&conn, bytes, MAX_MESSAGE))
		;
	settle(loop);
	assert_false(conn_try_send(&conn, bytes, MAX_MESSAGE));
	assert_int_equal(conn.messages, 1);
	assert_int_equal(conn.ends, 1);
	assert_int_equal(conn.last, -EMSGSIZE);
	conn_close(&conn);
	free(bytes);
}

static void too_large_a_message_is_an_error_and_the_last(void **state)
{
	assert_too_large(*state, MAX_MESSAGE + 1);
	assert_too_large(*state, MAX_MESSAGE + 64);
	assert_too_large(*state, 2 * MAX_MESSAGE);
}

/* ---- ends ---- */

static void end_of_file_follows_the_last_message(void **state)
{
	struct conn conn;

	conn_open(*state, &conn);
	for (int i = 0; i < 40; i++)
		conn_send(&conn, "x", 1);
	close(conn.far_fd);
	conn.far_fd = -1;
	conn_await_end(&conn);
	assert_int_equal(conn.messages, 40);
	assert_int_equal(conn.last, 0);
	assert_int_equal(settle(*state), 0);
	conn_close(&conn);
}

static void empty_message_is_end_of_file_and_the_last(void **state)
{
	struct conn conn;

	conn_open(*state, &conn);
	conn_send(&conn, "x", 1);
	conn_send(&conn, "", 0);
	conn_send(&conn, "y", 1);
	conn_await_end(&conn);
	assert_int_equal(conn.messages, 1);
	assert_int_equal(conn.last, 0);
	conn_send(&conn, "z", 1);
	assert_int_equal(settle(*state), 0);
	conn_close(&conn);
}

static void end_of_file_when_the_peer_is_killed(void **state)
{
	struct conn conn;
	pid_t child;

	conn_open(*state, &conn);
	child = fork();
	assert_true(child >= 0);
	if (!child)
		for (;;)
			pause();
	close(conn.far_fd);
	conn.far_fd = -1;
	assert_int_equal(settle(*state), 0);
	kill(child, SIGKILL);
	conn_await_end(&conn);
	assert_int_equal(conn.last, 0);
	assert_int_equal(waitpid(child, NULL, 0), child);
	conn_close(&conn);
}

/* ---- hostile peers ---- */

static void send_with_descriptors(int socket_fd, const int *fds, size_t count)
{
	char control[CMSG_SPACE(64 * sizeof(int))] = {0};
	struct iovec iov = {.iov_base = (char[]){'x'}, .iov_len = 1};
	struct msghdr message = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = CMSG_SPACE(count * sizeof(int)),
	};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(count * sizeof(int));
	memcpy(CMSG_DATA(header), fds, count * sizeof(int));
	assert_int_equal(sendmsg(socket_fd, &message, 0), 1);
}

static void attached_descriptors_are_discarded(void **state)
{
	int before, ends[2], fds[50];
	struct conn conn;
	char byte;

	conn_open(*state, &conn);
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	for (int i = 0; i < 50; i++)
		fds[i] = ends[1];
	before = kvt_count_fds();
	for (int i = 0; i < 20; i++)
		send_with_descriptors(conn.far_fd, fds, 50);
	conn_await_messages(&conn, 20);
	assert_int_equal(kvt_count_fds(), before);
	/* Nobody holds the pipe's other end any more, in this process or in flight. */
	close(ends[1]);
	assert_int_equal(read(ends[0], &byte, 1), 0);
	close(ends[0]);
	conn_close(&conn);
}

#define FLOODERS 12
/* Five rounds of sixteen messages from each of them. A turn's length is the clock's, so turns say nothing. */
#define PATIENCE_CALLBACKS (5 * 16 * FLOODERS)

/* Fills the buffer of every flooder's socket with the smallest messages. */
static void flood(struct conn *flooders)
{
	for (int i = 0; i < FLOODERS; i++) {
		flooders[i].in_turn = 0;
		while (conn_try_send(&flooders[i], "f", 1))
			;
	}
}

static void flooding_peers_do_not_starve_another(void **state)
{
	struct conn flooders[FLOODERS];
	struct conn victim;

	for (int i = 0; i < FLOODERS; i++)
		conn_open(*state, &flooders[i]);
	conn_open(*state, &victim);
	for (unsigned round = 0; round < 100; round++) {
		conn_send(&victim, "v", 1);
		for (int callbacks = 0; victim.messages <= round;) {
			int ret;

			assert_true(callbacks < PATIENCE_CALLBACKS);
			flood(flooders);
			ret = kvd_loop_turn(*state, LONG_US);
			assert_true(ret > 0);
			callbacks += ret;
			for (int i = 0; i < FLOODERS; i++)
				assert_true(flooders[i].in_turn <= 128);
		}
	}
	for (int i = 0; i < FLOODERS; i++) {
		assert_true(flooders[i].messages > 0);
		conn_close(&flooders[i]);
	}
	conn_close(&victim);
}

int run_message_tests(void)
{
	const struct CMUnitTest tests[] = {
		CONFORM_TEST(accepts_every_connection),
		CONFORM_TEST(accepts_until_forgotten),
		CONFORM_TEST(messages_arrive_in_order_and_intact),
		CONFORM_TEST(hundreds_of_connections_keep_their_messages_apart),
		CONFORM_TEST(too_large_a_message_is_an_error_and_the_last),
		CONFORM_TEST(end_of_file_follows_the_last_message),
		CONFORM_TEST(empty_message_is_end_of_file_and_the_last),
		CONFORM_TEST(end_of_file_when_the_peer_is_killed),
		CONFORM_TEST(attached_descriptors_are_discarded),
		CONFORM_TEST(flooding_peers_do_not_starve_another),
	};

	return cmocka_run_group_tests_name("messages", tests, NULL, NULL);
}
