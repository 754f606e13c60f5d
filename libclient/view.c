/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Planes as tensors over all block ids: pointer, shape, strides.
 */
#include <errno.h>

#include "client.h"
#include "cuda.h"
#include "error.h"
#include "map_cuda.h"
#include "params.h"

#define ROW_BYTES_FP8_V32 656

_Static_assert(KVP_ROLE_LATENT == (int)KVW_ROLE_LATENT && KVP_ROLE_K == (int)KVW_ROLE_K &&
		       KVP_ROLE_V == (int)KVW_ROLE_V && KVP_ROLE_INDEX_K == (int)KVW_ROLE_INDEX_K &&
		       KVP_ROLE_OPAQUE == (int)KVW_ROLE_OPAQUE,
	       "roles have one numbering");
_Static_assert(KVP_DTYPE_BF16 == (int)KVW_DTYPE_BF16 && KVP_DTYPE_F16 == (int)KVW_DTYPE_F16 &&
		       KVP_DTYPE_F32 == (int)KVW_DTYPE_F32 && KVP_DTYPE_E4M3 == (int)KVW_DTYPE_E4M3 &&
		       KVP_DTYPE_FP8_V32 == (int)KVW_DTYPE_FP8_V32 && KVP_DTYPE_U8 == (int)KVW_DTYPE_U8,
	       "dtypes have one numbering");
_Static_assert(KVP_LAYOUT_NHD == (int)KVW_LAYOUT_NHD && KVP_LAYOUT_HND == (int)KVW_LAYOUT_HND,
	       "layouts have one numbering");

/* Distance of two blocks in pages of the plane; 0 when it is not whole. */
static uint32_t index_scale(const struct kvw_plane *plane)
{
	uint64_t scale = plane->stride / plane->page_bytes;

	return plane->stride % plane->page_bytes || scale > UINT32_MAX ? 0 : (uint32_t)scale;
}

static void set_opaque(const struct kvw_plane *plane, int64_t blocks, struct kvp_view *view)
{
	int64_t bytes = (int64_t)plane->page_bytes;

	view->dtype = KVP_DTYPE_U8;
	view->shape[0] = blocks;
	view->shape[1] = view->shape[2] = view->strides[3] = 1;
	view->shape[3] = bytes;
	view->strides[0] = (int64_t)plane->stride;
	view->strides[1] = view->strides[2] = bytes;
}

/* One FP8 row is one element of the plane and 656 of the view. */
static void set_tokens(const struct kvw_geometry *geometry, const struct kvw_plane *plane, uint32_t layout,
		       struct kvp_view *view)
{
	int64_t rows = plane->dtype == KVW_DTYPE_FP8_V32 ? ROW_BYTES_FP8_V32 : 1;
	int64_t element_bytes = rows > 1 ? 1 : kvw_dtype_bytes(plane->dtype);
	int64_t token_stride = (int64_t)plane->token_stride * rows;
	int64_t head_stride = (int64_t)plane->head_stride * rows;
	int tokens_at = layout == KVW_LAYOUT_HND ? 2 : 1;

	view->dtype = rows > 1 ? KVP_DTYPE_U8 : plane->dtype;
	view->shape[0] = geometry->blocks;
	view->shape[tokens_at] = geometry->block_tokens;
	view->shape[3 - tokens_at] = plane->heads;
	view->shape[3] = (int64_t)plane->dim * rows;
	view->strides[0] = (int64_t)plane->stride / element_bytes;
	view->strides[tokens_at] = token_stride;
	view->strides[3 - tokens_at] = head_stride;
	view->strides[3] = 1;
}

/* Of the device, where the pool is there. */
static void *pool_memory(const struct kvp_client *client)
{
	if (client->cuda && client->cuda->pool)
		return (void *)(uintptr_t)kvc_device_pool_address(client->cuda->pool);
	return client->maps[KVC_MAP_POOL].memory;
}

int kvp_plane_view(const struct kvp_client *client, uint32_t plane, enum kvp_layout layout,
		   struct kvp_view *out)
{
	const struct kvw_geometry *geometry;
	const struct kvw_plane *at;
	struct kvp_view view = {0};
	uint32_t wanted = (uint32_t)layout;
	int ret = kvc_enter_engine(client);

	if (ret)
		return ret;
	geometry = &client->pool->geometry;
	if (plane >= geometry->plane_count)
		return kvc_fail(EINVAL, "plane %u, the pool has %u, from 0 on", plane, geometry->plane_count);
	at = &geometry->planes[plane];
	if (wanted > KVP_LAYOUT_HND)
		return kvc_fail(EINVAL, "unknown layout %u: KVP_LAYOUT_*", wanted);
	if (wanted == KVP_LAYOUT_NATIVE)
		wanted = at->layout;
	if (wanted != at->layout && at->heads != 1)
		return kvc_fail(EINVAL, "plane %u lies as %s with %u heads: as %s it would be other bytes",
				plane, kvw_layout_name(at->layout), at->heads, kvw_layout_name(wanted));
	if (at->role == KVW_ROLE_OPAQUE)
		set_opaque(at, geometry->blocks, &view);
	else
		set_tokens(geometry, at, wanted, &view);
	view.data = (uint8_t *)pool_memory(client) + at->base;
	view.layer = at->layer;
	view.role = at->role;
	view.index_scale = index_scale(at);
	return kvc_params_write(out, &view, sizeof(view), "kvp_view");
}

int kvp_plane_find(const struct kvp_client *client, enum kvp_role role, uint32_t layer)
{
	const struct kvw_geometry *geometry;
	uint32_t i;
	int ret = kvc_enter_engine(client);

	if (ret)
		return ret;
	geometry = &client->pool->geometry;
	for (i = 0; i < geometry->plane_count; i++)
		if (geometry->planes[i].role == (uint32_t)role && geometry->planes[i].layer == layer)
			return (int)i;
	return kvc_fail(ENOENT, "the pool has no plane '%s' of layer %u", kvw_role_name((uint32_t)role),
			layer);
}

int kvp_sink_block(const struct kvp_client *client)
{
	int ret = kvc_enter_engine(client);

	return ret ? ret : client->engine->sink;
}
