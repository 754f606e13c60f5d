/* SPDX-License-Identifier: Apache-2.0 */
/* Grouped attention and MSA on the device against the reference. */
#include "compare.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CASES (KVT_INSTRUMENTED ? 8 : 30)

static struct kvt_rng rng;

static void open_random(struct kvt_gqa *gqa, int32_t page)
{
	const int32_t batch = kvt_between(&rng, 1, 3);
	const int32_t kv_heads = PICK(&rng, 1, 2, 4);
	const int32_t group = PICK(&rng, 1, 4, 16, 20);
	const int32_t dim = PICK(&rng, 64, 128);
	const enum kvt_layout layout = (enum kvt_layout)kvt_between(&rng, 0, KVT_LAYOUTS - 1);
	int32_t lens[3];

	for (int32_t i = 0; i < batch; i++)
		lens[i] = PICK(&rng, 0, 1, 63, 64, 65, 130, 290);
	kvt_gqa_open(gqa, &rng, lens, batch, kvt_between(&rng, 1, 2), kv_heads, group, dim, page,
		     (uint32_t)PICK(&rng, KVK_BF16, KVK_F16), layout);
	print_message("batch %d lens %d.. kv_heads %d group %d dim %d page %d layout %d dtype %u s_q %d\n",
		      batch, lens[0], kv_heads, group, dim, page, (int)layout, gqa->params.kv_dtype,
		      gqa->params.s_q);
}

/* Compares the fixture's outputs with `want` and `want_lse`, and frees those. */
static void compare(const struct kvt_gqa *gqa, float *want, float *want_lse)
{
	ASSERT_MEASURE(measure_rows(gqa->out, want, gqa->lse_count, gqa->params.head_dim,
				    simt_row_limit(gqa->params.kv_dtype)));
	ASSERT_MEASURE(measure_values(gqa->lse, want_lse, gqa->lse_count));
	free(want);
	free(want_lse);
}

static void dense_agrees_with_the_reference(void **state)
{
	(void)state;
	for (int i = 0; i < CASES; i++) {
		struct kvk_gqa_dense_params p;
		struct simt_device device;
		struct kvt_gqa gqa;

		open_random(&gqa, PICK(&rng, 16, 64, 128));
		gqa.params.flags = kvt_between(&rng, 0, 1) ? KVK_CAUSAL : 0;
		simt_device_open(&device, kvt_between(&rng, 1, 9), PICK(&rng, 0, 64, 128),
				 kvt_rng_next(&rng) % 64);
		assert_int_equal(simt_gqa_dense(&device, &gqa.params), 0);
		p = gqa.params;
		p.out = kvt_poison(gqa.out_count, sizeof(float));
		p.lse = kvt_poison(gqa.lse_count, sizeof(float));
		assert_int_equal(kvk_gqa_dense_ref(&p), 0);
		compare(&gqa, p.out, p.lse);
		kvt_gqa_close(&gqa);
	}
}

static void sparse_agrees_with_the_reference(void **state)
{
	(void)state;
	for (int i = 0; i < CASES; i++) {
		const int32_t topk = PICK(&rng, 1, 4, 7), block = PICK(&rng, 32, 128);
		struct kvk_msa_sparse_params p;
		struct simt_device device;
		struct kvt_gqa gqa;
		int32_t *selected;
		int64_t entries;

		open_random(&gqa, PICK(&rng, 16, 128));
		entries = (int64_t)gqa.params.kv_heads * gqa.params.rows * topk;
		selected = kvt_poison(entries, sizeof(int32_t));
		for (int64_t n = 0; n < entries; n++)
			selected[n] = kvt_between(&rng, 0, 4) ? kvt_between(&rng, -1, 300 / block)
							      : PICK(&rng, INT32_MIN, INT32_MAX, -7);
		p = kvt_gqa_sparse(&gqa.params, selected, topk, block);
		simt_device_open(&device, kvt_between(&rng, 1, 9), PICK(&rng, 0, 64),
				 kvt_rng_next(&rng) % 64);
		assert_int_equal(simt_msa_sparse(&device, &p), 0);
		p.out = kvt_poison(gqa.out_count, sizeof(float));
		p.lse = kvt_poison(gqa.lse_count, sizeof(float));
		assert_int_equal(kvk_msa_sparse_ref(&p), 0);
		compare(&gqa, p.out, p.lse);
		free(selected);
		kvt_gqa_close(&gqa);
	}
}

