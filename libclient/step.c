/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps on the host: the caller's thread is the stream, its release store the completion.
 */
#include "client.h"

uint64_t kvp_step_next(struct kvp_client *client, uint32_t timeline)
{
	if (kvc_check_forked(client) || !kvc_engine_of(client) || timeline >= KVW_TIMELINES)
		return 0;
	return atomic_fetch_add_explicit(&client->engine->next_step[timeline], 1, memory_order_relaxed) + 1;
}

void kvp_step_done(struct kvp_client *client, uint32_t timeline, uint64_t step)
{
	_Atomic uint64_t *word;
	uint64_t seen;

	if (kvc_check_forked(client) || !kvc_engine_of(client) || timeline >= KVW_TIMELINES ||
	    step >= KVW_TIMELINE_POISON)
		return;
	word = &client->engine->timelines->line[timeline].step;
	seen = atomic_load_explicit(word, memory_order_relaxed);
	/* Only ever up, whichever thread comes first. The release pairs with kvc_reached() and with the daemon's latch. */
	while (seen < step && !atomic_compare_exchange_weak_explicit(word, &seen, step, memory_order_release,
								     memory_order_relaxed))
		;
}

uint64_t kvp_step_reached(const struct kvp_client *client, uint32_t timeline)
{
	if (kvc_check_forked(client) || !kvc_engine_of(client) || timeline >= KVW_TIMELINES)
		return 0;
	return kvc_reached(client->engine, timeline);
}
