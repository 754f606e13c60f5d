/* SPDX-License-Identifier: Apache-2.0 */
/* The closer: everything is closed, by the worker as long as there is room, and a peer reads what it was sent. */
#include "daemon/closer.h"

#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#define CAPACITY 100u

struct scene {
	struct kvd_worker *worker;
	struct kvd_closer closer;
};

static int open_scene(void **state)
{
	static struct scene scene;

	assert_int_equal(kvd_worker_start(&scene.worker), 0);
	assert_int_equal(kvd_closer_init(&scene.closer, CAPACITY), 0);
	*state = &scene;
	return 0;
}

static int close_scene(void **state)
{
	struct scene *scene = *state;

	kvd_worker_stop(scene->worker);
	kvd_closer_destroy(&scene->closer);
	return 0;
}

/* Gives one end of a pipe away; the other tells of its close. */
static int give(struct scene *scene)
{
	int ends[2];

	assert_return_code(pipe2(ends, O_CLOEXEC), errno);
	kvd_closer_add(&scene->closer, ends[1]);
	return ends[0];
}

static bool is_closed(int end)
{
	struct pollfd event = {.fd = end, .events = POLLIN};

	assert_return_code(poll(&event, 1, 0), errno);
	return event.revents & POLLHUP;
}

static void must_close(int end)
{
	char byte;

	assert_int_equal(read(end, &byte, 1), 0);
	close(end);
}

static void deliver_one(struct scene *scene)
{
	struct pollfd event = {.fd = kvd_worker_fd(scene->worker), .events = POLLIN};

	assert_int_equal(poll(&event, 1, -1), 1);
	kvd_worker_deliver(scene->worker);
}

/* The turn in which they were given, and the next one. */
static void hand_over(struct scene *scene)
{
	assert_true(kvd_closer_submit(&scene->closer, scene->worker));
	assert_false(scene->closer.in_flight);
	assert_false(kvd_closer_submit(&scene->closer, scene->worker));
	assert_true(scene->closer.in_flight);
}

static void more_than_a_batch_is_closed_by_the_worker(void **state)
{
	struct scene *scene = *state;
	int ends[CAPACITY];
	unsigned i;

	for (i = 0; i < CAPACITY; i++)
		ends[i] = give(scene);
	for (i = 0; i < CAPACITY; i++)
		assert_false(is_closed(ends[i]));
	hand_over(scene);
	deliver_one(scene);
	assert_int_equal(scene->closer.count, CAPACITY - KVD_CLOSER_BATCH);
	/* In their order: the first have been closed. */
	assert_true(is_closed(ends[KVD_CLOSER_BATCH - 1]));
	assert_false(is_closed(ends[KVD_CLOSER_BATCH]));
	kvd_closer_submit(&scene->closer, scene->worker);
	deliver_one(scene);
	assert_int_equal(scene->closer.count, 0);
	for (i = 0; i < CAPACITY; i++)
		must_close(ends[i]);
}

static void without_room_one_is_closed_at_once(void **state)
{
	struct scene *scene = *state;
	int ends[CAPACITY];
	unsigned i;
	int one_more;

	for (i = 0; i < CAPACITY; i++)
		ends[i] = give(scene);
	one_more = give(scene);
	assert_true(is_closed(one_more));
	close(one_more);
	for (i = 0; i < CAPACITY; i++) {
		assert_false(is_closed(ends[i]));
		close(ends[i]);
	}
}

static void minus_one_is_nothing(void **state)
{
	struct scene *scene = *state;

	kvd_closer_add(&scene->closer, -1);
	assert_int_equal(scene->closer.count, 0);
}

static int wait_for_cancel(void *arg, const _Atomic int *cancel)
{
	atomic_store((_Atomic int *)arg, 1);
	while (!*cancel)
		sched_yield();
	return 0;
}

static void ignore(void *arg, int result)
{
	(void)arg;
	(void)result;
}

static void a_batch_that_was_not_begun_is_closed_too(void **state)
{
	struct scene *scene = *state;
	_Atomic int entered = 0;
	int ends[2] = {give(scene), -1};

	assert_int_equal(kvd_worker_submit(scene->worker, "test", wait_for_cancel, ignore, &entered), 0);
	hand_over(scene);
	ends[1] = give(scene);
	while (!entered)
		sched_yield();
	kvd_worker_stop(scene->worker);
	scene->worker = NULL;
	must_close(ends[0]);
	assert_false(is_closed(ends[1]));
	kvd_closer_destroy(&scene->closer);
	must_close(ends[1]);
}

/* Unread messages at close would make the peer's read fail with ECONNRESET. */
static void a_peer_reads_what_it_was_sent_and_then_the_end(void **state)
{
	struct scene *scene = *state;
	char text[8] = "";
	int ends[2];
	int i;

	assert_return_code(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), errno);
	for (i = 0; i < 5; i++)
		assert_int_equal(send(ends[0], "unread", 6, 0), 6);
	assert_int_equal(send(ends[1], "answer", 6, 0), 6);
	kvd_closer_add(&scene->closer, ends[1]);
	hand_over(scene);
	deliver_one(scene);
	assert_int_equal(recv(ends[0], text, sizeof(text), 0), 6);
	assert_string_equal(text, "answer");
	assert_int_equal(recv(ends[0], text, sizeof(text), 0), 0);
	close(ends[0]);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, open_scene, close_scene)
	const struct CMUnitTest tests[] = {
		T(more_than_a_batch_is_closed_by_the_worker),
		T(without_room_one_is_closed_at_once),
		T(minus_one_is_nothing),
		T(a_batch_that_was_not_begun_is_closed_too),
		T(a_peer_reads_what_it_was_sent_and_then_the_end),
	};

	kvt_watchdog(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
