/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Block ids, slots, page lists and valid blocks: random tables against the rules written out one entry at a time in 64
 * bits, the traps in those rules, and what is refused, with what is said about it.
 */
#include "support.h"

#include <kvpool/prep.h>

#include <errno.h>
#include <string.h>

#define MAX_BATCH 9
#define MAX_WIDTH 70
#define CANARY (-77)

static struct kvt_rng rng;
static struct kvk_prep_fault fault;

static int32_t between(int32_t low, int32_t high)
{
	return low + (int32_t)kvt_rng_below(&rng, (uint64_t)(high - low) + 1);
}

static void assert_fault(int ret, int want, const char *name, int64_t index, int64_t value, int64_t limit)
{
	assert_int_equal(ret, want);
	assert_string_equal(fault.name, name);
	assert_int_equal(fault.index, index);
	assert_int_equal(fault.value, value);
	assert_int_equal(fault.limit, limit);
}

static void fill(int32_t *at, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		at[i] = CANARY;
}

/* ------------------------------------------------------------------ block ids */

static int32_t slots[MAX_BATCH * MAX_WIDTH];
static int32_t row_of[MAX_BATCH];
static int32_t num_blocks[MAX_BATCH];
static int32_t most[MAX_BATCH];
static int32_t out[MAX_BATCH * (MAX_WIDTH + 8)];
static int32_t indptr[MAX_BATCH + 1];
static int32_t out_width;

static struct kvk_prep_block_ids_params block_ids(void)
{
	return (struct kvk_prep_block_ids_params){.size = sizeof(struct kvk_prep_block_ids_params),
						  .batch = MAX_BATCH,
						  .rows = MAX_BATCH,
						  .row_width = MAX_WIDTH,
						  .scale = 1,
						  .divisor = 1,
						  .layers = 1,
						  .slots = slots,
						  .out = out,
						  .out_width = &out_width,
						  .fault = &fault,
						  .out_room = MAX_BATCH * (MAX_WIDTH + 8)};
}

static int32_t model_id(const struct kvk_prep_block_ids_params *p, int32_t slot)
{
	if (slot == -1)
		return p->flags & KVK_PREP_KEEP_BAD ? -1 : 0;
	return (int32_t)((int64_t)slot * p->scale / p->divisor / p->layers);
}

static int32_t model_count(const struct kvk_prep_block_ids_params *p, int32_t i)
{
	int32_t count = p->num_blocks ? p->num_blocks[i] : p->row_width;

	return p->most && p->most[i] < count ? p->most[i] : count;
}

/* Slots small enough for every id to fit. */
static void random_slots(const struct kvk_prep_block_ids_params *p)
{
	int64_t end = (int64_t)INT32_MAX * p->divisor / p->scale;
	int32_t high = end < INT32_MAX ? (int32_t)end : INT32_MAX;

	high = kvt_rng_below(&rng, 2) ? high : between(0, high);
	for (int i = 0; i < MAX_BATCH * MAX_WIDTH; i++)
		slots[i] = kvt_rng_below(&rng, 5) ? between(0, high) : -1;
	for (int i = 0; i < MAX_BATCH; i++) {
		row_of[i] = between(0, p->rows - 1);
		num_blocks[i] = between(0, p->row_width);
		most[i] = between(0, p->row_width + 3);
	}
}

static void random_ids_params(struct kvk_prep_block_ids_params *p)
{
	static const int32_t factors[] = {1, 2, 3, 6, 7, 8, 61, 122, 4097, 65536, 1 << 30, INT32_MAX};

	p->batch = between(1, MAX_BATCH);
	p->rows = between(p->batch, MAX_BATCH);
	p->row_width = between(0, MAX_WIDTH);
	p->scale = factors[kvt_rng_below(&rng, 12)];
	p->divisor = factors[kvt_rng_below(&rng, 12)];
	p->layers = factors[kvt_rng_below(&rng, 12)];
	p->flags = (uint32_t)kvt_rng_below(&rng, 4);
	p->row_of = kvt_rng_below(&rng, 2) ? row_of : NULL;
	p->num_blocks = kvt_rng_below(&rng, 2) ? num_blocks : NULL;
	p->most = kvt_rng_below(&rng, 2) ? most : NULL;
	random_slots(p);
	p->slots_stride = p->row_width && kvt_rng_below(&rng, 2) ? between(p->row_width, MAX_WIDTH) : 0;
	if (p->flags & KVK_PREP_FLAT)
		p->indptr = indptr;
	else if (kvt_rng_below(&rng, 2))
		p->width = p->row_width + between(0, 4);
}

