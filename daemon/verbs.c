/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring's loop: a record is taken only when its completion has room, its verb run phase by phase, and the
 * client woken when it waits.
 */
#include "verbs.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>

#include <kvpool/error.h>

#include "session.h"
#include "verb_ops.h"

/* -------------------------------------------------------------- scratch */

static uint64_t page_up(uint64_t bytes)
{
	return (bytes + KVW_PAGE_BYTES - 1) & ~(uint64_t)(KVW_PAGE_BYTES - 1);
}

int kvd_scratch_map(struct kvd_scratch *scratch, uint32_t row_blocks, uint32_t hash_bytes)
{
	uint32_t answers = row_blocks > KVW_LEASE_ENTRIES ? row_blocks : KVW_LEASE_ENTRIES;
	uint64_t blocks_at = page_up((uint64_t)row_blocks * hash_bytes);
	uint64_t answers_at = blocks_at + page_up((uint64_t)row_blocks * sizeof(struct kvw_block_ref));
	uint64_t bytes = answers_at + page_up((uint64_t)answers * sizeof(struct kvw_answer));
	uint8_t *memory =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory == MAP_FAILED)
		return -errno;
	*scratch = (struct kvd_scratch){
		.memory = memory,
		.bytes = bytes,
		.hashes = memory,
		.blocks = (struct kvw_block_ref *)(void *)(memory + blocks_at),
		.answers = (struct kvw_answer *)(void *)(memory + answers_at),
	};
	return 0;
}

void kvd_scratch_unmap(struct kvd_scratch *scratch)
{
	if (scratch->memory)
		munmap(scratch->memory, scratch->bytes);
	*scratch = (struct kvd_scratch){0};
}

/* -------------------------------------------------------------- beginning and ending a verb */

static uint32_t plane_set(const struct kvw_request *request)
{
	uint32_t set = request->flags >> KVW_REQUEST_PLANE_SET_SHIFT & 0xff;

	return set ? set : KVD_MAIN_PLANE_SET;
}

/* 0; or -KVP_EPROTO: no such verb, or flags that it does not have. */
static int choose_verb(struct kvd_verb *verb)
{
	const struct kvw_request *request = &verb->request;
	const struct kvd_verb_ops *ops;

	if (request->type >= kvd_verb_count || !kvd_verb_table[request->type].run)
		return -KVP_EPROTO;
	ops = &kvd_verb_table[request->type];
	if (request->flags & ~ops->flags || request->zero)
		return -KVP_EPROTO;
	verb->ops = ops;
	return 0;
}

static void violate_record(struct kvd_session *session, const struct kvw_request *request)
{
	kvd_session_violate(session, NULL, -KVP_EPROTO,
			    "a record of unknown type %" PRIu32 ", with reserved flags %#" PRIx32
			    " or with a reserved field that is %" PRIu32,
			    request->type, request->flags, request->zero);
}

/* What the pool has, for an error that is about it. */
static void add_counts(const struct kvd_attachment *attachment, struct kvw_completion *completion)
{
	const struct kvd_pool *pool = attachment->pool->pool;

	completion->free_blocks = pool->free.length;
	completion->draining_blocks = pool->counts[KVW_BLOCK_DRAINING];
	completion->evictable_blocks = pool->evictable;
	if (completion->status == -KVP_EQUOTA)
		completion->limit = attachment->tenant->quota_blocks;
	else
		completion->limit = kvd_verb_wanted(&attachment->verb);
}

/* The verb has ended with `status`. */
static void complete(struct kvd_session *session, int status)
{
	struct kvd_attachment *attachment = session->attachment;
	struct kvd_verb *verb = &attachment->verb;
	struct kvw_completion *completion = &verb->completion;

	if (status || verb->ops->always_completes) {
		completion->type = verb->request.type;
		completion->ticket = verb->request.ticket;
		completion->status = status;
		if (status == -KVP_ENOBLOCKS || status == -KVP_EQUOTA)
			add_counts(attachment, completion);
		/* Room was there when the record was taken, and only we fill this ring. */
		if (kvw_ring_post(&attachment->completions, completion))
			kvd_session_violate(session, NULL, -KVP_EPROTO,
					    "the completion ring's head moved backwards");
		attachment->posted = true;
	}
	verb->ops = NULL;
}

/*
 * A segment that can't be read: memory is short, or a client found a way to spoil it. Either way
 * the session can't go on.
 */
static void violate_tables(struct kvd_session *session, int error)
{
	kvd_session_violate(session, NULL, error, "its tables segment can't be accessed: %s",
			    strerror(-error));
}

