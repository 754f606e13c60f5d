/* SPDX-License-Identifier: Apache-2.0 */
#include "bench.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define READY_TIMEOUT_MS 60000
#define MAX_ARGUMENTS 32

uint64_t bench_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int compare(const void *a, const void *b)
{
	double left = *(const double *)a;
	double right = *(const double *)b;

	return (left > right) - (left < right);
}

double bench_median(double *samples, size_t n)
{
	qsort(samples, n, sizeof(*samples), compare);
	return samples[n / 2];
}

/* ------------------------------------------------------------------ daemon */

static void give_up(const char *what)
{
	fprintf(stderr, "benchmark: %s: %s\n", what, strerror(errno));
	exit(2);
}

static void find_daemon(char *path, size_t capacity)
{
	const char *given = getenv("KVPOOLD");
	char self[PATH_MAX];
	ssize_t length;

	if (given) {
		snprintf(path, capacity, "%s", given);
		return;
	}
	length = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (length < 0)
		give_up("finding kvpoold");
	self[length] = '\0';
	snprintf(path, capacity, "%s/../daemon/kvpoold", dirname(self));
	if (access(path, X_OK))
		snprintf(path, capacity, "kvpoold");
}

static void run_daemon(const struct bench_daemon *daemon, const char *const *settings, int ready_fd)
{
	char path[PATH_MAX + 32];
	char socket_option[128];
	char ready_option[32];
	const char *argv[MAX_ARGUMENTS];
	int n = 0;

	/* It ends with us, however we end. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	find_daemon(path, sizeof(path));
	snprintf(socket_option, sizeof(socket_option), "--socket=%s", daemon->socket);
	snprintf(ready_option, sizeof(ready_option), "--ready-fd=%d", ready_fd);
	argv[n++] = path;
	argv[n++] = socket_option;
	argv[n++] = ready_option;
	argv[n++] = "--log-level=warning";
	while (*settings && n < MAX_ARGUMENTS - 1)
		argv[n++] = *settings++;
	argv[n] = NULL;
	execvp(path, (char *const *)(uintptr_t)argv);
	fprintf(stderr, "benchmark: starting '%s': %s; name it by $KVPOOLD\n", path, strerror(errno));
	_exit(127);
}

void bench_daemon_start(struct bench_daemon *daemon, const char *const *settings)
{
	struct pollfd entry = {.events = POLLIN};
	char byte;
	int ready[2];

	snprintf(daemon->dir, sizeof(daemon->dir), "/tmp/kvpool-bench-XXXXXX");
	if (!mkdtemp(daemon->dir) || pipe(ready))
		give_up("a private directory");
	snprintf(daemon->socket, sizeof(daemon->socket), "%s/socket", daemon->dir);
	daemon->pid = fork();
	if (daemon->pid < 0)
		give_up("fork");
	if (!daemon->pid) {
		close(ready[0]);
		run_daemon(daemon, settings, ready[1]);
	}
	close(ready[1]);
	entry.fd = ready[0];
	if (poll(&entry, 1, READY_TIMEOUT_MS) != 1 || read(ready[0], &byte, 1) != 1) {
		fprintf(stderr, "benchmark: kvpoold did not become ready\n");
		bench_daemon_stop(daemon);
		exit(2);
	}
	close(ready[0]);
}

void bench_daemon_stop(struct bench_daemon *daemon)
{
	kill(daemon->pid, SIGTERM);
	waitpid(daemon->pid, NULL, 0);
	unlink(daemon->socket);
	rmdir(daemon->dir);
}

/* ------------------------------------------------------------------ report */

static bool within(const struct bench_result *result)
{
	if (result->limit <= 0)
		return true;
	return result->least_ratio > 0 ? result->ratio >= result->least_ratio
				       : result->value <= result->limit;
}

static void print_json(const struct bench_result *result, bool last)
{
	printf(" {\"name\": \"%s\", \"threads\": %u, \"value\": %.3f, \"unit\": \"%s\", ", result->name,
	       result->threads, result->value, result->unit);
	if (result->limit > 0)
		printf("\"limit\": %.3f, ", result->limit);
	else
		printf("\"limit\": null, ");
	if (result->ratio > 0)
		printf("\"ratio\": %.3f}%s\n", result->ratio, last ? "" : ",");
	else
		printf("\"ratio\": null}%s\n", last ? "" : ",");
}

static void print_line(const struct bench_result *result)
{
	printf("%-86s %10.3f %-5s", result->name, result->value, result->unit);
	if (result->limit > 0)
		printf(" limit %g%s", result->limit, within(result) ? "" : "  MISSED");
	if (result->ratio > 0)
		printf(" %.2fx", result->ratio);
	if (result->ratio > 0 && result->least_ratio > 0)
		printf(" of %gx", result->least_ratio);
	printf("\n");
}

bool bench_report(const struct bench_result *results, size_t n, bool json)
{
	bool met = true;
	size_t i;

	if (json)
		printf("[\n");
	for (i = 0; i < n; i++) {
		if (json)
			print_json(&results[i], i + 1 == n);
		else
			print_line(&results[i]);
		met &= within(&results[i]);
	}
	if (json)
		printf("]\n");
	return met;
}

/* ------------------------------------------------------------------ options */

static bool read_flag(const char *argument, const struct bench_flag *flags, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (!strcmp(argument, flags[i].name))
			return *flags[i].flag = true;
	return false;
}

static _Noreturn void usage(const char *program, const struct bench_flag *flags, size_t count)
{
	fprintf(stderr, "usage: %s [--only NAME]", program);
	for (size_t i = 0; i < count; i++)
		fprintf(stderr, " [%s]", flags[i].name);
	fprintf(stderr, "\n");
	exit(2);
}

void bench_read_options(int argc, char **argv, const struct bench_flag *flags, size_t count,
			const char **out_only)
{
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--only") && i + 1 < argc)
			*out_only = argv[++i];
		else if (!read_flag(argv[i], flags, count))
			usage(argv[0], flags, count);
	}
}
