/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The golden cases of MSA. Each stage gets the expected result of the one before it: an error in the scores
 * must not show again as a wrong selection and a wrong output.
 */
#include "golden_run.h"

#include <stdio.h>
#include <stdlib.h>

/* The arrays that the stages share, shapes checked against each other. */
struct msa_case {
	const struct golden_case *golden;
	const struct npy *index_q, *index_k; /* [t, hi, dim], [n, block, dim] */
	const struct npy *q, *k, *v;         /* [t, h, d], [n, block, hkv, d] */
	const struct npy *table, *lens;
	const struct npy *score, *n_valid, *selected;
	int32_t block;
	float scale;
	int32_t *cu_q;
};

static int load_inputs(struct msa_case *c)
{
	const struct golden_case *g = c->golden;

	c->index_q = golden_shaped(g, "index_q", NULL, 3, -1, -1, -1, 0);
	c->index_k = golden_shaped(g, "index_k", NULL, 3, -1, c->block, -1, 0);
	c->q = golden_shaped(g, "q", NULL, 3, -1, -1, -1, 0);
	c->k = golden_shaped(g, "k", NULL, 4, -1, c->block, -1, -1);
	c->v = golden_shaped(g, "v", NULL, 4, -1, c->block, -1, -1);
	c->lens = golden_shaped(g, "lens", "<i4", 1, -1, 0, 0, 0);
	if (!c->index_q || !c->index_k || !c->q || !c->k || !c->v || !c->lens)
		return GOLDEN_UNREADABLE;
	c->table = golden_shaped(g, "block_table", "<i4", 2, c->lens->shape[0], -1, 0, 0);
	c->score = golden_shaped(g, "score", "<f4", 3, c->index_q->shape[1], c->q->shape[0], -1, 0);
	c->n_valid = golden_shaped(g, "n_valid", "<i4", 1, c->q->shape[0], 0, 0, 0);
	c->selected = golden_shaped(g, "selected", "<i4", 3, c->k->shape[2], c->q->shape[0], -1, 0);
	if (!c->table || !c->score || !c->n_valid || !c->selected)
		return GOLDEN_UNREADABLE;
	if (c->index_q->shape[0] != c->q->shape[0] || c->index_q->shape[2] != c->index_k->shape[2] ||
	    c->q->shape[2] != c->k->shape[3] || c->v->count != c->k->count ||
	    c->v->shape[3] != c->k->shape[3] || c->score->shape[0] != c->selected->shape[0] ||
	    c->k->element_bytes != c->v->element_bytes) {
		fprintf(stderr, "%s: the shapes of q, k, v, index_q, index_k disagree\n", g->dir);
		return GOLDEN_UNREADABLE;
	}
	return GOLDEN_PASS;
}

/* q_lens [b] become row offsets [b + 1]; they must add up to the rows of q. */
static int load_offsets(struct msa_case *c)
{
	const struct npy *q_lens = golden_shaped(c->golden, "q_lens", "<i4", 1, c->lens->shape[0], 0, 0, 0);
	const int32_t *lens;
	int64_t row = 0;

	if (!q_lens)
		return GOLDEN_UNREADABLE;
	lens = q_lens->data;
	c->cu_q = golden_buffer(q_lens->count + 1, sizeof(int32_t));
	for (int64_t i = 0; i < q_lens->count; i++) {
		row += lens[i];
		c->cu_q[i + 1] = (int32_t)row;
		if (lens[i] < 0 || row > c->q->shape[0])
			break;
	}
	if (row == c->q->shape[0])
		return GOLDEN_PASS;
	fprintf(stderr, "%s: q_lens do not add up to the %lld rows of q\n", c->golden->dir,
		(long long)c->q->shape[0]);
	return GOLDEN_UNREADABLE;
}

static int refused(const struct msa_case *c, const struct version *version, const char *what, int ret)
{
	fprintf(stderr, "%s: %s: %s refused with %d\n", c->golden->dir, version->name, what, ret);
	return GOLDEN_FAIL;
}

