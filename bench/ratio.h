/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers beside their limits: a value and its limit are measured in turn, many times, and the pair whose ratio is the
 * median is the result. What disturbs the machine disturbs both.
 */
#ifndef KVPOOL_BENCH_RATIO_H
#define KVPOOL_BENCH_RATIO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bench_pair {
	double value, limit;
};

/* Higher is better, if not said otherwise. limit 0: none, and no ratio. value 0: not to be had here. */
struct bench_line {
	char name[48];
	const char *unit;
	uint32_t threads;
	double value, limit;
	double low, high;     /* value / limit that a tenth of the pairs are below, and above */
	double target;        /* of the ratio, or of the value where there is no limit; 0: none */
	bool lower_is_better; /* the limit is what is asked for, and the ratio limit / value */
};

/* Fills value, limit, low and high from pairs[n], n > 0, which are sorted by ratio. */
void bench_median_pair(struct bench_pair *pairs, size_t n, struct bench_line *line);

#define BENCH_MAX_LINES 128
struct bench_lines {
	struct bench_line line[BENCH_MAX_LINES];
	size_t count;
};
/* A line to fill; ends the program when there are too many. */
struct bench_line *bench_add_line(struct bench_lines *lines, const char *name, const char *suffix,
				  uint32_t threads, const char *unit);

/* A table, or with `json` one array. */
void bench_print_lines(const struct bench_lines *lines, bool json);

/* Whether no ratio is above 1 (what is better than its limit has a wrong limit); tells of those that are. */
bool bench_limits_hold(const struct bench_lines *lines);
/* Whether every target is reached. */
bool bench_targets_reached(const struct bench_lines *lines);

#endif
