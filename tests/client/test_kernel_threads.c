/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvp_threads_create(): rounds are complete, whoever calls, and what is started is also ended.
 */
#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kvpool/kernels.h>
#include <kvpool/kvpool.h>

#include "fixture.h"

#define MAX_COUNT 9u

/* pthread_create() through the test's hands: the call with this number fails; 0: none. */
static unsigned fail_create_at;
static unsigned creates;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
			  void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
			  void *arg);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
			  void *arg)
{
	return ++creates == fail_create_at ? EAGAIN : __real_pthread_create(thread, attributes, start, arg);
}

static int count_tasks(void)
{
	DIR *dir = opendir("/proc/self/task");
	int count = 0;

	assert_non_null(dir);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

static bool tasks_are(void *arg)
{
	return count_tasks() == *(const int *)arg;
}

/* The kernel takes a joined thread from the list a moment after the join. */
static void wait_for_tasks(int count)
{
	kvt_wait_until(tasks_are, &count);
}

static const struct kvk_threads *create(uint32_t count, uint32_t spin_us)
{
	const struct kvp_threads_params params = {.size = sizeof(params), .count = count, .spin_us = spin_us};
	const struct kvk_threads *threads;

	assert_int_equal(kvp_threads_create(&params, &threads), 0);
	assert_int_equal(threads->count, count);
	return threads;
}

/* How often each index ran. Plain numbers: a round's end makes them visible. */
struct tally {
	uint32_t runs[MAX_COUNT];
	pthread_t thread[MAX_COUNT];
};

static void count_run(void *arg, uint32_t index)
{
	struct tally *tally = arg;

	tally->runs[index]++;
	tally->thread[index] = pthread_self();
}

static void assert_all_ran(const struct tally *tally, uint32_t count, uint32_t times)
{
	for (uint32_t i = 0; i < MAX_COUNT; i++)
		assert_int_equal(tally->runs[i], i < count ? times : 0);
}

static void every_index_runs_once_a_round(void **state)
{
	(void)state;
	for (uint32_t count = 1; count <= MAX_COUNT; count++) {
		const struct kvk_threads *threads = create(count, 0);
		struct tally tally = {0};

		for (uint32_t round = 1; round <= 200; round++) {
			threads->run(threads->context, count_run, &tally);
			assert_all_ran(&tally, count, round);
			assert_true(pthread_equal(tally.thread[0], pthread_self()));
			for (uint32_t i = 1; i < count; i++)
				assert_false(pthread_equal(tally.thread[i], pthread_self()));
		}
		kvp_threads_destroy(threads);
	}
}

/* Both kinds of waiting, on both sides: the first rounds find the threads asleep. */
static void threads_that_sleep_are_woken(void **state)
{
	const struct kvk_threads *threads = create(3, 1);
	struct tally tally = {0};

	(void)state;
	for (uint32_t round = 1; round <= 2000; round++) {
		threads->run(threads->context, count_run, &tally);
		assert_all_ran(&tally, 3, round);
		for (int i = 0; i < 20; i++)
			sched_yield();
	}
	kvp_threads_destroy(threads);
}

struct nested {
	const struct kvk_threads *threads;
	struct tally tally[MAX_COUNT];
};

static void run_inside(void *arg, uint32_t index)
{
	struct nested *nested = arg;

	nested->threads->run(nested->threads->context, count_run, &nested->tally[index]);
	for (uint32_t i = 0; i < nested->threads->count; i++)
		assert_true(pthread_equal(nested->tally[index].thread[i], pthread_self()));
}

static void a_round_inside_a_round_is_done_by_its_caller(void **state)
{
	struct nested nested = {.threads = create(3, 0)};

	(void)state;
	nested.threads->run(nested.threads->context, run_inside, &nested);
	for (uint32_t i = 0; i < 3; i++)
		assert_all_ran(&nested.tally[i], 3, 1);
	kvp_threads_destroy(nested.threads);
}

#define CALLER_ROUNDS 3000u

static void *call_often(void *arg)
{
	const struct kvk_threads *threads = arg;
	struct tally *tally = calloc(1, sizeof(*tally));

	for (uint32_t round = 0; round < CALLER_ROUNDS; round++)
		threads->run(threads->context, count_run, tally);
	return tally;
}

static void callers_at_the_same_time_all_get_their_rounds(void **state)
{
	const struct kvk_threads *threads = create(3, 0);
	pthread_t callers[3];

	(void)state;
	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&callers[i], NULL, call_often, (void *)(uintptr_t)threads),
				 0);
	for (int i = 0; i < 3; i++) {
		void *tally;

		assert_int_equal(pthread_join(callers[i], &tally), 0);
		assert_all_ran(tally, 3, CALLER_ROUNDS);
		free(tally);
	}
	kvp_threads_destroy(threads);
}

static void when_one_thread_cannot_be_had_none_is_left(void **state)
{
	const struct kvp_threads_params params = {.size = sizeof(params), .count = 5};
	const struct kvk_threads *threads = (const struct kvk_threads *)&params;
	int tasks = count_tasks();
	const int fds = kvt_count_fds();

	(void)state;
	for (unsigned at = 1; at < 5; at++) {
		creates = 0;
		fail_create_at = at;
		assert_int_equal(kvp_threads_create(&params, &threads), -EAGAIN);
		assert_ptr_equal(threads, &params);
		assert_int_equal(creates, at);
		wait_for_tasks(tasks);
		assert_int_equal(kvt_count_fds(), fds);
		assert_non_null(strstr(kvp_last_error(), "of 5"));
	}
	fail_create_at = 0;
	assert_int_equal(kvp_threads_create(&params, &threads), 0);
	wait_for_tasks(tasks + 4);
	kvp_threads_destroy(threads);
	wait_for_tasks(tasks);
	kvp_threads_destroy(NULL);
}

