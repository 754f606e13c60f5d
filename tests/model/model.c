/* SPDX-License-Identifier: Apache-2.0 */
/* What the model knows of itself: counted anew each time, so that no count can be wrong. */
#include "model.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void mdl_init(struct mdl *m, int sinks, int data_blocks)
{
	int id;

	memset(m, 0, sizeof(*m));
	m->sinks = sinks;
	m->blocks = 1 + sinks + data_blocks;
	for (id = 0; id < m->blocks; id++) {
		m->block[id].owner = -1;
		m->block[id].hash = -1;
		m->block[id].parent = -1;
		m->block[id].sink = id > 0 && id <= sinks;
	}
}

void mdl_fault(struct mdl *m, const char *format, ...)
{
	va_list args;

	if (m->fault[0])
		return;
	va_start(args, format);
	vsnprintf(m->fault, sizeof(m->fault), format, args);
	va_end(args);
}

bool mdl_is_data(const struct mdl *m, int id)
{
	return id > m->sinks && id < m->blocks;
}

int mdl_references(const struct mdl *m, int id)
{
	int count = 0;
	int h, i;

	for (h = 0; h < MDL_HOLDS; h++)
		for (i = 0; m->hold[h].used && i < m->hold[h].length; i++)
			count += m->hold[h].blocks[i] == id;
	return count;
}

bool mdl_circular(const struct mdl *m, int id)
{
	int at = id;
	int steps;

	for (steps = 0; at >= 0 && m->block[at].indexed; steps++) {
		if (steps > m->blocks)
			return true;
		at = m->block[at].parent;
	}
	return false;
}

bool mdl_child_of(const struct mdl *m, int child, int id)
{
	const struct mdl_block *b = &m->block[child];

	return b->indexed && b->parent == id && b->parent_generation == m->block[id].generation;
}

bool mdl_has_children(const struct mdl *m, int id)
{
	int child;

	for (child = 1; child < m->blocks; child++)
		if (mdl_child_of(m, child, id))
			return true;
	return false;
}

/* `depth` ends a circle, in which nothing is evictable. */
static bool evictable(const struct mdl *m, int id, int depth)
{
	int child;

	if (m->block[id].state != KVW_BLOCK_CACHED || mdl_references(m, id) > 0 || depth > m->blocks)
		return false;
	for (child = 1; child < m->blocks; child++)
		if (mdl_child_of(m, child, id) && !evictable(m, child, depth + 1))
			return false;
	return true;
}

bool mdl_evictable(const struct mdl *m, int id)
{
	return evictable(m, id, 0);
}

int mdl_count(const struct mdl *m, enum kvw_block_state state)
{
	int count = 0;
	int id;

	for (id = m->sinks + 1; id < m->blocks; id++)
		count += m->block[id].state == state;
	return count;
}

int mdl_count_evictable(const struct mdl *m)
{
	int count = 0;
	int id;

	for (id = 1; id < m->blocks; id++)
		count += mdl_evictable(m, id);
	return count;
}

int mdl_available(const struct mdl *m)
{
	return mdl_count(m, KVW_BLOCK_FREE) + mdl_count_evictable(m);
}

bool mdl_is_victim(const struct mdl *m, int id)
{
	int other;

	if (!mdl_evictable(m, id) || mdl_has_children(m, id))
		return false;
	for (other = 1; other < m->blocks; other++)
		if (m->block[other].stamp && m->block[other].stamp < m->block[id].stamp)
			return false;
	return true;
}

uint64_t mdl_used(const struct mdl *m, int tenant)
{
	uint64_t used = 0;
	int id, h;

	for (id = m->sinks + 1; id < m->blocks; id++)
		used += m->block[id].owner >= 0 && m->engine[m->block[id].owner].tenant == tenant;
	for (h = 0; h < MDL_HOLDS; h++)
		if (m->hold[h].used && m->engine[m->hold[h].engine].tenant == tenant)
			used += (uint64_t)m->hold[h].length;
	return used;
}

int mdl_find(const struct mdl *m, uint32_t namespace_id, int hash)
{
	int id;

	for (id = 1; id < m->blocks; id++)
		if (m->block[id].indexed && m->block[id].hash == hash &&
		    m->block[id].namespace_id == namespace_id)
			return id;
	return -1;
}

bool mdl_reached(const struct mdl *m, int engine, uint32_t timeline, uint64_t step)
{
	return step <= m->engine[engine].reached[timeline];
}

int mdl_owned(const struct mdl *m, int engine, enum kvw_block_state state)
{
	int count = 0;
	int id;

	for (id = 1; id < m->blocks; id++)
		count += m->block[id].owner == engine && m->block[id].state == state;
	return count;
}

int mdl_waiting(const struct mdl *m, int engine)
{
	int sink = m->engine[engine].sink;
	enum kvw_block_state state = m->block[sink].state;
	bool with_sink = m->block[sink].owner == engine &&
			 (state == KVW_BLOCK_FROZEN || state == KVW_BLOCK_QUARANTINED);

	return mdl_owned(m, engine, KVW_BLOCK_FROZEN) + mdl_owned(m, engine, KVW_BLOCK_QUARANTINED) -
	       with_sink;
}

int mdl_holds_of(const struct mdl *m, int engine)
{
	int count = 0;
	int h;

	for (h = 0; h < MDL_HOLDS; h++)
		count += m->hold[h].used && m->hold[h].engine == engine;
	return count;
}

bool mdl_empty(const struct mdl *m, int engine)
{
	int id;

	for (id = 1; id < m->blocks; id++)
		if (m->block[id].owner == engine)
			return false;
	return mdl_holds_of(m, engine) == 0;
}

struct mdl_hold *mdl_hold_by_id(struct mdl *m, uint64_t id)
{
	int h;

	for (h = 0; h < MDL_HOLDS; h++)
		if (m->hold[h].used && m->hold[h].id == id)
			return &m->hold[h];
	return NULL;
}

static bool children_stamped(const struct mdl *m, int id)
{
	int child;

	for (child = 1; child < m->blocks; child++)
		if (mdl_child_of(m, child, id) && !m->block[child].stamp)
			return false;
	return true;
}

/* Stamps one block whose children have theirs. */
static bool stamp_one(struct mdl *m, const bool *may_go)
{
	int id;

	for (id = 1; id < m->blocks; id++) {
		if (!may_go[id] || m->block[id].stamp || !children_stamped(m, id))
			continue;
		m->block[id].stamp = m->tie ? m->clock : ++m->clock;
		return true;
	}
	return false;
}

void mdl_settle(struct mdl *m)
{
	bool may_go[MDL_BLOCKS] = {false};
	int id;

	for (id = 1; id < m->blocks; id++) {
		may_go[id] = mdl_evictable(m, id);
		if (!may_go[id])
			m->block[id].stamp = 0;
	}
	while (stamp_one(m, may_go))
		;
}
