/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views of index-K pages: the same bytes in both layouts, nothing past the pool's end, no view where layouts differ;
 * and the vector loops of each level against plain C.
 */
#include "support.h"

#include "cpu/level.h"
#include "prep/prep.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS 8
#define DIM 16
#define SCALE 3
#define SLOTS 5
#define PAGE (TOKENS * DIM) /* elements */

static struct kvt_rng rng;
static struct kvk_prep_fault fault;

/* A pool of SLOTS slots of SCALE pages; the layer's page is the last of a slot, so that an overrun shows. */
static struct kvk_prep_view_params params(uint16_t *pool, uint32_t layout)
{
	return (struct kvk_prep_view_params){.size = sizeof(struct kvk_prep_view_params),
					     .layout = layout,
					     .dtype = KVK_BF16,
					     .heads = 1,
					     .head_dim = DIM,
					     .page_tokens = TOKENS,
					     .scale = SCALE,
					     .layer_offset = 2,
					     .page_upper_bound = SLOTS * SCALE - 2,
					     .page_stride_bytes = PAGE * 2,
					     .base = pool + 2 * PAGE,
					     .fault = &fault};
}

static void views_of_both_layouts_are_the_same_bytes(void **state)
{
	uint16_t *pool = calloc(SLOTS * SCALE * PAGE, sizeof(*pool));
	struct kvk_prep_view nhd, hnd;
	struct kvk_prep_view_params p = params(pool, KVK_PREP_NHD);

	(void)state;
	assert_int_equal(kvk_prep_index_k_view(&p, &nhd), 0);
	p.layout = KVK_PREP_HND;
	assert_int_equal(kvk_prep_index_k_view(&p, &hnd), 0);
	assert_true(nhd.base == pool + 2 * PAGE && hnd.base == nhd.base);
	assert_true(nhd.slots == SLOTS && nhd.slot_stride == SCALE * PAGE &&
		    hnd.slot_stride == nhd.slot_stride);
	assert_true(nhd.token_stride == DIM && hnd.token_stride == DIM);
	assert_true(hnd.head_stride == PAGE && nhd.head_stride == DIM);
	/* The last page's end is the pool's; the slot's full extent would pass it by the layer's offset. */
	assert_true((char *)nhd.base + nhd.extent_bytes == (char *)(pool + SLOTS * SCALE * PAGE));
	free(pool);
}

static void a_scale_of_one_is_a_plain_array(void **state)
{
	uint16_t pool[4 * PAGE];
	struct kvk_prep_view view;
	struct kvk_prep_view_params p = params(pool, KVK_PREP_NHD);

	(void)state;
	p.scale = 1;
	p.layer_offset = 0;
	p.page_upper_bound = 4;
	p.base = pool;
	assert_int_equal(kvk_prep_index_k_view(&p, &view), 0);
	assert_true(view.slots == 4 && view.slot_stride == PAGE &&
		    view.extent_bytes == (int64_t)sizeof(pool));
	p.page_upper_bound = 0;
	assert_int_equal(kvk_prep_index_k_view(&p, &view), 0);
	assert_true(view.slots == 0 && view.extent_bytes == 0);
}

static void assert_refused(const struct kvk_prep_view_params *p, int want, const char *name, int64_t value,
			   int64_t limit)
{
	struct kvk_prep_view view = {.slots = -77};

	assert_int_equal(kvk_prep_index_k_view(p, &view), want);
	assert_string_equal(fault.name, name);
	assert_true(fault.value == value && fault.limit == limit);
	assert_int_equal(view.slots, -77);
}

