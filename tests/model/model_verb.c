/* SPDX-License-Identifier: Apache-2.0 */
/* What a session asks for, in the model. */
#include "model.h"

#include <string.h>

/*
 * What waits on a timeline is carried out in the order of asking: a step below one that waits there already
 * counts as that one.
 */
static uint64_t clamp(const struct mdl *m, int engine, uint32_t timeline, uint64_t step)
{
	int id, h;

	if (mdl_reached(m, engine, timeline, step))
		return step;
	for (id = 1; id < m->blocks; id++) {
		const struct mdl_block *b = &m->block[id];
		bool waits = b->state == KVW_BLOCK_PENDING || b->state == KVW_BLOCK_ORPHAN ||
			     b->state == KVW_BLOCK_DRAINING;

		if (b->owner == engine && waits && b->timeline == timeline && b->step > step)
			step = b->step;
	}
	for (h = 0; h < MDL_HOLDS; h++) {
		const struct mdl_hold *hold = &m->hold[h];

		if (hold->used && hold->engine == engine && hold->releasing && hold->timeline == timeline &&
		    hold->step > step)
			step = hold->step;
	}
	return step;
}

/* Nobody is to wait for a pending block whose writer has lost its session. */
static bool is_doubtful(const struct mdl *m, int id)
{
	const struct mdl_block *b = &m->block[id];

	return b->state == KVW_BLOCK_PENDING && m->engine[b->owner].state != MDL_LIVE;
}

bool mdl_matchable(const struct mdl *m, int engine, int id, bool coming)
{
	const struct mdl_block *b = &m->block[id];

	return b->state == KVW_BLOCK_CACHED ||
	       (b->state == KVW_BLOCK_PENDING && (coming || b->owner == engine) && !is_doubtful(m, id));
}

static bool presented(const struct mdl *m, int engine, int id, uint64_t generation)
{
	return mdl_is_data(m, id) && m->block[id].state == KVW_BLOCK_LEASED && m->block[id].owner == engine &&
	       m->block[id].generation == generation;
}

/* The block before the one that is published, -1: it begins a chain. */
static int parent_of(const struct mdl_publish *p)
{
	return p->hold->length > 0 ? p->hold->blocks[p->hold->length - 1] : -1;
}

unsigned mdl_publish_refusals(const struct mdl *m, const struct mdl_publish *p)
{
	int tenant = m->engine[p->engine].tenant;
	int last = parent_of(p);
	int there = mdl_find(m, m->engine[p->engine].namespace_id, p->hash);
	unsigned refusals = 0;

	if (!presented(m, p->engine, p->id, p->generation))
		refusals |= MDL_STALE;
	if (last >= 0 && !m->block[last].indexed)
		refusals |= MDL_LOST;
	if (there >= 0 && m->block[there].parent != last)
		refusals |= MDL_UNCHAINED;
	if (there >= 0 && mdl_used(m, tenant) / 2 >= m->quota[tenant])
		refusals |= MDL_QUOTA;
	return refusals;
}

static void move_children(struct mdl *m, int from, int to)
{
	int child;

	for (child = 1; child < m->blocks; child++) {
		if (!mdl_child_of(m, child, from))
			continue;
		m->block[child].parent = to;
		m->block[child].parent_generation = m->block[to].generation;
	}
}

static void make_findable(struct mdl *m, const struct mdl_publish *p)
{
	struct mdl_block *b = &m->block[p->id];
	int last = parent_of(p);

	b->indexed = true;
	b->hash = p->hash;
	b->namespace_id = m->engine[p->engine].namespace_id;
	b->parent = last;
	b->parent_generation = last < 0 ? 0 : m->block[last].generation;
	b->plane_set = p->plane_set;
	b->timeline = p->timeline;
	b->step = clamp(m, p->engine, p->timeline, p->step);
	b->state = KVW_BLOCK_PENDING;
	m->counters[KVW_COUNTER_published_blocks]++;
	if (mdl_reached(m, p->engine, p->timeline, b->step)) {
		b->state = KVW_BLOCK_CACHED;
		b->owner = -1;
	}
}

