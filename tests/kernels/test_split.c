/* SPDX-License-Identifier: Apache-2.0 */
/* Split decode: the work plan and the merge of partials. */
#include "dtype.h"
#include "fixture.h"
#include "measure.h"

#include <errno.h>
#include <stdlib.h>

static struct kvt_rng rng;

struct golden_plan {
	int batch, parts;
	int32_t lens[4];
	int32_t num_splits[5];
	int planned; /* records given; the parts behind them are idle */
	int32_t plan[8][7];
};

static const struct golden_plan golden_plans[] = {
	{4,
	 4,
	 {0, 64, 65, 1000},
	 {0, 1, 2, 3, 6},
	 4,
	 {{0, 1, 0, 1, 0, 0, 0}, {2, 3, 0, 3, 0, 0, 1}, {3, 3, 3, 13, 1, 1, 1}, {3, 3, 13, 16, 2, 1, 1}}},
	{4,
	 8,
	 {4096, 4096, 4096, 4096},
	 {0, 2, 5, 8, 11},
	 8,
	 {{0, 0, 0, 35, 0, 1, 1},
	  {0, 1, 35, 1, 1, 1, 1},
	  {1, 1, 1, 36, 1, 1, 1},
	  {1, 2, 36, 2, 2, 1, 1},
	  {2, 2, 2, 37, 1, 1, 1},
	  {2, 3, 37, 3, 2, 1, 1},
	  {3, 3, 3, 38, 1, 1, 1},
	  {3, 3, 38, 64, 2, 1, 1}}},
	{1, 3, {0}, {0, 1}, 1, {{0, 0, 0, 0, 0, 0, 0}}},
};

static struct kvk_mla_plan_params plan_params(const int32_t *lens, int32_t batch, int32_t parts,
					      struct kvk_mla_plan_part *plan, int32_t *num_splits)
{
	return (struct kvk_mla_plan_params){.size = sizeof(struct kvk_mla_plan_params),
					    .batch = batch,
					    .parts = parts,
					    .block_tokens = 64,
					    .overhead = 5,
					    .lens = lens,
					    .plan = plan,
					    .num_splits = num_splits};
}

static void check_golden_plan(const struct golden_plan *golden)
{
	struct kvk_mla_plan_part plan[8];
	int32_t num_splits[5];
	struct kvk_mla_plan_params p =
		plan_params(golden->lens, golden->batch, golden->parts, plan, num_splits);

	assert_int_equal(kvk_mla_plan(&p), 0);
	assert_memory_equal(num_splits, golden->num_splits, (size_t)(golden->batch + 1) * sizeof(int32_t));
	for (int i = 0; i < golden->planned; i++) {
		assert_memory_equal(&plan[i], golden->plan[i], sizeof(golden->plan[i]));
		assert_int_equal(plan[i].pad, 0);
	}
	for (int i = golden->planned; i < golden->parts; i++)
		assert_true(plan[i].begin_seq >= golden->batch);
}

static void plans_equal_the_golden_ones(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(golden_plans) / sizeof(*golden_plans); i++)
		check_golden_plan(&golden_plans[i]);
}

static void one_short_request_is_cut_into_single_blocks(void **state)
{
	static const int32_t lens[] = {4096};
	struct kvk_mla_plan_part plan[132];
	int32_t num_splits[2];
	struct kvk_mla_plan_params p = plan_params(lens, 1, 132, plan, num_splits);

	(void)state;
	assert_int_equal(kvk_mla_plan(&p), 0);
	assert_int_equal(num_splits[1], 64);
	for (int i = 0; i < 64; i++)
		assert_true(plan[i].begin_seq == 0 && plan[i].begin_block == i &&
			    plan[i].end_block == i + 1 && plan[i].begin_split == i && plan[i].first_is_split);
	for (int i = 64; i < 132; i++)
		assert_true(plan[i].begin_seq >= 1);
}

