/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A second sequence over the first one's full blocks: an open with the same tokens, matched in full. What of the parent is not published
 * is not found, and the child has fewer cached tokens.
 */
#include "ipc/frame.h"

#include "client.h"
#include "error.h"
#include "open.h"
#include "rows.h"

static uint32_t copy_extras(const struct kvc_row *cold, struct kvp_extra_key *out)
{
	uint32_t i;

	for (i = 0; i < cold->extra_count; i++)
		out[i] = kvc_extra_out(&cold->extras[i]);
	return cold->extra_count;
}

int kvp_seq_fork(struct kvp_seq *seq, uint32_t timeout_ms, struct kvp_seq **out)
{
	struct kvp_extra_key extras[KVC_MAX_EXTRAS];
	struct kvp_open_request request = {
		.size = sizeof(request),
		.max_cached_tokens = UINT32_MAX,
		.reserve_tokens = UINT32_MAX,
		.extras = extras,
	};
	struct kvp_seq *child = NULL;
	uint32_t full;
	int ret = kvc_enter_seq(seq);

	if (!ret)
		ret = kvc_need_daemon(seq->client);
	if (ret)
		return ret;
	full = seq->settled / seq->block_tokens;
	request.token_count = full * seq->block_tokens;
	/* An engine with hashes of its own need not have given tokens. */
	request.tokens = seq->known >= request.token_count ? seq->tokens : NULL;
	if (kvc_seq_engine(seq)->own_hashes) {
		request.hashes = kvc_row_hashes(seq->client, seq->row);
		request.hash_count = full;
	}
	request.extra_count = copy_extras(kvc_seq_row(seq), extras);
	ret = kvc_open_one(seq->client, &request, kvw_deadline_ns(timeout_ms), &child);
	if (!ret)
		*out = child;
	return ret;
}
