/* SPDX-License-Identifier: Apache-2.0 */
/* The trace generator: equal seeds, the statistics it promises, chained ids, and that its files read back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "tools/replay/generate.h"
#include "tools/replay/ideal.h"

static const struct rep_generate standard = {.seed = 1,
					     .requests = 4000,
					     .users = 16,
					     .system_prompts = 8,
					     .block_tokens = 512,
					     .max_tokens = 4096};

static bool same(const struct rep_trace *a, const struct rep_trace *b)
{
	return a->count == b->count && a->id_count == b->id_count &&
	       !memcmp(a->requests, b->requests, a->count * sizeof(*a->requests)) &&
	       !memcmp(a->ids, b->ids, a->id_count * sizeof(*a->ids));
}

static void equal_seeds_give_equal_traces(void **state)
{
	struct rep_generate params = standard;
	struct rep_trace a;
	struct rep_trace b;
	struct rep_trace c;

	(void)state;
	assert_int_equal(rep_generate(&params, &a), 0);
	assert_int_equal(rep_generate(&params, &b), 0);
	params.seed = 2;
	assert_int_equal(rep_generate(&params, &c), 0);
	assert_true(same(&a, &b));
	assert_false(same(&a, &c));
	rep_trace_free(&a);
	rep_trace_free(&b);
	rep_trace_free(&c);
}

static int by_value(const void *a, const void *b)
{
	const uint32_t *x = a;
	const uint32_t *y = b;

	return *x < *y ? -1 : *x > *y;
}

static uint32_t quantile(uint32_t *values, uint32_t count, double part)
{
	qsort(values, count, sizeof(*values), by_value);
	return values[(uint32_t)(part * count)];
}

static void assert_within(const char *what, double value, double low, double high)
{
	if (value < low || value > high)
		fail_msg("%s is %g, must be %g to %g", what, value, low, high);
}

/* The published numbers, with room for what 4,000 draws scatter. */
static void lengths_and_reuse_are_as_published(void **state)
{
	uint32_t *inputs = calloc(standard.requests, sizeof(*inputs));
	uint32_t *outputs = calloc(standard.requests, sizeof(*outputs));
	double output_sum = 0;
	struct rep_ideal ideal;
	struct rep_trace trace;

	(void)state;
	assert_int_equal(rep_generate(&standard, &trace), 0);
	for (uint32_t i = 0; i < trace.count; i++) {
		inputs[i] = trace.requests[i].input_length;
		outputs[i] = trace.requests[i].output_length;
		output_sum += outputs[i];
	}
	assert_within("median prompt", quantile(inputs, trace.count, 0.5), 1020 * 0.85, 1020 * 1.15);
	assert_within("99 % of prompts", quantile(inputs, trace.count, 0.99), 3000, 4200);
	assert_within("median output", quantile(outputs, trace.count, 0.5), 129 * 0.9, 129 * 1.1);
	assert_within("mean output", output_sum / trace.count, 211 * 0.85, 211 * 1.15);
	assert_int_equal(rep_ideal_ids(&trace, UINT32_MAX, &ideal), 0);
	assert_within("reuse", (double)ideal.hit_blocks / (double)ideal.lookup_blocks, 0.30, 0.43);
	rep_trace_free(&trace);
	free(inputs);
	free(outputs);
}

/* An id always has the same predecessor: without that it could not be the hash of a prefix. */
static void an_id_has_one_predecessor(void **state)
{
	struct rep_trace trace;
	uint64_t *before;
	uint64_t largest = 0;

	(void)state;
	assert_int_equal(rep_generate(&standard, &trace), 0);
	for (uint64_t i = 0; i < trace.id_count; i++)
		largest = trace.ids[i] > largest ? trace.ids[i] : largest;
	before = calloc(largest + 1, sizeof(*before));
	for (uint32_t i = 0; i < trace.count; i++) {
		const uint64_t *ids = rep_request_ids(&trace, i);

		for (uint32_t j = 0; j < trace.requests[i].id_count; j++) {
			uint64_t predecessor = j ? ids[j - 1] + 2 : 1;

			assert_true(!before[ids[j]] || before[ids[j]] == predecessor);
			before[ids[j]] = predecessor;
		}
	}
	free(before);
	rep_trace_free(&trace);
}

