/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans and length corrections: random steps against the rules written out a token at a time, done twice; and that a
 * part which is not whole is refused before anything is written.
 */
#include "support.h"

#include <kvpool/prep.h>

#include <errno.h>
#include <string.h>

#define BATCH 7
#define MAX_TOKENS 700
#define WIDTH 40
#define CANARY (-77)

static struct kvt_rng rng;
static struct kvk_prep_fault fault;
static int32_t qo[BATCH], staged[BATCH], corrected[BATCH], table[BATCH * WIDTH];
static int32_t slots[MAX_TOKENS + 1], n_valid[MAX_TOKENS + 1], seq_lens[BATCH + 1], cu_kv[BATCH + 2];
static int64_t wide[MAX_TOKENS + 1];
static int32_t segment[MAX_TOKENS + 1], offset[MAX_TOKENS + 1], used[MAX_TOKENS + 1];

static int32_t between(int32_t low, int32_t high)
{
	return low + (int32_t)kvt_rng_below(&rng, (uint64_t)(high - low) + 1);
}

static void fill(int32_t *at, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		at[i] = CANARY;
}

static void fill_outputs(void)
{
	fill(slots, MAX_TOKENS + 1);
	fill(n_valid, MAX_TOKENS + 1);
	fill(seq_lens, BATCH + 1);
	fill(cu_kv, BATCH + 2);
	fill(segment, MAX_TOKENS + 1);
	fill(offset, MAX_TOKENS + 1);
	fill(used, MAX_TOKENS + 1);
	for (int i = 0; i <= MAX_TOKENS; i++)
		wide[i] = CANARY;
}

static struct kvk_prep_correct_params correction(uint32_t flags)
{
	return (struct kvk_prep_correct_params){.size = sizeof(struct kvk_prep_correct_params),
						.flags = flags,
						.batch = BATCH,
						.page_tokens = 4,
						.table_width = WIDTH,
						.room = MAX_TOKENS,
						.slot_bytes = 4,
						.qo_lens = qo,
						.staged = staged,
						.corrected = corrected,
						.table = table,
						.slots = slots,
						.n_valid = n_valid,
						.seq_lens = seq_lens,
						.fault = &fault};
}

static void random_step(void)
{
	for (int r = 0; r < BATCH; r++) {
		qo[r] = between(0, kvt_rng_below(&rng, 2) ? 4 : 90);
		staged[r] = between(-1, 170);
		corrected[r] = kvt_rng_below(&rng, 3) ? staged[r] - between(0, 5) : between(-5, 300);
	}
	for (int i = 0; i < BATCH * WIDTH; i++)
		table[i] = between(-1, 1 << 20);
}

static int32_t kv_of(int32_t r)
{
	return corrected[r] < staged[r] ? corrected[r] : staged[r];
}

static int32_t above(int32_t value, int32_t least)
{
	return value > least ? value : least;
}

static int32_t model_slot(const struct kvk_prep_correct_params *p, int32_t r, int32_t pos)
{
	int32_t column, id;

	if (!(p->flags & KVK_PREP_NEWEST))
		return table[r * WIDTH + (pos < 0 ? 0 : pos >= WIDTH ? WIDTH - 1 : pos)];
	pos = above(pos, 0);
	column = pos / p->page_tokens < WIDTH ? pos / p->page_tokens : WIDTH - 1;
	id = table[r * WIDTH + column];
	return id < 0 ? -1 : id * p->page_tokens + pos % p->page_tokens;
}

static void check_tokens(const struct kvk_prep_correct_params *p)
{
	const int32_t least = p->flags & KVK_PREP_NEWEST ? 0 : 1;
	int32_t at = 0;
	int32_t sum = 0;

	for (int32_t r = 0; r < BATCH; r++) {
		for (int32_t i = 0; i < qo[r]; i++, at++) {
			int32_t pos = kv_of(r) - qo[r] + i;

			assert_int_equal(p->slot_bytes == 4 ? slots[at] : wide[at], model_slot(p, r, pos));
			assert_int_equal(n_valid[at],
					 (above(pos + 1, least) + p->page_tokens - 1) / p->page_tokens);
		}
		assert_int_equal(seq_lens[r], kv_of(r));
		if (p->cu_kv)
			assert_int_equal(cu_kv[r], sum);
		sum += above(kv_of(r), 0);
	}
	if (p->cu_kv)
		assert_int_equal(cu_kv[BATCH], sum);
	assert_true(n_valid[at] == CANARY && seq_lens[BATCH] == CANARY && cu_kv[BATCH + 1] == CANARY);
	assert_true(p->slot_bytes == 4 ? slots[at] == CANARY : wide[at] == CANARY);
}

