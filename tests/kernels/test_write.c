/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache writes: which bytes they write, and that they write no other. Caches start as 0xff bytes, the
 * canary.
 */
#include "dtype.h"
#include "fixture.h"

#include <errno.h>
#include <stdlib.h>

#define PAGES 4
#define PAGE_TOKENS 3
#define SLOTS (PAGES * PAGE_TOKENS)

static struct kvt_rng rng;

/* Both versions of an operation must leave the same bytes; run them in turn on fresh canaries. */
static int (*const mla_writes[])(const struct kvk_mla_write_params *) = {kvk_mla_write_ref, kvk_mla_write};
static int (*const kv_writes[])(const struct kvk_kv_write_params *) = {kvk_kv_write_ref, kvk_kv_write};

static void assert_canary(const unsigned char *bytes, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		assert_int_equal(bytes[i], 0xff);
}

/*
 * bf16 rows into strided rows of strided pages; -1 first, in the middle and last; more source rows than
 * slots.
 */
static void mla_rows_land_in_their_slots_and_nowhere_else(void **state)
{
	enum { TOKENS = 7, ROW = KVK_MLA_WIDTH + 8, PAGE = PAGE_TOKENS * ROW + 16, SRC = KVK_MLA_LATENT + 4 };
	static const int64_t slots[TOKENS] = {-1, 5, 0, -1, 11, 8, -1};
	uint16_t *latent = kvt_poison((TOKENS + 2) * SRC, 2);
	uint16_t *rope = kvt_poison((TOKENS + 2) * KVK_MLA_ROPE * 2, 2);
	struct kvk_mla_write_params p = {.size = sizeof(p),
					 .tokens = TOKENS,
					 .page_tokens = PAGE_TOKENS,
					 .pages = PAGES,
					 .slot_bytes = 8,
					 .src_dtype = KVK_BF16,
					 .kv_dtype = KVK_BF16,
					 .latent = latent,
					 .rope = rope,
					 .slots = slots,
					 .latent_stride = SRC,
					 .rope_stride = 2 * KVK_MLA_ROPE,
					 .kv_stride_page = PAGE,
					 .kv_stride_token = ROW};

	(void)state;
	for (int i = 0; i < (TOKENS + 2) * SRC; i++)
		latent[i] = (uint16_t)kvt_rng_next(&rng); /* any bits, NaN payloads included */
	for (int i = 0; i < (TOKENS + 2) * KVK_MLA_ROPE * 2; i++)
		rope[i] = (uint16_t)kvt_rng_next(&rng);
	for (int v = 0; v < 2; v++) {
		uint16_t *memory = kvt_poison((PAGES + 2) * PAGE, 2);
		uint16_t *kv = memory + PAGE;
		const uint16_t *end = memory;

		p.kv = kv;
		assert_int_equal(mla_writes[v](&p), 0);
		for (int slot = 0; slot < SLOTS; slot++) {
			const uint16_t *row = kv + slot / PAGE_TOKENS * PAGE + slot % PAGE_TOKENS * ROW;

			for (int t = 0; t < TOKENS; t++)
				if (slots[t] == slot) {
					assert_canary((const unsigned char *)end, (row - end) * 2);
					assert_memory_equal(row, latent + t * SRC, KVK_MLA_LATENT * 2);
					assert_memory_equal(row + KVK_MLA_LATENT, rope + t * 2 * KVK_MLA_ROPE,
							    KVK_MLA_ROPE * 2);
					end = row + KVK_MLA_WIDTH;
				}
		}
		assert_canary((const unsigned char *)end, (memory + (PAGES + 2) * PAGE - end) * 2);
		free(memory);
	}
	free(latent);
	free(rope);
}

static void mla_rows_are_converted_between_dtypes(void **state)
{
	static const uint32_t dtypes[] = {KVK_BF16, KVK_F16, KVK_F32};
	static const int32_t slots[] = {1};
	float values[KVK_MLA_WIDTH];
	unsigned char src[KVK_MLA_WIDTH * 4];
	unsigned char kv[2 * KVK_MLA_WIDTH * 4];

	(void)state;
	for (int from = 0; from < 3; from++)
		for (int to = 0; to < 3; to++) {
			const struct kvk_mla_write_params p = {
				.size = sizeof(p),
				.tokens = 1,
				.page_tokens = 1,
				.pages = 2,
				.slot_bytes = 4,
				.src_dtype = dtypes[from],
				.kv_dtype = dtypes[to],
				.latent = src,
				.rope = src + KVK_MLA_LATENT * kvk_dtype_bytes(dtypes[from]),
				.slots = slots,
				.kv = kv};
			unsigned char want[4];

			for (int i = 0; i < KVK_MLA_WIDTH; i++)
				values[i] = kvt_uniform(&rng) * 8;
			for (int i = 0; i < KVK_MLA_WIDTH; i++)
				kvk_store(src, dtypes[from], i, values[i]);
			assert_int_equal(kvk_mla_write(&p), 0);
			for (int i = 0; i < KVK_MLA_WIDTH; i++) {
				size_t bytes = kvk_dtype_bytes(dtypes[to]);

				kvk_store(want, dtypes[to], 0, kvk_load(src, dtypes[from], i));
				assert_memory_equal(kv + (KVK_MLA_WIDTH + i) * bytes, want, bytes);
			}
		}
}

