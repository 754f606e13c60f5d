/* SPDX-License-Identifier: Apache-2.0 */
/* Reads traces: zlib opens plain and compressed files alike, jansson reads the lines. */
#include "trace.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* Room for a line at first; doubled as needed. */
#define FIRST_LINE_BYTES 65536u
static_assert(REP_MAX_LINE_BYTES == 8u << 20, "why_of() says it");

void rep_trace_free(struct rep_trace *trace)
{
	free(trace->requests);
	free(trace->ids);
	memset(trace, 0, sizeof(*trace));
}

static int reserve_request(struct rep_trace *trace)
{
	uint32_t capacity = trace->capacity ? 2 * trace->capacity : 1024;
	struct rep_request *requests;

	if (trace->count < trace->capacity)
		return 0;
	requests = reallocarray(trace->requests, capacity, sizeof(*requests));
	if (!requests)
		return -ENOMEM;
	trace->requests = requests;
	trace->capacity = capacity;
	return 0;
}

int rep_trace_reserve_ids(struct rep_trace *trace, uint64_t ids)
{
	uint64_t capacity = 2 * (trace->id_count + ids);
	uint64_t *grown;

	if (trace->id_count + ids <= trace->id_capacity)
		return 0;
	grown = reallocarray(trace->ids, capacity, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	trace->ids = grown;
	trace->id_capacity = capacity;
	return 0;
}

/*
 * A whole number from 0 to max; a real one is cut, because some traces have times in fractions of a
 * millisecond.
 */
static int read_number(const json_t *object, const char *name, uint64_t max, bool real, uint64_t *out,
		       char *error, size_t capacity)
{
	const json_t *value = json_object_get(object, name);
	double number = json_number_value(value);

	if (!value) {
		snprintf(error, capacity, "'%s' is missing", name);
	} else if (!json_is_integer(value) && !(real && json_is_real(value))) {
		snprintf(error, capacity, "'%s' is no %snumber", name, real ? "" : "whole ");
	} else if (number < 0 || number > (double)max) {
		snprintf(error, capacity, "'%s' is %.0f, but must be 0 to %" PRIu64, name, number, max);
	} else {
		*out = json_is_integer(value) ? (uint64_t)json_integer_value(value) : (uint64_t)number;
		return 0;
	}
	return -EINVAL;
}

static int read_ids(struct rep_trace *trace, const json_t *ids, char *error, size_t capacity)
{
	size_t index;
	json_t *id;

	json_array_foreach(ids, index, id)
	{
		if (!json_is_integer(id) || json_integer_value(id) < 0) {
			snprintf(error, capacity, "'hash_ids' entry %zu is no whole number from 0", index);
			return -EINVAL;
		}
		trace->ids[trace->id_count + index] = (uint64_t)json_integer_value(id);
	}
	return 0;
}

static int read_lengths(const json_t *object, struct rep_request *request, char *error, size_t capacity)
{
	uint64_t input;
	uint64_t output;
	int ret = read_number(object, "timestamp", INT64_MAX / 2, true, &request->timestamp_ms, error,
			      capacity);

	if (!ret)
		ret = read_number(object, "input_length", REP_MAX_TOKENS, false, &input, error, capacity);
	if (!ret)
		ret = read_number(object, "output_length", REP_MAX_TOKENS, false, &output, error, capacity);
	if (ret)
		return ret;
	request->input_length = (uint32_t)input;
	request->output_length = (uint32_t)output;
	if (input)
		return 0;
	snprintf(error, capacity, "'input_length' is 0: a prompt has at least one token");
	return -EINVAL;
}

static int read_request(struct rep_trace *trace, const json_t *object, uint32_t line, char *error,
			size_t capacity)
{
	const json_t *ids = json_object_get(object, "hash_ids");
	struct rep_request request = {.line = line, .first_id = trace->id_count};
	int ret = read_lengths(object, &request, error, capacity);

	if (ret)
		return ret;
	if (!json_is_array(ids) || json_array_size(ids) > REP_MAX_IDS) {
		snprintf(error, capacity, "'hash_ids' %s an array of at most %u numbers",
			 ids ? "is not" : "is missing:", REP_MAX_IDS);
		return -EINVAL;
	}
	if (reserve_request(trace) || rep_trace_reserve_ids(trace, json_array_size(ids))) {
		snprintf(error, capacity, "out of memory");
		return -ENOMEM;
	}
	ret = read_ids(trace, ids, error, capacity);
	if (ret)
		return ret;
	request.id_count = (uint32_t)json_array_size(ids);
	trace->id_count += request.id_count;
	trace->requests[trace->count++] = request;
	return 0;
}

int rep_trace_line(struct rep_trace *trace, const char *text, size_t length, uint32_t line, char *error,
		   size_t capacity)
{
	json_error_t problem;
	json_t *object = json_loadb(text, length, JSON_REJECT_DUPLICATES, &problem);
	int ret = -EINVAL;

	if (!object)
		snprintf(error, capacity, "not JSON: %.120s", problem.text);
	else if (!json_is_object(object))
		snprintf(error, capacity, "no JSON object");
	else if (trace->count >= REP_MAX_REQUESTS)
		snprintf(error, capacity, "more than %u requests", REP_MAX_REQUESTS);
	else
		ret = read_request(trace, object, line, error, capacity);
	json_decref(object);
	return ret;
}

/* The last block may be partial, or, in traces of whole blocks, left out. */
static bool fits(const struct rep_request *request, uint32_t block_tokens)
{
	uint32_t whole = request->input_length / block_tokens;

	return request->id_count == whole ||
	       (request->input_length % block_tokens && request->id_count == whole + 1);
}

static const struct rep_request *first_misfit(const struct rep_trace *trace, uint32_t block_tokens)
{
	for (uint32_t i = 0; i < trace->count; i++)
		if (!fits(&trace->requests[i], block_tokens))
			return &trace->requests[i];
	return NULL;
}

/* REP_TRACE_BLOCK_TOKENS first: short requests fit several sizes. */
static uint32_t usual_size(const struct rep_trace *trace)
{
	static const uint32_t sizes[] = {REP_TRACE_BLOCK_TOKENS, 16, 32, 64, 128, 256, 1024, 2048};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		if (!first_misfit(trace, sizes[i]))
			return sizes[i];
	return REP_TRACE_BLOCK_TOKENS;
}

int rep_trace_settle(struct rep_trace *trace, uint32_t block_tokens, uint32_t *line, char *error,
		     size_t capacity)
{
	const struct rep_request *misfit;

	trace->block_tokens = block_tokens ? block_tokens : usual_size(trace);
	misfit = first_misfit(trace, trace->block_tokens);
	if (!misfit)
		return 0;
	*line = misfit->line;
	snprintf(error, capacity,
		 "%u hash_ids do not fit %u tokens in trace blocks of %u; give --trace-block-tokens",
		 misfit->id_count, misfit->input_length, trace->block_tokens);
	return -EINVAL;
}

/* What of a file is read, and how. */
struct limits {
	uint32_t block_tokens;
	uint32_t requests;
};

/* A line's text and the room for it. */
struct line {
	char *text;
	size_t capacity;
	size_t length;
};

static int grow_line(struct line *line)
{
	char *grown;

	if (line->capacity - line->length >= 2)
		return 0;
	if (line->capacity >= REP_MAX_LINE_BYTES)
		return -EFBIG;
	grown = realloc(line->text, 2 * line->capacity);
	if (!grown)
		return -ENOMEM;
	line->text = grown;
	line->capacity *= 2;
	return 0;
}

/*
 * One line without its end; 1, 0 at the end of the file, or an error. Lengths come from the file's position: a
 * line may hold a zero byte, which is for the JSON reader to refuse.
 */
static int read_line(gzFile file, struct line *line)
{
	z_off_t begin = gztell(file);
	int ret;

	line->length = 0;
	while (!(ret = grow_line(line))) {
		if (!gzgets(file, line->text + line->length, (int)(line->capacity - line->length)))
			return line->length ? 1 : 0;
		line->length = (size_t)(gztell(file) - begin);
		if (line->length && line->text[line->length - 1] == '\n') {
			line->length--;
			return 1;
		}
	}
	return ret;
}

static bool is_blank(const char *text, size_t length)
{
	size_t at = 0;

	while (at < length && strchr(" \t\r", text[at]) && text[at])
		at++;
	return at == length;
}

static const char *why_of(int error)
{
	return error == -EFBIG ? "longer than 8 MiB" : "out of memory";
}

/* Next line that is not blank: 1 and a request, 0 at the end, or an error. */
static int read_next(gzFile file, struct line *line, struct rep_trace *trace, uint32_t *number, char *error,
		     size_t capacity)
{
	int ret;

	do {
		++*number;
		ret = read_line(file, line);
	} while (ret > 0 && is_blank(line->text, line->length));
	if (ret < 0)
		snprintf(error, capacity, "%s", why_of(ret));
	if (ret <= 0)
		return ret;
	ret = rep_trace_line(trace, line->text, line->length, *number, error, capacity);
	return ret ? ret : 1;
}

static int read_lines(gzFile file, uint32_t max_requests, struct rep_trace *trace, uint32_t *number,
		      char *error, size_t capacity)
{
	struct line line = {.text = malloc(FIRST_LINE_BYTES), .capacity = FIRST_LINE_BYTES};
	int ret = line.text ? 1 : -ENOMEM;

	if (ret < 0)
		snprintf(error, capacity, "%s", why_of(ret));
	while (ret > 0 && (!max_requests || trace->count < max_requests))
		ret = read_next(file, &line, trace, number, error, capacity);
	free(line.text);
	return ret < 0 ? ret : 0;
}

/* What zlib says begins with the file's name, as we do. */
static const char *without_path(const char *text, const char *path)
{
	size_t name = strlen(path);

	return !strncmp(text, path, name) && !strncmp(text + name, ": ", 2) ? text + name + 2 : text;
}

/* A cut or damaged .gz reads like an early end. */
static int check_file(gzFile file, const char *path, char *error, size_t capacity)
{
	int code;
	const char *text = gzerror(file, &code);

	if (code == Z_OK || code == Z_STREAM_END)
		return 0;
	snprintf(error, capacity, "%s", code == Z_ERRNO ? strerror(errno) : without_path(text, path));
	return -EIO;
}

/* A fault of the file comes before one of the line that it cut. */
static int load(gzFile file, const char *path, const struct limits *limits, struct rep_trace *trace,
		uint32_t *line, char *error, size_t capacity)
{
	int ret = read_lines(file, limits->requests, trace, line, error, capacity);
	int fault = check_file(file, path, error, capacity);

	ret = fault ? fault : ret;
	if (!ret && !trace->count) {
		ret = -EINVAL;
		snprintf(error, capacity, "no request in it");
	}
	return ret ? ret : rep_trace_settle(trace, limits->block_tokens, line, error, capacity);
}

int rep_trace_load(const char *path, uint32_t block_tokens, uint32_t max_requests, struct rep_trace *out,
		   char *error, size_t capacity)
{
	const struct limits limits = {.block_tokens = block_tokens, .requests = max_requests};
	struct rep_trace trace = {0};
	uint32_t line = 0;
	char why[256] = "";
	gzFile file = gzopen(path, "rbe");
	int ret;

	if (!file) {
		ret = errno ? -errno : -ENOMEM;
		snprintf(error, capacity, "cannot read '%s': %s", path, strerror(-ret));
		return ret;
	}
	ret = load(file, path, &limits, &trace, &line, why, sizeof(why));
	gzclose_r(file);
	if (ret) {
		snprintf(error, capacity, "%s:%u: %s", path, line, why);
		rep_trace_free(&trace);
		return ret;
	}
	*out = trace;
	return 0;
}
