/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Block scores, selection and sparse decode beyond the golden files: small cases done by hand, and
 * equivalences.
 */
#include "dtype.h"
#include "fixture.h"
#include "measure.h"
#include "versions.h"

#include <stdlib.h>

static struct kvt_rng rng;

static int (*const selects[])(const struct kvk_msa_select_params *) = {kvk_msa_select_ref, kvk_msa_select};

/* Runs a selection of one row in both versions and compares with `want` [topk]. */
static void expect_selection(const float *score, int32_t blocks, int32_t n_valid, int32_t init, int32_t local,
			     int32_t topk, const int32_t *want)
{
	int32_t got[64];
	const struct kvk_msa_select_params p = {.size = sizeof(p),
						.heads = 1,
						.rows = 1,
						.blocks = blocks,
						.topk = topk,
						.init_blocks = init,
						.local_blocks = local,
						.score = score,
						.n_valid = &n_valid,
						.selected = got};

	for (int v = 0; v < 2; v++) {
		memset(got, 0x55, sizeof(got));
		assert_int_equal(selects[v](&p), 0);
		assert_memory_equal(got, want, (size_t)topk * sizeof(*got));
	}
}

static void selection_takes_forced_and_best_blocks(void **state)
{
	static const float score[] = {5, 1, 9, 2, 7, 3};

	(void)state;
	expect_selection(score, 6, 6, 0, 1, 3, (int32_t[]){2, 4, 5});
	expect_selection(score, 6, 4, 0, 1, 3, (int32_t[]){0, 2, 3});
	expect_selection(score, 6, 6, 1, 1, 3, (int32_t[]){0, 2, 5});
	expect_selection(score, 6, 0, 0, 1, 3, (int32_t[]){-1, -1, -1});
	expect_selection(score, 6, -7, 0, 1, 3, (int32_t[]){-1, -1, -1});
	expect_selection(score, 6, 2, 0, 1, 4, (int32_t[]){0, 1, -1, -1});
	expect_selection(score, 6, 6, 0, 1, 8, (int32_t[]){0, 1, 2, 3, 4, 5, -1, -1});
	expect_selection(score, 3, 3, 3, 1, 2, (int32_t[]){0, 1});
}

/* Ids [a, b) and [c, d), then -1 up to 16. */
static void expect_ranges(int32_t n_valid, int32_t a, int32_t b, int32_t c, int32_t d)
{
	static const float score[65];
	int32_t want[16];
	int32_t n = 0;

	while (a < b)
		want[n++] = a++;
	while (c < d)
		want[n++] = c++;
	while (n < 16)
		want[n++] = -1;
	expect_selection(score, 65, n_valid, 8, 12, 16, want);
}

static void equal_scores_go_to_the_lower_block(void **state)
{
	(void)state;
	expect_ranges(0, 0, 0, 0, 0);
	expect_ranges(8, 0, 8, 0, 0);
	expect_ranges(16, 0, 16, 0, 0);
	expect_ranges(64, 0, 8, 52, 60);
	expect_ranges(65, 0, 8, 53, 61);
}

static void nan_never_displaces_a_block_and_masked_ones_are_never_taken(void **state)
{
	static const float score[] = {NAN, -5, -INFINITY, NAN, -1e29f, 0};

	(void)state;
	expect_selection(score, 6, 6, 0, 0, 3, (int32_t[]){1, 4, 5});
	expect_selection(score, 6, 6, 0, 0, 4, (int32_t[]){0, 1, 4, 5});
	expect_selection(score, 6, 6, 0, 0, 6, (int32_t[]){0, 1, 3, 4, 5, -1});
	expect_selection(score, 6, 3, 0, 1, 2, (int32_t[]){1, 2}); /* the local block, whatever its score */
}

static void more_valid_blocks_than_columns_end_at_the_columns(void **state)
{
	static const float score[] = {4, 3, 2, 1};

	(void)state;
	expect_selection(score, 4, 9, 0, 1, 2, (int32_t[]){0, 1});
	expect_selection(score, 4, 5, 0, 2, 2, (int32_t[]){0, 3});
}

/* The definition, by sorting: (score descending, id ascending), after the forced scores are put in. */
struct ranked {
	float score;
	int32_t id;
};

static int by_rank(const void *left, const void *right)
{
	const struct ranked *a = left;
	const struct ranked *b = right;

	if (a->score != b->score)
		return a->score > b->score ? -1 : 1;
	return a->id - b->id;
}

static int by_id(const void *left, const void *right)
{
	return *(const int32_t *)left - *(const int32_t *)right;
}

static void sorted_selection(const float *score, int32_t n_valid, int32_t topk, int32_t *want)
{
	struct ranked ranked[200];
	int32_t taken = n_valid < topk ? n_valid : topk;

	for (int32_t b = 0; b < n_valid; b++)
		ranked[b] = (struct ranked){b == n_valid - 1 ? 1e29f : b < 2 ? 1e30f : score[b], b};
	qsort(ranked, (size_t)n_valid, sizeof(*ranked), by_rank);
	for (int32_t i = 0; i < taken; i++)
		want[i] = ranked[i].id;
	qsort(want, (size_t)taken, sizeof(*want), by_id);
	for (int32_t i = taken; i < topk; i++)
		want[i] = -1;
}

