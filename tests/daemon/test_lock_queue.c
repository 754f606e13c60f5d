/* SPDX-License-Identifier: Apache-2.0 */
/* What the worker does to a pool's locks, with a device of the test's own. Also run under ThreadSanitizer. */
#include "daemon/lock_queue.h"

#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define JOBS 40u
#define DEAR_US 400u
#define LATER_US (UINT64_C(1) << 60)

/* The device: what it was asked, and how long it takes. */
static struct {
	pthread_t owner;
	_Atomic bool on_our_thread;
	_Atomic uint32_t entered;
	_Atomic uint32_t held; /* no answer while 1 */
	_Atomic uint32_t asked;
	_Atomic uint32_t dear_us;
	uint64_t order[4 * JOBS]; /* lock bytes */
	uint64_t gone;            /* of which there is a proof */
} device;

static struct kvd_lock_queue queue;
static struct kvd_worker *worker;
static struct kvd_lock_job jobs[JOBS];
static uint32_t told;

static uint64_t thread_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

static void work(uint64_t lock_byte)
{
	uint64_t until_us = thread_us() + device.dear_us;

	if (pthread_equal(pthread_self(), device.owner))
		device.on_our_thread = true;
	device.order[device.asked] = lock_byte;
	device.entered++;
	while (device.held)
		sched_yield();
	while (thread_us() < until_us)
		;
	device.asked++;
}

static int session_fd(struct kvd_memory *memory, uint64_t lock_byte, int *out_fd)
{
	(void)memory;
	work(lock_byte);
	*out_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return *out_fd < 0 ? -errno : 0;
}

static int proved_gone(struct kvd_memory *memory, uint64_t lock_byte)
{
	(void)memory;
	work(lock_byte);
	return lock_byte == device.gone;
}

static void count(struct kvd_lock_job *job)
{
	assert_true(pthread_equal(pthread_self(), device.owner));
	assert_false(job->queued);
	told++;
}

static const struct kvd_device_ops ops = {.session_fd = session_fd, .proved_gone = proved_gone};

static int set_up(void **state)
{
	uint32_t i;

	(void)state;
	memset(&device, 0, sizeof(device));
	device.owner = pthread_self();
	device.gone = UINT64_MAX;
	told = 0;
	kvd_lock_queue_init(&queue, &ops, NULL);
	for (i = 0; i < JOBS; i++)
		jobs[i] = (struct kvd_lock_job){.lock_byte = i, .fd = -1, .told = count};
	return kvd_worker_start(&worker);
}

static int tear_down(void **state)
{
	(void)state;
	device.held = 0;
	kvd_worker_stop(worker);
	worker = NULL;
	return 0;
}

/* Turns of a loop whose clock is far beyond every pause. */
static void turn_until_told(uint32_t jobs_told)
{
	while (told < jobs_told) {
		kvd_lock_queue_submit(&queue, worker, LATER_US);
		kvt_wait_readable(kvd_worker_fd(worker), 10000);
		kvd_worker_deliver(worker);
	}
}

static bool has_entered(void *arg)
{
	(void)arg;
	return device.entered > 0;
}

static void the_worker_asks_and_the_loop_is_told(void **state)
{
	(void)state;
	device.gone = 1;
	kvd_lock_queue_add(&queue, &jobs[0], KVD_LOCK_PROOF);
	kvd_lock_queue_add(&queue, &jobs[1], KVD_LOCK_PROOF);
	assert_true(jobs[0].queued);
	turn_until_told(2);
	assert_int_equal(jobs[0].result, 0);
	assert_int_equal(jobs[1].result, 1);
	assert_false(device.on_our_thread);
}

static void a_descriptor_is_made_and_closed_by_the_worker(void **state)
{
	int fd;

	(void)state;
	kvd_lock_queue_add(&queue, &jobs[0], KVD_LOCK_MAKE);
	turn_until_told(1);
	fd = jobs[0].fd;
	assert_int_equal(jobs[0].result, 0);
	assert_return_code(fcntl(fd, F_GETFD), errno);
	kvd_lock_queue_add(&queue, &jobs[0], KVD_LOCK_CLOSE);
	turn_until_told(2);
	assert_int_equal(jobs[0].fd, -1);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
	assert_false(device.on_our_thread);
}

