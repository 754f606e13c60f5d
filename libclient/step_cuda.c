/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps whose end a stream says: the timeline's word, which the daemon and other engines read, is stored behind the
 * step's work.
 */
#include <errno.h>

#include "client.h"
#include "cuda.h"
#include "error.h"
#include "reserve.h"
#include "step_cuda.h"
#include "words_cuda.h"

int kvc_enter_cuda(const struct kvp_client *client)
{
	int ret = kvc_enter_engine(client);

	if (!ret && !client->cuda)
		ret = kvc_fail(KVP_ESTATE,
			       "the client has no device: attach to a cuda pool, or with cuda_context");
	return ret;
}

uint64_t kvc_timeline_address(const struct kvc_cuda *cuda, uint32_t timeline)
{
	return cuda->timelines.address + offsetof(struct kvw_timelines, line) +
	       (uint64_t)timeline * sizeof(((struct kvw_timelines *)0)->line[0]);
}

/* Steps only rise, also with two threads at it. */
static int claim_step(struct kvc_cuda *cuda, const struct kvc_engine *engine, uint32_t timeline,
		      uint64_t step)
{
	uint64_t queued = atomic_load_explicit(&cuda->queued[timeline], memory_order_relaxed);
	uint64_t reached = kvc_reached(engine, timeline);

	while (step > queued && step > reached)
		if (atomic_compare_exchange_weak_explicit(&cuda->queued[timeline], &queued, step,
							  memory_order_relaxed, memory_order_relaxed))
			return 0;
	return kvc_fail(EINVAL,
			"step %llu of timeline %u: its stream was given %llu already, steps only rise",
			(unsigned long long)step, timeline,
			(unsigned long long)(queued > reached ? queued : reached));
}

static int queue_end(struct kvp_client *client, uint32_t timeline, uint64_t step,
		     struct kvw_cuda_stream *stream)
{
	struct kvc_cuda *cuda = client->cuda;
	uint64_t before = atomic_load_explicit(&cuda->queued[timeline], memory_order_relaxed);
	uint64_t own = step;
	int ret = kvc_cuda_check_capture(cuda, stream,
					 "call kvp_step_done_on() behind each launch of the graph");

	if (!ret)
		ret = claim_step(cuda, client->engine, timeline, step);
	if (ret)
		return ret;
	ret = kvc_word_store(cuda, stream, &client->engine->timelines->line[timeline].step,
			     kvc_timeline_address(cuda, timeline), step);
	if (ret)
		(void)atomic_compare_exchange_strong_explicit(&cuda->queued[timeline], &own, before,
							      memory_order_relaxed, memory_order_relaxed);
	return ret;
}

int kvp_step_done_on(struct kvp_client *client, uint32_t timeline, uint64_t step, void *stream)
{
	bool pushed;
	int ret = kvc_enter_cuda(client);

	if (!ret)
		ret = kvc_step_check(timeline, step);
	if (!ret)
		ret = kvc_cuda_enter(client->cuda, &pushed);
	if (ret)
		return ret;
	ret = queue_end(client, timeline, step, stream);
	kvc_cuda_leave(client->cuda, pushed);
	return ret;
}
