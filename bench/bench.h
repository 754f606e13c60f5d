/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What benchmarks share: a private daemon, a clock, medians, and one way to report.
 */
#ifndef KVPOOL_BENCH_H
#define KVPOOL_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

uint64_t bench_now_ns(void);
/* Sorts samples[n] and returns the middle one. */
double bench_median(double *samples, size_t n);

/* A kvpoold of our own on a private socket, found by $KVPOOLD or in the build tree beside this program. */
struct bench_daemon {
	int pid;
	char dir[64];
	char socket[96];
};
/* settings: arguments of kvpoold, ended by NULL. Ends the program with a message when there is no daemon. */
void bench_daemon_start(struct bench_daemon *daemon, const char *const *settings);
void bench_daemon_stop(struct bench_daemon *daemon);

/*
 * One measured number. limit 0: none. ratio: limit / value, or against what the name says; 0: none. least_ratio: the ratio
 * that it must have; 0: the value must be within its limit.
 */
struct bench_result {
	const char *name;
	const char *unit;
	double value;
	double limit;
	double ratio;
	uint32_t threads;
	double least_ratio;
};
/* A table, or with `json` one array. Returns whether every value is within its limit. */
bool bench_report(const struct bench_result *results, size_t n, bool json);

struct bench_flag {
	const char *name;
	bool *flag;
};
/* Takes flags, and "--only NAME" into *out_only. Anything else ends the program with its usage. */
void bench_read_options(int argc, char **argv, const struct bench_flag *flags, size_t count,
			const char **out_only);

#endif
