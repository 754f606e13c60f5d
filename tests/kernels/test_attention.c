/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a caller may count on besides the numbers: batch mates, strides, narrow outputs; long and ragged rows. Random
 * shapes are in random.c.
 */
#include "dtype.h"
#include "fixture.h"
#include "measure.h"
#include "versions.h"

#include <stdlib.h>

static struct kvt_rng rng;

/* mla->out holds what the reference says. */
static void check_mla(struct kvt_mla *mla, const struct version *version)
{
	float *out = kvt_poison(mla->out_count, sizeof(float));
	float *lse = kvt_poison(mla->lse_count, sizeof(float));
	struct kvk_mla_dense_params p = mla->params;
	struct measure rows;

	p.out = out;
	p.lse = lse;
	assert_int_equal(version->mla_dense(&p), 0);
	rows = measure_rows(out, mla->out, mla->lse_count, KVK_MLA_LATENT, 1e-4);
	if (!rows.pass)
		fail_msg("%s: heads %d, s_q %d, page %d, dtype %u: error %g", version->name, p.heads, p.s_q,
			 p.page_tokens, p.kv_dtype, rows.error);
	assert_true(measure_values(lse, mla->lse, mla->lse_count).pass);
	free(out);
	free(lse);
}

static void check_mla_versions(struct kvt_mla *mla)
{
	assert_int_equal(kvk_mla_dense_ref(&mla->params), 0);
	for (int v = 1; v < version_count; v++)
		check_mla(mla, &versions[v]);
}

static void mla_agrees_with_the_reference_on_a_long_row(void **state)
{
	const int32_t lens[] = {2000};
	struct kvt_mla mla;

	(void)state;
	kvt_mla_open(&mla, &rng, lens, 1, 1, 17, 64, KVK_BF16);
	check_mla_versions(&mla);
	kvt_mla_close(&mla);
}

/*
 * A short row may cancel to almost nothing, which makes an error relative to it say little: below 16
 * elements the error is held to 1e-5 of the values' range, [-1, 1].
 */
static struct measure measure_output(const float *got, const float *want, int64_t rows, int32_t dim)
{
	double error = 0;

	if (dim >= 16)
		return measure_rows(got, want, rows, dim, 1e-4);
	for (int64_t i = 0; i < rows * dim; i++)
		error = fmax(error, isfinite(got[i]) ? fabs((double)got[i] - want[i]) : INFINITY);
	return (struct measure){.error = error, .limit = 1e-5, .pass = error <= 1e-5};
}

/* gqa->out holds what the reference says. */
static void check_gqa(struct kvt_gqa *gqa, const struct version *version)
{
	float *out = kvt_poison(gqa->out_count, sizeof(float));
	float *lse = kvt_poison(gqa->lse_count, sizeof(float));
	struct kvk_gqa_dense_params p = gqa->params;
	struct measure rows;

	p.out = out;
	p.lse = lse;
	assert_int_equal(version->gqa_dense(&p), 0);
	rows = measure_output(out, gqa->out, gqa->lse_count, p.head_dim);
	if (!rows.pass)
		fail_msg("%s: heads %d/%d, dim %d, s_q %d, page %d, dtype %u: error %g", version->name,
			 p.heads, p.kv_heads, p.head_dim, p.s_q, p.page_tokens, p.kv_dtype, rows.error);
	assert_true(measure_values(lse, gqa->lse, gqa->lse_count).pass);
	free(out);
	free(lse);
}

static void check_gqa_versions(struct kvt_gqa *gqa)
{
	assert_int_equal(kvk_gqa_dense_ref(&gqa->params), 0);
	for (int v = 1; v < version_count; v++)
		check_gqa(gqa, &versions[v]);
}

/* Row offsets with two padding rows in front, one behind, and an empty sequence between. */
static void gqa_takes_ragged_rows_and_leaves_padding_empty(void **state)
{
	static const int32_t lens[] = {70, 40, 9};
	static const int32_t cu_q[] = {2, 5, 5, 8};
	struct kvt_gqa gqa;

	(void)state;
	kvt_gqa_open(&gqa, &rng, lens, 3, 3, 2, 3, 32, 16, KVK_BF16, KVT_HND);
	gqa.params.flags = KVK_CAUSAL;
	gqa.params.cu_q = cu_q;
	gqa.params.s_q = 0;
	check_gqa_versions(&gqa);
	for (int i = 0; i < 6; i++) {
		assert_true(gqa.lse[i] == INFINITY && gqa.lse[6 + i] == INFINITY &&
			    gqa.lse[8 * 6 + i] == INFINITY);
		assert_true(gqa.out[i * 32] == 0 && isfinite(gqa.lse[2 * 6 + i]));
	}
	kvt_gqa_close(&gqa);
}

