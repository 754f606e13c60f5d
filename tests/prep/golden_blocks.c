/* SPDX-License-Identifier: Apache-2.0 */
/* Selection of blocks and index scores, by the kernels: each by the reference and by what the machine would use. */
#include "golden.h"

#include <kvpool/kernels.h>

#include <stdlib.h>
#include <string.h>

/* scores [heads, blocks, rows] as the file has them -> [heads, rows, blocks] */
static float *turned(struct golden *golden, const float *scores, const int32_t *shape)
{
	float *out = golden_alloc(golden, (int64_t)shape[0] * shape[1] * shape[2], sizeof(*out));

	for (int32_t h = 0; h < shape[0]; h++)
		for (int32_t b = 0; b < shape[1]; b++)
			for (int32_t t = 0; t < shape[2]; t++)
				out[(h * shape[2] + t) * shape[1] + b] =
					scores[(h * shape[1] + b) * shape[2] + t];
	return out;
}

static void run_select(struct golden *golden, struct kvk_msa_select_params *p, struct ints want)
{
	static int (*const versions[])(const struct kvk_msa_select_params *) = {kvk_msa_select_ref,
										kvk_msa_select};
	static const char *const names[] = {"selected, reference", "selected"};
	int64_t count = (int64_t)p->heads * p->rows * p->topk;

	for (int i = 0; i < 2; i++) {
		p->selected = golden_filled(golden, count, -7);
		if (golden_returns(golden, names[i], versions[i](p), 0))
			golden_same(golden, names[i], want, p->selected, count);
	}
}

static struct kvk_msa_select_params select_params(struct golden *golden, int32_t heads, struct ints n_valid,
						  int32_t blocks)
{
	return (struct kvk_msa_select_params){.size = sizeof(struct kvk_msa_select_params),
					      .heads = heads,
					      .rows = n_valid.count,
					      .blocks = blocks,
					      .topk = golden_int(golden, "topk"),
					      .init_blocks = golden_int(golden, "init_blocks"),
					      .local_blocks = golden_int(golden, "local_blocks"),
					      .n_valid = n_valid.at};
}

/* selected [token][head][k] -> [head][token][k] */
static struct ints selection(struct golden *golden, const struct kvk_msa_select_params *p)
{
	int32_t shape[3];
	struct floats listed = golden_floats(golden, "selected", 3, shape);
	struct ints want = {.count = listed.count,
			    .at = golden_alloc(golden, listed.count, sizeof(*want.at))};

	if (shape[0] != p->rows || shape[1] != p->heads || shape[2] != p->topk) {
		golden_unreadable(golden, "selected", "not [token][kv_head][k]");
		return want;
	}
	for (int32_t t = 0; t < p->rows; t++)
		for (int32_t h = 0; h < p->heads; h++)
			for (int32_t k = 0; k < p->topk; k++)
				want.at[(h * p->rows + t) * p->topk + k] =
					(int32_t)listed.at[(t * p->heads + h) * p->topk + k];
	return want;
}

void golden_select(struct golden *golden)
{
	static const char *const fields[] = {"scores", "n_valid",  "init_blocks", "local_blocks",
					     "topk",   "selected", NULL};
	int32_t shape[3];
	struct floats scores = golden_floats(golden, "scores", 3, shape);
	struct ints n_valid = golden_ints(golden, "n_valid");
	struct kvk_msa_select_params p = select_params(golden, shape[0], n_valid, shape[1]);
	struct ints want = selection(golden, &p);

	golden_known(golden, fields);
	if (shape[2] != n_valid.count)
		golden_unreadable(golden, "scores", "not [kv_head][block][token]");
	if (!golden_readable(golden))
		return;
	p.score = turned(golden, scores.at, shape);
	run_select(golden, &p, want);
}