static void views_that_would_be_wrong_are_refused(void **state)
{
	uint16_t pool[SCALE * PAGE];
	struct kvk_prep_view_params p = params(pool, KVK_PREP_HND);

	(void)state;
	p.heads = 2;
	p.page_stride_bytes = PAGE * 4;
	assert_refused(&p, -ENOTSUP, "heads", 2, 1);
	p.layout = KVK_PREP_NHD;
	assert_int_equal(kvk_prep_index_k_view(&p, &(struct kvk_prep_view){0}), 0);
	p = params(pool, 3);
	assert_refused(&p, -EINVAL, "layout", 3, KVK_PREP_HND);
	p = params(pool, 0);
	assert_refused(&p, -EINVAL, "layout", 0, KVK_PREP_HND);
	p = params(pool, KVK_PREP_NHD);
	p.page_stride_bytes++;
	assert_refused(&p, -EINVAL, "page_stride_bytes", PAGE * 2 + 1, PAGE * 2);
	p = params(pool, KVK_PREP_NHD);
	p.page_upper_bound--;
	assert_refused(&p, -ERANGE, "page_upper_bound", SLOTS * SCALE - 3, (SLOTS - 1) * SCALE - 2);
	p = params(pool, KVK_PREP_NHD);
	p.layer_offset = SCALE;
	assert_refused(&p, -EINVAL, "layer_offset", SCALE, SCALE - 1);
	p = params(pool, KVK_PREP_NHD);
	p.dtype = KVK_MLA_FP8;
	assert_refused(&p, -EINVAL, "dtype", KVK_MLA_FP8, KVK_E4M3);
	p = params(pool, KVK_PREP_NHD);
	p.heads = p.head_dim = p.page_tokens = INT32_MAX;
	assert_refused(&p, -EOVERFLOW, "page_tokens", INT32_MAX, INT64_MAX);
	p = params(pool, KVK_PREP_NHD);
	p.page_upper_bound = INT64_MAX;
	assert_refused(&p, -EOVERFLOW, "page_upper_bound", INT64_MAX, INT32_MAX);
	p = params(pool, KVK_PREP_NHD);
	p.base = NULL;
	assert_refused(&p, -EINVAL, "base", 0, 0);
}

/* Written through one layout, read through the other; padding and rows past the live ones are left out. */
static void slots_are_written_through_a_view_in_place(void **state)
{
	enum { ROWS = 6 };
	static const int32_t slots[ROWS] = {3, -1, 2 * TOKENS, 4 * TOKENS + 7, 1, 2};
	uint16_t *pool = malloc(SLOTS * SCALE * PAGE * sizeof(*pool));
	uint16_t *want = malloc(SLOTS * SCALE * PAGE * sizeof(*pool));
	uint16_t values[ROWS][DIM];

	(void)state;
	for (int i = 0; i < ROWS * DIM; i++)
		values[i / DIM][i % DIM] = (uint16_t)kvt_rng_next(&rng);
	for (uint32_t layout = KVK_PREP_NHD; layout <= KVK_PREP_HND; layout++) {
		struct kvk_prep_view_params p = params(pool, layout);
		struct kvk_prep_view view;
		struct kvk_prep_write_params w = {.size = sizeof(w),
						  .live_tokens = 4,
						  .slot_count = ROWS,
						  .value_rows = ROWS,
						  .slot_bytes = 4,
						  .src_dtype = KVK_BF16,
						  .view = &view,
						  .values = values,
						  .slots = slots,
						  .fault = &fault};

		memset(pool, 0xff, SLOTS * SCALE * PAGE * sizeof(*pool));
		memset(want, 0xff, SLOTS * SCALE * PAGE * sizeof(*pool));
		for (int t = 0; t < 4; t++)
			if (slots[t] >= 0)
				memcpy(want + (slots[t] / TOKENS * SCALE + 2) * PAGE +
					       slots[t] % TOKENS * DIM,
				       values[t], sizeof(values[t]));
		assert_int_equal(kvk_prep_index_k_view(&p, &view), 0);
		assert_int_equal(kvk_prep_write_slots(&w), 0);
		assert_memory_equal(pool, want, SLOTS * SCALE * PAGE * sizeof(*pool));
	}
	free(pool);
	free(want);
}

static void writes_refuse_more_live_rows_than_there_are(void **state)
{
	uint16_t pool[SCALE * PAGE] = {0};
	uint16_t values[DIM] = {0};
	static const int64_t slots[] = {TOKENS};
	struct kvk_prep_view view = {.base = pool,
				     .dtype = KVK_BF16,
				     .layout = KVK_PREP_NHD,
				     .slots = 1,
				     .page_tokens = TOKENS,
				     .heads = 1,
				     .head_dim = DIM,
				     .slot_stride = SCALE * PAGE,
				     .token_stride = DIM,
				     .head_stride = DIM};
	struct kvk_prep_write_params w = {.size = sizeof(w),
					  .live_tokens = 2,
					  .slot_count = 1,
					  .value_rows = 2,
					  .slot_bytes = 8,
					  .src_dtype = KVK_BF16,
					  .view = &view,
					  .values = values,
					  .slots = slots,
					  .fault = &fault};

	(void)state;
	assert_int_equal(kvk_prep_write_slots(&w), -ERANGE);
	assert_true(!strcmp(fault.name, "live_tokens") && fault.value == 2 && fault.limit == 1);
	w.slot_count = 2;
	w.value_rows = 1;
	assert_int_equal(kvk_prep_write_slots(&w), -ERANGE);
	w.live_tokens = -1;
	assert_int_equal(kvk_prep_write_slots(&w), -EINVAL);
	w.live_tokens = 1; /* its slot is past the only page */
	assert_int_equal(kvk_prep_write_slots(&w), -ERANGE);
	assert_string_equal(fault.name, "kvk_kv_write");
	view.layout = 9;
	assert_int_equal(kvk_prep_write_slots(&w), -EINVAL);
	w.live_tokens = 0;
	w.view = NULL;
	assert_int_equal(kvk_prep_write_slots(&w), 0);
}

