/* SPDX-License-Identifier: Apache-2.0 */
/* Random MLA decodes. The reference takes one head of one sequence at a time: as many as there is time for. */
#include "random.h"

#include "measure.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SAMPLES 12

static const uint32_t kv_dtypes[] = {KVK_BF16, KVK_F16, KVK_F32, KVK_MLA_FP8};

/* A head of a sequence, all its queries: what the reference says. */
struct sample {
	int32_t sequence, head;
	float *out; /* [s_q, 512] */
	float *lse; /* [s_q] */
};

struct samples {
	struct sample at[MAX_SAMPLES];
	int count;
};

static struct sample *add_sample(struct samples *samples, struct kvt_rng *rng, int32_t batch, int32_t heads,
				 int32_t s_q)
{
	struct sample *sample = &samples->at[samples->count++];

	*sample = (struct sample){.sequence = kvt_between(rng, 0, batch - 1),
				  .head = kvt_between(rng, 0, heads - 1),
				  .out = kvt_poison((int64_t)s_q * KVK_MLA_LATENT, sizeof(float)),
				  .lse = kvt_poison(s_q, sizeof(float))};
	return sample;
}

static void free_samples(struct samples *samples)
{
	for (int i = 0; i < samples->count; i++) {
		free(samples->at[i].out);
		free(samples->at[i].lse);
	}
	samples->count = 0;
}

/* `out` [batch, s_q, heads, 512] and lse [batch, heads, s_q] against the samples. */
static void judge_samples(const struct samples *samples, const char *text, const struct version *version,
			  const void *out, uint32_t dtype, const float *lse, int32_t heads, int32_t s_q)
{
	for (int n = 0; n < samples->count; n++) {
		const struct sample *sample = &samples->at[n];
		const int64_t first = (int64_t)sample->sequence * s_q;

		for (int32_t i = 0; i < s_q; i++) {
			float row[KVK_MLA_LATENT];
			struct measure rows;

			random_load_row(row, out, dtype, (first + i) * heads + sample->head, KVK_MLA_LATENT);
			rows = measure_rows(row, sample->out + (int64_t)i * KVK_MLA_LATENT, 1, KVK_MLA_LATENT,
					    random_row_limit(dtype));
			if (!rows.pass)
				fail_msg("%s: %s: sequence %d, head %d, query %d: error %g", text,
					 version->name, sample->sequence, sample->head, i, rows.error);
		}
		if (!measure_values(lse + ((int64_t)sample->sequence * heads + sample->head) * s_q,
				    sample->lse, s_q)
			     .pass)
			fail_msg("%s: %s: sequence %d, head %d: lse", text, version->name, sample->sequence,
				 sample->head);
	}
}

static void random_query(struct kvt_mla *mla, struct kvt_rng *rng)
{
	free(mla->q);
	mla->params.q_dtype = random_plain_dtype(rng);
	mla->q = kvt_values(rng, mla->params.q_dtype, mla->lse_count * KVK_MLA_WIDTH, 1);
	mla->params.q = mla->q;
}

static int64_t query_bytes(uint32_t q_dtype, int64_t rows)
{
	return rows * KVK_MLA_WIDTH * (int64_t)kvk_dtype_bytes(q_dtype);
}

/* ------------------------------------------------------------------ dense */

struct dense {
	struct kvt_mla mla;
	struct samples samples;
	char text[128];
};

