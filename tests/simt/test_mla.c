/* SPDX-License-Identifier: Apache-2.0 */
/* MLA decode on the device against the reference: random shapes, schedules, batches, padding, far pages. */
#include "compare.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define CASES (KVT_INSTRUMENTED ? 8 : 40)

static struct kvt_rng rng;

static void one_random_dense_case(void)
{
	const int32_t batch = kvt_between(&rng, 1, 3);
	const int32_t page = PICK(&rng, 64, 64, 16, 7);
	const int32_t heads = PICK(&rng, 1, 5, 16, 20, 33, 64, 72);
	const int32_t s_q = heads > 40 ? 1 : kvt_between(&rng, 1, 3);
	const uint32_t dtype = (uint32_t)PICK(&rng, KVK_BF16, KVK_F16, KVK_MLA_FP8);
	int32_t lens[3];
	struct simt_device device;
	struct kvt_mla mla;

	for (int32_t i = 0; i < batch; i++)
		lens[i] = PICK(&rng, 0, 1, 31, 33, 64, 150, 201);
	kvt_mla_open(&mla, &rng, lens, batch, s_q, heads, page, dtype);
	mla.params.flags = kvt_between(&rng, 0, 1) ? KVK_CAUSAL : 0;
	mla.params.sink = kvt_between(&rng, 0, 1) ? mla.sink : NULL;
	simt_device_open(&device, kvt_between(&rng, 1, 6), PICK(&rng, 0, 64, 128), kvt_rng_next(&rng) % 64);
	print_message(
		"batch %d lens %d.. page %d heads %d s_q %d dtype %u flags %u units %d split %d seed %d\n",
		batch, lens[0], page, heads, s_q, dtype, mla.params.flags, device.device.units,
		device.device.split_keys, (int)device.seed);
	simt_check_mla_dense(&mla, &device);
	kvt_mla_close(&mla);
}

static void dense_agrees_with_the_reference(void **state)
{
	(void)state;
	for (int i = 0; i < CASES; i++)
		one_random_dense_case();
}

static void dense_gives_the_same_bits_in_every_schedule(void **state)
{
	const int32_t lens[] = {70, 0, 129};
	struct kvt_mla mla;
	float *first;

	(void)state;
	kvt_mla_open(&mla, &rng, lens, 3, 2, 20, 64, KVK_BF16);
	first = kvt_poison(mla.out_count, sizeof(float));
	for (uint64_t seed = 0; seed < 6; seed++) {
		struct simt_device device;

		simt_device_open(&device, 4, 0, seed);
		memset(mla.out, 0xff, (size_t)mla.out_count * sizeof(float));
		assert_int_equal(simt_mla_dense(&device, &mla.params), 0);
		if (!seed)
			memcpy(first, mla.out, (size_t)mla.out_count * sizeof(float));
		assert_memory_equal(first, mla.out, (size_t)mla.out_count * sizeof(float));
	}
	free(first);
	kvt_mla_close(&mla);
}

/* The sequences one by one, each in a batch of its own on another device, with fixed pieces. */
static void a_sequence_has_the_same_bits_alone_and_in_a_batch(void **state)
{
	const int32_t lens[] = {200, 64, 131, 0, 1};
	const int64_t row = 24 * KVK_MLA_LATENT;
	struct simt_device device;
	struct kvt_mla mla;
	float *alone;

	(void)state;
	kvt_mla_open(&mla, &rng, lens, 5, 1, 24, 64, KVK_BF16);
	mla.params.sink = mla.sink;
	simt_device_open(&device, 5, 64, 4);
	assert_int_equal(simt_mla_dense(&device, &mla.params), 0);
	alone = kvt_poison(row, sizeof(float));
	for (int32_t i = 0; i < 5; i++) {
		struct kvk_mla_dense_params p = mla.params;

		p.batch = 1;
		p.q = (const uint16_t *)p.q + i * 24 * KVK_MLA_WIDTH;
		p.block_table += i * mla.paged.width;
		p.lens += i;
		p.out = alone;
		p.lse = NULL;
		simt_device_open(&device, 2, 64, 9);
		assert_int_equal(simt_mla_dense(&device, &p), 0);
		assert_memory_equal(alone, mla.out + i * row, (size_t)row * sizeof(float));
	}
	free(alone);
	kvt_mla_close(&mla);
}

