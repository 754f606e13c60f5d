/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is refused, and with which error. Each operation starts from a call that succeeds; one field at a
 * time is then made wrong, and the reference and the dispatched version must both refuse without having
 * written anything.
 */
#include "fixture.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

enum { TOKENS = 2, WIDTH = 3 };

static float zeros[8 * KVK_MLA_WIDTH];
static char scratch[16 << 20] __attribute__((aligned(KVK_SCRATCH_ALIGN)));
static float written[8 * KVK_MLA_WIDTH];
static int32_t written_ints[64];
static const int32_t table[2 * WIDTH] = {0, 1, 2147483647, 1, -1, -1};
static const int32_t lens[] = {3, 2};
static const int32_t ints[8];
static const int32_t offsets[] = {0, 1, 2};
static const int64_t slots[] = {0, 1};

static const struct kvk_mla_dense_params mla_dense = {.size = sizeof(mla_dense),
						      .batch = 2,
						      .s_q = 1,
						      .heads = 1,
						      .page_tokens = TOKENS,
						      .pages = 2,
						      .table_width = WIDTH,
						      .q_dtype = KVK_F32,
						      .kv_dtype = KVK_F32,
						      .out_dtype = KVK_F32,
						      .scale = 1,
						      .q = zeros,
						      .kv = zeros,
						      .block_table = table,
						      .lens = lens,
						      .out = written,
						      .scratch = scratch,
						      .scratch_bytes = sizeof(scratch)};
static const struct kvk_mla_sparse_params mla_sparse = {.size = sizeof(mla_sparse),
							.batch = 1,
							.s_q = 1,
							.heads = 1,
							.topk = 2,
							.page_tokens = TOKENS,
							.pages = 2,
							.q_dtype = KVK_F32,
							.kv_dtype = KVK_F32,
							.out_dtype = KVK_F32,
							.scale = 1,
							.q = zeros,
							.kv = zeros,
							.indices = ints,
							.out = written,
							.scratch = scratch,
							.scratch_bytes = sizeof(scratch)};
static const struct kvk_gqa_dense_params gqa_dense = {.size = sizeof(gqa_dense),
						      .batch = 2,
						      .rows = 2,
						      .heads = 4,
						      .kv_heads = 2,
						      .head_dim = 8,
						      .page_tokens = TOKENS,
						      .pages = 2,
						      .table_width = WIDTH,
						      .q_dtype = KVK_F32,
						      .kv_dtype = KVK_F32,
						      .out_dtype = KVK_F32,
						      .scale = 1,
						      .q = zeros,
						      .k = zeros,
						      .v = zeros,
						      .block_table = table,
						      .lens = lens,
						      .cu_q = offsets,
						      .out = written,
						      .scratch = scratch,
						      .scratch_bytes = sizeof(scratch)};
static const struct kvk_msa_scores_params msa_scores = {.size = sizeof(msa_scores),
							.batch = 2,
							.rows = 2,
							.index_heads = 1,
							.dim = 8,
							.block_tokens = 2,
							.blocks = 2,
							.page_tokens = TOKENS,
							.pages = 2,
							.table_width = WIDTH,
							.q_dtype = KVK_F32,
							.k_dtype = KVK_F32,
							.index_q = zeros,
							.index_k = zeros,
							.block_table = table,
							.lens = lens,
							.cu_q = offsets,
							.score = written,
							.scratch = scratch,
							.scratch_bytes = sizeof(scratch)};
static const struct kvk_msa_select_params msa_select = {.size = sizeof(msa_select),
							.heads = 1,
							.rows = 2,
							.blocks = 4,
							.topk = 2,
							.local_blocks = 1,
							.score = zeros,
							.n_valid = lens,
							.selected = written_ints};
static const struct kvk_msa_sparse_params msa_sparse = {.size = sizeof(msa_sparse),
							.batch = 2,
							.rows = 2,
							.heads = 4,
							.kv_heads = 2,
							.head_dim = 8,
							.block_tokens = 2,
							.topk = 2,
							.page_tokens = TOKENS,
							.pages = 2,
							.table_width = WIDTH,
							.q_dtype = KVK_F32,
							.kv_dtype = KVK_F32,
							.out_dtype = KVK_F32,
							.scale = 1,
							.q = zeros,
							.k = zeros,
							.v = zeros,
							.selected = ints,
							.block_table = table,
							.lens = lens,
							.cu_q = offsets,
							.out = written,
							.scratch = scratch,
							.scratch_bytes = sizeof(scratch)};
