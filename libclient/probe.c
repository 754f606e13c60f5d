/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looking into the directory's copy of the index. The daemon writes it while we read: an entry is one aligned word, entries never
 * move, and the block's own word says whether it is complete. A hint, until an open pins it.
 */
#include <errno.h>

#include "ipc/hash.h"

#include "client.h"
#include "error.h"
#include "open.h"

enum found { FOUND, ABSENT, ASK };

/* The block of a key that is complete now. */
static enum found look(const struct kvp_client *client, uint64_t key)
{
	const struct kvc_engine *engine = client->engine;
	const struct kvw_bucket *bucket = &engine->buckets[key & engine->bucket_mask];
	bool has_room = false;
	uint32_t i, id;

	for (i = 0; i < KVW_BUCKET_ENTRIES; i++) {
		uint64_t entry = atomic_load_explicit(&bucket->entries[i], memory_order_acquire);

		if (!entry)
			has_room = true;
		if (!entry || entry >> 32 != key >> 32)
			continue;
		id = (uint32_t)entry;
		if (id < client->pool->geometry.blocks &&
		    (kvc_block_word(engine, (int32_t)id) & 0xff) == KVW_BLOCK_CACHED)
			return FOUND;
	}
	return has_room ? ABSENT : ASK;
}

static int hash_at(const struct kvp_client *client, const struct kvp_open_request *request,
		   const struct kvw_extra_key *extras, uint32_t index, uint8_t hash[KVW_MAX_HASH_BYTES])
{
	const struct kvc_engine *engine = client->engine;
	uint32_t hash_bytes = engine->tables_params.hash_bytes;
	uint8_t parent[KVW_SHA256_BYTES];

	if (engine->own_hashes) {
		memcpy(hash, request->hashes + (uint64_t)index * hash_bytes, hash_bytes);
		return 0;
	}
	memcpy(parent, hash, sizeof(parent));
	return kvw_hash_block(engine->probe_hasher, index ? parent : NULL,
			      request->tokens + (uint64_t)index * engine->block_tokens, engine->block_tokens,
			      extras, request->extra_count, hash);
}

/* Under probe_lock, for the hasher. */
static int probe(const struct kvp_client *client, const struct kvp_open_request *request,
		 const struct kvw_extra_key *extras)
{
	const struct kvc_engine *engine = client->engine;
	uint64_t epoch = atomic_load_explicit(&engine->directory->epoch, memory_order_acquire);
	uint32_t most = kvc_open_match(client, request);
	uint8_t hash[KVW_MAX_HASH_BYTES] = {0};
	enum found found = FOUND;
	uint32_t i;

	for (i = 0; i < most; i++) {
		if (hash_at(client, request, extras, i, hash))
			return kvc_fail(EIO, "OpenSSL failed to hash block %u of a prompt", i);
		found = look(client, kvw_index_key(engine->namespace_id, epoch, 0, hash,
						   engine->tables_params.hash_bytes));
		if (found != FOUND)
			break;
	}
	if (found == ASK)
		return kvc_fail(EAGAIN, "the directory can't say: open asks the daemon");
	return (int)i;
}

int kvp_probe(struct kvp_client *client, const struct kvp_open_request *request)
{
	struct kvw_extra_key extras[KVC_MAX_EXTRAS];
	struct kvp_open_request own;
	uint32_t i;
	int ret = kvc_enter_engine(client);

	if (!ret)
		ret = kvc_open_read(client, request, &own);
	if (ret)
		return ret;
	for (i = 0; i < own.extra_count; i++)
		extras[i] = kvc_extra_in(&own.extras[i]);
	pthread_mutex_lock(&client->engine->probe_lock);
	ret = probe(client, &own, extras);
	pthread_mutex_unlock(&client->engine->probe_lock);
	return ret;
}