static void fill_row(struct kvt_mla *mla, int32_t r, int32_t j, int byte)
{
	const int64_t at = kvt_paged_offset(&mla->paged, r, j, 64 * KVK_MLA_WIDTH, KVK_MLA_WIDTH);

	memset((uint16_t *)mla->kv + at, byte, 2 * KVK_MLA_WIDTH);
}

/* The newest key is NaN: only the last query sees it, and only its rows may turn NaN. */
static void keys_a_query_cannot_see_may_hold_nan(void **state)
{
	const int32_t lens[] = {66, 2};
	const int64_t query = 16 * KVK_MLA_LATENT;
	struct simt_device device;
	struct kvt_mla mla;

	(void)state;
	kvt_mla_open(&mla, &rng, lens, 2, 2, 16, 64, KVK_BF16);
	mla.params.flags = KVK_CAUSAL;
	fill_row(&mla, 0, 65, 0xff);
	fill_row(&mla, 1, 1, 0xff);
	simt_device_open(&device, 2, 0, 1);
	assert_int_equal(simt_mla_dense(&device, &mla.params), 0);
	for (int32_t r = 0; r < 2; r++)
		for (int64_t i = 0; i < query; i++) {
			assert_true(isfinite(mla.out[2 * r * query + i]));
			assert_true(isnan(mla.out[(2 * r + 1) * query + i]));
		}
	kvt_mla_close(&mla);
}

/*
 * What no check on the host has refused: ids and lengths out of bounds skip keys, and nothing outside is
 * touched.
 */
static void bad_ids_and_lengths_are_harmless(void **state)
{
	const int32_t lens[] = {130, 105}; /* whole pages: what follows them is out of bounds, not NaN */
	struct simt_device device;
	struct kvt_mla mla;

	(void)state;
	kvt_mla_open(&mla, &rng, lens, 2, 1, 8, 7, KVK_BF16);
	simt_device_open(&device, 2, 0, 2);
	mla.paged.table[1] = -1;
	mla.paged.table[2] = 2147483647;
	mla.paged.table[mla.paged.width] = mla.paged.pages;
	mla.paged.lens[0] = -2147483647;
	mla.paged.lens[1] = 2147483647; /* the table's last row, whose end isn't a whole block of the plan */
	assert_int_equal(simt_mla_dense(&device, &mla.params), 0);
	for (int64_t i = 0; i < mla.out_count; i++)
		assert_true(isfinite(mla.out[i]));
	kvt_mla_close(&mla);
}

/* A plan stays for the next layer; one made for other lengths is wrong but harmless. */
static void a_plan_serves_several_layers(void **state)
{
	const int32_t lens[] = {150, 40};
	struct simt_device device;
	struct kvk_mla_dense_params p;
	struct kvt_mla mla;
	size_t bytes;
	int launches;

	(void)state;
	kvt_mla_open(&mla, &rng, lens, 2, 1, 16, 64, KVK_BF16);
	p = mla.params;
	simt_device_open(&device, 3, 0, 0);
	assert_int_equal(kvk_mla_dense_cuda_scratch(&device.device, &p, &bytes), 0);
	p.scratch = simt_scratch(bytes);
	p.scratch_bytes = bytes - 1;
	assert_int_equal(kvk_mla_dense_cuda(&device.device, &p), -ENOSPC);
	p.scratch_bytes = bytes;
	assert_int_equal(kvk_mla_dense_cuda(&device.device, &p), 0);
	launches = device.launches;
	device.device.flags = KVK_CUDA_PLAN_READY;
	memset(mla.out, 0xff, (size_t)mla.out_count * sizeof(float));
	assert_int_equal(kvk_mla_dense_cuda(&device.device, &p), 0);
	assert_int_equal(device.launches, 2 * launches - 1);
	for (int64_t i = 0; i < mla.out_count; i++)
		assert_true(isfinite(mla.out[i]));
	mla.paged.lens[0] = 1;
	mla.paged.lens[1] = 0;
	assert_int_equal(kvk_mla_dense_cuda(&device.device, &p), 0);
	free(p.scratch);
	kvt_mla_close(&mla);
}

