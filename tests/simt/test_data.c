/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What moves bytes on the device: cache writes, bit for bit as the reference; block copies and the gather
 * of rows.
 */
#include "compare.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct kvt_rng rng;

/* -1 first, in the middle and last; others distinct. */
static void fill_slots(int64_t *slots, int32_t tokens, int64_t count)
{
	for (int32_t i = 0; i < tokens; i++)
		slots[i] = i % 3 == 0 ? -1 : (i * 7ll + 3) % count;
}

/* int32 slots, when asked for, in place. */
static void narrow(int64_t *slots, int32_t tokens)
{
	for (int32_t i = 0; i < tokens; i++)
		((int32_t *)slots)[i] = (int32_t)slots[i];
}

static void check_mla_write(uint32_t src, uint32_t dst, int64_t latent_stride, float amplitude,
			    uint32_t slot_bytes)
{
	const int32_t tokens = 11, pages = 4, page = 8;
	const int64_t width = dst == KVK_MLA_FP8 ? KVK_MLA_FP8_ROW_BYTES : KVK_MLA_WIDTH;
	const int64_t elements = pages * page * width;
	const size_t bytes = (size_t)elements * kvk_dtype_bytes(dst);
	void *latent = kvt_values(&rng, src, tokens * latent_stride, amplitude);
	void *rope = kvt_values(&rng, src, tokens * KVK_MLA_ROPE, amplitude);
	int64_t slots[11];
	void *kv[2] = {kvt_poison(elements, kvk_dtype_bytes(dst)),
		       kvt_poison(elements, kvk_dtype_bytes(dst))};
	struct kvk_mla_write_params p = {.size = sizeof(p),
					 .tokens = tokens,
					 .page_tokens = page,
					 .pages = pages,
					 .slot_bytes = slot_bytes,
					 .src_dtype = src,
					 .kv_dtype = dst,
					 .latent = latent,
					 .rope = rope,
					 .slots = slots,
					 .latent_stride = latent_stride};
	struct simt_device device;

	/* A zero tile, infinities and NaN. */
	memset(latent, 0, (size_t)latent_stride * kvk_dtype_bytes(src));
	memset((char *)latent + latent_stride * (int64_t)kvk_dtype_bytes(src), 0x7f, 8);
	memset((char *)rope, 0xff, 8);
	fill_slots(slots, tokens, pages * page);
	if (slot_bytes == 4)
		narrow(slots, tokens);
	simt_device_open(&device, 2, 0, 3);
	p.kv = kv[0];
	assert_int_equal(kvk_mla_write_cuda(&device.device, &p), 0);
	p.kv = kv[1];
	assert_int_equal(kvk_mla_write_ref(&p), 0);
	assert_memory_equal(kv[0], kv[1], bytes);
	free(kv[0]);
	free(kv[1]);
	free(latent);
	free(rope);
}

static void mla_writes_are_the_references_bit_for_bit(void **state)
{
	static const uint32_t dtypes[] = {KVK_BF16, KVK_F16, KVK_F32};

	(void)state;
	for (int s = 0; s < 3; s++) {
		for (int d = 0; d < 3; d++)
			check_mla_write(dtypes[s], dtypes[d], 512, 100, 8);
		check_mla_write(dtypes[s], KVK_MLA_FP8, 512, 1, 8);
		check_mla_write(dtypes[s], KVK_MLA_FP8, 513, 3000, 4);
		check_mla_write(dtypes[s], KVK_MLA_FP8, 520, 1e-4f, 4);
	}
	check_mla_write(KVK_BF16, KVK_BF16, 515, 1, 4);
}

