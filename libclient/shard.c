/* SPDX-License-Identifier: Apache-2.0 */
#include "shard.h"

#include <string.h>

#include "client.h"

/* `chunks` pieces, all but the last of chunk_bytes, make up `bytes`. */
static bool chunks_fit(const struct kvw_item_MEMORY *item)
{
	return item->chunks && item->chunks <= KVW_MAX_CHUNKS && item->chunk_bytes &&
	       item->chunk_bytes <= item->bytes && (item->bytes - 1) / item->chunk_bytes == item->chunks - 1;
}

static bool is_possible(const struct kvw_item_MEMORY *item, uint64_t pool_bytes, bool handle)
{
	if (item->shard || item->uuid.length != sizeof(((struct kvc_shard *)0)->uuid) ||
	    item->bytes > INT64_MAX || item->offset > item->bytes || pool_bytes > item->bytes - item->offset)
		return false;
	if (item->share == KVW_SHARE_FD)
		return chunks_fit(item);
	return item->share == KVW_SHARE_IPC && !item->chunks &&
	       item->handle.length == (handle ? sizeof(((struct kvc_shard *)0)->handle) : 0);
}

int kvc_shard_read(struct kvp_client *client, struct kvw_list memories, uint64_t pool_bytes, bool handle,
		   struct kvc_shard *out)
{
	struct kvw_item_MEMORY item;

	*out = (struct kvc_shard){0};
	if (!memories.count)
		return 0;
	if (memories.count != 1 || !kvw_list_next(&memories, KVW_ITEM_MEMORY, &item) ||
	    !is_possible(&item, pool_bytes, handle))
		return kvc_break(client, "a pool on a device that can't be mapped as it says");
	out->share = (uint32_t)item.share;
	out->chunks = (uint32_t)item.chunks;
	out->bytes = item.bytes;
	out->offset = item.offset;
	out->chunk_bytes = item.chunk_bytes;
	memcpy(out->uuid, item.uuid.at, sizeof(out->uuid));
	if (item.handle.length)
		memcpy(out->handle, item.handle.at, sizeof(out->handle));
	kvw_text_copy(item.device, out->device, sizeof(out->device));
	return 0;
}

bool kvc_shard_same(const struct kvc_shard *a, const struct kvc_shard *b)
{
	return a->share == b->share && a->chunks == b->chunks && a->bytes == b->bytes &&
	       a->offset == b->offset && a->chunk_bytes == b->chunk_bytes &&
	       !memcmp(a->uuid, b->uuid, sizeof(a->uuid));
}
