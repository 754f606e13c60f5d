/* SPDX-License-Identifier: Apache-2.0 */
/* See golden.h. */
#include "golden.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct chunk {
	struct chunk *next;
	max_align_t data[];
};

static void worse(struct golden *golden, int result)
{
	golden->result = result > golden->result ? result : golden->result;
}

void *golden_alloc(struct golden *golden, int64_t count, size_t element_bytes)
{
	struct chunk *chunk = calloc(1, sizeof(*chunk) + ((size_t)count + 1) * element_bytes);

	if (!chunk) {
		perror("golden_host_prep");
		exit(GOLDEN_UNREADABLE);
	}
	chunk->next = golden->memory;
	golden->memory = chunk;
	return chunk->data;
}

void golden_free(struct golden *golden)
{
	struct chunk *chunk = golden->memory;

	while (chunk) {
		struct chunk *next = chunk->next;

		free(chunk);
		chunk = next;
	}
	golden->memory = NULL;
}

int32_t *golden_filled(struct golden *golden, int64_t count, int32_t value)
{
	int32_t *at = golden_alloc(golden, count, sizeof(*at));

	for (int64_t i = 0; i < count; i++)
		at[i] = value;
	return at;
}

/* ------------------------------------------------------------------ reading */

bool golden_readable(const struct golden *golden)
{
	return golden->result != GOLDEN_UNREADABLE;
}

void golden_unreadable(struct golden *golden, const char *field, const char *what)
{
	fprintf(stderr, "%s: %s/%s: '%s': %s\n", golden->file, golden->kind, golden->name, field, what);
	golden->result = GOLDEN_UNREADABLE;
}

void golden_known(struct golden *golden, const char *const *fields)
{
	const char *field;
	json_t *value;

	json_object_foreach(golden->fields, field, value)
	{
		const char *const *known = fields;

		while (*known && strcmp(*known, field))
			known++;
		if (!*known)
			golden_unreadable(golden, field, "not a field of this kind");
	}
}

json_t *golden_enter(struct golden *golden, json_t *object)
{
	json_t *former = golden->fields;

	golden->fields = object;
	return former;
}

static int32_t number(struct golden *golden, const char *field, const json_t *value)
{
	json_int_t integer = json_integer_value(value);

	if (json_is_integer(value) && integer >= INT32_MIN && integer <= INT32_MAX)
		return (int32_t)integer;
	golden_unreadable(golden, field, "not an integer of 32 bits");
	return 0;
}

int32_t golden_int(struct golden *golden, const char *field)
{
	return number(golden, field, json_object_get(golden->fields, field));
}

bool golden_bool(struct golden *golden, const char *field)
{
	const json_t *value = json_object_get(golden->fields, field);

	if (!json_is_boolean(value))
		golden_unreadable(golden, field, "not true or false");
	return json_is_true(value);
}

static struct ints list(struct golden *golden, const char *field, const json_t *value)
{
	struct ints ints = {.count = (int32_t)json_array_size(value)};

	if (!json_is_array(value))
		golden_unreadable(golden, field, "not a list");
	ints.at = golden_alloc(golden, ints.count, sizeof(*ints.at));
	for (int32_t i = 0; i < ints.count; i++)
		ints.at[i] = number(golden, field, json_array_get(value, (size_t)i));
	return ints;
}

struct ints golden_ints(struct golden *golden, const char *field)
{
	return list(golden, field, json_object_get(golden->fields, field));
}

struct ragged golden_ragged(struct golden *golden, const char *field)
{
	const json_t *value = json_object_get(golden->fields, field);
	struct ragged ragged = {.rows = (int32_t)json_array_size(value)};
	struct ints *row = golden_alloc(golden, ragged.rows, sizeof(*row));

	if (!json_is_array(value))
		golden_unreadable(golden, field, "not a list of lists");
	ragged.start = golden_alloc(golden, ragged.rows + 1, sizeof(*ragged.start));
	for (int32_t i = 0; i < ragged.rows; i++) {
		row[i] = list(golden, field, json_array_get(value, (size_t)i));
		ragged.start[i + 1] = ragged.start[i] + row[i].count;
		ragged.width = row[i].count > ragged.width ? row[i].count : ragged.width;
	}
	ragged.all.count = ragged.start[ragged.rows];
	ragged.all.at = golden_alloc(golden, ragged.all.count, sizeof(*ragged.all.at));
	for (int32_t i = 0; i < ragged.rows; i++)
		memcpy(ragged.all.at + ragged.start[i], row[i].at, (size_t)row[i].count * sizeof(*row[i].at));
	return ragged;
}

