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

/*
 * `count` places side by side, so that a record's answers are an array: those before the ring's end are
 * skipped when they are too few. 0: *out_end is the tail once they are taken.
 */
static int find_places(struct kvc_engine *engine, uint64_t count, uint32_t *out_first, uint32_t *out_end)
{
	uint32_t size = engine->answer_count;
	uint32_t at = engine->answers_tail % size;
	uint32_t skipped = at + count > size ? size - at : 0;

	/* Where none is in use, skipping takes nothing. */
	if (engine->answers_head == engine->answers_tail) {
		engine->answers_head += skipped;
		engine->answers_tail += skipped;
		skipped = 0;
	}
	if (engine->answers_tail - engine->answers_head + skipped + count > size)
		return -KVP_EBACKLOG;
	*out_first = (engine->answers_tail + skipped) % size;
	*out_end = engine->answers_tail + skipped + (uint32_t)count;
	return 0;
}

static struct kvc_op op_of(const struct kvw_request *record, uint32_t answers_end)
{
	return (struct kvc_op){
		.ticket = record->ticket,
		.type = record->type,
		.row = record->row,
		.first = record->first,
		.count = record->count,
		.answers = record->answers,
		.answers_end = answers_end,
	};
}

int kvc_post_asking(struct kvp_client *client, struct kvw_request *record)
{
	struct kvc_engine *engine = client->engine;
	struct kvc_op *op = &engine->ops[(engine->next_ticket + 1) % KVC_OPS];
	uint32_t answers_end;
	int ret;

	/* As many answers as the completion ring holds; a place still in use is one that was never answered. */
	if (engine->outstanding >= KVW_RING_RECORDS || op->ticket)
		return -KVP_EBACKLOG;
	record->ticket = engine->next_ticket + 1;
	ret = find_places(engine, kvw_request_answers(record), &record->answers, &answers_end);
	if (!ret)
		ret = post(client, record, KVC_RING_KEPT);
	if (ret)
		return ret;
	*op = op_of(record, answers_end);
	engine->answers_tail = answers_end;
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

const struct kvw_answer *kvc_op_answers(const struct kvc_engine *engine, const struct kvc_op *op)
{
	return engine->answers + op->answers;
}

void kvc_op_answers_read(struct kvc_engine *engine, const struct kvc_op *op)
{
	/* The daemon answers in order; one that does not, and lies, must not take places back. */
	if ((int32_t)(op->answers_end - engine->answers_head) > 0)
		engine->answers_head = op->answers_end;
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
