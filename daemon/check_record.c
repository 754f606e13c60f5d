/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One block's record: whole, the same as the daemon's copy field by field, and as its state demands.
 */
#include <stdio.h>
#include <string.h>

#include "check_internal.h"
#include "record.h"

/* -------- against the copy */

static void hash_text(const uint8_t *hash, uint32_t from, char out[17])
{
	uint32_t i;

	for (i = 0; i < 8; i++)
		snprintf(out + (size_t)2 * i, 3, "%02x", hash[from + i]);
}

/* Names the eight bytes where the first difference is: a whole hash is too long for a line. */
static void check_hash(struct kvd_check *check, int32_t id, const uint8_t *found, const uint8_t *expected)
{
	char found_text[17];
	char expected_text[17];
	uint32_t from = 0;

	if (memcmp(found, expected, KVW_MAX_HASH_BYTES) == 0)
		return;
	while (memcmp(found + from, expected + from, 8) == 0)
		from += 8;
	hash_text(found, from, found_text);
	hash_text(expected, from, expected_text);
	kvd_check_fault(check, "block %d: record.hash is %s at byte %u, should be %s", id, found_text, from,
			expected_text);
}

/* If a field is added to the record, also add it here. */
static void check_copy(struct kvd_check *check, int32_t id, const struct kvw_block_record *found,
		       const struct kvw_block_record *expected)
{
	check_hash(check, id, found->hash, expected->hash);
#define FIELD(field)                                                                                         \
	kvd_check_same(check, id, "record." #field, (uint64_t)found->field, (uint64_t)expected->field)
	FIELD(generation);
	FIELD(parent_generation);
	FIELD(parent);
	FIELD(namespace_id);
	FIELD(session);
	FIELD(step);
	FIELD(last_use);
	FIELD(state);
	FIELD(tier);
	FIELD(group);
	FIELD(hash_bytes);
	FIELD(timeline);
	FIELD(plane_set);
	FIELD(flags);
#undef FIELD
}

/* -------- as the state demands */

static bool is_published(const struct kvw_block_record *record)
{
	return record->state == KVW_BLOCK_PENDING || record->state == KVW_BLOCK_CACHED;
}

static void check_name(struct kvd_check *check, int32_t id, const struct kvw_block_record *record)
{
	static const uint8_t no_hash[KVW_MAX_HASH_BYTES];
	bool published = is_published(record);

	if (record->hash_bytes > KVW_MAX_HASH_BYTES || published != (record->hash_bytes > 0))
		kvd_check_fault(check, "block %d: hash_bytes is %u in state %u", id, record->hash_bytes,
				record->state);
	else if (memcmp(record->hash + record->hash_bytes, no_hash,
			KVW_MAX_HASH_BYTES - record->hash_bytes) != 0)
		kvd_check_fault(check, "block %d: hash is not zero beyond its %u bytes in state %u", id,
				record->hash_bytes, record->state);
	if (published != (record->plane_set > 0))
		kvd_check_fault(check, "block %d: plane_set is %u in state %u", id, record->plane_set,
				record->state);
	if (record->parent < 0)
		kvd_check_same(check, id, "parent_generation without a parent", record->parent_generation, 0);
	if (published)
		return;
	kvd_check_same(check, id, "parent of an unpublished block", (uint64_t)record->parent, (uint64_t)-1);
	kvd_check_same(check, id, "namespace_id of an unpublished block", record->namespace_id, 0);
}

static bool may_have_step(const struct kvw_block_record *record)
{
	return record->state == KVW_BLOCK_PENDING || record->state == KVW_BLOCK_DRAINING ||
	       record->state == KVW_BLOCK_ORPHAN;
}

static void check_time(struct kvd_check *check, int32_t id, const struct kvw_block_record *record)
{
	if (!may_have_step(record)) {
		kvd_check_same(check, id, "step of a block that waits for none", record->step, 0);
		kvd_check_same(check, id, "timeline of a block that waits for none", record->timeline, 0);
	} else if (record->timeline >= KVW_TIMELINES) {
		kvd_check_fault(check, "block %d: timeline is %u, should be below %u", id, record->timeline,
				KVW_TIMELINES);
	}
	if (record->state != KVW_BLOCK_CACHED)
		kvd_check_same(check, id, "last_use of a block that is not cached", record->last_use, 0);
	else if (record->last_use > check->pool->clock)
		kvd_check_fault(check, "block %d: last_use is %llu, should be at most the clock, %llu", id,
				(unsigned long long)record->last_use, (unsigned long long)check->pool->clock);
}

static uint16_t flags_of(const struct kvd_pool *pool, int32_t id)
{
	if (id == 0)
		return KVW_RECORD_NULL;
	return (uint32_t)id <= pool->sink_blocks ? KVW_RECORD_SINK : 0;
}

static void check_kind(struct kvd_check *check, int32_t id, const struct kvw_block_record *record)
{
	kvd_check_same(check, id, "flags", record->flags, flags_of(check->pool, id));
	kvd_check_same(check, id, "tier, reserved,", record->tier, 0);
	kvd_check_same(check, id, "group, reserved,", record->group, 0);
	if (id == 0)
		kvd_check_same(check, id, "generation of the null block", record->generation, 0);
	else if (record->state != KVW_BLOCK_FREE && record->generation == 0)
		kvd_check_fault(check, "block %d: generation is 0 in state %u, should be above", id,
				record->state);
	if (record->state == KVW_BLOCK_FREE)
		kvd_check_same(check, id, "session of a free block", record->session, 0);
}

/* -------- what goes with the record but is not in it */

static bool is_owned(const struct kvd_block *block)
{
	return block->list == KVD_LIST_OWNED;
}

/* Whether an entry of the owner's queue must name the block; false also when it may. */
static bool must_be_queued(const struct kvd_block *block)
{
	return is_owned(block) && block->owner && block->owner->state <= KVD_ENGINE_FROZEN &&
	       (block->record.state == KVW_BLOCK_PENDING || block->record.state == KVW_BLOCK_DRAINING);
}

static bool may_be_queued(const struct kvd_block *block)
{
	return is_owned(block) && (may_have_step(&block->record) || block->record.state == KVW_BLOCK_FROZEN);
}

static void check_queued(struct kvd_check *check, int32_t id, const struct kvd_block *block)
{
	if (must_be_queued(block))
		kvd_check_same(check, id, "queued", block->queued, 1);
	else if (!may_be_queued(block))
		kvd_check_same(check, id, "queued", block->queued, 0);
	else if (block->record.state == KVW_BLOCK_ORPHAN && !block->queued)
		kvd_check_same(check, id, "step of an orphan that waits for none", block->record.step, 0);
}

static void check_owner(struct kvd_check *check, int32_t id, const struct kvd_block *block)
{
	uint32_t state = block->record.state;

	if (is_owned(block) != (block->owner != NULL)) {
		kvd_check_fault(check, "block %d: owner is %s, on list %u", id, block->owner ? "set" : "none",
				block->list);
		return;
	}
	if (!block->owner)
		return;
	kvd_check_same(check, id, "session", block->record.session, block->owner->session);
	if ((state == KVW_BLOCK_QUARANTINED && block->owner->state < KVD_ENGINE_DEAD) ||
	    (state == KVW_BLOCK_FROZEN && block->owner->state < KVD_ENGINE_FROZEN))
		kvd_check_fault(check, "block %d: state is %u, should not be while its engine's is %u", id,
				state, block->owner->state);
}

static uint32_t list_for(const struct kvd_pool *pool, int32_t id, const struct kvd_block *block)
{
	switch (block->record.state) {
	case KVW_BLOCK_FREE:
		if (id == 0)
			return KVD_LIST_NONE;
		return kvd_pool_is_data(pool, id) ? KVD_LIST_FREE : KVD_LIST_SINKS;
	case KVW_BLOCK_CACHED:
		if (block->references > 0 || block->busy_children > 0)
			return KVD_LIST_NONE;
		/* Ripe or in the policy: only the policy can tell. */
		return pool->policy_ops->contains(pool->policy, id) ? KVD_LIST_POLICY : KVD_LIST_RIPE;
	case KVW_BLOCK_ORPHAN:
		return block->owner ? KVD_LIST_OWNED : KVD_LIST_ORPHANS;
	default:
		return KVD_LIST_OWNED;
	}
}

static void check_references(struct kvd_check *check, int32_t id, const struct kvd_block *block)
{
	uint32_t state = block->record.state;

	if (block->references > 0 && !is_published(&block->record) && state != KVW_BLOCK_ORPHAN)
		kvd_check_fault(check, "block %d: references is %u in state %u, should be 0", id,
				block->references, state);
	if (block->references == 0 && state == KVW_BLOCK_ORPHAN)
		kvd_check_fault(check, "block %d: references is 0, should be above in state %u", id, state);
}

void kvd_check_record(struct kvd_check *check, int32_t id)
{
	const struct kvw_block_record *record = &check->pool->records[id];
	const struct kvd_block *block = kvd_block(check->pool, id);

	check_copy(check, id, record, &block->record);
	if (!kvd_record_intact(record, (uint32_t)id, check->pool->incarnation))
		kvd_check_fault(
			check, "block %d: record.commit is %016llx, should be %016llx", id,
			(unsigned long long)record->commit,
			(unsigned long long)kvd_record_seal(record, (uint32_t)id, check->pool->incarnation));
	if (block->record.state >= KVW_BLOCK_STATES) {
		kvd_check_fault(check, "block %d: state is %u, should be below %u", id, block->record.state,
				KVW_BLOCK_STATES);
		return;
	}
	check_name(check, id, &block->record);
	check_time(check, id, &block->record);
	check_kind(check, id, &block->record);
	check_queued(check, id, block);
	check_owner(check, id, block);
	check_references(check, id, block);
	kvd_check_same(check, id, "list", block->list, list_for(check->pool, id, block));
}
