/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why KvpCompiler.cmake switches two passes of GCC off. `gcc -O2 dropped_call.c && ./a.out` must print 7; GCC 12.2 prints 0, since
 * the call of copy_ids() is gone. With -fno-ipa-pure-const -fno-ipa-modref it prints 7. Not part of the build.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct answer {
	int32_t id;
	uint32_t flags;
	uint64_t generation, writer, step;
};

struct tables {
	uint32_t width;
	uint64_t ids, generations, answers;
	void *memory[6];
};

struct outcome {
	int status;
	uint32_t matched, granted;
};

static void *row_of(const struct tables *tables, uint64_t area, uint32_t row, uint32_t bytes)
{
	return (uint8_t *)tables->memory[1] + area + (uint64_t)row * tables->width * bytes;
}

struct answer *answers_of(const struct tables *tables, uint32_t row)
{
	return row_of(tables, tables->answers, row, 32);
}

void copy_ids(struct tables *tables, uint32_t row, uint32_t first, uint32_t count)
{
	int32_t *ids = row_of(tables, tables->ids, row, 4);
	uint64_t *generations = row_of(tables, tables->generations, row, 8);
	const struct answer *answers = answers_of(tables, row);

	for (uint32_t i = first; i < first + count; i++) {
		ids[i] = answers[i].id;
		generations[i] = answers[i].generation;
	}
}

__attribute__((noipa)) void ask(struct tables *tables, struct outcome *out)
{
	(void)tables;
	*out = (struct outcome){0, 2, 1};
}

__attribute__((noipa)) struct outcome open_row(struct tables *tables, uint32_t row)
{
	struct outcome outcome;

	ask(tables, &outcome);
	if (!outcome.status)
		copy_ids(tables, row, 0, outcome.matched + outcome.granted);
	return outcome;
}

int main(void)
{
	struct tables tables = {.generations = 4096, .answers = 8192};

	tables.memory[1] = calloc(1, 1 << 16);
	if (!tables.memory[1])
		return 1;
	answers_of(&tables, 0)[0].id = 7;
	open_row(&tables, 0);
	printf("%d\n", ((int32_t *)tables.memory[1])[0]);
	return 0;
}
