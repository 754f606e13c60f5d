/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The storage formats: every code both ways, rounding against a search over neighbours in double precision,
 * and the vector loads of each level against the scalar ones.
 */
#include "dtype.h"
#include "fixture.h"
#include "vector_loads.h"

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

KVK_LEVEL_TABLES(kvt_loads, kvt_loads);

/* Bit for bit, but that hardware may make a signalling NaN quiet. */
static void assert_same(float value, float expected)
{
	if (isnan(expected))
		assert_true(isnan(value) && !signbit(value) == !signbit(expected));
	else
		assert_int_equal(kvk_f32_bits(value), kvk_f32_bits(expected));
}

/* Every 16-bit code, at odd addresses. */
static void check_halves(void (*load)(float *values, const void *codes), uint32_t dtype)
{
	char bytes[1 + 2 * KVT_LOAD_CODES];
	float values[KVT_LOAD_CODES];

	for (uint32_t first = 0; first < 0x10000; first += KVT_LOAD_CODES) {
		for (uint32_t i = 0; i < KVT_LOAD_CODES; i++)
			memcpy(bytes + 1 + 2 * i, &(uint16_t){(uint16_t)(first + i)}, 2);
		load(values, bytes + 1);
		for (uint32_t i = 0; i < KVT_LOAD_CODES; i++)
			assert_same(values[i], kvk_load(bytes + 1, dtype, i));
	}
}

static void check_bytes(void (*load)(float *values, const void *codes))
{
	char bytes[1 + KVT_LOAD_CODES];
	float values[KVT_LOAD_CODES];

	for (int first = 0; first < 256; first += KVT_LOAD_CODES) {
		for (int i = 0; i < KVT_LOAD_CODES; i++)
			bytes[1 + i] = (char)(first + i);
		load(values, bytes + 1);
		for (int i = 0; i < KVT_LOAD_CODES; i++)
			assert_same(values[i], kvk_load(bytes + 1, KVK_E4M3, i));
	}
}

static void vector_loads_agree_with_scalar_ones_on_every_code(void **state)
{
	(void)state;
	for (int level = 0; level < KVK_LEVELS; level++) {
		const struct kvt_loads *loads;

		if (!kvk_level_usable(level))
			continue;
		loads = KVK_LEVEL_TABLE(kvt_loads, level);
		check_halves(loads->bf16, KVK_BF16);
		check_halves(loads->f16, KVK_F16);
		check_bytes(loads->e4m3);
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
