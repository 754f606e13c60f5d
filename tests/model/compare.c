/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything that the daemon's books show, against the model: records, words, buckets, look-ups, counts,
 * holds, engines, quotas, counters.
 */
#include "world.h"

#include "differences.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SAME(w, what, number, daemons, models)                                                               \
	same(w, what, (int)(number), (uint64_t)(daemons), (uint64_t)(models))

static void same(struct world *w, const char *what, int number, uint64_t daemons, uint64_t models)
{
	if (daemons != models)
		mdl_fault(&w->model, "%s %d: the daemon has %" PRIu64 ", the model %" PRIu64, what, number,
			  daemons, models);
}

/* ---------------------------------------- blocks */

static void compare_hash(struct world *w, int id)
{
	static const uint8_t none[KVW_MAX_HASH_BYTES];
	const struct mdl_block *b = &w->model.block[id];
	const struct kvw_block_record *record = &w->pool->block[id].record;
	bool has_hash = b->hash >= 0 && (b->state == KVW_BLOCK_PENDING || b->state == KVW_BLOCK_CACHED);
	uint32_t bytes = has_hash ? w->hash_bytes : 0;

	if (!has_hash && b->hash >= 0)
		return; /* it may be kept while somebody still refers to the block */
	SAME(w, "length of the hash of block", id, record->hash_bytes, bytes);
	if (memcmp(record->hash, has_hash ? w->hash[b->hash] : none, bytes))
		mdl_fault(&w->model, "block %d has another hash", id);
	if (memcmp(record->hash + bytes, none, sizeof(none) - bytes))
		mdl_fault(&w->model, "block %d has bytes behind its hash", id);
}

static void compare_chain(struct world *w, int id)
{
	const struct mdl_block *b = &w->model.block[id];
	const struct kvw_block_record *record = &w->pool->block[id].record;

	if (!b->indexed)
		return;
	SAME(w, "parent of block", id, record->parent, b->parent);
	SAME(w, "generation of the parent of block", id, record->parent_generation, b->parent_generation);
	SAME(w, "namespace of block", id, record->namespace_id, b->namespace_id);
	SAME(w, "plane set of block", id, record->plane_set, b->plane_set);
}

static void compare_owner(struct world *w, int id)
{
	const struct mdl_block *b = &w->model.block[id];
	const struct kvd_block *block = &w->pool->block[id];
	bool waits = b->state == KVW_BLOCK_PENDING || b->state == KVW_BLOCK_DRAINING;

	if (block->owner != (b->owner < 0 ? NULL : w->engine[b->owner]))
		mdl_fault(&w->model, "block %d belongs to another engine than %d", id, b->owner);
	if (b->state != KVW_BLOCK_FREE)
		SAME(w, "session of block", id, block->record.session, b->session);
	if (!waits)
		return;
	SAME(w, "step of block", id, block->record.step, b->step);
	SAME(w, "timeline of block", id, block->record.timeline, b->timeline);
}

static void compare_idle(struct world *w, int id)
{
	bool free_to_go = mdl_evictable(&w->model, id) || w->model.block[id].state == KVW_BLOCK_FREE;
	char why[256] = "";

	kvd_pool_explain(w->pool, id, why, sizeof(why));
	if (mdl_is_data(&w->model, id) && (why[0] == '\0') != free_to_go)
		mdl_fault(&w->model, "block %d: \"%s\" is why the daemon does not evict it", id, why);
}

static void compare_block(struct world *w, int id)
{
	const struct mdl_block *b = &w->model.block[id];
	const struct kvd_block *block = &w->pool->block[id];
	uint64_t word = atomic_load_explicit(&w->pool->block_words[id], memory_order_relaxed);

	SAME(w, "state of block", id, block->record.state, b->state);
	SAME(w, "generation of block", id, block->record.generation, b->generation);
	SAME(w, "references of block", id, block->references, mdl_references(&w->model, id));
	SAME(w, "findability of block", id, block->indexed, b->indexed);
	SAME(w, "word of block", id, word, kvw_block_word(b->generation, b->state));
	SAME(w, "flags of block", id, block->record.flags, b->sink ? KVW_RECORD_SINK : 0);
	if (memcmp(&block->record, &w->pool->records[id], offsetof(struct kvw_block_record, commit)))
		mdl_fault(&w->model, "block %d has a record that differs from the daemon's copy", id);
	compare_hash(w, id);
	compare_chain(w, id);
	compare_owner(w, id);
	compare_idle(w, id);
}