static void sample_dense(struct dense *dense, struct kvt_rng *rng)
{
	const struct kvk_mla_dense_params *whole = &dense->mla.params;
	int64_t work = 0;

	while (dense->samples.count < MAX_SAMPLES && work < RANDOM_WORK) {
		struct sample *sample =
			add_sample(&dense->samples, rng, whole->batch, whole->heads, whole->s_q);
		struct kvk_mla_dense_params p = *whole;

		p.batch = p.heads = 1;
		p.q_stride_query = (int64_t)whole->heads * KVK_MLA_WIDTH;
		p.q = (const char *)p.q +
		      query_bytes(p.q_dtype, (int64_t)sample->sequence * p.s_q * whole->heads + sample->head);
		p.block_table += (int64_t)sample->sequence * p.table_width;
		p.lens += sample->sequence;
		p.sink = p.sink ? p.sink + sample->head : NULL;
		p.out_dtype = KVK_F32;
		p.out = sample->out;
		p.lse = sample->lse;
		assert_int_equal(kvk_mla_dense_ref(&p), 0);
		work += (int64_t)p.s_q * (p.lens[0] > 0 ? p.lens[0] : 0) + 10;
	}
}

static int call_dense(void *context, const struct version *version, const struct kvk_threads *threads)
{
	const struct dense *dense = context;
	struct kvk_mla_dense_params p = dense->mla.params;

	p.threads = threads;
	return version->mla_dense ? version->mla_dense(&p) : -ENOSYS;
}

static void judge_dense(void *context, const struct version *version)
{
	const struct dense *dense = context;
	const struct kvt_mla *mla = &dense->mla;

	judge_samples(&dense->samples, dense->text, version, mla->out, mla->params.out_dtype, mla->lse,
		      mla->params.heads, mla->params.s_q);
}

static void dense_alone(void *context, const struct version *version)
{
	const struct dense *dense = context;
	const struct kvt_mla *mla = &dense->mla;
	const int32_t sequence = dense->samples.at[0].sequence;
	const int64_t rows = (int64_t)mla->params.s_q * mla->params.heads;
	struct kvk_mla_dense_params p = mla->params;
	const int64_t bytes = rows * KVK_MLA_LATENT * (int64_t)kvk_dtype_bytes(p.out_dtype);
	float *out = kvt_poison(rows * KVK_MLA_LATENT, sizeof(float));
	float *lse = kvt_poison(rows, sizeof(float));

	p.batch = 1;
	p.q = (const char *)p.q + query_bytes(p.q_dtype, sequence * rows);
	p.block_table += (int64_t)sequence * p.table_width;
	p.lens += sequence;
	p.out = out;
	p.lse = lse;
	assert_int_equal(version->mla_dense(&p), 0);
	if (memcmp(out, (const char *)mla->out + sequence * bytes, (size_t)bytes) ||
	    memcmp(lse, mla->lse + sequence * rows, (size_t)rows * sizeof(float)))
		fail_msg("%s: %s: sequence %d alone gives other bits", dense->text, version->name, sequence);
	free(out);
	free(lse);
}

static int32_t random_heads(struct kvt_rng *rng)
{
	switch (kvt_between(rng, 0, 5)) {
	case 0:
		return kvt_between(rng, 1, 130);
	case 1: /* whole groups */
		return 64 * kvt_between(rng, 1, 2);
	default:
		return kvt_between(rng, 1, 33);
	}
}

/* Keys that a case may have: the versions do all heads of them, several times over. */
static int32_t most_keys(int32_t rows)
{
	const int32_t keys = RANDOM_WORK * 4 / rows;

	return keys < 5000 ? keys : 5000;
}

void random_mla_dense(struct kvt_rng *rng)
{
	for (int i = random_cases(24); i > 0; i--) {
		const int32_t heads = random_heads(rng);
		const int32_t s_q = kvt_between(rng, 1, 3);
		struct dense dense = {0};
		struct kvt_mla *mla = &dense.mla;
		int32_t lens[4];
		const int32_t batch = random_lens(rng, lens, most_keys(heads * s_q));
		const int32_t page_tokens = random_page_tokens(rng);

		kvt_mla_open(mla, rng, lens, batch, s_q, heads, page_tokens,
			     kv_dtypes[kvt_between(rng, 0, 3)]);
		random_query(mla, rng);
		mla->params.flags = kvt_between(rng, 0, 1) ? KVK_CAUSAL : 0;
		mla->params.sink = kvt_between(rng, 0, 1) ? mla->sink : NULL;
		mla->params.out_dtype = random_out_dtype(rng);
		snprintf(dense.text, sizeof(dense.text),
			 "mla_dense %d x %d heads x %d, page %d, dtypes %u %u %u", batch, heads, s_q,
			 page_tokens, mla->params.q_dtype, mla->params.kv_dtype, mla->params.out_dtype);
		sample_dense(&dense, rng);
		random_check(rng, &(const struct subject){
					  .text = dense.text,
					  .context = &dense,
					  .call = call_dense,
					  .judge = judge_dense,
					  .alone = dense_alone,
					  .outputs = {{mla->out, (size_t)mla->out_count * sizeof(float)},
						      {mla->lse, (size_t)mla->lse_count * sizeof(float)}}});
		free_samples(&dense.samples);
		kvt_mla_close(mla);
	}
}