static const struct kvk_mla_write_params mla_write = {.size = sizeof(mla_write),
						      .tokens = 2,
						      .page_tokens = TOKENS,
						      .pages = 2,
						      .slot_bytes = 8,
						      .src_dtype = KVK_F32,
						      .kv_dtype = KVK_F32,
						      .latent = zeros,
						      .rope = zeros,
						      .slots = slots,
						      .kv = written};
static const struct kvk_kv_write_params kv_write = {.size = sizeof(kv_write),
						    .tokens = 2,
						    .heads = 1,
						    .head_dim = 8,
						    .page_tokens = TOKENS,
						    .pages = 2,
						    .slot_bytes = 8,
						    .src_dtype = KVK_F32,
						    .cache_dtype = KVK_F32,
						    .k = zeros,
						    .v = zeros,
						    .slots = slots,
						    .k_cache = written,
						    .v_cache = written + 64};
static const int32_t splits[] = {0, 2};
static const struct kvk_combine_params combine = {.size = sizeof(combine),
						  .batch = 1,
						  .s_q = 1,
						  .heads = 1,
						  .dim = 8,
						  .partials = 2,
						  .out_dtype = KVK_F32,
						  .partial_out = zeros,
						  .partial_lse = zeros,
						  .num_splits = splits,
						  .out = written};
static struct kvk_mla_plan_part plan[4];
static const struct kvk_mla_plan_params mla_plan = {.size = sizeof(mla_plan),
						    .batch = 2,
						    .parts = 4,
						    .block_tokens = 64,
						    .overhead = 5,
						    .lens = lens,
						    .plan = plan,
						    .num_splits = written_ints};

static void poison_outputs(void)
{
	memset(written, 0xff, sizeof(written));
	memset(written_ints, 0xff, sizeof(written_ints));
	memset(plan, 0xff, sizeof(plan));
}

static void assert_nothing_written(void)
{
	const unsigned char *outputs[] = {(unsigned char *)written, (unsigned char *)written_ints,
					  (unsigned char *)plan};
	const size_t sizes[] = {sizeof(written), sizeof(written_ints), sizeof(plan)};

	for (int n = 0; n < 3; n++)
		for (size_t i = 0; i < sizes[n]; i++)
			assert_int_equal(outputs[n][i], 0xff);
}

/* Two threads that have to be refused before they run. */
static void no_run(void *context, kvk_task_fn task, void *arg)
{
	(void)context;
	(void)task;
	(void)arg;
	fail_msg("threads of a refused call were run");
}

