/* SPDX-License-Identifier: Apache-2.0 */
/* The worker: order, results, limits, cancelling, and who runs on which thread. Also run under ThreadSanitizer. */
#include "daemon/worker.h"

#include "support.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

/* What jobs did, in order; `ran` on the worker's thread, `told` on ours. */
struct diary {
	struct kvd_worker *worker;
	_Atomic unsigned ran_count;
	int ran[128];
	unsigned told_count;
	int told[128];
	pthread_t owner;
};

struct entry {
	struct diary *diary;
	int number;
};

static int note_run(void *arg, const _Atomic int *cancel)
{
	struct entry *entry = arg;
	unsigned n = entry->diary->ran_count;

	(void)cancel;
	if (pthread_equal(pthread_self(), entry->diary->owner))
		return -EDEADLK;
	entry->diary->ran[n] = entry->number;
	entry->diary->ran_count = n + 1;
	return entry->number * 10;
}

static void note_done(void *arg, int result)
{
	struct entry *entry = arg;

	assert_true(pthread_equal(pthread_self(), entry->diary->owner));
	entry->diary->told[entry->diary->told_count++] = result;
}

/* Runs until it is cancelled, or `released`. */
struct gate {
	_Atomic int entered;
	_Atomic int released;
	int result;
	unsigned told;
};

static int wait_at_gate(void *arg, const _Atomic int *cancel)
{
	struct gate *gate = arg;

	gate->entered = 1;
	while (!*cancel && !gate->released)
		sched_yield();
	return *cancel ? -ECANCELED : 5;
}

static void gate_told(void *arg, int result)
{
	struct gate *gate = arg;

	gate->result = result;
	gate->told++;
}

static bool has_entered(void *arg)
{
	return ((struct gate *)arg)->entered;
}

static struct kvd_worker *start(struct diary *diary)
{
	struct kvd_worker *worker;

	assert_int_equal(kvd_worker_start(&worker), 0);
	if (diary) {
		memset(diary, 0, sizeof(*diary));
		diary->owner = pthread_self();
		diary->worker = worker;
	}
	return worker;
}

static void deliver_until(struct kvd_worker *worker, const unsigned *told, unsigned count)
{
	while (*told < count) {
		kvt_wait_readable(kvd_worker_fd(worker), 10000);
		kvd_worker_deliver(worker);
	}
}

static bool is_readable(int fd)
{
	struct pollfd look = {.fd = fd, .events = POLLIN};

	return poll(&look, 1, 0) == 1;
}

static void jobs_run_in_order_and_are_told_here(void **state)
{
	struct diary diary;
	struct kvd_worker *worker = start(&diary);
	struct entry entries[40];

	(void)state;
	assert_false(is_readable(kvd_worker_fd(worker)));
	for (int i = 0; i < 40; i++) {
		entries[i] = (struct entry){&diary, i + 1};
		assert_int_equal(kvd_worker_submit(worker, "note", note_run, note_done, &entries[i]), 0);
	}
	deliver_until(worker, &diary.told_count, 40);
	for (int i = 0; i < 40; i++) {
		assert_int_equal(diary.ran[i], i + 1);
		assert_int_equal(diary.told[i], (i + 1) * 10);
	}
	/* A job that ended while others were told may have rung once more, for nothing. */
	kvd_worker_deliver(worker);
	assert_false(is_readable(kvd_worker_fd(worker)));
	assert_int_equal(diary.told_count, 40);
	kvd_worker_stop(worker);
	assert_int_equal(diary.told_count, 40);
}

/* The running one counts: it keeps its place until it is told. */
static void the_sixty_fifth_job_is_refused_until_one_is_told(void **state)
{
	struct diary diary;
	struct kvd_worker *worker = start(&diary);
	struct gate gate = {0};
	struct entry entry = {&diary, 1};

	(void)state;
	assert_int_equal(kvd_worker_submit(worker, "gate", wait_at_gate, gate_told, &gate), 0);
	for (int i = 1; i < 64; i++)
		assert_int_equal(kvd_worker_submit(worker, "note", note_run, note_done, &entry), 0);
	assert_int_equal(kvd_worker_submit(worker, "note", note_run, note_done, &entry), -EAGAIN);
	gate.released = 1;
	deliver_until(worker, &diary.told_count, 63);
	assert_int_equal(gate.result, 5);
	assert_int_equal(kvd_worker_submit(worker, "note", note_run, note_done, &entry), 0);
	deliver_until(worker, &diary.told_count, 64);
	kvd_worker_stop(worker);
}

