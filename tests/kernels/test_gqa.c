/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Grouped attention, block scores and selection at every level, against the reference: the edges of tiles,
 * splits, groups and widths, and what must not change a bit.
 */
#include "dtype.h"
#include "fixture.h"
#include "measure.h"
#include "versions.h"

#include <stdlib.h>

#if KVT_INSTRUMENTED
#define WORK 2000 /* (head, key) pairs that a shape may take in the reference */
#else
#define WORK 6000
#endif

static struct kvt_rng rng;

static const int32_t page_sizes[] = {1, 2, 16, 53, 64, 100, 128, 256};
static const uint32_t dtypes[] = {KVK_BF16, KVK_F16, KVK_F32};

/* Threads that take their turns: task i + 1 begins when task i is done. */
static void run_in_turn(void *context, kvk_task_fn task, void *arg)
{
	const struct kvk_threads *threads = context;

	for (uint32_t i = 0; i < threads->count; i++)
		task(arg, i);
}

static void open_threads(struct kvk_threads *threads, uint32_t count)
{
	*threads = (struct kvk_threads){
		.size = sizeof(*threads), .count = count, .context = threads, .run = run_in_turn};
}

/* gqa->out and gqa->lse hold what the reference says. */
static void check_dense(const struct kvt_gqa *gqa)
{
	float *out = kvt_poison(gqa->out_count, sizeof(float));
	float *lse = kvt_poison(gqa->lse_count, sizeof(float));
	struct kvk_gqa_dense_params p = gqa->params;

	p.out = out;
	p.lse = lse;
	for (int v = 1; v < version_count; v++) {
		struct measure rows;

		assert_int_equal(versions[v].gqa_dense(&p), 0);
		rows = measure_rows(out, gqa->out, gqa->lse_count, p.head_dim, 1e-4);
		if (!rows.pass || !measure_values(lse, gqa->lse, gqa->lse_count).pass)
			fail_msg("%s: heads %d/%d, dim %d, s_q %d, page %d, dtype %u, length %d: error %g",
				 versions[v].name, p.heads, p.kv_heads, p.head_dim, p.s_q, p.page_tokens,
				 p.kv_dtype, p.lens[0], rows.error);
	}
	free(out);
	free(lse);
}

static void dense_agrees_at_the_edges_of_groups_widths_and_tiles(void **state)
{
	static const int32_t groups[] = {1, 3, 7, 16, 17, 64};
	static const int32_t dims[] = {64, 80, 128, 192, 512};
	static const int32_t edges[] = {1, 63, 64, 65, 127, 129, 959, 960, 961, 1920, 1985};
	int n = 0;

	(void)state;
	for (int g = 0; g < 6; g++)
		for (int d = 0; d < 5; d++, n++) {
			const int32_t most = WORK / groups[g];
			struct kvt_gqa gqa;
			int32_t lens[2] = {edges[n % 11], 0};

			lens[0] = lens[0] < most ? lens[0] : most - n % 3;
			kvt_gqa_open(&gqa, &rng, lens, 2, 1 + n % 2, 1, groups[g], dims[d], page_sizes[n % 8],
				     dtypes[n % 3], (enum kvt_layout)(n % KVT_LAYOUTS));
			gqa.params.flags = KVK_CAUSAL;
			assert_int_equal(kvk_gqa_dense_ref(&gqa.params), 0);
			check_dense(&gqa);
			kvt_gqa_close(&gqa);
		}
}

static void dense_agrees_over_several_splits(void **state)
{
	static const int32_t lens[] = {2900, 961};
	struct kvt_gqa gqa;

	(void)state;
	kvt_gqa_open(&gqa, &rng, lens, 2, 3, 1, 2, 40, 53, KVK_BF16, KVT_SPLIT);
	gqa.params.flags = KVK_CAUSAL;
	assert_int_equal(kvk_gqa_dense_ref(&gqa.params), 0);
	check_dense(&gqa);
	kvt_gqa_close(&gqa);
}

