/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session's memory by way of the worker, and the look at its timelines.
 *
 * Who owns a kvd_attach_memory: from make() or guard() to `done`, the worker's job; then the session, until
 * drop(); then the worker's job again.
 */
#include "attachment.h"

#include <errno.h>
#include <stdlib.h>

#include "attach_plan.h"
#include "server.h"

#define TIMELINES_BYTES KVW_PAGE_BYTES

static int make(struct kvd_attach_memory *memory)
{
	int ret = kvd_segment_create("kvpool-tables", memory->tables_layout.bytes, KVD_SEGMENT_CLIENT,
				     &memory->tables);

	if (!ret)
		ret = kvd_segment_create("kvpool-answers", kvw_answers_bytes(memory->answer_count),
					 KVD_SEGMENT_ANSWERS, &memory->answers);
	if (!ret)
		ret = kvd_segment_create("kvpool-channel", KVW_CHANNEL_BYTES, KVD_SEGMENT_SHARED,
					 &memory->channel);
	if (!ret)
		ret = kvd_segment_create("kvpool-timelines", TIMELINES_BYTES, KVD_SEGMENT_SHARED,
					 &memory->timelines);
	if (!ret)
		ret = kvd_scratch_map(&memory->scratch, memory->tables_params.row_blocks,
				      memory->tables_params.hash_bytes);
	return ret;
}

static void unmake(struct kvd_attach_memory *memory)
{
	kvd_scratch_unmap(&memory->scratch);
	kvd_segment_destroy(&memory->timelines);
	kvd_segment_destroy(&memory->channel);
	kvd_segment_destroy(&memory->answers);
	kvd_segment_destroy(&memory->tables);
}

void kvd_attach_memory_free(struct kvd_attach_memory *memory)
{
	if (!memory)
		return;
	unmake(memory);
	free(memory);
}

static int run_make(void *arg, const _Atomic int *cancel)
{
	(void)cancel;
	return make(arg);
}

static void made(void *arg, int result)
{
	struct kvd_attach_memory *memory = arg;

	memory->result = result;
	memory->done = true;
	if (memory->abandoned)
		kvd_attach_memory_drop(memory);
}

static int run_unmake(void *arg, const _Atomic int *cancel)
{
	(void)cancel;
	unmake(arg);
	return 0;
}

/* Unmade already, unless the worker was stopped before it came to it. */
static void unmade(void *arg, int result)
{
	(void)result;
	kvd_attach_memory_free(arg);
}

int kvd_attach_memory_make(struct kvd_server *server, const struct kvd_attach_plan *plan,
			   struct kvd_attach_memory **out)
{
	struct kvd_attach_memory *memory;
	int ret;

	/* What is made takes no place from what is to be freed: clients could make without bound. */
	if (server->unfreed)
		return -EAGAIN;
	memory = calloc(1, sizeof(*memory));
	if (!memory)
		return -ENOMEM;
	memory->server = server;
	memory->tables_params = plan->tables;
	memory->tables_layout = plan->layout;
	memory->answer_count = plan->answers;
	ret = kvd_worker_submit(server->workers[KVD_WORKER_SEGMENTS].worker, "make an engine's segments",
				run_make, made, memory);
	if (ret) {
		free(memory);
		return ret;
	}
	*out = memory;
	return 0;
}

static int run_guard(void *arg, const _Atomic int *cancel)
{
	const struct kvd_attach_memory *memory = arg;
	int ret = kvd_segment_guard(&memory->channel);

	(void)cancel;
	return ret ? ret : kvd_segment_guard(&memory->timelines);
}

int kvd_attach_memory_guard(struct kvd_attach_memory *memory)
{
	struct kvd_server *server = memory->server;
	int ret = kvd_worker_submit(server->workers[KVD_WORKER_SEGMENTS].worker, "guard an engine's segments",
				    run_guard, made, memory);

	if (!ret)
		memory->done = false;
	return ret;
}

void kvd_attach_memory_drop(struct kvd_attach_memory *memory)
{
	struct kvd_server *server;

	if (!memory)
		return;
	if (!memory->done) {
		memory->abandoned = true;
		return;
	}
	server = memory->server;
	if (!kvd_worker_submit(server->workers[KVD_WORKER_SEGMENTS].worker, "free an engine's segments",
			       run_unmake, unmade, memory))
		return;
	memory->next = server->unfreed;
	server->unfreed = memory;
}

void kvd_attach_memory_retry(struct kvd_server *server)
{
	struct kvd_attach_memory *memory = server->unfreed;

	server->unfreed = NULL;
	while (memory) {
		struct kvd_attach_memory *next = memory->next;

		kvd_attach_memory_drop(memory);
		memory = next;
	}
}

/*
 * The client raises the word with a release store after its step's work; acquire, so that what follows is
 * after that work.
 */
void kvd_attachment_latch_one(struct kvd_attachment *attachment, uint32_t timeline)
{
	struct kvw_timelines *timelines = attachment->memory->timelines.memory;

	if (!attachment->live)
		return;
	kvd_engine_latch(attachment->engine, timeline,
			 atomic_load_explicit(&timelines->line[timeline].step, memory_order_acquire));
}

void kvd_attachment_latch(struct kvd_attachment *attachment, bool all)
{
	uint32_t timeline;

	for (timeline = 0; timeline < KVW_TIMELINES; timeline++) {
		const struct kvd_wait_queue *waits = &attachment->engine->waits[timeline];

		if (all || waits->head != waits->tail)
			kvd_attachment_latch_one(attachment, timeline);
	}
}

void kvd_attachment_poison(struct kvd_attachment *attachment)
{
	struct kvw_timelines *timelines = attachment->memory->timelines.memory;
	uint32_t timeline;

	if (!attachment->live || attachment->engine->owned[KVW_BLOCK_PENDING].length)
		return;
	/* Release: behind the block words of the directory. */
	for (timeline = 0; timeline < KVW_TIMELINES; timeline++)
		if (atomic_load_explicit(&timelines->line[timeline].step, memory_order_relaxed) !=
		    KVW_TIMELINE_POISON)
			atomic_store_explicit(&timelines->line[timeline].step, KVW_TIMELINE_POISON,
					      memory_order_release);
}
