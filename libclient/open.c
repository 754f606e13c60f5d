/* SPDX-License-Identifier: Apache-2.0 */
#include "open.h"

#include <errno.h>
#include <string.h>

#include "ipc/hash.h"

#include "client.h"
#include "close.h"
#include "error.h"
#include "mirror.h"
#include "params.h"
#include "post.h"
#include "publish.h"
#include "refused.h"
#include "rows.h"

static int check_extra(const struct kvp_extra_key *key, uint32_t i)
{
	if (key->domain < KVP_EXTRA_SALT || key->domain > KVP_EXTRA_MULTIMODAL)
		return kvc_fail(EINVAL, "extra key %u has the unknown domain %u: KVP_EXTRA_*", i,
				key->domain);
	if (key->length && !key->bytes)
		return kvc_fail(EINVAL, "extra key %u has no bytes", i);
	return 0;
}

static int check_extras(const struct kvp_open_request *request)
{
	uint64_t bytes = 0;
	uint32_t i;
	int ret;

	if (request->extra_count > KVC_MAX_EXTRAS)
		return kvc_fail(KVP_ELIMIT, "%u extra keys, at most %u are allowed: give a digest of all",
				request->extra_count, KVC_MAX_EXTRAS);
	if (request->extra_count && !request->extras)
		return kvc_fail(EINVAL, "kvp_open_request.extras is NULL, extra_count is %u",
				request->extra_count);
	for (i = 0; i < request->extra_count; i++) {
		ret = check_extra(&request->extras[i], i);
		if (ret)
			return ret;
		bytes += request->extras[i].length;
	}
	if (bytes > KVC_MAX_EXTRA_BYTES)
		return kvc_fail(KVP_ELIMIT, "extra keys of %llu bytes, at most %u are allowed: give digests",
				(unsigned long long)bytes, KVC_MAX_EXTRA_BYTES);
	return 0;
}

static int check_hashes(const struct kvc_engine *engine, const struct kvp_open_request *request)
{
	if (!engine->own_hashes) {
		if (request->hashes || request->hash_count)
			return kvc_fail(
				EINVAL,
				"hashes are given, but the engine attached with hash_bytes 0: give tokens");
		if (request->token_count && !request->tokens)
			return kvc_fail(EINVAL, "kvp_open_request.tokens is NULL, token_count is %u",
					request->token_count);
		return 0;
	}
	if (request->hash_count && !request->hashes)
		return kvc_fail(EINVAL, "kvp_open_request.hashes is NULL, hash_count is %u",
				request->hash_count);
	if ((uint64_t)request->hash_count * engine->block_tokens > request->token_count)
		return kvc_fail(EINVAL, "%u hashes of full blocks of %u tokens, but only %u tokens",
				request->hash_count, engine->block_tokens, request->token_count);
	return 0;
}

int kvc_open_read(const struct kvp_client *client, const struct kvp_open_request *given,
		  struct kvp_open_request *out)
{
	const struct kvc_engine *engine = client->engine;
	uint64_t room = (uint64_t)engine->tables_params.row_blocks * engine->block_tokens;
	int ret = kvc_params_read(out, sizeof(*out), given, "kvp_open_request");

	if (ret)
		return ret;
	if (out->flags & ~KVP_OPEN_COMING || out->zero)
		return kvc_fail(EINVAL, "kvp_open_request has unknown flags %#x",
				out->flags & ~KVP_OPEN_COMING);
	if (out->token_count > room)
		return kvc_fail(
			KVP_ELIMIT,
			"a prompt of %u tokens, rows have room for %llu: raise max_seq_tokens at attach",
			out->token_count, (unsigned long long)room);
	if (out->reserve_tokens != UINT32_MAX && out->reserve_tokens > room)
		return kvc_fail(
			KVP_ELIMIT,
			"room for %u tokens is asked for, rows have %llu: raise max_seq_tokens at attach",
			out->reserve_tokens, (unsigned long long)room);
	ret = check_hashes(engine, out);
	return ret ? ret : check_extras(out);
}