/* Walks the parts in order and checks that they hand out block after block, split after split. */
static void check_cover(const struct kvk_mla_plan_params *p)
{
	int32_t sequence = 0;
	int32_t block = 0;
	int32_t split = 0;

	for (int32_t i = 0; i < p->parts && p->plan[i].begin_seq < p->batch; i++) {
		const struct kvk_mla_plan_part *part = &p->plan[i];

		assert_true(part->begin_seq == sequence && part->begin_block == block &&
			    part->begin_split == split);
		for (; sequence <= part->end_seq; sequence++) {
			int32_t blocks = p->lens[sequence] > 0 ? (p->lens[sequence] - 1) / 64 + 1 : 0;
			int32_t end = sequence < part->end_seq ? blocks : part->end_block;
			int is_split = block > 0 || end < blocks;

			assert_true(end <= blocks && (end > block || blocks == 0));
			if (sequence == part->begin_seq)
				assert_int_equal(part->first_is_split, is_split);
			if (sequence == part->end_seq)
				assert_int_equal(part->last_is_split, is_split);
			block = end;
			if (end < blocks)
				break;
			assert_int_equal(p->num_splits[sequence + 1] - p->num_splits[sequence], split + 1);
			block = 0;
			split = 0;
		}
		if (block > 0)
			split++;
	}
	assert_int_equal(sequence, p->batch);
	assert_true(p->num_splits[p->batch] <= p->batch + p->parts);
}

static void random_plans_cover_every_block_once(void **state)
{
	struct kvk_mla_plan_part plan[200];
	int32_t num_splits[65];
	int32_t lens[64];

	(void)state;
	for (int n = 0; n < 3000; n++) {
		int32_t batch = kvt_between(&rng, 1, 64);
		int32_t parts = kvt_between(&rng, 1, 200);
		struct kvk_mla_plan_params p = plan_params(lens, batch, parts, plan, num_splits);

		for (int32_t i = 0; i < batch; i++)
			lens[i] = kvt_between(&rng, 0, 3) ? kvt_between(&rng, 0, 20000) : 0;
		assert_int_equal(kvk_mla_plan(&p), 0);
		check_cover(&p);
	}
}

static void parts_follow_the_device_and_the_shape(void **state)
{
	(void)state;
	assert_int_equal(kvk_mla_plan_parts(132, 1, 128, 0), 66);
	assert_int_equal(kvk_mla_plan_parts(132, 2, 128, 0), 33);
	assert_int_equal(kvk_mla_plan_parts(132, 1, 16, 0), 132);
	assert_int_equal(kvk_mla_plan_parts(132, 3, 63, 0), 44);
	assert_int_equal(kvk_mla_plan_parts(2, 4, 128, 0), 1);
	assert_int_equal(kvk_mla_plan_parts(132, 2, 128, 1), 33);
	assert_int_equal(kvk_mla_plan_parts(132, 1, 64, 1), 132);
	assert_int_equal(kvk_mla_plan_parts(132, 1, 16, 1), 132);
}

enum { DIM = 16, HEADS = 3, S_Q = 2, KEYS = 12, SPLITS = 4, BATCH = 3 };

/*
 * One sequence's scores and values, softmaxed directly and as SPLITS partials of KEYS / SPLITS keys. An
 * unseen partial is empty: its lse is -INF and its values stay NaN. The same keys and values for every head;
 * scores differ.
 */
struct case_rows {
	double score[S_Q][HEADS][KEYS];
	double value[KEYS][DIM];
	int seen[SPLITS];
};

static void random_rows(struct case_rows *rows)
{
	for (int i = 0; i < S_Q * HEADS * KEYS; i++)
		(&rows->score[0][0][0])[i] = kvt_uniform(&rng) * 30;
	for (int i = 0; i < KEYS * DIM; i++)
		(&rows->value[0][0])[i] = kvt_uniform(&rng);
	for (int i = 0; i < SPLITS; i++)
		rows->seen[i] = kvt_between(&rng, 0, 2) != 0;
}

/*
 * Softmax over the keys of the splits [first, last), in the plain two-pass form; returns the natural lse or
 * -INF.
 */
