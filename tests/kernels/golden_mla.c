/* SPDX-License-Identifier: Apache-2.0 */
/* The golden cases of dense and sparse MLA. */
#include "golden_run.h"

#include <stdio.h>
#include <stdlib.h>

/* A case's expected outputs and the buffers that the versions write. */
struct outputs {
	const struct npy *want_out; /* [b, s_q, h, 512] */
	const struct npy *want_lse; /* [b, h, s_q] */
	float *out;
	uint16_t *out_bf16;
	float *lse;
};

static int open_outputs(const struct golden_case *golden, const struct npy *q, struct outputs *to)
{
	to->want_out =
		golden_shaped(golden, "out", "<f4", 4, q->shape[0], q->shape[1], q->shape[2], KVK_MLA_LATENT);
	to->want_lse = golden_shaped(golden, "lse", "<f4", 3, q->shape[0], q->shape[2], q->shape[1], 0);
	if (!to->want_out || !to->want_lse)
		return GOLDEN_UNREADABLE;
	to->out = golden_buffer(to->want_out->count, sizeof(float));
	to->out_bf16 = golden_buffer(to->want_out->count, sizeof(uint16_t));
	to->lse = golden_buffer(to->want_lse->count, sizeof(float));
	return GOLDEN_PASS;
}

static void close_outputs(struct outputs *outputs)
{
	free(outputs->out);
	free(outputs->out_bf16);
	free(outputs->lse);
}

/* The measures of one version, whose two calls returned `ret` (0 or an error). */
static int report(const struct golden_case *golden, const struct version *version, const struct outputs *got,
		  int ret)
{
	const int64_t rows = got->want_out->count / KVK_MLA_LATENT;
	int result = GOLDEN_PASS;

	if (ret) {
		fprintf(stderr, "%s: %s: refused with %d\n", golden->dir, version->name, ret);
		return GOLDEN_FAIL;
	}
	result |= golden_report(
		golden, version, "out f32",
		measure_rows(got->out, got->want_out->data, rows, KVK_MLA_LATENT, version->row_limit));
	result |= golden_report(golden, version, "out bf16",
				measure_bf16(got->out_bf16, got->want_out->data, got->want_out->count));
	result |= golden_report(golden, version, "lse",
				measure_values(got->lse, got->want_lse->data, got->want_lse->count));
	return result;
}

static const float *sink_of(const struct golden_case *golden)
{
	const struct npy *sink = golden_optional(golden, "sink");

	return sink ? sink->data : NULL;
}

static int dense_params(const struct golden_case *golden, struct kvk_mla_dense_params *p)
{
	const struct npy *q = golden_shaped(golden, "q", NULL, 4, -1, -1, -1, KVK_MLA_WIDTH);
	const int64_t page = (int64_t)golden_arg(golden, "page", 64);
	const struct npy *pages = golden_shaped(golden, "pages", NULL, 3, -1, page, -1, 0);
	const struct npy *table;
	const struct npy *lens;

	if (!q || !pages ||
	    pages->shape[2] != (pages->element_bytes == 1 ? KVK_MLA_FP8_ROW_BYTES : KVK_MLA_WIDTH))
		return GOLDEN_UNREADABLE;
	table = golden_shaped(golden, "block_table", "<i4", 2, q->shape[0], -1, 0, 0);
	lens = golden_shaped(golden, "lens", "<i4", 1, q->shape[0], 0, 0, 0);
	if (!table || !lens)
		return GOLDEN_UNREADABLE;
	if (sink_of(golden) && !golden_shaped(golden, "sink", "<f4", 1, q->shape[2], 0, 0, 0))
		return GOLDEN_UNREADABLE;
	*p = (struct kvk_mla_dense_params){.size = sizeof(*p),
					   .flags = golden_arg(golden, "causal", 0) != 0 ? KVK_CAUSAL : 0,
					   .batch = (int32_t)q->shape[0],
					   .s_q = (int32_t)q->shape[1],
					   .heads = (int32_t)q->shape[2],
					   .page_tokens = (int32_t)page,
					   .pages = (int32_t)pages->shape[0],
					   .table_width = (int32_t)table->shape[1],
					   .q_dtype = golden_dtype(q, 0),
					   .kv_dtype = golden_dtype(pages, KVK_MLA_FP8),
					   .scale = (float)golden_arg(golden, "scale", 0),
					   .q = q->data,
					   .kv = pages->data,
					   .block_table = table->data,
					   .lens = lens->data,
					   .sink = sink_of(golden)};
	return GOLDEN_PASS;
}