uint32_t kvc_open_match(const struct kvp_client *client, const struct kvp_open_request *request)
{
	const struct kvc_engine *engine = client->engine;
	uint32_t most = request->max_cached_tokens;
	uint32_t tokens = request->token_count;
	uint32_t full = engine->own_hashes ? request->hash_count : tokens / engine->block_tokens;

	if (!most)
		most = tokens ? tokens - 1 : 0;
	return kvc_min(most / engine->block_tokens, full);
}

static void copy_extras(struct kvc_row *cold, const struct kvp_open_request *request)
{
	uint32_t used = 0;
	uint32_t i;

	for (i = 0; i < request->extra_count; i++) {
		const struct kvp_extra_key *key = &request->extras[i];

		if (key->length)
			memcpy(cold->extra_bytes + used, key->bytes, key->length);
		cold->extras[i] = kvc_extra_in(key);
		cold->extras[i].bytes = cold->extra_bytes + used;
		used += key->length;
	}
	cold->extra_count = request->extra_count;
}

static void copy_tokens(struct kvp_seq *seq, const struct kvp_open_request *request)
{
	seq->prompt = request->token_count;
	if (!request->tokens || !request->token_count)
		return;
	memcpy(seq->tokens, request->tokens, (size_t)request->token_count * sizeof(uint32_t));
	seq->known = request->token_count;
}

int kvc_open_fill(struct kvp_seq *seq, const struct kvp_open_request *request)
{
	const struct kvc_engine *engine = kvc_seq_engine(seq);
	struct kvc_row *cold = kvc_seq_row(seq);
	uint32_t full = request->token_count / engine->block_tokens;
	int ret = 0;

	copy_tokens(seq, request);
	copy_extras(cold, request);
	if (engine->own_hashes) {
		full = request->hash_count;
		if (full)
			memcpy(kvc_row_hashes(seq->client, seq->row), request->hashes,
			       (size_t)full * engine->tables_params.hash_bytes);
	} else {
		ret = kvc_publish_hash(seq, 0, full);
	}
	cold->hashed = full;
	return ret;
}

/*
 * How many blocks the row wants: in all, and new ones at most. What is to be reserved lies behind the match, wherever that ends: as far as
 * the row goes.
 */
static void note_asked(const struct kvc_engine *engine, struct kvc_row *cold,
		       const struct kvp_open_request *request)
{
	uint32_t tokens = request->reserve_tokens ? request->reserve_tokens : request->token_count;

	if (tokens == UINT32_MAX)
		return;
	cold->asked_all = cold->asked_new = engine->tables_params.row_blocks;
	*(request->reserve_tokens ? &cold->asked_new : &cold->asked_all) =
		kvc_blocks_for(tokens, engine->block_tokens);
}

int kvc_open_post(struct kvp_client *client, struct kvp_seq *seq, const struct kvp_open_request *request)
{
	struct kvc_engine *engine = client->engine;
	struct kvc_row *cold = kvc_seq_row(seq);
	struct kvw_request record = {
		.type = KVW_REQUEST_OPEN,
		.row = seq->row,
		.first = kvc_open_match(client, request),
		.count = cold->hashed,
		.flags = request->flags & KVP_OPEN_COMING ? KVW_REQUEST_COMING : 0,
	};
	int ret;

	note_asked(engine, cold, request);
	record.want = cold->asked_all;
	record.most = cold->asked_new;
	ret = kvc_post_asking(client, &record);
	cold->opening = !ret;
	return ret;
}

/* ------------------------------------------------------------------ the answer */

/* Whose step completes it. */
static int note_coming(struct kvp_client *client, uint32_t row, uint32_t index,
		       const struct kvw_answer *answer)
{
	struct kvc_cell *cell = &kvc_row_cells(client, row)[index];
	uint32_t timeline = answer->flags >> KVW_ANSWER_TIMELINE_SHIFT & 0xff;

	if (timeline >= KVW_TIMELINES || answer->step >= KVW_TIMELINE_POISON)
		return kvc_break(client, "a coming block of an impossible step");
	cell->step = answer->step;
	cell->timeline = (uint8_t)timeline;
	client->engine->seqs[row].coming = 1;
	return 0;
}