/* ------------------------------------------------------------------ sparse */

struct sparse {
	struct kvt_mla mla; /* of its params only the arrays are used */
	struct kvk_mla_sparse_params params;
	int32_t *indices;
	int32_t topk_length[4];
	struct samples samples;
	char text[128];
};

/* A slot of any sequence, or, one in eight, none. */
static int32_t random_slot(const struct kvt_mla *mla, struct kvt_rng *rng)
{
	static const int32_t invalid[] = {-1, -2147483647 - 1, 2147483647, 2147480000};
	const struct kvt_paged *paged = &mla->paged;
	const int32_t r = kvt_between(rng, 0, paged->batch - 1);

	if (paged->lens[r] <= 0 || kvt_between(rng, 0, 7) == 0)
		return kvt_between(rng, 0, 4) ? invalid[kvt_between(rng, 0, 3)]
					      : paged->pages * paged->page_tokens;
	return (int32_t)kvt_paged_offset(paged, r, kvt_between(rng, 0, paged->lens[r] - 1),
					 paged->page_tokens, 1);
}

static void open_sparse(struct sparse *sparse, struct kvt_rng *rng, int32_t topk)
{
	struct kvt_mla *mla = &sparse->mla;
	const struct kvk_mla_dense_params *from = &mla->params;
	const int64_t entries = (int64_t)from->batch * from->s_q * topk;

	sparse->indices = kvt_poison(entries, sizeof(int32_t));
	for (int64_t i = 0; i < entries; i++)
		sparse->indices[i] = random_slot(mla, rng);
	for (int i = 0; i < 4; i++)
		sparse->topk_length[i] = kvt_between(rng, -1, topk + 1);
	sparse->params = (struct kvk_mla_sparse_params){
		.size = sizeof(sparse->params),
		.batch = from->batch,
		.s_q = from->s_q,
		.heads = from->heads,
		.topk = topk,
		.page_tokens = from->page_tokens,
		.pages = from->pages,
		.q_dtype = from->q_dtype,
		.kv_dtype = from->kv_dtype,
		.out_dtype = random_out_dtype(rng),
		.scale = from->scale,
		.q = from->q,
		.kv = from->kv,
		.indices = sparse->indices,
		.topk_length = kvt_between(rng, 0, 1) ? sparse->topk_length : NULL,
		.sink = kvt_between(rng, 0, 1) ? mla->sink : NULL,
		.out = mla->out,
		.lse = mla->lse,
	};
}

static void sample_sparse(struct sparse *sparse, struct kvt_rng *rng)
{
	const struct kvk_mla_sparse_params *whole = &sparse->params;
	int64_t work = 0;

	while (sparse->samples.count < MAX_SAMPLES && work < RANDOM_WORK) {
		struct sample *sample =
			add_sample(&sparse->samples, rng, whole->batch, whole->heads, whole->s_q);
		struct kvk_mla_sparse_params p = *whole;

		p.batch = p.heads = 1;
		p.q_stride_query = (int64_t)whole->heads * KVK_MLA_WIDTH;
		p.q = (const char *)p.q +
		      query_bytes(p.q_dtype, (int64_t)sample->sequence * p.s_q * whole->heads + sample->head);
		p.indices += (int64_t)sample->sequence * p.s_q * p.topk;
		p.topk_length = p.topk_length ? p.topk_length + sample->sequence : NULL;
		p.sink = p.sink ? p.sink + sample->head : NULL;
		p.out_dtype = KVK_F32;
		p.out = sample->out;
		p.lse = sample->lse;
		assert_int_equal(kvk_mla_sparse_ref(&p), 0);
		work += (int64_t)p.s_q * p.topk + 10;
	}
}