static double softmax(const struct case_rows *rows, int i, int h, int first, int last, double out[DIM])
{
	double max = -INFINITY;
	double sum = 0;

	memset(out, 0, DIM * sizeof(*out));
	for (int key = first * 3; key < last * 3; key++)
		if (rows->seen[key / 3])
			max = fmax(max, rows->score[i][h][key]);
	if (max == -INFINITY)
		return max;
	for (int key = first * 3; key < last * 3; key++) {
		double weight = rows->seen[key / 3] ? exp(rows->score[i][h][key] - max) : 0;

		sum += weight;
		for (int d = 0; d < DIM; d++)
			out[d] += weight * rows->value[key][d];
	}
	for (int d = 0; d < DIM; d++)
		out[d] /= sum;
	return max + log(sum);
}

static void set_partials(const struct case_rows *rows, float *partial_out, float *partial_lse)
{
	double out[DIM];

	for (int n = 0; n < SPLITS; n++)
		for (int i = 0; i < S_Q; i++)
			for (int h = 0; h < HEADS; h++) {
				int at = (n * S_Q + i) * HEADS + h;
				double lse = softmax(rows, i, h, n, n + 1, out);

				partial_lse[at] = (float)(lse / log(2));
				for (int d = 0; d < DIM && rows->seen[n]; d++)
					partial_out[at * DIM + d] = (float)out[d];
			}
}

static void check_merge(const struct case_rows *rows, const float *sink, const float *out, const float *lse)
{
	double want[DIM];
	float want_f32[DIM];

	for (int i = 0; i < S_Q; i++)
		for (int h = 0; h < HEADS; h++) {
			double want_lse = softmax(rows, i, h, 0, SPLITS, want);
			double keep = sink && want_lse > -INFINITY ? 1 / (1 + exp(sink[h] - want_lse)) : 1;
			float expected = want_lse == -INFINITY ? INFINITY : (float)want_lse;

			for (int d = 0; d < DIM; d++)
				want_f32[d] = (float)(want[d] * keep);
			assert_true(measure_rows(out + (i * HEADS + h) * DIM, want_f32, 1, DIM, 1e-5).pass);
			assert_true(measure_values(lse + h * S_Q + i, &expected, 1).pass);
		}
}

/* Sequence 1 has a single partial and must be left alone; 0 and 2 are merged. */
static void merge_once(int (*combine)(const struct kvk_combine_params *), const float *sink, int all_empty)
{
	static const int32_t num_splits[] = {0, SPLITS, SPLITS + 1, 2 * SPLITS + 1};
	const int per_partial = S_Q * HEADS;
	float *partial_out = kvt_poison((2 * SPLITS + 1) * per_partial * DIM, sizeof(float));
	float *partial_lse = kvt_poison((2 * SPLITS + 1) * per_partial, sizeof(float));
	float *out = kvt_poison(BATCH * per_partial * DIM, sizeof(float));
	float *lse = kvt_poison(BATCH * per_partial, sizeof(float));
	const struct kvk_combine_params p = {.size = sizeof(p),
					     .batch = BATCH,
					     .s_q = S_Q,
					     .heads = HEADS,
					     .dim = DIM,
					     .partials = 2 * SPLITS + 1,
					     .out_dtype = KVK_F32,
					     .partial_out = partial_out,
					     .partial_lse = partial_lse,
					     .num_splits = num_splits,
					     .sink = sink,
					     .out = out,
					     .lse = lse};
	struct case_rows rows[2];

	for (int n = 0; n < 2; n++) {
		random_rows(&rows[n]);
		if (all_empty)
			memset(rows[n].seen, 0, sizeof(rows[n].seen));
		set_partials(&rows[n], partial_out + n * (SPLITS + 1) * per_partial * DIM,
			     partial_lse + n * (SPLITS + 1) * per_partial);
	}
	assert_int_equal(combine(&p), 0);
	check_merge(&rows[0], sink, out, lse);
	check_merge(&rows[1], sink, out + 2 * per_partial * DIM, lse + 2 * per_partial);
	for (int i = 0; i < per_partial * DIM; i++)
		assert_true(isnan(out[per_partial * DIM + i]));
	free(partial_out);
	free(partial_lse);
	free(out);
	free(lse);
}

static void merging_equals_one_softmax_over_all_keys(void **state)
{
	static const float sinks[][HEADS] = {{0, 5, -5}, {INFINITY, -INFINITY, 0}, {1e30f, -1e30f, 20}};

	(void)state;
	for (int n = 0; n < 300; n++) {
		merge_once(kvk_combine_ref, n % 4 ? sinks[n % 4 - 1] : NULL, n % 10 == 9);
		merge_once(kvk_combine, n % 4 ? sinks[n % 4 - 1] : NULL, n % 10 == 9);
	}
}

