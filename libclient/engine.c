/* SPDX-License-Identifier: Apache-2.0 */
#include "engine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ipc/hash.h"

#include "client.h"
#include "error.h"
#include "map.h"
#include "plan.h"

/* What lies in the private mapping: arrays whose size is the pool's or the tables'. */
struct private_layout {
	uint64_t cells;
	uint64_t blocks;
	uint64_t ops;
	uint64_t bytes;
};

static void private_layout(const struct kvc_pool *pool, const struct kvc_plan *plan,
			   struct private_layout *out)
{
	uint64_t cells = (uint64_t)plan->tables.rows * plan->tables.row_blocks;

	out->cells = 0;
	out->blocks = out->cells + cells * sizeof(struct kvc_cell);
	out->ops = out->blocks + (uint64_t)pool->geometry.blocks * sizeof(struct kvc_block);
	out->bytes = out->ops + KVC_OPS * sizeof(struct kvc_op);
}

static int map_private(struct kvp_client *client, const struct kvc_plan *plan, struct kvc_engine *engine)
{
	struct kvc_mapping *mapping = &client->maps[KVC_MAP_PRIVATE];
	struct private_layout layout;
	uint8_t *memory;
	int ret;

	private_layout(client->pool, plan, &layout);
	ret = kvc_map_private(layout.bytes, "private arrays", mapping);
	if (ret)
		return ret;
	memory = mapping->memory;
	engine->cells = (struct kvc_cell *)(void *)(memory + layout.cells);
	engine->ops = (struct kvc_op *)(void *)(memory + layout.ops);
	kvc_lease_init(&engine->lease, (struct kvc_block *)(void *)(memory + layout.blocks));
	return 0;
}

static int create_hashers(struct kvc_engine *engine)
{
	uint32_t i;
	int ret = kvw_hasher_create(&engine->probe_hasher);

	for (i = 0; !ret && !engine->own_hashes && i < engine->tables_params.rows; i++)
		ret = kvw_hasher_create(&engine->rows[i].hasher);
	return ret ? kvc_fail_plain(ret, "SHA-256 contexts") : 0;
}

static int allocate_rows(struct kvc_engine *engine)
{
	uint32_t rows = engine->tables_params.rows;
	uint32_t i;

	engine->seqs = aligned_alloc(128, (size_t)rows * sizeof(*engine->seqs));
	engine->rows = calloc(rows, sizeof(*engine->rows));
	engine->free_rows = calloc(rows, sizeof(*engine->free_rows));
	if (!engine->seqs || !engine->rows || !engine->free_rows)
		return kvc_fail(ENOMEM, "no memory for %u rows: lower max_seqs", rows);
	memset(engine->seqs, 0, (size_t)rows * sizeof(*engine->seqs));
	/* The lowest row is on top: a batch's rows lie side by side. */
	for (i = 0; i < rows; i++)
		engine->free_rows[i] = rows - 1 - i;
	engine->free_row_count = rows;
	return create_hashers(engine);
}

static void take_plan(struct kvc_engine *engine, const struct kvc_plan *plan)
{
	engine->max_seqs = plan->params.max_seqs;
	engine->max_seq_tokens = plan->params.max_seq_tokens;
	engine->batch_tokens = plan->params.batch_tokens;
	engine->own_hashes = plan->params.hash_bytes != 0;
	engine->block_tokens = plan->tables.block_tokens;
	engine->tables_params = plan->tables;
	engine->tables = plan->layout;
	engine->answer_count = plan->answers;
}

int kvc_engine_create(struct kvp_client *client, const struct kvc_plan *plan, struct kvc_engine **out)
{
	struct kvc_engine *engine = calloc(1, sizeof(*engine));
	int ret;

	if (!engine)
		return kvc_fail_plain(ENOMEM, "an engine");
	take_plan(engine, plan);
	engine->doorbell_fd = engine->lock_fd = -1;
	engine->owed_head = engine->owed_tail = -1;
	pthread_mutex_init(&engine->probe_lock, NULL);
	ret = allocate_rows(engine);
	if (!ret)
		ret = map_private(client, plan, engine);
	if (ret) {
		kvc_engine_destroy(engine, false);
		return ret;
	}
	*out = engine;
	return 0;
}

static void bind_row(struct kvp_client *client, const struct kvc_engine *engine, uint32_t row)
{
	struct kvp_seq *seq = &engine->seqs[row];
	uint64_t token_bytes = engine->block_tokens * sizeof(uint32_t);

	seq->client = client;
	seq->row = row;
	seq->block_tokens = engine->block_tokens;
	seq->ids = kvc_row_at(client, engine, engine->tables.ids, row, sizeof(int32_t));
	seq->tokens = kvc_row_at(client, engine, engine->tables.tokens, row, token_bytes);
}

void kvc_engine_bind(struct kvp_client *client, struct kvc_engine *engine)
{
	uint8_t *directory = client->maps[KVC_MAP_DIRECTORY].memory;
	uint8_t *channel = client->maps[KVC_MAP_CHANNEL].memory;
	struct kvw_directory_layout layout;
	uint32_t i;

	/* Our own offsets, from the block count: what the header says was compared with them. */
	kvw_directory_layout(client->pool->geometry.blocks, &layout);
	engine->directory = (const struct kvw_directory_header *)(void *)directory;
	engine->block_words = (const _Atomic uint64_t *)(void *)(directory + layout.block_words);
	engine->buckets = (const struct kvw_bucket *)(void *)(directory + layout.buckets);
	engine->bucket_mask = layout.bucket_count - 1;
	engine->channel = (struct kvw_channel_header *)(void *)channel;
	engine->timelines = client->maps[KVC_MAP_TIMELINES].memory;
	engine->answers = client->maps[KVC_MAP_ANSWERS].memory;
	kvw_ring_init(&engine->requests, &engine->channel->requests, channel + KVW_CHANNEL_REQUESTS);
	kvw_ring_init(&engine->completions, &engine->channel->completions, channel + KVW_CHANNEL_COMPLETIONS);
	for (i = 0; i < engine->tables_params.rows; i++)
		bind_row(client, engine, i);
}

static void destroy_hashers(struct kvc_engine *engine)
{
	uint32_t i;

	for (i = 0; engine->rows && i < engine->tables_params.rows; i++)
		kvw_hasher_destroy(engine->rows[i].hasher);
	kvw_hasher_destroy(engine->probe_hasher);
}

void kvc_engine_destroy(struct kvc_engine *engine, bool forked)
{
	if (!engine)
		return;
	if (engine->doorbell_fd >= 0)
		close(engine->doorbell_fd);
	if (engine->lock_fd >= 0)
		close(engine->lock_fd);
	destroy_hashers(engine);
	if (!forked)
		pthread_mutex_destroy(&engine->probe_lock);
	free(engine->free_rows);
	free(engine->rows);
	free(engine->seqs);
	free(engine);
}