static void corrections_follow_the_rule_token_by_token(void **state)
{
	(void)state;
	for (int round = 0; round < 2000; round++) {
		struct kvk_prep_correct_params p = correction(kvt_rng_below(&rng, 2) ? KVK_PREP_NEWEST : 0);
		int32_t tokens = 0;

		random_step();
		for (int r = 0; r < BATCH; r++)
			tokens += qo[r];
		p.page_tokens = between(1, 64);
		p.slot_bytes = kvt_rng_below(&rng, 2) ? 4 : 8;
		p.slots = p.slot_bytes == 4 ? (void *)slots : (void *)wide;
		p.cu_kv = kvt_rng_below(&rng, 2) ? cu_kv : NULL;
		fill_outputs();
		assert_int_equal(kvk_prep_correct(&p), 0);
		if (!tokens)
			continue;
		check_tokens(&p);
		assert_int_equal(kvk_prep_correct(&p), 0);
		check_tokens(&p);
	}
}

/* seq_lens may be the corrected lengths themselves: the second time nothing changes any more. */
static void corrections_may_happen_in_place(void **state)
{
	static int32_t first[MAX_TOKENS];
	struct kvk_prep_correct_params p = correction(KVK_PREP_NEWEST);

	(void)state;
	random_step();
	qo[0] = 1;
	p.seq_lens = corrected;
	assert_int_equal(kvk_prep_correct(&p), 0);
	memcpy(first, slots, sizeof(first));
	assert_int_equal(kvk_prep_correct(&p), 0);
	assert_memory_equal(first, slots, sizeof(first));
}

static int32_t tokens_of(int32_t first, int32_t last)
{
	int32_t tokens = 0;

	for (int32_t r = first; r < last; r++)
		tokens += qo[r];
	return tokens;
}

static void check_part(const struct kvk_prep_plan_part *part, bool per_token)
{
	int32_t at = 0;

	for (int32_t r = part->first; r < part->last; r++)
		for (int32_t i = 0; i < (per_token ? qo[r] : 1); i++, at++) {
			int32_t pos = kv_of(r) - qo[r] + i;

			if (part->sparse_flavour) {
				assert_int_equal(used[at], per_token ? above(pos + 1, 0) : kv_of(r));
				continue;
			}
			assert_int_equal(segment[at], kv_of(r));
			assert_int_equal(offset[at], above(pos, 0));
		}
	assert_true(segment[part->sparse_flavour ? 0 : at] == CANARY);
	assert_true(used[part->sparse_flavour ? at : 0] == CANARY);
	assert_true(offset[part->sparse_flavour ? 0 : at] == CANARY);
}

static void corrections_patch_every_form_of_part(void **state)
{
	(void)state;
	for (int round = 0; round < 1000; round++) {
		struct kvk_prep_correct_params p = correction(0);
		struct kvk_prep_plan_part part = {.sparse_flavour = (uint32_t)kvt_rng_below(&rng, 2),
						  .kv_segment_lens = segment,
						  .qo_offset = offset,
						  .seqused_k = used};
		bool per_token = kvt_rng_below(&rng, 2);

		random_step();
		qo[BATCH - 1] = 2;
		part.first = between(0, BATCH - 1);
		part.last = between(part.first, BATCH);
		if (tokens_of(part.first, part.last) == part.last - part.first)
			per_token = false;
		part.kv_segment_rows = per_token ? tokens_of(part.first, part.last) : part.last - part.first;
		part.qo_offset_rows = part.seqused_rows = part.kv_segment_rows;
		p.parts = &part;
		p.part_count = 1;
		fill_outputs();
		assert_int_equal(kvk_prep_correct(&p), 0);
		check_part(&part, per_token);
		assert_int_equal(kvk_prep_correct(&p), 0);
		check_part(&part, per_token);
	}
}

static void assert_nothing_written(void)
{
	assert_true(slots[0] == CANARY && n_valid[0] == CANARY && seq_lens[0] == CANARY);
	assert_true(segment[0] == CANARY && offset[0] == CANARY && used[0] == CANARY);
}

