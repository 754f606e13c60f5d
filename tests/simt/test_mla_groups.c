/* SPDX-License-Identifier: Apache-2.0 */
/* MLA decode by warpgroups (KVK_CUDA_WARPGROUPS) against the reference. Skipped on a GPU that has none. */
#include "compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CASES (KVT_INSTRUMENTED ? 6 : 30)

static struct kvt_rng rng;

static void open_device(struct simt_device *device, int32_t units, int32_t split_keys, uint64_t seed)
{
	simt_device_open(device, units, split_keys, seed);
	device->device.flags = simt_device_flags();
}

static void one_random_case(void)
{
	const int32_t batch = kvt_between(&rng, 1, 3);
	const int32_t page = PICK(&rng, 64, 128, 16, 7), heads = PICK(&rng, 20, 33, 64, 72, 128, 130);
	const int32_t s_q = heads == 20 ? 2 : heads > 64 ? 1 : kvt_between(&rng, 1, 3);
	const uint32_t dtype = (uint32_t)PICK(&rng, KVK_BF16, KVK_F16);
	struct simt_device device;
	struct kvt_mla mla;
	int32_t lens[3];

	for (int32_t i = 0; i < batch; i++)
		lens[i] = PICK(&rng, 0, 1, 33, 63, 64, 65, 150, 201);
	kvt_mla_open(&mla, &rng, lens, batch, s_q, heads, page, dtype);
	mla.params.flags = kvt_between(&rng, 0, 1) ? KVK_CAUSAL : 0;
	mla.params.sink = kvt_between(&rng, 0, 1) ? mla.sink : NULL;
	open_device(&device, kvt_between(&rng, 1, 6), PICK(&rng, 0, 64, 128), kvt_rng_next(&rng) % 64);
	print_message(
		"batch %d lens %d.. page %d heads %d s_q %d dtype %u flags %u units %d split %d seed %d\n",
		batch, lens[0], page, heads, s_q, dtype, mla.params.flags, device.device.units,
		device.device.split_keys, (int)device.seed);
	simt_check_mla_dense(&mla, &device);
	kvt_mla_close(&mla);
}

static void mla_agrees_with_the_reference(void **state)
{
	(void)state;
	for (int i = 0; i < CASES; i++)
		one_random_case();
}

/* Otherwise every test here would pass by mma. */
static void mla_runs_by_groups_where_it_can(void **state)
{
	const int32_t lens[] = {70};
	struct simt_device groups, plain;
	struct kvt_mla mla;
	float *first;

	(void)state;
	kvt_mla_open(&mla, &rng, lens, 1, 1, 64, 64, KVK_BF16);
	first = kvt_poison(mla.out_count, sizeof(float));
	open_device(&groups, 1, 0, 0);
	simt_device_open(&plain, 1, 0, 0);
	assert_int_equal(simt_mla_dense(&plain, &mla.params), 0);
	memcpy(first, mla.out, (size_t)mla.out_count * sizeof(float));
	assert_int_equal(simt_mla_dense(&groups, &mla.params), 0);
	/* 32 keys at a time there, 64 here: the sums' order differs. */
	assert_int_not_equal(memcmp(first, mla.out, (size_t)mla.out_count * sizeof(float)), 0);
	free(first);
	kvt_mla_close(&mla);
}

static void mla_gives_the_same_bits_in_every_schedule_and_batch(void **state)
{
	const int32_t lens[] = {150, 0, 65};
	const int64_t row = 40 * KVK_MLA_LATENT;
	struct simt_device device;
	struct kvk_mla_dense_params p;
	struct kvt_mla mla;
	float *first;

	(void)state;
	kvt_mla_open(&mla, &rng, lens, 3, 1, 40, 64, KVK_BF16);
	first = kvt_poison(mla.out_count, sizeof(float));
	for (uint64_t seed = 0; seed < 6; seed++) {
		open_device(&device, 4, 64, seed);
		memset(mla.out, 0xff, (size_t)mla.out_count * sizeof(float));
		assert_int_equal(simt_mla_dense(&device, &mla.params), 0);
		if (!seed)
			memcpy(first, mla.out, (size_t)mla.out_count * sizeof(float));
		assert_memory_equal(first, mla.out, (size_t)mla.out_count * sizeof(float));
	}
	p = mla.params;
	p.batch = 1;
	p.q = (const uint16_t *)p.q + 2 * 40 * KVK_MLA_WIDTH;
	p.block_table += 2 * mla.paged.width;
	p.lens += 2;
	p.lse = NULL;
	open_device(&device, 2, 64, 9);
	assert_int_equal(simt_mla_dense(&device, &p), 0); /* into the first row of mla.out */
	assert_memory_equal(first + 2 * row, mla.out, (size_t)row * sizeof(float));
	free(first);
	kvt_mla_close(&mla);
}

