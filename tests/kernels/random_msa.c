/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random GQA decodes, dense and over selected blocks, index scores and selections. The reference takes one head of all
 * rows at a time: K and V have strides of their own, so a head is a call of its own.
 */
#include "random.h"

#include "measure.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rows of a ragged batch: padding before, between no rows, and after. */
struct ragged {
	int32_t cu_q[5];
	int32_t rows;
};

/* Up to `most` rows a sequence in `capacity` rows. */
static struct ragged random_rows(struct kvt_rng *rng, int32_t batch, int32_t capacity, int32_t most)
{
	struct ragged ragged = {.rows = capacity};
	int32_t at = kvt_between(rng, 0, 1);

	for (int32_t r = 0; r < batch; r++) {
		ragged.cu_q[r] = at < capacity ? at : capacity;
		at += kvt_between(rng, 0, most);
	}
	ragged.cu_q[batch] = at < capacity ? at : capacity;
	return ragged;
}

/*
 * A short row may cancel to almost nothing, which makes an error relative to it say little: below 16 elements the error
 * is held to 1e-5 of the values' range, [-1, 1].
 */
static bool row_is_near(const float *got, const float *want, int32_t dim, uint32_t dtype)
{
	if (dim >= 16)
		return measure_rows(got, want, 1, dim, random_row_limit(dtype)).pass;
	for (int32_t i = 0; i < dim; i++)
		if (!(fabs((double)got[i] - (double)want[i]) <= 1e-5 + (random_row_limit(dtype) - 1e-4)))
			return false;
	return true;
}

/* Head `head` of out [rows, heads, dim] and lse [rows, heads] against `want` [rows, dim] and [rows]. */
static void judge_head(const char *text, const struct version *version, const void *out, uint32_t dtype,
		       const float *lse, int32_t heads, int32_t head, const float *want,
		       const float *want_lse, int32_t rows, int32_t dim)
{
	for (int32_t row = 0; row < rows; row++) {
		const int64_t at = (int64_t)row * heads + head;
		float got[KVK_MAX_HEAD_DIM];

		random_load_row(got, out, dtype, at, dim);
		if (!row_is_near(got, want + (int64_t)row * dim, dim, dtype))
			fail_msg("%s: %s: row %d, head %d", text, version->name, row, head);
		if (!measure_values(lse + at, want_lse + row, 1).pass)
			fail_msg("%s: %s: row %d, head %d: lse %.9g, not %.9g", text, version->name, row,
				 head, (double)lse[at], (double)want_lse[row]);
	}
}

/* ------------------------------------------------------------------ dense and sparse attention */

struct attention {
	struct kvt_gqa gqa;
	struct kvk_msa_sparse_params sparse; /* the same arrays */
	bool is_sparse;
	struct ragged ragged;
	int32_t *selected;
	int32_t head;
	float *want, *want_lse;
	char text[160];
};

static int call_attention(void *context, const struct version *version, const struct kvk_threads *threads)
{
	const struct attention *attention = context;
	struct kvk_gqa_dense_params dense = attention->gqa.params;
	struct kvk_msa_sparse_params sparse = attention->sparse;

	dense.threads = sparse.threads = threads;
	if (attention->is_sparse)
		return version->msa_sparse ? version->msa_sparse(&sparse) : -ENOSYS;
	return version->gqa_dense ? version->gqa_dense(&dense) : -ENOSYS;
}

static void judge_attention(void *context, const struct version *version)
{
	const struct attention *attention = context;
	const struct kvk_gqa_dense_params *p = &attention->gqa.params;

	judge_head(attention->text, version, attention->gqa.out, p->out_dtype, attention->gqa.lse, p->heads,
		   attention->head, attention->want, attention->want_lse, p->rows, p->head_dim);
}

