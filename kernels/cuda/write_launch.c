/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of the cache writes. */
#include "enqueue.h"

#include "../internal.h"

#include <errno.h>

#define SOURCES (1u << KVK_BF16 | 1u << KVK_F16 | 1u << KVK_F32)

static int check_slots(const void *slots, uint32_t slot_bytes)
{
	return slots && (slot_bytes == 4 || slot_bytes == 8) ? 0 : -EINVAL;
}

static int check_mla_write(struct kvk_mla_write_params *p)
{
	const int64_t row = p->kv_dtype == KVK_MLA_FP8 ? KVK_MLA_FP8_ROW_BYTES : KVK_MLA_WIDTH;
	int ret =
		KVK_ALL_OF(check_slots(p->slots, p->slot_bytes),
			   KVK_ARRAY(p->latent, kvk_dtype_bytes(p->src_dtype), 2, (p->tokens, KVK_MLA_LATENT),
				     &p->latent_stride),
			   KVK_ARRAY(p->rope, kvk_dtype_bytes(p->src_dtype), 2, (p->tokens, KVK_MLA_ROPE),
				     &p->rope_stride),
			   KVK_ARRAY(p->kv, kvk_dtype_bytes(p->kv_dtype), 3, (p->pages, p->page_tokens, row),
				     &p->kv_stride_page, &p->kv_stride_token));

	if (!ret && p->kv_dtype == KVK_MLA_FP8)
		ret = kvk_cuda_check_aligned(p->kv, 16, 1,
					     (const int64_t[]){p->kv_stride_page, p->kv_stride_token}, 2);
	return ret;
}

int kvk_mla_write_cuda(const struct kvk_cuda_device *device, const struct kvk_mla_write_params *params)
{
	struct kvk_mla_write_params p;
	struct kvk_cuda_mla_write_args args;
	int ret = kvk_take_params(&p, sizeof(p), params);

	ret = ret ? ret : kvk_cuda_check_device(device);
	if (!ret && (p.flags || p.tokens < 0 || p.page_tokens < 1 || p.pages < 0))
		ret = -EINVAL;
	ret = ret ? ret : kvk_check_dtype(p.src_dtype, SOURCES);
	ret = ret ? ret : kvk_check_dtype(p.kv_dtype, SOURCES | 1u << KVK_MLA_FP8);
	if (ret || !p.tokens)
		return ret;
	ret = check_mla_write(&p);
	if (ret)
		return ret;
	args = (struct kvk_cuda_mla_write_args){.latent = p.latent,
						.rope = p.rope,
						.slots = p.slots,
						.kv = p.kv,
						.latent_stride = p.latent_stride,
						.rope_stride = p.rope_stride,
						.kv_stride_page = p.kv_stride_page,
						.kv_stride_token = p.kv_stride_token,
						.tokens = p.tokens,
						.page_tokens = p.page_tokens,
						.pages = p.pages,
						.slot_bytes = p.slot_bytes,
						.src_dtype = p.src_dtype,
						.kv_dtype = p.kv_dtype};
	return kvk_cuda_enqueue(device, "kvk_cuda_mla_write", (p.tokens + 3ll) / 4, 128, 0, &args,
				sizeof(args));
}

static int check_kv_write(struct kvk_kv_write_params *p)
{
	const size_t from = kvk_dtype_bytes(p->src_dtype), to = kvk_dtype_bytes(p->cache_dtype);
	int ret = KVK_ALL_OF(check_slots(p->slots, p->slot_bytes),
			     KVK_ARRAY(p->k, from, 3, (p->tokens, p->heads, p->head_dim), &p->k_stride_token,
				       &p->k_stride_head),
			     KVK_ARRAY(p->k_cache, to, 4, (p->pages, p->page_tokens, p->heads, p->head_dim),
				       &p->k_cache_stride_page, &p->k_cache_stride_token,
				       &p->k_cache_stride_head));

	if (ret || !p->v)
		return ret ? ret : p->v_cache ? -EINVAL : 0;
	return KVK_ALL_OF(KVK_ARRAY(p->v, from, 3, (p->tokens, p->heads, p->head_dim), &p->v_stride_token,
				    &p->v_stride_head),
			  KVK_ARRAY(p->v_cache, to, 4, (p->pages, p->page_tokens, p->heads, p->head_dim),
				    &p->v_cache_stride_page, &p->v_cache_stride_token,
				    &p->v_cache_stride_head));
}