/* amax just at, below and above the powers of two times 448. */
static void fp8_scales_turn_where_the_references_do(void **state)
{
	const int32_t tokens = 3 * 40;
	float *latent = kvt_poison(tokens * 512, sizeof(float));
	float *rope = kvt_values(&rng, KVK_F32, tokens * 64, 1);
	int32_t *slots = kvt_poison(tokens, sizeof(int32_t));
	unsigned char *kv[2] = {kvt_poison(tokens * 656, 1), kvt_poison(tokens * 656, 1)};
	struct kvk_mla_write_params p = {.size = sizeof(p),
					 .tokens = tokens,
					 .page_tokens = 1,
					 .pages = tokens,
					 .slot_bytes = 4,
					 .src_dtype = KVK_F32,
					 .kv_dtype = KVK_MLA_FP8,
					 .latent = latent,
					 .rope = rope,
					 .slots = slots};
	struct simt_device device;

	(void)state;
	for (int32_t t = 0; t < tokens; t++) {
		const float amax = ldexpf(448, t / 3 - 20);

		slots[t] = t;
		for (int32_t i = 0; i < 512; i++)
			latent[t * 512 + i] = kvt_uniform(&rng) * amax;
		for (int32_t tile = 0; tile < 4; tile++)
			latent[t * 512 + tile * 128 + kvt_between(&rng, 0, 127)] =
				t % 3 == 0 ? amax : nextafterf(amax, t % 3 == 1 ? 0 : INFINITY);
	}
	simt_device_open(&device, 2, 0, 0);
	p.kv = kv[0];
	assert_int_equal(kvk_mla_write_cuda(&device.device, &p), 0);
	p.kv = kv[1];
	assert_int_equal(kvk_mla_write_ref(&p), 0);
	assert_memory_equal(kv[0], kv[1], (size_t)tokens * 656);
	free(latent);
	free(rope);
	free(slots);
	free(kv[0]);
	free(kv[1]);
}

static void check_kv_write(uint32_t src, uint32_t dst, int32_t dim, int hnd, int with_v, int64_t gap)
{
	const int32_t tokens = 10, heads = 3, pages = 3, page = 8;
	const int64_t elements = (int64_t)pages * page * heads * dim;
	const int64_t token = (int64_t)heads * dim + gap;
	void *k = kvt_values(&rng, src, tokens * token, 600), *v = kvt_values(&rng, src, tokens * token, 2);
	void *cache[4];
	int64_t slots[10];
	struct kvk_kv_write_params p = {.size = sizeof(p),
					.tokens = tokens,
					.heads = heads,
					.head_dim = dim,
					.page_tokens = page,
					.pages = pages,
					.slot_bytes = 8,
					.src_dtype = src,
					.cache_dtype = dst,
					.k = k,
					.v = with_v ? v : NULL,
					.slots = slots,
					.k_stride_token = token,
					.v_stride_token = token};
	struct simt_device device;

	if (hnd) {
		p.k_cache_stride_token = p.v_cache_stride_token = dim;
		p.k_cache_stride_head = p.v_cache_stride_head = page * dim;
	}
	fill_slots(slots, tokens, pages * page);
	simt_device_open(&device, 2, 0, 5);
	for (int i = 0; i < 4; i++)
		cache[i] = kvt_poison(elements, kvk_dtype_bytes(dst));
	for (int i = 0; i < 2; i++) {
		p.k_cache = cache[2 * i];
		p.v_cache = with_v ? cache[2 * i + 1] : NULL;
		assert_int_equal(i ? kvk_kv_write_ref(&p) : kvk_kv_write_cuda(&device.device, &p), 0);
	}
	for (int i = 0; i < 2; i++)
		assert_memory_equal(cache[i], cache[2 + i], (size_t)elements * kvk_dtype_bytes(dst));
	for (int i = 0; i < 4; i++)
		free(cache[i]);
	free(k);
	free(v);
}

static void kv_writes_are_the_references_bit_for_bit(void **state)
{
	static const uint32_t from[] = {KVK_BF16, KVK_F16, KVK_F32},
			      to[] = {KVK_BF16, KVK_F16, KVK_F32, KVK_E4M3};

	(void)state;
	for (int s = 0; s < 3; s++)
		for (int d = 0; d < 4; d++)
			check_kv_write(from[s], to[d], 16, d % 2, s % 2, 0);
	check_kv_write(KVK_BF16, KVK_BF16, 128, 0, 1, 0);
	check_kv_write(KVK_BF16, KVK_BF16, 128, 1, 1, 8);
	check_kv_write(KVK_BF16, KVK_BF16, 127, 1, 1, 1);
}