/* The sizes of nested lists; all lists of a level must have the same. */
static bool find_shape(const json_t *value, int depth, int32_t *shape)
{
	size_t i;
	json_t *entry;

	if (!depth)
		return json_is_number(value) || json_is_null(value);
	if (!json_is_array(value) || (*shape >= 0 && *shape != (int32_t)json_array_size(value)))
		return false;
	*shape = (int32_t)json_array_size(value);
	json_array_foreach(value, i, entry) if (!find_shape(entry, depth - 1, shape + 1)) return false;
	return true;
}

static float *flatten(const json_t *value, int depth, float *out)
{
	size_t i;
	json_t *entry;

	if (!depth) {
		*out = json_is_null(value) ? -INFINITY : (float)json_number_value(value);
		return out + 1;
	}
	json_array_foreach(value, i, entry) out = flatten(entry, depth - 1, out);
	return out;
}

struct floats golden_floats(struct golden *golden, const char *field, int depth, int32_t *shape)
{
	const json_t *value = json_object_get(golden->fields, field);
	struct floats floats = {.count = 1};

	for (int i = 0; i < depth; i++)
		shape[i] = -1;
	if (!find_shape(value, depth, shape)) {
		golden_unreadable(golden, field, "not nested lists of numbers");
		floats.count = 0;
	}
	for (int i = 0; i < depth && floats.count; i++)
		floats.count *= shape[i] > 0 ? shape[i] : 0;
	floats.at = golden_alloc(golden, floats.count, sizeof(*floats.at));
	if (floats.count)
		flatten(value, depth, floats.at);
	return floats;
}

int32_t *golden_rectangle(struct golden *golden, const struct ragged *ragged, int32_t width, int32_t pad)
{
	int32_t *table = golden_filled(golden, (int64_t)ragged->rows * width, pad);

	if (ragged->width > width) {
		golden_unreadable(golden, "(a list of lists)", "a row is longer than its table");
		return table;
	}
	for (int32_t i = 0; i < ragged->rows; i++)
		memcpy(table + (int64_t)i * width, ragged->all.at + ragged->start[i],
		       (size_t)(ragged->start[i + 1] - ragged->start[i]) * sizeof(*table));
	return table;
}

/* ------------------------------------------------------------------ comparing */

void golden_line(struct golden *golden, const char *what, bool pass)
{
	printf("%-18s %-28s %-34s %s\n", golden->kind, golden->name, what, pass ? "ok" : "FAILED");
	if (!pass)
		worse(golden, GOLDEN_FAIL);
}

static void show(const char *what, const int32_t *at, int64_t count)
{
	printf("  %s", what);
	for (int64_t i = 0; i < count && i < 64; i++)
		printf(" %d", at[i]);
	printf("\n");
}

void golden_same(struct golden *golden, const char *what, struct ints want, const int32_t *got, int64_t count)
{
	bool pass = want.count == count;

	for (int64_t i = 0; pass && i < count; i++)
		pass = want.at[i] == got[i];
	golden_line(golden, what, pass);
	if (!pass) {
		show("expected", want.at, want.count);
		show("computed", got, count);
	}
}

void golden_same_rows(struct golden *golden, const char *what, const struct ragged *want, const int32_t *got,
		      const int32_t *start, int32_t rows)
{
	const struct ints starts = {.at = want->start, .count = want->rows + 1};

	if (rows != want->rows || memcmp(start, starts.at, (size_t)starts.count * sizeof(*start)))
		golden_same(golden, what, starts, start, rows + 1);
	else
		golden_same(golden, what, want->all, got, start[rows]);
}

void golden_same_table(struct golden *golden, const char *what, const struct ragged *want, const int32_t *got,
		       int32_t rows, int32_t width)
{
	int32_t *start = golden_alloc(golden, rows + 1, sizeof(*start));

	for (int32_t i = 0; i <= rows; i++)
		start[i] = i * width;
	if (!want->rows && !width)
		golden_line(golden, what, true);
	else
		golden_same_rows(golden, what, want, got, start, rows);
}

bool golden_returns(struct golden *golden, const char *call, int ret, int want)
{
	if (ret == want)
		return true;
	printf("  %s returned %d, expected %d\n", call, ret, want);
	golden_line(golden, call, false);
	return false;
}