/* The newest token is NaN in key and value: queries before it must not notice. */
static void a_token_that_a_query_does_not_see_is_not_multiplied(void **state)
{
	enum { LEN = 70, DIM = 64, HEADS = 3, S_Q = 3 };
	static const int32_t lens[] = {LEN};
	float out[S_Q * HEADS * DIM];
	struct kvk_gqa_dense_params p;
	struct kvt_gqa gqa;
	int64_t at;

	(void)state;
	kvt_gqa_open(&gqa, &rng, lens, 1, S_Q, 1, HEADS, DIM, 16, KVK_BF16, KVT_HND);
	p = gqa.params;
	p.flags = KVK_CAUSAL;
	p.out = out;
	for (int v = 1; v < version_count; v++) {
		assert_int_equal(versions[v].gqa_dense(&p), 0);
		memcpy(gqa.out, out, sizeof(out));
		at = kvt_paged_offset(&gqa.paged, 0, LEN - 1, p.k_stride_page, p.k_stride_token);
		for (int i = 0; i < DIM; i++) {
			uint16_t *k =
				(uint16_t *)gqa.cache + ((const uint16_t *)p.k - (uint16_t *)gqa.cache) + at;
			uint16_t *v_row =
				(uint16_t *)gqa.cache + ((const uint16_t *)p.v - (uint16_t *)gqa.cache) + at;

			k[i] ^= 0x7f80;
			v_row[i] ^= 0x7f80;
			k[i] |= i ? 0 : 0x7fff;
			v_row[i] |= i ? 0 : 0x7fff;
		}
		assert_int_equal(versions[v].gqa_dense(&p), 0);
		assert_memory_equal(out, gqa.out, (S_Q - 1) * HEADS * DIM * sizeof(float));
		assert_true(isnan(out[(S_Q - 1) * HEADS * DIM]));
		kvt_fill(&rng, gqa.cache, KVK_BF16, (const uint16_t *)p.k - (uint16_t *)gqa.cache + at, DIM,
			 1);
		kvt_fill(&rng, gqa.cache, KVK_BF16, (const uint16_t *)p.v - (uint16_t *)gqa.cache + at, DIM,
			 1);
	}
	kvt_gqa_close(&gqa);
}

/* Ragged rows, padding, several splits: once alone, then with 2 to 9 threads. */
static void dense_bits_do_not_depend_on_threads(void **state)
{
	static const int32_t lens[] = {1100, 0, 64, 2000};
	static const int32_t cu_q[] = {1, 3, 3, 8, 11};
	struct kvk_threads threads;
	struct kvt_gqa gqa;
	float *out;
	float *lse;

	(void)state;
	kvt_gqa_open(&gqa, &rng, lens, 4, 3, 2, 3, 64, 16, KVK_BF16, KVT_NHD);
	gqa.params.flags = KVK_CAUSAL;
	gqa.params.cu_q = cu_q;
	gqa.params.s_q = 0;
	out = kvt_poison(gqa.out_count, sizeof(float));
	lse = kvt_poison(gqa.lse_count, sizeof(float));
	for (int v = 1; v < version_count; v++) {
		struct kvk_gqa_dense_params p = gqa.params;

		assert_int_equal(versions[v].gqa_dense(&p), 0);
		p.out = out;
		p.lse = lse;
		p.threads = &threads;
		for (uint32_t count = 2; count < 10; count += 3) {
			open_threads(&threads, count);
			assert_int_equal(versions[v].gqa_dense(&p), 0);
			assert_memory_equal(out, gqa.out, (size_t)gqa.out_count * sizeof(float));
			assert_memory_equal(lse, gqa.lse, (size_t)gqa.lse_count * sizeof(float));
		}
	}
	free(out);
	free(lse);
	kvt_gqa_close(&gqa);
}

