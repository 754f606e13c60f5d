/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include "dtype.h"

#include <stdlib.h>

void *kvt_poison(int64_t count, size_t element_bytes)
{
	size_t bytes = (size_t)count * element_bytes;
	void *memory = malloc(bytes ? bytes : 1);

	assert_non_null(memory);
	return memset(memory, 0xff, bytes);
}

float kvt_uniform(struct kvt_rng *rng)
{
	return (float)(int32_t)(kvt_rng_next(rng) >> 40) * 0x1p-23f - 1;
}

int32_t kvt_between(struct kvt_rng *rng, int32_t low, int32_t high)
{
	return low + (int32_t)kvt_rng_below(rng, (uint64_t)high - low + 1);
}

void kvt_fill(struct kvt_rng *rng, void *array, uint32_t dtype, int64_t offset, int64_t count,
	      float amplitude)
{
	for (int64_t i = 0; i < count; i++)
		kvk_store(array, dtype, offset + i, kvt_uniform(rng) * amplitude);
}

void *kvt_values(struct kvt_rng *rng, uint32_t dtype, int64_t count, float amplitude)
{
	void *array = kvt_poison(count, kvk_dtype_bytes(dtype));

	kvt_fill(rng, array, dtype, 0, count, amplitude);
	return array;
}

void kvt_fill_fp8_row(struct kvt_rng *rng, unsigned char *row)
{
	kvt_fill(rng, row, KVK_E4M3, 0, KVK_MLA_LATENT, 448);
	for (int tile = 0; tile < 4; tile++)
		kvk_store(row + KVK_MLA_LATENT, KVK_F32, tile, ldexpf(1, kvt_between(rng, -13, -8)));
	kvt_fill(rng, row + KVK_MLA_LATENT + 16, KVK_BF16, 0, KVK_MLA_ROPE, 1);
}

static int32_t pages_of(int32_t len, int32_t page_tokens)
{
	return len > 0 ? (len - 1) / page_tokens + 1 : 0;
}

static int32_t *permutation(struct kvt_rng *rng, int32_t count)
{
	int32_t *ids = kvt_poison(count, sizeof(*ids));

	for (int32_t i = 0; i < count; i++) {
		int32_t at = kvt_between(rng, 0, i);

		ids[i] = ids[at];
		ids[at] = i;
	}
	return ids;
}

void kvt_paged_open(struct kvt_paged *paged, struct kvt_rng *rng, const int32_t *lens, int32_t batch,
		    int32_t page_tokens)
{
	static const int32_t garbage[] = {-1, 2147483647, 2147480000};
	int32_t used = 0;
	int32_t *ids;

	*paged = (struct kvt_paged){.batch = batch, .page_tokens = page_tokens};
	for (int32_t r = 0; r < batch; r++) {
		int32_t pages = pages_of(lens[r], page_tokens);

		paged->width = pages + 2 > paged->width ? pages + 2 : paged->width;
		used += pages;
	}
	paged->pages = used + 3;
	paged->lens = kvt_poison(batch, sizeof(int32_t));
	memcpy(paged->lens, lens, (size_t)batch * sizeof(int32_t));
	paged->table = kvt_poison((int64_t)batch * paged->width, sizeof(int32_t));
	ids = permutation(rng, paged->pages);
	used = 0;
	for (int32_t r = 0; r < batch; r++)
		for (int32_t i = 0; i < paged->width; i++)
			paged->table[r * paged->width + i] =
				i < pages_of(lens[r], page_tokens) ? ids[used++] : garbage[i % 3];
	free(ids);
}

void kvt_paged_close(struct kvt_paged *paged)
{
	free(paged->table);
	free(paged->lens);
}

int64_t kvt_paged_offset(const struct kvt_paged *paged, int32_t r, int32_t j, int64_t stride_page,
			 int64_t stride_token)
{
	int64_t page = paged->table[r * paged->width + j / paged->page_tokens];

	return page * stride_page + j % paged->page_tokens * stride_token;
}