static void check_ids(const struct kvk_prep_block_ids_params *p)
{
	const int64_t stride = p->slots_stride ? p->slots_stride : p->row_width;
	const bool flat = p->flags & KVK_PREP_FLAT;
	int32_t at = 0;

	for (int32_t i = 0; i < p->batch; i++) {
		const int32_t *row = slots + (p->row_of ? row_of[i] : i) * stride;

		if (flat)
			assert_int_equal(indptr[i], at);
		for (int32_t j = 0; j < (flat ? model_count(p, i) : out_width); j++)
			assert_int_equal(out[at++], model_id(p, j < model_count(p, i) ? row[j] : -1));
	}
	if (flat)
		assert_true(indptr[p->batch] == at && out_width == at);
	else if (p->width)
		assert_int_equal(out_width, p->width);
	assert_int_equal(out[at], CANARY);
}

static void block_ids_follow_the_rule_entry_by_entry(void **state)
{
	(void)state;
	for (int round = 0; round < 3000; round++) {
		struct kvk_prep_block_ids_params p = block_ids();

		random_ids_params(&p);
		fill(out, MAX_BATCH * (MAX_WIDTH + 8));
		assert_int_equal(kvk_prep_block_ids(&p), 0);
		check_ids(&p);
	}
}

/* 61 layers and 35.2 million slots pass 2^31: 32 bits would wrap. The quotient fits and is exact. */
static void block_ids_do_not_wrap_before_they_are_divided(void **state)
{
	struct kvk_prep_block_ids_params p = block_ids();

	(void)state;
	p.batch = p.rows = p.row_width = 1;
	p.scale = 61;
	p.layers = 60;
	slots[0] = 35204650;
	assert_int_equal(kvk_prep_block_ids(&p), 0);
	assert_int_equal(out[0], 35791394);
	p.layers = 1;
	assert_fault(kvk_prep_block_ids(&p), -EOVERFLOW, "slots", 0, 35204650, 35204649);
	slots[0] = 35204649;
	assert_int_equal(kvk_prep_block_ids(&p), 0);
	assert_int_equal(out[0], 2147483589);
}

static void block_ids_are_as_wide_as_the_longest_or_as_told(void **state)
{
	struct kvk_prep_block_ids_params p = block_ids();

	(void)state;
	memset(slots, 0, sizeof(slots));
	p.batch = 2;
	p.num_blocks = num_blocks;
	num_blocks[0] = 3;
	num_blocks[1] = 5;
	assert_int_equal(kvk_prep_block_ids(&p), 0);
	assert_int_equal(out_width, 5);
	p.width = 4;
	assert_fault(kvk_prep_block_ids(&p), -ERANGE, "width", -1, 4, 5);
	p.width = 6;
	p.out_room = 11;
	assert_fault(kvk_prep_block_ids(&p), -ENOSPC, "out", -1, 12, 11);
	num_blocks[0] = num_blocks[1] = 0;
	p.width = 0;
	p.out = NULL;
	assert_int_equal(kvk_prep_block_ids(&p), 0);
	assert_int_equal(out_width, 0);
	p.batch = 0;
	assert_int_equal(kvk_prep_block_ids(&p), 0);
}