/* Ids in any order, some twice, some of no block. */
static void random_selection(int32_t *selected, int32_t lists, int32_t topk, int32_t blocks)
{
	static const int32_t garbage[] = {-1, -2147483647, 2147483647, 2147480000};

	for (int32_t i = 0; i < lists * topk; i++)
		selected[i] = kvt_between(&rng, 0, 5) ? kvt_between(&rng, 0, blocks) : garbage[i % 4];
}

static struct kvk_msa_sparse_params sparse_of(const struct kvt_gqa *gqa, int32_t block_tokens, int32_t topk,
					      const int32_t *selected, float *out, float *lse)
{
	struct kvk_msa_sparse_params p = kvt_gqa_sparse(&gqa->params, selected, topk, block_tokens);

	p.out = out;
	p.lse = lse;
	return p;
}

static void check_sparse(const struct kvt_gqa *gqa, struct kvk_msa_sparse_params *p, const float *want,
			 const float *want_lse, float *out, float *lse)
{
	struct kvk_threads threads;

	open_threads(&threads, 3);
	for (int v = 1; v < version_count; v++) {
		p->out = gqa->out;
		p->lse = gqa->lse;
		p->threads = NULL;
		assert_int_equal(versions[v].msa_sparse(p), 0);
		if (!measure_rows(gqa->out, want, gqa->lse_count, p->head_dim, 1e-4).pass ||
		    !measure_values(gqa->lse, want_lse, gqa->lse_count).pass)
			fail_msg("%s: heads %d/%d, dim %d, block %d, page %d, topk %d", versions[v].name,
				 p->heads, p->kv_heads, p->head_dim, p->block_tokens, p->page_tokens,
				 p->topk);
		p->out = out;
		p->lse = lse;
		p->threads = &threads;
		assert_int_equal(versions[v].msa_sparse(p), 0);
		assert_memory_equal(out, gqa->out, (size_t)gqa->out_count * sizeof(float));
		assert_memory_equal(lse, gqa->lse, (size_t)gqa->lse_count * sizeof(float));
	}
}

static void sparse_agrees_on_any_selection_with_any_number_of_threads(void **state)
{
	static const int32_t blocks[] = {1, 5, 16, 64, 128, 700};
	static const int32_t groups[] = {1, 3, 16, 17};
	static const int32_t dims[] = {64, 80, 128, 192};

	(void)state;
	for (int n = 0; n < 16; n++) {
		const int32_t lens[] = {kvt_between(&rng, 1, 900), 0};
		const int32_t topk = kvt_between(&rng, 1, 30);
		const int32_t group = groups[n % 4];
		int32_t *selected = kvt_poison(2 * 4 * topk, sizeof(*selected));
		struct kvk_msa_sparse_params p;
		struct kvt_gqa gqa;
		float *want;
		float *want_lse;

		kvt_gqa_open(&gqa, &rng, lens, 2, 2, 2, group, dims[n / 4], page_sizes[n % 8], dtypes[n % 3],
			     (enum kvt_layout)(n % KVT_LAYOUTS));
		random_selection(selected, 2 * 4, topk, lens[0] / blocks[n % 6] + 2);
		want = kvt_poison(2 * gqa.out_count, sizeof(float));
		want_lse = kvt_poison(2 * gqa.lse_count, sizeof(float));
		p = sparse_of(&gqa, blocks[n % 6], topk, selected, want, want_lse);
		assert_int_equal(kvk_msa_sparse_ref(&p), 0);
		check_sparse(&gqa, &p, want, want_lse, want + gqa.out_count, want_lse + gqa.lse_count);
		free(want);
		free(want_lse);
		free(selected);
		kvt_gqa_close(&gqa);
	}
}

/* A whole call of block scores: index keys of one head in pages. */
struct scoring {
	struct kvt_paged paged;
	struct kvk_msa_scores_params params;
	void *q, *k;
	float *score;
	int32_t *n_valid;
	int64_t count;
};

