/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two sleeping protocols, each with its sleeper and its waker in threads: the doorbell (client wakes the
 * daemon by an eventfd) and the futex of completions (daemon wakes the client). One record a round: the waker
 * posts as soon as the last one was taken, which is when the sleeper goes to sleep, so that every round is a
 * chance to lose a wake-up.
 */
#include "support.h"

#include "ipc/ring.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "kvpool/error.h"

#define ROUNDS 200000u
/* Far above any delay by scheduling: only a wake-up that never comes takes so long. */
#define LOST_AFTER_MS 20000
/* In the control no wake-up will come, so the wait may be short. */
#define CONTROL_AFTER_MS 50

struct shared {
	struct kvw_directory_header directory;
	struct kvw_channel_header channel;
	_Alignas(64) struct kvw_completion records[KVW_RING_RECORDS];
	struct kvw_ring producer;
	struct kvw_ring consumer;
	int doorbell;
	/* From this round on the waker keeps silent until the loss is noticed; UINT32_MAX: never. */
	uint32_t silent_from;
	int patience_ms;
	_Atomic uint32_t lost;
	_Atomic uint32_t slept;
	_Atomic uint32_t woken;
};

static struct shared *fresh(uint32_t silent_from, int patience_ms)
{
	static struct shared shared;

	memset(&shared, 0, sizeof(shared));
	kvw_ring_init(&shared.producer, &shared.channel.completions, shared.records);
	kvw_ring_init(&shared.consumer, &shared.channel.completions, shared.records);
	shared.silent_from = silent_from;
	shared.patience_ms = patience_ms;
	return &shared;
}

/* Gives way only after a while: a waker that yields at once comes too late to meet the sleeper. */
static void wait_taken(struct shared *shared)
{
	uint32_t spins = 0;

	while (!kvw_ring_passed(&shared->producer, shared->producer.own))
		if (++spins > 1000)
			sched_yield();
}

/* Shifts the post against the sleeper's steps, a little more each round. */
static void drift(uint32_t round)
{
	volatile uint32_t spins;

	for (spins = round % 97; spins > 0; spins--)
		;
}

/* Posts `rounds` records, each when the one before was taken; `wake` is called after each post. */
static void post_rounds(struct shared *shared, uint32_t rounds, void (*wake)(struct shared *))
{
	struct kvw_completion record = {0};
	uint32_t round;

	for (round = 0; round < rounds; round++) {
		record.ticket = round;
		drift(round);
		assert_int_equal(kvw_ring_post(&shared->producer, &record), 0);
		if (round < shared->silent_from || shared->lost > 0)
			wake(shared);
		wait_taken(shared);
	}
}

/* Takes what is there; the number of records. */
static uint32_t take_all(struct shared *shared)
{
	struct kvw_completion record;
	uint32_t taken = 0;

	while (kvw_ring_take(&shared->consumer, &record) == 1)
		taken++;
	return taken;
}

/* ------------------------------------------------------------------ doorbell */

static void ring_if_asleep(struct shared *shared)
{
	const uint64_t one = 1;

	if (!kvw_must_ring(&shared->directory))
		return;
	assert_int_equal(write(shared->doorbell, &one, sizeof(one)), sizeof(one));
	atomic_fetch_add(&shared->woken, 1);
}

/* A wait that ended by itself although a record is there: the wake-up was lost. */
static void count_loss(struct shared *shared)
{
	if (kvw_ring_waiting(&shared->consumer) > 0)
		atomic_fetch_add(&shared->lost, 1);
}

static void sleep_for_the_bell(struct shared *shared)
{
	struct pollfd entry = {.fd = shared->doorbell, .events = POLLIN};
	uint64_t count;

	atomic_fetch_add(&shared->slept, 1);
	if (poll(&entry, 1, shared->patience_ms) == 0)
		count_loss(shared);
	else
		assert_int_equal(read(shared->doorbell, &count, sizeof(count)), sizeof(count));
}

static void *daemon_side(void *arg)
{
	struct shared *shared = arg;
	uint32_t taken = 0;

	while (taken < ROUNDS) {
		taken += take_all(shared);
		if (taken == ROUNDS)
			break;
		atomic_store_explicit(&shared->directory.daemon_sleeping, 1, memory_order_relaxed);
		kvw_store_load_fence();
		if (kvw_ring_waiting(&shared->consumer) == 0)
			sleep_for_the_bell(shared);
		atomic_store_explicit(&shared->directory.daemon_sleeping, 0, memory_order_relaxed);
	}
	return NULL;
}

static void run_doorbell(struct shared *shared)
{
	pthread_t thread;

	shared->doorbell = eventfd(0, EFD_CLOEXEC);
	assert_true(shared->doorbell >= 0);
	assert_int_equal(pthread_create(&thread, NULL, daemon_side, shared), 0);
	post_rounds(shared, ROUNDS, ring_if_asleep);
	pthread_join(thread, NULL);
	close(shared->doorbell);
}

static void the_doorbell_loses_no_wake_up(void **state)
{
	struct shared *shared = fresh(UINT32_MAX, LOST_AFTER_MS);

	(void)state;
	run_doorbell(shared);
	assert_int_equal(shared->lost, 0);
	/* The protocol was used: the daemon slept, and was woken. */
	assert_true(shared->slept > 100 && shared->woken > 100);
}

