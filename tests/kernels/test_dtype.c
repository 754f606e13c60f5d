/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The storage formats: every code both ways, rounding against a search over neighbours in double precision,
 * and the vector loads of each level against the scalar ones.
 */
#include "cpu/tile.h"
#include "dtype.h"
#include "fixture.h"

#include <stdlib.h>

static struct kvt_rng rng;

/* What a code means, from the definition of its format: sign, exponent and mantissa fields, ldexp. */
static double decode(uint32_t code, int exponent_bits, int mantissa_bits, int bias)
{
	int exponent = (int)(code >> mantissa_bits & ((1u << exponent_bits) - 1));
	double mantissa = code & ((1u << mantissa_bits) - 1);
	double sign = code >> (exponent_bits + mantissa_bits) ? -1 : 1;

	if (exponent == 0)
		return sign * ldexp(mantissa, 1 - bias - mantissa_bits);
	return sign * ldexp(mantissa + ldexp(1, mantissa_bits), exponent - bias - mantissa_bits);
}

static void every_f16_code_survives_a_round_trip(void **state)
{
	(void)state;
	for (uint32_t code = 0; code < 0x10000; code++) {
		float value = kvk_f16_to_f32((uint16_t)code);

		if ((code & 0x7fff) > 0x7c00)
			assert_true(isnan(value) && !signbit(value) == !(code >> 15));
		else if ((code & 0x7fff) == 0x7c00)
			assert_true(isinf(value));
		else
			assert_true((double)value == decode(code, 5, 10, 15));
		if (!isnan(value))
			assert_int_equal(kvk_f32_to_f16(value), code);
	}
}

static void every_e4m3_code_survives_a_round_trip(void **state)
{
	(void)state;
	for (uint32_t code = 0; code < 0x100; code++) {
		float value = kvk_e4m3_to_f32((uint8_t)code);

		if ((code & 0x7f) == 0x7f)
			assert_true(isnan(value));
		else
			assert_true((double)value == decode(code, 4, 3, 7));
		assert_int_equal(kvk_f32_to_e4m3(value), code);
	}
}

static void every_bf16_code_survives_a_round_trip(void **state)
{
	(void)state;
	for (uint32_t code = 0; code < 0x10000; code++) {
		float value = kvk_bf16_to_f32((uint16_t)code);

		if ((code & 0x7fff) > 0x7f80)
			assert_true(isnan(value) && isnan(kvk_bf16_to_f32(kvk_f32_to_bf16(value))));
		else
			assert_int_equal(kvk_f32_to_bf16(value), code);
	}
}

static void e4m3_rounds_and_saturates_as_specified(void **state)
{
	static const struct {
		float value;
		uint8_t code;
	} golden[] = {{1.0f, 0x38},      {1.0625f, 0x38},   {1.1875f, 0x3a}, {449.0f, 0x7e},
		      {448.0f, 0x7e},    {1e30f, 0x7e},     {-1e30f, 0xfe},  {0x1p-9f, 0x01},
		      {0x1p-10f, 0x00},  {0x1.8p-9f, 0x02}, {-0.0f, 0x80},   {INFINITY, 0x7e},
		      {-INFINITY, 0xfe}, {0x1.fp-7f, 0x08}, {0, 0x00}};

	(void)state;
	for (size_t i = 0; i < sizeof(golden) / sizeof(*golden); i++)
		assert_int_equal(kvk_f32_to_e4m3(golden[i].value), golden[i].code);
	assert_int_equal(kvk_f32_to_e4m3(NAN), 0x7f);
}

