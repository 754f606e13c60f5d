/* SPDX-License-Identifier: Apache-2.0 */
/* Warpgroups of the machine: its products against plain sums, and the bugs planted in planted_groups.cu. */
#include "control.h"
#include "kernel_table.h"
#include "planted_groups.h"
#include "support.h"

#include <stdlib.h>
#include <string.h>

#define SEEDS 10

#define KERNEL(name) extern const struct simt_kernel simt_kernel_##name

KERNEL(groups_narrow);
KERNEL(groups_wide);
KERNEL(groups_no_begin);
KERNEL(groups_no_wait);
KERNEL(groups_no_fence);
KERNEL(groups_overwrites);
KERNEL(groups_disagrees);

static struct kvt_rng rng;

struct operands {
	uint16_t *a, *b;
	float *c;
	int32_t columns;
	int b_by_rows;
};

/* Whole numbers from -4 to 4: every sum is exact. */
static uint16_t *small_numbers(int32_t count)
{
	static const uint16_t code[] = {0x0000, 0x3f80, 0x4000, 0x4040, 0x4080,
					0xbf80, 0xc000, 0xc040, 0xc080};
	uint16_t *numbers = malloc((size_t)count * sizeof(*numbers));

	assert_non_null(numbers);
	for (int32_t i = 0; i < count; i++)
		numbers[i] = code[kvt_rng_next(&rng) % 9];
	return numbers;
}

static void operands_open(struct operands *o, int32_t columns, int b_by_rows)
{
	o->columns = columns;
	o->b_by_rows = b_by_rows;
	o->a = small_numbers(GROUPS_ROWS * GROUPS_STEPS);
	o->b = small_numbers(columns * GROUPS_STEPS);
	o->c = malloc((size_t)(GROUPS_ROWS * columns) * sizeof(*o->c));
	assert_non_null(o->c);
	o->a[0] = 0x3f80; /* what groups_overwrites makes something else */
	o->b[0] = 0x3f80;
}

static void operands_close(struct operands *o)
{
	free(o->a);
	free(o->b);
	free(o->c);
}

static int launch(const struct simt_kernel *kernel, const struct operands *o, uint64_t seed)
{
	const struct simt_launch shape = {.grid = {1, 1, 1},
					  .block = {GROUPS_THREADS, 1, 1},
					  .cluster = {1, 1, 1},
					  .shared_bytes = GROUPS_SHARED_BYTES};
	struct groups_args args = {.a = o->a, .b = o->b, .c = o->c};
	void *parameters[] = {&args};

	memset(o->c, 0xff, (size_t)(GROUPS_ROWS * o->columns) * sizeof(*o->c));
	simt_set_seed(seed);
	return simt_launch(kernel, &shape, parameters);
}

static float number(uint16_t code)
{
	const uint32_t bits = (uint32_t)code << 16;
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static int is_right(const struct operands *o)
{
	for (int32_t row = 0; row < GROUPS_ROWS; row++)
		for (int32_t column = 0; column < o->columns; column++) {
			float sum = 0;

			for (int32_t k = 0; k < GROUPS_STEPS; k++)
				sum += number(o->a[row * GROUPS_STEPS + k]) *
				       number(o->b[o->b_by_rows ? k * o->columns + column
								: column * GROUPS_STEPS + k]);
			if (!(o->c[row * o->columns + column] == sum))
				return 0;
		}
	return 1;
}

static void products_are_right_in_every_schedule(void **state)
{
	struct operands narrow, wide;

	(void)state;
	operands_open(&narrow, GROUPS_NARROW, 0);
	operands_open(&wide, GROUPS_WIDE, 1);
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		if (launch(&simt_kernel_groups_narrow, &narrow, seed) ||
		    launch(&simt_kernel_groups_wide, &wide, seed))
			fail_msg("%s", simt_error());
		assert_true(is_right(&narrow));
		assert_true(is_right(&wide));
	}
	operands_close(&narrow);
	operands_close(&wide);
}

static void assert_refused(const struct simt_kernel *kernel, const struct operands *o, const char *what)
{
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		assert_int_not_equal(launch(kernel, o, seed), 0);
		if (!strstr(simt_error(), what))
			fail_msg("'%s' does not say '%s'", simt_error(), what);
	}
}

/* Runs of SEEDS whose result is wrong. */
static int spoiled(const struct simt_kernel *kernel, const struct operands *o)
{
	int count = 0;

	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		if (launch(kernel, o, seed))
			fail_msg("%s", simt_error());
		count += !is_right(o);
	}
	return count;
}

static void planted_bugs_are_found(void **state)
{
	struct operands o;

	(void)state;
	operands_open(&o, GROUPS_NARROW, 0);
	assert_refused(&simt_kernel_groups_no_begin, &o, "without wgmma.fence");
	assert_refused(&simt_kernel_groups_no_fence, &o, "no fence.proxy.async");
	assert_refused(&simt_kernel_groups_disagrees, &o, "different descriptors");
	assert_int_equal(spoiled(&simt_kernel_groups_no_wait, &o), SEEDS);
	/* The operand was read before or after: as the seed says. */
	assert_in_range(spoiled(&simt_kernel_groups_overwrites, &o), 1, SEEDS - 1);
	operands_close(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(products_are_right_in_every_schedule),
		cmocka_unit_test(planted_bugs_are_found),
	};

	kvt_watchdog(60);
	rng.state = kvt_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
