/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What padding may look like: lengths 0 and below, garbage in every table entry that is not in use, NaN in
 * every byte that no query sees, sinks and logits of any size, and pools whose offsets pass 2^31.
 */
#include "dtype.h"
#include "fixture.h"
#include "measure.h"
#include "versions.h"

#include <stdlib.h>
#include <sys/mman.h>

static struct kvt_rng rng;

static void assert_all(const float *values, int64_t count, float want)
{
	for (int64_t i = 0; i < count; i++)
		assert_true(values[i] == want);
}

/*
 * Tables are NULL-sized: with no length above 0 not one entry exists, so reading one leaves the allocation.
 */
static void empty_sequences_read_no_table_and_give_zero(void **state)
{
	static const int32_t lens[] = {0, -1, -2147483647 - 1};
	struct kvt_mla mla;
	struct kvt_gqa gqa;
	int32_t *table = kvt_poison(0, sizeof(*table));

	(void)state;
	for (int v = 0; v < version_count; v++)
		for (int sink = 0; sink < 2; sink++) {
			kvt_mla_open(&mla, &rng, lens, 3, 2, 3, 64, KVK_BF16);
			mla.params.flags = KVK_CAUSAL;
			mla.params.block_table = table;
			mla.params.table_width = 0;
			mla.params.sink = sink ? mla.sink : NULL;
			assert_int_equal(versions[v].mla_dense(&mla.params), 0);
			assert_all(mla.out, mla.out_count, 0);
			assert_all(mla.lse, mla.lse_count, INFINITY);
			kvt_mla_close(&mla);
		}
	for (int v = 0; v < version_count; v++) {
		kvt_gqa_open(&gqa, &rng, lens, 3, 2, 2, 2, 64, 16, KVK_BF16, KVT_NHD);
		gqa.params.block_table = table;
		gqa.params.table_width = 0;
		assert_int_equal(versions[v].gqa_dense(&gqa.params), 0);
		assert_all(gqa.out, gqa.out_count, 0);
		assert_all(gqa.lse, gqa.lse_count, INFINITY);
		kvt_gqa_close(&gqa);
	}
	free(table);
}

/* Every second sequence is padding; the real ones must not notice. */
static void padding_between_real_rows_changes_nothing(void **state)
{
	static const int32_t lens[] = {0, 130, 0, 65, 0};
	struct kvt_mla mla;

	(void)state;
	kvt_mla_open(&mla, &rng, lens, 5, 1, 4, 64, KVK_BF16);
	for (int v = 0; v < version_count; v++) {
		assert_int_equal(versions[v].mla_dense(&mla.params), 0);
		for (int r = 0; r < 5; r++)
			for (int h = 0; h < 4; h++) {
				float lse = mla.lse[r * 4 + h];

				assert_true(lens[r] ? isfinite(lse) : lse == INFINITY);
				for (int d = 0; d < KVK_MLA_LATENT; d++)
					assert_true(isfinite(mla.out[(r * 4 + h) * KVK_MLA_LATENT + d]));
			}
	}
	kvt_mla_close(&mla);
}

/*
 * A query's own later tokens hold NaN: the earlier query must not multiply them, not even by a weight of 0.
 */
static void keys_a_query_cannot_see_may_hold_nan(void **state)
{
	static const int32_t lens[] = {35, 1, 2};
	struct kvt_mla mla;

	(void)state;
	kvt_mla_open(&mla, &rng, lens, 3, 3, 5, 16, KVK_BF16);
	mla.params.flags = KVK_CAUSAL;
	for (int r = 0; r < 3; r++)
		for (int j = lens[r] - 2; j < lens[r]; j++)
			if (j >= 0)
				memset((uint16_t *)mla.kv + kvt_paged_offset(&mla.paged, r, j,
									     16 * KVK_MLA_WIDTH,
									     KVK_MLA_WIDTH),
				       0xff, KVK_MLA_WIDTH * 2);
	for (int v = 0; v < version_count; v++) {
		assert_int_equal(versions[v].mla_dense(&mla.params), 0);
		for (int h = 0; h < 5; h++) {
			assert_true(isfinite(mla.lse[h * 3]) && isnan(mla.lse[h * 3 + 2]));
			assert_true(isfinite(mla.out[h * KVK_MLA_LATENT]));
		}
		/* Lengths below s_q: the first queries see nothing. */
		for (int h = 0; h < 5; h++) {
			assert_true(mla.lse[15 + h * 3] == INFINITY && mla.lse[15 + h * 3 + 1] == INFINITY);
			assert_true(mla.lse[30 + h * 3] == INFINITY);
		}
		assert_all(mla.out + 15 * KVK_MLA_LATENT, 10 * KVK_MLA_LATENT, 0);
	}
	kvt_mla_close(&mla);
}