/* The host has not looked at the slots. */
static void slots_past_the_cache_are_skipped(void **state)
{
	uint16_t *k = kvt_values(&rng, KVK_BF16, 4 * 8, 1), *cache = kvt_poison(2 * 2 * 8, 2);
	const int64_t slots[] = {4, INT64_MAX, INT64_MIN, 3};
	const struct kvk_kv_write_params p = {.size = sizeof(p),
					      .tokens = 4,
					      .heads = 1,
					      .head_dim = 8,
					      .page_tokens = 2,
					      .pages = 2,
					      .slot_bytes = 8,
					      .src_dtype = KVK_BF16,
					      .cache_dtype = KVK_BF16,
					      .k = k,
					      .slots = slots,
					      .k_cache = cache};
	struct simt_device device;

	(void)state;
	simt_device_open(&device, 2, 0, 0);
	assert_int_equal(kvk_kv_write_cuda(&device.device, &p), 0);
	assert_memory_equal(cache + 3 * 8, k + 3 * 8, 16);
	for (int i = 0; i < 3 * 8; i++)
		assert_int_equal(cache[i], 0xffff);
	free(k);
	free(cache);
}

/* NHD blocks become HND blocks of another pool, in pieces of every width. */
static void check_copy(int64_t dim_bytes, int64_t pad)
{
	const int32_t tokens = 5, heads = 3, blocks = 6;
	const int64_t row = heads * dim_bytes, block = tokens * row + pad;
	const int32_t from_ids[] = {2, -1, 0, 5, 6}, to_ids[] = {1, 2, 4, 3, 0};
	unsigned char *from = kvt_poison(blocks * block, 1), *to = kvt_poison(blocks * block, 1);
	const struct kvk_block_copy_params p = {.size = sizeof(p),
						.blocks = 5,
						.outer = tokens,
						.inner = heads,
						.from_blocks = blocks,
						.to_blocks = blocks,
						.row_bytes = dim_bytes,
						.from = from,
						.to = to,
						.from_ids = from_ids,
						.to_ids = to_ids,
						.from_stride_block = block,
						.to_stride_block = block,
						.from_stride_outer = row,
						.to_stride_outer = dim_bytes,
						.from_stride_inner = dim_bytes,
						.to_stride_inner = tokens * dim_bytes};
	struct simt_device device;

	for (int64_t i = 0; i < blocks * block; i++)
		from[i] = (unsigned char)kvt_between(&rng, 0, 254);
	simt_device_open(&device, 2, 0, 0);
	assert_int_equal(kvk_block_copy_cuda(&device.device, &p), 0);
	for (int i = 0; i < 5; i++)
		for (int32_t t = 0; t < tokens; t++)
			for (int32_t h = 0; h < heads; h++) {
				const bool skipped = from_ids[i] < 0 || from_ids[i] >= blocks;
				const unsigned char *got =
					to + to_ids[i] * block + (h * tokens + t) * dim_bytes;

				if (skipped)
					assert_int_equal(got[0], 0xff);
				else
					assert_memory_equal(
						got, from + from_ids[i] * block + t * row + h * dim_bytes,
						(size_t)dim_bytes);
			}
	free(from);
	free(to);
}

static void blocks_change_their_layout(void **state)
{
	(void)state;
	check_copy(32, 0);
	check_copy(12, 4);
	check_copy(7, 1);
}

static void table_rows_are_gathered(void **state)
{
	const int32_t rows[] = {3, -1, 0, 4, 2}, width = 37;
	int32_t *from = kvt_poison(4 * 40, sizeof(int32_t)), *to = kvt_poison(5 * width, sizeof(int32_t));
	const struct kvk_table_gather_params p = {.size = sizeof(p),
						  .count = 5,
						  .width = width,
						  .from_rows = 4,
						  .fill = 9,
						  .from = from,
						  .rows = rows,
						  .to = to,
						  .from_stride = 40};
	struct simt_device device;

	(void)state;
	for (int32_t i = 0; i < 4 * 40; i++)
		from[i] = i;
	simt_device_open(&device, 2, 0, 0);
	assert_int_equal(kvk_table_gather_cuda(&device.device, &p), 0);
	for (int32_t i = 0; i < 5; i++)
		for (int32_t c = 0; c < width; c++)
			assert_int_equal(to[i * width + c],
					 rows[i] < 0 || rows[i] > 3 ? 9 : rows[i] * 40 + c);
	free(from);
	free(to);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(mla_writes_are_the_references_bit_for_bit),
		cmocka_unit_test(fp8_scales_turn_where_the_references_do),
		cmocka_unit_test(kv_writes_are_the_references_bit_for_bit),
		cmocka_unit_test(slots_past_the_cache_are_skipped),
		cmocka_unit_test(blocks_change_their_layout),
		cmocka_unit_test(table_rows_are_gathered),
	};

	kvt_watchdog(280);
	rng.state = kvt_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