/* Pages 1.5 GiB apart, only touched where tokens are. */
static void pages_past_31_bits_are_reached(void **state)
{
	const int64_t stride = 3ll << 28; /* elements */
	const int32_t lens[] = {100};
	struct simt_device device;
	struct kvt_mla mla;
	struct kvk_mla_dense_params p;
	const size_t bytes = (size_t)(3 * stride * 2);
	uint16_t *far =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	float *want;

	(void)state;
	assert_ptr_not_equal(far, MAP_FAILED);
	kvt_mla_open(&mla, &rng, lens, 1, 1, 4, 64, KVK_BF16);
	want = kvt_poison(mla.out_count, sizeof(float));
	simt_device_open(&device, 2, 0, 0);
	assert_int_equal(simt_mla_dense(&device, &mla.params), 0);
	memcpy(want, mla.out, (size_t)mla.out_count * sizeof(float));
	p = mla.params;
	for (int32_t i = 0; i < 2; i++) {
		memcpy(far + (2 - i) * stride, (uint16_t *)mla.kv + mla.paged.table[i] * 64ll * KVK_MLA_WIDTH,
		       64 * 2 * KVK_MLA_WIDTH);
		mla.paged.table[i] = 2 - i;
	}
	p.kv = far;
	p.pages = 3;
	p.kv_stride_page = stride;
	assert_int_equal(simt_mla_dense(&device, &p), 0);
	assert_memory_equal(want, mla.out, (size_t)mla.out_count * sizeof(float));
	free(want);
	munmap(far, bytes);
	kvt_mla_close(&mla);
}

static void what_no_kernel_takes_is_refused(void **state)
{
	const int32_t lens[] = {4};
	struct simt_device device;
	struct kvk_mla_dense_params p;
	struct kvt_mla mla;

	(void)state;
	kvt_mla_open(&mla, &rng, lens, 1, 1, 4, 64, KVK_BF16);
	simt_device_open(&device, 2, 0, 0);
	p = mla.params;
	p.q_dtype = KVK_F32;
	assert_int_equal(simt_mla_dense(&device, &p), -ENOTSUP);
	p = mla.params;
	p.q = (const char *)p.q + 2;
	assert_int_equal(simt_mla_dense(&device, &p), -EINVAL);
	p = mla.params;
	p.kv_stride_token = KVK_MLA_WIDTH + 1;
	p.kv_stride_page = 64 * (KVK_MLA_WIDTH + 8);
	assert_int_equal(simt_mla_dense(&device, &p), -EINVAL);
	device.device.split_keys = 32;
	assert_int_equal(simt_mla_dense(&device, &mla.params), -EINVAL);
	assert_int_equal(device.launches, 0);
	kvt_mla_close(&mla);
}

/* ------------------------------------------------------------------ sparse */

static void fill_list(int32_t *list, int32_t topk, int32_t slots)
{
	for (int32_t i = 0; i < topk; i++)
		list[i] = kvt_between(&rng, 0, 3) ? kvt_between(&rng, 0, slots - 1)
						  : PICK(&rng, -1, -123456, INT32_MIN, INT32_MAX, slots);
}