/*
 * Keys of equal entries give logits far below any clamp that a kernel might use; softmax must still be
 * uniform.
 */
static void very_negative_logits_are_logits(void **state)
{
	static const int32_t lens[] = {3};
	struct kvt_mla mla;

	(void)state;
	kvt_mla_open(&mla, &rng, lens, 1, 1, 1, 64, KVK_F32);
	for (int d = 0; d < KVK_MLA_WIDTH; d++)
		((float *)mla.q)[d] = d == 575 ? -1024 : 0;
	for (int j = 0; j < 3; j++) {
		float *row = (float *)mla.kv +
			     kvt_paged_offset(&mla.paged, 0, j, 64 * KVK_MLA_WIDTH, KVK_MLA_WIDTH);

		row[575] = 128;
		row[0] = (float)j;
	}
	mla.params.scale = 1;
	for (int v = 0; v < version_count; v++) {
		assert_int_equal(versions[v].mla_dense(&mla.params), 0);
		assert_true(fabsf(mla.out[0] - 1) < 1e-5f);
		assert_true(fabsf(mla.lse[0] - (logf(3) - 131072)) < 1);
	}
	kvt_mla_close(&mla);
}

static void sinks_of_any_size_scale_the_output_and_spare_the_lse(void **state)
{
	static const int32_t lens[] = {50, 0};
	static const float sinks[] = {0, 3, -3, 1e30f, -1e30f, INFINITY, -INFINITY};
	struct kvt_mla mla;
	float plain[7 * KVK_MLA_LATENT];
	float plain_lse[14];

	(void)state;
	kvt_mla_open(&mla, &rng, lens, 2, 1, 7, 64, KVK_BF16);
	for (int v = 0; v < version_count; v++) {
		mla.params.sink = NULL;
		assert_int_equal(versions[v].mla_dense(&mla.params), 0);
		memcpy(plain, mla.out, sizeof(plain));
		memcpy(plain_lse, mla.lse, sizeof(plain_lse));
		mla.params.sink = sinks;
		assert_int_equal(versions[v].mla_dense(&mla.params), 0);
		assert_memory_equal(plain_lse, mla.lse, sizeof(plain_lse));
		for (int h = 0; h < 7; h++) {
			double keep = 1 / (1 + exp((double)sinks[h] - plain_lse[h]));
			float want[KVK_MLA_LATENT];

			for (int d = 0; d < KVK_MLA_LATENT; d++)
				want[d] = (float)(plain[h * KVK_MLA_LATENT + d] * keep);
			assert_true(measure_rows(mla.out + h * KVK_MLA_LATENT, want, 1, KVK_MLA_LATENT, 1e-6)
					    .pass);
		}
		assert_all(mla.out + 7 * KVK_MLA_LATENT, 7 * KVK_MLA_LATENT, 0);
	}
	kvt_mla_close(&mla);
}