static void scoring_open(struct scoring *s, const int32_t *lens, int32_t batch, int32_t s_q, int32_t heads,
			 int32_t dim, int32_t block_tokens, int32_t page_tokens, uint32_t dtype)
{
	const int32_t rows = batch * s_q + 1;

	kvt_paged_open(&s->paged, &rng, lens, batch, page_tokens);
	s->q = kvt_values(&rng, KVK_F32, (int64_t)rows * heads * dim, 1);
	s->k = kvt_poison((int64_t)s->paged.pages * page_tokens * dim, kvk_dtype_bytes(dtype));
	for (int32_t r = 0; r < batch; r++)
		for (int32_t j = 0; j < lens[r]; j++)
			kvt_fill(&rng, s->k, dtype,
				 kvt_paged_offset(&s->paged, r, j, (int64_t)page_tokens * dim, dim), dim, 2);
	s->params = (struct kvk_msa_scores_params){.size = sizeof(s->params),
						   .batch = batch,
						   .s_q = s_q,
						   .rows = rows,
						   .index_heads = heads,
						   .dim = dim,
						   .block_tokens = block_tokens,
						   .blocks = 2000 / block_tokens + 3,
						   .page_tokens = page_tokens,
						   .pages = s->paged.pages,
						   .table_width = s->paged.width,
						   .q_dtype = KVK_F32,
						   .k_dtype = dtype,
						   .index_q = s->q,
						   .index_k = s->k,
						   .block_table = s->paged.table,
						   .lens = s->paged.lens};
	s->count = (int64_t)heads * rows * s->params.blocks;
	s->score = kvt_poison(s->count, sizeof(float));
	s->n_valid = kvt_poison(rows, sizeof(int32_t));
	s->params.score = s->score;
	s->params.n_valid = s->n_valid;
}

static void scoring_close(struct scoring *s)
{
	kvt_paged_close(&s->paged);
	free(s->q);
	free(s->k);
	free(s->score);
	free(s->n_valid);
}

static void check_scores(const struct scoring *s)
{
	float *score = kvt_poison(s->count, sizeof(float));
	float *shared = kvt_poison(s->count, sizeof(float));
	int32_t *n_valid = kvt_poison(s->params.rows, sizeof(int32_t));
	struct kvk_msa_scores_params p = s->params;
	struct kvk_threads threads;

	open_threads(&threads, 3);
	p.n_valid = n_valid;
	for (int v = 1; v < version_count; v++) {
		p.score = score;
		p.threads = NULL;
		assert_int_equal(versions[v].msa_scores(&p), 0);
		for (int64_t i = 0; i < s->count; i++)
			if (isnan(s->score[i]) ? !isnan(score[i])
					       : !measure_values(&score[i], &s->score[i], 1).pass)
				fail_msg("%s: heads %d, dim %d, block %d, page %d, dtype %u: %g, not %g",
					 versions[v].name, p.index_heads, p.dim, p.block_tokens,
					 p.page_tokens, p.k_dtype, (double)score[i], (double)s->score[i]);
		assert_memory_equal(n_valid, s->n_valid, (size_t)p.rows * sizeof(int32_t));
		p.score = shared;
		p.threads = &threads;
		assert_int_equal(versions[v].msa_scores(&p), 0);
		assert_memory_equal(shared, score, (size_t)s->count * sizeof(float));
	}
	free(score);
	free(shared);
	free(n_valid);
}

static void scores_agree_on_random_shapes_with_any_number_of_threads(void **state)
{
	static const uint32_t k_dtypes[] = {KVK_BF16, KVK_E4M3, KVK_F16, KVK_F32};
	static const int32_t blocks[] = {1, 7, 32, 33, 128, 600};
	static const int32_t dims[] = {1, 24, 64, 80, 128, 192, 512};
	static const int32_t heads[] = {1, 3, 4, 5, 9};

	(void)state;
	for (int n = 0; n < 35; n++) {
		const int32_t lens[] = {kvt_between(&rng, 1, 600), 0, kvt_between(&rng, 1, 64)};
		struct scoring s;

		scoring_open(&s, lens, 3, 1 + n % 3, heads[n % 5], dims[n % 7], blocks[n % 6],
			     page_sizes[n % 8], k_dtypes[n % 4]);
		assert_int_equal(kvk_msa_scores_ref(&s.params), 0);
		check_scores(&s);
		scoring_close(&s);
	}
}

