/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The clock of the loop's turns.
 */
#include "turn.h"

#include <sys/resource.h>
#include <time.h>

/* Below this a turn is not worth a second look at the scheduler's counts. */
#define LONG_TURN_US 200u

static uint64_t clock_us(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

uint64_t kvd_now_us(void)
{
	return clock_us(CLOCK_MONOTONIC);
}

/* The thread's processor time: rusage has it too, but only as of the last tick. */
static uint64_t cpu_us(void)
{
	return clock_us(CLOCK_THREAD_CPUTIME_ID);
}

void kvd_turn_begin(struct kvd_turn_clock *clock)
{
	struct rusage usage = {0};

	if (clock->running)
		return;
	clock->running = true;
	getrusage(RUSAGE_THREAD, &usage);
	clock->begin_blocks = usage.ru_nvcsw;
	clock->begin_cpu_us = cpu_us();
	clock->begin_us = kvd_now_us();
}

/* What the turn itself took: see the head of turn.h. */
static uint64_t own_time(const struct kvd_turn_clock *clock, uint64_t elapsed_us)
{
	struct rusage usage = {0};

	if (elapsed_us < LONG_TURN_US)
		return elapsed_us;
	getrusage(RUSAGE_THREAD, &usage);
	if (usage.ru_nvcsw != clock->begin_blocks)
		return elapsed_us;
	return cpu_us() - clock->begin_cpu_us;
}

void kvd_turn_end(struct kvd_turn_clock *clock)
{
	uint64_t took_us;

	if (!clock->running)
		return;
	took_us = own_time(clock, kvd_now_us() - clock->begin_us);
	clock->running = false;
	clock->turns++;
	if (took_us > clock->longest_us)
		clock->longest_us = took_us;
}