/* The last sequence alone, its rows first in arrays of their own. */
static void attention_alone(void *context, const struct version *version)
{
	const struct attention *attention = context;
	const struct kvk_gqa_dense_params *whole = &attention->gqa.params;
	const int32_t last = whole->batch - 1;
	const int32_t first = whole->cu_q ? whole->cu_q[last] : last * whole->s_q;
	const int32_t rows = (whole->cu_q ? whole->cu_q[last + 1] : first + whole->s_q) - first;
	const int64_t width = (int64_t)whole->heads * whole->head_dim;
	const char *q = (const char *)whole->q + first * width * (int64_t)kvk_dtype_bytes(whole->q_dtype);
	const int64_t element = (int64_t)kvk_dtype_bytes(whole->out_dtype);
	float *out = kvt_poison(rows * width, sizeof(float));

	if (attention->is_sparse) {
		struct kvk_msa_sparse_params p = attention->sparse;

		p.selected_stride_head = (int64_t)p.rows * p.topk;
		p.selected += (int64_t)first * p.topk;
		p.batch = 1;
		p.rows = p.s_q = rows;
		p.cu_q = NULL;
		p.q = q;
		p.block_table += (int64_t)last * p.table_width;
		p.lens += last;
		p.out = out;
		p.lse = NULL;
		assert_int_equal(version->msa_sparse(&p), 0);
	} else {
		struct kvk_gqa_dense_params p = *whole;

		p.batch = 1;
		p.rows = p.s_q = rows;
		p.cu_q = NULL;
		p.q = q;
		p.block_table += (int64_t)last * p.table_width;
		p.lens += last;
		p.out = out;
		p.lse = NULL;
		assert_int_equal(version->gqa_dense(&p), 0);
	}
	if (rows && memcmp(out, (const char *)attention->gqa.out + first * width * element,
			   (size_t)(rows * width * element)))
		fail_msg("%s: %s: the last sequence alone gives other bits", attention->text, version->name);
	free(out);
}

/* One head by the reference: the KV head's slices of K and V, and of the selection. */
static void ask_reference(struct attention *attention, struct kvt_rng *rng)
{
	struct kvk_gqa_dense_params p = attention->gqa.params;
	struct kvk_msa_sparse_params s = attention->sparse;
	const int32_t heads = p.heads;
	const int32_t head = kvt_between(rng, 0, heads - 1);
	const int32_t group = head / (heads / p.kv_heads);
	const int64_t bytes = (int64_t)kvk_dtype_bytes(p.kv_dtype);

	attention->head = head;
	attention->want = kvt_poison((int64_t)p.rows * p.head_dim, sizeof(float));
	attention->want_lse = kvt_poison(p.rows, sizeof(float));
	p.q = s.q = (const char *)p.q + (int64_t)head * p.head_dim * (int64_t)kvk_dtype_bytes(p.q_dtype);
	p.q_stride_row = s.q_stride_row = (int64_t)heads * p.head_dim;
	p.heads = p.kv_heads = s.heads = s.kv_heads = 1;
	p.k = s.k = (const char *)p.k + group * p.k_stride_head * bytes;
	p.v = s.v = (const char *)p.v + group * p.v_stride_head * bytes;
	p.out_dtype = s.out_dtype = KVK_F32;
	p.out = s.out = attention->want;
	p.lse = s.lse = attention->want_lse;
	if (attention->is_sparse) {
		s.selected += (int64_t)group * s.rows * s.topk;
		assert_int_equal(kvk_msa_sparse_ref(&s), 0);
	} else {
		assert_int_equal(kvk_gqa_dense_ref(&p), 0);
	}
}

static void select_blocks(struct attention *attention, struct kvt_rng *rng)
{
	const struct kvk_gqa_dense_params *p = &attention->gqa.params;
	const int32_t topk = kvt_between(rng, 0, 16);
	const int32_t block_tokens = kvt_between(rng, 0, 1) ? p->page_tokens : kvt_between(rng, 1, 256);
	const int64_t count = (int64_t)p->kv_heads * p->rows * topk;
	int32_t most = 0;

	for (int32_t r = 0; r < p->batch; r++)
		most = p->lens[r] / block_tokens > most ? p->lens[r] / block_tokens : most;
	attention->selected = kvt_poison(count, sizeof(int32_t));
	for (int64_t i = 0; i < count; i++)
		attention->selected[i] = kvt_between(rng, -1, most + 1);
	attention->sparse = (struct kvk_msa_sparse_params){.size = sizeof(attention->sparse),
							   .batch = p->batch,
							   .s_q = p->s_q,
							   .rows = p->rows,
							   .heads = p->heads,
							   .kv_heads = p->kv_heads,
							   .head_dim = p->head_dim,
							   .block_tokens = block_tokens,
							   .topk = topk,
							   .page_tokens = p->page_tokens,
							   .pages = p->pages,
							   .table_width = p->table_width,
							   .q_dtype = p->q_dtype,
							   .kv_dtype = p->kv_dtype,
							   .out_dtype = p->out_dtype,
							   .scale = p->scale,
							   .q = p->q,
							   .k = p->k,
							   .v = p->v,
							   .selected = attention->selected,
							   .block_table = p->block_table,
							   .lens = p->lens,
							   .cu_q = p->cu_q,
							   .out = p->out,
							   .lse = p->lse,
							   .k_stride_page = p->k_stride_page,
							   .k_stride_token = p->k_stride_token,
							   .k_stride_head = p->k_stride_head,
							   .v_stride_page = p->v_stride_page,
							   .v_stride_token = p->v_stride_token,
							   .v_stride_head = p->v_stride_head};
}

