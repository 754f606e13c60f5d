/* SPDX-License-Identifier: Apache-2.0 */
/* Views of one layer's pages inside a shared pool, and writing through them. */
#include "prep.h"

#include "../check.h"

#include <errno.h>

#define PLAIN (1u << KVK_BF16 | 1u << KVK_F16 | 1u << KVK_F32 | 1u << KVK_E4M3)

static int check_layout(struct kvk_prep_fault *fault, uint32_t layout)
{
	return layout == KVK_PREP_NHD || layout == KVK_PREP_HND
		       ? 0
		       : kvk_prep_refuse(fault, -EINVAL, "layout", -1, layout, KVK_PREP_HND);
}

static int check_page(struct kvk_prep_fault *fault, uint32_t layout, uint32_t dtype, int32_t heads,
		      int32_t head_dim, int32_t page_tokens)
{
	int ret = check_layout(fault, layout);

	if (!ret && kvk_check_dtype(dtype, PLAIN))
		ret = kvk_prep_refuse(fault, -EINVAL, "dtype", -1, dtype, KVK_E4M3);
	ret = ret ? ret : kvk_prep_at_least(fault, "heads", heads, 1);
	ret = ret ? ret : kvk_prep_at_least(fault, "head_dim", head_dim, 1);
	return ret ? ret : kvk_prep_at_least(fault, "page_tokens", page_tokens, 1);
}

/* Bytes of a page; -EOVERFLOW when they do not fit. */
static int page_bytes(const struct kvk_prep_view_params *p, int64_t *out_bytes)
{
	int64_t bytes = (int64_t)kvk_dtype_bytes(p->dtype);

	if (__builtin_mul_overflow(bytes, (int64_t)p->heads, &bytes) ||
	    __builtin_mul_overflow(bytes, (int64_t)p->head_dim, &bytes) ||
	    __builtin_mul_overflow(bytes, (int64_t)p->page_tokens, &bytes))
		return kvk_prep_refuse(p->fault, -EOVERFLOW, "page_tokens", -1, p->page_tokens, INT64_MAX);
	*out_bytes = bytes;
	return 0;
}

static int check_view(const struct kvk_prep_view_params *p)
{
	int ret = kvk_prep_flags(p->fault, p->flags, 0);

	ret = ret ? ret : check_page(p->fault, p->layout, p->dtype, p->heads, p->head_dim, p->page_tokens);
	ret = ret ? ret : kvk_prep_at_least(p->fault, "scale", p->scale, 1);
	ret = ret ? ret : kvk_prep_at_least(p->fault, "layer_offset", p->layer_offset, 0);
	ret = ret ? ret : kvk_prep_at_least(p->fault, "page_upper_bound", p->page_upper_bound, 0);
	if (!ret && p->reserved)
		ret = kvk_prep_refuse(p->fault, -EINVAL, "reserved", -1, p->reserved, 0);
	if (!ret && p->layer_offset >= p->scale)
		ret = kvk_prep_refuse(p->fault, -EINVAL, "layer_offset", -1, p->layer_offset, p->scale - 1);
	if (!ret && p->layout == KVK_PREP_HND && p->heads != 1)
		ret = kvk_prep_refuse(p->fault, -ENOTSUP, "heads", -1, p->heads, 1);
	return ret ? ret : kvk_prep_given(p->fault, "base", p->base);
}

/* Slots of the pool, as the layer's own bound tells. */
static int count_slots(const struct kvk_prep_view_params *p, int32_t *out_slots)
{
	int64_t pages;

	if (__builtin_add_overflow(p->page_upper_bound, (int64_t)p->layer_offset, &pages) ||
	    pages / p->scale > INT32_MAX)
		return kvk_prep_refuse(p->fault, -EOVERFLOW, "page_upper_bound", -1, p->page_upper_bound,
				       INT32_MAX);
	if (pages % p->scale)
		return kvk_prep_refuse(p->fault, -ERANGE, "page_upper_bound", -1, p->page_upper_bound,
				       pages - pages % p->scale - p->layer_offset);
	*out_slots = (int32_t)(pages / p->scale);
	return 0;
}

