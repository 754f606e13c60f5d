/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conformance of the event loop: opening and closing, its clock, and shortage of descriptors.
 */
#include "loop_conform.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static void open_refuses_sizes_out_of_range(void **state)
{
	const struct kvd_loop_params wrong[] = {
		{KVD_LOOP_AUTO, 0, 1},          {KVD_LOOP_AUTO, 1, 0},      {KVD_LOOP_AUTO, UINT32_MAX, 1},
		{KVD_LOOP_AUTO, 1, UINT32_MAX}, {KVD_LOOP_EPOLL + 1, 1, 1},
	};
	struct kvd_loop *loop = NULL;

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(kvd_loop_open(&wrong[i], &loop), -EINVAL);
	assert_null(loop);
	kvd_loop_close(NULL);
}

static void closed_descriptor_is_refused(void **state)
{
	struct kvd_watch *watch = NULL;

	assert_int_equal(kvd_loop_watch(*state, 9999, NULL, NULL, &watch), -EBADF);
	assert_int_equal(kvd_loop_receive(*state, -1, NULL, NULL, &watch), -EBADF);
	assert_null(watch);
}

/* The loop's end is the end of its requests: peers see it without any turn. */
static void close_lets_go_of_live_watches(void **state)
{
	struct kvd_loop *loop;
	struct conn conns[20];
	struct bell bells[20];
	char byte;

	(void)state;
	assert_int_equal(conform_open(64, &loop), 0);
	for (int i = 0; i < 20; i++) {
		conn_open(loop, &conns[i]);
		bell_open(loop, &bells[i]);
	}
	settle(loop);
	for (int i = 0; i < 20; i++) {
		conn_send(&conns[i], "x", 1);
		bell_ring(&bells[i]);
	}
	conns[0].messages = 0;
	kvd_loop_close(loop);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(conns[i].messages, 0);
		assert_int_equal(bells[i].rings, 0);
		close(bells[i].fd);
		close(conns[i].near_fd);
		assert_true(recv(conns[i].far_fd, &byte, 1, MSG_DONTWAIT) == 0 || errno == ECONNRESET);
		close(conns[i].far_fd);
	}
}

/* ---- clock ---- */

static void wait_is_as_long_as_asked(void **state)
{
	const uint64_t waits_us[] = {0, 1, 300, 1000, 1500, 20000, 60000};

	for (size_t i = 0; i < sizeof(waits_us) / sizeof(waits_us[0]); i++) {
		uint64_t start = kvt_now_ns();

		assert_int_equal(kvd_loop_turn(*state, waits_us[i]), 0);
		assert_true(kvt_now_ns() - start >= waits_us[i] * 1000);
	}
}

/* What the loop does for itself (here: cancelling) must not cut the wait short. */
static void own_work_does_not_shorten_the_wait(void **state)
{
	uint64_t start;
	struct bell bell;
	struct conn conn;

	bell_open(*state, &bell);
	conn_open(*state, &conn);
	settle(*state);
	bell_close(&bell);
	conn_close(&conn);
	start = kvt_now_ns();
	assert_int_equal(kvd_loop_turn(*state, 20000), 0);
	assert_true(kvt_now_ns() - start >= 20000000u);
}

static void arm_timer(int fd, long ms)
{
	const struct itimerspec once = {.it_value = {ms / 1000, ms % 1000 * 1000000}};

	assert_int_equal(timerfd_settime(fd, 0, &once, NULL), 0);
}

/* Far waits must not overflow the kernel's clock and end at once. */
static void long_wait_ends_with_an_event(void **state)
{
	const uint64_t waits_us[] = {UINT64_MAX, UINT64_MAX - 1, UINT64_C(1) << 50, (UINT64_C(1) << 50) - 1};
	struct bell timer = {.loop = *state, .fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC)};

	bell_watch(&timer);
	settle(*state);
	for (size_t i = 0; i < sizeof(waits_us) / sizeof(waits_us[0]); i++) {
		arm_timer(timer.fd, 10);
		assert_int_equal(kvd_loop_turn(*state, waits_us[i]), 1);
	}
	assert_int_equal(timer.rings, sizeof(waits_us) / sizeof(waits_us[0]));
	bell_close(&timer);
}

static volatile sig_atomic_t signals;

static void on_signal(int number)
{
	(void)number;
	signals++;
}

static timer_t signal_every_5_ms(void)
{
	const struct itimerspec interval = {{0, 5000000}, {0, 5000000}};
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	timer_t timer;

	assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
	assert_int_equal(timer_create(CLOCK_MONOTONIC, &event, &timer), 0);
	assert_int_equal(timer_settime(timer, 0, &interval, NULL), 0);
	return timer;
}

