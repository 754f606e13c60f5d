/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CLIENTS, BLOCKS, PROBE: lists that come in pages.
 */
#include <errno.h>
#include <inttypes.h>

#include "ipc/frame.h"

#include "admin.h"

#define CLIENTS_PAGE 128u
#define BLOCKS_PAGE 256u
#define PROBE_PAGE 64u
/* Blocks looked at for one page: a filter may leave most of them out. */
#define BLOCKS_SCAN 1024u
#define WAITS_FOR_BYTES 128u
#define WHY_BYTES 128u

void kvd_admin_reply_page(struct kvd_session *session, const struct kvw_envelope *request, void *reply,
			  const void *items, uint32_t count, kvd_fill_fn fill)
{
	struct kvd_server *server = session->server;

	fill(reply, items, count);
	/* Measured by packing; what fits is packed again by the reply. */
	while (count > 1 && kvw_encode(request->type + 1, request->sequence, reply, server->message,
				       sizeof(server->message)) == -EMSGSIZE) {
		count = count * 3 / 4;
		fill(reply, items, count);
	}
	kvd_session_reply(session, request, reply);
}

/* -------------------------------------------------------------- CLIENTS */

static const char *state_name(const struct kvd_session *session)
{
	switch (session->state) {
	case KVD_SESSION_GREETING:
		return "greeting";
	case KVD_SESSION_GREETED:
		return session->waiting ? "attaching" : "greeted";
	case KVD_SESSION_ATTACHED:
		return "attached";
	case KVD_SESSION_ENDING:
	default:
		return "closing";
	}
}

/* The sink block is no block of the pool's size. */
static uint32_t leased_blocks(const struct kvd_engine *engine)
{
	const struct kvd_block *sink = &engine->pool->block[engine->sink];

	return engine->owned[KVW_BLOCK_LEASED].length -
	       (sink->owner == engine && sink->record.state == KVW_BLOCK_LEASED);
}

static void add_engine(const struct kvd_session *session, struct kvw_item_CLIENT *item)
{
	struct kvd_attachment *attachment = session->attachment;
	const struct kvd_engine *engine = attachment->engine;
	bool served = session->state == KVD_SESSION_ATTACHED && attachment->live;
	int ring = served ? kvw_ring_waiting(&attachment->requests) : 0;

	item->engine = engine->engine;
	item->pool = kvw_text_of(attachment->pool->config->name);
	item->leased = leased_blocks(engine);
	item->pending = engine->owned[KVW_BLOCK_PENDING].length;
	item->draining = engine->owned[KVW_BLOCK_DRAINING].length;
	item->waiting = kvd_engine_waiting(engine);
	item->references = engine->references;
	item->holds = engine->hold_count;
	item->tenant_blocks = attachment->tenant->used_blocks;
	item->quota_blocks = attachment->tenant->quota_blocks;
	item->namespace_id = attachment->namespace_id;
	item->ring_waiting = ring > 0 ? (uint64_t)ring : 0;
}

static struct kvw_item_CLIENT client_item(const struct kvd_session *session, char *waits_for)
{
	uint64_t now_us = kvd_now_us();
	struct kvw_item_CLIENT item = {
		.session = session->id,
		.pid = (uint64_t)session->peer.pid,
		.uid = session->peer.uid,
		.name = kvw_text_of(session->name),
		.state = kvw_text_of(state_name(session)),
		.since_ms = (now_us - session->accepted_us) / 1000,
	};

	if (session->attachment)
		add_engine(session, &item);
	if (session->state == KVD_SESSION_ENDING)
		item.since_ms = (now_us - session->ended_us) / 1000;
	kvd_session_waits_for(session, waits_for, WAITS_FOR_BYTES);
	item.waits_for = kvw_text_of(waits_for);
	return item;
}

/* The reply, and how many items there were in all from here on. */
struct clients_page {
	struct kvw_msg_CLIENTS_OK reply; /* first */
	uint32_t found;
	bool more;
};

static void fill_clients(void *reply, const void *items, uint32_t n)
{
	struct clients_page *page = reply;

	page->reply.clients = kvw_list_of(items, n);
	page->reply.more = page->more || n < page->found;
}