/* The second part is the broken one: the first must not have been patched. */
static void a_part_that_is_not_whole_is_refused_before_anything_is_written(void **state)
{
	static const char *const names[] = {"kv_segment_lens", "qo_offset", "seqused_k"};
	struct kvk_prep_correct_params p = correction(0);

	(void)state;
	random_step();
	for (int r = 0; r < BATCH; r++)
		qo[r] = 2;
	for (int key = 0; key < 3; key++)
		for (int missing = 0; missing < 2; missing++) {
			struct kvk_prep_plan_part parts[] = {
				{.last = 3,
				 .kv_segment_lens = segment,
				 .qo_offset = offset,
				 .kv_segment_rows = 3,
				 .qo_offset_rows = 6},
				{.first = 3,
				 .last = BATCH,
				 .sparse_flavour = key == 2,
				 .kv_segment_lens = missing && key == 0 ? NULL : segment + 10,
				 .qo_offset = missing && key == 1 ? NULL : offset + 10,
				 .seqused_k = missing && key == 2 ? NULL : used,
				 .kv_segment_rows = key == 0 ? 5 : 4,
				 .qo_offset_rows = key == 1 ? 5 : 8,
				 .seqused_rows = key == 2 ? 5 : 8}};

			p.parts = parts;
			p.part_count = 2;
			fill_outputs();
			assert_int_equal(kvk_prep_correct(&p), missing ? -ENOENT : -ERANGE);
			assert_string_equal(fault.name, names[key]);
			assert_true(fault.index == 1 && fault.value == (missing ? 0 : 5));
			assert_true(fault.limit == 4 && fault.other_limit == 8);
			assert_true(fault.first == 3 && fault.last == BATCH);
			assert_nothing_written();
		}
}

static void corrections_refuse_hostile_input(void **state)
{
	struct kvk_prep_plan_part part = {.first = 2, .last = BATCH + 1};
	struct kvk_prep_correct_params p = correction(0);

	(void)state;
	random_step();
	qo[0] = 3;
	fill_outputs();
	p.parts = &part;
	p.part_count = 1;
	assert_int_equal(kvk_prep_correct(&p), -ERANGE);
	assert_string_equal(fault.name, "last");
	part = (struct kvk_prep_plan_part){.first = 2, .last = 1};
	assert_int_equal(kvk_prep_correct(&p), -ERANGE);
	p.flags = KVK_PREP_NEWEST;
	assert_int_equal(kvk_prep_correct(&p), -EINVAL);
	assert_string_equal(fault.name, "part_count");
	p = correction(0);
	p.table_width = 0;
	assert_int_equal(kvk_prep_correct(&p), -ERANGE);
	p = correction(KVK_PREP_NEWEST);
	p.page_tokens = 1 << 20;
	for (int i = 0; i < BATCH * WIDTH; i++)
		table[i] = 2048;
	assert_int_equal(kvk_prep_correct(&p), -EOVERFLOW);
	assert_string_equal(fault.name, "table");
	p = correction(0);
	qo[3] = -1;
	assert_int_equal(kvk_prep_correct(&p), -ERANGE);
	assert_true(!strcmp(fault.name, "qo_lens") && fault.index == 3 && fault.value == -1);
	qo[3] = MAX_TOKENS;
	assert_int_equal(kvk_prep_correct(&p), -ENOSPC);
	assert_nothing_written();
	/* Lengths may be anything: what is not positive is an empty sequence. */
	memset(qo, 0, sizeof(qo));
	qo[0] = 1;
	staged[0] = INT32_MIN;
	corrected[0] = INT32_MAX;
	p.cu_kv = cu_kv;
	for (int r = 1; r < BATCH; r++)
		staged[r] = corrected[r] = 1;
	assert_int_equal(kvk_prep_correct(&p), 0);
	assert_true(seq_lens[0] == INT32_MIN && n_valid[0] == 1 && cu_kv[BATCH] == BATCH - 1);
	staged[1] = corrected[1] = INT32_MAX;
	assert_int_equal(kvk_prep_correct(&p), -EOVERFLOW);
	assert_string_equal(fault.name, "cu_kv");
}

/* ------------------------------------------------------------------ plans */

static void plans_split_at_the_first_long_query(void **state)
{
	static const int32_t lens[] = {1, 32, 33, 129};
	int32_t split = -1;

	(void)state;
	assert_int_equal(kvk_prep_plan_split(lens, 4, KVK_PREP_SPARSE_THRESHOLD, &split), 0);
	assert_int_equal(split, 2);
	assert_int_equal(kvk_prep_plan_split(lens, 4, KVK_PREP_DENSE_THRESHOLD, &split), 0);
	assert_int_equal(split, 3);
	assert_int_equal(kvk_prep_plan_split(lens, 3, KVK_PREP_DENSE_THRESHOLD, &split), 0);
	assert_int_equal(split, 0);
	assert_int_equal(kvk_prep_plan_split(lens + 3, 1, KVK_PREP_DENSE_THRESHOLD, &split), 0);
	assert_int_equal(split, 0);
	assert_int_equal(kvk_prep_plan_split(NULL, 0, 1, &split), 0);
	split = CANARY;
	assert_int_equal(kvk_prep_plan_split(NULL, 1, 1, &split), -EINVAL);
	assert_int_equal(kvk_prep_plan_split(lens, -1, 1, &split), -EINVAL);
	assert_int_equal(split, CANARY);
}