/* Sparse MLA over the slots of one sequence in order is dense MLA; invalid entries between change nothing. */
static void invalid_sparse_indices_are_skipped_wherever_they_are(void **state)
{
	enum { LEN = 20, TOPK = LEN + 6, TOKENS = 7 };
	static const int32_t lens[] = {LEN, 0};
	static const int32_t invalid[] = {-2147483647 - 1, -123456, -1, 2147483647, 2147480000};
	int32_t indices[2 * TOPK];
	float out[2 * 3 * KVK_MLA_LATENT];
	float lse[6];
	struct kvk_mla_sparse_params p;
	struct kvt_mla mla;
	int n = 0;

	(void)state;
	kvt_mla_open(&mla, &rng, lens, 2, 1, 3, TOKENS, KVK_MLA_FP8);
	for (int i = 0; i < TOPK; i++) {
		const int slots_end = mla.paged.pages * TOKENS;
		const int keep = i % 5 != 0 && n < LEN;

		indices[i] = keep ? (int32_t)kvt_paged_offset(&mla.paged, 0, n, TOKENS, 1)
				  : (i ? invalid[i / 5 % 5] : slots_end);
		n += keep;
		indices[TOPK + i] =
			i ? invalid[i % 5] : slots_end; /* the second sequence has nothing valid */
	}
	assert_int_equal(n, LEN);
	p = (struct kvk_mla_sparse_params){.size = sizeof(p),
					   .batch = 2,
					   .s_q = 1,
					   .heads = 3,
					   .topk = TOPK,
					   .page_tokens = TOKENS,
					   .pages = mla.paged.pages,
					   .q_dtype = mla.params.q_dtype,
					   .kv_dtype = KVK_MLA_FP8,
					   .out_dtype = KVK_F32,
					   .scale = mla.params.scale,
					   .q = mla.q,
					   .kv = mla.kv,
					   .indices = indices,
					   .sink = mla.sink,
					   .out = out,
					   .lse = lse};
	mla.params.sink = mla.sink;
	for (int v = 0; v < version_count; v++) {
		assert_int_equal(versions[v].mla_dense(&mla.params), 0);
		assert_int_equal(versions[v].mla_sparse(&p), 0);
		assert_memory_equal(out, mla.out, sizeof(out));
		assert_memory_equal(lse, mla.lse, sizeof(lse));
	}
	kvt_mla_close(&mla);
}

/* A slot listed twice has twice the weight; topk_length cuts the list. */
static void sparse_duplicates_count_and_topk_length_cuts(void **state)
{
	static const int32_t lens[] = {2};
	static const int32_t lengths[] = {3, 2, 0, -5, 9};
	int32_t indices[4];
	float out[KVK_MLA_LATENT];
	float lse;
	struct kvk_mla_sparse_params p;
	struct kvt_mla mla;
	float a;
	float b;

	(void)state;
	kvt_mla_open(&mla, &rng, lens, 1, 1, 1, 2, KVK_F32);
	memset(mla.q, 0, KVK_MLA_WIDTH * sizeof(float)); /* equal weights */
	indices[0] = (int32_t)kvt_paged_offset(&mla.paged, 0, 0, 2, 1);
	indices[1] = (int32_t)kvt_paged_offset(&mla.paged, 0, 1, 2, 1);
	indices[2] = indices[0];
	indices[3] = -1;
	a = ((float *)mla.kv)[indices[0] * KVK_MLA_WIDTH];
	b = ((float *)mla.kv)[indices[1] * KVK_MLA_WIDTH];
	p = (struct kvk_mla_sparse_params){.size = sizeof(p),
					   .batch = 1,
					   .s_q = 1,
					   .heads = 1,
					   .topk = 4,
					   .page_tokens = 2,
					   .pages = mla.paged.pages,
					   .q_dtype = KVK_F32,
					   .kv_dtype = KVK_F32,
					   .out_dtype = KVK_F32,
					   .scale = 1,
					   .q = mla.q,
					   .kv = mla.kv,
					   .indices = indices,
					   .out = out,
					   .lse = &lse};
	for (int n = 0; n < 5; n++) {
		const float want[] = {(2 * a + b) / 3, (a + b) / 2, 0, 0, (2 * a + b) / 3};
		const float want_lse[] = {logf(3), logf(2), INFINITY, INFINITY, logf(3)};

		p.topk_length = &lengths[n];
		assert_int_equal(run_mla_sparse(&p), 0);
		assert_true(fabsf(out[0] - want[n]) < 1e-6f);
		assert_true(lse == want_lse[n] || fabsf(lse - want_lse[n]) < 1e-6f);
	}
	kvt_mla_close(&mla);
}