/* Each sequence alone, through its own table row, must give the bits it gave in the batch. */
static void check_mla_alone(const struct kvt_mla *mla, const struct version *version, int32_t r)
{
	const int64_t rows = (int64_t)mla->params.s_q * mla->params.heads;
	const int64_t count = rows * KVK_MLA_LATENT;
	struct kvk_mla_dense_params p = mla->params;
	float *out = kvt_poison(count, sizeof(float));
	float *lse = kvt_poison(rows, sizeof(float));

	p.batch = 1;
	p.q = (const char *)p.q + r * rows * KVK_MLA_WIDTH * (int64_t)kvk_dtype_bytes(p.q_dtype);
	p.block_table += r * p.table_width;
	p.lens += r;
	p.out = out;
	p.lse = lse;
	assert_int_equal(version->mla_dense(&p), 0);
	assert_memory_equal(out, mla->out + r * count, (size_t)count * sizeof(float));
	assert_memory_equal(lse, mla->lse + r * rows, (size_t)rows * sizeof(float));
	free(out);
	free(lse);
}

/* Four heads over bf16 rows have loops of their own. */
static void mla_rows_do_not_depend_on_their_batch_mates(void **state)
{
	static const int32_t lens[] = {500, 0, 33, 1, 64, 1100};
	struct kvt_mla mla;

	(void)state;
	for (int32_t heads = 4; heads <= 5; heads++) {
		kvt_mla_open(&mla, &rng, lens, 6, 2, heads, 53, KVK_BF16);
		mla.params.flags = KVK_CAUSAL;
		for (int v = 1; v < version_count; v++) {
			assert_int_equal(versions[v].mla_dense(&mla.params), 0);
			for (int32_t r = 0; r < 6; r++)
				check_mla_alone(&mla, &versions[v], r);
		}
		kvt_mla_close(&mla);
	}
}

/* `heads` heads, and then `part` of them at a time out of pages of one token: the same bits. */
static void check_parts(int32_t heads, int32_t part)
{
	static const int32_t lens[] = {300};
	struct kvk_mla_dense_params p;
	int32_t pages[300];
	float out[7 * KVK_MLA_LATENT];
	struct kvt_mla mla;

	assert_true(part <= 7 && heads % part == 0);
	kvt_mla_open(&mla, &rng, lens, 1, 1, heads, 64, KVK_BF16);
	assert_int_equal(run_mla_dense(&mla.params), 0);
	p = mla.params;
	p.heads = part;
	p.lse = NULL;
	p.out = out;
	p.page_tokens = 1; /* the same cache seen as pages of one token */
	p.pages = mla.paged.pages * 64;
	p.block_table = pages;
	p.table_width = 300;
	for (int32_t j = 0; j < 300; j++)
		pages[j] = mla.paged.table[j / 64] * 64 + j % 64;
	for (int32_t h = 0; h < heads; h += part) {
		p.q = (const char *)mla.q + h * KVK_MLA_WIDTH * 2;
		assert_int_equal(run_mla_dense(&p), 0);
		assert_memory_equal(out, mla.out + h * KVK_MLA_LATENT,
				    (size_t)part * KVK_MLA_LATENT * sizeof(*out));
	}
	kvt_mla_close(&mla);
}

/* Up to four heads have loops, and rounding, of their own. */
static void mla_heads_and_page_sizes_do_not_change_a_bit(void **state)
{
	(void)state;
	check_parts(4, 1);
	check_parts(4, 2);
	check_parts(21, 7);
	check_parts(70, 5);
}

static void gqa_rows_do_not_depend_on_their_batch_mates(void **state)
{
	static const int32_t lens[] = {400, 0, 77};
	struct kvk_gqa_dense_params p;
	struct kvt_gqa gqa;
	float out[2 * 6 * 64];

	(void)state;
	kvt_gqa_open(&gqa, &rng, lens, 3, 2, 2, 3, 64, 16, KVK_F16, KVT_PACKED);
	gqa.params.flags = KVK_CAUSAL;
	assert_int_equal(run_gqa_dense(&gqa.params), 0);
	for (int32_t r = 0; r < 3; r++) {
		p = gqa.params;
		p.batch = 1;
		p.rows = 2;
		p.q = (const char *)p.q + r * 2 * 6 * 64 * 2;
		p.block_table += r * p.table_width;
		p.lens += r;
		p.out = out;
		p.lse = NULL;
		assert_int_equal(run_gqa_dense(&p), 0);
		assert_memory_equal(out, gqa.out + r * 2 * 6 * 64, sizeof(out));
	}
	kvt_gqa_close(&gqa);
}

