/* SPDX-License-Identifier: Apache-2.0 */
/* See tile.h: what surrounds the inner loops. */
#include "tile.h"

#include "../dtype.h"

KVK_LEVEL_TABLES(kvk_tile_ops, kvk_tile);

const struct kvk_tile_ops *kvk_tile_ops(enum kvk_level level)
{
	return KVK_LEVEL_TABLE(kvk_tile, level);
}

void kvk_tile_begin(struct kvk_tile *tile)
{
	const int rows = (tile->rows + KVK_TILE_GROUP - 1) / KVK_TILE_GROUP * KVK_TILE_GROUP;

	for (int r = 0; r < KVK_TILE_ROWS; r++) {
		tile->max[r] = KVK_TILE_START_MAX;
		tile->sum[r] = 0;
	}
	memset(tile->out, 0, (size_t)rows * (size_t)tile->value_width * sizeof(float));
}

float kvk_tile_lse(const struct kvk_tile *tile, int row)
{
	const double ln2 = 0.693147180559945309;

	if (tile->sum[row] == 0)
		return INFINITY;
	return (float)(log((double)tile->sum[row]) + tile->max[row] * ln2);
}

void kvk_tile_store(const struct kvk_tile *tile, int row, const float *sink, void *array, uint32_t dtype,
		    int64_t offset, int count)
{
	const float *out = tile->out + (int64_t)row * tile->value_width;
	double factor = tile->sum[row] == 0 ? 0 : 1 / (double)tile->sum[row];

	if (sink && tile->sum[row] != 0)
		factor /= 1 + exp((double)*sink - (double)kvk_tile_lse(tile, row));
	for (int i = 0; i < count; i++)
		kvk_store(array, dtype, offset + i, out[i] * (float)factor);
}

void kvk_tile_load(const struct kvk_tile_ops *ops, float *dst, const void *src, uint32_t dtype, int count,
		   int width)
{
	if (dtype == KVK_BF16)
		ops->load_bf16(dst, src, count);
	else if (dtype == KVK_F16)
		ops->load_f16(dst, src, count);
	else
		memcpy(dst, src, (size_t)count * sizeof(*dst));
	for (int i = count; i < width; i++)
		dst[i] = 0;
}

void kvk_tile_load_fp8(const struct kvk_tile_ops *ops, float *dst, const void *src)
{
	const unsigned char *bytes = src;
	const unsigned char *scales = bytes + KVK_MLA_LATENT;

	for (int tile = 0; tile < KVK_MLA_LATENT; tile += 128)
		ops->load_e4m3(dst + tile, bytes + tile, kvk_load(scales, KVK_F32, tile / 128), 128);
	kvk_tile_load(ops, dst + KVK_MLA_LATENT, scales + 4 * sizeof(float), KVK_BF16, KVK_MLA_ROPE,
		      KVK_MLA_ROPE);
}