static int run_scores(const struct msa_case *c, const struct version *version)
{
	float *score = golden_buffer(c->score->count, sizeof(float));
	int32_t *n_valid = golden_buffer(c->n_valid->count, sizeof(int32_t));
	const struct kvk_msa_scores_params p = {.size = sizeof(p),
						.batch = (int32_t)c->lens->count,
						.rows = (int32_t)c->q->shape[0],
						.index_heads = (int32_t)c->index_q->shape[1],
						.dim = (int32_t)c->index_q->shape[2],
						.block_tokens = c->block,
						.blocks = (int32_t)c->score->shape[2],
						.page_tokens = c->block,
						.pages = (int32_t)c->index_k->shape[0],
						.table_width = (int32_t)c->table->shape[1],
						.q_dtype = golden_dtype(c->index_q, KVK_E4M3),
						.k_dtype = golden_dtype(c->index_k, KVK_E4M3),
						.index_q = c->index_q->data,
						.index_k = c->index_k->data,
						.block_table = c->table->data,
						.lens = c->lens->data,
						.cu_q = c->cu_q,
						.score = score,
						.n_valid = n_valid};
	int ret = version->msa_scores(&p);
	int result;

	if (ret) {
		result = refused(c, version, "scores", ret);
	} else {
		result = golden_report(c->golden, version, "score",
				       measure_values(score, c->score->data, c->score->count));
		result |= golden_report(c->golden, version, "n_valid",
					measure_equal(n_valid, c->n_valid->data, c->n_valid->count));
	}
	free(score);
	free(n_valid);
	return result;
}

static int run_select(const struct golden_case *golden, const struct version *version,
		      const struct npy *score, const struct npy *n_valid, const struct npy *selected)
{
	int32_t *got = golden_buffer(selected->count, sizeof(int32_t));
	const struct kvk_msa_select_params p = {.size = sizeof(p),
						.heads = (int32_t)score->shape[0],
						.rows = (int32_t)score->shape[1],
						.blocks = (int32_t)score->shape[2],
						.topk = (int32_t)selected->shape[2],
						.init_blocks = (int32_t)golden_arg(golden, "init", 0),
						.local_blocks = (int32_t)golden_arg(golden, "local", 1),
						.score = score->data,
						.n_valid = n_valid->data,
						.selected = got};
	int ret = version->msa_select(&p);
	int result = GOLDEN_FAIL;

	if (!ret)
		result = golden_report(golden, version, "selected",
				       measure_equal(got, selected->data, selected->count));
	else
		fprintf(stderr, "%s: %s: selection refused with %d\n", golden->dir, version->name, ret);
	free(got);
	return result;
}

/* An attention stage's call, in one output dtype. */
typedef int attention_fn(const struct msa_case *c, const struct version *version, void *out,
			 uint32_t out_dtype, float *lse);

static int call_sparse(const struct msa_case *c, const struct version *version, void *out, uint32_t out_dtype,
		       float *lse)
{
	const struct kvk_msa_sparse_params p = {.size = sizeof(p),
						.batch = (int32_t)c->lens->count,
						.rows = (int32_t)c->q->shape[0],
						.heads = (int32_t)c->q->shape[1],
						.kv_heads = (int32_t)c->k->shape[2],
						.head_dim = (int32_t)c->q->shape[2],
						.block_tokens = c->block,
						.topk = (int32_t)c->selected->shape[2],
						.page_tokens = c->block,
						.pages = (int32_t)c->k->shape[0],
						.table_width = (int32_t)c->table->shape[1],
						.q_dtype = golden_dtype(c->q, 0),
						.kv_dtype = golden_dtype(c->k, 0),
						.out_dtype = out_dtype,
						.scale = c->scale,
						.q = c->q->data,
						.k = c->k->data,
						.v = c->v->data,
						.selected = c->selected->data,
						.block_table = c->table->data,
						.lens = c->lens->data,
						.cu_q = c->cu_q,
						.out = out,
						.lse = lse};

	return version->msa_sparse(&p);
}