static void in_a_forked_child_rounds_are_done_by_the_caller(void **state)
{
	const struct kvk_threads *threads = create(4, 0);
	struct tally tally = {0};
	int status;
	pid_t pid;

	(void)state;
	threads->run(threads->context, count_run, &tally);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		bool good = true;

		alarm(30);
		threads->run(threads->context, count_run, &tally);
		for (uint32_t i = 0; i < 4; i++)
			good &= tally.runs[i] == 2 && pthread_equal(tally.thread[i], pthread_self());
		kvp_threads_destroy(threads);
		_exit(good ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	threads->run(threads->context, count_run, &tally);
	assert_all_ran(&tally, 4, 2);
	kvp_threads_destroy(threads);
}

/* What a thread is like, looked at from inside. */
struct look {
	cpu_set_t cpus[MAX_COUNT];
	sigset_t blocked[MAX_COUNT];
};

static void look_around(void *arg, uint32_t index)
{
	struct look *look = arg;

	sched_getaffinity(0, sizeof(look->cpus[index]), &look->cpus[index]);
	pthread_sigmask(SIG_SETMASK, NULL, &look->blocked[index]);
}

static uint32_t last_cpu(const cpu_set_t *set)
{
	uint32_t last = 0;

	for (uint32_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
		last = CPU_ISSET(cpu, set) ? cpu : last;
	return last;
}

static void threads_are_pinned_where_asked_and_the_caller_is_not(void **state)
{
	struct kvp_threads_params params = {.size = sizeof(params), .count = 3};
	const struct kvk_threads *threads;
	cpu_set_t before, after;
	struct look look;
	uint32_t cpus[2];

	(void)state;
	assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
	cpus[0] = cpus[1] = last_cpu(&before);
	params.cpus = cpus;
	assert_int_equal(kvp_threads_create(&params, &threads), 0);
	threads->run(threads->context, look_around, &look);
	for (uint32_t i = 1; i < 3; i++)
		assert_true(CPU_COUNT(&look.cpus[i]) == 1 && CPU_ISSET(cpus[0], &look.cpus[i]));
	assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
	assert_true(CPU_EQUAL(&before, &after));
	kvp_threads_destroy(threads);

	cpus[1] = CPU_SETSIZE;
	assert_int_equal(kvp_threads_create(&params, &threads), -EINVAL);
	cpus[1] = CPU_SETSIZE - 1; /* no test machine has as many */
	assert_int_equal(kvp_threads_create(&params, &threads), -EINVAL);
	assert_non_null(strstr(kvp_last_error(), "CPU 1023"));
}

static void signals_stay_with_the_engines_threads(void **state)
{
	const struct kvk_threads *threads = create(2, 0);
	sigset_t now;
	struct look look;

	(void)state;
	threads->run(threads->context, look_around, &look);
	pthread_sigmask(SIG_SETMASK, NULL, &now);
	assert_true(sigismember(&look.blocked[1], SIGTERM) == 1 &&
		    sigismember(&look.blocked[1], SIGUSR1) == 1);
	assert_true(sigismember(&now, SIGTERM) == 0 && sigismember(&now, SIGUSR1) == 0);
	kvp_threads_destroy(threads);
}

static void the_default_is_a_thread_for_each_usable_cpu(void **state)
{
	const struct kvk_threads *threads;
	cpu_set_t set;

	(void)state;
	assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
	assert_int_equal(kvp_threads_create(NULL, &threads), 0);
	assert_int_equal(threads->count, CPU_COUNT(&set));
	kvp_threads_destroy(threads);
}

static void parameters_past_their_limits_are_refused(void **state)
{
	static const uint32_t cpus[] = {0};
	const struct kvp_threads_params good = {.size = sizeof(good), .count = 2};
	const struct kvk_threads *threads;
	struct kvp_threads_params params = good;

	(void)state;
	params.count = KVK_MAX_THREADS + 1;
	assert_int_equal(kvp_threads_create(&params, &threads), -KVP_ELIMIT);
	params = good;
	params.spin_us = 1000001;
	assert_int_equal(kvp_threads_create(&params, &threads), -KVP_ELIMIT);
	params = good;
	params.flags = 1;
	assert_int_equal(kvp_threads_create(&params, &threads), -EINVAL);
	params = good;
	params.count = 0;
	params.cpus = cpus;
	assert_int_equal(kvp_threads_create(&params, &threads), -EINVAL);
	params = good;
	params.size = 0;
	assert_int_equal(kvp_threads_create(&params, &threads), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_index_runs_once_a_round),
		cmocka_unit_test(threads_that_sleep_are_woken),
		cmocka_unit_test(a_round_inside_a_round_is_done_by_its_caller),
		cmocka_unit_test(callers_at_the_same_time_all_get_their_rounds),
		cmocka_unit_test(when_one_thread_cannot_be_had_none_is_left),
		cmocka_unit_test(in_a_forked_child_rounds_are_done_by_the_caller),
		cmocka_unit_test(threads_are_pinned_where_asked_and_the_caller_is_not),
		cmocka_unit_test(signals_stay_with_the_engines_threads),
		cmocka_unit_test(the_default_is_a_thread_for_each_usable_cpu),
		cmocka_unit_test(parameters_past_their_limits_are_refused),
	};

	kvt_watchdog(100);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
