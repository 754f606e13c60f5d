/* SPDX-License-Identifier: Apache-2.0 */
/* What counts as the time of a turn. The clocks and the switches are the test's, by wrapped calls. */
#include "daemon/turn.h"

#include "support.h"

#include <sys/resource.h>
#include <time.h>

static uint64_t wall_us;
static uint64_t cpu_us;
static struct rusage usage;

int __wrap_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
	uint64_t us = clock == CLOCK_MONOTONIC ? wall_us : cpu_us;

	*out = (struct timespec){.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000};
	return 0;
}

int __wrap_getrusage(int who, struct rusage *out);
int __wrap_getrusage(int who, struct rusage *out)
{
	(void)who;
	*out = usage;
	return 0;
}

/* The measure of one turn of 1243 us by the clock and 250 us by the processor. */
static uint64_t measure(long preemptions, long blocks)
{
	struct kvd_turn_clock clock = {0};

	kvd_turn_begin(&clock);
	wall_us += 1243;
	cpu_us += 250;
	usage.ru_nivcsw += preemptions;
	usage.ru_nvcsw += blocks;
	kvd_turn_end(&clock);
	assert_int_equal(clock.turns, 1);
	return clock.longest_us;
}

static void preempted_turn_counts_its_processor_time(void **state)
{
	(void)state;
	assert_int_equal(measure(1, 0), 250);
}

static void turn_whose_processor_was_taken_unseen_counts_its_processor_time(void **state)
{
	(void)state;
	assert_int_equal(measure(0, 0), 250);
}

static void turn_that_blocks_counts_all_of_its_time(void **state)
{
	(void)state;
	assert_int_equal(measure(0, 1), 1243);
	assert_int_equal(measure(2, 1), 1243);
}

static void pass(uint64_t us)
{
	wall_us += us;
	cpu_us += us;
}

static void longest_turn_names_its_dearest_part(void **state)
{
	struct kvd_turn_clock clock = {0};

	(void)state;
	kvd_turn_part(&clock, "short");
	pass(10);
	kvd_turn_part(&clock, "long");
	pass(120);
	kvd_turn_part(&clock, "last");
	pass(80);
	kvd_turn_end(&clock);
	assert_int_equal(clock.longest_us, 210);
	assert_string_equal(clock.longest_in.name, "long");
	assert_int_equal(clock.longest_in.took_us, 120);
	/* A shorter turn with a dearer part changes nothing. */
	kvd_turn_part(&clock, "other");
	pass(200);
	kvd_turn_end(&clock);
	assert_string_equal(clock.longest_in.name, "long");
	assert_int_equal(clock.turns, 2);
}

/* A part in which the processor was taken away must not be blamed for the time. */
static void part_that_was_preempted_counts_its_processor_time(void **state)
{
	struct kvd_turn_clock clock = {0};

	(void)state;
	kvd_turn_part(&clock, "preempted");
	wall_us += 5000;
	cpu_us += 20;
	usage.ru_nivcsw++;
	kvd_turn_part(&clock, "slow");
	pass(300);
	kvd_turn_part(&clock, "blocked");
	wall_us += 250;
	usage.ru_nvcsw++;
	kvd_turn_end(&clock);
	assert_int_equal(clock.longest_us, 5550);
	assert_string_equal(clock.longest_in.name, "slow");
	assert_int_equal(clock.longest_in.took_us, 300);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(preempted_turn_counts_its_processor_time),
		cmocka_unit_test(turn_whose_processor_was_taken_unseen_counts_its_processor_time),
		cmocka_unit_test(turn_that_blocks_counts_all_of_its_time),
		cmocka_unit_test(longest_turn_names_its_dearest_part),
		cmocka_unit_test(part_that_was_preempted_counts_its_processor_time),
	};

	kvt_watchdog(30);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