static void block_ids_refuse_what_is_no_row_count_or_id(void **state)
{
	struct kvk_prep_block_ids_params p = block_ids();

	(void)state;
	memset(slots, 0, sizeof(slots));
	p.num_blocks = num_blocks;
	for (int i = 0; i < MAX_BATCH; i++)
		num_blocks[i] = 2;
	num_blocks[4] = -1;
	assert_fault(kvk_prep_block_ids(&p), -ERANGE, "num_blocks", 4, -1, 0);
	num_blocks[4] = MAX_WIDTH + 1;
	assert_fault(kvk_prep_block_ids(&p), -ERANGE, "num_blocks", 4, MAX_WIDTH + 1, MAX_WIDTH);
	num_blocks[4] = 2;
	p.row_of = row_of;
	memset(row_of, 0, sizeof(row_of));
	row_of[7] = MAX_BATCH;
	assert_fault(kvk_prep_block_ids(&p), -ERANGE, "row_of", 7, MAX_BATCH, MAX_BATCH);
	row_of[7] = -1;
	assert_fault(kvk_prep_block_ids(&p), -ERANGE, "row_of", 7, -1, MAX_BATCH);
	p.row_of = NULL;
	slots[3 * MAX_WIDTH + 1] = -2;
	assert_fault(kvk_prep_block_ids(&p), -ERANGE, "slots", 3 * MAX_WIDTH + 1, -2, -1);
	slots[3 * MAX_WIDTH + 1] = 0;
	slots[3 * MAX_WIDTH + 2] = -2; /* past the count: not looked at */
	assert_int_equal(kvk_prep_block_ids(&p), 0);
	p.rows = MAX_BATCH - 1;
	assert_fault(kvk_prep_block_ids(&p), -ERANGE, "batch", MAX_BATCH - 1, MAX_BATCH - 1, MAX_BATCH - 1);
}

static void block_ids_refuse_impossible_parameters(void **state)
{
	struct kvk_prep_block_ids_params p = block_ids();

	(void)state;
	p.scale = 0;
	assert_fault(kvk_prep_block_ids(&p), -EINVAL, "scale", -1, 0, 1);
	p = block_ids();
	p.divisor = -2;
	assert_fault(kvk_prep_block_ids(&p), -EINVAL, "divisor", -1, -2, 1);
	p = block_ids();
	p.layers = 0;
	assert_fault(kvk_prep_block_ids(&p), -EINVAL, "layers", -1, 0, 1);
	p = block_ids();
	p.batch = -1;
	assert_fault(kvk_prep_block_ids(&p), -EINVAL, "batch", -1, -1, 0);
	p = block_ids();
	p.flags = 4;
	assert_fault(kvk_prep_block_ids(&p), -EINVAL, "flags", -1, 4, 3);
	p = block_ids();
	p.flags = KVK_PREP_FLAT;
	p.width = 1;
	assert_fault(kvk_prep_block_ids(&p), -EINVAL, "width", -1, 1, 0);
	p = block_ids();
	p.slots = NULL;
	assert_fault(kvk_prep_block_ids(&p), -EINVAL, "slots", -1, 0, 0);
	p = block_ids();
	p.slots_stride = -1;
	assert_fault(kvk_prep_block_ids(&p), -EINVAL, "slots", -1, -1, 0);
	p = block_ids();
	p.slots_stride = INT64_MAX;
	assert_fault(kvk_prep_block_ids(&p), -EOVERFLOW, "slots", -1, INT64_MAX, 0);
	p = block_ids();
	p.out_stride = 1;
	assert_fault(kvk_prep_block_ids(&p), -EINVAL, "out_stride", -1, 1, MAX_WIDTH);
	p = block_ids();
	p.out = NULL;
	memset(slots, 0, sizeof(slots));
	assert_fault(kvk_prep_block_ids(&p), -EINVAL, "out", -1, 0, 0);
	p.fault = NULL;
	assert_int_equal(kvk_prep_block_ids(&p), -EINVAL);
	assert_int_equal(kvk_prep_block_ids(NULL), -EINVAL);
}

static void params_follow_the_size_rule(void **state)
{
	struct {
		struct kvk_prep_block_ids_params known;
		uint64_t tail;
	} longer = {.known = block_ids()};

	(void)state;
	memset(slots, 0, sizeof(slots));
	longer.known.size = sizeof(longer);
	assert_int_equal(kvk_prep_block_ids(&longer.known), 0);
	longer.tail = 1;
	assert_int_equal(kvk_prep_block_ids(&longer.known), -E2BIG);
}

/* ------------------------------------------------------------------ slots */

