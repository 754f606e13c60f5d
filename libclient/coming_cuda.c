/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reader's stream waits for the words of its blocks' writers. Two engines must not wait for each other: what an engine has published, and
 * others may wait for, ends by what is queued already, before it queues a wait of its own.
 */
#include "coming_cuda.h"

#include <errno.h>

#include "client.h"
#include "coming.h"
#include "cuda.h"
#include "error.h"
#include "peers_cuda.h"
#include "rows.h"
#include "step_cuda.h"
#include "words_cuda.h"

struct wait {
	uint64_t address;
	uint64_t step;
};

static int again(const char *why)
{
	return kvc_fail(EAGAIN, "matched blocks are still being written, and %s: kvp_seq_ready(), then again",
			why);
}

/* Under the lock. Whether all own steps that others may wait for have an end that is done or queued. */
static bool ends_are_queued(const struct kvp_client *client)
{
	const struct kvc_engine *engine = client->engine;
	uint32_t i;

	for (i = 0; i < KVW_TIMELINES; i++)
		if (engine->published[i] >
			    atomic_load_explicit(&client->cuda->queued[i], memory_order_relaxed) &&
		    engine->published[i] > kvc_reached(engine, i))
			return false;
	return true;
}

/* Under the lock: an address for each that is not complete. How many, or an error. */
static int find_waits(struct kvp_client *client, const struct kvc_awaits *awaits, const struct kvc_use *use,
		      struct wait waits[KVC_AWAITED])
{
	struct kvc_cuda *cuda = client->cuda;
	int count = 0;
	uint32_t i;

	for (i = 0; i < awaits->count; i++) {
		const struct kvc_awaited *awaited = &awaits->of[i];
		int ret = kvc_awaited_look(client->engine, awaited);

		if (ret < 0)
			return ret;
		if (ret)
			continue;
		if (!cuda->peers)
			return again("this device can't wait for another process's words");
		waits[count] =
			(struct wait){kvc_peers_address(cuda->peers, awaited->writer, awaited->timeline, use),
				      awaited->step};
		if (!waits[count++].address)
			return again("their writer's timelines are not known here");
	}
	if (awaits->more)
		return again("by more engines than a step can wait for");
	if (count && !ends_are_queued(client))
		return again("an own step was published whose end is not queued (kvp_step_done_on())");
	return count;
}

int kvc_coming_queue(struct kvp_client *client, const struct kvc_awaits *awaits,
		     struct kvw_cuda_stream *stream, const struct kvc_use *use)
{
	struct wait waits[KVC_AWAITED];
	int count, i;
	int ret = 0;

	if (!awaits->count)
		return 0;
	pthread_mutex_lock(&client->lock);
	count = find_waits(client, awaits, use, waits);
	pthread_mutex_unlock(&client->lock);
	/* The wait itself: without it the step reads what its writers have not written yet. */
	for (i = 0; !ret && i < count; i++)
		ret = kvc_word_wait(client->cuda, stream, waits[i].address, waits[i].step);
	return count < 0 ? count : ret;
}

static int wait_on(struct kvp_seq *seq, struct kvw_cuda_stream *stream)
{
	const struct kvc_use use = {.step = seq->last_step, .timeline = seq->last_timeline};
	struct kvc_awaits awaits = {0};
	int ret = kvc_cuda_check_capture(seq->client->cuda, stream,
					 "wait before the capture, and before each launch of the graph");

	if (ret)
		return ret;
	kvc_coming_collect(seq, &awaits);
	return kvc_coming_queue(seq->client, &awaits, stream, &use);
}

int kvp_seq_wait_on(struct kvp_seq *seq, void *stream)
{
	bool pushed;
	int ret = kvc_enter_seq(seq);

	if (!ret)
		ret = kvc_enter_cuda(seq->client);
	if (!ret && kvc_use_ended(kvc_seq_engine(seq), &(struct kvc_use){seq->last_step, seq->last_timeline}))
		ret = kvc_fail(KVP_ESTATE, "no step of the sequence runs that could wait: kvp_seq_stage() or "
					   "kvp_batch_begin() first");
	if (!ret)
		ret = kvc_coming_settle(seq);
	/* All are there. */
	if (ret)
		return ret < 0 ? ret : 0;
	ret = kvc_cuda_enter(seq->client->cuda, &pushed);
	if (ret)
		return ret;
	ret = wait_on(seq, stream);
	kvc_cuda_leave(seq->client->cuda, pushed);
	return ret;
}
