/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MLA cache write: a warp takes one token. Plain rows are copied (equal dtypes, 16 bytes a lane where all
 * is aligned) or converted; KVK_MLA_FP8 rows are quantised, four latents a lane at a time, so that the 128
 * of a scale are one step of the warp. Reads and writes each row once.
 */
#include "args.h"
#include "value.h"

#define TILE 128 /* latents that share a scale */

KVK_DEVICE bool aligned(const void *address, uint32_t bytes)
{
	return reinterpret_cast<uintptr_t>(address) % bytes == 0;
}

/* `count` elements from one array to another; the whole warp. */
KVK_DEVICE void copy_row(void *to, uint32_t to_dtype, const void *from, uint32_t from_dtype, int32_t count)
{
	const int32_t bytes = count * (to_dtype == KVK_F32 ? 4 : 2);

	if (to_dtype != from_dtype) {
		for (int32_t i = kvk_lane(); i < count; i += 32)
			kvk_store(to, to_dtype, i, kvk_load(from, from_dtype, i));
	} else if (aligned(to, 16) && aligned(from, 16)) {
		for (int32_t i = kvk_lane() * 16; i < bytes; i += 32 * 16)
			kvk_store16(static_cast<char *>(to) + i,
				    kvk_load16(static_cast<const char *>(from) + i));
	} else {
		for (int32_t i = kvk_lane() * 2; i < bytes; i += 32 * 2)
			*reinterpret_cast<uint16_t *>(static_cast<char *>(to) + i) =
				*reinterpret_cast<const uint16_t *>(static_cast<const char *>(from) + i);
	}
}

KVK_DEVICE void load_4(const void *array, uint32_t dtype, int64_t index, float (&to)[4])
{
	if (dtype == KVK_BF16 && aligned(static_cast<const uint16_t *>(array) + index, 8)) {
		const kvk_8_bytes four = kvk_load8(static_cast<const uint16_t *>(array) + index);

		KVK_UNROLL
		for (int i = 0; i < 4; i++)
			to[i] = kvk_bf16_to_f32(static_cast<uint16_t>(four.word[i / 2] >> 16 * (i % 2)));
		return;
	}
	KVK_UNROLL
	for (int i = 0; i < 4; i++)
		to[i] = kvk_load(array, dtype, index + i);
}

/*
 * Exponent of the smallest power of two that brings `amax` (f32 bits) within 448 = 1.75 * 2^8; at least
 * -13.
 */
KVK_DEVICE int32_t scale_exponent(uint32_t amax)
{
	const int32_t exponent =
		static_cast<int32_t>(amax >> 23) - 127 - 8 + ((amax & 0x7fffffu) > 0x600000u);

	return exponent > -13 ? exponent : -13;
}

KVK_DEVICE float power_of_two(int32_t exponent)
{
	return kvk_f32_from_bits(static_cast<uint32_t>(exponent + 127) << 23);
}

/* Largest magnitude of the warp's finite values, as bits: they order as the numbers do. */
KVK_DEVICE uint32_t finite_amax(const float (&value)[4])
{
	uint32_t amax = 0;

	KVK_UNROLL
	for (int i = 0; i < 4; i++) {
		const uint32_t magnitude = kvk_f32_bits(value[i]) & 0x7fffffffu;

		amax = magnitude < 0x7f800000u && magnitude > amax ? magnitude : amax;
	}
	for (int step = 16; step; step /= 2) {
		const uint32_t other = kvk_shuffle_xor_u32(amax, step);

		amax = other > amax ? other : amax;
	}
	return amax;
}

KVK_DEVICE void write_fp8_row(const kvk_cuda_mla_write_args &p, uint8_t *row, int64_t t)
{
	for (int32_t tile = 0; tile < KVK_MLA_LATENT / TILE; tile++) {
		const int32_t at = tile * TILE + kvk_lane() * 4;
		uint32_t codes = 0;
		int32_t exponent;
		float value[4];

		load_4(p.latent, p.src_dtype, t * p.latent_stride + at, value);
		exponent = scale_exponent(finite_amax(value));
		KVK_UNROLL
		for (int i = 0; i < 4; i++)
			codes |= static_cast<uint32_t>(kvk_f32_to_e4m3(value[i] * power_of_two(-exponent)))
				 << 8 * i;
		kvk_store4(row + at, codes);
		if (kvk_lane() == 0)
			reinterpret_cast<float *>(row + KVK_MLA_LATENT)[tile] = power_of_two(exponent);
	}
	copy_row(row + KVK_MLA_LATENT + 16, KVK_BF16,
		 static_cast<const char *>(p.rope) + t * p.rope_stride * (p.src_dtype == KVK_F32 ? 4 : 2),
		 p.src_dtype, KVK_MLA_ROPE);
}

KVK_DEVICE void write_row(const kvk_cuda_mla_write_args &p, int64_t row, int64_t t)
{
	const int32_t from = p.src_dtype == KVK_F32 ? 4 : 2, to = p.kv_dtype == KVK_F32 ? 4 : 2;
	char *base = static_cast<char *>(p.kv) + row * to;

	copy_row(base, p.kv_dtype, static_cast<const char *>(p.latent) + t * p.latent_stride * from,
		 p.src_dtype, KVK_MLA_LATENT);
	copy_row(base + KVK_MLA_LATENT * to, p.kv_dtype,
		 static_cast<const char *>(p.rope) + t * p.rope_stride * from, p.src_dtype, KVK_MLA_ROPE);
}

KVK_KERNEL(kvk_cuda_mla_write, kvk_cuda_mla_write_args, 128, 4)
{
	const int64_t slots = static_cast<int64_t>(p.pages) * p.page_tokens;
	const int64_t warps = kvk_blocks() * (kvk_threads_of_block() / 32);

	for (int64_t t = kvk_block() * (kvk_threads_of_block() / 32) + kvk_warp(); t < p.tokens; t += warps) {
		const int64_t slot = kvk_slot_at(p.slots, p.slot_bytes, t);
		int64_t row;

		if (slot < 0 || slot >= slots)
			continue;
		row = slot / p.page_tokens * p.kv_stride_page + slot % p.page_tokens * p.kv_stride_token;
		if (p.kv_dtype == KVK_MLA_FP8)
			write_fp8_row(p, static_cast<uint8_t *>(p.kv) + row, t);
		else
			write_row(p, row, t);
	}
}