static void open_attention(struct attention *attention, struct kvt_rng *rng)
{
	static const int32_t dims[] = {128, 128, 64, 80, 1, 7, 16, 192, 256, 512};
	const int32_t kv_heads = kvt_between(rng, 1, 4);
	const int32_t group =
		kvt_between(rng, 0, 2) ? kvt_between(rng, 1, 17) : kvt_between(rng, 1, 130 / kv_heads);
	const int32_t s_q = kvt_between(rng, 1, 3);
	const int32_t dim = dims[kvt_between(rng, 0, 9)];
	const int32_t keys = RANDOM_WORK * 16 / (kv_heads * group * s_q) * 64 / (dim + 16);
	struct kvt_gqa *gqa = &attention->gqa;
	int32_t lens[4];
	const int32_t batch = random_lens(rng, lens, keys < 5000 ? keys : 5000);

	kvt_gqa_open(gqa, rng, lens, batch, s_q, kv_heads, group, dim, random_page_tokens(rng),
		     random_plain_dtype(rng), (enum kvt_layout)kvt_between(rng, 0, KVT_LAYOUTS - 1));
	if (kvt_between(rng, 0, 1)) {
		attention->ragged = random_rows(rng, batch, gqa->params.rows, s_q);
		gqa->params.cu_q = attention->ragged.cu_q;
		gqa->params.s_q = 0;
	}
	gqa->params.out_dtype = random_out_dtype(rng);
	gqa->params.flags = attention->is_sparse || kvt_between(rng, 0, 1) ? KVK_CAUSAL : 0;
	snprintf(attention->text, sizeof(attention->text),
		 "%s %d x %d/%d heads of %d, %s, page %d, dtypes %u %u, layout of %lld",
		 attention->is_sparse ? "msa_sparse" : "gqa_dense", batch, kv_heads * group, kv_heads, dim,
		 gqa->params.cu_q ? "ragged" : "even", gqa->params.page_tokens, gqa->params.kv_dtype,
		 gqa->params.out_dtype, (long long)gqa->params.k_stride_head);
}

static void random_attention(struct kvt_rng *rng, bool is_sparse)
{
	struct attention attention = {.is_sparse = is_sparse};
	struct kvt_gqa *gqa = &attention.gqa;

	open_attention(&attention, rng);
	select_blocks(&attention, rng);
	ask_reference(&attention, rng);
	random_check(rng, &(const struct subject){
				  .text = attention.text,
				  .context = &attention,
				  .call = call_attention,
				  .judge = judge_attention,
				  .alone = attention_alone,
				  .outputs = {{gqa->out, (size_t)gqa->out_count * sizeof(float)},
					      {gqa->lse, (size_t)gqa->lse_count * sizeof(float)}}});
	free(attention.selected);
	free(attention.want);
	free(attention.want_lse);
	kvt_gqa_close(gqa);
}

void random_gqa_dense(struct kvt_rng *rng)
{
	for (int i = random_cases(40); i > 0; i--)
		random_attention(rng, false);
}

void random_msa_sparse(struct kvt_rng *rng)
{
	for (int i = random_cases(40); i > 0; i--)
		random_attention(rng, true);
}

/* ------------------------------------------------------------------ scores */

struct scores {
	struct kvt_paged paged;
	struct ragged ragged;
	struct kvk_msa_scores_params params;
	void *q, *k;
	float *score, *want;
	int32_t *n_valid, *want_n_valid;
	int64_t count;
	char text[160];
};