int kvd_request_clients(struct kvd_session *session, const struct kvw_envelope *request,
			const union kvw_any *message)
{
	struct kvw_item_CLIENT items[CLIENTS_PAGE];
	char waits_for[CLIENTS_PAGE][WAITS_FOR_BYTES];
	struct clients_page page = {.found = 0};
	const struct kvd_session *other;

	for (other = session->server->first; other; other = other->next) {
		if (other->id <= message->CLIENTS.after || other->gone)
			continue;
		page.more = page.found == CLIENTS_PAGE;
		if (page.more)
			break;
		items[page.found] = client_item(other, waits_for[page.found]);
		page.found++;
	}
	kvd_admin_reply_page(session, request, &page, items, page.found, fill_clients);
	return 0;
}

/* -------------------------------------------------------------- BLOCKS */

static struct kvw_item_BLOCK block_item(const struct kvd_pool *pool, int32_t id, char *why)
{
	const struct kvd_block *block = &pool->block[id];
	const struct kvw_block_record *record = &block->record;

	kvd_pool_explain(pool, id, why, WHY_BYTES);
	return (struct kvw_item_BLOCK){
		.id = (uint64_t)id,
		.state = record->state,
		.generation = record->generation,
		.session = record->session,
		.references = block->references,
		.children = block->children,
		.parent = record->parent,
		.step = record->step,
		.timeline = record->timeline,
		.namespace_id = record->namespace_id,
		.hash = kvw_bytes_of(record->hash, record->hash_bytes),
		.flags = record->flags,
		.why = kvw_text_of(why),
		.last_use = record->last_use,
	};
}

static bool block_matches(const struct kvd_pool *pool, uint32_t id, const struct kvw_msg_BLOCKS *filter)
{
	const struct kvw_block_record *record = &pool->block[id].record;

	return (!filter->state || record->state == filter->state - 1) &&
	       (!filter->session || record->session == filter->session);
}

struct blocks_page {
	struct kvw_msg_BLOCKS_OK reply; /* first */
	uint32_t found;
	uint64_t next;
};

static void fill_blocks(void *reply, const void *items, uint32_t n)
{
	struct blocks_page *page = reply;

	page->reply.blocks = kvw_list_of(items, n);
	/* Those that did not fit are where the next page begins. */
	page->reply.next = n < page->found ? ((const struct kvw_item_BLOCK *)items)[n].id : page->next;
}

int kvd_request_blocks(struct kvd_session *session, const struct kvw_envelope *request,
		       const union kvw_any *message)
{
	const struct kvw_msg_BLOCKS *filter = &message->BLOCKS;
	const struct kvd_served_pool *served = kvd_session_find_pool(session, request, filter->pool);
	uint64_t limit = filter->limit && filter->limit < BLOCKS_PAGE ? filter->limit : BLOCKS_PAGE;
	struct kvw_item_BLOCK items[BLOCKS_PAGE];
	char why[BLOCKS_PAGE][WHY_BYTES];
	struct blocks_page page = {.found = 0};
	const struct kvd_pool *pool;
	uint64_t id;

	if (!served)
		return 0;
	pool = served->pool;
	for (id = filter->from; id < pool->blocks && id - filter->from < BLOCKS_SCAN && page.found < limit;
	     id++) {
		if (!block_matches(pool, (uint32_t)id, filter))
			continue;
		items[page.found] = block_item(pool, (int32_t)id, why[page.found]);
		page.found++;
	}
	page.next = id < pool->blocks ? id : 0;
	kvd_admin_reply_page(session, request, &page, items, page.found, fill_blocks);
	return 0;
}

/* -------------------------------------------------------------- PROBE */

int kvd_request_probe(struct kvd_session *session, const struct kvw_envelope *request,
		      const union kvw_any *message)
{
	const struct kvw_msg_PROBE *probe = &message->PROBE;
	const struct kvd_namespaces *namespaces = &session->server->namespaces;
	const struct kvd_served_pool *served = kvd_session_find_pool(session, request, probe->pool);
	struct kvw_item_BLOCK items[PROBE_PAGE];
	char why[PROBE_PAGE][WHY_BYTES];
	uint32_t found = 0;
	uint32_t i;

	if (!served)
		return 0;
	for (i = 0; i < namespaces->count && found < PROBE_PAGE; i++) {
		uint32_t namespace_id = namespaces->entries[i].id;
		int32_t id = -1;

		if (!probe->namespace_id || probe->namespace_id == namespace_id)
			id = kvd_pool_find(served->pool, namespace_id, probe->hash.at, probe->hash.length);
		if (id < 0)
			continue;
		items[found] = block_item(served->pool, id, why[found]);
		found++;
	}
	const struct kvw_msg_PROBE_OK reply = {.blocks = kvw_list_of(items, found)};
	kvd_session_reply(session, request, &reply);
	return 0;
}
