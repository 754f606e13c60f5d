/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens and KV rows of a replay: functions of exactly what they should depend on, and finite. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "tools/replay/content.h"

/* Requests 0 and 1 share ids 5, 6; the last id of 1 is partial; 2 has tokens behind its last id. */
static uint64_t ids[] = {5, 6, 5, 6, 7, 9};
static struct rep_request requests[] = {
	{.first_id = 0, .id_count = 2, .input_length = 32, .output_length = 8, .line = 1},
	{.first_id = 2, .id_count = 3, .input_length = 40, .output_length = 8, .line = 2},
	{.first_id = 5, .id_count = 1, .input_length = 20, .output_length = 8, .line = 3},
};
static const struct rep_trace trace = {
	.requests = requests, .ids = ids, .id_count = 6, .count = 3, .block_tokens = 16};

static void equal_ids_give_equal_tokens_and_others_differ(void **state)
{
	uint32_t a[40];
	uint32_t b[48];
	uint32_t c[28];

	(void)state;
	rep_tokens(&trace, 0, 40, a);
	rep_tokens(&trace, 1, 48, b);
	rep_tokens(&trace, 2, 28, c);
	assert_memory_equal(a, b, 32 * sizeof(*a));
	assert_memory_not_equal(a, a + 16, 16 * sizeof(*a));
	assert_memory_not_equal(b + 32, a, 8 * sizeof(*a));
	/* Behind the ids, and in the output, nothing is shared. */
	assert_memory_not_equal(a + 32, b + 40, 8 * sizeof(*a));
	assert_memory_not_equal(c + 16, a + 16, 4 * sizeof(*a));
	for (int i = 0; i < 40; i++)
		assert_true(a[i] < 1u << REP_TOKEN_BITS);
}

static void a_prefix_of_the_tokens_is_the_same_whatever_is_asked(void **state)
{
	uint32_t all[48];
	uint32_t some[48];

	(void)state;
	rep_tokens(&trace, 1, 48, all);
	for (uint32_t count = 0; count <= 48; count++) {
		rep_tokens(&trace, 1, count, some);
		assert_memory_equal(all, some, count * sizeof(*all));
	}
}

static void the_prefix_depends_on_every_token_and_its_place(void **state)
{
	uint32_t tokens[8] = {1, 2, 3, 4, 5, 6, 7, 8};
	uint64_t whole = rep_prefix_over(REP_PREFIX_START, tokens, 8);

	(void)state;
	assert_int_equal(rep_prefix_over(rep_prefix_over(REP_PREFIX_START, tokens, 3), tokens + 3, 5), whole);
	for (int i = 0; i < 8; i++) {
		tokens[i] ^= 1;
		assert_true(rep_prefix_over(REP_PREFIX_START, tokens, 8) != whole);
		tokens[i] ^= 1;
	}
	tokens[0] = 2;
	tokens[1] = 1;
	assert_true(rep_prefix_over(REP_PREFIX_START, tokens, 8) != whole);
	assert_true(rep_prefix_over(REP_PREFIX_START, tokens, 7) != whole);
}

static void a_row_depends_on_prefix_token_plane_and_head(void **state)
{
	uint8_t base[1152];
	uint8_t other[1152];

	(void)state;
	rep_row(7, 8, 9, 10, REP_ROW_BF16, base, sizeof(base));
	rep_row(7, 8, 9, 10, REP_ROW_BF16, other, sizeof(other));
	assert_memory_equal(base, other, sizeof(base));
	rep_row(6, 8, 9, 10, REP_ROW_BF16, other, sizeof(other));
	assert_memory_not_equal(base, other, sizeof(base));
	rep_row(7, 9, 9, 10, REP_ROW_BF16, other, sizeof(other));
	assert_memory_not_equal(base, other, sizeof(base));
	rep_row(7, 8, 10, 10, REP_ROW_BF16, other, sizeof(other));
	assert_memory_not_equal(base, other, sizeof(base));
	rep_row(7, 8, 9, 11, REP_ROW_BF16, other, sizeof(other));
	assert_memory_not_equal(base, other, sizeof(base));
}

