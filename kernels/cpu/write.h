/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cache write as the loops see it: for each token with a slot, up to two lanes (latent and rope, or K and V), each of
 * some heads of consecutive elements. Everything is in bytes, so that layouts are only strides.
 */
#ifndef KVPOOL_KERNELS_WRITE_H
#define KVPOOL_KERNELS_WRITE_H

#include <stdbool.h>
#include <stdint.h>

#define KVK_WRITE_TILE 128 /* latents that share an FP8 scale */

struct kvk_write_lane {
	const char *src;
	char *dst;
	int64_t src_token, src_head; /* strides */
	int64_t dst_page, dst_token, dst_head;
	int32_t heads;
	int32_t count; /* elements of a head */
};

struct kvk_write_job {
	const void *slots;
	uint32_t slot_bytes;
	int32_t page_tokens;
	uint32_t src_dtype, dst_dtype; /* KVK_MLA_FP8: lane 0 has the latents, lane 1 the rope */
	uint32_t lanes;
	bool past_cache;  /* whole lines are streamed, not stored */
	bool whole_lines; /* every head of the destination is so many lines of 64 bytes */
	struct kvk_write_lane lane[2];
};

struct kvk_write_ops {
	/* Tokens [first, last). What was written past the cache is ordered before what the thread stores next. */
	void (*write)(const struct kvk_write_job *job, int32_t first, int32_t last);
	void (*write_fp8)(const struct kvk_write_job *job, int32_t first, int32_t last);
};

#endif
