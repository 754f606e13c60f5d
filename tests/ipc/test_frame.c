/* SPDX-License-Identifier: Apache-2.0 */
/* Messages and descriptors over a socket pair: whole, on time, and no descriptor is ever left behind. */
#include "support.h"

#include "ipc/frame.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ipc/limits.h"

struct pair {
	int near;
	int far;
	int fds_before;
};

static int open_pair(void **state)
{
	static struct pair pair;
	int fds[2];

	pair.fds_before = kvt_count_fds();
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds))
		return -1;
	pair.near = fds[0];
	pair.far = fds[1];
	*state = &pair;
	return 0;
}

/* Every test ends with the descriptors it began with. */
static int close_pair(void **state)
{
	struct pair *pair = *state;

	close(pair->near);
	close(pair->far);
	return kvt_count_fds() == pair->fds_before ? 0 : -1;
}

static int open_fd(void)
{
	int fd = eventfd(0, EFD_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

/* Sends `count` descriptors, all the same one, past kvw_send()'s own limits. */
static void send_raw(int fd, const void *bytes, size_t length, uint32_t count)
{
	struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = length};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(253 * sizeof(int))];
	} control = {0};
	int passed = open_fd();
	uint32_t i;

	if (count > 0) {
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(count * sizeof(int));
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(count * sizeof(int));
		for (i = 0; i < count; i++)
			memcpy(CMSG_DATA(&control.header) + i * sizeof(int), &passed, sizeof(int));
	}
	assert_int_equal(sendmsg(fd, &message, 0), length);
	close(passed);
}

static void messages_keep_their_borders(void **state)
{
	struct pair *pair = *state;
	uint8_t out[16];

	assert_int_equal(kvw_send(pair->near, (const uint8_t *)"one", 3, NULL, 0), 0);
	assert_int_equal(kvw_send(pair->near, (const uint8_t *)"three", 5, NULL, 0), 0);
	assert_int_equal(kvw_receive(pair->far, 0, out, sizeof(out), NULL, NULL), 3);
	assert_memory_equal(out, "one", 3);
	assert_int_equal(kvw_receive(pair->far, 0, out, sizeof(out), NULL, NULL), 5);
	assert_memory_equal(out, "three", 5);
	assert_int_equal(kvw_receive(pair->far, 0, out, sizeof(out), NULL, NULL), -EAGAIN);
}

static void the_largest_message_passes(void **state)
{
	struct pair *pair = *state;
	static uint8_t sent[KVW_MAX_MESSAGE_BYTES + 1], out[KVW_MAX_MESSAGE_BYTES];

	memset(sent, 0x5a, sizeof(sent));
	assert_int_equal(kvw_send(pair->near, sent, KVW_MAX_MESSAGE_BYTES, NULL, 0), 0);
	assert_int_equal(kvw_receive(pair->far, 0, out, sizeof(out), NULL, NULL), KVW_MAX_MESSAGE_BYTES);
	assert_memory_equal(out, sent, sizeof(out));
	assert_int_equal(kvw_send(pair->near, sent, KVW_MAX_MESSAGE_BYTES + 1, NULL, 0), -EMSGSIZE);
	assert_int_equal(kvw_send(pair->near, sent, 0, NULL, 0), -EINVAL);
	assert_int_equal(kvw_receive(pair->far, 0, out, sizeof(out), NULL, NULL), -EAGAIN);
}

static void a_message_longer_than_the_buffer_is_an_error(void **state)
{
	struct pair *pair = *state;
	int fds[4], before;
	uint32_t room = 4;
	uint8_t out[8];

	send_raw(pair->near, "123456789", 9, 3);
	send_raw(pair->near, "next", 4, 0);
	before = kvt_count_fds();
	assert_int_equal(kvw_receive(pair->far, 0, out, sizeof(out), fds, &room), -EMSGSIZE);
	assert_int_equal(room, 4);
	assert_int_equal(kvt_count_fds(), before);
	/* The rest of it is gone, not read as the next message. */
	assert_int_equal(kvw_receive(pair->far, 0, out, sizeof(out), fds, &room), 4);
	assert_memory_equal(out, "next", 4);
	assert_int_equal(room, 0);
}