static int call_sparse(void *context, const struct version *version, const struct kvk_threads *threads)
{
	const struct sparse *sparse = context;
	struct kvk_mla_sparse_params p = sparse->params;

	p.threads = threads;
	return version->mla_sparse ? version->mla_sparse(&p) : -ENOSYS;
}

static void judge_sparse(void *context, const struct version *version)
{
	const struct sparse *sparse = context;

	judge_samples(&sparse->samples, sparse->text, version, sparse->mla.out, sparse->params.out_dtype,
		      sparse->mla.lse, sparse->params.heads, sparse->params.s_q);
}

static void sparse_alone(void *context, const struct version *version)
{
	const struct sparse *sparse = context;
	const struct kvt_mla *mla = &sparse->mla;
	const int32_t sequence = sparse->samples.at[0].sequence;
	const int64_t rows = (int64_t)mla->params.s_q * mla->params.heads;
	struct kvk_mla_sparse_params p = sparse->params;
	const int64_t bytes = rows * KVK_MLA_LATENT * (int64_t)kvk_dtype_bytes(p.out_dtype);
	float *out = kvt_poison(rows * KVK_MLA_LATENT, sizeof(float));

	p.batch = 1;
	p.q = (const char *)p.q + query_bytes(p.q_dtype, sequence * rows);
	p.indices += (int64_t)sequence * p.s_q * p.topk;
	p.topk_length = p.topk_length ? p.topk_length + sequence : NULL;
	p.out = out;
	p.lse = NULL;
	assert_int_equal(version->mla_sparse(&p), 0);
	if (memcmp(out, (const char *)mla->out + sequence * bytes, (size_t)bytes))
		fail_msg("%s: %s: sequence %d alone gives other bits", sparse->text, version->name, sequence);
	free(out);
}

void random_mla_sparse(struct kvt_rng *rng)
{
	for (int i = random_cases(14); i > 0; i--) {
		const int32_t heads = random_heads(rng);
		const int32_t s_q = kvt_between(rng, 1, 2);
		const int32_t topk = kvt_between(rng, 0, most_keys(heads * s_q * 2) / 2);
		struct sparse sparse = {0};
		int32_t lens[4];
		const int32_t batch = random_lens(rng, lens, 700);
		const int32_t page_tokens = random_page_tokens(rng);
		struct kvt_mla *mla = &sparse.mla;

		kvt_mla_open(mla, rng, lens, batch, s_q, heads, page_tokens,
			     kv_dtypes[kvt_between(rng, 0, 3)]);
		random_query(mla, rng);
		open_sparse(&sparse, rng, topk);
		snprintf(sparse.text, sizeof(sparse.text),
			 "mla_sparse %d x %d heads x %d, top %d, page %d, dtypes %u %u %u", batch, heads, s_q,
			 topk, page_tokens, mla->params.q_dtype, mla->params.kv_dtype,
			 sparse.params.out_dtype);
		sample_sparse(&sparse, rng);
		random_check(rng, &(const struct subject){
					  .text = sparse.text,
					  .context = &sparse,
					  .call = call_sparse,
					  .judge = judge_sparse,
					  .alone = sparse_alone,
					  .outputs = {{mla->out, (size_t)mla->out_count * sizeof(float)},
						      {mla->lse, (size_t)mla->lse_count * sizeof(float)}}});
		free_samples(&sparse.samples);
		free(sparse.indices);
		kvt_mla_close(mla);
	}
}