/* Writes one f32 row as FP8 and returns it. */
static void write_fp8(const float latent[KVK_MLA_LATENT], const float rope[KVK_MLA_ROPE],
		      unsigned char row[KVK_MLA_FP8_ROW_BYTES])
{
	static const int64_t slots[] = {0};
	const struct kvk_mla_write_params p = {.size = sizeof(p),
					       .tokens = 1,
					       .page_tokens = 1,
					       .pages = 1,
					       .slot_bytes = 8,
					       .src_dtype = KVK_F32,
					       .kv_dtype = KVK_MLA_FP8,
					       .latent = latent,
					       .rope = rope,
					       .slots = slots,
					       .kv = row};

	assert_int_equal(kvk_mla_write(&p), 0);
}

static float scale_of(const unsigned char *row, int tile)
{
	return kvk_load(row + KVK_MLA_LATENT, KVK_F32, tile);
}

static void fp8_scales_are_the_powers_of_two_specified(void **state)
{
	static const struct {
		float amax;
		float scale;
	} golden[] = {{0, 0x1p-13f},   {0.0448f, 0x1p-13f}, {0.1f, 0x1p-12f},
		      {1, 0x1p-8f},    {3.7f, 0x1p-6f},     {448, 1},
		      {500, 2},        {448.00003f, 2},     {224, 0.5f},
		      {1e30f, 0x1p91f}};
	float latent[KVK_MLA_LATENT] = {0};
	float rope[KVK_MLA_ROPE] = {0};
	unsigned char row[KVK_MLA_FP8_ROW_BYTES];

	(void)state;
	for (size_t i = 0; i < sizeof(golden) / sizeof(*golden); i++) {
		latent[130] = -golden[i].amax; /* in the second tile only */
		write_fp8(latent, rope, row);
		assert_true(scale_of(row, 0) == 0x1p-13f && scale_of(row, 2) == 0x1p-13f);
		if (scale_of(row, 1) != golden[i].scale)
			fail_msg("amax %g: scale %g", golden[i].amax, scale_of(row, 1));
		assert_int_equal(row[130], kvk_f32_to_e4m3(-golden[i].amax / golden[i].scale));
	}
}

static void fp8_rows_hold_nearest_codes_and_bf16_rope(void **state)
{
	float latent[KVK_MLA_LATENT];
	float rope[KVK_MLA_ROPE];
	unsigned char row[KVK_MLA_FP8_ROW_BYTES];

	(void)state;
	for (int i = 0; i < KVK_MLA_LATENT; i++)
		latent[i] = kvt_uniform(&rng) * (1 + (float)i);
	for (int i = 0; i < KVK_MLA_ROPE; i++)
		rope[i] = kvt_uniform(&rng);
	write_fp8(latent, rope, row);
	for (int i = 0; i < KVK_MLA_LATENT; i++) {
		float scale = scale_of(row, i / 128);
		float value = kvk_e4m3_to_f32(row[i]) * scale;

		/* Half a step of 3 mantissa bits, or of the smallest subnormal. */
		assert_true(fabsf(value - latent[i]) <= fmaxf(fabsf(latent[i]) / 16, scale * 0x1p-10f));
	}
	for (int i = 0; i < KVK_MLA_ROPE; i++)
		assert_int_equal(kvk_f32_bits(kvk_load(row + 528, KVK_BF16, i)) >> 16,
				 kvk_f32_to_bf16(rope[i]));
}

static void fp8_infinities_saturate_and_nan_stays(void **state)
{
	float latent[KVK_MLA_LATENT] = {[0] = INFINITY, [1] = 1, [2] = -INFINITY, [3] = NAN};
	float rope[KVK_MLA_ROPE] = {0};
	unsigned char row[KVK_MLA_FP8_ROW_BYTES];

	(void)state;
	write_fp8(latent, rope, row);
	assert_true(scale_of(row, 0) == 0x1p-8f);
	assert_int_equal(row[0], 0x7e);
	assert_int_equal(row[1], 0x78); /* 256 */
	assert_int_equal(row[2], 0xfe);
	assert_int_equal(row[3], 0x7f);
}

static void mla_write_refuses_a_slot_past_the_cache_before_writing(void **state)
{
	static const int64_t slots[] = {0, SLOTS};
	uint16_t latent[2 * KVK_MLA_LATENT] = {0};
	uint16_t rope[2 * KVK_MLA_ROPE] = {0};
	uint16_t *kv = kvt_poison(SLOTS * KVK_MLA_WIDTH, 2);
	const struct kvk_mla_write_params p = {.size = sizeof(p),
					       .tokens = 2,
					       .page_tokens = PAGE_TOKENS,
					       .pages = PAGES,
					       .slot_bytes = 8,
					       .src_dtype = KVK_F16,
					       .kv_dtype = KVK_F16,
					       .latent = latent,
					       .rope = rope,
					       .slots = slots,
					       .kv = kv};

	(void)state;
	for (int v = 0; v < 2; v++)
		assert_int_equal(mla_writes[v](&p), -ERANGE);
	assert_canary((const unsigned char *)kv, SLOTS * KVK_MLA_WIDTH * 2);
	free(kv);
}

