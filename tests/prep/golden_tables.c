/* SPDX-License-Identifier: Apache-2.0 */
/* Block ids, slot mapping, page list and valid blocks. */
#include "golden.h"

#include <kvpool/prep.h>

#include <stdlib.h>

/* ------------------------------------------------------------------ block ids */

static const char *const block_ids_fields[] = {
	"base_rows", "num_blocks",        "row_capacity",         "num_local_layers",
	"kv_factor", "index_scale",       "batch_cache_indices",  "batch_cache_indices_not_aggregate",
	"flat",      "block_ids_per_seq", "m3_block_ids_per_seq", NULL};

struct ids {
	struct kvk_prep_block_ids_params params;
	int32_t *out;
	int32_t *indptr;
	int32_t width;
};

static bool call_ids(struct golden *golden, struct ids *ids, uint32_t flags, int32_t width)
{
	struct kvk_prep_block_ids_params *p = &ids->params;

	p->flags = flags;
	p->width = width;
	p->out_room = (int64_t)p->batch * (p->row_width + 1);
	p->out = ids->out = golden_filled(golden, p->out_room, -7);
	ids->indptr = golden_filled(golden, p->batch + 1, -7);
	p->indptr = flags & KVK_PREP_FLAT ? ids->indptr : NULL;
	p->out_width = &ids->width;
	return golden_returns(golden, "kvk_prep_block_ids", kvk_prep_block_ids(p), 0);
}

static void check_lists(struct golden *golden, struct ids *ids, const char *field)
{
	struct ragged want = golden_ragged(golden, field);

	if (golden_readable(golden) && call_ids(golden, ids, KVK_PREP_FLAT | KVK_PREP_KEEP_BAD, 0))
		golden_same_rows(golden, field, &want, ids->out, ids->indptr, ids->params.batch);
}

static void check_flat(struct golden *golden, struct ids *ids)
{
	struct ints want = golden_ints(golden, "flat");

	if (golden_readable(golden) && call_ids(golden, ids, KVK_PREP_FLAT | KVK_PREP_KEEP_BAD, 0))
		golden_same(golden, "flat", want, ids->out, ids->width);
}

static void check_rectangle(struct golden *golden, struct ids *ids, const char *field, int32_t width)
{
	struct ragged want = golden_ragged(golden, field);

	if (golden_readable(golden) && call_ids(golden, ids, 0, width))
		golden_same_table(golden, field, &want, ids->out, ids->params.batch, ids->width);
}

void golden_block_ids(struct golden *golden)
{
	struct ragged rows = golden_ragged(golden, "base_rows");
	struct ints blocks = golden_ints(golden, "num_blocks");
	int32_t width = golden_int(golden, "row_capacity");
	int32_t scale = golden_int(golden, "index_scale");
	int32_t factor = golden_int(golden, "kv_factor");
	int32_t layers = golden_int(golden, "num_local_layers");
	int32_t *table = golden_rectangle(golden, &rows, width, -1);
	struct ids ids = {.params = {.size = sizeof(ids.params),
				     .batch = rows.rows,
				     .rows = rows.rows,
				     .row_width = width,
				     .scale = scale,
				     .divisor = factor,
				     .layers = 1,
				     .slots = table,
				     .num_blocks = blocks.at}};

	golden_known(golden, block_ids_fields);
	if (blocks.count != rows.rows)
		golden_unreadable(golden, "num_blocks", "not one for each row");
	check_lists(golden, &ids, "batch_cache_indices");
	check_flat(golden, &ids);
	ids.params.divisor = 1;
	check_lists(golden, &ids, "batch_cache_indices_not_aggregate");
	ids.params.divisor = factor;
	ids.params.layers = layers;
	check_rectangle(golden, &ids, "block_ids_per_seq", 0);
	/* MiniMax-M3 reads whole rows, as they are. */
	ids.params.scale = ids.params.divisor = ids.params.layers = 1;
	ids.params.num_blocks = NULL;
	check_rectangle(golden, &ids, "m3_block_ids_per_seq", width);
}

/* ------------------------------------------------------------------ slots */

static int64_t sum_of(struct ints ints)
{
	int64_t sum = 0;

	for (int32_t i = 0; i < ints.count; i++)
		sum += ints.at[i];
	return sum;
}

static void check_wide(struct golden *golden, struct kvk_prep_slots_params *p, struct ints want)
{
	int64_t *wide = golden_alloc(golden, p->room, sizeof(*wide));
	bool pass = true;

	p->slot_bytes = 8;
	p->out = wide;
	if (!golden_returns(golden, "kvk_prep_slots", kvk_prep_slots(p), 0))
		return;
	for (int32_t i = 0; i < want.count; i++)
		pass &= wide[i] == want.at[i];
	golden_line(golden, "out_cache_loc as int64", pass);
}