static void fill_mla_rows(struct kvt_mla *mla, struct kvt_rng *rng, uint32_t dtype, int64_t width)
{
	for (int32_t r = 0; r < mla->paged.batch; r++)
		for (int32_t j = 0; j < mla->paged.lens[r]; j++) {
			int64_t at =
				kvt_paged_offset(&mla->paged, r, j, mla->paged.page_tokens * width, width);

			if (dtype == KVK_MLA_FP8)
				kvt_fill_fp8_row(rng, (unsigned char *)mla->kv + at);
			else
				kvt_fill(rng, mla->kv, dtype, at, KVK_MLA_WIDTH, 1);
		}
}

void kvt_mla_open(struct kvt_mla *mla, struct kvt_rng *rng, const int32_t *lens, int32_t batch, int32_t s_q,
		  int32_t heads, int32_t page_tokens, uint32_t kv_dtype)
{
	const int64_t width = kv_dtype == KVK_MLA_FP8 ? KVK_MLA_FP8_ROW_BYTES : KVK_MLA_WIDTH;
	const uint32_t q_dtype = kv_dtype == KVK_MLA_FP8 ? KVK_BF16 : kv_dtype;

	kvt_paged_open(&mla->paged, rng, lens, batch, page_tokens);
	mla->lse_count = (int64_t)batch * s_q * heads;
	mla->out_count = mla->lse_count * KVK_MLA_LATENT;
	mla->q = kvt_values(rng, q_dtype, mla->lse_count * KVK_MLA_WIDTH, 1);
	mla->kv = kvt_poison(mla->paged.pages * page_tokens * width, kvk_dtype_bytes(kv_dtype));
	mla->sink = kvt_values(rng, KVK_F32, heads, 4);
	mla->out = kvt_poison(mla->out_count, sizeof(float));
	mla->lse = kvt_poison(mla->lse_count, sizeof(float));
	fill_mla_rows(mla, rng, kv_dtype, width);
	mla->params = (struct kvk_mla_dense_params){.size = sizeof(mla->params),
						    .batch = batch,
						    .s_q = s_q,
						    .heads = heads,
						    .page_tokens = page_tokens,
						    .pages = mla->paged.pages,
						    .table_width = mla->paged.width,
						    .q_dtype = q_dtype,
						    .kv_dtype = kv_dtype,
						    .out_dtype = KVK_F32,
						    .scale = 0.1352f,
						    .q = mla->q,
						    .kv = mla->kv,
						    .block_table = mla->paged.table,
						    .lens = mla->paged.lens,
						    .out = mla->out,
						    .lse = mla->lse};
}

void kvt_mla_close(struct kvt_mla *mla)
{
	kvt_paged_close(&mla->paged);
	free(mla->q);
	free(mla->kv);
	free(mla->sink);
	free(mla->out);
	free(mla->lse);
}

/* Strides of K and V in one allocation of pages * page_tokens * kv_heads * 2 * head_dim elements. */
static void set_layout(struct kvk_gqa_dense_params *p, void *cache, enum kvt_layout layout)
{
	const int64_t dim = p->head_dim;
	const int64_t page = (int64_t)p->page_tokens * p->kv_heads * dim;
	const int64_t half = layout == KVT_PACKED  ? dim              /* V beside K in one row of 2 * dim */
			     : layout == KVT_SPLIT ? page             /* each page: all K, then all V */
						   : p->pages * page; /* all K, then all V */
	const int64_t row = layout == KVT_PACKED ? 2 * dim : dim;

	p->k = cache;
	p->v = (char *)cache + half * (int64_t)kvk_dtype_bytes(p->kv_dtype);
	p->k_stride_page = layout == KVT_PACKED || layout == KVT_SPLIT ? 2 * page : page;
	p->k_stride_token = layout == KVT_NHD ? p->kv_heads * row : row;
	p->k_stride_head = layout == KVT_NHD ? row : p->page_tokens * row;
	p->v_stride_page = p->k_stride_page;
	p->v_stride_token = p->k_stride_token;
	p->v_stride_head = p->k_stride_head;
}