/* The null block is nobody's, for ever. */
static void compare_null(struct world *w)
{
	uint64_t word = atomic_load_explicit(&w->pool->block_words[0], memory_order_relaxed);

	SAME(w, "generation of block", 0, word >> 8, 0);
	SAME(w, "flags of block", 0, w->pool->records[0].flags, KVW_RECORD_NULL);
	SAME(w, "references of block", 0, w->pool->block[0].references, 0);
}

/* ---------------------------------------- the index, by the daemon's own look-up and as clients read it */

/* 1: the entry is there; 0: it is not; -1: the bucket is full, ask the daemon. */
static int read_bucket(const struct world *w, uint64_t key, int id)
{
	struct kvw_bucket *bucket = &w->pool->buckets[key & (w->pool->bucket_count - 1)];
	bool full = true;
	int i;

	for (i = 0; i < (int)KVW_BUCKET_ENTRIES; i++) {
		uint64_t entry = atomic_load_explicit(&bucket->entries[i], memory_order_acquire);

		if (entry == 0)
			full = false;
		else if (entry >> 32 == key >> 32 && (uint32_t)entry != 0 &&
			 (id < 0 || (uint32_t)entry == (uint32_t)id))
			return 1;
	}
	return full ? -1 : 0;
}

static void compare_find(struct world *w, uint32_t namespace_id, int hash)
{
	int id = mdl_find(&w->model, namespace_id, hash);
	uint64_t key = kvw_index_key(namespace_id, w->pool->epoch, 0, w->hash[hash], w->hash_bytes);
	int there = read_bucket(w, key, id);

	SAME(w, "look-up of hash", hash, kvd_pool_find(w->pool, namespace_id, w->hash[hash], w->hash_bytes),
	     id);
	if (id >= 0 && there == 0 && !DIFFERS_LEFT_OUT_OF_BUCKET)
		mdl_fault(&w->model, "hash %d: clients read that it is not there", hash);
	if (id < 0 && there == 1)
		mdl_fault(&w->model, "hash %d: clients read that it is there", hash);
}

static void compare_buckets(struct world *w)
{
	uint32_t i, entries = 0, indexed = 0;
	int id;

	for (i = 0; i < w->pool->bucket_count * KVW_BUCKET_ENTRIES; i++)
		entries +=
			(uint32_t)w->pool->buckets[i / KVW_BUCKET_ENTRIES].entries[i % KVW_BUCKET_ENTRIES] !=
			0;
	for (id = 1; id < w->model.blocks; id++)
		indexed += w->model.block[id].indexed;
	if (entries > indexed)
		mdl_fault(&w->model, "the buckets have %u entries for %u blocks", entries, indexed);
}

static void compare_index(struct world *w)
{
	int namespace_id, hash;

	for (namespace_id = 1; namespace_id <= w->namespaces + 1; namespace_id++)
		for (hash = 0; hash < w->hashes; hash++)
			compare_find(w, (uint32_t)namespace_id, hash);
	compare_buckets(w);
}

/* ---------------------------------------- counts */

static void compare_counts(struct world *w)
{
	const struct mdl *m = &w->model;
	int i;

	for (i = 0; i < KVW_BLOCK_STATES; i++)
		SAME(w, "count of blocks in state", i, w->pool->counts[i],
		     mdl_count(m, (enum kvw_block_state)i));
	SAME(w, "free blocks of pool", 3, w->pool->free.length, mdl_count(m, KVW_BLOCK_FREE));
	SAME(w, "evictable blocks of pool", 3, w->pool->evictable, mdl_count_evictable(m));
	SAME(w, "available blocks of pool", 3, kvd_pool_available(w->pool), mdl_available(m));
	for (i = 0; i < w->tenants; i++)
		SAME(w, "used blocks of tenant", i, w->tenant[i].used_blocks, mdl_used(m, i));
}