#define MAX_TOKENS 4000
static int32_t qo[MAX_BATCH], offset[MAX_BATCH], kv[MAX_BATCH];
static int32_t narrow[MAX_TOKENS + 1];
static int64_t wide[MAX_TOKENS + 1];
static int32_t tokens;

static struct kvk_prep_slots_params slot_params(int32_t width, int32_t page)
{
	return (struct kvk_prep_slots_params){.size = sizeof(struct kvk_prep_slots_params),
					      .batch = MAX_BATCH,
					      .table_width = width,
					      .page_tokens = page,
					      .room = MAX_TOKENS,
					      .slot_bytes = 4,
					      .block_ids = slots,
					      .qo_lens = qo,
					      .qo_offset = offset,
					      .out = narrow,
					      .out_tokens = &tokens,
					      .fault = &fault};
}

static int64_t model_slot(const struct kvk_prep_slots_params *p, int32_t r, int32_t i)
{
	int64_t end = (int64_t)p->table_width * p->page_tokens;
	int64_t pos = (int64_t)offset[r] + i;
	int32_t id;

	pos = pos > end - 1 ? end - 1 : pos;
	pos = pos < 0 ? 0 : pos;
	id = slots[r * p->table_width + pos / p->page_tokens];
	return id < 0 ? -1 : (int64_t)id * p->page_tokens + pos % p->page_tokens;
}

static void check_slots(const struct kvk_prep_slots_params *p)
{
	int32_t at = 0;

	for (int32_t r = 0; r < p->batch; r++)
		for (int32_t i = 0; i < qo[r]; i++, at++)
			assert_int_equal(p->slot_bytes == 4 ? narrow[at] : wide[at], model_slot(p, r, i));
	assert_int_equal(tokens, at);
	assert_int_equal(p->slot_bytes == 4 ? narrow[at] : wide[at], CANARY);
}

static void slots_follow_the_rule_token_by_token(void **state)
{
	(void)state;
	for (int round = 0; round < 2000; round++) {
		int32_t width = between(1, 12);
		int32_t page = between(1, 130);
		struct kvk_prep_slots_params p = slot_params(width, page);

		for (int i = 0; i < MAX_BATCH * width; i++)
			slots[i] = between(-1, 1000000);
		for (int r = 0; r < MAX_BATCH; r++) {
			qo[r] = between(0, kvt_rng_below(&rng, 2) ? 4 : 400);
			offset[r] = between(-3, width * page + 2);
		}
		fill(narrow, MAX_TOKENS + 1);
		for (int i = 0; i <= MAX_TOKENS; i++)
			wide[i] = CANARY;
		assert_int_equal(kvk_prep_slots(&p), 0);
		check_slots(&p);
		p.slot_bytes = 8;
		p.out = wide;
		assert_int_equal(kvk_prep_slots(&p), 0);
		check_slots(&p);
	}
}

static void slots_past_32_bits_need_8_bytes(void **state)
{
	struct kvk_prep_slots_params p = slot_params(2, 1 << 20);

	(void)state;
	memset(qo, 0, sizeof(qo));
	memset(offset, 0, sizeof(offset));
	memset(slots, 0, sizeof(slots));
	qo[1] = 2;
	offset[1] = (1 << 20) - 2;
	slots[2] = 2047;
	fill(narrow, 4);
	assert_int_equal(kvk_prep_slots(&p), 0);
	assert_int_equal(narrow[1], INT32_MAX);
	slots[2] = 2048;
	fill(narrow, 4);
	assert_fault(kvk_prep_slots(&p), -EOVERFLOW, "block_ids", 2, 2048, 2047);
	assert_int_equal(narrow[0], CANARY);
	p.slot_bytes = 8;
	p.out = wide;
	assert_int_equal(kvk_prep_slots(&p), 0);
	assert_true(wide[1] == (INT64_C(2049) << 20) - 1);
	slots[2] = INT32_MAX;
	assert_int_equal(kvk_prep_slots(&p), 0);
}