/* Rows of uneven sequences, padding before and behind, one sequence without a row. */
static void rows_by_offsets_agree_with_the_reference(void **state)
{
	const int32_t lens[] = {130, 5, 200};
	const int32_t cu_q[] = {1, 3, 3, 4};
	struct simt_device device;
	struct kvk_gqa_dense_params p;
	struct kvt_gqa gqa;

	(void)state;
	kvt_gqa_open(&gqa, &rng, lens, 3, 2, 2, 16, 128, 64, KVK_BF16, KVT_NHD);
	gqa.params.s_q = 0;
	gqa.params.cu_q = cu_q;
	gqa.params.flags = KVK_CAUSAL;
	simt_device_open(&device, 4, 64, 5);
	assert_int_equal(simt_gqa_dense(&device, &gqa.params), 0);
	p = gqa.params;
	p.out = kvt_poison(gqa.out_count, sizeof(float));
	p.lse = kvt_poison(gqa.lse_count, sizeof(float));
	assert_int_equal(kvk_gqa_dense_ref(&p), 0);
	compare(&gqa, p.out, p.lse);
	kvt_gqa_close(&gqa);
}

static void schedules_and_neighbours_change_no_bit(void **state)
{
	const int32_t lens[] = {290, 70, 0};
	struct kvt_gqa gqa;
	float *first;

	(void)state;
	kvt_gqa_open(&gqa, &rng, lens, 3, 1, 2, 16, 128, 64, KVK_BF16, KVT_HND);
	first = kvt_poison(gqa.out_count, sizeof(float));
	for (uint64_t seed = 0; seed < 5; seed++) {
		struct simt_device device;
		struct kvk_gqa_dense_params p = gqa.params;

		simt_device_open(&device, 4, 64, seed);
		memset(gqa.out, 0xff, (size_t)gqa.out_count * sizeof(float));
		if (seed == 4) /* without the others */
			p.batch = p.rows = 1;
		assert_int_equal(simt_gqa_dense(&device, &p), 0);
		if (!seed)
			memcpy(first, gqa.out, (size_t)gqa.out_count * sizeof(float));
		assert_memory_equal(first, gqa.out,
				    (size_t)(gqa.out_count / (seed == 4 ? 3 : 1)) * sizeof(float));
	}
	free(first);
	kvt_gqa_close(&gqa);
}

/* ------------------------------------------------------------------ MSA */

static void one_scores_case(uint32_t q_dtype, uint32_t k_dtype, int32_t dim)
{
	const int32_t lens[] = {PICK(&rng, 1, 127, 129), 0, PICK(&rng, 128, 300)};
	const int32_t heads = PICK(&rng, 1, 4, 5), s_q = kvt_between(&rng, 1, 5), rows = 3 * s_q + 1,
		      blocks = 4;
	const int64_t count = (int64_t)heads * rows * blocks;
	struct kvk_msa_scores_params p = {.size = sizeof(p)};
	struct kvt_paged paged;
	struct simt_device device;
	float *score[2];
	int32_t *n_valid[2];
	void *q = kvt_values(&rng, q_dtype, (int64_t)rows * heads * dim, 1), *k;

	kvt_paged_open(&paged, &rng, lens, 3, 128);
	k = kvt_poison((int64_t)paged.pages * 128 * dim, kvk_dtype_bytes(k_dtype));
	for (int32_t r = 0; r < 3; r++)
		for (int32_t j = 0; j < lens[r]; j++)
			kvt_fill(&rng, k, k_dtype, kvt_paged_offset(&paged, r, j, 128 * dim, dim), dim, 1);
	simt_device_open(&device, 3, 0, kvt_rng_next(&rng) % 64);
	for (int i = 0; i < 2; i++) {
		p = (struct kvk_msa_scores_params){.size = sizeof(p),
						   .batch = 3,
						   .s_q = s_q,
						   .rows = rows,
						   .index_heads = heads,
						   .dim = dim,
						   .block_tokens = 128,
						   .blocks = blocks,
						   .page_tokens = 128,
						   .pages = paged.pages,
						   .table_width = paged.width,
						   .q_dtype = q_dtype,
						   .k_dtype = k_dtype,
						   .index_q = q,
						   .index_k = k,
						   .block_table = paged.table,
						   .lens = paged.lens};
		p.score = score[i] = kvt_poison(count, sizeof(float));
		p.n_valid = n_valid[i] = kvt_poison(rows, sizeof(int32_t));
		assert_int_equal(i ? kvk_msa_scores_ref(&p) : kvk_msa_scores_cuda(&device.device, &p), 0);
	}
	ASSERT_MEASURE(measure_values(score[0], score[1], count));
	ASSERT_MEASURE(measure_equal(n_valid[0], n_valid[1], rows));
	for (int i = 0; i < 2; i++) {
		free(score[i]);
		free(n_valid[i]);
	}
	free(q);
	free(k);
	kvt_paged_close(&paged);
}