/*
 * One signal is enough, though a watch was added since the last turn. It may come before
 * the turn waits, but not always.
 */
static void signal_ends_the_wait(void **state)
{
	timer_t timer = signal_every_5_ms();
	unsigned ended_by_first = 0;
	struct bell bell;

	for (int i = 0; i < 10; i++) {
		bell_open(*state, &bell);
		signals = 0;
		assert_int_equal(kvd_loop_turn(*state, UINT64_MAX), 0);
		ended_by_first += signals == 1;
		bell_close(&bell);
		settle(*state);
	}
	assert_int_equal(timer_delete(timer), 0);
	assert_true(ended_by_first > 0);
}

/* ---- out of descriptors ---- */

struct hall {
	int listener;
	int clients[3];
	unsigned accepted;
	int fds[3];
};

static void on_accept(void *arg, int fd)
{
	struct hall *hall = arg;

	hall->fds[hall->accepted++] = fd;
}

static void hall_open(struct hall *hall)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	socklen_t length = sizeof(sa_family_t);

	*hall = (struct hall){.listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
	assert_int_equal(bind(hall->listener, (struct sockaddr *)&address, length), 0); /* autobind */
	assert_int_equal(listen(hall->listener, 8), 0);
	length = sizeof(address);
	assert_int_equal(getsockname(hall->listener, (struct sockaddr *)&address, &length), 0);
	for (int i = 0; i < 3; i++) {
		hall->clients[i] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
		assert_int_equal(connect(hall->clients[i], (struct sockaddr *)&address, length), 0);
	}
}

static void hall_close(struct hall *hall)
{
	for (int i = 0; i < 3; i++)
		close(hall->clients[i]);
	for (unsigned i = 0; i < hall->accepted; i++)
		close(hall->fds[i]);
	close(hall->listener);
}

/* No new descriptor from here on. Returns the limit that was. */
static struct rlimit use_up_descriptors(void)
{
	struct rlimit before, none;
	int lowest_free = dup(0);

	close(lowest_free);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = (struct rlimit){(rlim_t)lowest_free, before.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	return before;
}

static uint64_t cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void accepting_outlives_a_shortage_of_descriptors(void **state)
{
	struct kvd_watch *watch;
	struct rlimit before;
	struct hall hall;
	struct bell bell;
	uint64_t cpu;

	hall_open(&hall);
	bell_open(*state, &bell);
	settle(*state);
	before = use_up_descriptors();
	assert_int_equal(kvd_loop_listen(*state, hall.listener, on_accept, &hall, &watch), 0);
	cpu = cpu_ns();
	/* Over several pauses: nothing is accepted, and the loop sleeps rather than spins. */
	assert_int_equal(kvd_loop_turn(*state, 350000), 0);
	assert_true(cpu_ns() - cpu < 100000000u);
	/* Others are served meanwhile. */
	bell_ring(&bell);
	while (!bell.rings)
		assert_true(kvd_loop_turn(*state, LONG_US) >= 0);
	assert_int_equal(hall.accepted, 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	while (hall.accepted < 3)
		assert_true(kvd_loop_turn(*state, UINT64_MAX) >= 0);
	kvd_loop_forget(*state, watch);
	bell_close(&bell);
	hall_close(&hall);
}

static void paused_listener_can_be_forgotten(void **state)
{
	struct kvd_watch *watch;
	struct rlimit before;
	struct hall hall;

	hall_open(&hall);
	before = use_up_descriptors();
	assert_int_equal(kvd_loop_listen(*state, hall.listener, on_accept, &hall, &watch), 0);
	assert_int_equal(kvd_loop_turn(*state, 2000), 0);
	kvd_loop_forget(*state, watch);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_int_equal(kvd_loop_turn(*state, 150000), 0);
	assert_int_equal(hall.accepted, 0);
	hall_close(&hall);
}

int run_limit_tests(void)
{
	const struct CMUnitTest tests[] = {
		CONFORM_TEST(open_refuses_sizes_out_of_range),
		CONFORM_TEST(closed_descriptor_is_refused),
		CONFORM_TEST(close_lets_go_of_live_watches),
		CONFORM_TEST(wait_is_as_long_as_asked),
		CONFORM_TEST(own_work_does_not_shorten_the_wait),
		CONFORM_TEST(long_wait_ends_with_an_event),
		CONFORM_TEST(signal_ends_the_wait),
		CONFORM_TEST(accepting_outlives_a_shortage_of_descriptors),
		CONFORM_TEST(paused_listener_can_be_forgotten),
	};

	return cmocka_run_group_tests_name("limits", tests, NULL, NULL);
}
