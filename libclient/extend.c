/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks from the pool for a row that is open. An extend whose caller has run out of time stays on its way; its blocks join the row
 * when they come, and until then the row takes none from the lease, so that their positions stay theirs.
 */
#include "extend.h"

#include "ipc/frame.h"

#include "client.h"
#include "close.h"
#include "error.h"
#include "mirror.h"
#include "post.h"
#include "pump.h"
#include "refused.h"
#include "rows.h"

/* A granted block into its place; into the lease when the extend was given up and the place may be taken. */
static int note_block(struct kvp_client *client, uint32_t row, uint32_t index,
		      const struct kvw_answer *answer)
{
	struct kvw_answer copy;

	if (!client->engine->rows[row].extending)
		return kvc_lease_add(client, answer);
	copy = kvc_load_answer(answer);
	return kvc_row_grant(client, row, index, &copy);
}

static int note_blocks(struct kvp_client *client, const struct kvc_op *op, uint32_t count)
{
	const struct kvw_answer *answers = kvc_op_answers(client->engine, op);
	uint32_t i;
	int ret = 0;

	for (i = 0; i < count && !ret; i++)
		ret = note_block(client, op->row, op->first + i, &answers[i]);
	return ret;
}

int kvc_extend_answer(struct kvp_client *client, const struct kvc_op *op,
		      const struct kvw_completion *completion)
{
	struct kvc_engine *engine = client->engine;
	struct kvc_row *cold = &engine->rows[op->row];
	int ret;

	if (completion->granted != (completion->status ? 0 : op->count))
		return kvc_break(client, "an EXTEND answer with another count than asked");
	ret = note_blocks(client, op, completion->granted);
	if (ret || !cold->extending)
		return ret;
	cold->extending = false;
	cold->extended = completion->granted;
	cold->extend_status = completion->status;
	kvc_note_refused(completion, cold->refused);
	kvc_note(engine, op->row, KVC_INBOX_EXTENDED);
	kvc_close_advance(client, op->row);
	return 0;
}

bool kvc_extend_runs(struct kvp_seq *seq)
{
	struct kvc_row *cold = kvc_seq_row(seq);

	if (cold->extending && kvc_is_gone(seq->client))
		cold->extending = false;
	return cold->extending;
}

void kvc_extend_take(struct kvp_seq *seq)
{
	struct kvc_row *cold = kvc_seq_row(seq);

	if (!cold->extended)
		return;
	kvc_row_set_blocks(seq, seq->blocks + cold->extended);
	cold->extended = 0;
}

static int is_answered(struct kvp_client *client, void *arg)
{
	const struct kvp_seq *seq = arg;

	return !client->engine->rows[seq->row].extending;
}

static int try_post(struct kvp_client *client, void *arg)
{
	struct kvp_seq *seq = ((void **)arg)[0];
	struct kvc_row *cold = kvc_seq_row(seq);
	struct kvw_request record = {
		.type = KVW_REQUEST_EXTEND,
		.row = seq->row,
		.first = seq->blocks,
		.count = *(const uint32_t *)((void **)arg)[1],
	};
	int ret = kvc_post_asking(client, &record);

	cold->extending = !ret;
	return ret == -KVP_EBACKLOG ? 0 : ret ? ret : 1;
}

/* Under the lock. */
static int extend(struct kvp_seq *seq, uint64_t tokens, uint64_t deadline_ns)
{
	struct kvp_client *client = seq->client;
	struct kvc_row *cold = kvc_seq_row(seq);
	uint32_t row_blocks = client->engine->tables_params.row_blocks;
	uint32_t need;
	void *arg[2] = {seq, &need};
	int ret = kvc_wait(client, deadline_ns, is_answered, seq);

	if (ret)
		return ret;
	/* What an earlier one has brought late counts. */
	kvc_extend_take(seq);
	if (tokens <= seq->reserved - seq->staged)
		return 0;
	if (seq->staged + tokens > (uint64_t)row_blocks * seq->block_tokens)
		return kvc_fail(
			KVP_ELIMIT,
			"%llu tokens behind %u, rows have room for %u blocks of %u: raise max_seq_tokens",
			(unsigned long long)tokens, seq->staged, row_blocks, seq->block_tokens);
	need = kvc_blocks_for((uint32_t)(seq->staged + tokens), seq->block_tokens) - seq->blocks;
	ret = kvc_need_daemon(client);
	if (!ret)
		ret = kvc_wait(client, deadline_ns, try_post, arg);
	if (!ret)
		ret = kvc_wait(client, deadline_ns, is_answered, seq);
	if (ret)
		return ret;
	kvc_extend_take(seq);
	return cold->extend_status
		       ? kvc_refused_text(cold->extend_status, "extending a sequence", cold->refused)
		       : 0;
}

int kvp_seq_extend(struct kvp_seq *seq, uint32_t tokens, uint32_t timeout_ms)
{
	int ret = kvc_enter_seq(seq);

	if (ret)
		return ret;
	pthread_mutex_lock(&seq->client->lock);
	ret = extend(seq, tokens, kvw_deadline_ns(timeout_ms));
	pthread_mutex_unlock(&seq->client->lock);
	return ret;
}