/* The newest key is NaN: only the last query sees it, and only its rows may turn NaN. */
static void keys_a_query_cannot_see_may_hold_nan(void **state)
{
	const int32_t lens[] = {66};
	const int64_t query = 40 * KVK_MLA_LATENT;
	struct simt_device device;
	struct kvt_mla mla;

	(void)state;
	kvt_mla_open(&mla, &rng, lens, 1, 2, 40, 64, KVK_BF16);
	mla.params.flags = KVK_CAUSAL;
	memset((uint16_t *)mla.kv + kvt_paged_offset(&mla.paged, 0, 65, 64 * KVK_MLA_WIDTH, KVK_MLA_WIDTH),
	       0xff, 2 * KVK_MLA_WIDTH);
	open_device(&device, 2, 0, 1);
	assert_int_equal(simt_mla_dense(&device, &mla.params), 0);
	for (int64_t i = 0; i < query; i++) {
		assert_true(isfinite(mla.out[i]));
		assert_true(isnan(mla.out[query + i]));
	}
	kvt_mla_close(&mla);
}

static kvk_cuda_launch_fn launch_plainly;
static int boxed_launches;

static int count_boxed(void *context, const struct kvk_cuda_launch *launch)
{
	boxed_launches += launch->tensor;
	return launch_plainly(context, launch);
}

/* Rows of a pool's page: `layers` of them side by side, of which the test's is the last. */
static void spread_pages(struct kvt_mla *mla, int32_t layers, uint16_t **out)
{
	const int64_t page = (int64_t)mla->params.page_tokens * KVK_MLA_WIDTH;
	uint16_t *spread = kvt_poison(mla->params.pages * page * layers, sizeof(*spread));

	for (int32_t i = 0; i < mla->params.pages; i++)
		memcpy(spread + (i * layers + layers - 1) * page, (const uint16_t *)mla->params.kv + i * page,
		       (size_t)page * sizeof(*spread));
	mla->params.kv = spread + (layers - 1) * page;
	mla->params.kv_stride_page = layers * page;
	*out = spread;
}

/*
 * Pages of whole tiles come in boxes, in either layout of a pool, others by pieces. The second sequence has no keys in
 * some parts: without the fence at the end of kvk_tile_attend() the next boxes are refused.
 */
static void one_layout(int32_t page, int32_t layers)
{
	const int32_t lens[] = {64, 200, 0, 129};
	struct simt_device device;
	struct kvt_mla mla;
	uint16_t *spread;

	kvt_mla_open(&mla, &rng, lens, 4, 1, 64, page, KVK_BF16);
	spread_pages(&mla, layers, &spread);
	open_device(&device, 3, 0, 5 + (uint64_t)layers);
	launch_plainly = device.device.launch;
	device.device.launch = count_boxed;
	boxed_launches = 0;
	simt_check_mla_dense(&mla, &device);
	assert_int_equal(boxed_launches, page % 64 == 0);
	free(spread);
	kvt_mla_close(&mla);
}

static void whole_tiles_come_in_boxes(void **state)
{
	static const int32_t pages[] = {64, 128, 192, 16, 96};

	(void)state;
	for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++) {
		one_layout(pages[i], 1);
		one_layout(pages[i], 3);
	}
}

static void bad_ids_and_lengths_are_harmless_in_pages_of(int32_t page)
{
	const int32_t lens[] = {130, 105};
	struct simt_device device;
	struct kvt_mla mla;

	kvt_mla_open(&mla, &rng, lens, 2, 1, 64, page, KVK_F16);
	open_device(&device, 2, 0, 2);
	mla.paged.table[1] = -1;
	mla.paged.table[2] = 2147483647;
	mla.paged.table[mla.paged.width] = mla.paged.pages;
	mla.paged.lens[0] = -2147483647;
	mla.paged.lens[1] = 2147483647;
	assert_int_equal(simt_mla_dense(&device, &mla.params), 0);
	for (int64_t i = 0; i < mla.out_count; i++)
		assert_true(isfinite(mla.out[i]));
	kvt_mla_close(&mla);
}

static void bad_ids_and_lengths_are_harmless(void **state)
{
	(void)state;
	bad_ids_and_lengths_are_harmless_in_pages_of(7);
	bad_ids_and_lengths_are_harmless_in_pages_of(64);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(mla_runs_by_groups_where_it_can),
		cmocka_unit_test(mla_agrees_with_the_reference),
		cmocka_unit_test(mla_gives_the_same_bits_in_every_schedule_and_batch),
		cmocka_unit_test(keys_a_query_cannot_see_may_hold_nan),
		cmocka_unit_test(whole_tiles_come_in_boxes),
		cmocka_unit_test(bad_ids_and_lengths_are_harmless),
	};

	if (!(simt_device_flags() & KVK_CUDA_WARPGROUPS)) {
		fprintf(stderr, "the device has no warpgroups\n");
		return KVT_SKIP;
	}
	kvt_watchdog(580);
	rng.state = kvt_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