static void open_scores(struct scores *scores, struct kvt_rng *rng)
{
	static const uint32_t dtypes[] = {KVK_BF16, KVK_BF16, KVK_F16, KVK_F32, KVK_E4M3};
	const int32_t heads = kvt_between(rng, 1, 5);
	const int32_t dim = kvt_between(rng, 0, 1) ? 128 : kvt_between(rng, 1, 200);
	const int32_t page_tokens = random_page_tokens(rng);
	const int32_t block_tokens = kvt_between(rng, 0, 1) ? page_tokens : kvt_between(rng, 1, 256);
	const int32_t keys = RANDOM_WORK / (heads * 2);
	const uint32_t q_dtype = dtypes[kvt_between(rng, 0, 4)];
	const uint32_t k_dtype = dtypes[kvt_between(rng, 0, 4)];
	int32_t most = 0;
	int32_t lens[4];
	const int32_t batch = random_lens(rng, lens, keys < 5000 ? keys : 5000);
	const int32_t rows = batch * 2 + 1;

	kvt_paged_open(&scores->paged, rng, lens, batch, page_tokens);
	for (int32_t r = 0; r < batch; r++)
		most = lens[r] > most ? lens[r] : most;
	scores->ragged = random_rows(rng, batch, rows, 2);
	scores->q = kvt_values(rng, q_dtype, (int64_t)rows * heads * dim, 1);
	scores->k = kvt_poison((int64_t)scores->paged.pages * page_tokens * dim, kvk_dtype_bytes(k_dtype));
	for (int32_t r = 0; r < batch; r++)
		for (int32_t j = 0; j < lens[r]; j++)
			kvt_fill(rng, scores->k, k_dtype,
				 kvt_paged_offset(&scores->paged, r, j, (int64_t)page_tokens * dim, dim), dim,
				 1);
	scores->params = (struct kvk_msa_scores_params){.size = sizeof(scores->params),
							.batch = batch,
							.rows = rows,
							.index_heads = heads,
							.dim = dim,
							.block_tokens = block_tokens,
							.blocks = (most + block_tokens - 1) / block_tokens +
								  kvt_between(rng, 0, 2),
							.page_tokens = page_tokens,
							.pages = scores->paged.pages,
							.table_width = scores->paged.width,
							.q_dtype = q_dtype,
							.k_dtype = k_dtype,
							.index_q = scores->q,
							.index_k = scores->k,
							.block_table = scores->paged.table,
							.lens = scores->paged.lens,
							.cu_q = scores->ragged.cu_q};
	scores->count = (int64_t)heads * rows * scores->params.blocks;
	scores->score = kvt_poison(scores->count, sizeof(float));
	scores->want = kvt_poison(scores->count, sizeof(float));
	scores->n_valid = kvt_poison(rows, sizeof(int32_t));
	scores->want_n_valid = kvt_poison(rows, sizeof(int32_t));
	snprintf(scores->text, sizeof(scores->text),
		 "msa_scores %d x %d heads of %d, page %d, block %d, dtypes %u %u", batch, heads, dim,
		 page_tokens, block_tokens, q_dtype, k_dtype);
}

static void close_scores(struct scores *scores)
{
	kvt_paged_close(&scores->paged);
	free(scores->q);
	free(scores->k);
	free(scores->score);
	free(scores->want);
	free(scores->n_valid);
	free(scores->want_n_valid);
}

static int call_scores(void *context, const struct version *version, const struct kvk_threads *threads)
{
	const struct scores *scores = context;
	struct kvk_msa_scores_params p = scores->params;

	p.threads = threads;
	p.score = scores->score;
	p.n_valid = scores->n_valid;
	return version->msa_scores ? version->msa_scores(&p) : -ENOSYS;
}

/* Products of up to 200 terms cancel: the error is held to the size of the terms, 1e-5 of their number's root. */
static void judge_scores(void *context, const struct version *version)
{
	const struct scores *scores = context;

	for (int64_t i = 0; i < scores->count; i++) {
		const double want = (double)scores->want[i];
		const double got = (double)scores->score[i];

		if (got == want || (isnan(got) && isnan(want)))
			continue;
		if (!(fabs(got - want) <= 1e-5 + 1e-5 * fabs(want)))
			fail_msg("%s: %s: score %lld is %.9g, not %.9g", scores->text, version->name,
				 (long long)i, got, want);
	}
	assert_memory_equal(scores->n_valid, scores->want_n_valid,
			    (size_t)scores->params.rows * sizeof(int32_t));
}