/* One byte per position says which element may be there; strides as NHD or HND. */
enum { KV_TOKENS = 6, HEADS = 2, DIM = 5, KV_PAGE = PAGE_TOKENS * HEADS * DIM, KV_CACHE = PAGES * KV_PAGE };

static void check_lane(const uint16_t *cache, const uint16_t *src, const int32_t *slots, int64_t stride_token,
		       int64_t stride_head)
{
	uint16_t want[KV_CACHE];

	memset(want, 0xff, sizeof(want));
	for (int t = 0; t < KV_TOKENS; t++)
		for (int h = 0; slots[t] >= 0 && h < HEADS; h++)
			memcpy(want + slots[t] / PAGE_TOKENS * KV_PAGE +
				       slots[t] % PAGE_TOKENS * stride_token + h * stride_head,
			       src + (t * HEADS + h) * DIM, DIM * 2);
	assert_memory_equal(cache, want, sizeof(want));
}

static void kv_heads_land_in_their_slots_and_nowhere_else(void **state)
{
	static const int32_t slots[KV_TOKENS] = {-1, 3, 11, -7, 0, -1};
	uint16_t k[KV_TOKENS * HEADS * DIM];
	uint16_t v[KV_TOKENS * HEADS * DIM];
	uint16_t k_cache[KV_CACHE];
	uint16_t v_cache[KV_CACHE];

	(void)state;
	for (int i = 0; i < KV_TOKENS * HEADS * DIM; i++) {
		k[i] = (uint16_t)kvt_rng_next(&rng);
		v[i] = (uint16_t)kvt_rng_next(&rng);
	}
	for (int version = 0; version < 2; version++)
		for (int hnd = 0; hnd < 2; hnd++) {
			const int64_t token = hnd ? DIM : HEADS * DIM;
			const int64_t head = hnd ? PAGE_TOKENS * DIM : DIM;
			const struct kvk_kv_write_params p = {.size = sizeof(p),
							      .tokens = KV_TOKENS,
							      .heads = HEADS,
							      .head_dim = DIM,
							      .page_tokens = PAGE_TOKENS,
							      .pages = PAGES,
							      .slot_bytes = 4,
							      .src_dtype = KVK_BF16,
							      .cache_dtype = KVK_BF16,
							      .k = k,
							      .v = v,
							      .slots = slots,
							      .k_cache = k_cache,
							      .v_cache = v_cache,
							      .k_cache_stride_page = KV_PAGE,
							      .k_cache_stride_token = token,
							      .k_cache_stride_head = head,
							      .v_cache_stride_page = KV_PAGE,
							      .v_cache_stride_token = token,
							      .v_cache_stride_head = head};

			memset(k_cache, 0xff, sizeof(k_cache));
			memset(v_cache, 0xff, sizeof(v_cache));
			assert_int_equal(kv_writes[version](&p), 0);
			check_lane(k_cache, k, slots, token, head);
			check_lane(v_cache, v, slots, token, head);
		}
}

/* The third lane: one head, no V, cast to e4m3 without a scale. */
static void index_k_is_written_alone_and_saturates(void **state)
{
	static const float src[] = {1, -1000, 448, 0.0625f, 3, 1.0625f};
	static const unsigned char want[] = {0x38, 0xfe, 0x7e, 0x18, 0x44, 0x38};
	static const int64_t slots[] = {2, -1, 0};
	unsigned char cache[4 * 2];
	const struct kvk_kv_write_params p = {.size = sizeof(p),
					      .tokens = 3,
					      .heads = 1,
					      .head_dim = 2,
					      .page_tokens = 2,
					      .pages = 2,
					      .slot_bytes = 8,
					      .src_dtype = KVK_F32,
					      .cache_dtype = KVK_E4M3,
					      .k = src,
					      .slots = slots,
					      .k_cache = cache};

	(void)state;
	memset(cache, 0xff, sizeof(cache));
	assert_int_equal(kvk_kv_write(&p), 0);
	assert_memory_equal(cache, want + 4, 2);
	assert_canary(cache + 2, 2);
	assert_memory_equal(cache + 4, want, 2);
	assert_canary(cache + 6, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(mla_rows_land_in_their_slots_and_nowhere_else),
		cmocka_unit_test(mla_rows_are_converted_between_dtypes),
		cmocka_unit_test(fp8_scales_are_the_powers_of_two_specified),
		cmocka_unit_test(fp8_rows_hold_nearest_codes_and_bf16_rope),
		cmocka_unit_test(fp8_infinities_saturate_and_nan_stays),
		cmocka_unit_test(mla_write_refuses_a_slot_past_the_cache_before_writing),
		cmocka_unit_test(kv_heads_land_in_their_slots_and_nowhere_else),
		cmocka_unit_test(index_k_is_written_alone_and_saturates),
	};

	kvt_watchdog(60);
	rng.state = kvt_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