static float of_bf16(uint16_t bits)
{
	uint32_t wide = (uint32_t)bits << 16;
	float value;

	memcpy(&value, &wide, sizeof(value));
	return value;
}

static void assert_sane(double value)
{
	assert_true(isfinite(value));
	assert_true(fabs(value) < 2 && fabs(value) >= 0x1p-7);
}

static void elements_are_finite_and_of_moderate_size(void **state)
{
	uint8_t row[1156];

	(void)state;
	for (uint64_t prefix = 0; prefix < 200; prefix++) {
		rep_row(prefix, 1, 0, 0, REP_ROW_BF16, row, sizeof(row));
		for (size_t i = 0; i < sizeof(row) / 2; i++) {
			uint16_t bits;

			memcpy(&bits, row + 2 * i, 2);
			assert_sane((double)of_bf16(bits));
		}
		rep_row(prefix, 1, 0, 0, REP_ROW_F32, row, sizeof(row));
		for (size_t i = 0; i < sizeof(row) / 4; i++) {
			float value;

			memcpy(&value, row + 4 * i, 4);
			assert_sane((double)value);
		}
		rep_row(prefix, 1, 0, 0, REP_ROW_F16, row, sizeof(row));
		for (size_t i = 0; i < sizeof(row) / 2; i++)
			assert_in_range((row[2 * i + 1] & 0x7f) >> 2, 8, 15);
		rep_row(prefix, 1, 0, 0, REP_ROW_E4M3, row, sizeof(row));
		for (size_t i = 0; i < sizeof(row); i++)
			assert_true((row[i] & 0x7f) != 0x7f);
	}
}

static void a_packed_row_has_sane_parts(void **state)
{
	uint8_t row[656];

	(void)state;
	rep_row(3, 1, 0, 0, REP_ROW_FP8_V32, row, sizeof(row));
	for (int i = 0; i < 512; i++)
		assert_true((row[i] & 0x7f) != 0x7f);
	for (int i = 0; i < 4; i++) {
		float scale;

		memcpy(&scale, row + 512 + 4 * i, 4);
		assert_true(scale == 0.25f || scale == 0.5f);
	}
	for (int i = 0; i < 64; i++) {
		uint16_t bits;

		memcpy(&bits, row + 528 + 2 * i, 2);
		assert_sane((double)of_bf16(bits));
	}
}

static void any_row_size_is_filled_and_nothing_behind_it(void **state)
{
	uint8_t row[80];
	uint8_t longer[80];

	(void)state;
	rep_row(1, 2, 3, 4, REP_ROW_BYTES, longer, sizeof(longer));
	for (size_t bytes = 1; bytes < 64; bytes++) {
		memset(row, 0xee, sizeof(row));
		rep_row(1, 2, 3, 4, REP_ROW_BYTES, row, bytes);
		assert_memory_equal(row, longer, bytes);
		for (size_t i = bytes; i < sizeof(row); i++)
			assert_int_equal(row[i], 0xee);
	}
}

static void queries_are_within_one(void **state)
{
	float query[4096];
	double sum = 0;

	(void)state;
	rep_query(kvt_seed(), query, 4096);
	for (int i = 0; i < 4096; i++) {
		assert_true(query[i] >= -1 && query[i] < 1);
		sum += (double)query[i];
	}
	assert_true(fabs(sum / 4096) < 0.1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(equal_ids_give_equal_tokens_and_others_differ),
		cmocka_unit_test(a_prefix_of_the_tokens_is_the_same_whatever_is_asked),
		cmocka_unit_test(the_prefix_depends_on_every_token_and_its_place),
		cmocka_unit_test(a_row_depends_on_prefix_token_plane_and_head),
		cmocka_unit_test(elements_are_finite_and_of_moderate_size),
		cmocka_unit_test(a_packed_row_has_sane_parts),
		cmocka_unit_test(any_row_size_is_filled_and_nothing_behind_it),
		cmocka_unit_test(queries_are_within_one),
	};

	kvt_watchdog(110);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
