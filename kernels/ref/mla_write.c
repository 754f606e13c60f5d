/* SPDX-License-Identifier: Apache-2.0 */
/* The specification of kvk_mla_write(). Offsets are 64-bit throughout: pools pass 2^31 elements early. */
#include "ref.h"

#define TILE 128 /* latents that share an FP8 scale */

/* Copies elements: bit for bit between equal dtypes, so that NaN payloads survive. */
static void copy_row(void *dst, uint32_t dst_dtype, int64_t dst_offset, const void *src, uint32_t src_dtype,
		     int64_t src_offset, int count)
{
	const int64_t bytes = (int64_t)kvk_dtype_bytes(dst_dtype);

	if (dst_dtype == src_dtype) {
		memcpy((char *)dst + dst_offset * bytes, (const char *)src + src_offset * bytes,
		       (size_t)(count * bytes));
		return;
	}
	for (int i = 0; i < count; i++)
		kvk_store(dst, dst_dtype, dst_offset + i, kvk_load(src, src_dtype, src_offset + i));
}

/* Smallest power of two that brings `amax` within e4m3's 448, at least 2^-13. */
static float fp8_scale(double amax)
{
	int exponent;
	double fraction = frexp(fmax(amax / 448, 1e-4), &exponent); /* in [0.5, 1) */

	return (float)ldexp(1, fraction == 0.5 ? exponent - 1 : exponent);
}

static double finite_amax(const double *values, int count)
{
	double amax = 0;

	for (int i = 0; i < count; i++)
		if (isfinite(values[i]))
			amax = fmax(amax, fabs(values[i]));
	return amax;
}

static void write_fp8_row(const struct kvk_mla_write_params *p, unsigned char *row, int32_t t)
{
	unsigned char *scales = row + KVK_MLA_LATENT;
	double latent[TILE];

	for (int tile = 0; tile < KVK_MLA_LATENT / TILE; tile++) {
		float scale;

		kvk_ref_row(latent, p->latent, p->src_dtype, t * p->latent_stride + tile * TILE, TILE);
		scale = fp8_scale(finite_amax(latent, TILE));
		kvk_store(scales, KVK_F32, tile, scale);
		for (int i = 0; i < TILE; i++)
			row[tile * TILE + i] = kvk_f32_to_e4m3((float)(latent[i] / scale));
	}
	copy_row(scales + 4 * sizeof(float), KVK_BF16, 0, p->rope, p->src_dtype, t * p->rope_stride,
		 KVK_MLA_ROPE);
}

static void write_token(const struct kvk_mla_write_params *p, int32_t t, int64_t slot)
{
	const int64_t row =
		slot / p->page_tokens * p->kv_stride_page + slot % p->page_tokens * p->kv_stride_token;

	if (p->kv_dtype == KVK_MLA_FP8) {
		write_fp8_row(p, (unsigned char *)p->kv + row, t);
		return;
	}
	copy_row(p->kv, p->kv_dtype, row, p->latent, p->src_dtype, t * p->latent_stride, KVK_MLA_LATENT);
	copy_row(p->kv, p->kv_dtype, row + KVK_MLA_LATENT, p->rope, p->src_dtype, t * p->rope_stride,
		 KVK_MLA_ROPE);
}

int kvk_mla_write_ref(const struct kvk_mla_write_params *params)
{
	struct kvk_mla_write_params p;
	int ret = kvk_prepare_mla_write(params, &p);

	if (ret <= 0)
		return ret;
	for (int32_t t = 0; t < p.tokens; t++) {
		int64_t slot = kvk_slot(p.slots, p.slot_bytes, t);

		if (slot >= 0)
			write_token(&p, t, slot);
	}
	return 0;
}