static void fill_gqa_rows(struct kvt_gqa *gqa, struct kvt_rng *rng, const void *base)
{
	const struct kvk_gqa_dense_params *p = &gqa->params;
	char *array = (char *)gqa->cache + ((const char *)base - (const char *)gqa->cache);

	for (int32_t r = 0; r < p->batch; r++)
		for (int32_t j = 0; j < gqa->paged.lens[r]; j++)
			for (int32_t g = 0; g < p->kv_heads; g++)
				kvt_fill(rng, array, p->kv_dtype,
					 kvt_paged_offset(&gqa->paged, r, j, p->k_stride_page,
							  p->k_stride_token) +
						 g * p->k_stride_head,
					 p->head_dim, 1);
}

void kvt_gqa_open(struct kvt_gqa *gqa, struct kvt_rng *rng, const int32_t *lens, int32_t batch, int32_t s_q,
		  int32_t kv_heads, int32_t group, int32_t head_dim, int32_t page_tokens, uint32_t kv_dtype,
		  enum kvt_layout layout)
{
	kvt_paged_open(&gqa->paged, rng, lens, batch, page_tokens);
	gqa->lse_count = (int64_t)batch * s_q * kv_heads * group;
	gqa->out_count = gqa->lse_count * head_dim;
	gqa->q = kvt_values(rng, kv_dtype, gqa->out_count, 1);
	gqa->cache = kvt_poison(2ll * gqa->paged.pages * page_tokens * kv_heads * head_dim,
				kvk_dtype_bytes(kv_dtype));
	gqa->out = kvt_poison(gqa->out_count, sizeof(float));
	gqa->lse = kvt_poison(gqa->lse_count, sizeof(float));
	gqa->params = (struct kvk_gqa_dense_params){.size = sizeof(gqa->params),
						    .batch = batch,
						    .s_q = s_q,
						    .rows = batch * s_q,
						    .heads = kv_heads * group,
						    .kv_heads = kv_heads,
						    .head_dim = head_dim,
						    .page_tokens = page_tokens,
						    .pages = gqa->paged.pages,
						    .table_width = gqa->paged.width,
						    .q_dtype = kv_dtype,
						    .kv_dtype = kv_dtype,
						    .out_dtype = KVK_F32,
						    .scale = 0.3f,
						    .q = gqa->q,
						    .block_table = gqa->paged.table,
						    .lens = gqa->paged.lens,
						    .out = gqa->out,
						    .lse = gqa->lse};
	set_layout(&gqa->params, gqa->cache, layout);
	fill_gqa_rows(gqa, rng, gqa->params.k);
	fill_gqa_rows(gqa, rng, gqa->params.v);
}

void kvt_gqa_close(struct kvt_gqa *gqa)
{
	kvt_paged_close(&gqa->paged);
	free(gqa->q);
	free(gqa->cache);
	free(gqa->out);
	free(gqa->lse);
}

struct kvk_msa_sparse_params kvt_gqa_sparse(const struct kvk_gqa_dense_params *d, const int32_t *selected,
					    int32_t topk, int32_t block)
{
	return (struct kvk_msa_sparse_params){.size = sizeof(struct kvk_msa_sparse_params),
					      .batch = d->batch,
					      .s_q = d->s_q,
					      .rows = d->rows,
					      .heads = d->heads,
					      .kv_heads = d->kv_heads,
					      .head_dim = d->head_dim,
					      .block_tokens = block,
					      .topk = topk,
					      .page_tokens = d->page_tokens,
					      .pages = d->pages,
					      .table_width = d->table_width,
					      .q_dtype = d->q_dtype,
					      .kv_dtype = d->kv_dtype,
					      .out_dtype = d->out_dtype,
					      .scale = d->scale,
					      .q = d->q,
					      .k = d->k,
					      .v = d->v,
					      .selected = selected,
					      .block_table = d->block_table,
					      .lens = d->lens,
					      .out = d->out,
					      .lse = d->lse,
					      .k_stride_page = d->k_stride_page,
					      .k_stride_token = d->k_stride_token,
					      .k_stride_head = d->k_stride_head,
					      .v_stride_page = d->v_stride_page,
					      .v_stride_token = d->v_stride_token,
					      .v_stride_head = d->v_stride_head};
}
