/* SPDX-License-Identifier: Apache-2.0 */
#include "support.h"

#include <dirent.h>
#include <ftw.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* What is waited for now; more threads than one may wait, then it is the last that began to. */
static const char *_Atomic awaited;

static void say(const char *text)
{
	(void)!write(STDERR_FILENO, text, strlen(text));
}

static void on_alarm(int signal_number)
{
	const char *what = atomic_load(&awaited);

	(void)signal_number;
	say("watchdog: the test did not end in time");
	if (what) {
		say("; it waits for ");
		say(what);
	}
	say("\n");
	_exit(124);
}

void kvt_watchdog(unsigned seconds)
{
	struct sigaction action = {.sa_handler = on_alarm};

	sigaction(SIGALRM, &action, NULL);
	alarm(seconds);
}

uint64_t kvt_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t kvt_seed(void)
{
	const char *text = getenv("KVP_SEED");
	uint64_t seed = text ? strtoull(text, NULL, 0) : kvt_now_ns();

	fprintf(stderr, "KVP_SEED=%llu\n", (unsigned long long)seed);
	return seed;
}

uint64_t kvt_rng_next(struct kvt_rng *rng)
{
	uint64_t z = rng->state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

uint64_t kvt_rng_below(struct kvt_rng *rng, uint64_t bound)
{
	return kvt_rng_next(rng) % bound;
}

char *kvt_mkdtemp(void)
{
	const char *base = getenv("TMPDIR");
	char *path = NULL;

	if (asprintf(&path, "%s/kvpool-test-XXXXXX", base ? base : "/tmp") < 0 || !mkdtemp(path)) {
		perror("mkdtemp");
		abort();
	}
	return path;
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *walk)
{
	(void)status;
	(void)type;
	(void)walk;
	return remove(path);
}

void kvt_rmdir(char *dir)
{
	nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	free(dir);
}

int kvt_count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int count = 0;

	if (!dir)
		return -1;
	while (readdir(dir))
		count++;
	closedir(dir);
	return count - 3; /* ".", ".." and the directory itself */
}

long kvt_rss_kib(int pid)
{
	char path[64];
	char line[256];
	long kib = -1;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	file = fopen(path, "re");
	if (!file)
		return -1;
	while (kib < 0 && fgets(line, sizeof(line), file))
		if (!strncmp(line, "VmRSS:", 6))
			kib = strtol(line + 6, NULL, 10);
	fclose(file);
	return kib;
}

void kvt_wait_readable(int fd, int timeout_ms)
{
	struct pollfd entry = {.fd = fd, .events = POLLIN};

	assert_int_equal(poll(&entry, 1, timeout_ms), 1);
}

void kvt_wait_for(bool (*cond)(void *arg), void *arg, const char *what)
{
	atomic_store(&awaited, what);
	while (!cond(arg))
		sched_yield();
	atomic_store(&awaited, NULL);
}
