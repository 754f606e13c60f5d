/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Aligned tables. Cells are added row by row, left to right. Out of memory is remembered and told by
 * ctl_table_print(), so that callers add cells without looking.
 */
#ifndef KVPOOL_TOOLS_TABLE_H
#define KVPOOL_TOOLS_TABLE_H

#include <stdint.h>
#include <stdio.h>

#include "ipc/wire.h"

#define CTL_TABLE_COLUMNS 20u

struct ctl_table;

/*
 * titles: one a column, split by '|'; those that begin with '>' are aligned to the right ("NAME|>BLOCKS"). A
 * title that is empty everywhere leaves the head line out. NULL when out of memory; every function takes
 * that NULL.
 */
struct ctl_table *ctl_table_create(const char *titles);
void ctl_table_destroy(struct ctl_table *table);

void ctl_table_text(struct ctl_table *table, const char *text);
void ctl_table_format(struct ctl_table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* What a daemon said; "-" when that is nothing. */
void ctl_table_value(struct ctl_table *table, struct kvw_text value);
void ctl_table_number(struct ctl_table *table, uint64_t value);
void ctl_table_bytes(struct ctl_table *table, uint64_t bytes);

/* 0, or -ENOMEM when a cell was lost. */
int ctl_table_print(const struct ctl_table *table, FILE *out);
/* Prints it on standard output and destroys it; the exit code. */
int ctl_table_finish(struct ctl_table *table);

#endif