/* Whether every head's run is copied as whole, aligned pieces of 16 bytes. */
static int in_vectors(const struct kvk_kv_write_params *p)
{
	const size_t bytes = kvk_dtype_bytes(p->src_dtype);
	const int64_t k[] = {p->k_stride_token, p->k_stride_head};
	const int64_t v[] = {p->v_stride_token, p->v_stride_head};
	const int64_t k_cache[] = {p->k_cache_stride_page, p->k_cache_stride_token, p->k_cache_stride_head};
	const int64_t v_cache[] = {p->v_cache_stride_page, p->v_cache_stride_token, p->v_cache_stride_head};

	if (p->src_dtype != p->cache_dtype || p->head_dim * bytes % 16)
		return 0;
	if (kvk_cuda_check_aligned(p->k, 16, bytes, k, 2) ||
	    kvk_cuda_check_aligned(p->k_cache, 16, bytes, k_cache, 3))
		return 0;
	return !p->v || (!kvk_cuda_check_aligned(p->v, 16, bytes, v, 2) &&
			 !kvk_cuda_check_aligned(p->v_cache, 16, bytes, v_cache, 3));
}

static int enqueue_kv_write(const struct kvk_cuda_device *device, const struct kvk_kv_write_params *p)
{
	const struct kvk_cuda_kv_write_args args = {.k = p->k,
						    .v = p->v,
						    .slots = p->slots,
						    .k_cache = p->k_cache,
						    .v_cache = p->v_cache,
						    .k_stride_token = p->k_stride_token,
						    .k_stride_head = p->k_stride_head,
						    .v_stride_token = p->v_stride_token,
						    .v_stride_head = p->v_stride_head,
						    .k_cache_stride_page = p->k_cache_stride_page,
						    .k_cache_stride_token = p->k_cache_stride_token,
						    .k_cache_stride_head = p->k_cache_stride_head,
						    .v_cache_stride_page = p->v_cache_stride_page,
						    .v_cache_stride_token = p->v_cache_stride_token,
						    .v_cache_stride_head = p->v_cache_stride_head,
						    .tokens = p->tokens,
						    .heads = p->heads,
						    .head_dim = p->head_dim,
						    .page_tokens = p->page_tokens,
						    .pages = p->pages,
						    .slot_bytes = p->slot_bytes,
						    .src_dtype = p->src_dtype,
						    .cache_dtype = p->cache_dtype,
						    .vector_bytes = in_vectors(p) ? 16 : 0};
	const int64_t elements = args.vector_bytes ? 16 / (int64_t)kvk_dtype_bytes(p->src_dtype) : 1;
	const int64_t units = (int64_t)p->tokens * p->heads * (p->head_dim / elements);

	return kvk_cuda_enqueue(device, "kvk_cuda_kv_write", (units + 255) / 256, 256, 0, &args,
				sizeof(args));
}

int kvk_kv_write_cuda(const struct kvk_cuda_device *device, const struct kvk_kv_write_params *params)
{
	struct kvk_kv_write_params p;
	int ret = kvk_take_params(&p, sizeof(p), params);

	ret = ret ? ret : kvk_cuda_check_device(device);
	if (!ret &&
	    (p.flags || p.tokens < 0 || p.heads < 1 || p.head_dim < 1 || p.page_tokens < 1 || p.pages < 0))
		ret = -EINVAL;
	ret = ret ? ret : kvk_check_dtype(p.src_dtype, SOURCES);
	ret = ret ? ret : kvk_check_dtype(p.cache_dtype, SOURCES | 1u << KVK_E4M3);
	if (ret || !p.tokens)
		return ret;
	ret = check_kv_write(&p);
	return ret ? ret : enqueue_kv_write(device, &p);
}