void random_msa_scores(struct kvt_rng *rng)
{
	for (int i = random_cases(30); i > 0; i--) {
		struct scores scores = {0};
		struct kvk_msa_scores_params p;

		open_scores(&scores, rng);
		p = scores.params;
		p.score = scores.want;
		p.n_valid = scores.want_n_valid;
		assert_int_equal(kvk_msa_scores_ref(&p), 0);
		random_check(rng, &(const struct subject){
					  .text = scores.text,
					  .context = &scores,
					  .call = call_scores,
					  .judge = judge_scores,
					  .outputs = {{scores.score, (size_t)scores.count * sizeof(float)},
						      {scores.n_valid,
						       (size_t)scores.params.rows * sizeof(int32_t)}}});
		close_scores(&scores);
	}
}

/* ------------------------------------------------------------------ selection */

struct selection {
	struct kvk_msa_select_params params;
	int32_t *selected, *want;
	size_t bytes;
};

static int call_selection(void *context, const struct version *version, const struct kvk_threads *threads)
{
	const struct selection *selection = context;
	struct kvk_msa_select_params p = selection->params;

	p.threads = threads;
	p.selected = selection->selected;
	return version->msa_select ? version->msa_select(&p) : -ENOSYS;
}

static void judge_selection(void *context, const struct version *version)
{
	const struct selection *selection = context;

	if (memcmp(selection->selected, selection->want, selection->bytes))
		fail_msg("msa_select: %s: top %d of %d blocks", version->name, selection->params.topk,
			 selection->params.blocks);
}

/* Few distinct values, so that there are ties; NaN, infinities, and the numbers that forced blocks have. */
static float random_score(struct kvt_rng *rng)
{
	static const float special[] = {NAN, -INFINITY, INFINITY, 1e30f, 1e29f, -1e30f, 0, -0.0f};

	switch (kvt_between(rng, 0, 3)) {
	case 0:
		return special[kvt_between(rng, 0, 7)];
	case 1:
		return (float)kvt_between(rng, -3, 3);
	default:
		return kvt_uniform(rng) * 10;
	}
}

void random_msa_select(struct kvt_rng *rng)
{
	for (int i = random_cases(150); i > 0; i--) {
		const int32_t heads = kvt_between(rng, 1, 5);
		const int32_t rows = kvt_between(rng, 1, 6);
		const int32_t blocks =
			kvt_between(rng, 0, 1) ? kvt_between(rng, 0, 40) : kvt_between(rng, 0, 1100);
		const int32_t topk = kvt_between(rng, 0, 1) ? 16 : kvt_between(rng, 1, 70);
		float *score = kvt_poison((int64_t)heads * rows * blocks, sizeof(float));
		int32_t n_valid[6];
		struct selection selection = {.bytes = (size_t)(heads * rows * topk) * sizeof(int32_t)};

		for (int64_t n = 0; n < (int64_t)heads * rows * blocks; n++)
			score[n] = random_score(rng);
		for (int n = 0; n < 6; n++)
			n_valid[n] = kvt_between(rng, -1, blocks + 2);
		selection.selected = kvt_poison(heads * rows * topk, sizeof(int32_t));
		selection.want = kvt_poison(heads * rows * topk, sizeof(int32_t));
		selection.params = (struct kvk_msa_select_params){.size = sizeof(selection.params),
								  .heads = heads,
								  .rows = rows,
								  .blocks = blocks,
								  .topk = topk,
								  .init_blocks = kvt_between(rng, 0, 3),
								  .local_blocks = kvt_between(rng, 0, 3),
								  .score = score,
								  .n_valid = n_valid,
								  .selected = selection.want};
		assert_int_equal(kvk_msa_select_ref(&selection.params), 0);
		random_check(rng,
			     &(const struct subject){.text = "msa_select",
						     .context = &selection,
						     .call = call_selection,
						     .judge = judge_selection,
						     .outputs = {{selection.selected, selection.bytes}}});
		free(score);
		free(selection.selected);
		free(selection.want);
	}
}