/* Address space without memory behind it, so that a page far beyond 2^31 elements costs nothing. */
static char *reserve(int64_t bytes)
{
	void *memory = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

/*
 * One page of `case_` copied to page `id` of a huge cache of `stride` elements a page must give the same
 * bits.
 */
static void check_high_page(struct kvt_mla *mla, int64_t id, int64_t stride)
{
	const int64_t page = 64 * KVK_MLA_WIDTH;
	const int64_t bytes = (id * stride + page) * 2;
	const int32_t table[] = {(int32_t)id};
	struct kvk_mla_dense_params p = mla->params;
	float out[3 * KVK_MLA_LATENT];
	char *cache = reserve(bytes);

	assert_non_null(cache);
	memcpy(cache + id * stride * 2, (uint16_t *)mla->kv + mla->paged.table[0] * page, (size_t)page * 2);
	p.kv = cache;
	p.kv_stride_page = stride;
	p.pages = (int32_t)id + 1;
	p.block_table = table;
	p.table_width = 1;
	p.out = out;
	p.lse = NULL;
	for (int v = 0; v < version_count; v++) {
		assert_int_equal(versions[v].mla_dense(&mla->params), 0);
		assert_int_equal(versions[v].mla_dense(&p), 0);
		assert_memory_equal(out, mla->out, sizeof(out));
	}
	munmap(cache, (size_t)bytes);
}

static void readers_reach_pages_whose_offset_passes_31_bits(void **state)
{
	static const int32_t lens[] = {61};
	struct kvt_mla mla;

	(void)state;
	kvt_mla_open(&mla, &rng, lens, 1, 1, 3, 64, KVK_BF16);
	check_high_page(&mla, 58255, 64 * KVK_MLA_WIDTH);  /* 2^31 elements */
	check_high_page(&mla, 116600, 64 * KVK_MLA_WIDTH); /* 2^32 elements */
	check_high_page(&mla, 2100, 1039680);              /* all layers in one page */
	kvt_mla_close(&mla);
}

static void writers_reach_slots_whose_offset_passes_31_bits(void **state)
{
	static const struct {
		int64_t page;
		int64_t stride;
	} places[] = {{58255, 64 * KVK_MLA_WIDTH}, {116600, 64 * KVK_MLA_WIDTH}, {2100, 1039680}};
	uint16_t latent[KVK_MLA_LATENT];
	uint16_t rope[KVK_MLA_ROPE];

	(void)state;
	kvt_fill(&rng, latent, KVK_BF16, 0, KVK_MLA_LATENT, 1);
	kvt_fill(&rng, rope, KVK_BF16, 0, KVK_MLA_ROPE, 1);
	for (int i = 0; i < 3; i++) {
		const int64_t bytes = (places[i].page + 1) * places[i].stride * 2;
		const int64_t at = (places[i].page * places[i].stride + 63 * KVK_MLA_WIDTH) * 2;
		const int64_t slot = places[i].page * 64 + 63;
		char *cache = reserve(bytes);
		const struct kvk_mla_write_params p = {.size = sizeof(p),
						       .tokens = 1,
						       .page_tokens = 64,
						       .pages = (int32_t)places[i].page + 1,
						       .slot_bytes = 8,
						       .src_dtype = KVK_BF16,
						       .kv_dtype = KVK_BF16,
						       .latent = latent,
						       .rope = rope,
						       .slots = &slot,
						       .kv = cache,
						       .kv_stride_page = places[i].stride};
		const struct kvk_kv_write_params k = {.size = sizeof(k),
						      .tokens = 1,
						      .heads = 1,
						      .head_dim = KVK_MLA_ROPE,
						      .page_tokens = 64,
						      .pages = (int32_t)places[i].page + 1,
						      .slot_bytes = 8,
						      .src_dtype = KVK_BF16,
						      .cache_dtype = KVK_BF16,
						      .k = rope,
						      .slots = &slot,
						      .k_cache = cache,
						      .k_cache_stride_page = places[i].stride,
						      .k_cache_stride_token = KVK_MLA_WIDTH};

		assert_non_null(cache);
		assert_int_equal(kvk_mla_write(&p), 0);
		assert_memory_equal(cache + at, latent, sizeof(latent));
		assert_memory_equal(cache + at + sizeof(latent), rope, sizeof(rope));
		assert_int_equal(kvk_kv_write(&k), 0);
		assert_memory_equal(cache + at, rope, sizeof(rope));
		munmap(cache, (size_t)bytes);
	}
}

/* K and V of a high page, each at its own base. */
static void gqa_reaches_pages_whose_offset_passes_31_bits(void **state)
{
	enum { PAGE = 128 * 4 * 128, ID = 33000 };
	static const int32_t lens[] = {100};
	static const int32_t table[] = {ID};
	const int64_t bytes = (int64_t)(ID + 1) * PAGE * 2;
	struct kvk_gqa_dense_params p;
	float out[4 * 2 * 128];
	struct kvt_gqa gqa;
	char *k = reserve(bytes);
	char *v = reserve(bytes);

	(void)state;
	assert_true(k && v);
	kvt_gqa_open(&gqa, &rng, lens, 1, 1, 4, 2, 128, 128, KVK_BF16, KVT_NHD);
	memcpy(k + (int64_t)ID * PAGE * 2,
	       (const char *)gqa.params.k + (int64_t)gqa.paged.table[0] * PAGE * 2, (size_t)PAGE * 2);
	memcpy(v + (int64_t)ID * PAGE * 2,
	       (const char *)gqa.params.v + (int64_t)gqa.paged.table[0] * PAGE * 2, (size_t)PAGE * 2);
	p = gqa.params;
	p.k = k;
	p.v = v;
	p.pages = ID + 1;
	p.block_table = table;
	p.table_width = 1;
	p.out = out;
	p.lse = NULL;
	for (int n = 0; n < version_count; n++) {
		assert_int_equal(versions[n].gqa_dense(&gqa.params), 0);
		assert_int_equal(versions[n].gqa_dense(&p), 0);
		assert_memory_equal(out, gqa.out, sizeof(out));
	}
	kvt_gqa_close(&gqa);
	munmap(k, (size_t)bytes);
	munmap(v, (size_t)bytes);
}

/* More rows than any 16-bit grid has: sequences of one key, whose output is that key's value. */
static void more_than_65535_rows_are_all_written(void **state)
{
	enum { ROWS = 66000 };
	int32_t *ones = kvt_poison(ROWS, sizeof(*ones));
	int32_t *table = kvt_poison(ROWS, sizeof(*table));
	float *values = kvt_values(&rng, KVK_F32, ROWS, 1);
	float *out = kvt_poison(ROWS, sizeof(*out));
	const struct kvk_gqa_dense_params p = {.size = sizeof(p),
					       .batch = ROWS,
					       .s_q = 1,
					       .rows = ROWS,
					       .heads = 1,
					       .kv_heads = 1,
					       .head_dim = 1,
					       .page_tokens = 1,
					       .pages = ROWS,
					       .table_width = 1,
					       .q_dtype = KVK_F32,
					       .kv_dtype = KVK_F32,
					       .out_dtype = KVK_F32,
					       .scale = 1,
					       .q = values,
					       .k = values,
					       .v = values,
					       .block_table = table,
					       .lens = ones,
					       .out = out};

	(void)state;
	for (int r = 0; r < ROWS; r++) {
		ones[r] = 1;
		table[r] = ROWS - 1 - r;
	}
	assert_int_equal(run_gqa_dense(&p), 0);
	for (int r = 0; r < ROWS; r++)
		assert_true(fabsf(out[r] - values[ROWS - 1 - r]) <= 1e-6f * fabsf(values[ROWS - 1 - r]));
	free(ones);
	free(table);
	free(values);
	free(out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(empty_sequences_read_no_table_and_give_zero),
		cmocka_unit_test(padding_between_real_rows_changes_nothing),
		cmocka_unit_test(keys_a_query_cannot_see_may_hold_nan),
		cmocka_unit_test(very_negative_logits_are_logits),
		cmocka_unit_test(sinks_of_any_size_scale_the_output_and_spare_the_lse),
		cmocka_unit_test(invalid_sparse_indices_are_skipped_wherever_they_are),
		cmocka_unit_test(sparse_duplicates_count_and_topk_length_cuts),
		cmocka_unit_test(readers_reach_pages_whose_offset_passes_31_bits),
		cmocka_unit_test(writers_reach_slots_whose_offset_passes_31_bits),
		cmocka_unit_test(gqa_reaches_pages_whose_offset_passes_31_bits),
		cmocka_unit_test(more_than_65535_rows_are_all_written),
	};

	kvt_watchdog(120);
	rng.state = kvt_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
