/* SPDX-License-Identifier: Apache-2.0 */
/* One block changes its state: the arrows of the design's table, one function each. */
#include "model.h"

#include "differences.h"

#include <stddef.h>

static struct mdl_engine *owner_of(struct mdl *m, int id)
{
	return m->block[id].owner < 0 ? NULL : &m->engine[m->block[id].owner];
}

void mdl_free(struct mdl *m, int id)
{
	struct mdl_block *b = &m->block[id];

	if (mdl_references(m, id) > 0)
		mdl_fault(m, "block %d would be free with %d references", id, mdl_references(m, id));
	b->state = KVW_BLOCK_FREE;
	b->owner = -1;
	b->indexed = false;
	b->hash = -1;
	b->parent = -1;
	b->parent_generation = 0;
	b->stamp = 0;
}

void mdl_grant(struct mdl *m, int engine, int id, uint64_t generation)
{
	struct mdl_block *b = &m->block[id];

	if (!mdl_is_data(m, id))
		mdl_fault(m, "block %d was granted, which is none of the data blocks", id);
	if (generation <= b->generation)
		mdl_fault(m, "block %d was granted with generation %lu after %lu", id,
			  (unsigned long)generation, (unsigned long)b->generation);
	if (mdl_used(m, m->engine[engine].tenant) >= m->quota[m->engine[engine].tenant])
		mdl_fault(m, "block %d was granted beyond the tenant's quota", id);
	if (b->state != KVW_BLOCK_FREE) {
		if (mdl_count(m, KVW_BLOCK_FREE) > 0)
			mdl_fault(m, "block %d was evicted while others were free", id);
		if (!mdl_is_victim(m, id))
			mdl_fault(m,
				  "block %d was granted; it was neither free nor the least recently released",
				  id);
		m->counters[KVW_COUNTER_evicted_blocks]++;
		mdl_free(m, id);
	}
	b->state = KVW_BLOCK_LEASED;
	b->generation = generation;
	b->owner = engine;
	b->session = m->engine[engine].session;
	mdl_settle(m);
}

void mdl_ungrant(struct mdl *m, int id)
{
	mdl_free(m, id);
	mdl_settle(m);
}

void mdl_flush(struct mdl *m, int id)
{
	if (!mdl_is_victim(m, id))
		mdl_fault(m, "block %d was flushed; it was not the least recently released", id);
	m->counters[KVW_COUNTER_flushed_blocks]++;
	mdl_free(m, id);
	mdl_settle(m);
}

void mdl_pin(struct mdl *m, struct mdl_hold *hold, int id)
{
	if (hold->length == MDL_ROW) {
		mdl_fault(m, "hold %lu is longer than a row", (unsigned long)hold->id);
		return;
	}
	hold->blocks[hold->length++] = id;
	mdl_settle(m);
}

void mdl_quarantine(struct mdl *m, int id)
{
	m->block[id].state = KVW_BLOCK_QUARANTINED;
	m->block[id].indexed = false;
	if (mdl_is_data(m, id))
		m->counters[KVW_COUNTER_quarantined_blocks]++;
}

/* Nobody can find or refer to the block any more; whether somebody can still write it decides. */
static void give_up(struct mdl *m, int id)
{
	struct mdl_engine *owner = owner_of(m, id);

	if (!owner || owner->state == MDL_GONE)
		mdl_free(m, id);
	else if (owner->state == MDL_LIVE)
		m->block[id].state = KVW_BLOCK_DRAINING;
	else if (owner->state == MDL_FROZEN)
		m->block[id].state = KVW_BLOCK_FROZEN;
	else
		mdl_quarantine(m, id);
}

void mdl_drop(struct mdl *m, struct mdl_hold *hold)
{
	int id = hold->blocks[--hold->length];

	if (m->block[id].state == KVW_BLOCK_ORPHAN && mdl_references(m, id) == 0)
		give_up(m, id);
	mdl_settle(m);
}

void mdl_complete(struct mdl *m, int id)
{
	struct mdl_block *b = &m->block[id];

	if (b->owner < 0 || !mdl_reached(m, b->owner, b->timeline, b->step))
		mdl_fault(m, "block %d is treated as complete before its step", id);
	if (b->state == KVW_BLOCK_PENDING) {
		b->state = KVW_BLOCK_CACHED;
		b->owner = -1;
	} else if (b->state == KVW_BLOCK_DRAINING) {
		mdl_free(m, id);
	} else {
		mdl_fault(m, "block %d waited for a step in state %d", id, b->state);
	}
	mdl_settle(m);
}

void mdl_orphan(struct mdl *m, int id)
{
	struct mdl_block *b = &m->block[id];

	if (!b->indexed)
		mdl_fault(m, "block %d was not findable and is orphaned", id);
	if (mdl_has_children(m, id))
		mdl_fault(m, "block %d is orphaned before its children", id);
	b->indexed = false;
	b->stamp = 0;
	if (mdl_references(m, id) > 0) {
		b->state = KVW_BLOCK_ORPHAN;
		m->counters[KVW_COUNTER_orphaned_blocks]++;
	} else {
		m->counters[KVW_COUNTER_orphaned_blocks] += DIFFERS_ORPHANED_BLOCKS;
		give_up(m, id);
	}
	mdl_settle(m);
}
