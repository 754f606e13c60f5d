/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a step needs besides attention: plans, merges of partials and length corrections, as the host
 * computes them.
 */
#include "compare.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct kvt_rng rng;

/* ------------------------------------------------------------------ plan */

static void equal_parts_are_the_references(void **state)
{
	(void)state;
	for (int i = 0; i < 12; i++) {
		const int32_t batch = PICK(&rng, 1, 3, 40, 300), parts = PICK(&rng, 1, 2, 7, 132);
		int32_t *lens = kvt_poison(batch, sizeof(int32_t));
		struct kvk_mla_plan_part *plan[2];
		int32_t *num_splits[2];
		struct simt_device device;

		for (int32_t r = 0; r < batch; r++)
			lens[r] = PICK(&rng, -5, 0, 1, 64, 65, kvt_between(&rng, 0, 9000), 2147483647 / 400);
		simt_device_open(&device, 4, 0, (uint64_t)i);
		for (int n = 0; n < 2; n++) {
			struct kvk_mla_plan_params p = {.size = sizeof(p),
							.batch = batch,
							.parts = parts,
							.block_tokens = 64,
							.overhead = 5,
							.lens = lens};

			p.plan = plan[n] = kvt_poison(parts, sizeof(*p.plan));
			p.num_splits = num_splits[n] = kvt_poison(batch + 1, sizeof(int32_t));
			assert_int_equal(n ? kvk_mla_plan_ref(&p) : kvk_mla_plan_cuda(&device.device, &p), 0);
		}
		assert_memory_equal(plan[0], plan[1], (size_t)parts * sizeof(**plan));
		assert_memory_equal(num_splits[0], num_splits[1], (size_t)(batch + 1) * sizeof(int32_t));
		for (int n = 0; n < 2; n++) {
			free(plan[n]);
			free(num_splits[n]);
		}
		free(lens);
	}
}

/* Each sequence's pieces follow each other and end at its last block; what is left of the parts is idle. */
static void fixed_pieces_cover_every_sequence_once(void **state)
{
	const int32_t lens[] = {0, 1, 128, 129, 1000, -3};
	const int32_t pieces[] = {1, 1, 1, 2, 8, 1}, blocks[] = {0, 1, 2, 3, 16, 0};
	struct kvk_mla_plan_part plan[20];
	int32_t num_splits[7], at = 0;
	struct kvk_mla_plan_params p = {.size = sizeof(p),
					.batch = 6,
					.parts = 20,
					.block_tokens = 64,
					.overhead = 5,
					.lens = lens,
					.plan = plan,
					.num_splits = num_splits};
	struct simt_device device;

	(void)state;
	simt_device_open(&device, 4, 128, 1);
	assert_int_equal(kvk_mla_plan_cuda(&device.device, &p), 0);
	for (int32_t r = 0; r < 6; r++) {
		assert_int_equal(num_splits[r], at);
		for (int32_t i = 0; i < pieces[r]; i++, at++) {
			assert_int_equal(plan[at].begin_seq, r);
			assert_int_equal(plan[at].end_seq, r);
			assert_int_equal(plan[at].begin_block, 2 * i);
			assert_int_equal(plan[at].end_block, i < pieces[r] - 1 ? 2 * i + 2 : blocks[r]);
			assert_int_equal(plan[at].begin_split, i);
			assert_int_equal(plan[at].first_is_split, pieces[r] > 1);
			assert_int_equal(plan[at].last_is_split, pieces[r] > 1);
		}
	}
	assert_int_equal(num_splits[6], at);
	for (; at < 20; at++)
		assert_true(plan[at].begin_seq >= 6);
}

/* ------------------------------------------------------------------ combine */

