/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers: each is copied out of the ring once, matched to what was asked by its ticket, checked against what the question allows, and
 * only then believed.
 */
#include "complete.h"

#include "ipc/ring.h"

#include "client.h"
#include "close.h"
#include "error.h"
#include "extend.h"
#include "open.h"
#include "post.h"
#include "publish.h"

static int answer_lease(struct kvp_client *client, const struct kvc_op *op,
			const struct kvw_completion *completion)
{
	if (completion->status ? completion->granted != 0 : completion->granted != op->count)
		return kvc_break(client, "a LEASE answer with another count than asked");
	return kvc_lease_answer(client, kvc_op_answers(client->engine, op), completion);
}

static int dispatch(struct kvp_client *client, const struct kvc_op *op,
		    const struct kvw_completion *completion)
{
	switch (op->type) {
	case KVW_REQUEST_OPEN:
		return kvc_open_answer(client, op, completion);
	case KVW_REQUEST_EXTEND:
		return kvc_extend_answer(client, op, completion);
	case KVW_REQUEST_LEASE:
		return answer_lease(client, op, completion);
	default:
		return kvc_publish_answer(client, op, completion);
	}
}

/* A record that is answered only when it fails: the daemon's books differ from ours. Nothing can be undone; the text says it. */
static int refused(struct kvp_client *client, const struct kvw_completion *completion)
{
	if (completion->status >= 0 || completion->type < KVW_REQUEST_TRUNCATE ||
	    completion->type > KVW_REQUEST_RETURN)
		return kvc_break(client, "an answer that fits no request");
	kvc_fail(completion->status, "the daemon refused a record of type %u: %s", completion->type,
		 kvp_error_text(completion->status));
	return 0;
}

static int complete_one(struct kvp_client *client, const struct kvw_completion *completion)
{
	struct kvc_engine *engine = client->engine;
	struct kvc_op *place = kvc_op_find(engine, completion->ticket);
	struct kvc_op op;
	int ret;

	if (completion->status > 0 || completion->status < -0xffff)
		return kvc_break(client, "an impossible status");
	if (kvc_is_telling(engine, completion->ticket))
		return refused(client, completion);
	if (!place || place->type != completion->type)
		return kvc_break(client, "an answer that fits no request");
	op = *place;
	kvc_op_end(engine, place);
	ret = dispatch(client, &op, completion);
	kvc_op_answers_read(engine, &op);
	return ret;
}

void kvc_complete_all(struct kvp_client *client)
{
	struct kvc_engine *engine = client->engine;
	struct kvw_completion completion;
	uint32_t i;
	int ret;

	for (i = 0; i < KVW_RING_RECORDS; i++) {
		ret = kvw_ring_take(&engine->completions, &completion);
		if (ret < 0)
			kvc_break(client, "an impossible ring index");
		if (ret <= 0 || complete_one(client, &completion))
			return;
	}
}