/* Runs at most a stretch of the verb in hand. */
static void step_verb(struct kvd_session *session)
{
	struct kvd_verb *verb = &session->attachment->verb;
	int ret;

	kvd_turn_part(&session->server->clock, verb->ops->name);
	ret = verb->ops->run(session->attachment, verb);

	if (ret == KVD_VERB_MORE)
		return;
	if (ret == KVD_VERB_TABLES)
		violate_tables(session, verb->completion.status);
	else
		complete(session, ret == KVD_VERB_DONE ? 0 : ret);
}

static int begin_verb(struct kvd_attachment *attachment, struct kvd_verb *verb)
{
	const struct kvw_request *request = &verb->request;

	if (plane_set(request) != KVD_MAIN_PLANE_SET)
		return -KVP_ERESERVED;
	/* Both are 32 bits of a stranger: their sum is not. */
	if (request->answers + kvw_request_answers(request) > attachment->memory->answer_count)
		return -EINVAL;
	return verb->ops->begin(attachment, verb);
}

/*
 * Takes the next record and begins its verb. 1: there is one now; 0: none to be taken, or the session has
 * ended.
 */
static int next_verb(struct kvd_session *session)
{
	struct kvd_attachment *attachment = session->attachment;
	struct kvd_verb *verb = &attachment->verb;
	int room = kvw_ring_space(&attachment->completions);
	int ret;

	if (!room)
		return 0;
	ret = room < 0 ? room : kvw_ring_take(&attachment->requests, &verb->request);
	if (ret < 0)
		kvd_session_violate(session, NULL, ret, "a ring index is more than %u records off",
				    KVW_RING_RECORDS);
	if (ret <= 0)
		return 0;
	if (choose_verb(verb)) {
		violate_record(session, &verb->request);
		return 0;
	}
	memset(&verb->completion, 0, sizeof(verb->completion));
	verb->phase = 0;
	verb->done = 0;
	ret = begin_verb(attachment, verb);
	if (ret)
		complete(session, ret);
	return session->state == KVD_SESSION_ATTACHED;
}

/* -------------------------------------------------------------- the loop */

/*
 * Ring protocol of the client: client_waiting = 1, fence, look at the completions, wait on the futex. Ours:
 * post, fence, look at client_waiting. One of the two sees the other.
 */
static void wake_client(struct kvd_attachment *attachment)
{
	struct kvw_channel_header *channel = kvd_attachment_channel(attachment);

	if (!attachment->posted)
		return;
	attachment->posted = false;
	kvw_store_load_fence();
	if (!atomic_load_explicit(&channel->client_waiting, memory_order_relaxed))
		return;
	atomic_fetch_add_explicit(&channel->completion_futex, 1, memory_order_release);
	kvw_futex_wake(&channel->completion_futex, KVW_MAX_WOKEN);
}

bool kvd_verbs_ready(struct kvd_session *session)
{
	struct kvd_attachment *attachment = session->attachment;

	if (!attachment->live)
		return false;
	if (attachment->verb.ops)
		return true;
	return kvw_ring_waiting(&attachment->requests) != 0 && kvw_ring_space(&attachment->completions) != 0;
}

/*
 * What has come due is carried out before the next record: a release that is followed by an open must have
 * happened, so that the open finds its blocks.
 */
static bool step_ring(struct kvd_session *session, uint32_t *records)
{
	struct kvd_attachment *attachment = session->attachment;

	if (!attachment->verb.ops && !kvd_engine_progress(attachment->engine, KVD_STRETCH_BLOCKS))
		return true;
	if (!attachment->verb.ops) {
		if (*records == KVD_TURN_RECORDS || !next_verb(session))
			return false;
		(*records)++;
	}
	if (attachment->verb.ops)
		step_verb(session);
	return session->state == KVD_SESSION_ATTACHED;
}

bool kvd_verbs_serve(struct kvd_session *session, uint64_t until_us)
{
	uint64_t stretch_us = kvd_now_us() + KVD_STRETCH_US;
	uint32_t records = 0;

	if (until_us < stretch_us)
		stretch_us = until_us;
	while (step_ring(session, &records) && kvd_now_us() < stretch_us)
		;
	if (session->state != KVD_SESSION_ATTACHED)
		return true;
	wake_client(session->attachment);
	return kvd_verbs_ready(session);
}

void kvd_verbs_abort(struct kvd_session *session)
{
	struct kvd_verb *verb = &session->attachment->verb;

	if (verb->ops && verb->ops->abort)
		verb->ops->abort(session->attachment, verb);
	verb->ops = NULL;
}