static void compare_counters(struct world *w)
{
#define COMPARE_COUNTER(name, help)                                                                          \
	SAME(w, "counter " #name, KVW_COUNTER_##name, kvd_pool_counter(w->pool, KVW_COUNTER_##name),         \
	     w->model.counters[KVW_COUNTER_##name]);                                                         \
	SAME(w, "published counter " #name, KVW_COUNTER_##name, w->pool->counters[KVW_COUNTER_##name],       \
	     w->model.counters[KVW_COUNTER_##name]);
	KVW_COUNTER_MAP(COMPARE_COUNTER)
#undef COMPARE_COUNTER
}

/* ---------------------------------------- holds and engines */

static void compare_hold(struct world *w, const struct mdl_hold *hold)
{
	const struct kvd_hold *there = seen_hold(w, hold->id);
	int i;

	if (!there) {
		mdl_fault(&w->model, "hold %" PRIu64 " is gone", hold->id);
		return;
	}
	SAME(w, "length of hold", hold->id, there->length, hold->length);
	SAME(w, "releasing of hold", hold->id, there->releasing, hold->releasing);
	if (there->engine != w->engine[hold->engine])
		mdl_fault(&w->model, "hold %" PRIu64 " belongs to another engine", hold->id);
	for (i = 0; i < hold->length && !w->model.fault[0]; i++)
		SAME(w, "block in hold", hold->id, there->blocks[i], hold->blocks[i]);
}

static void compare_holds(struct world *w)
{
	const struct kvd_hold *there;
	int h, models = 0, daemons = 0;

	for (h = 0; h < MDL_HOLDS; h++) {
		if (!w->model.hold[h].used)
			continue;
		models++;
		compare_hold(w, &w->model.hold[h]);
	}
	for (there = w->pool->holds; there; there = there->next)
		daemons++;
	SAME(w, "holds of pool", 3, daemons, models);
}

static void compare_engine(struct world *w, int e)
{
	const struct mdl_engine *model = &w->model.engine[e];
	const struct kvd_engine *engine = w->engine[e];
	uint64_t references = 0;
	int h, i;

	for (h = 0; h < MDL_HOLDS; h++)
		if (w->model.hold[h].used && w->model.hold[h].engine == e)
			references += (uint64_t)w->model.hold[h].length;
	SAME(w, "state of engine", e, engine->state, model->state);
	SAME(w, "holds of engine", e, engine->hold_count, mdl_holds_of(&w->model, e));
	SAME(w, "references of engine", e, engine->references, references);
	SAME(w, "sink of engine", e, engine->sink, model->sink);
	SAME(w, "emptiness of engine", e, kvd_engine_empty(engine), mdl_empty(&w->model, e));
	SAME(w, "waiting blocks of engine", e, kvd_engine_waiting(engine), mdl_waiting(&w->model, e));
	for (i = 0; i < (int)KVW_TIMELINES; i++)
		SAME(w, "reached step of engine", e, engine->reached[i], model->reached[i]);
	for (i = 0; i < KVW_BLOCK_STATES; i++)
		SAME(w, "owned blocks of engine", e, engine->owned[i].length,
		     mdl_owned(&w->model, e, (enum kvw_block_state)i));
}

static void deep_check(struct world *w)
{
	char text[200] = "";
	int64_t faults = kvd_check_now(w->pool, text, sizeof(text));

	if (faults)
		mdl_fault(&w->model, "the deep check finds %" PRId64 " faults: %s", faults, text);
}

void world_compare(struct world *w)
{
	int i;

	if (w->blind)
		return;
	for (i = 1; i < w->model.blocks; i++)
		compare_block(w, i);
	compare_null(w);
	compare_index(w);
	compare_counts(w);
	compare_counters(w);
	compare_holds(w);
	for (i = 0; i < MDL_ENGINES; i++)
		if (w->model.engine[i].used)
			compare_engine(w, i);
	if (w->check_each)
		deep_check(w);
}