static bool has_run_64(void *arg)
{
	return ((struct diary *)arg)->ran_count == 64;
}

/* Its place is not free: the completions would overwrite each other. */
static void jobs_that_ran_but_were_not_told_keep_their_places(void **state)
{
	struct diary diary;
	struct kvd_worker *worker = start(&diary);
	struct entry entries[64];

	(void)state;
	for (int i = 0; i < 64; i++) {
		entries[i] = (struct entry){&diary, i};
		assert_int_equal(kvd_worker_submit(worker, "note", note_run, note_done, &entries[i]), 0);
	}
	kvt_wait_until(has_run_64, &diary);
	assert_int_equal(kvd_worker_submit(worker, "note", note_run, note_done, &entries[0]), -EAGAIN);
	deliver_until(worker, &diary.told_count, 64);
	for (int i = 0; i < 64; i++)
		assert_int_equal(diary.told[i], i * 10);
	kvd_worker_stop(worker);
}

static void stopping_cancels_the_running_job_and_those_behind_it(void **state)
{
	struct diary diary;
	struct kvd_worker *worker = start(&diary);
	struct gate gate = {0};
	struct entry entry = {&diary, 1};

	(void)state;
	assert_int_equal(kvd_worker_submit(worker, "gate", wait_at_gate, gate_told, &gate), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(kvd_worker_submit(worker, "note", note_run, note_done, &entry), 0);
	kvt_wait_until(has_entered, &gate);
	kvd_worker_stop(worker);
	assert_int_equal(gate.told, 1);
	assert_int_equal(gate.result, -ECANCELED);
	assert_int_equal(diary.ran_count, 0);
	assert_int_equal(diary.told_count, 3);
	for (int i = 0; i < 3; i++)
		assert_int_equal(diary.told[i], -ECANCELED);
}

static void stopping_tells_what_was_done_and_not_delivered(void **state)
{
	struct diary diary;
	struct kvd_worker *worker = start(&diary);
	struct entry entry = {&diary, 4};

	(void)state;
	assert_int_equal(kvd_worker_submit(worker, "note", note_run, note_done, &entry), 0);
	kvt_wait_readable(kvd_worker_fd(worker), 10000);
	kvd_worker_stop(worker);
	assert_int_equal(diary.told_count, 1);
	assert_int_equal(diary.told[0], 40);
}

static void submit_from_done(void *arg, int result)
{
	struct entry *entry = arg;
	struct diary *diary = entry->diary;

	note_done(arg, result);
	if (diary->told_count < 100)
		assert_int_equal(kvd_worker_submit(diary->worker, "note", note_run, submit_from_done, entry),
				 0);
}

static void a_completion_may_submit_the_next_job(void **state)
{
	struct diary diary;
	struct kvd_worker *worker = start(&diary);
	struct entry entry = {&diary, 2};

	(void)state;
	assert_int_equal(kvd_worker_submit(worker, "note", note_run, submit_from_done, &entry), 0);
	deliver_until(worker, &diary.told_count, 100);
	assert_int_equal(diary.ran_count, 100);
	kvd_worker_stop(worker);
}

static void submit_while_stopping(void *arg, int result)
{
	struct entry *entry = arg;

	note_done(arg, result);
	assert_int_equal(kvd_worker_submit(entry->diary->worker, "note", note_run, note_done, entry),
			 -ECANCELED);
}

static void no_job_is_taken_while_it_stops(void **state)
{
	struct diary diary;
	struct kvd_worker *worker = start(&diary);
	struct gate gate = {0};
	struct entry entry = {&diary, 1};

	(void)state;
	assert_int_equal(kvd_worker_submit(worker, "gate", wait_at_gate, gate_told, &gate), 0);
	assert_int_equal(kvd_worker_submit(worker, "note", note_run, submit_while_stopping, &entry), 0);
	kvd_worker_stop(worker);
	assert_int_equal(diary.told_count, 1);
}

static bool is_busy(void *arg)
{
	const char *name = NULL;

	return kvd_worker_busy_ms(arg, &name) > 0 && !strcmp(name, "filling");
}

static void health_names_the_running_job(void **state)
{
	struct kvd_worker *worker = start(NULL);
	struct gate gate = {0};
	const char *name = "untouched";
	uint64_t first;
	uint64_t start_ns;

	(void)state;
	assert_int_equal(kvd_worker_busy_ms(worker, &name), 0);
	assert_string_equal(name, "untouched");
	assert_int_equal(kvd_worker_submit(worker, "filling", wait_at_gate, gate_told, &gate), 0);
	kvt_wait_until(is_busy, worker);
	first = kvd_worker_busy_ms(worker, &name);
	start_ns = kvt_now_ns();
	while (kvt_now_ns() - start_ns < 3000000)
		sched_yield();
	assert_true(kvd_worker_busy_ms(worker, &name) >= first + 2);
	gate.released = 1;
	deliver_until(worker, &gate.told, 1);
	assert_int_equal(kvd_worker_busy_ms(worker, &name), 0);
	kvd_worker_stop(worker);
}

static int look_at_signals(void *arg, const _Atomic int *cancel)
{
	sigset_t mask;

	(void)arg;
	(void)cancel;
	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	return sigismember(&mask, SIGTERM) && sigismember(&mask, SIGINT) && sigismember(&mask, SIGUSR1);
}

static void signals_stay_with_the_loop(void **state)
{
	struct kvd_worker *worker = start(NULL);
	struct gate gate = {0};
	sigset_t mask;

	(void)state;
	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	assert_false(sigismember(&mask, SIGTERM));
	assert_int_equal(kvd_worker_submit(worker, "signals", look_at_signals, gate_told, &gate), 0);
	deliver_until(worker, &gate.told, 1);
	assert_int_equal(gate.result, 1);
	kvd_worker_stop(worker);
}

/* Random bursts; every job is told once, with its own result, in order. */
static void bursts_lose_nothing(void **state)
{
	struct kvt_rng rng = {kvt_seed()};
	struct diary diary;
	struct kvd_worker *worker = start(&diary);
	struct entry entry = {&diary, 1};

	(void)state;
	for (unsigned round = 0; round < 400; round++) {
		unsigned count = 1 + (unsigned)kvt_rng_below(&rng, 64);

		diary.ran_count = 0;
		diary.told_count = 0;
		for (unsigned i = 0; i < count; i++)
			assert_int_equal(kvd_worker_submit(worker, "note", note_run, note_done, &entry), 0);
		deliver_until(worker, &diary.told_count, count);
		assert_int_equal(diary.told_count, count);
		assert_int_equal(diary.ran_count, count);
	}
	kvd_worker_stop(worker);
}

/* A look that falls between two jobs sees one of them, and neither began in the future. */
static void health_between_short_jobs_is_no_long_one(void **state)
{
	struct diary diary;
	struct kvd_worker *worker = start(&diary);
	struct entry entry = {&diary, 1};
	const char *name;

	(void)state;
	for (unsigned round = 0; round < 10000; round++) {
		diary.ran_count = 0;
		diary.told_count = 0;
		for (int i = 0; i < 60; i++)
			assert_int_equal(kvd_worker_submit(worker, "note", note_run, note_done, &entry), 0);
		while (diary.ran_count < 60)
			assert_true(kvd_worker_busy_ms(worker, &name) < 120000);
		deliver_until(worker, &diary.told_count, 60);
	}
	kvd_worker_stop(worker);
}

static void starting_and_stopping_leaves_no_descriptor(void **state)
{
	int before = kvt_count_fds();

	(void)state;
	for (int i = 0; i < 50; i++)
		kvd_worker_stop(start(NULL));
	kvd_worker_stop(NULL);
	assert_int_equal(kvt_count_fds(), before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(jobs_run_in_order_and_are_told_here),
		cmocka_unit_test(the_sixty_fifth_job_is_refused_until_one_is_told),
		cmocka_unit_test(jobs_that_ran_but_were_not_told_keep_their_places),
		cmocka_unit_test(stopping_cancels_the_running_job_and_those_behind_it),
		cmocka_unit_test(stopping_tells_what_was_done_and_not_delivered),
		cmocka_unit_test(a_completion_may_submit_the_next_job),
		cmocka_unit_test(no_job_is_taken_while_it_stops),
		cmocka_unit_test(health_names_the_running_job),
		cmocka_unit_test(signals_stay_with_the_loop),
		cmocka_unit_test(bursts_lose_nothing),
		cmocka_unit_test(health_between_short_jobs_is_no_long_one),
		cmocka_unit_test(starting_and_stopping_leaves_no_descriptor),
	};

	kvt_watchdog(120);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
