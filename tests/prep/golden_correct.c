/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Length corrections of both generations, each done twice, with slots of 4 and of 8 bytes; and the two errors. What a
 * case expects past the live entries is the filler that was there before.
 */
#include "golden.h"

#include <kvpool/prep.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FILLER (-7)
#define MAX_PARTS 32

struct correction {
	struct kvk_prep_correct_params params;
	struct ints qo;
	int64_t *wide; /* slots of 8 bytes */
	struct kvk_prep_fault fault;
	struct kvk_prep_plan_part parts[MAX_PARTS];
};

static struct correction open_correction(struct golden *golden, uint32_t flags)
{
	struct correction c = {.qo = golden_ints(golden, "qo_lens")};
	struct ints staged = golden_ints(golden, "staged");
	struct ints corrected = golden_ints(golden, "corrected");
	struct ints slots = golden_ints(golden, "out_cache_loc");
	struct ints n_valid = golden_ints(golden, "n_valid");

	if (staged.count != c.qo.count || corrected.count != c.qo.count || n_valid.count != slots.count)
		golden_unreadable(golden, "staged", "lists of other lengths");
	c.params = (struct kvk_prep_correct_params){.size = sizeof(c.params),
						    .flags = flags,
						    .batch = c.qo.count,
						    .page_tokens = golden_int(golden, "page_size"),
						    .room = slots.count,
						    .slot_bytes = 4,
						    .qo_lens = c.qo.at,
						    .staged = staged.at,
						    .corrected = corrected.at,
						    .slots = golden_filled(golden, slots.count, FILLER),
						    .n_valid = golden_filled(golden, slots.count, FILLER),
						    .seq_lens = golden_filled(golden, c.qo.count, FILLER)};
	c.wide = golden_alloc(golden, slots.count, sizeof(*c.wide));
	for (int32_t i = 0; i < slots.count; i++)
		c.wide[i] = FILLER;
	return c;
}

static void check_common(struct golden *golden, const struct correction *c, const char *round)
{
	struct ints slots = golden_ints(golden, "out_cache_loc");
	bool pass = true;
	char what[64];

	snprintf(what, sizeof(what), "out_cache_loc%s", round);
	golden_same(golden, what, slots, c->params.slots, slots.count);
	snprintf(what, sizeof(what), "n_valid%s", round);
	golden_same(golden, what, golden_ints(golden, "n_valid"), c->params.n_valid, slots.count);
	snprintf(what, sizeof(what), "seq_lens%s", round);
	golden_same(golden, what, golden_ints(golden, "seq_lens"), c->params.seq_lens, c->qo.count);
	for (int32_t i = 0; i < slots.count; i++)
		pass &= c->wide[i] == slots.at[i];
	snprintf(what, sizeof(what), "out_cache_loc as int64%s", round);
	golden_line(golden, what, pass);
}

/* Both slot sizes; the wide ones into c->wide. */
static bool call(struct golden *golden, struct correction *c)
{
	struct kvk_prep_correct_params wide = c->params;

	wide.slot_bytes = 8;
	wide.slots = c->wide;
	return golden_returns(golden, "kvk_prep_correct", kvk_prep_correct(&c->params), 0) &&
	       golden_returns(golden, "kvk_prep_correct", kvk_prep_correct(&wide), 0);
}

/* ------------------------------------------------------------------ newest main */

void golden_on_update_newest(struct golden *golden)
{
	static const char *const fields[] = {
		"qo_lens",       "staged",  "corrected", "page_size",  "block_table",
		"out_cache_loc", "n_valid", "seq_lens",  "cu_kv_lens", NULL};
	struct ragged table = golden_ragged(golden, "block_table");
	struct ints cu = golden_ints(golden, "cu_kv_lens");
	struct correction c = open_correction(golden, KVK_PREP_NEWEST);

	golden_known(golden, fields);
	if (table.rows != c.qo.count || cu.count != c.qo.count + 1)
		golden_unreadable(golden, "block_table", "not a row for each request");
	c.params.table = golden_rectangle(golden, &table, table.width, 0);
	c.params.table_width = table.width;
	c.params.cu_kv = golden_filled(golden, cu.count, FILLER);
	for (int round = 0; round < 2; round++) {
		if (!golden_readable(golden) || !call(golden, &c))
			return;
		check_common(golden, &c, round ? ", again" : "");
		golden_same(golden, "cu_kv_lens", cu, c.params.cu_kv, cu.count);
	}
}

/* ------------------------------------------------------------------ PR 16875 */

/* {"rule": "request b, position p -> slot 100*b + p", "width": W} */
static void make_slot_table(struct golden *golden, struct correction *c)
{
	json_t *object = json_object_get(golden->fields, "slot_table");
	const char *rule = json_string_value(json_object_get(object, "rule"));
	json_t *former = golden_enter(golden, object);
	int32_t width = golden_int(golden, "width");
	int32_t *table;

	golden_enter(golden, former);
	if (!rule || strcmp(rule, "request b, position p -> slot 100*b + p"))
		golden_unreadable(golden, "slot_table", "unknown rule");
	if (width < 0 || width > 1 << 20)
		golden_unreadable(golden, "slot_table", "width");
	if (!golden_readable(golden))
		return;
	table = golden_alloc(golden, (int64_t)c->qo.count * width, sizeof(*table));
	for (int32_t b = 0; b < c->qo.count; b++)
		for (int32_t p = 0; p < width; p++)
			table[b * width + p] = 100 * b + p;
	c->params.table = table;
	c->params.table_width = width;
}

