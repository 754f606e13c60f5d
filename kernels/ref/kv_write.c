/* SPDX-License-Identifier: Apache-2.0 */
/* The specification of kvk_kv_write(): K and V are two lanes written alike; one lane alone serves index_k. */
#include "ref.h"

struct lane {
	const void *src;
	void *cache;
	int64_t src_token, src_head;
	int64_t page, token, head;
};

/* Bit for bit between equal dtypes, so that NaN payloads survive. */
static void copy_head(const struct kvk_kv_write_params *p, void *cache, int64_t to, const void *src,
		      int64_t from)
{
	const int64_t bytes = (int64_t)kvk_dtype_bytes(p->cache_dtype);

	if (p->src_dtype == p->cache_dtype) {
		memcpy((char *)cache + to * bytes, (const char *)src + from * bytes,
		       (size_t)(p->head_dim * bytes));
		return;
	}
	for (int32_t i = 0; i < p->head_dim; i++)
		kvk_store(cache, p->cache_dtype, to + i, kvk_load(src, p->src_dtype, from + i));
}

static void write_token(const struct kvk_kv_write_params *p, const struct lane *lane, int32_t t, int64_t slot)
{
	const int64_t to = slot / p->page_tokens * lane->page + slot % p->page_tokens * lane->token;

	for (int32_t h = 0; h < p->heads; h++)
		copy_head(p, lane->cache, to + h * lane->head, lane->src,
			  t * lane->src_token + h * lane->src_head);
}

static void write_lane(const struct kvk_kv_write_params *p, const struct lane *lane)
{
	for (int32_t t = 0; t < p->tokens; t++) {
		int64_t slot = kvk_slot(p->slots, p->slot_bytes, t);

		if (slot >= 0)
			write_token(p, lane, t, slot);
	}
}

int kvk_kv_write_ref(const struct kvk_kv_write_params *params)
{
	struct kvk_kv_write_params p;
	int ret = kvk_prepare_kv_write(params, &p);

	if (ret <= 0)
		return ret;
	write_lane(&p, &(const struct lane){p.k, p.k_cache, p.k_stride_token, p.k_stride_head,
					    p.k_cache_stride_page, p.k_cache_stride_token,
					    p.k_cache_stride_head});
	if (p.v)
		write_lane(&p, &(const struct lane){p.v, p.v_cache, p.v_stride_token, p.v_stride_head,
						    p.v_cache_stride_page, p.v_cache_stride_token,
						    p.v_cache_stride_head});
	return 0;
}
