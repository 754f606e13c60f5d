/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_stalls [--seconds N] [--json]: what this machine takes from a thread that does nothing but read the clock, on every processor
 * at once. No turn of kvpoold's loop can be shorter than such a stall. The thread's own processor time leaves out what the scheduler
 * gave to others and what a hypervisor admits to have taken; the rest, interrupts and a hypervisor that says nothing, looks like work.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"

#define STALL_NS 100000u
#define LONG_STALL_NS 1000000u
#define MAX_CPUS 64u

struct witness {
	pthread_t thread;
	uint64_t until_ns;
	uint32_t stalls, long_stalls;
	uint64_t stalled_ns, worst_ns;
	uint64_t left_out_ns; /* of the thread's processor time */
};

static uint64_t thread_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void note(struct witness *witness, uint64_t took_ns)
{
	if (took_ns < STALL_NS)
		return;
	witness->stalls++;
	witness->long_stalls += took_ns >= LONG_STALL_NS;
	witness->stalled_ns += took_ns;
	if (took_ns > witness->worst_ns)
		witness->worst_ns = took_ns;
}

static void *watch(void *arg)
{
	struct witness *witness = arg;
	uint64_t used_ns = thread_ns();
	uint64_t begin_ns = bench_now_ns();
	uint64_t last_ns = begin_ns;

	while (last_ns < witness->until_ns) {
		uint64_t now_ns = bench_now_ns();

		note(witness, now_ns - last_ns);
		last_ns = now_ns;
	}
	witness->left_out_ns = last_ns - begin_ns - (thread_ns() - used_ns);
	return NULL;
}

static bool start(struct witness *witness, int cpu)
{
	pthread_attr_t attributes;
	cpu_set_t one;
	bool started;

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	pthread_attr_init(&attributes);
	pthread_attr_setaffinity_np(&attributes, sizeof(one), &one);
	started = !pthread_create(&witness->thread, &attributes, watch, witness);
	pthread_attr_destroy(&attributes);
	return started;
}

/* Returns how many watched. */
static uint32_t watch_all(uint32_t seconds, struct witness *witnesses)
{
	uint64_t until_ns = bench_now_ns() + seconds * UINT64_C(1000000000);
	cpu_set_t set;
	uint32_t count = 0;
	uint32_t i;
	int cpu;

	sched_getaffinity(0, sizeof(set), &set);
	for (cpu = 0; cpu < CPU_SETSIZE && count < MAX_CPUS; cpu++) {
		if (!CPU_ISSET(cpu, &set))
			continue;
		witnesses[count].until_ns = until_ns;
		count += start(&witnesses[count], cpu);
	}
	for (i = 0; i < count; i++)
		pthread_join(witnesses[i].thread, NULL);
	return count;
}

static void add(struct witness *sum, const struct witness *one)
{
	sum->stalls += one->stalls;
	sum->long_stalls += one->long_stalls;
	sum->stalled_ns += one->stalled_ns;
	sum->left_out_ns += one->left_out_ns;
	if (one->worst_ns > sum->worst_ns)
		sum->worst_ns = one->worst_ns;
}

static uint32_t seconds_of(const char *text)
{
	long seconds = strtol(text, NULL, 10);

	if (seconds < 1 || seconds > 3600) {
		fprintf(stderr, "bench_stalls: --seconds %s: give 1 to 3600\n", text);
		exit(2);
	}
	return (uint32_t)seconds;
}

static _Noreturn void usage(void)
{
	fprintf(stderr, "usage: bench_stalls [--seconds N] [--json]\n");
	exit(2);
}

static void report(const struct witness *sum, uint32_t threads, double cpu_seconds, bool json)
{
	const struct bench_result results[] = {
		{.name = "stalls above 0.1 ms",
		 .unit = "1/s",
		 .value = sum->stalls / cpu_seconds,
		 .threads = threads},
		{.name = "stalls above 1 ms",
		 .unit = "1/s",
		 .value = sum->long_stalls / cpu_seconds,
		 .threads = threads},
		{.name = "worst stall",
		 .unit = "us",
		 .value = (double)sum->worst_ns / 1e3,
		 .threads = threads},
		{.name = "time in stalls",
		 .unit = "ms/s",
		 .value = (double)sum->stalled_ns / 1e6 / cpu_seconds,
		 .threads = threads},
		{.name = "left out of processor time",
		 .unit = "ms/s",
		 .value = (double)sum->left_out_ns / 1e6 / cpu_seconds,
		 .threads = threads},
	};

	bench_report(results, sizeof(results) / sizeof(results[0]), json);
}

int main(int argc, char **argv)
{
	static struct witness witnesses[MAX_CPUS];
	struct witness sum = {.stalls = 0};
	uint32_t seconds = 5;
	bool json = false;
	uint32_t count, i;

	for (i = 1; i < (uint32_t)argc; i++) {
		if (!strcmp(argv[i], "--json"))
			json = true;
		else if (!strcmp(argv[i], "--seconds") && argv[i + 1])
			seconds = seconds_of(argv[++i]);
		else
			usage();
	}
	count = watch_all(seconds, witnesses);
	for (i = 0; i < count; i++)
		add(&sum, &witnesses[i]);
	report(&sum, count, (double)seconds * count, json);
	return 0;
}