/*
 * Strides of everything, against the contiguous call: bits must agree, and nothing between the rows is
 * written.
 */
static void mla_honours_every_stride(void **state)
{
	enum { B = 2, S = 2, H = 3, QW = KVK_MLA_WIDTH + 5, OW = KVK_MLA_LATENT + 3, LW = S + 1 };
	static const int32_t lens[] = {90, 40};
	struct kvk_mla_dense_params p;
	struct kvt_mla mla;
	uint16_t *q;
	float *out;
	float *lse;

	(void)state;
	kvt_mla_open(&mla, &rng, lens, B, S, H, 16, KVK_BF16);
	assert_int_equal(run_mla_dense(&mla.params), 0);
	q = kvt_poison(B * S * H * QW, sizeof(*q));
	out = kvt_poison(B * S * H * OW, sizeof(*out));
	lse = kvt_poison(B * H * LW, sizeof(*lse));
	p = mla.params;
	/* Heads outermost instead of innermost. */
	for (int b = 0; b < B; b++)
		for (int i = 0; i < S; i++)
			for (int h = 0; h < H; h++)
				memcpy(q + ((h * B + b) * S + i) * QW,
				       (uint16_t *)mla.q + ((b * S + i) * H + h) * KVK_MLA_WIDTH,
				       KVK_MLA_WIDTH * 2);
	p.q = q;
	p.q_stride_head = (int64_t)B * S * QW;
	p.q_stride_batch = S * QW;
	p.q_stride_query = QW;
	p.out = out;
	p.out_stride_head = (int64_t)B * S * OW;
	p.out_stride_batch = S * OW;
	p.out_stride_query = OW;
	p.lse = lse;
	p.lse_stride_head = LW;
	p.lse_stride_batch = H * LW;
	for (int v = 0; v < version_count; v++) {
		assert_int_equal(versions[v].mla_dense(&mla.params), 0);
		assert_int_equal(versions[v].mla_dense(&p), 0);
		for (int b = 0; b < B; b++)
			for (int i = 0; i < S; i++)
				for (int h = 0; h < H; h++) {
					const float *row = out + ((h * B + b) * S + i) * OW;

					assert_memory_equal(row,
							    mla.out + ((b * S + i) * H + h) * KVK_MLA_LATENT,
							    KVK_MLA_LATENT * sizeof(float));
					assert_true(isnan(row[KVK_MLA_LATENT]) && isnan(row[OW - 1]));
					assert_true(lse[(b * H + h) * LW + i] ==
						    mla.lse[(b * H + h) * S + i]);
				}
		assert_true(isnan(lse[LW - 1]));
	}
	free(q);
	free(out);
	free(lse);
	kvt_mla_close(&mla);
}

static void narrow_outputs_are_the_f32_output_rounded(void **state)
{
	static const int32_t lens[] = {100, 0};
	static const uint32_t dtypes[] = {KVK_BF16, KVK_F16};
	struct kvt_mla mla;

	(void)state;
	kvt_mla_open(&mla, &rng, lens, 2, 1, 2, 64, KVK_BF16);
	for (int v = 0; v < version_count; v++)
		for (int d = 0; d < 2; d++) {
			struct kvk_mla_dense_params p = mla.params;
			uint16_t *out = kvt_poison(mla.out_count, sizeof(*out));

			p.out = out;
			p.out_dtype = dtypes[d];
			assert_int_equal(versions[v].mla_dense(&mla.params), 0);
			assert_int_equal(versions[v].mla_dense(&p), 0);
			for (int64_t i = 0; i < mla.out_count; i++) {
				if (dtypes[d] == KVK_BF16)
					assert_int_equal(out[i], kvk_f32_to_bf16(mla.out[i]));
				else
					assert_int_equal(out[i], kvk_f32_to_f16(mla.out[i]));
			}
			free(out);
		}
	kvt_mla_close(&mla);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(mla_agrees_with_the_reference_on_a_long_row),
		cmocka_unit_test(gqa_takes_ragged_rows_and_leaves_padding_empty),
		cmocka_unit_test(mla_rows_do_not_depend_on_their_batch_mates),
		cmocka_unit_test(mla_heads_and_page_sizes_do_not_change_a_bit),
		cmocka_unit_test(gqa_rows_do_not_depend_on_their_batch_mates),
		cmocka_unit_test(mla_honours_every_stride),
		cmocka_unit_test(narrow_outputs_are_the_f32_output_rounded),
	};

	kvt_watchdog(300);
	rng.state = kvt_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
