/* SPDX-License-Identifier: Apache-2.0 */
#include "ratio.h"

#include <stdio.h>
#include <stdlib.h>

static double ratio_of(const struct bench_pair *pair)
{
	return pair->limit > 0 ? pair->value / pair->limit : pair->value;
}

static int compare(const void *a, const void *b)
{
	const double left = ratio_of(a);
	const double right = ratio_of(b);

	return (left > right) - (left < right);
}

void bench_median_pair(struct bench_pair *pairs, size_t n, struct bench_line *line)
{
	qsort(pairs, n, sizeof(*pairs), compare);
	line->value = pairs[n / 2].value;
	line->limit = pairs[n / 2].limit;
	line->low = ratio_of(&pairs[n / 10]);
	line->high = ratio_of(&pairs[n - 1 - n / 10]);
}

struct bench_line *bench_add_line(struct bench_lines *lines, const char *name, const char *suffix,
				  uint32_t threads, const char *unit)
{
	struct bench_line *line = &lines->line[lines->count++];

	if (lines->count > BENCH_MAX_LINES) {
		fprintf(stderr, "benchmark: more than %d lines\n", BENCH_MAX_LINES);
		exit(2);
	}
	*line = (struct bench_line){.unit = unit, .threads = threads};
	snprintf(line->name, sizeof(line->name), "%s%s", name, suffix);
	return line;
}

static double line_ratio(const struct bench_line *line)
{
	if (line->limit <= 0 || line->value <= 0)
		return 0;
	return line->lower_is_better ? line->limit / line->value : line->value / line->limit;
}

static bool is_reached(const struct bench_line *line)
{
	return (line->limit > 0 ? line_ratio(line) : line->value) >= line->target;
}

/* ------------------------------------------------------------------ printing */

static void print_number(const char *key, double number)
{
	if (number > 0)
		printf(", \"%s\": %.4f", key, number);
	else
		printf(", \"%s\": null", key);
}

static void print_json(const struct bench_line *line, bool last)
{
	printf(" {\"name\": \"%s\", \"threads\": %u", line->name, line->threads);
	print_number("value", line->value);
	printf(", \"unit\": \"%s\"", line->unit);
	print_number("limit", line->limit);
	print_number("ratio", line_ratio(line));
	printf("}%s\n", last ? "" : ",");
}

static void print_row(const struct bench_line *line)
{
	printf("%-32s %7u", line->name, line->threads);
	if (line->value <= 0) {
		printf("  not to be had here\n");
		return;
	}
	printf(" %9.2f %-8s", line->value, line->unit);
	if (line->limit > 0)
		printf(" %9.2f %6.3f  (%.3f - %.3f)", line->limit, line_ratio(line), line->low, line->high);
	else
		printf(" %9s %6s  (%.3f - %.3f)", "", "", line->low, line->high);
	if (line->target > 0)
		printf("  at least %.2f%s", line->target, is_reached(line) ? "" : ": MISSED");
	printf("\n");
}

void bench_print_lines(const struct bench_lines *lines, bool json)
{
	if (!json)
		printf("%-32s %7s %9s %-8s %9s %6s  (10 %% - 90 %%)\n", "", "threads", "value", "unit",
		       "limit", "ratio");
	else
		printf("[\n");
	for (size_t i = 0; i < lines->count; i++) {
		if (json)
			print_json(&lines->line[i], i + 1 == lines->count);
		else
			print_row(&lines->line[i]);
	}
	if (json)
		printf("]\n");
}

bool bench_limits_hold(const struct bench_lines *lines)
{
	bool hold = true;

	for (size_t i = 0; i < lines->count; i++) {
		const struct bench_line *line = &lines->line[i];

		if (line_ratio(line) <= 1 || line->lower_is_better)
			continue;
		fprintf(stderr, "benchmark: %s, %u threads: %.3f times its limit: the limit is wrong\n",
			line->name, line->threads, line_ratio(line));
		hold = false;
	}
	return hold;
}

bool bench_targets_reached(const struct bench_lines *lines)
{
	bool reached = true;

	for (size_t i = 0; i < lines->count; i++)
		if (lines->line[i].value > 0 && !is_reached(&lines->line[i]))
			reached = false;
	return reached;
}