/* One NaN element in one key: its block alone, for the queries that see it. */
static void a_nan_product_makes_its_block_nan_in_every_dtype(void **state)
{
	static const uint32_t k_dtypes[] = {KVK_BF16, KVK_E4M3, KVK_F16, KVK_F32};
	static const int32_t lens[] = {300};
	struct scoring s;

	(void)state;
	for (int d = 0; d < 4; d++)
		for (int32_t j = 0; j < 300; j += 37) {
			scoring_open(&s, lens, 1, 2, 4, 128, 64, 16, k_dtypes[d]);
			memset((char *)s.k + (kvt_paged_offset(&s.paged, 0, j, 16 * 128, 128) + j % 128) *
						     (int64_t)kvk_dtype_bytes(k_dtypes[d]),
			       0xff, kvk_dtype_bytes(k_dtypes[d]));
			assert_int_equal(kvk_msa_scores_ref(&s.params), 0);
			assert_true(isnan(s.score[s.params.blocks + j / 64]));
			check_scores(&s);
			scoring_close(&s);
		}
}

static void selection_is_the_references_for_any_topk(void **state)
{
	enum { MOST = 300, HEADS = 2, ROWS = 3 };
	static const float special[] = {NAN, -INFINITY, -1e30f, 1e30f, 1e29f, INFINITY, -2e30f};
	float score[HEADS * ROWS * MOST];
	int32_t want[HEADS * ROWS * MOST];
	int32_t got[HEADS * ROWS * MOST];
	int32_t n_valid[ROWS];
	struct kvk_threads threads;

	(void)state;
	open_threads(&threads, 4);
	for (int n = 0; n < 300; n++) {
		struct kvk_msa_select_params p = {.size = sizeof(p),
						  .heads = HEADS,
						  .rows = ROWS,
						  .blocks = kvt_between(&rng, 1, MOST),
						  .topk = kvt_between(&rng, 1, MOST),
						  .init_blocks = kvt_between(&rng, 0, 3),
						  .local_blocks = kvt_between(&rng, 0, 3),
						  .score = score,
						  .n_valid = n_valid,
						  .selected = want,
						  .threads = n % 2 ? &threads : NULL};

		for (int i = 0; i < HEADS * ROWS * MOST; i++)
			score[i] = kvt_between(&rng, 0, 9) ? (float)kvt_between(&rng, -30, 30)
							   : special[kvt_between(&rng, 0, 6)];
		for (int i = 0; i < ROWS; i++)
			n_valid[i] = kvt_between(&rng, -1, p.blocks + 2);
		assert_int_equal(kvk_msa_select_ref(&p), 0);
		p.selected = got;
		assert_int_equal(kvk_msa_select(&p), 0);
		assert_memory_equal(got, want, (size_t)(HEADS * ROWS * p.topk) * sizeof(*got));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(dense_agrees_at_the_edges_of_groups_widths_and_tiles),
		cmocka_unit_test(dense_agrees_over_several_splits),
		cmocka_unit_test(a_token_that_a_query_does_not_see_is_not_multiplied),
		cmocka_unit_test(dense_bits_do_not_depend_on_threads),
		cmocka_unit_test(sparse_agrees_on_any_selection_with_any_number_of_threads),
		cmocka_unit_test(scores_agree_on_random_shapes_with_any_number_of_threads),
		cmocka_unit_test(a_nan_product_makes_its_block_nan_in_every_dtype),
		cmocka_unit_test(selection_is_the_references_for_any_topk),
	};

	kvt_watchdog(300);
	rng.state = kvt_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