static void slots_refuse_hostile_counts(void **state)
{
	struct kvk_prep_slots_params p = slot_params(2, 4);

	(void)state;
	memset(qo, 0, sizeof(qo));
	qo[5] = -1;
	assert_fault(kvk_prep_slots(&p), -ERANGE, "qo_lens", 5, -1, 0);
	qo[4] = qo[5] = INT32_MAX;
	assert_fault(kvk_prep_slots(&p), -EOVERFLOW, "qo_lens", -1, 2 * (int64_t)INT32_MAX, INT32_MAX);
	qo[4] = 1;
	qo[5] = MAX_TOKENS;
	assert_fault(kvk_prep_slots(&p), -ENOSPC, "room", -1, MAX_TOKENS + 1, MAX_TOKENS);
	qo[5] = 0;
	p.table_width = 0;
	assert_fault(kvk_prep_slots(&p), -ERANGE, "table_width", -1, 0, 1);
	p = slot_params(2, 0);
	assert_fault(kvk_prep_slots(&p), -EINVAL, "page_tokens", -1, 0, 1);
	p = slot_params(2, 4);
	p.slot_bytes = 2;
	assert_fault(kvk_prep_slots(&p), -EINVAL, "slot_bytes", -1, 2, 8);
	p = slot_params(2, 4);
	p.block_ids = NULL;
	assert_fault(kvk_prep_slots(&p), -EINVAL, "block_ids", -1, 0, 0);
	/* Without a token nothing but counts is looked at. */
	qo[4] = 0;
	p.qo_offset = NULL;
	assert_int_equal(kvk_prep_slots(&p), 0);
	assert_int_equal(tokens, 0);
}

/* ------------------------------------------------------------------ page list */

static struct kvk_prep_page_list_params list_params(int32_t width, int32_t page)
{
	return (struct kvk_prep_page_list_params){.size = sizeof(struct kvk_prep_page_list_params),
						  .batch = MAX_BATCH,
						  .table_width = width,
						  .page_tokens = page,
						  .room = MAX_BATCH * MAX_WIDTH,
						  .block_ids = slots,
						  .kv_lens = kv,
						  .out = out,
						  .indptr = indptr,
						  .out_pages = &tokens,
						  .fault = &fault};
}

static void page_lists_hold_the_pages_of_each_length(void **state)
{
	(void)state;
	for (int round = 0; round < 1000; round++) {
		int32_t width = between(1, MAX_WIDTH);
		int32_t page = between(1, 70);
		struct kvk_prep_page_list_params p = list_params(width, page);
		int32_t at = 0;

		for (int i = 0; i < MAX_BATCH * width; i++)
			slots[i] = between(-1, 1000);
		for (int r = 0; r < MAX_BATCH; r++)
			kv[r] = between(-2, width * page);
		fill(out, MAX_BATCH * (MAX_WIDTH + 8));
		assert_int_equal(kvk_prep_page_list(&p), 0);
		for (int r = 0; r < MAX_BATCH; r++) {
			assert_int_equal(indptr[r], at);
			for (int j = 0; j * page < kv[r]; j++)
				assert_int_equal(out[at++], slots[r * width + j]);
		}
		assert_true(indptr[MAX_BATCH] == at && tokens == at && out[at] == CANARY);
	}
}

static void page_lists_refuse_lengths_that_the_table_does_not_hold(void **state)
{
	struct kvk_prep_page_list_params p = list_params(3, 8);

	(void)state;
	memset(kv, 0, sizeof(kv));
	kv[2] = 25;
	assert_fault(kvk_prep_page_list(&p), -ERANGE, "kv_lens", 2, 25, 24);
	kv[2] = INT32_MAX;
	assert_fault(kvk_prep_page_list(&p), -ERANGE, "kv_lens", 2, INT32_MAX, 24);
	kv[2] = 24;
	p.room = 2;
	assert_fault(kvk_prep_page_list(&p), -ENOSPC, "room", -1, 3, 2);
	p.out = NULL;
	assert_fault(kvk_prep_page_list(&p), -EINVAL, "out", -1, 0, 0);
	p.room = 0;
	p.block_ids = NULL;
	assert_int_equal(kvk_prep_page_list(&p), 0); /* indptr alone */
	assert_int_equal(indptr[MAX_BATCH], 3);
	kv[2] = INT32_MIN;
	assert_int_equal(kvk_prep_page_list(&p), 0);
	assert_int_equal(indptr[MAX_BATCH], 0);
}

/* ------------------------------------------------------------------ valid blocks */