static void two_partials_merge_with_either_or_both_empty(void **state)
{
	static const int32_t num_splits[] = {0, 2};
	static const float partial_out[] = {3, 5};
	float out;
	float lse;
	float partial_lse[2];
	const struct kvk_combine_params p = {.size = sizeof(p),
					     .batch = 1,
					     .s_q = 1,
					     .heads = 1,
					     .dim = 1,
					     .partials = 2,
					     .out_dtype = KVK_F32,
					     .partial_out = partial_out,
					     .partial_lse = partial_lse,
					     .num_splits = num_splits,
					     .out = &out,
					     .lse = &lse};

	(void)state;
	partial_lse[0] = -INFINITY;
	partial_lse[1] = -INFINITY;
	assert_int_equal(kvk_combine(&p), 0);
	assert_true(out == 0 && lse == INFINITY);
	partial_lse[1] = 2;
	assert_int_equal(kvk_combine(&p), 0);
	assert_true(out == 5 && fabsf(lse - 1.3862944f) < 1e-6f);
	partial_lse[0] = 2;
	partial_lse[1] = -INFINITY;
	assert_int_equal(kvk_combine(&p), 0);
	assert_true(out == 3 && fabsf(lse - 1.3862944f) < 1e-6f);
}

/* What a decode over halves of the keys, merged, says must be what one decode over all says. */
static void merged_halves_of_a_decode_equal_the_whole(void **state)
{
	enum { LEN = 200, CUT = 128, ROWS = 2 };
	static const int32_t num_splits[] = {0, 2};
	static const int32_t lens[] = {LEN};
	const int64_t count = ROWS * KVK_MLA_LATENT;
	float partial_out[2 * ROWS * KVK_MLA_LATENT];
	float partial_lse[2 * ROWS];
	float out[ROWS * KVK_MLA_LATENT];
	float lse[ROWS];
	const struct kvk_combine_params merge = {.size = sizeof(merge),
						 .batch = 1,
						 .s_q = 1,
						 .heads = ROWS,
						 .dim = KVK_MLA_LATENT,
						 .partials = 2,
						 .out_dtype = KVK_F32,
						 .partial_out = partial_out,
						 .partial_lse = partial_lse,
						 .num_splits = num_splits,
						 .out = out,
						 .lse = lse};
	struct kvk_mla_dense_params half;
	struct kvt_mla mla;
	int32_t half_len;

	(void)state;
	kvt_mla_open(&mla, &rng, lens, 1, 1, ROWS, 64, KVK_BF16);
	assert_int_equal(kvk_mla_dense_ref(&mla.params), 0);
	half = mla.params;
	half.lens = &half_len;
	for (int n = 0; n < 2; n++) {
		half_len = n ? LEN - CUT : CUT;
		half.block_table = mla.paged.table + n * (CUT / 64);
		half.out = partial_out + n * count;
		half.lse = partial_lse + n * ROWS;
		assert_int_equal(kvk_mla_dense_ref(&half), 0);
		for (int h = 0; h < ROWS; h++)
			partial_lse[n * ROWS + h] /= logf(2);
	}
	assert_int_equal(kvk_combine(&merge), 0);
	assert_true(measure_rows(out, mla.out, ROWS, KVK_MLA_LATENT, 1e-5).pass);
	assert_true(measure_values(lse, mla.lse, ROWS).pass);
	kvt_mla_close(&mla);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plans_equal_the_golden_ones),
		cmocka_unit_test(one_short_request_is_cut_into_single_blocks),
		cmocka_unit_test(random_plans_cover_every_block_once),
		cmocka_unit_test(parts_follow_the_device_and_the_shape),
		cmocka_unit_test(merging_equals_one_softmax_over_all_keys),
		cmocka_unit_test(two_partials_merge_with_either_or_both_empty),
		cmocka_unit_test(merged_halves_of_a_decode_equal_the_whole),
	};

	kvt_watchdog(60);
	rng.state = kvt_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