/* The last slot counts one page: its full extent would pass the pool's end by the layer's offset. */
static int measure_view(const struct kvk_prep_view_params *p, int64_t bytes, struct kvk_prep_view *view)
{
	const int64_t element_bytes = (int64_t)kvk_dtype_bytes(p->dtype);
	int64_t pages = view->slots ? (int64_t)(view->slots - 1) * p->scale + 1 : 0;
	int64_t slot_bytes;

	if (__builtin_mul_overflow(pages, bytes, &view->extent_bytes) ||
	    __builtin_mul_overflow((int64_t)p->scale, bytes, &slot_bytes))
		return kvk_prep_refuse(p->fault, -EOVERFLOW, "page_upper_bound", -1, p->page_upper_bound,
				       INT64_MAX / bytes);
	view->slot_stride = slot_bytes / element_bytes;
	return 0;
}

int kvk_prep_index_k_view(const struct kvk_prep_view_params *params, struct kvk_prep_view *out)
{
	struct kvk_prep_view_params p;
	struct kvk_prep_view view;
	int64_t bytes = 0;
	int ret = kvk_take_params(&p, sizeof(p), params);

	if (ret)
		return ret;
	ret = kvk_prep_given(p.fault, "out", out);
	ret = ret ? ret : check_view(&p);
	ret = ret ? ret : page_bytes(&p, &bytes);
	if (!ret && p.page_stride_bytes != bytes)
		ret = kvk_prep_refuse(p.fault, -EINVAL, "page_stride_bytes", -1, p.page_stride_bytes, bytes);
	view = (struct kvk_prep_view){.base = p.base,
				      .dtype = p.dtype,
				      .layout = p.layout,
				      .page_tokens = p.page_tokens,
				      .heads = p.heads,
				      .head_dim = p.head_dim};
	ret = ret ? ret : count_slots(&p, &view.slots);
	ret = ret ? ret : measure_view(&p, bytes, &view);
	if (ret)
		return ret;
	view.token_stride = p.layout == KVK_PREP_NHD ? (int64_t)p.heads * p.head_dim : p.head_dim;
	view.head_stride = p.layout == KVK_PREP_NHD ? p.head_dim : (int64_t)p.page_tokens * p.head_dim;
	*out = view;
	return 0;
}

/* ------------------------------------------------------------------ writing */

static int check_live(const struct kvk_prep_write_params *p)
{
	int ret = kvk_prep_flags(p->fault, p->flags, 0);

	ret = ret ? ret : kvk_prep_at_least(p->fault, "live_tokens", p->live_tokens, 0);
	ret = ret ? ret : kvk_prep_at_least(p->fault, "slot_count", p->slot_count, 0);
	ret = ret ? ret : kvk_prep_at_least(p->fault, "value_rows", p->value_rows, 0);
	if (!ret && p->reserved)
		ret = kvk_prep_refuse(p->fault, -EINVAL, "reserved", -1, p->reserved, 0);
	if (!ret && p->live_tokens > p->slot_count)
		ret = kvk_prep_refuse(p->fault, -ERANGE, "live_tokens", -1, p->live_tokens, p->slot_count);
	if (!ret && p->live_tokens > p->value_rows)
		ret = kvk_prep_refuse(p->fault, -ERANGE, "live_tokens", -1, p->live_tokens, p->value_rows);
	return ret;
}

int kvk_prep_write_slots(const struct kvk_prep_write_params *params)
{
	struct kvk_prep_write_params p;
	struct kvk_prep_view view;
	int ret = kvk_take_params(&p, sizeof(p), params);

	if (ret)
		return ret;
	ret = check_live(&p);
	if (ret || !p.live_tokens)
		return ret;
	ret = kvk_prep_given(p.fault, "view", p.view);
	if (ret)
		return ret;
	view = *p.view;
	ret = check_page(p.fault, view.layout, view.dtype, view.heads, view.head_dim, view.page_tokens);
	if (ret)
		return ret;
	ret = kvk_kv_write(&(const struct kvk_kv_write_params){.size = sizeof(struct kvk_kv_write_params),
							       .tokens = p.live_tokens,
							       .heads = view.heads,
							       .head_dim = view.head_dim,
							       .page_tokens = view.page_tokens,
							       .pages = view.slots,
							       .slot_bytes = p.slot_bytes,
							       .src_dtype = p.src_dtype,
							       .cache_dtype = view.dtype,
							       .k = p.values,
							       .slots = p.slots,
							       .k_cache = view.base,
							       .k_stride_token = p.value_stride_token,
							       .k_stride_head = p.value_stride_head,
							       .k_cache_stride_page = view.slot_stride,
							       .k_cache_stride_token = view.token_stride,
							       .k_cache_stride_head = view.head_stride});
	return ret ? kvk_prep_refuse(p.fault, ret, "kvk_kv_write", -1, ret, 0) : 0;
}
