/* SPDX-License-Identifier: Apache-2.0 */
/* Which pair of many measurements is the result, and what is said about it. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ratio.h"
#include "support.h"

static void the_pair_with_the_median_ratio_is_taken_whole(void **state)
{
	/* Ratios 0.9, 0.2, 0.5, 0.4, 0.6: neither values nor limits have their medians at 0.5. */
	struct bench_pair pairs[] = {{9, 10}, {20, 100}, {500, 1000}, {4, 10}, {6, 10}};
	struct bench_line line = {.name = "x"};

	(void)state;
	bench_median_pair(pairs, 5, &line);
	assert_true(line.value == 500 && line.limit == 1000);
	assert_true(line.low == 0.2 && line.high == 0.9);
}

static void a_tenth_of_the_pairs_lies_outside_the_spread_on_each_side(void **state)
{
	struct bench_pair pairs[20];
	struct bench_line line = {.name = "x"};

	(void)state;
	for (int i = 0; i < 20; i++)
		pairs[i] = (struct bench_pair){.value = (i * 7) % 20, .limit = 32};
	bench_median_pair(pairs, 20, &line);
	assert_true(line.value == 10);
	assert_true(line.low == 2.0 / 32 && line.high == 17.0 / 32);
}

static void without_a_limit_values_themselves_are_ranked(void **state)
{
	struct bench_pair pairs[] = {{3, 0}, {1, 0}, {2, 0}};
	struct bench_line line = {.name = "x"};

	(void)state;
	bench_median_pair(pairs, 3, &line);
	assert_true(line.value == 2 && line.limit == 0 && line.low == 1 && line.high == 3);
}

static void one_pair_is_its_own_median(void **state)
{
	struct bench_pair pair = {1, 4};
	struct bench_line line = {.name = "x"};

	(void)state;
	bench_median_pair(&pair, 1, &line);
	assert_true(line.value == 1 && line.limit == 4 && line.low == 0.25 && line.high == 0.25);
}

static struct bench_line *add(struct bench_lines *lines, double value, double limit, double target)
{
	struct bench_line *line = bench_add_line(lines, "name", "_gain", 2, "GB/s");

	line->value = value;
	line->limit = limit;
	line->target = target;
	return line;
}

static void what_beats_its_limit_has_a_wrong_one(void **state)
{
	struct bench_lines lines = {0};

	(void)state;
	assert_true(bench_limits_hold(&lines));
	add(&lines, 10, 10, 0);
	add(&lines, 10, 0, 0);
	assert_true(bench_limits_hold(&lines));
	add(&lines, 10.1, 10, 0);
	assert_false(bench_limits_hold(&lines));
}

static void a_target_is_of_the_ratio_or_without_a_limit_of_the_value(void **state)
{
	struct bench_lines lines = {0};
	struct bench_line *line;

	(void)state;
	add(&lines, 8, 10, 0.8);
	add(&lines, 0.9, 0, 0.9);
	add(&lines, 0, 0, 5); /* not to be had here */
	assert_true(bench_targets_reached(&lines));
	line = add(&lines, 7.9, 10, 0.8);
	assert_false(bench_targets_reached(&lines));
	line->value = 8;
	assert_true(bench_targets_reached(&lines));
	add(&lines, 0.89, 0, 0.9);
	assert_false(bench_targets_reached(&lines));
}

/* What bench_print_lines() writes. */
static const char *printed(const struct bench_lines *lines, bool json)
{
	static char text[1024];
	FILE *file = tmpfile();
	int kept = dup(STDOUT_FILENO);
	size_t length;

	assert_non_null(file);
	fflush(stdout);
	dup2(fileno(file), STDOUT_FILENO);
	bench_print_lines(lines, json);
	fflush(stdout);
	dup2(kept, STDOUT_FILENO);
	close(kept);
	rewind(file);
	length = fread(text, 1, sizeof(text) - 1, file);
	text[length] = '\0';
	fclose(file);
	return text;
}

static void json_has_null_for_what_is_not_there(void **state)
{
	struct bench_lines lines = {0};

	(void)state;
	assert_string_equal(printed(&lines, true), "[\n]\n");
	add(&lines, 5, 10, 0.5);
	add(&lines, 0, 0, 0);
	assert_string_equal(
		printed(&lines, true),
		"[\n {\"name\": \"name_gain\", \"threads\": 2, \"value\": 5.0000, \"unit\": \"GB/s\", "
		"\"limit\": 10.0000, \"ratio\": 0.5000},\n"
		" {\"name\": \"name_gain\", \"threads\": 2, \"value\": null, \"unit\": \"GB/s\", "
		"\"limit\": null, \"ratio\": null}\n]\n");
}

static void the_table_marks_what_is_missed_or_missing(void **state)
{
	struct bench_lines lines = {0};
	const char *text;

	(void)state;
	add(&lines, 8, 10, 0.8);
	assert_null(strstr(printed(&lines, false), "MISSED"));
	add(&lines, 7, 10, 0.8);
	add(&lines, 0, 0, 0);
	text = printed(&lines, false);
	assert_non_null(strstr(text, "at least 0.80: MISSED"));
	assert_non_null(strstr(text, "not to be had here"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_pair_with_the_median_ratio_is_taken_whole),
		cmocka_unit_test(a_tenth_of_the_pairs_lies_outside_the_spread_on_each_side),
		cmocka_unit_test(without_a_limit_values_themselves_are_ranked),
		cmocka_unit_test(one_pair_is_its_own_median),
		cmocka_unit_test(what_beats_its_limit_has_a_wrong_one),
		cmocka_unit_test(a_target_is_of_the_ratio_or_without_a_limit_of_the_value),
		cmocka_unit_test(json_has_null_for_what_is_not_there),
		cmocka_unit_test(the_table_marks_what_is_missed_or_missing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