static int run_dense_version(const struct golden_case *golden, const struct version *version,
			     struct kvk_mla_dense_params *p, struct outputs *outputs)
{
	int ret;

	p->lse = outputs->lse;
	p->out = outputs->out;
	p->out_dtype = KVK_F32;
	ret = version->mla_dense(p);
	p->out = outputs->out_bf16;
	p->out_dtype = KVK_BF16;
	if (!ret)
		ret = version->mla_dense(p);
	return report(golden, version, outputs, ret);
}

int golden_run_mla_dense(const struct golden_case *golden)
{
	const struct npy *q = golden_array(golden, "q", 4, NULL);
	struct kvk_mla_dense_params p;
	struct outputs outputs;
	int result = GOLDEN_PASS;

	if (!q || dense_params(golden, &p) || open_outputs(golden, q, &outputs))
		return GOLDEN_UNREADABLE;
	for (int i = 0; i < version_count; i++)
		if (versions[i].mla_dense)
			result |= run_dense_version(golden, &versions[i], &p, &outputs);
	close_outputs(&outputs);
	return result;
}

static int sparse_params(const struct golden_case *golden, struct kvk_mla_sparse_params *p)
{
	const struct npy *q = golden_shaped(golden, "q", NULL, 4, -1, -1, -1, KVK_MLA_WIDTH);
	const struct npy *rows = golden_shaped(golden, "rows", NULL, 2, -1, -1, 0, 0);
	const struct npy *lengths = golden_optional(golden, "topk_length");
	const struct npy *indices;

	if (!q || !rows ||
	    rows->shape[1] != (rows->element_bytes == 1 ? KVK_MLA_FP8_ROW_BYTES : KVK_MLA_WIDTH))
		return GOLDEN_UNREADABLE;
	indices = golden_shaped(golden, "indices", "<i4", 3, q->shape[0], q->shape[1], -1, 0);
	if (!indices)
		return GOLDEN_UNREADABLE;
	if (sink_of(golden) && !golden_shaped(golden, "sink", "<f4", 1, q->shape[2], 0, 0, 0))
		return GOLDEN_UNREADABLE;
	if (lengths && !golden_shaped(golden, "topk_length", "<i4", 1, q->shape[0], 0, 0, 0))
		return GOLDEN_UNREADABLE;
	*p = (struct kvk_mla_sparse_params){.size = sizeof(*p),
					    .batch = (int32_t)q->shape[0],
					    .s_q = (int32_t)q->shape[1],
					    .heads = (int32_t)q->shape[2],
					    .topk = (int32_t)indices->shape[2],
					    .page_tokens = 1,
					    .pages = (int32_t)rows->shape[0],
					    .q_dtype = golden_dtype(q, 0),
					    .kv_dtype = golden_dtype(rows, KVK_MLA_FP8),
					    .scale = (float)golden_arg(golden, "scale", 0),
					    .q = q->data,
					    .kv = rows->data,
					    .indices = indices->data,
					    .topk_length = lengths ? lengths->data : NULL,
					    .sink = sink_of(golden)};
	return GOLDEN_PASS;
}

static int run_sparse_version(const struct golden_case *golden, const struct version *version,
			      struct kvk_mla_sparse_params *p, struct outputs *outputs)
{
	int ret;

	p->lse = outputs->lse;
	p->out = outputs->out;
	p->out_dtype = KVK_F32;
	ret = version->mla_sparse(p);
	p->out = outputs->out_bf16;
	p->out_dtype = KVK_BF16;
	if (!ret)
		ret = version->mla_sparse(p);
	return report(golden, version, outputs, ret);
}

int golden_run_mla_sparse(const struct golden_case *golden)
{
	const struct npy *q = golden_array(golden, "q", 4, NULL);
	struct kvk_mla_sparse_params p;
	struct outputs outputs;
	int result = GOLDEN_PASS;

	if (!q || sparse_params(golden, &p) || open_outputs(golden, q, &outputs))
		return GOLDEN_UNREADABLE;
	for (int i = 0; i < version_count; i++)
		if (versions[i].mla_sparse)
			result |= run_sparse_version(golden, &versions[i], &p, &outputs);
	close_outputs(&outputs);
	return result;
}