/* A turn only hands over: a question that takes for ever is the worker's, and its health names it. */
static void a_question_without_an_answer_holds_no_turn_up(void **state)
{
	const char *name = "";
	uint32_t i;

	(void)state;
	device.held = 1;
	kvd_lock_queue_add(&queue, &jobs[0], KVD_LOCK_PROOF);
	kvd_lock_queue_submit(&queue, worker, LATER_US);
	kvt_wait_until(has_entered, NULL);
	for (i = 1; i < JOBS; i++) {
		kvd_lock_queue_add(&queue, &jobs[i], KVD_LOCK_PROOF);
		kvd_lock_queue_submit(&queue, worker, LATER_US);
		kvd_worker_deliver(worker);
	}
	assert_int_equal(device.entered, 1);
	assert_int_equal(told, 0);
	assert_true(kvd_worker_busy_ms(worker, &name) > 0);
	assert_string_equal(name, "look at a pool's locks");
	device.held = 0;
	turn_until_told(JOBS);
	assert_int_equal(device.asked, JOBS);
}

static void who_waits_for_a_descriptor_comes_before_the_proofs_of_the_dead(void **state)
{
	uint32_t i;

	(void)state;
	for (i = 0; i < 20; i++)
		kvd_lock_queue_add(&queue, &jobs[i], KVD_LOCK_PROOF);
	kvd_lock_queue_add(&queue, &jobs[20], KVD_LOCK_MAKE);
	kvd_lock_queue_add(&queue, &jobs[21], KVD_LOCK_MAKE);
	turn_until_told(22);
	assert_int_equal(device.order[0], 20);
	assert_int_equal(device.order[1], 21);
	for (i = 0; i < 20; i++)
		assert_int_equal(device.order[2 + i], i);
	close(jobs[20].fd);
	close(jobs[21].fd);
}

/* One by one then, in their order, each after a pause. */
static void dear_questions_are_given_back_and_paused_for(void **state)
{
	uint64_t now_us = 0;
	uint32_t i;

	(void)state;
	device.dear_us = DEAR_US;
	for (i = 0; i < 5; i++)
		kvd_lock_queue_add(&queue, &jobs[i], KVD_LOCK_PROOF);
	for (i = 0; i < 5; i++) {
		kvd_lock_queue_submit(&queue, worker, LATER_US);
		kvt_wait_readable(kvd_worker_fd(worker), 10000);
		kvd_worker_deliver(worker);
		assert_int_equal(told, i + 1);
		assert_int_equal(device.order[i], i);
		assert_true(i == 4 || jobs[i + 1].queued);
		now_us = queue.proofs.next_us - 1;
		kvd_lock_queue_submit(&queue, worker, now_us);
		assert_false(queue.in_flight);
	}
	assert_true(now_us > DEAR_US * KVD_PROOFS_PAUSE);
}

static void stopping_tells_all_that_wait(void **state)
{
	uint32_t i;

	(void)state;
	for (i = 0; i < JOBS; i++)
		kvd_lock_queue_add(&queue, &jobs[i], KVD_LOCK_PROOF);
	device.held = 1;
	kvd_lock_queue_submit(&queue, worker, LATER_US);
	kvt_wait_until(has_entered, NULL);
	device.held = 0;
	kvd_worker_stop(worker);
	worker = NULL;
	assert_int_equal(told, JOBS);
	assert_int_equal(jobs[JOBS - 1].result, -ECANCELED);
	assert_false(jobs[JOBS - 1].queued);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(the_worker_asks_and_the_loop_is_told),
		TEST(a_descriptor_is_made_and_closed_by_the_worker),
		TEST(a_question_without_an_answer_holds_no_turn_up),
		TEST(who_waits_for_a_descriptor_comes_before_the_proofs_of_the_dead),
		TEST(dear_questions_are_given_back_and_paused_for),
		TEST(stopping_tells_all_that_wait),
	};

	kvt_watchdog(30);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
