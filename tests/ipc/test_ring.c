/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rings: order, limits, hostile indices; then with two threads. The sleeping protocol has
 * test_doorbell.c.
 */
#include "support.h"

#include "ipc/ring.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "kvpool/error.h"

#define STRESS_RECORDS 1000000u

struct pipe_of_rings {
	struct kvw_ring_words words;
	_Alignas(64) struct kvw_request records[KVW_RING_RECORDS];
	struct kvw_ring producer;
	struct kvw_ring consumer;
};

/* Both ends at `index`, as after that many records. */
static struct pipe_of_rings *fresh(uint32_t index)
{
	static struct pipe_of_rings rings;

	memset(&rings, 0, sizeof(rings));
	kvw_ring_init(&rings.producer, &rings.words, rings.records);
	kvw_ring_init(&rings.consumer, &rings.words, rings.records);
	assert_int_equal(rings.producer.own, 0);
	rings.producer.own = rings.consumer.own = index;
	atomic_store(&rings.words.tail, index);
	atomic_store(&rings.words.head, index);
	return &rings;
}

/* A record every word of which depends on n. */
static struct kvw_request numbered(uint64_t n)
{
	return (struct kvw_request){
		.type = (uint32_t)n,
		.row = ~(uint32_t)n,
		.ticket = n,
		.hold = n * 3,
		.first = (uint32_t)(n >> 3),
		.step = n ^ 0x5555555555555555u,
		.want = (uint32_t)~n,
		.most = (uint32_t)(n << 17),
		.answers = (uint32_t)(n >> 3),
	};
}

static void assert_numbered(const struct kvw_request *record, uint64_t n)
{
	struct kvw_request expected = numbered(n);

	assert_memory_equal(record, &expected, sizeof(expected));
}

static void records_come_out_once_and_in_order(void **state)
{
	struct pipe_of_rings *rings = fresh(0);
	struct kvw_request record;
	uint64_t n;

	(void)state;
	assert_int_equal(kvw_ring_take(&rings->consumer, &record), 0);
	assert_int_equal(kvw_ring_peek(&rings->consumer, &record), 0);
	for (n = 0; n < 3; n++) {
		record = numbered(n);
		assert_int_equal(kvw_ring_post(&rings->producer, &record), 0);
	}
	assert_int_equal(kvw_ring_waiting(&rings->consumer), 3);
	assert_int_equal(kvw_ring_space(&rings->producer), KVW_RING_RECORDS - 3);
	for (n = 0; n < 3; n++) {
		assert_int_equal(kvw_ring_peek(&rings->consumer, &record), 1);
		assert_numbered(&record, n);
		memset(&record, 0, sizeof(record));
		assert_int_equal(kvw_ring_take(&rings->consumer, &record), 1);
		assert_numbered(&record, n);
	}
	assert_int_equal(kvw_ring_take(&rings->consumer, &record), 0);
	assert_int_equal(kvw_ring_space(&rings->producer), KVW_RING_RECORDS);
}

/* Filled from `start` on, past the end of the array and, at UINT32_MAX, past the end of the indices. */
static void check_fills_and_empties(uint32_t start)
{
	struct pipe_of_rings *rings = fresh(start);
	struct kvw_request record;
	uint64_t n;

	for (n = 0; n < KVW_RING_RECORDS; n++) {
		record = numbered(n);
		assert_int_equal(kvw_ring_space(&rings->producer), KVW_RING_RECORDS - n);
		assert_int_equal(kvw_ring_post(&rings->producer, &record), 0);
	}
	record = numbered(n);
	assert_int_equal(kvw_ring_space(&rings->producer), 0);
	assert_int_equal(kvw_ring_post(&rings->producer, &record), -KVP_EBACKLOG);
	assert_int_equal(kvw_ring_waiting(&rings->consumer), KVW_RING_RECORDS);
	assert_int_equal(kvw_ring_take(&rings->consumer, &record), 1);
	assert_numbered(&record, 0);
	record = numbered(KVW_RING_RECORDS);
	assert_int_equal(kvw_ring_post(&rings->producer, &record), 0);
	for (n = 1; n <= KVW_RING_RECORDS; n++) {
		assert_int_equal(kvw_ring_take(&rings->consumer, &record), 1);
		assert_numbered(&record, n);
	}
	assert_int_equal(kvw_ring_take(&rings->consumer, &record), 0);
	assert_int_equal(rings->producer.own, start + KVW_RING_RECORDS + 1);
}

static void a_full_ring_refuses_and_loses_nothing(void **state)
{
	(void)state;
	check_fills_and_empties(0);
	check_fills_and_empties(17);
}

static void indices_wrap_around(void **state)
{
	(void)state;
	check_fills_and_empties(UINT32_MAX);
	check_fills_and_empties(UINT32_MAX - 100);
	check_fills_and_empties(UINT32_MAX - KVW_RING_RECORDS);
}

/*
 * Whatever the peer writes into its index: an error or a level within the ring, and never a look outside it.
 */