static void f16_and_bf16_overflow_to_infinity(void **state)
{
	(void)state;
	assert_int_equal(kvk_f32_to_f16(65519.996f), 0x7bff);
	assert_int_equal(kvk_f32_to_f16(65520.0f), 0x7c00);
	assert_int_equal(kvk_f32_to_f16(-1e30f), 0xfc00);
	assert_int_equal(kvk_f32_to_bf16(3.4028235e38f), 0x7f80);
	assert_int_equal(kvk_f32_to_bf16(0x1.01p0f), 0x3f80); /* tie to even */
	assert_int_equal(kvk_f32_to_bf16(0x1.03p0f), 0x3f82);
	assert_true(kvk_f32_to_f16(NAN) >> 10 == 0x1f && kvk_f32_to_f16(NAN) & 0x3ff);
}

/* No neighbour of `code` is nearer to value >= 0, and of two equally near the even one was taken. */
static void assert_nearest(double value, uint32_t code, double (*to_double)(uint32_t code), uint32_t largest)
{
	const double error = fabs(value - to_double(code));

	for (uint32_t other = code ? code - 1 : 1; other <= code + 1 && other <= largest; other += 2) {
		double other_error = fabs(value - to_double(other));

		assert_true(error < other_error || (error == other_error && code % 2 == 0));
	}
}

static double f16_value(uint32_t code)
{
	return decode(code, 5, 10, 15);
}

static double e4m3_value(uint32_t code)
{
	return decode(code, 4, 3, 7);
}

static void narrowing_picks_the_nearest_value(void **state)
{
	(void)state;
	for (int i = 0; i < 200000; i++) {
		float value = fabsf(ldexpf(kvt_uniform(&rng), kvt_between(&rng, -26, 9)));

		assert_nearest(value, kvk_f32_to_f16(value), f16_value, 0x7bff);
		if (value < 448)
			assert_nearest(value, kvk_f32_to_e4m3(value), e4m3_value, 0x7e);
	}
}

static void check_load(void (*load)(float *dst, const void *codes, int count), uint32_t dtype)
{
	uint16_t *codes = kvt_poison(0x10000 + 1, sizeof(*codes));
	float *values = kvt_poison(0x10000, sizeof(*values));

	for (uint32_t code = 0; code < 0x10000; code++)
		memcpy((char *)codes + 1 + code * 2, &code, 2); /* at an odd address */
	for (int count = 0; count < 40; count++) {
		values[count] = 12345;
		load(values, (char *)codes + 1, count);
		assert_true(values[count] == 12345);
	}
	load(values, (char *)codes + 1, 0x10000);
	for (uint32_t code = 0; code < 0x10000; code++) {
		uint16_t half = (uint16_t)code;

		assert_int_equal(kvk_f32_bits(values[code]), kvk_f32_bits(kvk_load(&half, dtype, 0)));
	}
	free(codes);
	free(values);
}

static void vector_loads_agree_with_scalar_ones_on_every_code(void **state)
{
	uint8_t codes[256];
	float values[256];

	(void)state;
	for (int i = 0; i < 256; i++)
		codes[i] = (uint8_t)i;
	for (int level = 0; level < KVK_LEVELS; level++) {
		const struct kvk_tile_ops *ops;

		if (!kvk_level_usable(level))
			continue;
		ops = kvk_tile_ops(level);
		check_load(ops->load_bf16, KVK_BF16);
		check_load(ops->load_f16, KVK_F16);
		ops->load_e4m3(values, codes, 0.25f, 256);
		for (int i = 0; i < 256; i++)
			assert_int_equal(kvk_f32_bits(values[i]),
					 kvk_f32_bits(kvk_e4m3_to_f32(codes[i]) * 0.25f));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_f16_code_survives_a_round_trip),
		cmocka_unit_test(every_e4m3_code_survives_a_round_trip),
		cmocka_unit_test(every_bf16_code_survives_a_round_trip),
		cmocka_unit_test(e4m3_rounds_and_saturates_as_specified),
		cmocka_unit_test(f16_and_bf16_overflow_to_infinity),
		cmocka_unit_test(narrowing_picks_the_nearest_value),
		cmocka_unit_test(vector_loads_agree_with_scalar_ones_on_every_code),
	};

	kvt_watchdog(120);
	rng.state = kvt_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