static const char *const keys[] = {"kv_segment_lens", "qo_offset", "seqused_k"};

static void set_key(struct kvk_prep_plan_part *part, int key, int32_t *array, int32_t rows)
{
	int32_t **arrays[] = {&part->kv_segment_lens, &part->qo_offset, &part->seqused_k};
	int32_t *counts[] = {&part->kv_segment_rows, &part->qo_offset_rows, &part->seqused_rows};

	*arrays[key] = array;
	*counts[key] = rows;
}

static int32_t *key_array(const struct kvk_prep_plan_part *part, int key)
{
	return key == 0 ? part->kv_segment_lens : key == 1 ? part->qo_offset : part->seqused_k;
}

/* A sub-plan's arrays, full of filler and as long as what is expected. */
static struct kvk_prep_plan_part open_part(struct golden *golden, json_t *object, int32_t first, int32_t last)
{
	static const char *const fields[] = {"kv_segment_lens", "qo_offset", "seqused_k", "MM-SA-Nv", NULL};
	struct kvk_prep_plan_part part = {.first = first, .last = last};
	json_t *former = golden_enter(golden, object);

	golden_known(golden, fields);
	if (json_object_get(object, "MM-SA-Nv"))
		part.sparse_flavour = golden_bool(golden, "MM-SA-Nv");
	for (int key = 0; key < 3; key++)
		if (json_object_get(object, keys[key])) {
			int32_t rows = golden_ints(golden, keys[key]).count;

			set_key(&part, key, golden_filled(golden, rows, FILLER), rows);
		}
	golden_enter(golden, former);
	return part;
}

static void add_part(struct golden *golden, struct correction *c, json_t *object, int32_t first, int32_t last)
{
	if (!json_is_object(object) || c->params.part_count == MAX_PARTS) {
		golden_unreadable(golden, "plans", "not a sub-plan, or too many");
		return;
	}
	c->parts[c->params.part_count++] = open_part(golden, object, first, last);
}

static void open_plan(struct golden *golden, struct correction *c, json_t *plan)
{
	static const char *const fields[] = {"mixed", "split", "batch", "first", "second", NULL};
	json_t *former = golden_enter(golden, plan);
	bool mixed = golden_bool(golden, "mixed");
	int32_t split = golden_int(golden, "split");
	int32_t batch = golden_int(golden, "batch");
	json_t *first = json_object_get(plan, "first");
	json_t *second = json_object_get(plan, "second");

	golden_known(golden, fields);
	if (mixed != json_is_object(second) || (!mixed && second && !json_is_null(second)))
		golden_unreadable(golden, "second", "there when not mixed, or the other way round");
	add_part(golden, c, first, 0, mixed ? split : batch);
	if (mixed)
		add_part(golden, c, second, split, batch);
	golden_enter(golden, former);
}

static void check_part(struct golden *golden, json_t *object, const struct kvk_prep_plan_part *part,
		       size_t plan, const char *which)
{
	json_t *former = golden_enter(golden, object);
	char what[64];

	for (int key = 0; key < 3; key++)
		if (json_object_get(object, keys[key])) {
			struct ints want = golden_ints(golden, keys[key]);

			snprintf(what, sizeof(what), "plan %zu %s %s", plan, which, keys[key]);
			golden_same(golden, what, want, key_array(part, key), want.count);
		}
	golden_enter(golden, former);
}

static void check_plans(struct golden *golden, const struct correction *c, const json_t *plans)
{
	const struct kvk_prep_plan_part *part = c->parts;
	json_t *plan;
	size_t i;

	json_array_foreach(plans, i, plan)
	{
		check_part(golden, json_object_get(plan, "first"), part++, i, "first");
		if (json_is_object(json_object_get(plan, "second")))
			check_part(golden, json_object_get(plan, "second"), part++, i, "second");
	}
}

static void run_update(struct golden *golden)
{
	static const char *const fields[] = {
		"qo_lens",       "staged",  "corrected", "page_size", "slot_table",
		"out_cache_loc", "n_valid", "seq_lens",  "plans",     NULL};
	json_t *plans = json_object_get(golden->fields, "plans");
	struct correction c = open_correction(golden, 0);
	json_t *plan;
	size_t i;

	golden_known(golden, fields);
	make_slot_table(golden, &c);
	if (!json_is_array(plans))
		golden_unreadable(golden, "plans", "not a list");
	json_array_foreach(plans, i, plan)
	{
		open_plan(golden, &c, plan);
	}
	c.params.parts = c.parts;
	for (int round = 0; round < 2; round++) {
		if (!golden_readable(golden) || !call(golden, &c))
			return;
		check_common(golden, &c, round ? ", again" : "");
		check_plans(golden, &c, plans);
	}
}