static void check_consumer_against(uint32_t own, uint32_t tail)
{
	struct pipe_of_rings *rings = fresh(own);
	struct kvw_request record = numbered(1);
	struct kvw_request before = record;
	bool possible = tail - own <= KVW_RING_RECORDS;

	atomic_store(&rings->words.tail, tail);
	if (possible) {
		assert_int_equal(kvw_ring_waiting(&rings->consumer), tail - own);
		return;
	}
	assert_int_equal(kvw_ring_waiting(&rings->consumer), -KVP_EPROTO);
	assert_int_equal(kvw_ring_peek(&rings->consumer, &record), -KVP_EPROTO);
	assert_int_equal(kvw_ring_take(&rings->consumer, &record), -KVP_EPROTO);
	assert_memory_equal(&record, &before, sizeof(record));
	assert_int_equal(rings->consumer.own, own);
	assert_int_equal(atomic_load(&rings->words.head), own);
}

static void check_producer_against(uint32_t own, uint32_t head)
{
	struct pipe_of_rings *rings = fresh(own);
	struct kvw_request record = numbered(1);

	atomic_store(&rings->words.head, head);
	if (own - head <= KVW_RING_RECORDS) {
		assert_int_equal(kvw_ring_space(&rings->producer), KVW_RING_RECORDS - (own - head));
		return;
	}
	assert_int_equal(kvw_ring_space(&rings->producer), -KVP_EPROTO);
	assert_int_equal(kvw_ring_post(&rings->producer, &record), -KVP_EPROTO);
	assert_int_equal(rings->producer.own, own);
	assert_int_equal(atomic_load(&rings->words.tail), own);
	assert_false(kvw_ring_passed(&rings->producer, own));
	assert_false(kvw_ring_passed(&rings->producer, own - 1));
}

static void an_impossible_index_is_a_protocol_error(void **state)
{
	static const uint32_t owns[] = {0, 1, 5000, UINT32_MAX, UINT32_MAX - 4095, 0x80000000u};
	static const uint32_t steps[] = {0,          1,          4095,           4096,      4097,
					 0x7fffffff, 0x80000000, UINT32_MAX - 1, UINT32_MAX};
	size_t i, k;

	(void)state;
	for (i = 0; i < sizeof(owns) / sizeof(owns[0]); i++) {
		for (k = 0; k < sizeof(steps) / sizeof(steps[0]); k++) {
			check_consumer_against(owns[i], owns[i] + steps[k]);
			check_producer_against(owns[i], owns[i] - steps[k]);
		}
	}
}

static void passed_means_taken(void **state)
{
	struct pipe_of_rings *rings = fresh(UINT32_MAX - 1);
	struct kvw_request record = numbered(0);
	uint32_t marks[5];
	uint32_t i, k;

	(void)state;
	marks[0] = rings->producer.own;
	for (i = 1; i < 5; i++) {
		kvw_ring_post(&rings->producer, &record);
		marks[i] = rings->producer.own;
	}
	for (i = 0; i < 5; i++) {
		for (k = 0; k < 5; k++)
			assert_int_equal(kvw_ring_passed(&rings->producer, marks[k]), k <= i);
		kvw_ring_take(&rings->consumer, &record);
	}
}

/* ------------------------------------------------------------------ two threads */

static void *produce(void *arg)
{
	struct kvw_ring *ring = arg;
	uint64_t n = 0;

	while (n < STRESS_RECORDS) {
		struct kvw_request record = numbered(n);
		int ret = kvw_ring_post(ring, &record);

		if (ret == 0)
			n++;
		else if (ret == -KVP_EBACKLOG)
			sched_yield();
		else
			return arg;
	}
	return NULL;
}

static void two_threads_pass_a_million_records_in_order(void **state)
{
	struct pipe_of_rings *rings = fresh(UINT32_MAX - STRESS_RECORDS / 2);
	pthread_t thread;
	uint64_t n = 0;
	void *failed;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, produce, &rings->producer), 0);
	while (n < STRESS_RECORDS) {
		struct kvw_request record;
		int ret = kvw_ring_take(&rings->consumer, &record);

		assert_in_range(ret, 0, 1);
		if (ret == 0) {
			sched_yield();
			continue;
		}
		assert_numbered(&record, n);
		n++;
	}
	pthread_join(thread, &failed);
	assert_null(failed);
	assert_int_equal(kvw_ring_waiting(&rings->consumer), 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(records_come_out_once_and_in_order),
		cmocka_unit_test(a_full_ring_refuses_and_loses_nothing),
		cmocka_unit_test(indices_wrap_around),
		cmocka_unit_test(an_impossible_index_is_a_protocol_error),
		cmocka_unit_test(passed_means_taken),
		cmocka_unit_test(two_threads_pass_a_million_records_in_order),
	};

	kvt_watchdog(100);
	return cmocka_run_group_tests_name("unit.ring", tests, NULL, NULL);
}
