/* SPDX-License-Identifier: Apache-2.0 */
/* Aligned tables: all cells are kept until the widths are known. */
#include "table.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "ctl.h"
#include "text.h"

struct ctl_table {
	uint32_t columns;
	bool right[CTL_TABLE_COLUMNS];
	char *titles[CTL_TABLE_COLUMNS];
	char **cells;
	uint32_t count;
	uint32_t capacity;
	bool failed;
};

struct ctl_table *ctl_table_create(const char *titles)
{
	struct ctl_table *table = calloc(1, sizeof(*table));

	for (const char *at = titles; table && table->columns < CTL_TABLE_COLUMNS;) {
		size_t span = strcspn(at, "|");
		bool right = *at == '>';

		table->right[table->columns] = right;
		table->titles[table->columns] = strndup(at + right, span - right);
		table->failed |= !table->titles[table->columns];
		table->columns++;
		if (!at[span])
			break;
		at += span + 1;
	}
	return table;
}

void ctl_table_destroy(struct ctl_table *table)
{
	if (!table)
		return;
	for (uint32_t i = 0; i < table->columns; i++)
		free(table->titles[i]);
	for (uint32_t i = 0; i < table->count; i++)
		free(table->cells[i]);
	free(table->cells);
	free(table);
}

static int make_room(struct ctl_table *table)
{
	uint32_t capacity = table->capacity ? 2 * table->capacity : 64;
	char **cells;

	if (table->count < table->capacity)
		return 0;
	cells = reallocarray(table->cells, capacity, sizeof(*cells));
	if (!cells)
		return -ENOMEM;
	table->cells = cells;
	table->capacity = capacity;
	return 0;
}

void ctl_table_text(struct ctl_table *table, const char *text)
{
	char *cell;

	if (!table)
		return;
	cell = strdup(text);
	if (!cell || make_room(table)) {
		table->failed = true;
		free(cell);
		return;
	}
	table->cells[table->count++] = cell;
}

void ctl_table_format(struct ctl_table *table, const char *format, ...)
{
	char *cell = NULL;
	va_list args;

	va_start(args, format);
	if (vasprintf(&cell, format, args) < 0)
		cell = NULL;
	va_end(args);
	if (cell)
		ctl_table_text(table, cell);
	else if (table)
		table->failed = true;
	free(cell);
}

void ctl_table_value(struct ctl_table *table, struct kvw_text value)
{
	char text[KVW_MAX_TEXT_BYTES + 1];

	ctl_table_text(table, value.length ? ctl_safe(value, text, sizeof(text)) : "-");
}

void ctl_table_number(struct ctl_table *table, uint64_t value)
{
	char text[CTL_TEXT_BYTES];

	ctl_table_text(table, ctl_number(value, text, sizeof(text)));
}

void ctl_table_bytes(struct ctl_table *table, uint64_t bytes)
{
	char text[CTL_TEXT_BYTES];

	ctl_table_text(table, ctl_bytes(bytes, text, sizeof(text)));
}

/* Columns on a terminal: characters of UTF-8 text, which is its bytes without the continuation bytes. */
static int width_of(const char *text)
{
	int width = 0;

	for (; *text; text++)
		width += ((unsigned char)*text & 0xc0) != 0x80;
	return width;
}

static void print_cell(const struct ctl_table *table, uint32_t column, const char *text, int width, FILE *out)
{
	bool last = column + 1 == table->columns;
	int pad = width - width_of(text);

	if (table->right[column])
		fprintf(out, "%*s%s", pad, "", text);
	else
		fprintf(out, "%s%*s", text, last ? 0 : pad, "");
	fputs(last ? "\n" : "  ", out);
}

static void measure(const struct ctl_table *table, int *widths)
{
	for (uint32_t i = 0; i < table->columns; i++)
		widths[i] = width_of(table->titles[i]);
	for (uint32_t i = 0; i < table->count; i++) {
		int width = width_of(table->cells[i]);
		int *widest = &widths[i % table->columns];

		*widest = width > *widest ? width : *widest;
	}
}

static bool has_titles(const struct ctl_table *table)
{
	for (uint32_t i = 0; i < table->columns; i++)
		if (*table->titles[i])
			return true;
	return false;
}

static void print_titles(const struct ctl_table *table, const int *widths, FILE *out)
{
	for (uint32_t i = 0; has_titles(table) && i < table->columns; i++)
		print_cell(table, i, table->titles[i], widths[i], out);
}

int ctl_table_print(const struct ctl_table *table, FILE *out)
{
	int widths[CTL_TABLE_COLUMNS];

	if (!table || table->failed)
		return -ENOMEM;
	measure(table, widths);
	print_titles(table, widths, out);
	for (uint32_t i = 0; i < table->count; i++)
		print_cell(table, i % table->columns, table->cells[i], widths[i % table->columns], out);
	return 0;
}

int ctl_table_finish(struct ctl_table *table)
{
	int ret = ctl_table_print(table, stdout);

	ctl_table_destroy(table);
	if (ret)
		ctl_complain("out of memory");
	return ret ? CTL_FAULT : CTL_OK;
}
