/* SPDX-License-Identifier: Apache-2.0 */
/* Plan splits, expansion to one row a token, and the lengths of sparse plans. */
#include "golden.h"

#include <kvpool/prep.h>

#include <stdlib.h>

static void check_split(struct golden *golden, const char *flavour, struct ints qo, int32_t threshold)
{
	static const char *const fields[] = {"split", "mixed", NULL};
	json_t *object = json_object_get(golden->fields, flavour);
	json_t *former = golden_enter(golden, object);
	int32_t want = golden_int(golden, "split");
	bool mixed = golden_bool(golden, "mixed");
	int32_t split = -1;

	golden_known(golden, fields);
	golden_enter(golden, former);
	if (golden_readable(golden) &&
	    golden_returns(golden, "kvk_prep_plan_split",
			   kvk_prep_plan_split(qo.at, qo.count, threshold, &split), 0))
		golden_line(golden, flavour, split == want && (split > 0) == mixed);
}

void golden_split(struct golden *golden)
{
	static const char *const fields[] = {"qo_lens", "dense", "sparse", NULL};
	struct ints qo = golden_ints(golden, "qo_lens");

	golden_known(golden, fields);
	check_split(golden, "dense", qo, KVK_PREP_DENSE_THRESHOLD);
	check_split(golden, "sparse", qo, KVK_PREP_SPARSE_THRESHOLD);
}

/* What both kinds are given. */
struct input {
	struct ints qo, kv, offset;
	int32_t page;
	int32_t tokens;
};

static struct input read_input(struct golden *golden)
{
	static const char *const outer[] = {"input", "output", NULL};
	static const char *const fields[] = {"qo_lens", "kv_lens", "qo_offset", "page_size", NULL};
	json_t *former;
	struct input in;

	golden_known(golden, outer);
	former = golden_enter(golden, json_object_get(golden->fields, "input"));
	golden_known(golden, fields);
	in = (struct input){.qo = golden_ints(golden, "qo_lens"),
			    .kv = golden_ints(golden, "kv_lens"),
			    .offset = golden_ints(golden, "qo_offset"),
			    .page = golden_int(golden, "page_size")};
	golden_enter(golden, former);
	if (in.kv.count != in.qo.count || in.offset.count != in.qo.count)
		golden_unreadable(golden, "input", "lists of other lengths");
	for (int32_t i = 0; i < in.qo.count; i++)
		in.tokens += in.qo.at[i];
	return in;
}

void golden_expand(struct golden *golden)
{
	static const char *const fields[] = {"qo_lens", "kv_lens", "qo_offset", "kv_page_indptr", NULL};
	struct input in = read_input(golden);
	int32_t rows = 0;
	struct kvk_prep_expand_params p = {.size = sizeof(p),
					   .batch = in.qo.count,
					   .page_tokens = in.page,
					   .room = in.tokens,
					   .qo_lens = in.qo.at,
					   .kv_lens = in.kv.at,
					   .qo_offset = in.offset.at,
					   .out_qo_lens = golden_filled(golden, in.tokens, -7),
					   .out_kv_lens = golden_filled(golden, in.tokens, -7),
					   .out_qo_offset = golden_filled(golden, in.tokens, -7),
					   .out_page_indptr = golden_filled(golden, in.tokens + 1, -7),
					   .out_rows = &rows};

	golden_enter(golden, json_object_get(golden->fields, "output"));
	golden_known(golden, fields);
	if (!golden_readable(golden) ||
	    !golden_returns(golden, "kvk_prep_plan_expand", kvk_prep_plan_expand(&p), 0))
		return;
	golden_same(golden, "qo_lens", golden_ints(golden, "qo_lens"), p.out_qo_lens, rows);
	golden_same(golden, "kv_lens", golden_ints(golden, "kv_lens"), p.out_kv_lens, rows);
	golden_same(golden, "qo_offset", golden_ints(golden, "qo_offset"), p.out_qo_offset, rows);
	golden_same(golden, "kv_page_indptr", golden_ints(golden, "kv_page_indptr"), p.out_page_indptr,
		    rows + 1);
}

static void check_total(struct golden *golden, const char *field, int32_t got)
{
	golden_line(golden, field, golden_int(golden, field) == got);
}

void golden_lengths(struct golden *golden)
{
	static const char *const fields[] = {"cu_seqlens_q", "cu_seqlens_k", "seqused_k",
					     "max_seqlen_q", "max_seqlen_k", "total_k",
					     "total_rows",   "total_q",      NULL};
	struct input in = read_input(golden);
	struct kvk_prep_lengths total = {0};
	struct kvk_prep_lengths_params p = {.size = sizeof(p),
					    .batch = in.qo.count,
					    .page_tokens = in.page,
					    .qo_lens = in.qo.at,
					    .kv_lens = in.kv.at,
					    .qo_offset = in.offset.at,
					    .cu_q = golden_filled(golden, in.qo.count + 1, -7),
					    .cu_k = golden_filled(golden, in.qo.count + 1, -7),
					    .seqused_k = golden_filled(golden, in.qo.count, -7)};

	golden_enter(golden, json_object_get(golden->fields, "output"));
	golden_known(golden, fields);
	if (!golden_readable(golden) ||
	    !golden_returns(golden, "kvk_prep_plan_lengths", kvk_prep_plan_lengths(&p, &total), 0))
		return;
	golden_same(golden, "cu_seqlens_q", golden_ints(golden, "cu_seqlens_q"), p.cu_q, in.qo.count + 1);
	golden_same(golden, "cu_seqlens_k", golden_ints(golden, "cu_seqlens_k"), p.cu_k, in.qo.count + 1);
	golden_same(golden, "seqused_k", golden_ints(golden, "seqused_k"), p.seqused_k, in.qo.count);
	check_total(golden, "max_seqlen_q", total.max_q);
	check_total(golden, "max_seqlen_k", total.max_k);
	check_total(golden, "total_k", total.total_k);
	check_total(golden, "total_q", total.total_q);
	check_total(golden, "total_rows", total.total_rows);
}