static void one_random_sparse_case(void)
{
	const int32_t batch = 2, s_q = kvt_between(&rng, 1, 2), topk = PICK(&rng, 1, 40, 64, 130);
	const int32_t heads = PICK(&rng, 3, 16, 64, 70), pages = 3, page = PICK(&rng, 53, 64);
	const uint32_t dtype = (uint32_t)PICK(&rng, KVK_BF16, KVK_F16, KVK_MLA_FP8, KVK_MLA_FP8);
	const int32_t lens[] = {pages * page};
	const int32_t rows = batch * s_q * heads;
	int32_t *indices = kvt_poison((int64_t)batch * s_q * topk, sizeof(int32_t));
	int32_t topk_length[] = {topk, kvt_between(&rng, -1, topk + 3)};
	void *q = kvt_values(&rng, dtype == KVK_F16 ? KVK_F16 : KVK_BF16, (int64_t)rows * KVK_MLA_WIDTH, 1);
	float *out[2], *lse[2];
	struct simt_device device;
	struct kvt_mla mla;

	kvt_mla_open(&mla, &rng, lens, 1, 1, heads, page, dtype);
	/* The list names physical slots: those of the pages that the fixture filled. */
	fill_list(indices, batch * s_q * topk, pages * page);
	for (int32_t i = 0; i < batch * s_q * topk; i++)
		if (indices[i] >= 0 && indices[i] < pages * page)
			indices[i] = mla.paged.table[indices[i] / page] * page + indices[i] % page;
		else if (indices[i] == pages * page)
			indices[i] = mla.paged.pages * page;
	simt_device_open(&device, kvt_between(&rng, 1, 9), PICK(&rng, 0, 64), kvt_rng_next(&rng) % 64);
	print_message("sparse: heads %d topk %d page %d dtype %u split %d seed %d\n", heads, topk, page,
		      dtype, device.device.split_keys, (int)device.seed);
	for (int i = 0; i < 2; i++) {
		struct kvk_mla_sparse_params p = {.size = sizeof(p),
						  .batch = batch,
						  .s_q = s_q,
						  .heads = heads,
						  .topk = topk,
						  .page_tokens = page,
						  .pages = mla.paged.pages,
						  .q_dtype = dtype == KVK_F16 ? KVK_F16 : KVK_BF16,
						  .kv_dtype = dtype,
						  .out_dtype = KVK_F32,
						  .scale = 0.1f,
						  .q = q,
						  .kv = mla.kv,
						  .indices = indices,
						  .topk_length = topk_length,
						  .sink = mla.sink};

		p.out = out[i] = kvt_poison((int64_t)rows * KVK_MLA_LATENT, sizeof(float));
		p.lse = lse[i] = kvt_poison(rows, sizeof(float));
		assert_int_equal(i ? kvk_mla_sparse_ref(&p) : simt_mla_sparse(&device, &p), 0);
	}
	ASSERT_MEASURE(measure_rows(out[0], out[1], rows, KVK_MLA_LATENT, simt_row_limit(dtype)));
	ASSERT_MEASURE(measure_values(lse[0], lse[1], rows));
	for (int i = 0; i < 2; i++) {
		free(out[i]);
		free(lse[i]);
	}
	free(indices);
	free(q);
	kvt_mla_close(&mla);
}

static void sparse_agrees_with_the_reference(void **state)
{
	(void)state;
	for (int i = 0; i < CASES / 2; i++)
		one_random_sparse_case();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(dense_agrees_with_the_reference),
		cmocka_unit_test(dense_gives_the_same_bits_in_every_schedule),
		cmocka_unit_test(a_sequence_has_the_same_bits_alone_and_in_a_batch),
		cmocka_unit_test(keys_a_query_cannot_see_may_hold_nan),
		cmocka_unit_test(bad_ids_and_lengths_are_harmless),
		cmocka_unit_test(a_plan_serves_several_layers),
		cmocka_unit_test(pages_past_31_bits_are_reached),
		cmocka_unit_test(what_no_kernel_takes_is_refused),
		cmocka_unit_test(sparse_agrees_with_the_reference),
	};

	kvt_watchdog(580);
	rng.state = kvt_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
