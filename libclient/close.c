/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a sequence. The handle is gone at once; its row stays until the daemon has answered everything that named it.
 */
#include "close.h"

#include "batch.h"
#include "client.h"
#include "error.h"
#include "post.h"
#include "publish.h"
#include "pump.h"
#include "rows.h"

static uint64_t last_use(const struct kvp_seq *seq)
{
	/* Step 0 is always reached. */
	return kvc_reached(kvc_seq_engine(seq), seq->last_timeline) >= seq->last_step ? 0 : seq->last_step;
}

static int post_release(struct kvp_client *client, uint32_t row)
{
	struct kvp_seq *seq = &client->engine->seqs[row];
	struct kvc_row *cold = &client->engine->rows[row];
	struct kvw_request record = {
		.type = KVW_REQUEST_RELEASE,
		.row = row,
		.hold = cold->hold,
		.timeline = seq->last_timeline,
		.step = last_use(seq),
	};
	int ret = kvc_post_telling(client, &record);

	if (!ret)
		cold->hold = 0;
	return ret;
}

static void give_all(struct kvp_client *client, uint32_t row)
{
	struct kvp_seq *seq = &client->engine->seqs[row];
	uint32_t blocks = seq->blocks + client->engine->rows[row].extended;
	uint32_t i;

	/* Last to first: what is taken next is what was given last, the row's beginning. */
	for (i = blocks; i > 0; i--)
		kvc_row_give(seq, i - 1);
}

void kvc_close_advance(struct kvp_client *client, uint32_t row)
{
	struct kvc_row *cold = &client->engine->rows[row];

	if (client->engine->seqs[row].state != KVC_ROW_CLOSING || cold->opening)
		return;
	if (cold->hold && !kvc_is_gone(client) && post_release(client, row)) {
		kvc_owe(client, row, KVC_OWES_RELEASE);
		return;
	}
	/* Until then nobody knows which blocks became the pool's. */
	if (cold->pending || cold->extending)
		return;
	/* Still in the list of those that owe: its turn there comes. */
	if (cold->owes)
		return;
	give_all(client, row);
	kvc_row_free(client, row);
}

void kvc_close_quietly(struct kvp_client *client, struct kvp_seq *seq)
{
	struct kvc_row *cold = kvc_seq_row(seq);

	client->engine->open_seqs--;
	kvc_batch_leave(client->engine->batch, seq);
	seq->state = KVC_ROW_CLOSING;
	/* What was not posted is not published. */
	cold->full = cold->posted;
	kvc_close_advance(client, seq->row);
}

/* Whether a RELEASE finds room now. */
static int room_to_release(struct kvp_client *client, const struct kvp_seq *seq)
{
	struct kvc_row *cold = kvc_seq_row(seq);

	if (!cold->hold || kvc_is_gone(client))
		return 0;
	if (cold->owes & KVC_OWES_PUBLISH)
		kvc_publish_post(client, seq->row);
	return kvw_ring_space(&client->engine->requests) <= 0 ? kvc_fail_ring_full("close") : 0;
}

static int close_locked(struct kvp_client *client, struct kvp_seq *seq)
{
	int ret;

	if (seq->state == KVC_ROW_FREE || seq->state == KVC_ROW_CLOSING)
		return kvc_fail(KVP_ESTATE, "the sequence is closed already");
	if (kvc_check_session(client)) {
		/* With the session everything has ended: the row is of no further use. */
		client->engine->open_seqs--;
		seq->state = KVC_ROW_CLOSING;
		return 0;
	}
	ret = room_to_release(client, seq);
	if (ret)
		return ret;
	kvc_close_quietly(client, seq);
	kvc_lease_pump(client);
	return 0;
}

int kvp_seq_close(struct kvp_seq *seq)
{
	struct kvp_client *client;
	int ret;

	if (!seq)
		return 0;
	client = seq->client;
	ret = kvc_check_forked(client);
	if (ret)
		return kvc_enter(client);
	pthread_mutex_lock(&client->lock);
	kvc_pump(client);
	ret = close_locked(client, seq);
	pthread_mutex_unlock(&client->lock);
	return ret;
}
