/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MLA decode at every level, against the reference: the edges of key blocks, tiles, splits and windows, the
 * tails of heads, threads, and FP8 rows that the short way of widening does not take.
 */
#include "fixture.h"
#include "measure.h"
#include "threads.h"
#include "versions.h"

#include <stdlib.h>
#include <string.h>

static struct kvt_rng rng;

static void check_rows(const struct version *version, const struct kvk_mla_dense_params *p, const float *out,
		       const float *lse, const struct kvt_mla *want)
{
	const struct measure rows = measure_rows(out, want->out, want->lse_count, KVK_MLA_LATENT, 1e-4);

	if (!rows.pass || !measure_values(lse, want->lse, want->lse_count).pass)
		fail_msg("%s: heads %d, s_q %d, page %d, dtype %u, length %d: error %g", version->name,
			 p->heads, p->s_q, p->page_tokens, p->kv_dtype, p->lens[0], rows.error);
}

/* Every version against the reference. */
static void check(struct kvt_mla *mla)
{
	float *out = kvt_poison(mla->out_count, sizeof(float));
	float *lse = kvt_poison(mla->lse_count, sizeof(float));
	struct kvk_mla_dense_params p = mla->params;

	assert_int_equal(kvk_mla_dense_ref(&mla->params), 0);
	p.out = out;
	p.lse = lse;
	for (int v = 1; v < version_count; v++) {
		assert_int_equal(versions[v].mla_dense(&p), 0);
		check_rows(&versions[v], &p, out, lse, mla);
	}
	free(out);
	free(lse);
}

static void lengths_around_every_edge_agree(void **state)
{
	static const int32_t lens[] = {1,   2,   4,   5,   7,   11,  12,  13,   25,   126,  127,
				       128, 129, 255, 257, 511, 512, 513, 1024, 1025, 2048, 2049};
	static const uint32_t dtypes[] = {KVK_BF16, KVK_F16, KVK_F32, KVK_MLA_FP8};
	struct kvt_mla mla;

	(void)state;
	for (int d = 0; d < (KVT_INSTRUMENTED ? 1 : 4); d++) {
		kvt_mla_open(&mla, &rng, lens, sizeof(lens) / sizeof(*lens), 1, 1, 53, dtypes[d]);
		check(&mla);
		kvt_mla_close(&mla);
	}
}

/* More splits than a window of one thread has slots: what is carried over is carried twice. */
static void a_row_goes_on_over_several_windows(void **state)
{
	static const int32_t lens[] = {300, 5000, 1, 2600};
	struct kvt_mla mla;

	(void)state;
	kvt_mla_open(&mla, &rng, lens, 4, 1, 2, 64, KVK_BF16);
	check(&mla);
	kvt_mla_close(&mla);
}

static void heads_of_any_number_agree(void **state)
{
	static const int32_t heads[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  11, 12, 13,  15,  16,  17,  20,
					24, 31, 32, 33, 47, 48, 49, 63, 64, 65, 81, 127, 128, 129, 130, 192};
	static const int32_t lens[] = {9};
	struct kvt_mla mla;

	(void)state;
	for (size_t i = 0; i < sizeof(heads) / sizeof(*heads); i++) {
		kvt_mla_open(&mla, &rng, lens, 1, 1, heads[i], 4, KVK_BF16);
		check(&mla);
		kvt_mla_close(&mla);
	}
}

/* Up to four heads over bf16 have loops of their own, sixteen keys a step: queries that see different parts of one. */
static void few_heads_see_no_more_than_they_may(void **state)
{
	static const int32_t lens[] = {1, 3, 16, 17, 31, 130, 517, 1043};
	struct kvt_mla mla;

	(void)state;
	for (int32_t heads = 1; heads <= 5; heads++)
		for (int32_t s_q = 1; s_q <= 7; s_q += 3) {
			kvt_mla_open(&mla, &rng, lens, 8, s_q, heads, 16, KVK_BF16);
			mla.params.flags = KVK_CAUSAL;
			check(&mla);
			kvt_mla_close(&mla);
		}
}

