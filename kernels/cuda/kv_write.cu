/* SPDX-License-Identifier: Apache-2.0 */
/*
 * K and V cache write: a thread takes one piece of one head of one token, of K and of V. A piece is 16
 * bytes where the launcher found dtypes equal and everything aligned, else one element, copied bit for bit
 * or converted.
 */
#include "args.h"
#include "value.h"

/* One side's piece: `from` and `to` are element offsets. */
KVK_DEVICE void copy_piece(const kvk_cuda_kv_write_args &p, const void *source, int64_t from, void *cache,
			   int64_t to)
{
	const int32_t bytes = p.src_dtype == KVK_F32 ? 4 : 2;

	if (p.vector_bytes)
		kvk_store16(static_cast<char *>(cache) + to * bytes,
			    kvk_load16(static_cast<const char *>(source) + from * bytes));
	else if (p.src_dtype != p.cache_dtype)
		kvk_store(cache, p.cache_dtype, to, kvk_load(source, p.src_dtype, from));
	else if (bytes == 2)
		static_cast<uint16_t *>(cache)[to] = static_cast<const uint16_t *>(source)[from];
	else
		static_cast<uint32_t *>(cache)[to] = static_cast<const uint32_t *>(source)[from];
}

KVK_KERNEL(kvk_cuda_kv_write, kvk_cuda_kv_write_args, 256, 4)
{
	const int64_t slots = static_cast<int64_t>(p.pages) * p.page_tokens;
	const int32_t step = p.vector_bytes ? p.vector_bytes / (p.src_dtype == KVK_F32 ? 4 : 2) : 1;
	const int32_t pieces = p.head_dim / step; /* of a head */
	const int64_t units = static_cast<int64_t>(p.tokens) * p.heads * pieces;
	const int64_t stride = kvk_blocks() * kvk_threads_of_block();

	for (int64_t unit = kvk_block() * kvk_threads_of_block() + kvk_thread(); unit < units;
	     unit += stride) {
		const int32_t d = static_cast<int32_t>(unit % pieces) * step;
		const int32_t h = static_cast<int32_t>(unit / pieces % p.heads);
		const int64_t t = unit / pieces / p.heads;
		const int64_t slot = kvk_slot_at(p.slots, p.slot_bytes, t);

		if (slot < 0 || slot >= slots)
			continue;
		copy_piece(p, p.k, t * p.k_stride_token + h * p.k_stride_head + d, p.k_cache,
			   slot / p.page_tokens * p.k_cache_stride_page +
				   slot % p.page_tokens * p.k_cache_stride_token + h * p.k_cache_stride_head +
				   d);
		if (p.v)
			copy_piece(p, p.v, t * p.v_stride_token + h * p.v_stride_head + d, p.v_cache,
				   slot / p.page_tokens * p.v_cache_stride_page +
					   slot % p.page_tokens * p.v_cache_stride_token +
					   h * p.v_cache_stride_head + d);
	}
}
