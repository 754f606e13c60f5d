/* SPDX-License-Identifier: Apache-2.0 */
#include "post.h"

#include <unistd.h>

#include "ipc/ring.h"

#include "client.h"
#include "error.h"

/* Tickets of the two kinds of records never meet. */
#define TELLING_BIT (1ull << 63)

static int post(struct kvp_client *client, struct kvw_request *record, uint32_t kept)
{
	struct kvc_engine *engine = client->engine;
	int space = kvw_ring_space(&engine->requests);

	if (space < 0)
		return kvc_break(client, "an impossible ring index");
	if ((uint32_t)space <= kept)
		return -KVP_EBACKLOG;
	return kvw_ring_post(&engine->requests, record);
}

static struct kvc_op op_of(const struct kvw_request *record)
{
	return (struct kvc_op){
		.ticket = record->ticket,
		.type = record->type,
		.row = record->row,
		.first = record->first,
		.count = record->count,
	};
}

int kvc_post_asking(struct kvp_client *client, struct kvw_request *record)
{
	struct kvc_engine *engine = client->engine;
	struct kvc_op *op = &engine->ops[(engine->next_ticket + 1) % KVC_OPS];
	int ret;

	/* As many answers as the completion ring holds; a place still in use is one that was never answered. */
	if (engine->outstanding >= KVW_RING_RECORDS || op->ticket)
		return -KVP_EBACKLOG;
	record->ticket = engine->next_ticket + 1;
	ret = post(client, record, KVC_RING_KEPT);
	if (ret)
		return ret;
	*op = op_of(record);
	engine->next_ticket++;
	engine->outstanding++;
	return 0;
}

int kvc_post_telling(struct kvp_client *client, struct kvw_request *record)
{
	struct kvc_engine *engine = client->engine;
	int ret;

	record->ticket = TELLING_BIT | (engine->next_async + 1);
	ret = post(client, record, record->type == KVW_REQUEST_RETURN ? KVC_RING_KEPT : 0);
	if (!ret)
		engine->next_async++;
	return ret;
}

struct kvc_op *kvc_op_find(struct kvc_engine *engine, uint64_t ticket)
{
	struct kvc_op *op = &engine->ops[ticket % KVC_OPS];

	return ticket && op->ticket == ticket ? op : NULL;
}

void kvc_op_end(struct kvc_engine *engine, struct kvc_op *op)
{
	op->ticket = 0;
	engine->outstanding--;
}

bool kvc_is_telling(const struct kvc_engine *engine, uint64_t ticket)
{
	uint64_t serial = ticket & ~TELLING_BIT;

	return ticket & TELLING_BIT && serial && serial <= engine->next_async;
}

void kvc_ring_doorbell(const struct kvc_engine *engine)
{
	static const uint64_t one = 1;

	if (kvw_must_ring(engine->directory))
		/* A full counter means that a ring is pending already; a closed one, that the socket says more. */
		(void)!write(engine->doorbell_fd, &one, sizeof(one));
}