/* 3 queries of 50 heads: rows of one query lie in two units, those of two queries in one. Of 64: in whole groups. */
static void queries_share_tiles_and_units(void **state)
{
	static const int32_t lens[] = {130, 1, 2, 0};
	struct kvt_mla mla;

	(void)state;
	for (int32_t heads = 50; heads <= 64; heads += 14) {
		kvt_mla_open(&mla, &rng, lens, 4, 3, heads, 16, KVK_BF16);
		mla.params.flags = KVK_CAUSAL;
		mla.params.sink = mla.sink;
		check(&mla);
		kvt_mla_close(&mla);
	}
}

/*
 * The last of 514 keys is a split's second, and NaN: the query that sees it is lost, the others don't
 * notice.
 */
static void nan_behind_a_split_reaches_only_who_sees_it(void **state)
{
	enum { LEN = 514, QUERIES = 4, HEADS = 5, SEEN = (QUERIES - 1) * HEADS * KVK_MLA_LATENT };
	static const int32_t lens[] = {LEN};
	float out[QUERIES * HEADS * KVK_MLA_LATENT];
	struct kvk_mla_dense_params p;
	struct kvt_mla mla;

	(void)state;
	kvt_mla_open(&mla, &rng, lens, 1, QUERIES, HEADS, 16, KVK_BF16);
	mla.params.flags = KVK_CAUSAL;
	for (int v = 0; v < version_count; v++) {
		uint16_t *last = (uint16_t *)mla.kv +
				 kvt_paged_offset(&mla.paged, 0, LEN - 1, 16 * KVK_MLA_WIDTH, KVK_MLA_WIDTH);
		uint16_t row[KVK_MLA_WIDTH];

		assert_int_equal(versions[v].mla_dense(&mla.params), 0);
		memcpy(row, last, sizeof(row));
		memset(last, 0xff, sizeof(row));
		p = mla.params;
		p.out = out;
		assert_int_equal(versions[v].mla_dense(&p), 0);
		memcpy(last, row, sizeof(row));
		assert_memory_equal(out, mla.out, SEEN * sizeof(float));
		assert_true(out[SEEN] != out[SEEN]);
	}
	kvt_mla_close(&mla);
}

static void threads_do_not_change_a_bit(void **state)
{
	static const int32_t lens[] = {0, 700, 5, 1300, 130};
	const struct kvk_threads threads[] = {kvt_threads_at_once(2), kvt_threads_at_once(3),
					      kvt_threads_backwards(3)};
	struct kvk_mla_dense_params p;
	struct kvt_mla mla;
	float *out;
	float *lse;

	(void)state;
	kvt_mla_open(&mla, &rng, lens, 5, 2, 9, 64, KVK_BF16);
	mla.params.flags = KVK_CAUSAL;
	mla.params.sink = mla.sink;
	out = kvt_poison(mla.out_count, sizeof(float));
	lse = kvt_poison(mla.lse_count, sizeof(float));
	for (int v = 1; v < version_count; v++) {
		assert_int_equal(versions[v].mla_dense(&mla.params), 0);
		for (size_t t = 0; t < sizeof(threads) / sizeof(*threads); t++) {
			p = mla.params;
			p.threads = &threads[t];
			p.out = out;
			p.lse = lse;
			assert_int_equal(versions[v].mla_dense(&p), 0);
			assert_memory_equal(out, mla.out, (size_t)mla.out_count * sizeof(float));
			assert_memory_equal(lse, mla.lse, (size_t)mla.lse_count * sizeof(float));
		}
	}
	free(out);
	free(lse);
	kvt_mla_close(&mla);
}

/* Scales that are no powers of two, tiny ones, and one at which 256 times it is infinite. */
static void fp8_rows_take_any_scale(void **state)
{
	static const float scales[] = {0.3f, 1.7e-30f, 0x1p121f, 1};
	static const int32_t lens[] = {40};
	struct kvt_mla mla;

	(void)state;
	kvt_mla_open(&mla, &rng, lens, 1, 1, 3, 1, KVK_MLA_FP8);
	for (int32_t j = 0; j < 40; j++) {
		unsigned char *row = (unsigned char *)mla.kv +
				     kvt_paged_offset(&mla.paged, 0, j, KVK_MLA_FP8_ROW_BYTES, 0);

		memcpy(row + KVK_MLA_LATENT, scales, sizeof(scales));
		memset(row + 256, 0, 128); /* under the large scale */
	}
	check(&mla);
	kvt_mla_close(&mla);
}

