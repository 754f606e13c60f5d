/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conformance of the event loop: descriptors watched for readability.
 */
#include "loop_conform.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void await_rings(struct bell *bell, unsigned count)
{
	while (bell->rings < count)
		assert_true(kvd_loop_turn(bell->loop, LONG_US) >= 0);
}

static void each_change_is_delivered_though_nobody_reads(void **state)
{
	struct bell bell;

	bell_open(*state, &bell);
	assert_int_equal(settle(*state), 0);
	for (unsigned i = 1; i <= 50; i++) {
		bell_ring(&bell);
		await_rings(&bell, i);
		assert_int_equal(settle(*state), 0);
		assert_int_equal(bell.rings, i);
	}
	bell_close(&bell);
}

static void changes_between_turns_may_merge_but_not_vanish(void **state)
{
	struct bell bell;

	bell_open(*state, &bell);
	settle(*state);
	bell_ring(&bell);
	bell_ring(&bell);
	await_rings(&bell, 1);
	settle(*state);
	assert_in_range(bell.rings, 1, 2);
	bell_close(&bell);
}

static void what_is_readable_already_is_delivered_once(void **state)
{
	struct bell bell = {.loop = *state, .fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)};

	bell_watch(&bell);
	await_rings(&bell, 1);
	assert_int_equal(settle(*state), 0);
	assert_int_equal(bell.rings, 1);
	bell_close(&bell);
}

static void thief_of_the_count_takes_no_later_change(void **state)
{
	struct bell bell;
	eventfd_t count;

	bell_open(*state, &bell);
	settle(*state);
	for (unsigned i = 0; i < 20; i++) {
		unsigned before;

		bell_ring(&bell);
		assert_int_equal(eventfd_read(bell.fd, &count), 0);
		settle(*state);
		before = bell.rings;
		bell_ring(&bell);
		await_rings(&bell, before + 1);
		assert_int_equal(eventfd_read(bell.fd, &count), 0);
		settle(*state);
	}
	bell_close(&bell);
}

struct ringer {
	struct bell bell;
	atomic_uint written; /* before each write of the eventfd */
	atomic_uint seen;    /* by the loop's callback */
};

#define RINGS 20000u

static void note_seen(struct bell *bell)
{
	struct ringer *ringer = bell->hook_arg;

	atomic_store(&ringer->seen, atomic_load(&ringer->written));
	/* A change here, in the middle of a turn, belongs to the next. */
	sched_yield();
}

static void *ring_in_step(void *arg)
{
	struct ringer *ringer = arg;

	for (unsigned i = 1; i <= RINGS; i++) {
		atomic_store(&ringer->written, i);
		bell_ring(&ringer->bell);
		if (i % 3 == 0) /* let it be seen: a lost change then hangs the test */
			while (atomic_load(&ringer->seen) < i)
				sched_yield();
	}
	return NULL;
}

static void no_change_is_lost_against_a_racing_writer(void **state)
{
	struct ringer ringer = {0};
	pthread_t thread;

	bell_open(*state, &ringer.bell);
	ringer.bell.hook = note_seen;
	ringer.bell.hook_arg = &ringer;
	assert_int_equal(pthread_create(&thread, NULL, ring_in_step, &ringer), 0);
	while (atomic_load(&ringer.seen) < RINGS)
		assert_true(kvd_loop_turn(*state, LONG_US) >= 0);
	pthread_join(thread, NULL);
	bell_close(&ringer.bell);
}

/* One descriptor is delivered once a turn, however often it changed. */
static void busy_bell_is_one_callback_a_turn(void **state)
{
	struct bell bell;

	bell_open(*state, &bell);
	settle(*state);
	for (unsigned i = 0; i < 100; i++) {
		unsigned before = bell.rings;

		for (int n = 0; n < 10; n++)
			bell_ring(&bell);
		assert_true(kvd_loop_turn(*state, 0) >= 0);
		assert_true(bell.rings <= before + 1);
	}
	bell_close(&bell);
}

