/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The clock of the loop's turns.
 */
#include "turn.h"

#include <sys/resource.h>
#include <time.h>

/* Below this a turn, or a part of one, is not worth a second look at the scheduler's counts. */
#define LONG_TURN_US 200u
#define LONG_PART_US 50u

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

static struct kvd_turn_mark mark_now(void)
{
	struct rusage usage = {0};

	getrusage(RUSAGE_THREAD, &usage);
	return (struct kvd_turn_mark){.blocks = usage.ru_nvcsw, .cpu_us = cpu_us(), .clock_us = kvd_now_us()};
}

/* What was taken since `mark`: see the head of turn.h. */
static uint64_t own_us(const struct kvd_turn_mark *mark, const struct kvd_turn_mark *now)
{
	uint64_t elapsed_us = now->clock_us - mark->clock_us;
	uint64_t used_us = now->cpu_us - mark->cpu_us;

	return now->blocks != mark->blocks || used_us > elapsed_us ? elapsed_us : used_us;
}

static void begin_part(struct kvd_turn_clock *clock, const char *name)
{
	clock->name = name;
	clock->part.clock_us = kvd_now_us();
}

/*
 * A part's mark may have the counts of earlier, short ones: they can make it seem longer than it was, but not
 * longer than the clock says.
 */
static void end_part(struct kvd_turn_clock *clock)
{
	uint64_t took_us = kvd_now_us() - clock->part.clock_us;

	if (took_us >= LONG_PART_US) {
		struct kvd_turn_mark now = mark_now();

		took_us = own_us(&clock->part, &now);
		clock->part = now;
	}
	if (took_us >= clock->dearest.took_us)
		clock->dearest = (struct kvd_turn_part){.name = clock->name, .took_us = took_us};
}

void kvd_turn_begin(struct kvd_turn_clock *clock)
{
	if (clock->running)
		return;
	clock->running = true;
	clock->begin = mark_now();
	clock->part = clock->begin;
	clock->name = "begin";
	clock->dearest = (struct kvd_turn_part){.name = "begin"};
}

void kvd_turn_part(struct kvd_turn_clock *clock, const char *name)
{
	if (clock->running)
		end_part(clock);
	else
		kvd_turn_begin(clock);
	begin_part(clock, name);
}

void kvd_turn_end(struct kvd_turn_clock *clock)
{
	struct kvd_turn_mark now = {0};
	uint64_t took_us;

	if (!clock->running)
		return;
	end_part(clock);
	took_us = kvd_now_us() - clock->begin.clock_us;
	if (took_us >= LONG_TURN_US) {
		now = mark_now();
		took_us = own_us(&clock->begin, &now);
	}
	clock->running = false;
	clock->turns++;
	if (took_us <= clock->longest_us)
		return;
	clock->longest_us = took_us;
	clock->longest_in = clock->dearest;
}