static void times_do_not_go_back_and_ids_fit_the_tokens(void **state)
{
	struct rep_trace trace;

	(void)state;
	assert_int_equal(rep_generate(&standard, &trace), 0);
	for (uint32_t i = 0; i < trace.count; i++) {
		const struct rep_request *request = &trace.requests[i];

		assert_true(!i || request->timestamp_ms >= trace.requests[i - 1].timestamp_ms);
		assert_int_equal(request->id_count, (request->input_length + 511) / 512);
		assert_in_range(request->input_length, 1, standard.max_tokens);
		assert_in_range(request->output_length, 1, 1000);
	}
	rep_trace_free(&trace);
}

static void reads_back(const struct rep_trace *trace, const char *path)
{
	struct rep_trace again;
	char error[512];

	assert_int_equal(rep_trace_write(trace, path), 0);
	assert_int_equal(rep_trace_load(path, 0, 0, &again, error, sizeof(error)), 0);
	assert_int_equal(again.block_tokens, 512);
	assert_true(same(trace, &again));
	rep_trace_free(&again);
}

static void written_traces_read_back_plain_and_compressed(void **state)
{
	char *folder = kvt_mkdtemp();
	struct rep_trace trace;
	char path[256];
	FILE *file;

	(void)state;
	assert_int_equal(rep_generate(&standard, &trace), 0);
	snprintf(path, sizeof(path), "%s/a.jsonl.gz", folder);
	reads_back(&trace, path);
	snprintf(path, sizeof(path), "%s/a.jsonl", folder);
	reads_back(&trace, path);
	file = fopen(path, "re");
	assert_int_equal(fgetc(file), '{');
	fclose(file);
	rep_trace_free(&trace);
	kvt_rmdir(folder);
}

static void a_path_that_cannot_be_written_is_an_error(void **state)
{
	struct rep_generate params = standard;
	struct rep_trace trace;

	(void)state;
	params.requests = 1;
	assert_int_equal(rep_generate(&params, &trace), 0);
	assert_int_not_equal(rep_trace_write(&trace, "/nowhere/at/all"), 0);
	assert_int_not_equal(rep_trace_write(&trace, "/dev/full"), 0);
	rep_trace_free(&trace);
}

static void extreme_parameters_make_a_trace_too(void **state)
{
	static const struct rep_generate extremes[] = {
		{.seed = 0,
		 .requests = 1,
		 .users = 1,
		 .system_prompts = 1,
		 .block_tokens = 1,
		 .max_tokens = 2048},
		{.seed = UINT64_MAX,
		 .requests = 300,
		 .users = 1,
		 .system_prompts = 1000,
		 .block_tokens = 65536,
		 .max_tokens = 2048},
		{.seed = 3,
		 .requests = 300,
		 .users = 4096,
		 .system_prompts = 2,
		 .block_tokens = 7,
		 .max_tokens = 1u << 20},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(extremes) / sizeof(extremes[0]); i++) {
		struct rep_trace trace;
		char error[256];
		uint32_t line;

		assert_int_equal(rep_generate(&extremes[i], &trace), 0);
		assert_int_equal(trace.count, extremes[i].requests);
		assert_int_equal(
			rep_trace_settle(&trace, extremes[i].block_tokens, &line, error, sizeof(error)), 0);
		rep_trace_free(&trace);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(equal_seeds_give_equal_traces),
		cmocka_unit_test(lengths_and_reuse_are_as_published),
		cmocka_unit_test(an_id_has_one_predecessor),
		cmocka_unit_test(times_do_not_go_back_and_ids_fit_the_tokens),
		cmocka_unit_test(written_traces_read_back_plain_and_compressed),
		cmocka_unit_test(a_path_that_cannot_be_written_is_an_error),
		cmocka_unit_test(extreme_parameters_make_a_trace_too),
	};

	kvt_watchdog(110);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
