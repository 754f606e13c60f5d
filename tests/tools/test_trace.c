/* SPDX-License-Identifier: Apache-2.0 */
/* The trace reader: what it takes, and that what it refuses is named with its line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "support.h"
#include "tools/replay/trace.h"

#define GOOD "{\"timestamp\": 27482, \"input_length\": 1000, \"output_length\": 52, \"hash_ids\": [46, 47]}\n"

static char *folder;

static char *path_of(const char *name)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return path;
}

static const char *write_file(const char *name, const char *text, size_t length)
{
	FILE *file = fopen(path_of(name), "we");

	assert_non_null(file);
	assert_int_equal(fwrite(text, 1, length, file), length);
	assert_int_equal(fclose(file), 0);
	return path_of(name);
}

static int load(const char *text, uint32_t block_tokens, struct rep_trace *trace, char *error)
{
	return rep_trace_load(write_file("trace", text, strlen(text)), block_tokens, 0, trace, error, 512);
}

static void reads_every_field_of_a_line(void **state)
{
	struct rep_trace trace;
	char error[512];

	(void)state;
	assert_int_equal(load(GOOD
			      "\n{\"timestamp\": 3.9, \"session\": 7, \"output_length\": 0, \"hash_ids\": "
			      "[9223372036854775807], \"input_length\": 1}\n",
			      512, &trace, error),
			 0);
	assert_int_equal(trace.count, 2);
	assert_int_equal(trace.block_tokens, 512);
	assert_int_equal(trace.requests[0].timestamp_ms, 27482);
	assert_int_equal(trace.requests[0].input_length, 1000);
	assert_int_equal(trace.requests[0].output_length, 52);
	assert_int_equal(trace.requests[0].id_count, 2);
	assert_int_equal(rep_request_ids(&trace, 0)[1], 47);
	assert_int_equal(trace.requests[1].line, 3);
	assert_int_equal(trace.requests[1].timestamp_ms, 3);
	assert_int_equal(rep_request_ids(&trace, 1)[0], INT64_MAX);
	rep_trace_free(&trace);
}

static void stops_after_the_requests_asked_for(void **state)
{
	struct rep_trace trace;
	char error[512];

	(void)state;
	assert_int_equal(rep_trace_load(write_file("two", GOOD GOOD "garbage", strlen(GOOD GOOD "garbage")),
					0, 2, &trace, error, sizeof(error)),
			 0);
	assert_int_equal(trace.count, 2);
	rep_trace_free(&trace);
}

/* What is refused, and a word that the sentence must have. */
static const struct {
	const char *line;
	const char *word;
} refused[] = {
	{"{", "JSON"},
	{"[1]", "object"},
	{"7", "JSON"},
	{"{\"timestamp\": 1, \"timestamp\": 1}", "JSON"},
	{"{}", "timestamp"},
	{"{\"timestamp\": \"0\", \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [1]}", "timestamp"},
	{"{\"timestamp\": -1, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [1]}", "timestamp"},
	{"{\"timestamp\": 1e300, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [1]}", "timestamp"},
	{"{\"timestamp\": 0, \"output_length\": 1, \"hash_ids\": [1]}", "input_length"},
	{"{\"timestamp\": 0, \"input_length\": 0, \"output_length\": 1, \"hash_ids\": []}", "input_length"},
	{"{\"timestamp\": 0, \"input_length\": 1.5, \"output_length\": 1, \"hash_ids\": [1]}",
	 "input_length"},
	{"{\"timestamp\": 0, \"input_length\": 16777217, \"output_length\": 1, \"hash_ids\": [1]}",
	 "input_length"},
	{"{\"timestamp\": 0, \"input_length\": 1, \"hash_ids\": [1]}", "output_length"},
	{"{\"timestamp\": 0, \"input_length\": 1, \"output_length\": -3, \"hash_ids\": [1]}",
	 "output_length"},
	{"{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1}", "hash_ids"},
	{"{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": {\"0\": 1}}",
	 "hash_ids"},
	{"{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [-1]}", "hash_ids"},
	{"{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [1.0]}", "hash_ids"},
	{"{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [\"1\"]}", "hash_ids"},
	{"{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [9223372036854775808]}",
	 "JSON"},
	{"{\"timestamp\": 0, \"input_length\": 1000, \"output_length\": 1, \"hash_ids\": [1]} x", "JSON"},
};

static void refuses_with_the_line_and_the_field(void **state)
{
	char text[1024];
	char error[512];

	(void)state;
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		struct rep_trace trace;

		snprintf(text, sizeof(text), "%s\n%s\n", GOOD, refused[i].line);
		assert_int_not_equal(load(text, 512, &trace, error), 0);
		if (!strstr(error, ":3: ") || !strstr(error, refused[i].word))
			fail_msg("'%s' gives '%s'", refused[i].line, error);
	}
}

static void refuses_deep_nesting_and_nul_bytes(void **state)
{
	static char text[200000];
	struct rep_trace trace;
	char error[512];

	(void)state;
	memset(text, '[', sizeof(text) - 1);
	assert_int_not_equal(load(text, 512, &trace, error), 0);
	memcpy(text, GOOD, sizeof(GOOD));
	text[12] = '\0';
	assert_int_not_equal(
		rep_trace_load(write_file("nul", text, sizeof(GOOD)), 512, 0, &trace, error, sizeof(error)),
		0);
	/* Behind the object it is no white space, and does not hide the line's end. */
	memcpy(text, GOOD, sizeof(GOOD));
	text[sizeof(GOOD) - 2] = '\0';
	text[sizeof(GOOD) - 1] = '\n';
	assert_int_not_equal(
		rep_trace_load(write_file("nul", text, sizeof(GOOD)), 512, 0, &trace, error, sizeof(error)),
		0);
	assert_non_null(strstr(error, ":1: not JSON"));
}