static void a_message_as_long_as_the_buffer_is_whole(void **state)
{
	struct pair *pair = *state;
	uint8_t out[9];

	send_raw(pair->near, "123456789", 9, 0);
	assert_int_equal(kvw_receive(pair->far, 0, out, sizeof(out), NULL, NULL), 9);
}

/* ------------------------------------------------------------------ descriptors */

static bool same_file(int a, int b)
{
	struct stat left, right;

	return !fstat(a, &left) && !fstat(b, &right) && left.st_dev == right.st_dev &&
	       left.st_ino == right.st_ino;
}

static void descriptors_arrive_in_order_and_close_on_exec(void **state)
{
	struct pair *pair = *state;
	int sent[3], received[4];
	uint32_t count = 4, i;
	uint8_t out[8];

	for (i = 0; i < 3; i++) {
		sent[i] = memfd_create("kvpool-test", MFD_CLOEXEC);
		assert_true(sent[i] >= 0);
	}
	assert_int_equal(kvw_send(pair->near, (const uint8_t *)"fds", 3, sent, 3), 0);
	assert_int_equal(kvw_receive(pair->far, 0, out, sizeof(out), received, &count), 3);
	assert_int_equal(count, 3);
	for (i = 0; i < 3; i++) {
		assert_true(same_file(sent[i], received[i]));
		assert_false(same_file(sent[i], received[(i + 1) % 3]));
		assert_int_equal(fcntl(received[i], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
		close(received[i]);
		close(sent[i]);
	}
}

static void the_most_descriptors_pass_and_one_more_does_not(void **state)
{
	struct pair *pair = *state;
	int sent[KVW_MAX_FDS_PER_MESSAGE + 1], received[KVW_MAX_FDS_PER_MESSAGE];
	uint32_t count = KVW_MAX_FDS_PER_MESSAGE, i;
	uint8_t out[8];

	sent[0] = open_fd();
	for (i = 1; i <= KVW_MAX_FDS_PER_MESSAGE; i++)
		sent[i] = sent[0];
	assert_int_equal(kvw_send(pair->near, (const uint8_t *)"x", 1, sent, KVW_MAX_FDS_PER_MESSAGE + 1),
			 -EINVAL);
	assert_int_equal(kvw_send(pair->near, (const uint8_t *)"x", 1, sent, KVW_MAX_FDS_PER_MESSAGE), 0);
	assert_int_equal(kvw_receive(pair->far, 0, out, sizeof(out), received, &count), 1);
	assert_int_equal(count, KVW_MAX_FDS_PER_MESSAGE);
	for (i = 0; i < count; i++)
		close(received[i]);
	close(sent[0]);
}

static void surplus_descriptors_are_closed(void **state)
{
	struct pair *pair = *state;
	int before = kvt_count_fds();
	int received[2];
	uint32_t count = 2;
	uint8_t out[8];

	send_raw(pair->near, "x", 1, 5);
	assert_int_equal(kvw_receive(pair->far, 0, out, sizeof(out), received, &count), 1);
	assert_int_equal(count, 2);
	assert_int_equal(kvt_count_fds(), before + 2);
	close(received[0]);
	close(received[1]);
	send_raw(pair->near, "x", 1, 5);
	assert_int_equal(kvw_receive(pair->far, 0, out, sizeof(out), NULL, NULL), 1);
	assert_int_equal(kvt_count_fds(), before);
	send_raw(pair->near, "x", 1, 5);
	count = 0;
	assert_int_equal(kvw_receive(pair->far, 0, out, sizeof(out), NULL, &count), 1);
	assert_int_equal(count, 0);
	assert_int_equal(kvt_count_fds(), before);
}

static void cut_control_data_is_an_error_and_leaks_nothing(void **state)
{
	static const uint32_t counts[] = {65, 70, 71, 72, 73, 74, 100, 253};
	struct pair *pair = *state;
	int before = kvt_count_fds();
	int received[KVW_MAX_FDS_PER_MESSAGE];
	uint8_t out[8];
	size_t i;

	for (i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		uint32_t count = KVW_MAX_FDS_PER_MESSAGE;

		send_raw(pair->near, "x", 1, counts[i]);
		assert_int_equal(kvw_receive(pair->far, 0, out, sizeof(out), received, &count), -EPROTO);
		assert_int_equal(count, KVW_MAX_FDS_PER_MESSAGE);
		assert_int_equal(kvt_count_fds(), before);
	}
}

/* The kernel hands over as many as the process may still open, and tells it by cut control data. */
static void no_descriptors_left_here_is_an_error_and_leaks_nothing(void **state)
{
	struct pair *pair = *state;
	int before = kvt_count_fds();
	struct rlimit limit, low;
	int received[8];
	uint32_t count = 8;
	uint8_t out[8];
	int ret, highest;

	send_raw(pair->near, "x", 1, 8);
	highest = open_fd();
	close(highest);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	low = limit;
	low.rlim_cur = (rlim_t)highest + 3;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	ret = kvw_receive(pair->far, 0, out, sizeof(out), received, &count);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_int_equal(ret, -EPROTO);
	assert_int_equal(kvt_count_fds(), before);
}

static void credentials_beside_descriptors_take_no_room_from_them(void **state)
{
	struct pair *pair = *state;
	int sent[KVW_MAX_FDS_PER_MESSAGE], received[KVW_MAX_FDS_PER_MESSAGE];
	uint32_t count = KVW_MAX_FDS_PER_MESSAGE, i;
	const int on = 1;
	uint8_t out[8];

	assert_int_equal(setsockopt(pair->far, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)), 0);
	sent[0] = open_fd();
	for (i = 1; i < KVW_MAX_FDS_PER_MESSAGE; i++)
		sent[i] = sent[0];
	assert_int_equal(kvw_send(pair->near, (const uint8_t *)"x", 1, sent, KVW_MAX_FDS_PER_MESSAGE), 0);
	assert_int_equal(kvw_receive(pair->far, 0, out, sizeof(out), received, &count), 1);
	assert_int_equal(count, KVW_MAX_FDS_PER_MESSAGE);
	for (i = 0; i < count; i++)
		close(received[i]);
	close(sent[0]);
}

/* ------------------------------------------------------------------ ends and waits */

static void a_closed_peer_is_the_end(void **state)
{
	struct pair *pair = *state;
	uint32_t count = 3;
	int fds[3];
	uint8_t out[8];

	send_raw(pair->near, "last", 4, 0);
	shutdown(pair->near, SHUT_WR);
	assert_int_equal(kvw_receive(pair->far, kvw_deadline_ns(10000), out, sizeof(out), NULL, NULL), 4);
	assert_int_equal(kvw_receive(pair->far, kvw_deadline_ns(10000), out, sizeof(out), fds, &count), 0);
	assert_int_equal(count, 0);
}

/* An empty datagram reads like the end; what it carries is closed. */
static void an_empty_message_is_the_end_too(void **state)
{
	struct pair *pair = *state;
	int before = kvt_count_fds();
	uint32_t count = 3;
	int fds[3];
	uint8_t out[8];

	send_raw(pair->near, "", 0, 2);
	assert_int_equal(kvw_receive(pair->far, 0, out, sizeof(out), fds, &count), 0);
	assert_int_equal(count, 0);
	assert_int_equal(kvt_count_fds(), before);
}

static void sending_to_a_closed_peer_raises_no_signal(void **state)
{
	struct pair *pair = *state;

	shutdown(pair->far, SHUT_RDWR);
	assert_int_equal(kvw_send(pair->near, (const uint8_t *)"x", 1, NULL, 0), -EPIPE);
}

static void a_full_queue_is_told_and_not_waited_for(void **state)
{
	struct pair *pair = *state;
	static uint8_t big[KVW_MAX_MESSAGE_BYTES];
	uint32_t sent = 0;
	int ret;

	while ((ret = kvw_send(pair->near, big, sizeof(big), NULL, 0)) == 0)
		assert_true(++sent < 1000);
	assert_int_equal(ret, -EAGAIN);
	assert_true(sent >= 1);
}

static void a_wait_ends_at_its_deadline(void **state)
{
	struct pair *pair = *state;
	uint64_t start = kvt_now_ns();
	uint8_t out[8];

	assert_int_equal(kvw_receive(pair->far, 0, out, sizeof(out), NULL, NULL), -EAGAIN);
	assert_int_equal(kvw_receive(pair->far, 1, out, sizeof(out), NULL, NULL), -ETIMEDOUT);
	assert_int_equal(kvw_receive(pair->far, kvw_deadline_ns(40), out, sizeof(out), NULL, NULL),
			 -ETIMEDOUT);
	assert_true(kvt_now_ns() - start >= 40u * 1000000u);
	/* A message that is there already is received after the deadline, too. */
	send_raw(pair->near, "x", 1, 0);
	assert_int_equal(kvw_receive(pair->far, 1, out, sizeof(out), NULL, NULL), 1);
}

static void deadlines_are_relative_to_now(void **state)
{
	uint64_t before = kvw_now_ns();
	uint64_t deadline = kvw_deadline_ns(1500);

	(void)state;
	assert_true(deadline >= before + 1500000000u && deadline <= kvw_now_ns() + 1500000000u);
	assert_true(kvw_deadline_ns(UINT32_MAX) == UINT64_MAX);
	assert_true(kvw_deadline_ns(UINT32_MAX - 1) < UINT64_MAX);
	assert_true(kvw_deadline_ns(0) <= kvw_now_ns());
}

static _Atomic uint32_t signals;

static void on_signal(int number)
{
	(void)number;
	signals++;
}

struct sender {
	struct pair *pair;
	pthread_t receiver;
	_Atomic bool stop;
	bool send;
};

/* Interrupts the receiver ten times, each time when the last one has arrived, then sends if it is to. */
static void *interrupt(void *arg)
{
	struct sender *sender = arg;
	uint32_t i;

	for (i = 0; i < 10; i++) {
		uint32_t before = signals;

		pthread_kill(sender->receiver, SIGUSR1);
		while (signals == before && !sender->stop)
			sched_yield();
	}
	if (sender->send)
		kvw_send(sender->pair->near, (const uint8_t *)"late", 4, NULL, 0);
	return NULL;
}

static int receive_interrupted(struct pair *pair, uint32_t timeout_ms, bool send)
{
	struct sender sender = {.pair = pair, .receiver = pthread_self(), .send = send};
	struct sigaction action = {.sa_handler = on_signal}; /* no SA_RESTART: poll returns EINTR */
	uint8_t out[8];
	pthread_t thread;
	int ret;

	signals = 0;
	sigaction(SIGUSR1, &action, NULL);
	assert_int_equal(pthread_create(&thread, NULL, interrupt, &sender), 0);
	ret = kvw_receive(pair->far, kvw_deadline_ns(timeout_ms), out, sizeof(out), NULL, NULL);
	sender.stop = true;
	pthread_join(thread, NULL);
	assert_true(signals > 0);
	return ret;
}

static void signals_do_not_end_a_wait(void **state)
{
	assert_int_equal(receive_interrupted(*state, 60000, true), 4);
}

/* Nor do they make it longer or shorter. */
static void signals_leave_the_rest_of_the_deadline(void **state)
{
	uint64_t start = kvt_now_ns();

	assert_int_equal(receive_interrupted(*state, 60, false), -ETIMEDOUT);
	assert_true(kvt_now_ns() - start >= 60u * 1000000u);
}

#define PAIR_TEST(name) cmocka_unit_test_setup_teardown(name, open_pair, close_pair)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		PAIR_TEST(messages_keep_their_borders),
		PAIR_TEST(the_largest_message_passes),
		PAIR_TEST(a_message_longer_than_the_buffer_is_an_error),
		PAIR_TEST(a_message_as_long_as_the_buffer_is_whole),
		PAIR_TEST(descriptors_arrive_in_order_and_close_on_exec),
		PAIR_TEST(the_most_descriptors_pass_and_one_more_does_not),
		PAIR_TEST(surplus_descriptors_are_closed),
		PAIR_TEST(cut_control_data_is_an_error_and_leaks_nothing),
		PAIR_TEST(no_descriptors_left_here_is_an_error_and_leaks_nothing),
		PAIR_TEST(credentials_beside_descriptors_take_no_room_from_them),
		PAIR_TEST(a_closed_peer_is_the_end),
		PAIR_TEST(an_empty_message_is_the_end_too),
		PAIR_TEST(sending_to_a_closed_peer_raises_no_signal),
		PAIR_TEST(a_full_queue_is_told_and_not_waited_for),
		PAIR_TEST(a_wait_ends_at_its_deadline),
		PAIR_TEST(deadlines_are_relative_to_now),
		PAIR_TEST(signals_do_not_end_a_wait),
		PAIR_TEST(signals_leave_the_rest_of_the_deadline),
	};

	kvt_watchdog(60);
	return cmocka_run_group_tests_name("unit.frame", tests, NULL, NULL);
}