static void selection_equals_sorting_on_random_scores(void **state)
{
	float score[200];
	int32_t want[20];

	(void)state;
	for (int n = 0; n < 2000; n++) {
		int32_t blocks = kvt_between(&rng, 1, 200);
		int32_t n_valid = kvt_between(&rng, 0, blocks);
		int32_t topk = kvt_between(&rng, 1, 20);

		for (int32_t b = 0; b < blocks; b++)
			score[b] = (float)kvt_between(&rng, -20, 20); /* many ties */
		sorted_selection(score, n_valid, topk, want);
		expect_selection(score, blocks, n_valid, 2, 1, topk, want);
	}
}

/* Index vectors of small whole numbers: every product is exact, so scores must be equal. */
static void scores_are_the_unscaled_maximum_over_visible_keys(void **state)
{
	enum { DIM = 8, BLOCK = 4, Q_LEN = 2, LEN = 10, BLOCKS = 4 };
	static const int32_t lens[] = {LEN, 0};
	static const int32_t cu_q[] = {1, 1 + Q_LEN, 1 + Q_LEN + 1};
	static const uint32_t dtypes[] = {KVK_BF16, KVK_F16, KVK_F32, KVK_E4M3};
	float q[5 * DIM];
	float k[LEN * DIM];
	struct kvt_paged paged;

	(void)state;
	kvt_paged_open(&paged, &rng, lens, 2, 3); /* pages of 3 tokens under blocks of 4 */
	for (int i = 0; i < 5 * DIM; i++)
		q[i] = (float)kvt_between(&rng, -8, 8);
	for (int i = 0; i < LEN * DIM; i++)
		k[i] = (float)kvt_between(&rng, -8, 8);
	for (int d = 0; d < 4; d++) {
		void *index_q = kvt_poison(5 * DIM, kvk_dtype_bytes(dtypes[d]));
		void *index_k = kvt_poison(paged.pages * 3 * DIM, kvk_dtype_bytes(dtypes[d]));
		float score[5 * BLOCKS];
		int32_t n_valid[5];
		const struct kvk_msa_scores_params p = {.size = sizeof(p),
							.batch = 2,
							.rows = 5,
							.index_heads = 1,
							.dim = DIM,
							.block_tokens = BLOCK,
							.blocks = BLOCKS,
							.page_tokens = 3,
							.pages = paged.pages,
							.table_width = paged.width,
							.q_dtype = dtypes[d],
							.k_dtype = dtypes[d],
							.index_q = index_q,
							.index_k = index_k,
							.block_table = paged.table,
							.lens = paged.lens,
							.cu_q = cu_q,
							.score = score,
							.n_valid = n_valid};

		for (int i = 0; i < 5 * DIM; i++)
			kvk_store(index_q, dtypes[d], i, q[i]);
		for (int32_t j = 0; j < LEN; j++)
			for (int i = 0; i < DIM; i++)
				kvk_store(index_k, dtypes[d],
					  kvt_paged_offset(&paged, 0, j, 3 * DIM, DIM) + i, k[j * DIM + i]);
		assert_int_equal(run_msa_scores(&p), 0);
		for (int t = 0; t < 5; t++) {
			const int visible = t == 1 ? LEN - 1 : t == 2 ? LEN : 0;

			assert_int_equal(n_valid[t], (visible + BLOCK - 1) / BLOCK);
			for (int block = 0; block < BLOCKS; block++) {
				float best = -INFINITY;

				for (int j = block * BLOCK; j < visible && j < (block + 1) * BLOCK; j++) {
					float product = 0;

					for (int i = 0; i < DIM; i++)
						product += q[t * DIM + i] * k[j * DIM + i];
					best = fmaxf(best, product);
				}
				assert_true(score[t * BLOCKS + block] == best);
			}
		}
		free(index_q);
		free(index_k);
	}
	kvt_paged_close(&paged);
}

enum { SPARSE_BLOCK = 16, SPARSE_TOPK = 6, KV_HEADS = 2, GROUP = 3, HEAD_DIM = 32, SPARSE_ROWS = 4 };

static struct kvk_msa_sparse_params sparse_params(const struct kvt_gqa *gqa, const int32_t *selected,
						  float *out, float *lse)
{
	const struct kvk_gqa_dense_params *p = &gqa->params;

	return (struct kvk_msa_sparse_params){.size = sizeof(struct kvk_msa_sparse_params),
					      .batch = p->batch,
					      .s_q = p->s_q,
					      .rows = p->rows,
					      .heads = p->heads,
					      .kv_heads = p->kv_heads,
					      .head_dim = p->head_dim,
					      .block_tokens = SPARSE_BLOCK,
					      .topk = SPARSE_TOPK,
					      .page_tokens = p->page_tokens,
					      .pages = p->pages,
					      .table_width = p->table_width,
					      .q_dtype = p->q_dtype,
					      .kv_dtype = p->kv_dtype,
					      .out_dtype = p->out_dtype,
					      .scale = p->scale,
					      .q = p->q,
					      .k = p->k,
					      .v = p->v,
					      .selected = selected,
					      .block_table = p->block_table,
					      .lens = p->lens,
					      .out = out,
					      .lse = lse,
					      .k_stride_page = p->k_stride_page,
					      .k_stride_token = p->k_stride_token,
					      .k_stride_head = p->k_stride_head,
					      .v_stride_page = p->v_stride_page,
					      .v_stride_token = p->v_stride_token,
					      .v_stride_head = p->v_stride_head};
}