int mdl_publish(struct mdl *m, const struct mdl_publish *p, bool *out_duplicate)
{
	int there = mdl_find(m, m->engine[p->engine].namespace_id, p->hash);
	bool reached = mdl_reached(m, p->engine, p->timeline, p->step);
	int canonical = p->id;

	*out_duplicate = there >= 0 && !is_doubtful(m, there) &&
			 !(m->block[there].state == KVW_BLOCK_PENDING && reached);
	if (*out_duplicate) {
		m->counters[KVW_COUNTER_duplicate_blocks]++;
		canonical = there;
	} else {
		make_findable(m, p);
		if (there >= 0) {
			move_children(m, there, p->id);
			mdl_orphan(m, there);
		}
		if (mdl_circular(m, p->id))
			mdl_fault(m, "block %d is published as its own ancestor", p->id);
	}
	mdl_pin(m, p->hold, canonical);
	return canonical;
}

struct mdl_hold *mdl_open(struct mdl *m, int engine, uint64_t id)
{
	int h = 0;

	if (mdl_hold_by_id(m, id))
		mdl_fault(m, "hold id %lu is there already", (unsigned long)id);
	while (m->hold[h].used)
		h++;
	memset(&m->hold[h], 0, sizeof(m->hold[h]));
	m->hold[h].used = true;
	m->hold[h].engine = engine;
	m->hold[h].id = id;
	return &m->hold[h];
}

void mdl_close(struct mdl_hold *hold)
{
	hold->used = false;
}

unsigned mdl_return_refusals(const struct mdl *m, int engine, int id, uint64_t generation)
{
	return presented(m, engine, id, generation) ? 0 : MDL_STALE;
}

void mdl_return(struct mdl *m, int engine, int id, uint32_t timeline, uint64_t step)
{
	struct mdl_block *b = &m->block[id];

	b->step = clamp(m, engine, timeline, step);
	b->timeline = timeline;
	b->state = KVW_BLOCK_DRAINING;
	m->counters[KVW_COUNTER_returned_blocks]++;
	if (mdl_reached(m, engine, timeline, step))
		mdl_free(m, id);
}

void mdl_release(struct mdl *m, struct mdl_hold *hold, uint32_t timeline, uint64_t step)
{
	hold->step = clamp(m, hold->engine, timeline, step);
	hold->timeline = timeline;
	hold->releasing = true;
}

void mdl_truncate(struct mdl *m, struct mdl_hold *hold, int keep, uint64_t cut, uint32_t timeline,
		  uint64_t step)
{
	struct mdl_hold *rest = mdl_open(m, hold->engine, cut);

	memcpy(rest->blocks, hold->blocks + keep, (size_t)(hold->length - keep) * sizeof(hold->blocks[0]));
	rest->length = hold->length - keep;
	hold->length = keep;
	mdl_release(m, rest, timeline, step);
}

void mdl_latch(struct mdl *m, int engine, uint32_t timeline, uint64_t step)
{
	step &= ~KVW_TIMELINE_POISON;
	if (step > m->engine[engine].reached[timeline])
		m->engine[engine].reached[timeline] = step;
}

int mdl_attach(struct mdl *m, const struct mdl_engine *engine, int sink, uint64_t generation)
{
	int e = 0;

	while (m->engine[e].used)
		e++;
	m->engine[e] = *engine;
	m->engine[e].used = true;
	m->engine[e].sink = sink;
	if (sink < 1 || sink > m->sinks || m->block[sink].state != KVW_BLOCK_FREE)
		mdl_fault(m, "block %d was granted as a sink", sink);
	if (generation <= m->block[sink].generation)
		mdl_fault(m, "sink %d was granted with generation %lu again", sink,
			  (unsigned long)generation);
	m->block[sink].state = KVW_BLOCK_LEASED;
	m->block[sink].generation = generation;
	m->block[sink].owner = e;
	m->block[sink].session = engine->session;
	return e;
}
