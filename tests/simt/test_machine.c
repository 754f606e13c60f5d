/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine finds the bugs that are planted in planted.cu, and none where there is none; its matrix
 * operations and conversions agree with tables written out here from the PTX manual, apart from its own.
 */
#include "control.h"
#include "kernel_table.h"
#include "planted.h"
#include "probe.h"
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ASAN 1
#endif
#endif
#ifndef ASAN
#define ASAN 0
#endif

#define SEEDS 5

#define KERNEL(name) extern const struct simt_kernel simt_kernel_##name

KERNEL(planted_nothing);
KERNEL(planted_no_barrier);
KERNEL(planted_warp_barrier);
KERNEL(planted_barrier_in_a_branch);
KERNEL(planted_two_barriers);
KERNEL(planted_early_return);
KERNEL(planted_copy_nothing);
KERNEL(planted_copy_no_wait);
KERNEL(planted_copy_weak_wait);
KERNEL(planted_copy_no_commit);
KERNEL(planted_divergent_shuffle);
KERNEL(planted_two_shuffles);
KERNEL(planted_unwritten);
KERNEL(planted_too_much_shared);
KERNEL(planted_misaligned);
KERNEL(planted_past_shared);
KERNEL(planted_past_global);
KERNEL(probe_matrices);

struct run {
	int ret;
	int32_t to[PLANTED_THREADS];
};

/* Every thread should find the sum of 0 to 255. */
static void run_kernel(const struct simt_kernel *kernel, uint64_t seed, struct run *out)
{
	const struct simt_launch launch = {.grid = {1, 1, 1},
					   .block = {PLANTED_THREADS, 1, 1},
					   .cluster = {1, 1, 1},
					   .shared_bytes = PLANTED_SHARED_BYTES};
	int32_t *from = aligned_alloc(16, sizeof(out->to));
	int32_t *to = malloc(sizeof(out->to));
	struct planted_args args = {.from = from, .to = to};
	void *parameters[] = {&args};

	assert_non_null(from);
	assert_non_null(to);
	for (int32_t i = 0; i < PLANTED_THREADS; i++)
		from[i] = i;
	memset(to, 0, sizeof(out->to));
	simt_set_seed(seed);
	out->ret = simt_launch(kernel, &launch, parameters);
	memcpy(out->to, to, sizeof(out->to));
	free(from);
	free(to);
}

static bool all_right(const struct run *run)
{
	for (int32_t i = 0; i < PLANTED_THREADS; i++)
		if (run->to[i] != PLANTED_THREADS * (PLANTED_THREADS - 1) / 2)
			return false;
	return run->ret == 0;
}

/* Wrong sums, in every schedule. */
static void assert_spoiled(const struct simt_kernel *kernel)
{
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		struct run run;

		run_kernel(kernel, seed, &run);
		if (run.ret)
			fail_msg("%s", simt_error());
		if (all_right(&run))
			fail_msg("%s: not found with seed %d", kernel->name, (int)seed);
	}
}

/* An error that says `what`, in every schedule. */
static void assert_refused(const struct simt_kernel *kernel, const char *what)
{
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		struct run run;

		run_kernel(kernel, seed, &run);
		assert_int_not_equal(run.ret, 0);
		if (!strstr(simt_error(), what))
			fail_msg("'%s' does not say '%s'", simt_error(), what);
	}
}

static void right_kernels_give_the_right_sum_in_every_schedule(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 20; seed++) {
		struct run run;

		run_kernel(&simt_kernel_planted_nothing, seed, &run);
		assert_true(all_right(&run));
		run_kernel(&simt_kernel_planted_copy_nothing, seed, &run);
		assert_true(all_right(&run));
	}
}

static void missing_barriers_spoil_the_result(void **state)
{
	(void)state;
	assert_spoiled(&simt_kernel_planted_no_barrier);
	assert_spoiled(&simt_kernel_planted_warp_barrier);
}

static void divergent_barriers_are_named(void **state)
{
	(void)state;
	assert_refused(&simt_kernel_planted_barrier_in_a_branch, "stuck");
	assert_refused(&simt_kernel_planted_early_return, "1 have ended");
	assert_refused(&simt_kernel_planted_two_barriers, "divergent barrier");
}

static void missing_waits_spoil_the_result(void **state)
{
	(void)state;
	assert_spoiled(&simt_kernel_planted_copy_no_wait);
	assert_spoiled(&simt_kernel_planted_copy_weak_wait);
	assert_spoiled(&simt_kernel_planted_copy_no_commit);
}

static void warps_that_disagree_are_named(void **state)
{
	(void)state;
	assert_refused(&simt_kernel_planted_divergent_shuffle, "a shuffle");
	assert_refused(&simt_kernel_planted_two_shuffles, "warp disagrees");
}

static void unwritten_shared_memory_spoils_the_result(void **state)
{
	(void)state;
	assert_spoiled(&simt_kernel_planted_unwritten);
}

static void too_little_shared_memory_and_misaligned_loads_are_refused(void **state)
{
	(void)state;
	assert_refused(&simt_kernel_planted_too_much_shared, "launched with 1040");
	assert_refused(&simt_kernel_planted_misaligned, "not a multiple of 8");
}