/* ------------------------------------------------------------------ loops */

KVK_LEVEL_TABLES(kvk_prep_ops, kvk_prep);

#define MAX_COUNT 300

/* Rows of one table at random strides; ids * scale stay below 2^31. */
static void check_block_ids(const struct kvk_prep_ops *ops, const int32_t *ids, int32_t count)
{
	static const int64_t divisors[] = {1, 2, 3, 7, 12, 61, 4096, 4097, 65536, 1 << 30, INT32_MAX};
	struct kvk_prep_ratio ratio = {.scale = 1, .divisor = divisors[kvt_rng_below(&rng, 11)], .none = -1};
	int32_t out[MAX_COUNT + 8];
	const struct kvk_prep_block_ids_params p = {.batch = 1,
						    .row_width = count,
						    .width = count + 3,
						    .slots = ids,
						    .out = out,
						    .slots_stride = count,
						    .out_stride = count + 3};
	uint32_t high = 0;

	while (ratio.divisor > INT64_C(1) << ratio.shift)
		ratio.shift++;
	if (ratio.divisor != INT64_C(1) << ratio.shift) {
		ratio.shift += 31;
		ratio.magic = (uint32_t)((UINT64_C(1) << ratio.shift) / (uint64_t)ratio.divisor + 1);
	}
	out[count + 3] = -77;
	for (int i = 0; i < count; i++)
		high = (uint32_t)ids[i] + 1 > high ? (uint32_t)ids[i] + 1 : high;
	assert_int_equal(ops->block_ids(&p, &ratio), high);
	for (int i = 0; i < count + 3; i++)
		assert_int_equal(out[i], i >= count || ids[i] < 0 ? -1 : ids[i] / ratio.divisor);
	assert_int_equal(out[count + 3], -77);
}

static void check_runs(const struct kvk_prep_ops *ops, int32_t count)
{
	int32_t narrow[MAX_COUNT + 1];
	int64_t wide[MAX_COUNT + 1];

	narrow[count] = -77;
	wide[count] = -77;
	ops->count_up32(narrow, 1000, count);
	ops->count_up64(wide, INT64_C(1) << 40, count);
	for (int i = 0; i < count; i++)
		assert_true(narrow[i] == 1000 + i && wide[i] == (INT64_C(1) << 40) + i);
	ops->fill(narrow, 9, count);
	for (int i = 0; i < count; i++)
		assert_int_equal(narrow[i], 9);
	assert_true(narrow[count] == -77 && wide[count] == -77);
}

static void loops_of_every_level_compute_the_same(void **state)
{
	int32_t ids[MAX_COUNT];

	(void)state;
	for (int level = 0; level < KVK_LEVELS; level++)
		for (int round = 0; kvk_level_usable((enum kvk_level)level) && round < 500; round++) {
			const struct kvk_prep_ops *ops = KVK_LEVEL_TABLE(kvk_prep, level);
			int32_t count = (int32_t)kvt_rng_below(&rng, MAX_COUNT);
			int shift = (int)kvt_rng_below(&rng, 31);

			for (int i = 0; i < count; i++)
				ids[i] = kvt_rng_below(&rng, 6) ? (int32_t)(kvt_rng_next(&rng) >> 33 >> shift)
								: -1;
			if (count)
				ids[0] = kvt_rng_below(&rng, 2) ? INT32_MAX : -2;
			check_block_ids(ops, ids, count);
			check_runs(ops, count);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(views_of_both_layouts_are_the_same_bytes),
		cmocka_unit_test(a_scale_of_one_is_a_plain_array),
		cmocka_unit_test(views_that_would_be_wrong_are_refused),
		cmocka_unit_test(slots_are_written_through_a_view_in_place),
		cmocka_unit_test(writes_refuse_more_live_rows_than_there_are),
		cmocka_unit_test(loops_of_every_level_compute_the_same),
	};

	kvt_watchdog(60);
	rng.state = kvt_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