static void plans_expand_to_one_row_a_token(void **state)
{
	int32_t rows = 0;
	struct kvk_prep_expand_params p = {.size = sizeof(p),
					   .batch = BATCH,
					   .room = MAX_TOKENS,
					   .qo_lens = qo,
					   .kv_lens = staged,
					   .qo_offset = corrected,
					   .out_qo_lens = used,
					   .out_kv_lens = segment,
					   .out_qo_offset = offset,
					   .out_page_indptr = slots,
					   .out_rows = &rows,
					   .fault = &fault};

	(void)state;
	for (int round = 0; round < 500; round++) {
		int32_t at = 0;
		int32_t pages = 0;

		random_step();
		p.page_tokens = between(1, 64);
		fill_outputs();
		assert_int_equal(kvk_prep_plan_expand(&p), 0);
		for (int r = 0; r < BATCH; r++) {
			for (int i = 0; i < qo[r]; i++, at++)
				assert_true(used[at] == 1 && segment[at] == staged[r] &&
					    offset[at] == corrected[r] + i && slots[at] == pages);
			pages += (above(staged[r], 0) + p.page_tokens - 1) / p.page_tokens;
		}
		assert_true(rows == at && slots[at] == pages && segment[at] == CANARY && used[at] == CANARY);
	}
	p.room = 0;
	qo[1] = 1;
	assert_int_equal(kvk_prep_plan_expand(&p), -ENOSPC);
	p.room = MAX_TOKENS;
	qo[1] = 2;
	corrected[1] = INT32_MAX;
	assert_int_equal(kvk_prep_plan_expand(&p), -EOVERFLOW);
	assert_true(!strcmp(fault.name, "qo_offset") && fault.index == 1);
}

static void plan_lengths_refuse_what_does_not_fit(void **state)
{
	struct kvk_prep_lengths total = {.total_q = CANARY};
	struct kvk_prep_lengths_params p = {.size = sizeof(p),
					    .batch = 2,
					    .page_tokens = 16,
					    .qo_lens = qo,
					    .kv_lens = staged,
					    .qo_offset = corrected,
					    .cu_q = slots,
					    .cu_k = n_valid,
					    .seqused_k = used,
					    .fault = &fault};

	(void)state;
	fill_outputs();
	qo[0] = 40;
	qo[1] = 64;
	staged[0] = INT32_MAX;
	staged[1] = 1;
	corrected[0] = corrected[1] = 0;
	assert_int_equal(kvk_prep_plan_lengths(&p, &total), -EOVERFLOW);
	assert_string_equal(fault.name, "kv_lens");
	staged[0] = -1;
	assert_int_equal(kvk_prep_plan_lengths(&p, &total), -ERANGE);
	staged[0] = 100;
	corrected[1] = INT32_MAX - 63;
	assert_int_equal(kvk_prep_plan_lengths(&p, &total), -EOVERFLOW);
	assert_true(!strcmp(fault.name, "qo_offset") && fault.index == 1);
	assert_true(total.total_q == CANARY && slots[0] == CANARY && used[0] == CANARY);
	corrected[1] = -1;
	assert_int_equal(kvk_prep_plan_lengths(&p, &total), 0);
	assert_true(total.max_q == 64 && total.max_k == 100 && total.total_q == 104 && total.total_k == 101);
	assert_true(total.total_rows == 8 && used[0] == 40 && used[1] == 63 && slots[2] == 104);
	assert_int_equal(kvk_prep_plan_lengths(&p, NULL), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(corrections_follow_the_rule_token_by_token),
		cmocka_unit_test(corrections_may_happen_in_place),
		cmocka_unit_test(corrections_patch_every_form_of_part),
		cmocka_unit_test(a_part_that_is_not_whole_is_refused_before_anything_is_written),
		cmocka_unit_test(corrections_refuse_hostile_input),
		cmocka_unit_test(plans_split_at_the_first_long_query),
		cmocka_unit_test(plans_expand_to_one_row_a_token),
		cmocka_unit_test(plan_lengths_refuse_what_does_not_fit),
	};

	kvt_watchdog(60);
	rng.state = kvt_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