/* The child is expected to die of AddressSanitizer. */
static void assert_dies(const struct simt_kernel *kernel)
{
	int status;
	pid_t child = fork();

	assert_true(child >= 0);
	if (!child) {
		struct run run;

		if (!freopen("/dev/null", "w", stderr))
			_exit(0);
		run_kernel(kernel, 0, &run);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void accesses_out_of_bounds_die_under_the_sanitizer(void **state)
{
	(void)state;
	if (!ASAN)
		skip();
	assert_dies(&simt_kernel_planted_past_shared);
	assert_dies(&simt_kernel_planted_past_global);
}

static void a_launch_past_the_limits_is_refused(void **state)
{
	struct planted_args args = {0};
	void *parameters[] = {&args};
	struct simt_launch launch = {.grid = {1, 1, 1}, .block = {512, 1, 1}, .cluster = {1, 1, 1}};

	(void)state;
	assert_int_not_equal(simt_launch(&simt_kernel_planted_nothing, &launch, parameters), 0);
	launch.block.x = 250;
	assert_int_not_equal(simt_launch(&simt_kernel_planted_nothing, &launch, parameters), 0);
	launch.block.x = 256;
	launch.grid.y = 65536;
	assert_int_not_equal(simt_launch(&simt_kernel_planted_nothing, &launch, parameters), 0);
	launch.grid.y = 0;
	assert_int_not_equal(simt_launch(&simt_kernel_planted_nothing, &launch, parameters), 0);
	launch.grid.y = 1;
	launch.shared_bytes = 300000;
	assert_int_not_equal(simt_launch(&simt_kernel_planted_nothing, &launch, parameters), 0);
}

/*
 * The tables once more, in another form: the PTX manual's figures give for lane 4 g + t and element i of a
 * fragment (elements counted through the registers, two a register) row and column. A: row g + 8 when i is
 * 2, 3, 6 or 7; column 2 t + i % 2, plus 8 from i = 4 on. B: row 2 t + i % 2, plus 8 from i = 2 on; column
 * g. C: row g + 8 from i = 2 on; column 2 t + i % 2.
 */
static void fragments_lie_as_the_manual_says(void **state)
{
	static const uint8_t a_rows[] = {0, 0, 8, 8, 0, 0, 8, 8}, a_columns[] = {0, 1, 0, 1, 8, 9, 8, 9};
	static const uint8_t b_rows[] = {0, 1, 8, 9};
	static const uint8_t c_rows[] = {0, 0, 8, 8}, c_columns[] = {0, 1, 0, 1};
	struct probe_result *got = calloc(1, sizeof(*got));
	uint16_t *matrix = aligned_alloc(16, sizeof(uint16_t) * 16 * 16);
	struct probe_args args = {.matrix = matrix, .result = got};
	void *parameters[] = {&args};
	const struct simt_launch launch = {.grid = {1, 1, 1},
					   .block = {32, 1, 1},
					   .cluster = {1, 1, 1},
					   .shared_bytes = PROBE_SHARED_BYTES};

	(void)state;
	assert_non_null(got);
	assert_non_null(matrix);
	for (int i = 0; i < 256; i++)
		matrix[i] = (uint16_t)i;
	simt_set_seed(3);
	assert_int_equal(simt_launch(&simt_kernel_probe_matrices, &launch, parameters), 0);
	for (int lane = 0; lane < 32; lane++) {
		const int g = lane / 4, t = lane % 4;

		for (int i = 0; i < 8; i++) {
			assert_int_equal(got->a[lane][i], 16 * (g + a_rows[i]) + 2 * t + a_columns[i]);
			/*
			 * x4.trans over the same addresses: element (row, column) of each 8 x 8 part
			 * changes places.
			 */
			assert_int_equal(got->transposed[lane][i],
					 16 * (2 * t + a_columns[i] % 8 + a_rows[i]) + g +
						 a_columns[i] / 8 * 8);
		}
		for (int i = 0; i < 4; i++)
			assert_int_equal(got->b[lane][i], 16 * (2 * t + b_rows[i]) + g);
		for (int i = 0; i < 4; i++) {
			/*
			 * C = A B, A[r][k] = (r == k) + 2 (r == k + 1), B[k][n] = k + 16 n: small integers.
			 */
			const int row = g + c_rows[i], column = 2 * t + c_columns[i];
			const int want = row + 16 * column + (row ? 2 * (row - 1 + 16 * column) : 0);

			assert_true(got->c_bf16[lane][i] == (float)want);
			assert_true(got->c_f16[lane][i] == (float)want);
		}
	}
	free(got);
	free(matrix);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(right_kernels_give_the_right_sum_in_every_schedule),
		cmocka_unit_test(missing_barriers_spoil_the_result),
		cmocka_unit_test(divergent_barriers_are_named),
		cmocka_unit_test(missing_waits_spoil_the_result),
		cmocka_unit_test(warps_that_disagree_are_named),
		cmocka_unit_test(unwritten_shared_memory_spoils_the_result),
		cmocka_unit_test(too_little_shared_memory_and_misaligned_loads_are_refused),
		cmocka_unit_test(accesses_out_of_bounds_die_under_the_sanitizer),
		cmocka_unit_test(a_launch_past_the_limits_is_refused),
		cmocka_unit_test(fragments_lie_as_the_manual_says),
	};

	kvt_watchdog(120);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
