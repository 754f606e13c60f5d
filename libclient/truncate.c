/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cutting a sequence. Above what is published it gives blocks up. Through a published block, which is immutable and shared, it drops the
 * references from there on; the caller writes that block's tokens again into a fresh one.
 */
#include <errno.h>

#include "client.h"
#include "error.h"
#include "extend.h"
#include "mirror.h"
#include "post.h"
#include "publish.h"
#include "pump.h"
#include "rows.h"

static void give_from(struct kvp_seq *seq, uint32_t from)
{
	uint32_t i;

	for (i = seq->blocks; i > from; i--)
		kvc_row_give(seq, i - 1);
}

/* Lengths after a cut to `tokens`, in `blocks` blocks. */
static void set_lengths(struct kvp_seq *seq, uint32_t tokens, uint32_t blocks)
{
	struct kvc_row *cold = kvc_seq_row(seq);
	uint32_t full = tokens / seq->block_tokens;

	if (cold->full > full)
		cold->full = full;
	/* The tokens stay known, and so do their hashes until other tokens come; hashes of the engine's own it gives anew. */
	if (kvc_seq_engine(seq)->own_hashes && cold->hashed > full)
		cold->hashed = full;
	seq->settled = seq->staged = tokens;
	seq->full_end = (full + 1) * seq->block_tokens;
	seq->stamp = ++kvc_seq_engine(seq)->stamp;
	kvc_seq_find_tail(seq);
	kvc_row_set_blocks(seq, blocks);
}

static void cut_private(struct kvp_seq *seq, uint32_t tokens)
{
	uint32_t blocks = kvc_blocks_for(tokens, seq->block_tokens);

	give_from(seq, blocks);
	set_lengths(seq, tokens, blocks);
}

/* Positions [keep, posted) lose their references with the TRUNCATE; own copies of duplicates are given up. */
static void drop_published(struct kvp_seq *seq, uint32_t keep)
{
	struct kvc_row *cold = kvc_seq_row(seq);
	const struct kvc_cell *cells = kvc_row_cells(seq->client, seq->row);
	uint32_t i;

	for (i = cold->posted; i > keep; i--) {
		if (cells[i - 1].flags & KVC_CELL_DUPLICATE)
			cold->swaps--;
		kvc_row_give(seq, i - 1);
	}
	cold->posted = cold->acked = keep;
	cold->matched = cold->matched < keep ? cold->matched : keep;
	if (cold->prompt_cached > keep * seq->block_tokens)
		cold->prompt_cached = keep * seq->block_tokens;
	kvc_mirror_committed(kvc_seq_engine(seq), seq->row, keep);
}

static int post_truncate(struct kvp_seq *seq, uint32_t keep)
{
	const struct kvc_row *cold = kvc_seq_row(seq);
	struct kvw_request record = {
		.type = KVW_REQUEST_TRUNCATE,
		.row = seq->row,
		.hold = cold->hold,
		.first = keep,
		.timeline = seq->last_timeline,
		.step = seq->last_step,
	};
	int ret;

	/* The daemon is gone, and its books with it: ours are cut all the same. */
	if (kvc_is_gone(seq->client))
		return 0;
	ret = kvc_post_telling(seq->client, &record);
	return ret == -KVP_EBACKLOG ? kvc_fail_ring_full("truncate") : ret;
}

/* The daemon reads ids and hashes of the row when it takes a PUBLISH: until then they stay. */
static int check_cut(const struct kvp_seq *seq, uint32_t keep, bool fresh)
{
	if (kvc_seq_row(seq)->pending)
		return kvc_fail(KVP_EBACKLOG, "a publish of what is to be cut is still on its way: "
					      "kvp_sync(), then truncate again");
	if (fresh && !kvc_seq_engine(seq)->lease.free_count && !kvc_row_frees_from(seq, keep))
		return kvc_fail(KVP_ELEASE,
				"the cut goes through a published block, and neither the lease nor "
				"what is cut has one to take its place: kvp_lease_wait(), then "
				"truncate again");
	return 0;
}

static int cut_published(struct kvp_seq *seq, uint32_t tokens)
{
	uint32_t keep = tokens / seq->block_tokens;
	bool fresh = tokens % seq->block_tokens != 0;
	uint32_t posted = kvc_seq_row(seq)->posted;
	int ret = check_cut(seq, keep, fresh);

	if (!ret)
		ret = post_truncate(seq, keep);
	if (ret)
		return ret;
	give_from(seq, posted);
	drop_published(seq, keep);
	set_lengths(seq, keep * seq->block_tokens, keep);
	if (fresh)
		kvc_row_append(seq, 1);
	return 0;
}

/* Under the lock. */
static int truncate_to(struct kvp_seq *seq, uint32_t tokens)
{
	const struct kvc_row *cold = kvc_seq_row(seq);

	if (kvc_extend_runs(seq))
		return kvc_fail(KVP_ESTATE, "an extend of the sequence is still on its way: kvp_seq_extend() "
					    "again waits for it");
	/* What it has brought is behind the cut. */
	kvc_extend_take(seq);
	if (tokens / seq->block_tokens < cold->posted)
		return cut_published(seq, tokens);
	cut_private(seq, tokens);
	return 0;
}

int kvp_seq_truncate(struct kvp_seq *seq, uint32_t tokens)
{
	struct kvp_client *client = seq->client;
	int ret = kvc_enter_seq_and_read(seq);

	if (ret)
		return ret;
	if (tokens > seq->settled)
		return kvc_fail(EINVAL, "a cut to %u tokens of a sequence with %u settled ones", tokens,
				seq->settled);
	pthread_mutex_lock(&client->lock);
	kvc_pump(client);
	ret = truncate_to(seq, tokens);
	kvc_lease_pump(client);
	pthread_mutex_unlock(&client->lock);
	return ret;
}