static int call_dense(const struct msa_case *c, const struct version *version, void *out, uint32_t out_dtype,
		      float *lse)
{
	const struct kvk_gqa_dense_params p = {.size = sizeof(p),
					       .flags = KVK_CAUSAL,
					       .batch = (int32_t)c->lens->count,
					       .rows = (int32_t)c->q->shape[0],
					       .heads = (int32_t)c->q->shape[1],
					       .kv_heads = (int32_t)c->k->shape[2],
					       .head_dim = (int32_t)c->q->shape[2],
					       .page_tokens = c->block,
					       .pages = (int32_t)c->k->shape[0],
					       .table_width = (int32_t)c->table->shape[1],
					       .q_dtype = golden_dtype(c->q, 0),
					       .kv_dtype = golden_dtype(c->k, 0),
					       .out_dtype = out_dtype,
					       .scale = c->scale,
					       .q = c->q->data,
					       .k = c->k->data,
					       .v = c->v->data,
					       .block_table = c->table->data,
					       .lens = c->lens->data,
					       .cu_q = c->cu_q,
					       .out = out,
					       .lse = lse};

	return version->gqa_dense(&p);
}

/* Runs one attention stage against the expected arrays `out_name` and `lse_name`. */
static int run_attention(const struct msa_case *c, const struct version *version, attention_fn *call,
			 const char *out_name, const char *lse_name)
{
	const int64_t rows = c->q->shape[0] * c->q->shape[1];
	const struct npy *want = golden_shaped(c->golden, out_name, "<f4", 3, c->q->shape[0], c->q->shape[1],
					       c->q->shape[2], 0);
	const struct npy *want_lse =
		golden_shaped(c->golden, lse_name, "<f4", 2, c->q->shape[0], c->q->shape[1], 0, 0);
	float *out = golden_buffer(c->q->count, sizeof(float));
	uint16_t *out_bf16 = golden_buffer(c->q->count, sizeof(uint16_t));
	float *lse = golden_buffer(rows, sizeof(float));
	int result = GOLDEN_UNREADABLE;
	int ret;

	if (!want || !want_lse)
		goto free_buffers;
	ret = call(c, version, out, KVK_F32, lse);
	if (!ret)
		ret = call(c, version, out_bf16, KVK_BF16, lse);
	if (ret) {
		result = refused(c, version, out_name, ret);
		goto free_buffers;
	}
	result = golden_report(c->golden, version, out_name,
			       measure_rows(out, want->data, rows, c->q->shape[2], version->row_limit));
	result |= golden_report(c->golden, version, "bf16", measure_bf16(out_bf16, want->data, want->count));
	result |= golden_report(c->golden, version, lse_name, measure_values(lse, want_lse->data, rows));
free_buffers:
	free(out);
	free(out_bf16);
	free(lse);
	return result;
}

static int run_version(const struct msa_case *c, const struct version *version)
{
	int result = GOLDEN_PASS;

	if (version->msa_scores)
		result |= run_scores(c, version);
	if (version->msa_select)
		result |= run_select(c->golden, version, c->score, c->n_valid, c->selected);
	if (version->msa_sparse)
		result |= run_attention(c, version, call_sparse, "out", "lse");
	if (version->gqa_dense && golden_optional(c->golden, "dense_out"))
		result |= run_attention(c, version, call_dense, "dense_out", "dense_lse");
	return result;
}

int golden_run_msa(const struct golden_case *golden)
{
	struct msa_case c = {.golden = golden,
			     .block = (int32_t)golden_arg(golden, "block", 128),
			     .scale = (float)golden_arg(golden, "scale", 0)};
	int result = GOLDEN_UNREADABLE;

	if (!load_inputs(&c) && !load_offsets(&c)) {
		result = GOLDEN_PASS;
		for (int i = 0; i < version_count; i++)
			result |= run_version(&c, &versions[i]);
	}
	free(c.cu_q);
	return result & GOLDEN_UNREADABLE ? GOLDEN_UNREADABLE : result;
}

int golden_run_msa_select(const struct golden_case *golden)
{
	const struct npy *score = golden_shaped(golden, "score", "<f4", 3, -1, -1, -1, 0);
	const struct npy *n_valid = golden_array(golden, "n_valid", 1, "<i4");
	const struct npy *selected = golden_array(golden, "selected", 3, "<i4");
	int result = GOLDEN_PASS;

	if (!score || !n_valid || !selected || n_valid->count != score->shape[1] ||
	    selected->shape[0] != score->shape[0] || selected->shape[1] != score->shape[1])
		return GOLDEN_UNREADABLE;
	for (int i = 0; i < version_count; i++)
		if (versions[i].msa_select)
			result |= run_select(golden, &versions[i], score, n_valid, selected);
	return result;
}
