/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The outcome of a step: which staged tokens stand. What became full is hashed and published with the step that wrote it.
 */
#include "settle.h"

#include <errno.h>
#include <string.h>

#include "client.h"
#include "coming.h"
#include "error.h"
#include "mirror.h"
#include "publish.h"
#include "pump.h"
#include "reserve.h"
#include "rows.h"

/* Blocks that become full when `settled` tokens stand and whose hashes the engine must give. */
static uint32_t missing_hashes(const struct kvp_seq *seq, uint32_t settled)
{
	const struct kvc_row *cold = kvc_seq_row(seq);
	uint32_t full = settled / seq->block_tokens;

	if (!kvc_seq_engine(seq)->own_hashes || full <= cold->hashed)
		return 0;
	return full - cold->hashed;
}

int kvc_settle_check(struct kvp_seq *seq, uint32_t accepted, bool tokens)
{
	/* The poison check: what was computed from a block that nobody completed is no outcome. */
	int lost = seq->coming ? kvc_coming_settle(seq) : 0;

	if (lost < 0)
		return lost;
	if (accepted > seq->staged - seq->settled)
		return kvc_fail(EINVAL, "%u tokens are accepted, %u are staged and not settled", accepted,
				seq->staged - seq->settled);
	if (!tokens && accepted > (seq->known > seq->settled ? seq->known - seq->settled : 0) &&
	    !kvc_seq_engine(seq)->own_hashes)
		return kvc_fail(EINVAL, "tokens are NULL, but of %u accepted ones only %u were given before",
				accepted, seq->known > seq->settled ? seq->known - seq->settled : 0);
	return 0;
}

int kvc_settle_hashes_check(const struct kvp_seq *seq, uint32_t accepted)
{
	uint32_t missing = missing_hashes(seq, seq->settled + accepted);

	return missing ? kvc_fail(EINVAL, "%u blocks become full without a hash: kvp_seq_settle_hashed()",
				  missing)
		       : 0;
}

/* Tokens that differ from what was known there make the rest unknown, and so the hashes over it. */
static void take_tokens(struct kvp_seq *seq, const uint32_t *tokens, uint32_t count)
{
	struct kvc_row *cold = kvc_seq_row(seq);
	uint32_t *at = seq->tokens + seq->settled;
	uint32_t i = 0;

	while (i < count && seq->settled + i < seq->known && at[i] == tokens[i])
		i++;
	if (i == count)
		return;
	memcpy(at + i, tokens + i, (count - i) * sizeof(*tokens));
	if (cold->hashed > (seq->settled + i) / seq->block_tokens && !kvc_seq_engine(seq)->own_hashes)
		cold->hashed = (seq->settled + i) / seq->block_tokens;
	seq->known = seq->settled + count;
}

void kvc_settle_apply(struct kvp_seq *seq, uint32_t accepted, const uint32_t *tokens, bool last)
{
	if (tokens && accepted)
		take_tokens(seq, tokens, accepted);
	seq->settled += accepted;
	if (last && seq->staged != seq->settled) {
		seq->staged = seq->settled;
		kvc_seq_find_tail(seq);
	}
}

int kvc_settle_hash(struct kvp_seq *seq)
{
	struct kvc_row *cold = kvc_seq_row(seq);
	uint32_t full = seq->settled / seq->block_tokens;
	int ret = kvc_publish_hash(seq, cold->hashed, full);

	if (!ret)
		cold->hashed = kvc_max(cold->hashed, full);
	return ret;
}

void kvc_settle_publish(struct kvp_seq *seq, uint32_t timeline, uint64_t step)
{
	uint32_t full = seq->settled / seq->block_tokens;

	if (full > kvc_seq_row(seq)->hashed)
		kvc_seq_row(seq)->stopped = true;
	else
		kvc_publish_full(seq->client, seq->row, full, timeline, step);
	seq->full_end = (full + 1) * seq->block_tokens;
}

static int settle(struct kvp_seq *seq, uint32_t accepted, const uint32_t *tokens, int last, uint32_t timeline,
		  uint64_t step)
{
	struct kvp_client *client = seq->client;
	int ret = 0;

	kvc_settle_apply(seq, accepted, tokens, last != 0);
	if (kvc_settle_is_full(seq->settled, seq->full_end)) {
		ret = kvc_settle_hash(seq);
		pthread_mutex_lock(&client->lock);
		kvc_pump(client);
		kvc_settle_publish(seq, timeline, step);
		pthread_mutex_unlock(&client->lock);
	}
	kvc_mirror_lengths(seq);
	return ret;
}

static int enter(const struct kvp_seq *seq, uint32_t timeline, uint64_t step)
{
	int ret = kvc_enter_seq(seq);

	return ret ? ret : kvc_step_check(timeline, step);
}

int kvp_seq_settle(struct kvp_seq *seq, uint32_t accepted, const uint32_t *tokens, int last,
		   uint32_t timeline, uint64_t step)
{
	int ret = enter(seq, timeline, step);

	if (!ret)
		ret = kvc_settle_check(seq, accepted, tokens != NULL);
	if (!ret)
		ret = kvc_settle_hashes_check(seq, accepted);
	return ret ? ret : settle(seq, accepted, tokens, last, timeline, step);
}

/* Hashes of the blocks that become full; those that are known from the open may be given again. */
static void take_hashes(struct kvp_seq *seq, const uint8_t *hashes, uint32_t count, uint32_t full)
{
	struct kvc_row *cold = kvc_seq_row(seq);
	uint32_t hash_bytes = kvc_seq_engine(seq)->tables_params.hash_bytes;

	if (!count)
		return;
	memcpy(kvc_row_hashes(seq->client, seq->row) + (uint64_t)(full - count) * hash_bytes, hashes,
	       (size_t)count * hash_bytes);
	cold->hashed = kvc_max(cold->hashed, full);
}

int kvp_seq_settle_hashed(struct kvp_seq *seq, uint32_t accepted, const uint8_t *hashes, uint32_t hash_count,
			  int last, uint32_t timeline, uint64_t step)
{
	uint32_t full, becoming;
	int ret = enter(seq, timeline, step);

	if (!ret && !kvc_seq_engine(seq)->own_hashes)
		ret = kvc_fail(KVP_ESTATE,
			       "the engine attached with hash_bytes 0: the library hashes, kvp_seq_settle()");
	if (!ret)
		ret = kvc_settle_check(seq, accepted, false);
	if (ret)
		return ret;
	full = (seq->settled + accepted) / seq->block_tokens;
	becoming = full - seq->settled / seq->block_tokens;
	if (hash_count != becoming && (hash_count || missing_hashes(seq, seq->settled + accepted)))
		return kvc_fail(EINVAL, "%u blocks become full, %u hashes are given", becoming, hash_count);
	if (hash_count && !hashes)
		return kvc_fail(EINVAL, "hashes are NULL, hash_count is %u", hash_count);
	take_hashes(seq, hashes, hash_count, full);
	return settle(seq, accepted, NULL, last, timeline, step);
}