/* The call `op` with `field` set to `value` returns `error` in both versions. */
#define REFUSED(error, op, field, value)                                                                     \
	do {                                                                                                 \
		struct kvk_##op##_params p_ = op;                                                            \
                                                                                                             \
		p_.field = value;                                                                            \
		poison_outputs();                                                                            \
		assert_int_equal(kvk_##op##_ref(&p_), error);                                                \
		assert_int_equal(kvk_##op(&p_), error);                                                      \
		assert_nothing_written();                                                                    \
	} while (0)

/* The call as it stands succeeds in both versions, and a NULL struct does not. */
#define ACCEPTED(op)                                                                                         \
	do {                                                                                                 \
		assert_int_equal(kvk_##op##_ref(&op), 0);                                                    \
		assert_int_equal(kvk_##op(&op), 0);                                                          \
		assert_int_equal(kvk_##op##_ref(NULL), -EINVAL);                                             \
		assert_int_equal(kvk_##op(NULL), -EINVAL);                                                   \
	} while (0)

static void the_calls_that_the_other_tests_spoil_succeed(void **state)
{
	(void)state;
	ACCEPTED(mla_dense);
	ACCEPTED(mla_sparse);
	ACCEPTED(gqa_dense);
	ACCEPTED(msa_scores);
	ACCEPTED(msa_select);
	ACCEPTED(msa_sparse);
	ACCEPTED(mla_write);
	ACCEPTED(kv_write);
	ACCEPTED(combine);
	ACCEPTED(mla_plan);
}

static void required_pointers_may_not_be_null(void **state)
{
	(void)state;
	REFUSED(-EINVAL, mla_dense, q, NULL);
	REFUSED(-EINVAL, mla_dense, kv, NULL);
	REFUSED(-EINVAL, mla_dense, block_table, NULL);
	REFUSED(-EINVAL, mla_dense, lens, NULL);
	REFUSED(-EINVAL, mla_dense, out, NULL);
	REFUSED(-EINVAL, mla_sparse, q, NULL);
	REFUSED(-EINVAL, mla_sparse, kv, NULL);
	REFUSED(-EINVAL, mla_sparse, indices, NULL);
	REFUSED(-EINVAL, mla_sparse, out, NULL);
	REFUSED(-EINVAL, gqa_dense, q, NULL);
	REFUSED(-EINVAL, gqa_dense, k, NULL);
	REFUSED(-EINVAL, gqa_dense, v, NULL);
	REFUSED(-EINVAL, gqa_dense, block_table, NULL);
	REFUSED(-EINVAL, gqa_dense, lens, NULL);
	REFUSED(-EINVAL, gqa_dense, out, NULL);
	REFUSED(-EINVAL, msa_scores, index_q, NULL);
	REFUSED(-EINVAL, msa_scores, index_k, NULL);
	REFUSED(-EINVAL, msa_scores, block_table, NULL);
	REFUSED(-EINVAL, msa_scores, lens, NULL);
	REFUSED(-EINVAL, msa_scores, score, NULL);
	REFUSED(-EINVAL, msa_select, score, NULL);
	REFUSED(-EINVAL, msa_select, n_valid, NULL);
	REFUSED(-EINVAL, msa_select, selected, NULL);
	REFUSED(-EINVAL, msa_sparse, q, NULL);
	REFUSED(-EINVAL, msa_sparse, k, NULL);
	REFUSED(-EINVAL, msa_sparse, v, NULL);
	REFUSED(-EINVAL, msa_sparse, selected, NULL);
	REFUSED(-EINVAL, msa_sparse, block_table, NULL);
	REFUSED(-EINVAL, msa_sparse, lens, NULL);
	REFUSED(-EINVAL, msa_sparse, out, NULL);
	REFUSED(-EINVAL, mla_write, latent, NULL);
	REFUSED(-EINVAL, mla_write, rope, NULL);
	REFUSED(-EINVAL, mla_write, slots, NULL);
	REFUSED(-EINVAL, mla_write, kv, NULL);
	REFUSED(-EINVAL, kv_write, k, NULL);
	REFUSED(-EINVAL, kv_write, v, NULL); /* but not its cache */
	REFUSED(-EINVAL, kv_write, v_cache, NULL);
	REFUSED(-EINVAL, kv_write, slots, NULL);
	REFUSED(-EINVAL, kv_write, k_cache, NULL);
	REFUSED(-EINVAL, combine, partial_out, NULL);
	REFUSED(-EINVAL, combine, partial_lse, NULL);
	REFUSED(-EINVAL, combine, num_splits, NULL);
	REFUSED(-EINVAL, combine, out, NULL);
	REFUSED(-EINVAL, mla_plan, lens, NULL);
	REFUSED(-EINVAL, mla_plan, plan, NULL);
	REFUSED(-EINVAL, mla_plan, num_splits, NULL);
}

static void impossible_sizes_are_refused(void **state)
{
	(void)state;
	REFUSED(-EINVAL, mla_dense, batch, -1);
	REFUSED(-EINVAL, mla_dense, s_q, 0);
	REFUSED(-EINVAL, mla_dense, heads, 0);
	REFUSED(-EINVAL, mla_dense, page_tokens, 0);
	REFUSED(-EINVAL, mla_dense, pages, -1);
	REFUSED(-EINVAL, mla_dense, table_width, -1);
	REFUSED(-EINVAL, mla_sparse, topk, -1);
	REFUSED(-EINVAL, mla_sparse, heads, -1);
	REFUSED(-EINVAL, mla_sparse, page_tokens, 0);
	REFUSED(-EINVAL, gqa_dense, rows, -1);
	REFUSED(-EINVAL, gqa_dense, heads, 3);
	REFUSED(-EINVAL, gqa_dense, kv_heads, 0);
	REFUSED(-EINVAL, gqa_dense, head_dim, 0);
	REFUSED(-EINVAL, gqa_dense, head_dim, KVK_MAX_HEAD_DIM + 1);
	REFUSED(-EINVAL, gqa_dense, s_q, 1); /* beside cu_q */
	REFUSED(-EINVAL, msa_scores, block_tokens, 0);
	REFUSED(-EINVAL, msa_scores, dim, KVK_MAX_HEAD_DIM + 1);
	REFUSED(-EINVAL, msa_scores, blocks, -1);
	REFUSED(-EINVAL, msa_select, topk, 0);
	REFUSED(-EINVAL, msa_select, init_blocks, -1);
	REFUSED(-EINVAL, msa_select, local_blocks, -1);
	REFUSED(-EINVAL, msa_sparse, heads, 5);
	REFUSED(-EINVAL, msa_sparse, block_tokens, 0);
	REFUSED(-EINVAL, mla_write, slot_bytes, 2);
	REFUSED(-EINVAL, mla_write, tokens, -1);
	REFUSED(-EINVAL, kv_write, slot_bytes, 0);
	REFUSED(-EINVAL, kv_write, heads, 0);
	REFUSED(-EINVAL, combine, dim, 0);
	REFUSED(-EINVAL, combine, partials, -1);
	REFUSED(-EINVAL, mla_plan, parts, 0);
	REFUSED(-EINVAL, mla_plan, block_tokens, 0);
	REFUSED(-EINVAL, mla_plan, overhead, -1);
}

static void unknown_and_misplaced_dtypes_are_told_apart(void **state)
{
	(void)state;
	REFUSED(-EINVAL, mla_dense, q_dtype, 0);
	REFUSED(-EINVAL, mla_dense, kv_dtype, 6);
	REFUSED(-EINVAL, mla_dense, out_dtype, 0xffffffff);
	REFUSED(-ENOTSUP, mla_dense, q_dtype, KVK_E4M3);
	REFUSED(-ENOTSUP, mla_dense, kv_dtype, KVK_E4M3);
	REFUSED(-ENOTSUP, mla_dense, out_dtype, KVK_MLA_FP8);
	REFUSED(-ENOTSUP, gqa_dense, kv_dtype, KVK_MLA_FP8);
	REFUSED(-ENOTSUP, msa_scores, k_dtype, KVK_MLA_FP8);
	REFUSED(-EINVAL, msa_sparse, kv_dtype, 7);
	REFUSED(-ENOTSUP, mla_write, src_dtype, KVK_E4M3);
	REFUSED(-ENOTSUP, kv_write, cache_dtype, KVK_MLA_FP8);
	REFUSED(-ENOTSUP, combine, out_dtype, KVK_E4M3);
	assert_int_equal(kvk_dtype_bytes(KVK_F32), 4);
	assert_int_equal(kvk_dtype_bytes(KVK_F16), 2);
	assert_int_equal(kvk_dtype_bytes(KVK_MLA_FP8), 1);
	assert_int_equal(kvk_dtype_bytes(0), 0);
	assert_int_equal(kvk_dtype_bytes(6), 0);
}

static void unknown_flags_scales_and_reserved_fields_are_refused(void **state)
{
	(void)state;
	REFUSED(-EINVAL, mla_dense, flags, 2);
	REFUSED(-EINVAL, mla_sparse, flags, KVK_CAUSAL);
	REFUSED(-EINVAL, gqa_dense, flags, 0x80000000);
	REFUSED(-EINVAL, msa_scores, flags, 1);
	REFUSED(-EINVAL, msa_select, flags, 1);
	REFUSED(-EINVAL, msa_sparse, flags, 1);
	REFUSED(-EINVAL, mla_write, flags, 1);
	REFUSED(-EINVAL, kv_write, flags, 1);
	REFUSED(-EINVAL, combine, flags, 1);
	REFUSED(-EINVAL, mla_plan, flags, 1);
	REFUSED(-EINVAL, mla_dense, scale, 0);
	REFUSED(-EINVAL, mla_dense, scale, -1);
	REFUSED(-EINVAL, mla_sparse, scale, INFINITY);
	REFUSED(-EINVAL, gqa_dense, scale, NAN);
	REFUSED(-EINVAL, gqa_dense, reserved, 1);
	REFUSED(-EINVAL, msa_sparse, reserved, 1);
}

static void strides_that_leave_the_address_space_are_refused(void **state)
{
	(void)state;
	REFUSED(-EINVAL, mla_dense, q_stride_batch, -1);
	REFUSED(-EINVAL, kv_write, k_cache_stride_head, -1);
	REFUSED(-EOVERFLOW, mla_dense, kv_stride_page, INT64_MAX / 2);
	REFUSED(-EOVERFLOW, mla_dense, q_stride_batch, INT64_MAX);
	REFUSED(-EOVERFLOW, gqa_dense, k_stride_token, INT64_MAX / 4);
	REFUSED(-EOVERFLOW, msa_sparse, out_stride_row, INT64_MAX / 2);
	REFUSED(-EOVERFLOW, mla_write, kv_stride_page, INT64_MAX / 2);
	REFUSED(-EOVERFLOW, mla_write, kv_stride_token, INT64_MAX / 2);
	REFUSED(-EOVERFLOW, msa_select, score_stride_row, INT64_MAX / 4);
}

static void tables_that_leave_their_bounds_are_refused(void **state)
{
	static const int32_t long_len[] = {7, 2};
	static const int32_t wide[] = {INT32_MAX, 2};
	static const int32_t third_page[] = {5, 2}; /* table[2] is 2147483647 */
	static const int32_t negative_page[] = {3, 4};
	static const int32_t falling[] = {0, 2, 1};
	static const int32_t late[] = {0, 1, 3};
	static const int32_t early[] = {-1, 0, 1};
	static const int32_t too_many[] = {0, 3};
	static const int64_t far_slots[] = {0, 4};

	(void)state;
	REFUSED(-ERANGE, mla_dense, lens, long_len);
	REFUSED(-ERANGE, mla_dense, lens, wide);
	REFUSED(-ERANGE, mla_dense, lens, third_page);
	REFUSED(-ERANGE, mla_dense, lens, negative_page);
	REFUSED(-ERANGE, mla_dense, pages, 1);
	REFUSED(-ERANGE, gqa_dense, lens, third_page);
	REFUSED(-ERANGE, gqa_dense, cu_q, falling);
	REFUSED(-ERANGE, gqa_dense, cu_q, late);
	REFUSED(-ERANGE, gqa_dense, cu_q, early);
	REFUSED(-ERANGE, msa_scores, lens, negative_page);
	REFUSED(-ERANGE, msa_scores, cu_q, late);
	REFUSED(-ERANGE, msa_scores, blocks, 1);
	REFUSED(-ERANGE, msa_sparse, lens, long_len);
	REFUSED(-ERANGE, msa_sparse, cu_q, falling);
	REFUSED(-ERANGE, mla_write, slots, far_slots);
	REFUSED(-ERANGE, kv_write, slots, far_slots);
	REFUSED(-ERANGE, combine, num_splits, too_many);
	REFUSED(-ERANGE, combine, num_splits, early);
}

static void threads_that_cannot_run_are_refused(void **state)
{
	static const struct kvk_threads broken[] = {
		{.size = sizeof(*broken), .count = 0, .run = no_run},
		{.size = sizeof(*broken), .count = KVK_MAX_THREADS + 1, .run = no_run},
		{.size = sizeof(*broken), .count = 2},
		{.size = sizeof(*broken) - 1, .count = 2, .run = no_run},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(broken) / sizeof(*broken); i++) {
		REFUSED(-EINVAL, mla_dense, threads, &broken[i]);
		REFUSED(-EINVAL, mla_sparse, threads, &broken[i]);
		REFUSED(-EINVAL, gqa_dense, threads, &broken[i]);
		REFUSED(-EINVAL, msa_scores, threads, &broken[i]);
		REFUSED(-EINVAL, msa_select, threads, &broken[i]);
		REFUSED(-EINVAL, msa_sparse, threads, &broken[i]);
		REFUSED(-EINVAL, mla_write, threads, &broken[i]);
		REFUSED(-EINVAL, kv_write, threads, &broken[i]);
		REFUSED(-EINVAL, combine, threads, &broken[i]);
	}
}

/*
 * The size is told without arrays; one byte less of scratch, none and a crooked one are refused, where any is needed;
 * a bad shape has no size.
 */
#define SCRATCH_RULES(op, table_field, out_field)                                                            \
	do {                                                                                                 \
		const struct kvk_##op##_params whole_ = op;                                                  \
		struct kvk_##op##_params p_ = op;                                                            \
		size_t bytes_ = 1;                                                                           \
		size_t again_ = 2;                                                                           \
                                                                                                             \
		assert_int_equal(kvk_##op##_scratch(&whole_, &bytes_), 0);                                   \
		assert_true(bytes_ <= sizeof(scratch));                                                      \
		p_.table_field = NULL;                                                                       \
		p_.out_field = NULL;                                                                         \
		assert_int_equal(kvk_##op##_scratch(&p_, &again_), 0);                                       \
		assert_int_equal(bytes_, again_);                                                            \
		p_.page_tokens = 0;                                                                          \
		assert_int_equal(kvk_##op##_scratch(&p_, &again_), -EINVAL);                                 \
		assert_int_equal(bytes_, again_);                                                            \
		assert_int_equal(kvk_##op##_scratch(NULL, &again_), -EINVAL);                                \
		p_ = whole_;                                                                                 \
		poison_outputs();                                                                            \
		if (bytes_) {                                                                                \
			p_.scratch_bytes = bytes_ - 1;                                                       \
			assert_int_equal(kvk_##op(&p_), -ENOSPC);                                            \
			p_.scratch_bytes = bytes_;                                                           \
			p_.scratch = NULL;                                                                   \
			assert_int_equal(kvk_##op(&p_), -EINVAL);                                            \
			p_.scratch = scratch + KVK_SCRATCH_ALIGN / 2;                                        \
			assert_int_equal(kvk_##op(&p_), -EINVAL);                                            \
		}                                                                                            \
		assert_nothing_written();                                                                    \
		p_.scratch = scratch;                                                                        \
		p_.scratch_bytes = bytes_;                                                                   \
		assert_int_equal(kvk_##op(&p_), 0);                                                          \
	} while (0)

static void scratch_is_asked_by_shape_and_refused_when_it_does_not_do(void **state)
{
	(void)state;
	SCRATCH_RULES(mla_dense, lens, out);
	SCRATCH_RULES(gqa_dense, lens, out);
	SCRATCH_RULES(msa_sparse, selected, out);
	SCRATCH_RULES(mla_sparse, indices, out);
	SCRATCH_RULES(msa_scores, block_table, score);
}

/* A struct of a later release: known fields, then `tail`. */
struct later {
	struct kvk_msa_select_params known;
	uint64_t tail;
};

static void longer_structs_are_taken_when_the_tail_is_zero(void **state)
{
	struct later later = {.known = msa_select};

	(void)state;
	later.known.size = sizeof(later);
	assert_int_equal(kvk_msa_select(&later.known), 0);
	later.tail = 1ull << 63;
	poison_outputs();
	assert_int_equal(kvk_msa_select(&later.known), -E2BIG);
	assert_int_equal(kvk_msa_select_ref(&later.known), -E2BIG);
	assert_nothing_written();
}

static void shorter_structs_are_extended_with_zeros(void **state)
{
	struct kvk_msa_select_params p = msa_select;

	(void)state;
	p.size = offsetof(struct kvk_msa_select_params, score_stride_head);
	p.score_stride_head = -1; /* behind the caller's end: not read */
	assert_int_equal(kvk_msa_select(&p), 0);
	p.size = offsetof(struct kvk_msa_select_params, selected);
	assert_int_equal(kvk_msa_select(&p), -EINVAL);
	p.size = 0;
	assert_int_equal(kvk_msa_select(&p), -EINVAL);
	p.size = 3;
	assert_int_equal(kvk_msa_select(&p), -EINVAL);
}

static void nothing_to_do_succeeds_without_looking_at_pointers(void **state)
{
	struct kvk_mla_dense_params d = mla_dense;
	struct kvk_gqa_dense_params g = gqa_dense;
	struct kvk_mla_write_params w = mla_write;

	(void)state;
	d.batch = 0;
	d.q = NULL;
	d.block_table = NULL;
	assert_int_equal(kvk_mla_dense(&d), 0);
	g.rows = 0;
	g.lens = NULL;
	assert_int_equal(kvk_gqa_dense(&g), 0);
	w.tokens = 0;
	w.kv = NULL;
	assert_int_equal(kvk_mla_write(&w), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_calls_that_the_other_tests_spoil_succeed),
		cmocka_unit_test(required_pointers_may_not_be_null),
		cmocka_unit_test(impossible_sizes_are_refused),
		cmocka_unit_test(unknown_and_misplaced_dtypes_are_told_apart),
		cmocka_unit_test(unknown_flags_scales_and_reserved_fields_are_refused),
		cmocka_unit_test(strides_that_leave_the_address_space_are_refused),
		cmocka_unit_test(threads_that_cannot_run_are_refused),
		cmocka_unit_test(scratch_is_asked_by_shape_and_refused_when_it_does_not_do),
		cmocka_unit_test(tables_that_leave_their_bounds_are_refused),
		cmocka_unit_test(longer_structs_are_taken_when_the_tail_is_zero),
		cmocka_unit_test(shorter_structs_are_extended_with_zeros),
		cmocka_unit_test(nothing_to_do_succeeds_without_looking_at_pointers),
	};

	kvt_watchdog(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