void golden_out_cache_loc(struct golden *golden)
{
	static const char *const fields[] = {"block_ids", "tokens_per_block", "qo_lens",
					     "qo_offset", "out_cache_loc",    NULL};
	struct ragged ids = golden_ragged(golden, "block_ids");
	struct ints qo = golden_ints(golden, "qo_lens");
	struct ints offset = golden_ints(golden, "qo_offset");
	struct ints want = golden_ints(golden, "out_cache_loc");
	int32_t tokens = 0;
	struct kvk_prep_slots_params p = {.size = sizeof(p),
					  .batch = qo.count,
					  .table_width = ids.width,
					  .page_tokens = golden_int(golden, "tokens_per_block"),
					  .room = (int32_t)sum_of(qo),
					  .slot_bytes = 4,
					  .block_ids = golden_rectangle(golden, &ids, ids.width, 0),
					  .qo_lens = qo.at,
					  .qo_offset = offset.at,
					  .out = golden_filled(golden, sum_of(qo), -7),
					  .out_tokens = &tokens};

	golden_known(golden, fields);
	if (qo.count != ids.rows || offset.count != ids.rows)
		golden_unreadable(golden, "qo_lens", "not one for each row");
	if (!golden_readable(golden) || !golden_returns(golden, "kvk_prep_slots", kvk_prep_slots(&p), 0))
		return;
	golden_same(golden, "out_cache_loc", want, p.out, tokens);
	check_wide(golden, &p, want);
}

/* ------------------------------------------------------------------ pages */

/* The page table of a list: its rows are the same ids, filled up with 0. */
static void check_page_table(struct golden *golden, const struct ragged *ids, int32_t width,
			     const int32_t *indptr)
{
	struct ragged want = golden_ragged(golden, "page_table");
	int32_t *counts = golden_alloc(golden, ids->rows, sizeof(*counts));
	struct ids table = {.params = {.size = sizeof(table.params),
				       .batch = ids->rows,
				       .rows = ids->rows,
				       .row_width = width,
				       .scale = 1,
				       .divisor = 1,
				       .layers = 1,
				       .slots = golden_rectangle(golden, ids, width, 0),
				       .num_blocks = counts}};

	for (int32_t i = 0; i < ids->rows; i++)
		counts[i] = indptr[i + 1] - indptr[i];
	if (golden_readable(golden) && call_ids(golden, &table, 0, 0))
		golden_same_table(golden, "page_table", &want, table.out, ids->rows, table.width);
}

void golden_page_indices(struct golden *golden)
{
	static const char *const fields[] = {"block_ids",  "kv_lens",    "page_size",
					     "kv_indices", "page_table", NULL};
	struct ragged ids = golden_ragged(golden, "block_ids");
	struct ints lens = golden_ints(golden, "kv_lens");
	struct ints want = golden_ints(golden, "kv_indices");
	int32_t pages = 0;
	struct kvk_prep_page_list_params p = {.size = sizeof(p),
					      .batch = ids.rows,
					      .table_width = ids.width,
					      .page_tokens = golden_int(golden, "page_size"),
					      .room = ids.rows * ids.width,
					      .block_ids = golden_rectangle(golden, &ids, ids.width, 0),
					      .kv_lens = lens.at,
					      .out = golden_filled(golden, ids.rows * ids.width, -7),
					      .indptr = golden_filled(golden, ids.rows + 1, -7),
					      .out_pages = &pages};

	golden_known(golden, fields);
	if (lens.count != ids.rows)
		golden_unreadable(golden, "kv_lens", "not one for each row");
	if (!golden_readable(golden) ||
	    !golden_returns(golden, "kvk_prep_page_list", kvk_prep_page_list(&p), 0))
		return;
	golden_same(golden, "kv_indices", want, p.out, pages);
	check_page_table(golden, &ids, ids.width, p.indptr);
}

void golden_valid_blocks(struct golden *golden)
{
	static const char *const fields[] = {"qo_lens",    "kv_lens", "qo_offset",
					     "block_size", "n_valid", NULL};
	struct ints qo = golden_ints(golden, "qo_lens");
	struct ints kv = golden_ints(golden, "kv_lens");
	struct ints want = golden_ints(golden, "n_valid");
	bool own = !json_is_null(json_object_get(golden->fields, "qo_offset"));
	struct ints offset = own ? golden_ints(golden, "qo_offset") : (struct ints){.count = qo.count};
	int32_t tokens = 0;
	struct kvk_prep_valid_blocks_params p = {.size = sizeof(p),
						 .batch = qo.count,
						 .block_tokens = golden_int(golden, "block_size"),
						 .room = (int32_t)sum_of(qo),
						 .qo_lens = qo.at,
						 .kv_lens = kv.at,
						 .qo_offset = own ? offset.at : NULL,
						 .out = golden_filled(golden, sum_of(qo), -7),
						 .out_tokens = &tokens};

	golden_known(golden, fields);
	if (kv.count != qo.count || offset.count != qo.count)
		golden_unreadable(golden, "kv_lens", "not one for each request");
	if (golden_readable(golden) &&
	    golden_returns(golden, "kvk_prep_valid_blocks", kvk_prep_valid_blocks(&p), 0))
		golden_same(golden, "n_valid", want, p.out, tokens);
}