#define BELLS 126

/* More happens in a turn than the completion queue of so small a loop has room for. */
static void no_change_is_lost_when_everything_is_busy(void **state)
{
	struct bell *bells = calloc(BELLS, sizeof(*bells));
	struct conn talkers[2];
	struct kvd_loop *loop;

	(void)state;
	assert_int_equal(conform_open(128, &loop), 0);
	for (int i = 0; i < 2; i++)
		conn_open(loop, &talkers[i]);
	for (int i = 0; i < BELLS; i++)
		bell_open(loop, &bells[i]);
	settle(loop);
	for (unsigned round = 1; round <= 20; round++) {
		for (int i = 0; i < 2; i++)
			while (conn_try_send(&talkers[i], "x", 1))
				;
		for (int i = 0; i < BELLS; i++)
			bell_ring(&bells[i]);
		settle(loop);
		for (int i = 0; i < BELLS; i++)
			assert_true(bells[i].rings >= round);
	}
	for (int i = 0; i < BELLS; i++)
		bell_close(&bells[i]);
	for (int i = 0; i < 2; i++)
		conn_close(&talkers[i]);
	kvd_loop_close(loop);
	free(bells);
}

static void pidfd_tells_the_end_of_a_process(void **state)
{
	pid_t child = fork();
	struct bell bell = {.loop = *state};

	assert_true(child >= 0);
	if (!child)
		for (;;)
			pause();
	bell.fd = (int)syscall(SYS_pidfd_open, child, 0);
	assert_true(bell.fd >= 0);
	bell_watch(&bell);
	assert_int_equal(settle(*state), 0);
	kill(child, SIGKILL);
	await_rings(&bell, 1);
	assert_int_equal(waitpid(child, NULL, WNOHANG), child);
	bell_close(&bell);
}

static void pipe_tells_bytes_and_hangup(void **state)
{
	struct bell bell = {.loop = *state};
	int ends[2];

	assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
	bell.fd = ends[0];
	bell_watch(&bell);
	assert_int_equal(settle(*state), 0);
	assert_int_equal(write(ends[1], "x", 1), 1);
	await_rings(&bell, 1);
	close(ends[1]);
	await_rings(&bell, 2);
	settle(*state);
	bell_close(&bell);
}

/* Two watches of one open file, by two descriptors: forgetting one leaves the other. */
static void duplicates_are_watched_apart(void **state)
{
	struct bell first;
	struct bell second = {.loop = *state};

	bell_open(*state, &first);
	second.fd = dup(first.fd);
	bell_watch(&second);
	settle(*state);
	bell_ring(&first);
	await_rings(&first, 1);
	await_rings(&second, 1);
	bell_close(&first);
	settle(*state);
	bell_ring(&second);
	await_rings(&second, 2);
	assert_int_equal(first.rings, 1);
	bell_close(&second);
}

int run_watch_tests(void)
{
	const struct CMUnitTest tests[] = {
		CONFORM_TEST(each_change_is_delivered_though_nobody_reads),
		CONFORM_TEST(changes_between_turns_may_merge_but_not_vanish),
		CONFORM_TEST(what_is_readable_already_is_delivered_once),
		CONFORM_TEST(thief_of_the_count_takes_no_later_change),
		CONFORM_TEST(no_change_is_lost_against_a_racing_writer),
		CONFORM_TEST(busy_bell_is_one_callback_a_turn),
		CONFORM_TEST(no_change_is_lost_when_everything_is_busy),
		CONFORM_TEST(pidfd_tells_the_end_of_a_process),
		CONFORM_TEST(pipe_tells_bytes_and_hangup),
		CONFORM_TEST(duplicates_are_watched_apart),
	};

	return cmocka_run_group_tests_name("watches", tests, NULL, NULL);
}