/* ------------------------------------------------------------------ errors */

/* "sub_plan" gives the length of each array that there is. */
static void open_error_part(struct golden *golden, struct correction *c)
{
	static const char *const fields[] = {"kv_segment_lens", "qo_offset", "seqused_k", "MM-SA-Nv", NULL};
	json_t *object = json_object_get(golden->fields, "sub_plan");
	json_t *former = golden_enter(golden, object);
	struct kvk_prep_plan_part part = {.first = 0, .last = c->qo.count};

	if (!json_is_object(object))
		golden_unreadable(golden, "sub_plan", "not an object");
	golden_known(golden, fields);
	if (json_object_get(object, "MM-SA-Nv"))
		part.sparse_flavour = golden_bool(golden, "MM-SA-Nv");
	for (int key = 0; key < 3; key++)
		if (json_object_get(object, keys[key])) {
			int32_t rows = golden_int(golden, keys[key]);

			set_key(&part, key, golden_filled(golden, rows, FILLER), rows);
		}
	golden_enter(golden, former);
	c->parts[c->params.part_count++] = part;
}

static void check_untouched(struct golden *golden, const struct correction *c)
{
	bool pass = true;

	for (int32_t i = 0; i < c->params.room; i++)
		pass &= ((int32_t *)c->params.slots)[i] == FILLER && c->params.n_valid[i] == FILLER;
	for (int32_t i = 0; i < c->qo.count; i++)
		pass &= c->params.seq_lens[i] == FILLER;
	for (int32_t i = 0; i < c->parts[0].kv_segment_rows; i++)
		pass &= c->parts[0].kv_segment_lens[i] == FILLER;
	golden_line(golden, "nothing written", pass);
}

static void check_missing(struct golden *golden, const struct correction *c)
{
	static const char *const fields[] = {"missing_key", NULL};
	const char *key = json_string_value(json_object_get(golden->fields, "missing_key"));

	golden_known(golden, fields);
	if (!key)
		golden_unreadable(golden, "missing_key", "not a name");
	if (golden_readable(golden) &&
	    golden_returns(golden, "kvk_prep_correct", kvk_prep_correct(&c->params), -ENOENT))
		golden_line(golden, "missing_key", !strcmp(key, c->fault.name));
}

static void check_rows(struct golden *golden, const struct correction *c)
{
	static const char *const fields[] = {"key", "rows", "requests", "expected", NULL};
	const char *key = json_string_value(json_object_get(golden->fields, "key"));
	const struct kvk_prep_fault *fault = &c->fault;
	struct ints requests = golden_ints(golden, "requests");
	struct ints expected = golden_ints(golden, "expected");
	int32_t rows = golden_int(golden, "rows");

	golden_known(golden, fields);
	if (requests.count != 2 || expected.count != 2)
		golden_unreadable(golden, "requests", "not two numbers");
	if (!golden_readable(golden) ||
	    !golden_returns(golden, "kvk_prep_correct", kvk_prep_correct(&c->params), -ERANGE))
		return;
	golden_line(golden, "key", !key || !strcmp(key, fault->name));
	golden_line(golden, "rows", fault->value == rows);
	golden_line(golden, "requests", fault->first == requests.at[0] && fault->last == requests.at[1]);
	golden_line(golden, "expected",
		    fault->limit == expected.at[0] && fault->other_limit == expected.at[1]);
}

static void run_error(struct golden *golden, json_t *error)
{
	static const char *const fields[] = {"sub_plan", "qo_lens", "error", NULL};
	struct correction c = {.qo = golden_ints(golden, "qo_lens")};
	int32_t tokens = 0;
	json_t *former;

	golden_known(golden, fields);
	for (int32_t i = 0; i < c.qo.count; i++)
		tokens += c.qo.at[i];
	c.params = (struct kvk_prep_correct_params){.size = sizeof(c.params),
						    .batch = c.qo.count,
						    .page_tokens = 4,
						    .table_width = 1,
						    .room = tokens,
						    .slot_bytes = 4,
						    .qo_lens = c.qo.at,
						    .staged = c.qo.at,
						    .corrected = c.qo.at,
						    .table = golden_filled(golden, c.qo.count, 0),
						    .parts = c.parts,
						    .slots = golden_filled(golden, tokens, FILLER),
						    .n_valid = golden_filled(golden, tokens, FILLER),
						    .seq_lens = golden_filled(golden, c.qo.count, FILLER),
						    .fault = &c.fault};
	open_error_part(golden, &c);
	former = golden_enter(golden, error);
	if (json_object_get(error, "missing_key"))
		check_missing(golden, &c);
	else
		check_rows(golden, &c);
	golden_enter(golden, former);
	if (golden_readable(golden))
		check_untouched(golden, &c);
}

void golden_on_update(struct golden *golden)
{
	json_t *error = json_object_get(golden->fields, "error");

	if (error)
		run_error(golden, error);
	else
		run_update(golden);
}