static void check_combine(uint32_t dtype, int32_t dim, const float *sink)
{
	const int32_t batch = 4, s_q = 2, heads = 3, partials = 8;
	const int32_t num_splits[] = {0, 1, 3, 8, 8};
	const int64_t rows = (int64_t)partials * s_q * heads, outputs = (int64_t)batch * s_q * heads;
	float *partial = kvt_values(&rng, KVK_F32, rows * dim, 3),
	      *partial_lse = kvt_values(&rng, KVK_F32, rows, 20);
	void *out[2];
	float *lse[2];
	struct simt_device device;

	/* Empty ones, whose values are NaN; for one row all of them. */
	for (int64_t i = 0; i < rows; i += i % 5 + 1) {
		partial_lse[i] = -INFINITY;
		memset(partial + i * dim, 0xff, (size_t)dim * sizeof(float));
	}
	for (int32_t n = 1; n < 3; n++) {
		partial_lse[n * s_q * heads + 2] = -INFINITY;
		memset(partial + (n * s_q * heads + 2) * dim, 0xff, (size_t)dim * sizeof(float));
	}
	simt_device_open(&device, 4, 0, 6);
	for (int i = 0; i < 2; i++) {
		struct kvk_combine_params p = {.size = sizeof(p),
					       .batch = batch,
					       .s_q = s_q,
					       .heads = heads,
					       .dim = dim,
					       .partials = partials,
					       .out_dtype = dtype,
					       .partial_out = partial,
					       .partial_lse = partial_lse,
					       .num_splits = num_splits,
					       .sink = sink};

		p.out = out[i] = kvt_poison(outputs * dim, kvk_dtype_bytes(dtype));
		p.lse = lse[i] = kvt_poison(outputs, sizeof(float));
		assert_int_equal(i ? kvk_combine_ref(&p) : kvk_combine_cuda(&device.device, &p), 0);
	}
	/*
	 * Sequences with fewer than two partials are left alone, NaN as they were; measures want NaN where
	 * NaN is.
	 */
	if (dtype == KVK_F32)
		ASSERT_MEASURE(measure_values(out[0], out[1], outputs * dim));
	ASSERT_MEASURE(measure_values(lse[0], lse[1], outputs));
	for (int i = 0; i < 2; i++) {
		free(out[i]);
		free(lse[i]);
	}
	free(partial);
	free(partial_lse);
}

static void merges_agree_with_the_reference(void **state)
{
	const float sinks[] = {3, INFINITY, -INFINITY}, huge[] = {1e30f, -1e30f, 0};

	(void)state;
	check_combine(KVK_F32, 512, NULL);
	check_combine(KVK_F32, 512, sinks);
	check_combine(KVK_F32, 128, huge);
	check_combine(KVK_F32, 33, NULL);
	check_combine(KVK_BF16, 64, sinks);
}

/* ------------------------------------------------------------------ correction */

#define MAX_REQUESTS 300
#define MAX_TOKENS 1200

/* Everything that a correction writes. */
struct corrected {
	int64_t slots[MAX_TOKENS];
	int32_t n_valid[MAX_TOKENS];
	int32_t seq_lens[MAX_REQUESTS];
	int32_t cu_kv[MAX_REQUESTS + 1];
	int32_t part[6][MAX_TOKENS];
};

struct request_case {
	int32_t batch, tokens, split; /* requests [0, split) and [split, batch) have plans of their own */
	int32_t tokens_before_split;
	int32_t qo[MAX_REQUESTS], staged[MAX_REQUESTS], lens[MAX_REQUESTS];
	int32_t table[MAX_REQUESTS * 16];
	struct kvk_prep_plan_part parts[3];
};

static void open_case(struct request_case *c)
{
	c->batch = PICK(&rng, 1, 2, 33, MAX_REQUESTS);
	c->split = kvt_between(&rng, 0, c->batch);
	c->tokens = c->tokens_before_split = 0;
	for (int32_t r = 0; r < c->batch; r++) {
		c->qo[r] = kvt_between(&rng, 0, 4);
		c->staged[r] = kvt_between(&rng, 0, 60);
		c->lens[r] = c->staged[r] - kvt_between(&rng, -2, 4);
		c->tokens += c->qo[r];
		c->tokens_before_split += r < c->split ? c->qo[r] : 0;
	}
	for (int32_t i = 0; i < c->batch * 16; i++)
		c->table[i] = kvt_between(&rng, -1, 5000);
}

/* Per request; per token; sparse. */
static void set_parts(struct request_case *c, struct corrected *to)
{
	c->parts[0] = (struct kvk_prep_plan_part){.first = 0,
						  .last = c->split,
						  .kv_segment_rows = c->split,
						  .qo_offset_rows = c->split,
						  .kv_segment_lens = to->part[0],
						  .qo_offset = to->part[1]};
	c->parts[1] = (struct kvk_prep_plan_part){.first = c->split,
						  .last = c->batch,
						  .kv_segment_rows = c->tokens - c->tokens_before_split,
						  .qo_offset_rows = c->tokens - c->tokens_before_split,
						  .kv_segment_lens = to->part[2],
						  .qo_offset = to->part[3]};
	c->parts[2] = (struct kvk_prep_plan_part){.first = 0,
						  .last = c->batch,
						  .sparse_flavour = 1,
						  .seqused_rows = c->tokens,
						  .seqused_k = to->part[4]};
}