static struct kvk_prep_valid_blocks_params valid_params(int32_t block)
{
	return (struct kvk_prep_valid_blocks_params){.size = sizeof(struct kvk_prep_valid_blocks_params),
						     .batch = MAX_BATCH,
						     .block_tokens = block,
						     .room = MAX_TOKENS,
						     .qo_lens = qo,
						     .kv_lens = kv,
						     .out = narrow,
						     .out_tokens = &tokens,
						     .fault = &fault};
}

static void valid_blocks_follow_the_rule_token_by_token(void **state)
{
	(void)state;
	for (int round = 0; round < 2000; round++) {
		struct kvk_prep_valid_blocks_params p = valid_params(between(1, 200));
		int32_t at = 0;

		for (int r = 0; r < MAX_BATCH; r++) {
			qo[r] = between(0, kvt_rng_below(&rng, 2) ? 4 : 400);
			kv[r] = between(-5, 700);
			offset[r] = between(-300, 700);
		}
		p.qo_offset = kvt_rng_below(&rng, 2) ? offset : NULL;
		fill(narrow, MAX_TOKENS + 1);
		assert_int_equal(kvk_prep_valid_blocks(&p), 0);
		for (int r = 0; r < MAX_BATCH; r++)
			for (int i = 0; i < qo[r]; i++) {
				int32_t seen = (p.qo_offset ? offset[r] : kv[r] - qo[r]) + i + 1;

				seen = seen < kv[r] ? seen : kv[r];
				assert_int_equal(narrow[at++],
						 seen <= 0 ? 0
							   : (seen + p.block_tokens - 1) / p.block_tokens);
			}
		assert_true(tokens == at && narrow[at] == CANARY);
	}
}

static void valid_blocks_stand_extreme_lengths(void **state)
{
	struct kvk_prep_valid_blocks_params p = valid_params(1);

	(void)state;
	memset(qo, 0, sizeof(qo));
	memset(kv, 0, sizeof(kv));
	memset(offset, 0, sizeof(offset));
	p.qo_offset = offset;
	qo[0] = qo[1] = qo[2] = 1;
	kv[0] = offset[0] = INT32_MAX;
	kv[1] = offset[1] = INT32_MIN;
	kv[2] = INT32_MIN;
	offset[2] = INT32_MAX;
	assert_int_equal(kvk_prep_valid_blocks(&p), 0);
	assert_true(narrow[0] == INT32_MAX && narrow[1] == 0 && narrow[2] == 0);
	p.block_tokens = INT32_MAX;
	assert_int_equal(kvk_prep_valid_blocks(&p), 0);
	assert_int_equal(narrow[0], 1);
	p.room = 2;
	assert_fault(kvk_prep_valid_blocks(&p), -ENOSPC, "room", -1, 3, 2);
	qo[3] = -4;
	assert_fault(kvk_prep_valid_blocks(&p), -ERANGE, "qo_lens", 3, -4, 0);
	p.block_tokens = 0;
	assert_fault(kvk_prep_valid_blocks(&p), -EINVAL, "block_tokens", -1, 0, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(block_ids_follow_the_rule_entry_by_entry),
		cmocka_unit_test(block_ids_do_not_wrap_before_they_are_divided),
		cmocka_unit_test(block_ids_are_as_wide_as_the_longest_or_as_told),
		cmocka_unit_test(block_ids_refuse_what_is_no_row_count_or_id),
		cmocka_unit_test(block_ids_refuse_impossible_parameters),
		cmocka_unit_test(params_follow_the_size_rule),
		cmocka_unit_test(slots_follow_the_rule_token_by_token),
		cmocka_unit_test(slots_past_32_bits_need_8_bytes),
		cmocka_unit_test(slots_refuse_hostile_counts),
		cmocka_unit_test(page_lists_hold_the_pages_of_each_length),
		cmocka_unit_test(page_lists_refuse_lengths_that_the_table_does_not_hold),
		cmocka_unit_test(valid_blocks_follow_the_rule_token_by_token),
		cmocka_unit_test(valid_blocks_stand_extreme_lengths),
	};

	kvt_watchdog(60);
	rng.state = kvt_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
