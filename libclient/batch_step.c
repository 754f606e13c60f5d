/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Before and after a batch's step: reserve, settle. Each first looks at every sequence and changes none, then changes them all.
 */
#include <errno.h>

#include "batch.h"
#include "client.h"
#include "error.h"
#include "mirror.h"
#include "publish.h"
#include "pump.h"
#include "reserve.h"
#include "rows.h"
#include "settle.h"

/* ------------------------------------------------------------------ reserve */

/* Blocks that each lacks: batch->lacking[] lists who, batch->needs[] how many. Under the lock. */
static int count_needs(struct kvp_batch *batch, const uint32_t *tokens, uint32_t *out_short,
		       uint32_t *out_need)
{
	uint32_t lacking = 0;
	uint32_t total = 0;
	uint32_t i, need;
	int ret;

	for (i = 0; i < batch->count; i++) {
		struct kvp_seq *seq = batch->seqs[i];

		if (kvc_tokens_of(tokens, i) <= seq->reserved - seq->staged)
			continue;
		ret = kvc_reserve_check(seq, kvc_tokens_of(tokens, i), &need);
		if (ret)
			return ret;
		batch->lacking[lacking] = seq;
		batch->needs[lacking++] = need;
		total += need;
	}
	*out_short = lacking;
	*out_need = total;
	return 0;
}

int kvp_batch_reserve(struct kvp_batch *batch, const uint32_t *tokens)
{
	struct kvp_client *client = batch->client;
	uint32_t lacking = 0;
	uint32_t need = 0;
	int ret = kvc_batch_check(batch);

	if (ret)
		return ret;
	kvc_batch_read_inboxes(batch);
	pthread_mutex_lock(&client->lock);
	kvc_pump(client);
	ret = count_needs(batch, tokens, &lacking, &need);
	if (!ret && need > client->engine->lease.free_count)
		ret = kvc_reserve_fail(client->engine, need);
	if (!ret)
		kvc_reserve_append(batch->lacking, batch->needs, lacking);
	pthread_mutex_unlock(&client->lock);
	return ret;
}

/* ------------------------------------------------------------------ settle */

static int check_settle(const struct kvp_batch *batch, const uint32_t *accepted, const uint32_t *tokens)
{
	uint32_t i;
	int ret;

	for (i = 0; i < batch->count; i++) {
		struct kvp_seq *seq = batch->seqs[i];

		ret = kvc_settle_check(seq, kvc_tokens_of(accepted, i), tokens != NULL);
		if (!ret)
			ret = kvc_settle_hashes_check(seq, kvc_tokens_of(accepted, i));
		if (ret)
			return ret;
	}
	return 0;
}

/* Lengths and tokens of all; batch->filled[] lists those in which a block became full. */
static uint32_t apply_settle(struct kvp_batch *batch, const uint32_t *accepted, const uint32_t *tokens,
			     uint32_t timeline, uint64_t step)
{
	uint32_t filled = 0;
	uint32_t i;

	for (i = 0; i < batch->count; i++) {
		struct kvp_seq *seq = batch->seqs[i];
		uint32_t count = kvc_tokens_of(accepted, i);
		bool last = seq->last_step == step && seq->last_timeline == timeline;

		kvc_settle_apply(seq, count, tokens, last);
		if (tokens)
			tokens += count;
		if (kvc_settle_is_full(seq->settled, seq->full_end))
			batch->filled[filled++] = i;
		kvc_mirror_lengths(seq);
	}
	return filled;
}

static int publish_filled(struct kvp_batch *batch, uint32_t filled, uint32_t timeline, uint64_t step)
{
	struct kvp_client *client = batch->client;
	uint32_t i;
	int failed = 0;

	for (i = 0; i < filled; i++)
		if (kvc_settle_hash(batch->seqs[batch->filled[i]]))
			failed = -EIO;
	pthread_mutex_lock(&client->lock);
	kvc_pump(client);
	for (i = 0; i < filled; i++)
		kvc_settle_publish(batch->seqs[batch->filled[i]], timeline, step);
	pthread_mutex_unlock(&client->lock);
	return failed;
}

int kvp_batch_settle(struct kvp_batch *batch, const uint32_t *accepted, const uint32_t *tokens,
		     uint32_t timeline, uint64_t step)
{
	uint32_t filled;
	int ret = kvc_batch_check(batch);

	if (!ret)
		ret = kvc_step_check(timeline, step);
	if (!ret)
		ret = check_settle(batch, accepted, tokens);
	if (ret)
		return ret;
	filled = apply_settle(batch, accepted, tokens, timeline, step);
	return filled ? publish_filled(batch, filled, timeline, step) : 0;
}