static void scores_agree_with_the_reference(void **state)
{
	(void)state;
	one_scores_case(KVK_BF16, KVK_BF16, 128);
	one_scores_case(KVK_F16, KVK_F16, 128);
	one_scores_case(KVK_BF16, KVK_E4M3, 128);
	one_scores_case(KVK_F16, KVK_E4M3, 128);
	one_scores_case(KVK_E4M3, KVK_E4M3, 128);
	one_scores_case(KVK_F32, KVK_BF16, 72);
}

static void fill_scores(float *score, int64_t count)
{
	static const float special[] = {NAN, -INFINITY, 0.0f, -0.0f, 1e29f, INFINITY, -1e30f};

	for (int64_t i = 0; i < count; i++)
		score[i] = kvt_between(&rng, 0, 5) ? (float)kvt_between(&rng, -9, 9) * 0.5f
						   : special[kvt_between(&rng, 0, 6)];
}

/* Few different values: ties everywhere. */
static void selection_is_the_references(void **state)
{
	(void)state;
	for (int i = 0; i < 2 * CASES; i++) {
		const int32_t heads = 2, rows = 3, blocks = PICK(&rng, 1, 16, 31, 33, 70),
			      topk = PICK(&rng, 1, 16, 40);
		struct kvk_msa_select_params p = {.size = sizeof(p),
						  .heads = heads,
						  .rows = rows,
						  .blocks = blocks,
						  .topk = topk,
						  .init_blocks = kvt_between(&rng, 0, 2),
						  .local_blocks = kvt_between(&rng, 0, 3)};
		float *score = kvt_poison((int64_t)heads * rows * blocks, sizeof(float));
		const int32_t n_valid[] = {0, kvt_between(&rng, 1, blocks), blocks + 1};
		int32_t *selected[2];
		struct simt_device device;

		fill_scores(score, (int64_t)heads * rows * blocks);
		p.score = score;
		p.n_valid = n_valid;
		simt_device_open(&device, 2, 0, (uint64_t)i);
		for (int n = 0; n < 2; n++) {
			p.selected = selected[n] = kvt_poison((int64_t)heads * rows * topk, sizeof(int32_t));
			assert_int_equal(n ? kvk_msa_select_ref(&p) : kvk_msa_select_cuda(&device.device, &p),
					 0);
		}
		assert_memory_equal(selected[0], selected[1],
				    sizeof(int32_t) * (size_t)(heads * rows * topk));
		free(selected[0]);
		free(selected[1]);
		free(score);
	}
}

static void what_no_kernel_takes_is_refused(void **state)
{
	const int32_t lens[] = {4};
	struct simt_device device;
	struct kvk_msa_sparse_params p;
	struct kvt_gqa gqa;

	(void)state;
	simt_device_open(&device, 2, 0, 0);
	kvt_gqa_open(&gqa, &rng, lens, 1, 1, 1, 4, 96, 16, KVK_BF16, KVT_NHD);
	assert_int_equal(simt_gqa_dense(&device, &gqa.params), -ENOTSUP);
	kvt_gqa_close(&gqa);
	kvt_gqa_open(&gqa, &rng, lens, 1, 1, 1, 4, 64, 16, KVK_F32, KVT_NHD);
	assert_int_equal(simt_gqa_dense(&device, &gqa.params), -ENOTSUP);
	kvt_gqa_close(&gqa);
	kvt_gqa_open(&gqa, &rng, lens, 1, 1, 1, 4, 64, 16, KVK_BF16, KVT_NHD);
	p = kvt_gqa_sparse(&gqa.params, lens, 65, 128);
	assert_int_equal(simt_msa_sparse(&device, &p), -ENOTSUP);
	assert_int_equal(device.launches, 0);
	kvt_gqa_close(&gqa);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(dense_agrees_with_the_reference),
		cmocka_unit_test(sparse_agrees_with_the_reference),
		cmocka_unit_test(rows_by_offsets_agree_with_the_reference),
		cmocka_unit_test(schedules_and_neighbours_change_no_bit),
		cmocka_unit_test(scores_agree_with_the_reference),
		cmocka_unit_test(selection_is_the_references),
		cmocka_unit_test(what_no_kernel_takes_is_refused),
	};

	kvt_watchdog(580);
	rng.state = kvt_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
