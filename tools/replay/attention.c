/* SPDX-License-Identifier: Apache-2.0 */
/* MLA attention over a step's arrays. */
#include "attention.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* 192^-0.5, as models with 128 + 64 elements a head have it. */
#define SCALE 0.07216878364870323f

static const struct rep_plane *first_latent(const struct rep_planes *planes)
{
	for (uint32_t i = 0; i < planes->count; i++)
		if (planes->at[i].role == KVP_ROLE_LATENT)
			return &planes->at[i];
	return NULL;
}

/* kvp_dtype and KVK_* of what a latent plane can hold. */
static uint32_t kernel_dtype(uint32_t dtype)
{
	switch (dtype) {
	case KVP_DTYPE_BF16:
		return KVK_BF16;
	case KVP_DTYPE_F16:
		return KVK_F16;
	case KVP_DTYPE_F32:
		return KVK_F32;
	case KVP_DTYPE_FP8_V32:
		return KVK_MLA_FP8;
	default:
		return 0;
	}
}

static void init_params(struct rep_attention *attention, const struct kvp_pool_info *pool)
{
	const struct rep_plane *plane = attention->plane;
	uint32_t dtype = kernel_dtype(plane->dtype);
	int64_t element = (int64_t)kvk_dtype_bytes(dtype);

	attention->params = (struct kvk_mla_dense_params){
		.size = sizeof(attention->params),
		.s_q = 1,
		.heads = (int32_t)attention->heads,
		.page_tokens = (int32_t)pool->block_tokens,
		.pages = (int32_t)pool->blocks,
		.q_dtype = KVK_F32,
		.kv_dtype = dtype,
		.out_dtype = KVK_F32,
		.scale = SCALE,
		.kv = plane->data,
		.kv_stride_page = plane->block_stride / element,
		.kv_stride_token = plane->token_stride / element,
	};
}

int rep_attention_init(struct rep_attention *attention, const struct rep_planes *planes,
		       const struct kvp_pool_info *pool, uint32_t batch, uint32_t heads)
{
	memset(attention, 0, sizeof(*attention));
	attention->plane = first_latent(planes);
	if (!attention->plane || !kernel_dtype(attention->plane->dtype)) {
		attention->plane = NULL;
		return 0;
	}
	attention->heads = heads;
	attention->query = calloc((size_t)batch * heads, KVK_MLA_WIDTH * sizeof(float));
	attention->out = calloc((size_t)batch * heads, KVK_MLA_LATENT * sizeof(float));
	attention->reference = calloc(heads, KVK_MLA_LATENT * sizeof(float));
	if (!attention->query || !attention->out || !attention->reference) {
		rep_attention_free(attention);
		return -ENOMEM;
	}
	init_params(attention, pool);
	return 0;
}

void rep_attention_free(struct rep_attention *attention)
{
	free(attention->query);
	free(attention->out);
	free(attention->reference);
	free(attention->scratch);
	memset(attention, 0, sizeof(*attention));
}

void rep_attention_query(struct rep_attention *attention, uint32_t row, uint64_t seed)
{
	uint32_t count = attention->heads * KVK_MLA_WIDTH;

	rep_query(seed, attention->query + (size_t)row * count, count);
}

/* The step's arrays from row `first` on. */
static struct kvk_mla_dense_params params_of(const struct rep_attention *attention,
					     const struct kvp_batch_view *view, uint32_t first, uint32_t rows,
					     float *out)
{
	struct kvk_mla_dense_params params = attention->params;

	params.batch = (int32_t)rows;
	params.table_width = (int32_t)view->table_width;
	params.block_table = view->block_table + (size_t)first * view->table_width;
	params.lens = view->kv_lens + first;
	params.q = attention->query + (size_t)first * attention->heads * KVK_MLA_WIDTH;
	params.out = out;
	return params;
}

/* Makes the scratch large enough for `params` and gives it to them. */
static int give_scratch(struct rep_attention *attention, struct kvk_mla_dense_params *params)
{
	size_t bytes;
	int ret = kvk_mla_dense_scratch(params, &bytes);

	if (ret)
		return ret;
	if (bytes > attention->scratch_bytes) {
		const size_t lines = (bytes + KVK_SCRATCH_ALIGN - 1) / KVK_SCRATCH_ALIGN;
		void *scratch = aligned_alloc(KVK_SCRATCH_ALIGN, lines * KVK_SCRATCH_ALIGN);

		if (!scratch)
			return -ENOMEM;
		free(attention->scratch);
		attention->scratch = scratch;
		attention->scratch_bytes = bytes;
	}
	params->scratch = attention->scratch;
	params->scratch_bytes = attention->scratch_bytes;
	return 0;
}

int rep_attention_run(struct rep_attention *attention, const struct kvp_batch_view *view)
{
	struct kvk_mla_dense_params params = params_of(attention, view, 0, view->rows, attention->out);
	int ret = give_scratch(attention, &params);

	return ret ? ret : kvk_mla_dense(&params);
}

int rep_attention_compare(struct rep_attention *attention, const struct kvp_batch_view *view, uint32_t row,
			  struct rep_attention_mismatch *out)
{
	struct kvk_mla_dense_params params = params_of(attention, view, row, 1, attention->reference);
	uint32_t count = attention->heads * KVK_MLA_LATENT;
	const float *got = attention->out + (size_t)row * count;
	double largest = 0;
	int ret = kvk_mla_dense_ref(&params);

	if (ret)
		return ret;
	for (uint32_t i = 0; i < count; i++)
		largest = fmax(largest, fabs((double)attention->reference[i]));
	for (uint32_t i = 0; i < count; i++) {
		double wanted = (double)attention->reference[i];

		/* Written so that a NaN is a difference. */
		if (fabs((double)got[i] - wanted) <= REP_ATTENTION_TOLERANCE * largest)
			continue;
		*out = (struct rep_attention_mismatch){.element = i, .got = (double)got[i], .wanted = wanted};
		return 1;
	}
	return 0;
}