static void fp8_nan_codes_are_nan(void **state)
{
	static const int32_t lens[] = {20, 20};
	struct kvt_mla mla;

	(void)state;
	kvt_mla_open(&mla, &rng, lens, 2, 1, 2, 1, KVK_MLA_FP8);
	((unsigned char *)mla.kv)[kvt_paged_offset(&mla.paged, 0, 7, KVK_MLA_FP8_ROW_BYTES, 0) + 300] = 0xff;
	for (int v = 0; v < version_count; v++) {
		assert_int_equal(versions[v].mla_dense(&mla.params), 0);
		for (int64_t i = 0; i < mla.out_count; i++)
			assert_true((mla.out[i] != mla.out[i]) == (i < mla.out_count / 2));
	}
	kvt_mla_close(&mla);
}

/* Lists with holes as long as a tile and as a split, and with every other entry invalid. */
static void sparse_lists_with_holes_agree(void **state)
{
	enum { TOPK = 1700, HEADS = 3, TOKENS = 64 };
	static const int32_t lens[] = {900};
	static const int32_t topk_length[] = {1650};
	int32_t *indices = kvt_poison(TOPK, sizeof(*indices));
	float want[HEADS * KVK_MLA_LATENT], out[HEADS * KVK_MLA_LATENT];
	float want_lse[HEADS], lse[HEADS];
	struct kvk_mla_sparse_params p;
	struct kvt_mla mla;

	(void)state;
	kvt_mla_open(&mla, &rng, lens, 1, 1, HEADS, TOKENS, KVK_MLA_FP8);
	for (int i = 0; i < TOPK; i++) {
		const int hole = (i >= 128 && i < 256) || (i >= 512 && i < 1024) || (i > 1100 && i % 2);

		indices[i] = hole ? -1 : (int32_t)kvt_paged_offset(&mla.paged, 0, i * 7 % 900, TOKENS, 1);
	}
	p = (struct kvk_mla_sparse_params){.size = sizeof(p),
					   .batch = 1,
					   .s_q = 1,
					   .heads = HEADS,
					   .topk = TOPK,
					   .page_tokens = TOKENS,
					   .pages = mla.paged.pages,
					   .q_dtype = KVK_BF16,
					   .kv_dtype = KVK_MLA_FP8,
					   .out_dtype = KVK_F32,
					   .scale = mla.params.scale,
					   .q = mla.q,
					   .kv = mla.kv,
					   .indices = indices,
					   .topk_length = topk_length,
					   .out = want,
					   .lse = want_lse};
	assert_int_equal(kvk_mla_sparse_ref(&p), 0);
	p.out = out;
	p.lse = lse;
	for (int v = 1; v < version_count; v++) {
		assert_int_equal(versions[v].mla_sparse(&p), 0);
		assert_true(measure_rows(out, want, HEADS, KVK_MLA_LATENT, 1e-4).pass);
		assert_true(measure_values(lse, want_lse, HEADS).pass);
	}
	free(indices);
	kvt_mla_close(&mla);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lengths_around_every_edge_agree),
		cmocka_unit_test(a_row_goes_on_over_several_windows),
		cmocka_unit_test(heads_of_any_number_agree),
		cmocka_unit_test(few_heads_see_no_more_than_they_may),
		cmocka_unit_test(queries_share_tiles_and_units),
		cmocka_unit_test(nan_behind_a_split_reaches_only_who_sees_it),
		cmocka_unit_test(threads_do_not_change_a_bit),
		cmocka_unit_test(fp8_rows_take_any_scale),
		cmocka_unit_test(fp8_nan_codes_are_nan),
		cmocka_unit_test(sparse_lists_with_holes_agree),
	};

	kvt_watchdog(300);
	rng.state = kvt_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