static struct kvk_prep_correct_params params_of(struct request_case *c, struct corrected *to, uint32_t flags)
{
	set_parts(c, to);
	return (struct kvk_prep_correct_params){.size = sizeof(struct kvk_prep_correct_params),
						.flags = flags,
						.batch = c->batch,
						.page_tokens = 4,
						.table_width = 16,
						.room = MAX_TOKENS,
						.slot_bytes = 8,
						.part_count = flags ? 0 : 3,
						.qo_lens = c->qo,
						.staged = c->staged,
						.corrected = c->lens,
						.table = c->table,
						.parts = flags ? NULL : c->parts,
						.slots = to->slots,
						.n_valid = to->n_valid,
						.seq_lens = to->seq_lens,
						.cu_kv = to->cu_kv};
}

/* A part's rows match when they are as many as its requests, or its tokens; the host refuses others. */
static bool parts_match(const struct request_case *c)
{
	const int32_t rest = c->tokens - c->tokens_before_split;

	return rest >= c->batch - c->split && c->tokens >= c->batch && c->tokens > 0;
}

static void corrections_are_the_hosts(void **state)
{
	struct request_case *c = malloc(sizeof(*c));
	struct corrected *got = malloc(sizeof(*got)), *want = malloc(sizeof(*want));
	int done = 0;

	(void)state;
	while (done < 24) {
		const uint32_t flags = done % 2 ? KVK_PREP_NEWEST : 0;
		struct kvk_prep_correct_params p;
		int32_t faults[3] = {-1, -1, -1};
		struct simt_device device;

		open_case(c);
		if (!parts_match(c))
			continue;
		memset(got, 0xff, sizeof(*got));
		memset(want, 0xff, sizeof(*want));
		p = params_of(c, want, flags);
		assert_int_equal(kvk_prep_correct(&p), 0);
		p = params_of(c, got, flags);
		simt_device_open(&device, 4, 0, (uint64_t)done);
		assert_int_equal(kvk_prep_correct_cuda(&device.device, &p, 0, faults), 0);
		assert_memory_equal(got, want, sizeof(*got));
		/* Once more, in place: nothing changes. */
		memcpy(c->lens, got->seq_lens, sizeof(c->lens));
		p.seq_lens = c->lens;
		assert_int_equal(kvk_prep_correct_cuda(&device.device, &p, 0, faults), 0);
		assert_memory_equal(got, want, sizeof(*got));
		assert_memory_equal(c->lens, want->seq_lens, (size_t)c->batch * sizeof(int32_t));
		for (int i = 0; i < p.part_count; i++)
			assert_int_equal(faults[i], 0);
		done++;
	}
	free(c);
	free(got);
	free(want);
}

static void a_part_without_a_target_is_an_error(void **state)
{
	struct request_case *c = malloc(sizeof(*c));
	struct corrected *got = malloc(sizeof(*got));
	struct kvk_prep_correct_params p;
	int32_t faults[3] = {-1, -1, -1};
	struct simt_device device;

	(void)state;
	memset(got, 0xff, sizeof(*got));
	do
		open_case(c);
	while (!parts_match(c));
	simt_device_open(&device, 4, 0, 0);
	p = params_of(c, got, 0);
	c->parts[0].qo_offset = NULL;
	assert_int_equal(kvk_prep_correct_cuda(&device.device, &p, 0, faults), -ENOENT);
	p = params_of(c, got, 0);
	c->parts[2].seqused_rows = c->batch - 1;
	assert_int_equal(kvk_prep_correct_cuda(&device.device, &p, 0, faults), -ERANGE);
	assert_int_equal(device.launches, 0);
	/* Rows that only the device can count: the part is left alone and named. */
	p = params_of(c, got, 0);
	c->parts[2].seqused_rows = c->tokens + 1;
	assert_int_equal(kvk_prep_correct_cuda(&device.device, &p, 0, faults), 0);
	assert_int_equal(faults[0], 0);
	assert_int_equal(faults[2], 1);
	for (int32_t i = 0; i < c->tokens; i++)
		assert_int_equal(got->part[4][i], -1);
	free(c);
	free(got);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(equal_parts_are_the_references),
		cmocka_unit_test(fixed_pieces_cover_every_sequence_once),
		cmocka_unit_test(merges_agree_with_the_reference),
		cmocka_unit_test(corrections_are_the_hosts),
		cmocka_unit_test(a_part_without_a_target_is_an_error),
	};

	kvt_watchdog(280);
	rng.state = kvt_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
