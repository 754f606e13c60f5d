/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine's copy engine: boxes against plain copies, in every schedule, and the bugs planted in planted_boxes.cu. A
 * machine that let boxes land at the issue would find none of those without a wait.
 */
#include "control.h"
#include "kernel_table.h"
#include "planted_boxes.h"
#include "support.h"

#include <stdlib.h>
#include <string.h>

#define SEEDS 12
#define TOKENS 80 /* of a page: 16 of the second box are outside */
#define PAGES 3
#define COLUMNS 136 /* of the tensor; a row has room for more, as a page has */
#define ROW 160
#define PAGE_ROWS 100
#define PLACES (BOXES_ROUNDS * KVK_CUDA_BOX * BOXES_WIDTH)

#define KERNEL(name) extern const struct simt_kernel simt_kernel_##name

KERNEL(boxes_right);
KERNEL(boxes_no_wait);
KERNEL(boxes_no_fence);
KERNEL(boxes_no_init);
KERNEL(boxes_no_barrier);
KERNEL(boxes_other_parity);
KERNEL(boxes_too_many_bytes);
KERNEL(boxes_too_few_bytes);
KERNEL(boxes_askew);
KERNEL(boxes_leaves);

static struct kvt_rng rng;

struct rows {
	uint16_t *from; /* [PAGES, PAGE_ROWS, ROW] */
	uint16_t *to;
	struct boxes_args args;
};

static void rows_open(struct rows *rows)
{
	const size_t halves = PAGES * PAGE_ROWS * ROW;
	struct simt_tensor_map map = {.magic = SIMT_TENSOR_MAP_MAGIC,
				      .dim = {COLUMNS, TOKENS, PAGES},
				      .stride = {ROW * 2, PAGE_ROWS * ROW * 2},
				      .box = {KVK_CUDA_BOX, KVK_CUDA_BOX, 1},
				      .type = 9,
				      .rank = 3,
				      .swizzle = 3};

	memset(rows, 0, sizeof(*rows));
	rows->from = malloc(halves * sizeof(*rows->from));
	rows->to = malloc(PLACES * sizeof(*rows->to));
	assert_non_null(rows->from);
	assert_non_null(rows->to);
	for (size_t i = 0; i < halves; i++)
		rows->from[i] = (uint16_t)(kvt_rng_next(&rng) % 0xfffe + 1);
	rows->args =
		(struct boxes_args){.to = rows->to, .column = 16, .token = {0, 64, 8}, .page = {2, 0, PAGES}};
	map.address = (uint64_t)(uintptr_t)rows->from;
	memcpy(&rows->args.tensor, &map, sizeof(map));
}

static void rows_close(struct rows *rows)
{
	free(rows->from);
	free(rows->to);
}

static int launch(const struct simt_kernel *kernel, const struct rows *rows, uint64_t seed)
{
	const struct simt_launch shape = {.grid = {2, 1, 1},
					  .block = {BOXES_THREADS, 1, 1},
					  .cluster = {1, 1, 1},
					  .shared_bytes = BOXES_SHARED_BYTES};
	void *parameters[] = {(void *)(uintptr_t)&rows->args};

	memset(rows->to, 0xff, PLACES * sizeof(*rows->to));
	simt_set_seed(seed);
	return simt_launch(kernel, &shape, parameters);
}

/* Zero outside of the tensor. */
static uint16_t wanted(const struct rows *rows, int round, int row, int column)
{
	const int page = rows->args.page[round], token = rows->args.token[round] + row;
	const int from = rows->args.column + column;

	return page < PAGES && token < TOKENS && from < COLUMNS
		       ? rows->from[(page * PAGE_ROWS + token) * ROW + from]
		       : 0;
}

static int is_right(const struct rows *rows)
{
	for (int i = 0; i < PLACES; i++)
		if (rows->to[i] != wanted(rows, i / (KVK_CUDA_BOX * BOXES_WIDTH),
					  i / BOXES_WIDTH % KVK_CUDA_BOX, i % BOXES_WIDTH))
			return 0;
	return 1;
}

static void boxes_arrive_in_every_schedule(void **state)
{
	struct rows rows;

	(void)state;
	rows_open(&rows);
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		if (launch(&simt_kernel_boxes_right, &rows, seed))
			fail_msg("%s", simt_error());
		assert_true(is_right(&rows));
	}
	rows_close(&rows);
}

static void assert_refused(const struct simt_kernel *kernel, const struct rows *rows, const char *what)
{
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		assert_int_not_equal(launch(kernel, rows, seed), 0);
		if (!strstr(simt_error(), what))
			fail_msg("'%s' does not say '%s'", simt_error(), what);
	}
}

/* Every schedule is an error or a wrong result: boxes are never early enough to hide it. */
static void assert_found(const struct simt_kernel *kernel, const struct rows *rows)
{
	for (uint64_t seed = 0; seed < SEEDS; seed++)
		if (!launch(kernel, rows, seed))
			assert_false(is_right(rows));
}

static void planted_bugs_are_found(void **state)
{
	struct rows rows;

	(void)state;
	rows_open(&rows);
	assert_refused(&simt_kernel_boxes_no_fence, &rows, "no fence.proxy.async");
	assert_refused(&simt_kernel_boxes_no_init, &rows, "not initialised");
	assert_refused(&simt_kernel_boxes_too_many_bytes, &rows, "for a phase");
	assert_refused(&simt_kernel_boxes_askew, &rows, "swizzle does not begin");
	assert_refused(&simt_kernel_boxes_leaves, &rows, "on their way");
	assert_found(&simt_kernel_boxes_no_wait, &rows);
	assert_found(&simt_kernel_boxes_no_barrier, &rows);
	assert_found(&simt_kernel_boxes_other_parity, &rows);
	assert_found(&simt_kernel_boxes_too_few_bytes, &rows);
	rows_close(&rows);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(boxes_arrive_in_every_schedule),
		cmocka_unit_test(planted_bugs_are_found),
	};

	kvt_watchdog(60);
	rng.state = kvt_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
