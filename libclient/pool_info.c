/* SPDX-License-Identifier: Apache-2.0 */
#include "pool_info.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/frame.h"
#include "ipc/wire.h"

#include "client.h"
#include "control.h"
#include "error.h"
#include "params.h"

/* A number of a message that must fit our field: cut numbers would pass later checks. */
static uint32_t to_u32(uint64_t value)
{
	return value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
}

static void read_plane(const struct kvw_item_PLANE *item, struct kvw_plane *out)
{
	*out = (struct kvw_plane){
		.layer = to_u32(item->layer),
		.role = to_u32(item->role),
		.dtype = to_u32(item->dtype),
		.layout = to_u32(item->layout),
		.heads = to_u32(item->heads),
		.dim = to_u32(item->dim),
		.group = to_u32(item->group),
		.plane_set = to_u32(item->plane_set),
		.placement = to_u32(item->placement),
		.kernel_page_tokens = to_u32(item->kernel_page_tokens),
		.base = item->base,
		.stride = item->stride,
		.page_bytes = item->page_bytes,
		.token_stride = item->token_stride,
		.head_stride = item->head_stride,
	};
}

static int same_place(const struct kvw_plane *told, const struct kvw_plane *placed)
{
	return told->base == placed->base && told->stride == placed->stride &&
	       told->page_bytes == placed->page_bytes && told->token_stride == placed->token_stride &&
	       told->head_stride == placed->head_stride;
}

/* Both sides place planes by the same rule from the same declaration; a difference means that their rules differ. */
static int check_geometry(struct kvp_client *client, const struct kvw_geometry *told)
{
	struct kvw_geometry *placed = malloc(sizeof(*placed));
	uint32_t i;
	int ret;

	if (!placed)
		return kvc_fail_plain(ENOMEM, "a pool's geometry");
	*placed = *told;
	ret = kvw_geometry_place(placed);
	if (ret)
		ret = kvc_break(client, "a pool whose geometry is invalid");
	else if (placed->bytes != told->bytes || placed->record_bytes != told->record_bytes)
		ret = kvc_fail(KVP_ELAYOUT,
			       "the pool has %llu bytes, its geometry gives %llu: library and daemon differ",
			       (unsigned long long)told->bytes, (unsigned long long)placed->bytes);
	for (i = 0; !ret && i < told->plane_count; i++)
		if (!same_place(&told->planes[i], &placed->planes[i]))
			ret = kvc_fail(
				KVP_ELAYOUT,
				"plane %u lies elsewhere than its geometry says: library and daemon differ",
				i);
	free(placed);
	return ret;
}

static int read_pool(struct kvp_client *client, const struct kvw_msg_POOL_OK *told, struct kvc_pool *out)
{
	struct kvw_geometry *geometry = &out->geometry;
	struct kvw_list planes = told->planes;
	struct kvw_item_PLANE item;
	int ret;

	if (told->blocks > KVW_MAX_BLOCKS || told->data_blocks >= told->blocks || told->shards != 1 ||
	    told->groups > 1 || !planes.count)
		return kvc_break(client, "a pool with impossible numbers");
	memset(out, 0, sizeof(*out));
	out->id = to_u32(told->pool);
	kvw_text_copy(told->name, out->name, sizeof(out->name));
	out->data_blocks = (uint32_t)told->data_blocks;
	out->ready = told->ready != 0;
	geometry->blocks = (uint32_t)told->blocks;
	geometry->block_tokens = to_u32(told->block_tokens);
	geometry->pool_layout = to_u32(told->pool_layout);
	geometry->record_bytes = told->record_bytes;
	geometry->bytes = told->bytes;
	while (kvw_list_next(&planes, KVW_ITEM_PLANE, &item))
		read_plane(&item, &geometry->planes[geometry->plane_count++]);
	ret = check_geometry(client, geometry);
	return ret ? ret : kvc_shard_read(client, told->memories, geometry->bytes, false, &out->shard);
}

int kvc_pool_fetch(struct kvp_client *client, const char *name, uint64_t deadline_ns, struct kvc_pool *out)
{
	struct kvw_msg_POOL request = {.name = kvw_text_of(name ? name : "")};
	union kvw_any answer;
	int ret = kvc_control_call(client, deadline_ns, KVW_MSG_POOL, &request, &answer, NULL, NULL);

	return ret ? ret : read_pool(client, &answer.POOL_OK, out);
}

static void fill_info(const struct kvc_pool *pool, struct kvp_pool_info *out)
{
	*out = (struct kvp_pool_info){
		.pool = pool->id,
		.blocks = pool->geometry.blocks,
		.data_blocks = pool->data_blocks,
		.block_tokens = pool->geometry.block_tokens,
		.planes = pool->geometry.plane_count,
		.bytes = pool->geometry.bytes,
		.block_major = pool->geometry.pool_layout == KVW_POOL_BLOCK_MAJOR,
		.ready = pool->ready,
		.on_device = pool->shard.share != 0,
	};
	memcpy(out->name, pool->name, sizeof(out->name));
}

int kvp_pool_info(struct kvp_client *client, const char *name, uint32_t timeout_ms, struct kvp_pool_info *out)
{
	uint64_t deadline_ns = kvw_deadline_ns(timeout_ms);
	struct kvp_pool_info info;
	struct kvc_pool *pool;
	int ret = kvc_enter(client);

	if (ret)
		return ret;
	pool = malloc(sizeof(*pool));
	if (!pool)
		return kvc_fail_plain(ENOMEM, "a pool's geometry");
	ret = kvc_control_begin(client, deadline_ns);
	if (!ret) {
		ret = kvc_pool_fetch(client, name, deadline_ns, pool);
		kvc_control_end(client);
	}
	if (!ret) {
		fill_info(pool, &info);
		ret = kvc_params_write(out, &info, sizeof(info), "kvp_pool_info");
	}
	free(pool);
	return ret;
}