/* Selecting every visible block, in any order, twice, with garbage between, is dense attention. */
static void selecting_everything_equals_dense_attention(void **state)
{
	static const int32_t lens[] = {40, 20};
	static const int32_t every[] = {2, 0, 0, 1, 2147483647, -123456};
	int32_t selected[KV_HEADS * SPARSE_ROWS * SPARSE_TOPK];
	struct kvt_gqa gqa;

	(void)state;
	for (int row = 0; row < KV_HEADS * SPARSE_ROWS; row++)
		memcpy(selected + row * SPARSE_TOPK, every, sizeof(every));
	for (int layout = 0; layout < KVT_LAYOUTS; layout++) {
		float out[SPARSE_ROWS * KV_HEADS * GROUP * HEAD_DIM];
		float lse[SPARSE_ROWS * KV_HEADS * GROUP];
		struct kvk_msa_sparse_params p;

		kvt_gqa_open(&gqa, &rng, lens, 2, 2, KV_HEADS, GROUP, HEAD_DIM, SPARSE_BLOCK, KVK_BF16,
			     (enum kvt_layout)layout);
		gqa.params.flags = KVK_CAUSAL;
		p = sparse_params(&gqa, selected, out, lse);
		assert_int_equal(kvk_gqa_dense_ref(&gqa.params), 0);
		assert_int_equal(run_msa_sparse(&p), 0);
		assert_true(measure_rows(out, gqa.out, gqa.lse_count, HEAD_DIM, 1e-6).pass);
		assert_true(measure_values(lse, gqa.lse, gqa.lse_count).pass);
		kvt_gqa_close(&gqa);
	}
}

/*
 * KV head g, row t must read its own list: [kv_heads, rows, topk] where rows == kv_heads == 4 would hide a
 * swap.
 */
static void each_kv_head_and_row_reads_its_own_selection(void **state)
{
	static const int32_t lens[] = {64, 64, 64, 64};
	int32_t selected[4 * 4 * SPARSE_TOPK];
	float out[4 * 4 * HEAD_DIM];
	float lse[4 * 4];
	struct kvk_msa_sparse_params p;
	struct kvt_gqa gqa;

	(void)state;
	memset(selected, 0xff, sizeof(selected));
	for (int g = 0; g < 4; g++)
		for (int t = 0; t < 4; t++)
			selected[(g * 4 + t) * SPARSE_TOPK] = (g + 2 * t + g * t) % 4;
	kvt_gqa_open(&gqa, &rng, lens, 4, 1, 4, 1, HEAD_DIM, SPARSE_BLOCK, KVK_F32, KVT_HND);
	p = sparse_params(&gqa, selected, out, lse);
	assert_int_equal(run_msa_sparse(&p), 0);
	for (int t = 0; t < 4; t++)
		for (int g = 0; g < 4; g++) {
			/* The same as a dense call over that one block. */
			const int32_t block = selected[(g * 4 + t) * SPARSE_TOPK];
			const int32_t one_len = SPARSE_BLOCK;
			struct kvk_gqa_dense_params one = gqa.params;
			float all[4 * HEAD_DIM];

			one.batch = 1;
			one.rows = 1;
			one.q = (const float *)one.q + t * 4 * HEAD_DIM;
			one.block_table = gqa.paged.table + t * gqa.paged.width + block;
			one.table_width = 1;
			one.lens = &one_len;
			one.out = all;
			one.lse = NULL;
			assert_int_equal(kvk_gqa_dense_ref(&one), 0);
			assert_true(measure_rows(out + (t * 4 + g) * HEAD_DIM, all + g * HEAD_DIM, 1,
						 HEAD_DIM, 1e-6)
					    .pass);
		}
	kvt_gqa_close(&gqa);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(selection_takes_forced_and_best_blocks),
		cmocka_unit_test(equal_scores_go_to_the_lower_block),
		cmocka_unit_test(nan_never_displaces_a_block_and_masked_ones_are_never_taken),
		cmocka_unit_test(more_valid_blocks_than_columns_end_at_the_columns),
		cmocka_unit_test(selection_equals_sorting_on_random_scores),
		cmocka_unit_test(scores_are_the_unscaled_maximum_over_visible_keys),
		cmocka_unit_test(selecting_everything_equals_dense_attention),
		cmocka_unit_test(each_kv_head_and_row_reads_its_own_selection),
	};

	kvt_watchdog(60);
	rng.state = kvt_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