static void refuses_a_line_longer_than_the_limit(void **state)
{
	size_t length = REP_MAX_LINE_BYTES + 4096;
	char *text = malloc(length);
	struct rep_trace trace;
	char error[512];

	(void)state;
	assert_non_null(text);
	memset(text, ' ', length);
	assert_int_not_equal(
		rep_trace_load(write_file("long", text, length), 0, 0, &trace, error, sizeof(error)), 0);
	assert_non_null(strstr(error, ":1: "));
	free(text);
}

static void refuses_an_empty_and_a_missing_file(void **state)
{
	struct rep_trace trace;
	char error[512];

	(void)state;
	assert_int_not_equal(load("\n \n", 0, &trace, error), 0);
	assert_non_null(strstr(error, "no request"));
	assert_int_not_equal(rep_trace_load(path_of("absent"), 0, 0, &trace, error, sizeof(error)), 0);
	assert_non_null(strstr(error, "absent"));
}

static void finds_the_block_size_that_fits_every_request(void **state)
{
	struct rep_trace trace;
	char error[512];

	(void)state;
	assert_int_equal(load(GOOD, 0, &trace, error), 0);
	assert_int_equal(trace.block_tokens, 512);
	rep_trace_free(&trace);
	/* 200 tokens in blocks of 64: three whole ones, with or without the partial fourth. */
	assert_int_equal(
		load("{\"timestamp\":0,\"input_length\":200,\"output_length\":1,\"hash_ids\":[1,2,3]}\n"
		     "{\"timestamp\":0,\"input_length\":200,\"output_length\":1,\"hash_ids\":[1,2,3,4]}\n",
		     0, &trace, error),
		0);
	assert_int_equal(trace.block_tokens, 64);
	rep_trace_free(&trace);
}

static void refuses_ids_that_do_not_fit_the_tokens(void **state)
{
	struct rep_trace trace;
	char error[512];

	(void)state;
	assert_int_not_equal(load(GOOD GOOD, 64, &trace, error), 0);
	assert_non_null(strstr(error, ":1: 2 hash_ids do not fit 1000 tokens"));
	assert_int_not_equal(
		load("{\"timestamp\":0,\"input_length\":512,\"output_length\":1,\"hash_ids\":[1,2]}\n", 512,
		     &trace, error),
		0);
}

static void reads_gzip_and_refuses_a_cut_one(void **state)
{
	gzFile file = gzopen(path_of("a.gz"), "wb9");
	struct rep_trace trace;
	char error[512];

	(void)state;
	for (int i = 0; i < 500; i++)
		gzprintf(file,
			 "{\"timestamp\":%d,\"input_length\":%d,\"output_length\":1,\"hash_ids\":[%d]}\n", i,
			 i + 1, i * 7919);
	gzclose(file);
	assert_int_equal(rep_trace_load(path_of("a.gz"), 512, 0, &trace, error, sizeof(error)), 0);
	assert_int_equal(trace.count, 500);
	rep_trace_free(&trace);
	assert_int_equal(truncate(path_of("a.gz"), 400), 0);
	assert_int_not_equal(rep_trace_load(path_of("a.gz"), 512, 0, &trace, error, sizeof(error)), 0);
	/* The file is what is broken, not the line that it ends in. */
	assert_non_null(strstr(error, ": unexpected end of file"));
	assert_null(strstr(error, "JSON"));
	assert_ptr_equal(strstr(error, "a.gz"), strstr(error, "a.gz:"));
	assert_null(strstr(strstr(error, "a.gz") + 1, "a.gz"));
}

/* Any bytes: a good trace or a sentence, never a crash. Sanitizers watch. */
static void survives_random_changes_of_a_good_line(void **state)
{
	struct kvt_rng rng = {kvt_seed()};
	char line[sizeof(GOOD)];
	char error[512];
	uint32_t good = 0;

	(void)state;
	for (int round = 0; round < 20000; round++) {
		struct rep_trace trace = {0};
		uint32_t at = 0;

		memcpy(line, GOOD, sizeof(GOOD));
		for (uint64_t n = kvt_rng_below(&rng, 4); n; n--)
			line[kvt_rng_below(&rng, sizeof(line) - 1)] = (char)kvt_rng_next(&rng);
		error[0] = '\0';
		if (!rep_trace_line(&trace, line,
				    kvt_rng_below(&rng, 8) ? sizeof(line) - 2
							   : kvt_rng_below(&rng, sizeof(line)),
				    1, error, sizeof(error))) {
			good++;
			(void)rep_trace_settle(&trace, 512, &at, error, sizeof(error));
		} else {
			assert_true(error[0]);
		}
		rep_trace_free(&trace);
	}
	assert_true(good > 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_every_field_of_a_line),
		cmocka_unit_test(stops_after_the_requests_asked_for),
		cmocka_unit_test(refuses_with_the_line_and_the_field),
		cmocka_unit_test(refuses_deep_nesting_and_nul_bytes),
		cmocka_unit_test(refuses_a_line_longer_than_the_limit),
		cmocka_unit_test(refuses_an_empty_and_a_missing_file),
		cmocka_unit_test(finds_the_block_size_that_fits_every_request),
		cmocka_unit_test(refuses_ids_that_do_not_fit_the_tokens),
		cmocka_unit_test(reads_gzip_and_refuses_a_cut_one),
		cmocka_unit_test(survives_random_changes_of_a_good_line),
	};
	int failed;

	kvt_watchdog(110);
	folder = kvt_mkdtemp();
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	kvt_rmdir(folder);
	return failed;
}