/* Bells are not rung late in the run: the same count must show it. */
static void a_silent_doorbell_is_noticed(void **state)
{
	struct shared *shared = fresh(ROUNDS - 1000, CONTROL_AFTER_MS);

	(void)state;
	run_doorbell(shared);
	assert_true(shared->lost >= 1);
}

static void an_awake_daemon_is_not_rung(void **state)
{
	struct shared *shared = fresh(UINT32_MAX, 0);

	(void)state;
	assert_false(kvw_must_ring(&shared->directory));
	atomic_store(&shared->directory.daemon_sleeping, 1);
	assert_true(kvw_must_ring(&shared->directory));
	/* Any other value is a daemon that we do not understand: ring. */
	atomic_store(&shared->directory.daemon_sleeping, 7);
	assert_true(kvw_must_ring(&shared->directory));
}

/* ------------------------------------------------------------------ futex of completions */

static void wake_if_waiting(struct shared *shared)
{
	struct kvw_channel_header *channel = &shared->channel;

	kvw_store_load_fence();
	if (!atomic_load_explicit(&channel->client_waiting, memory_order_relaxed))
		return;
	atomic_fetch_add_explicit(&channel->completion_futex, 1, memory_order_release);
	kvw_futex_wake(&channel->completion_futex, KVW_MAX_WOKEN);
	atomic_fetch_add(&shared->woken, 1);
}

static void *client_side(void *arg)
{
	struct shared *shared = arg;
	struct kvw_channel_header *channel = &shared->channel;
	uint32_t taken = 0;

	while (taken < ROUNDS) {
		uint32_t seen = atomic_load_explicit(&channel->completion_futex, memory_order_acquire);

		atomic_store_explicit(&channel->client_waiting, 1, memory_order_relaxed);
		kvw_store_load_fence();
		if (kvw_ring_waiting(&shared->consumer) == 0) {
			atomic_fetch_add(&shared->slept, 1);
			if (kvw_futex_wait(&channel->completion_futex, seen, (uint32_t)shared->patience_ms) ==
			    -ETIMEDOUT)
				count_loss(shared);
		}
		atomic_store_explicit(&channel->client_waiting, 0, memory_order_relaxed);
		taken += take_all(shared);
	}
	return NULL;
}

static void run_futex(struct shared *shared)
{
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, client_side, shared), 0);
	post_rounds(shared, ROUNDS, wake_if_waiting);
	pthread_join(thread, NULL);
}

static void completions_lose_no_wake_up(void **state)
{
	struct shared *shared = fresh(UINT32_MAX, LOST_AFTER_MS);

	(void)state;
	run_futex(shared);
	assert_int_equal(shared->lost, 0);
	assert_true(shared->slept > 100 && shared->woken > 100);
}

static void *sleeper(void *arg)
{
	_Atomic uint32_t *word = arg;

	while (kvw_futex_wait(word, 0, 60000) == -EINTR)
		;
	return NULL;
}

static void a_wake_reaches_no_more_waiters_than_it_may(void **state)
{
	enum { SLEEPERS = 4 };
	static _Atomic uint32_t word;
	pthread_t thread[SLEEPERS];
	int woken = 0;

	(void)state;
	for (int i = 0; i < SLEEPERS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, sleeper, &word), 0);
	while (woken < SLEEPERS) {
		const int now = kvw_futex_wake(&word, woken < 2 ? 1 : 2);

		assert_in_range(now, 0, woken < 2 ? 1 : 2);
		woken += now;
		sched_yield();
	}
	for (int i = 0; i < SLEEPERS; i++)
		pthread_join(thread[i], NULL);
}

static void a_missing_wake_is_noticed(void **state)
{
	struct shared *shared = fresh(ROUNDS - 1000, CONTROL_AFTER_MS);

	(void)state;
	run_futex(shared);
	assert_true(shared->lost >= 1);
}

static void a_futex_wait_ends_at_its_time(void **state)
{
	_Atomic uint32_t word = 3;
	uint64_t start = kvt_now_ns();

	(void)state;
	assert_int_equal(kvw_futex_wait(&word, 4, 60000), -EAGAIN);
	assert_int_equal(kvw_futex_wait(&word, 3, 30), -ETIMEDOUT);
	assert_true(kvt_now_ns() - start >= 30u * 1000000u);
	/* Milliseconds above a second are split in two fields. */
	start = kvt_now_ns();
	assert_int_equal(kvw_futex_wait(&word, 3, 1001), -ETIMEDOUT);
	assert_true(kvt_now_ns() - start >= 1001u * 1000000u);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_awake_daemon_is_not_rung),
		cmocka_unit_test(the_doorbell_loses_no_wake_up),
		cmocka_unit_test(a_silent_doorbell_is_noticed),
		cmocka_unit_test(completions_lose_no_wake_up),
		cmocka_unit_test(a_missing_wake_is_noticed),
		cmocka_unit_test(a_wake_reaches_no_more_waiters_than_it_may),
		cmocka_unit_test(a_futex_wait_ends_at_its_time),
	};

	kvt_watchdog(110);
	return cmocka_run_group_tests_name("unit.doorbell", tests, NULL, NULL);
}