static int note_matched(struct kvp_client *client, uint32_t row, uint32_t index,
			const struct kvw_answer *answer)
{
	static const char what[] = "a matched block that is not the pool's";
	uint16_t flags = KVC_CELL_MATCHED;
	int ret = kvc_lease_check_foreign(client, answer->id, answer->generation, what);

	if (ret)
		return ret;
	if (!(answer->flags & KVW_ANSWER_MATCHED))
		return kvc_break(client, what);
	if (answer->flags & KVW_ANSWER_COMING)
		flags |= KVC_CELL_COMING;
	kvc_row_set(client, row, index, answer->id, answer->generation, flags, answer->writer);
	return flags & KVC_CELL_COMING ? note_coming(client, row, index, answer) : 0;
}

static int note_blocks(struct kvp_client *client, const struct kvc_op *op, uint32_t matched, uint32_t blocks)
{
	const struct kvw_answer *answers = kvc_op_answers(client->engine, op);
	uint32_t i;
	int ret = 0;

	for (i = 0; i < blocks && !ret; i++) {
		struct kvw_answer answer = kvc_load_answer(&answers[i]);

		ret = i < matched ? note_matched(client, op->row, i, &answer)
				  : kvc_row_grant(client, op->row, i, &answer);
	}
	return ret;
}

static int note_opened(struct kvp_client *client, const struct kvc_op *op,
		       const struct kvw_completion *completion)
{
	struct kvc_engine *engine = client->engine;
	uint32_t row = op->row;
	struct kvc_row *cold = &engine->rows[row];
	struct kvp_seq *seq = &engine->seqs[row];
	uint32_t matched = completion->matched;
	int ret = note_blocks(client, op, matched, matched + completion->granted);

	if (ret)
		return ret;
	cold->hold = completion->hold;
	cold->matched = cold->acked = cold->posted = cold->full = matched;
	cold->prompt_cached = matched * engine->block_tokens;
	seq->staged = seq->settled = matched * engine->block_tokens;
	seq->full_end = (matched + 1) * engine->block_tokens;
	kvc_row_set_blocks(seq, matched + completion->granted);
	kvc_mirror_committed(engine, row, matched);
	return 0;
}

static int check_open(struct kvp_client *client, const struct kvc_op *op,
		      const struct kvw_completion *completion)
{
	const struct kvc_row *cold = &client->engine->rows[op->row];
	uint32_t matched = completion->matched;
	uint32_t wanted = cold->asked_all > matched ? cold->asked_all - matched : 0;

	if (!completion->hold || matched > op->first ||
	    completion->granted != kvc_min(wanted, cold->asked_new))
		return kvc_break(client, "an OPEN answer with impossible counts");
	return 0;
}

int kvc_open_answer(struct kvp_client *client, const struct kvc_op *op,
		    const struct kvw_completion *completion)
{
	struct kvc_engine *engine = client->engine;
	struct kvc_row *cold = &engine->rows[op->row];
	struct kvp_seq *seq = &engine->seqs[op->row];
	int ret = 0;

	cold->opening = false;
	if (completion->status) {
		cold->status = completion->status;
		kvc_note_refused(completion, cold->refused);
	} else {
		ret = check_open(client, op, completion);
		if (!ret)
			ret = note_opened(client, op, completion);
	}
	if (ret)
		return ret;
	if (seq->state == KVC_ROW_OPENING)
		seq->state = cold->status ? KVC_ROW_FAILED : KVC_ROW_OPEN;
	else
		kvc_close_advance(client, op->row);
	return 0;
}

int kvc_open_failure(struct kvp_client *client, const struct kvp_seq *seq)
{
	const struct kvc_row *cold = &client->engine->rows[seq->row];

	return kvc_refused_text(cold->status, "opening a sequence", cold->refused);
}