/* All scores 0: which of equal ones are taken. */
void golden_ties(struct golden *golden)
{
	static const char *const fields[] = {"n_blocks", "init_blocks", "local_blocks", "topk",
					     "scores",   "n_valid",     "selected",     NULL};
	const char *text = json_string_value(json_object_get(golden->fields, "scores"));
	int32_t blocks = golden_int(golden, "n_blocks");
	struct ints n_valid = golden_ints(golden, "n_valid");
	struct ragged want = golden_ragged(golden, "selected");
	struct kvk_msa_select_params p = select_params(golden, 1, n_valid, blocks);

	golden_known(golden, fields);
	if (!text || strcmp(text, "all 0"))
		golden_unreadable(golden, "scores", "only 'all 0' is known");
	if (blocks < 0 || want.rows != n_valid.count)
		golden_unreadable(golden, "selected", "not a list for each n_valid");
	if (!golden_readable(golden))
		return;
	p.score = golden_alloc(golden, (int64_t)n_valid.count * blocks, sizeof(float));
	run_select(golden, &p, want.all);
}

/* ------------------------------------------------------------------ scores */

static int call_scores(struct golden *golden, struct kvk_msa_scores_params *p, bool reference)
{
	size_t bytes = 0;
	int ret;

	if (reference)
		return kvk_msa_scores_ref(p);
	ret = kvk_msa_scores_scratch(p, &bytes);
	if (ret)
		return ret;
	p->scratch = golden_alloc(golden, (int64_t)(bytes + 2 * KVK_SCRATCH_ALIGN), 1);
	p->scratch = (char *)p->scratch + KVK_SCRATCH_ALIGN - (uintptr_t)p->scratch % KVK_SCRATCH_ALIGN;
	p->scratch_bytes = bytes;
	return kvk_msa_scores(p);
}

static void run_scores(struct golden *golden, struct kvk_msa_scores_params *p, struct floats want)
{
	for (int reference = 1; reference >= 0; reference--) {
		const char *name = reference ? "scores, reference" : "scores";
		bool pass = true;

		p->score = golden_alloc(golden, want.count, sizeof(*p->score));
		if (!golden_returns(golden, name, call_scores(golden, p, reference), 0))
			continue;
		for (int32_t i = 0; i < want.count; i++)
			pass &= p->score[i] == want.at[i];
		golden_line(golden, name, pass);
	}
}

void golden_score(struct golden *golden)
{
	static const char *const fields[] = {
		"page_size",   "head_dim", "num_index_heads", "decode_query_len",       "seq_lens",
		"block_table", "idx_q",    "idx_k",           "score_head_token_block", NULL};
	int32_t q_shape[3], k_shape[3], shape[3];
	struct floats q = golden_floats(golden, "idx_q", 3, q_shape);
	struct floats k = golden_floats(golden, "idx_k", 3, k_shape);
	struct floats want = golden_floats(golden, "score_head_token_block", 3, shape);
	struct ints lens = golden_ints(golden, "seq_lens");
	struct ragged table = golden_ragged(golden, "block_table");
	int32_t page = golden_int(golden, "page_size");
	struct kvk_msa_scores_params p = {.size = sizeof(p),
					  .batch = lens.count,
					  .s_q = golden_int(golden, "decode_query_len"),
					  .rows = q_shape[0],
					  .index_heads = golden_int(golden, "num_index_heads"),
					  .dim = golden_int(golden, "head_dim"),
					  .block_tokens = page,
					  .blocks = shape[2],
					  .page_tokens = page,
					  .pages = k_shape[0],
					  .table_width = table.width,
					  .q_dtype = KVK_F32,
					  .k_dtype = KVK_F32,
					  .index_q = q.at,
					  .index_k = k.at,
					  .block_table = golden_rectangle(golden, &table, table.width, -1),
					  .lens = lens.at};

	golden_known(golden, fields);
	if (q_shape[1] != p.index_heads || q_shape[2] != p.dim || k_shape[1] != page || k_shape[2] != p.dim)
		golden_unreadable(golden, "idx_q", "not the shape that the sizes say");
	if (shape[0] != p.index_heads || shape[1] != p.rows || table.rows != p.batch)
		golden_unreadable(golden, "score_head_token_block", "not the shape that the sizes say");
	if (golden_readable(golden))
		run_scores(golden, &p, want);
}
