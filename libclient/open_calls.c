/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvp_open() and its two halves. One call's rows are linked through open_next while it waits, so that it needs no memory.
 */
#include <errno.h>

#include "ipc/frame.h"

#include "client.h"
#include "close.h"
#include "coming.h"
#include "error.h"
#include "open.h"
#include "params.h"
#include "peers_cuda.h"
#include "post.h"
#include "pump.h"
#include "rows.h"

/* One kvp_open(). */
struct opening {
	struct kvp_client *client;
	uint64_t deadline_ns;
	int32_t head; /* rows claimed so far, newest first; -1: none */
	struct kvp_seq *seq;
	const struct kvp_open_request *request;
	struct kvp_open_request own; /* what `request` points to when the caller's was read */
	int ret;
};

static int try_claim(struct kvp_client *client, void *arg)
{
	struct opening *opening = arg;

	opening->ret = kvc_row_claim(client, &opening->seq);
	/* Closed sequences' rows come back by themselves. */
	return opening->ret != -KVP_EBACKLOG;
}

static int try_post(struct kvp_client *client, void *arg)
{
	struct opening *opening = arg;

	opening->ret = kvc_open_post(client, opening->seq, opening->request);
	return opening->ret != -KVP_EBACKLOG;
}

static int all_answered(struct kvp_client *client, void *arg)
{
	const struct opening *opening = arg;
	int32_t row;

	for (row = opening->head; row >= 0; row = client->engine->rows[row].open_next)
		if (client->engine->rows[row].opening)
			return 0;
	return 1;
}

/* Under the lock: claims a row and links it. */
static int claim(struct opening *opening, uint32_t index)
{
	struct kvp_client *client = opening->client;
	int ret = kvc_wait(client, opening->deadline_ns, try_claim, opening);
	struct kvc_row *cold;

	if (!ret)
		ret = opening->ret;
	if (ret)
		return ret;
	cold = kvc_seq_row(opening->seq);
	cold->open_index = index;
	cold->open_next = opening->head;
	opening->head = (int32_t)opening->seq->row;
	return 0;
}

/* Under the lock, which is given up while hashes are computed. */
static int start_one(struct opening *opening, uint32_t index)
{
	struct kvp_client *client = opening->client;
	int ret = claim(opening, index);

	if (ret)
		return ret;
	pthread_mutex_unlock(&client->lock);
	ret = kvc_open_fill(opening->seq, opening->request);
	pthread_mutex_lock(&client->lock);
	if (!ret)
		ret = kvc_wait(client, opening->deadline_ns, try_post, opening);
	return ret ? ret : opening->ret;
}

/* Errors of one request; the others end the whole call. */
static int is_own_error(int error)
{
	return error == -EINVAL || error == -E2BIG || error == -KVP_ELIMIT;
}

static int start_all(struct opening *opening, const struct kvp_open_request *requests, uint32_t n,
		     int *results)
{
	/* The caller's struct may be longer or shorter than ours. */
	const uint8_t *at = (const uint8_t *)requests;
	uint32_t stride = requests->size;
	uint32_t i;
	int ret;

	ret = kvc_params_check(requests, "kvp_open_request");
	if (!ret && stride % _Alignof(struct kvp_open_request))
		ret = kvc_fail(EINVAL,
			       "kvp_open_request.size is %u, no multiple of %zu: an array needs it so",
			       stride, _Alignof(struct kvp_open_request));
	if (ret)
		return ret;
	opening->request = &opening->own;
	for (i = 0; i < n; i++, at += stride) {
		const struct kvp_open_request *given = (const struct kvp_open_request *)(const void *)at;

		if (given->size != stride)
			return kvc_fail(
				EINVAL,
				"requests[%u].size is %u, requests[0].size is %u: an array has one size", i,
				given->size, stride);
		ret = kvc_open_read(opening->client, given, &opening->own);
		if (!ret)
			ret = start_one(opening, i);
		if (ret && !is_own_error(ret))
			return ret;
		results[i] = ret;
	}
	return 0;
}

/* Under the lock: everything that the call has claimed goes, whatever its state. */
static void abandon(struct opening *opening)
{
	struct kvc_engine *engine = opening->client->engine;
	int32_t row, next;

	for (row = opening->head; row >= 0; row = next) {
		next = engine->rows[row].open_next;
		kvc_close_quietly(opening->client, &engine->seqs[row]);
	}
}

/* Under the lock: hands the open ones out, ends the others. */
static void collect(struct opening *opening, int *results, struct kvp_seq **out)
{
	struct kvp_client *client = opening->client;
	int32_t row = opening->head;

	while (row >= 0) {
		struct kvc_row *cold = &client->engine->rows[row];
		struct kvp_seq *seq = &client->engine->seqs[row];
		int32_t next = cold->open_next;

		if (seq->state == KVC_ROW_OPEN) {
			out[cold->open_index] = seq;
		} else {
			if (seq->state == KVC_ROW_FAILED)
				results[cold->open_index] = kvc_open_failure(client, seq);
			kvc_close_quietly(client, seq);
		}
		row = next;
	}
}

/* So that a stream can wait for those who still write what was matched. Without the lock. */
static void learn_writers(struct kvp_seq *seq, uint64_t deadline_ns)
{
	struct kvc_awaits awaits = {0};

	if (!seq || !seq->coming)
		return;
	kvc_coming_collect(seq, &awaits);
	kvc_peers_learn(seq->client, &awaits, deadline_ns);
}

int kvp_open(struct kvp_client *client, const struct kvp_open_request *requests, uint32_t n,
	     uint32_t timeout_ms, int *results, struct kvp_seq **out)
{
	struct opening opening = {.client = client, .deadline_ns = kvw_deadline_ns(timeout_ms), .head = -1};
	uint32_t i;
	int ret = kvc_enter_engine(client);

	if (!ret)
		ret = kvc_need_daemon(client);
	if (ret || !n)
		return ret;
	pthread_mutex_lock(&client->lock);
	ret = start_all(&opening, requests, n, results);
	if (!ret)
		ret = kvc_wait(client, opening.deadline_ns, all_answered, &opening);
	if (ret) {
		abandon(&opening);
	} else {
		for (i = 0; i < n; i++)
			out[i] = NULL;
		collect(&opening, results, out);
	}
	pthread_mutex_unlock(&client->lock);
	for (i = 0; !ret && i < n; i++)
		learn_writers(out[i], opening.deadline_ns);
	return ret;
}

int kvc_open_one(struct kvp_client *client, const struct kvp_open_request *request, uint64_t deadline_ns,
		 struct kvp_seq **out)
{
	struct opening opening = {
		.client = client, .deadline_ns = deadline_ns, .head = -1, .request = request};
	int result = 0;
	int ret;

	pthread_mutex_lock(&client->lock);
	ret = start_one(&opening, 0);
	if (!ret)
		ret = kvc_wait(client, deadline_ns, all_answered, &opening);
	if (ret)
		abandon(&opening);
	else
		collect(&opening, &result, out);
	pthread_mutex_unlock(&client->lock);
	return ret ? ret : result;
}

int kvp_open_post(struct kvp_client *client, const struct kvp_open_request *request, struct kvp_seq **out)
{
	struct kvp_open_request own;
	struct kvp_seq *seq;
	int ret = kvc_enter_engine(client);

	if (!ret)
		ret = kvc_need_daemon(client);
	if (!ret)
		ret = kvc_open_read(client, request, &own);
	if (ret)
		return ret;
	pthread_mutex_lock(&client->lock);
	kvc_pump(client);
	ret = kvc_row_claim(client, &seq);
	if (!ret) {
		pthread_mutex_unlock(&client->lock);
		ret = kvc_open_fill(seq, &own);
		pthread_mutex_lock(&client->lock);
		if (!ret)
			ret = kvc_open_post(client, seq, &own);
		if (ret == -KVP_EBACKLOG)
			kvc_fail_ring_full("open");
		if (ret)
			kvc_close_quietly(client, seq);
	}
	/* A full ring, too, is a reason to wake the daemon. */
	kvc_ring_doorbell(client->engine);
	pthread_mutex_unlock(&client->lock);
	if (!ret)
		*out = seq;
	return ret;
}

static int is_answered(struct kvp_client *client, void *arg)
{
	const struct kvp_seq *seq = arg;

	return !client->engine->rows[seq->row].opening;
}

int kvp_open_collect(struct kvp_seq *seq, uint32_t timeout_ms)
{
	uint64_t deadline_ns = kvw_deadline_ns(timeout_ms);
	struct kvp_client *client = seq->client;
	int ret = kvc_enter(client);

	if (ret)
		return ret;
	pthread_mutex_lock(&client->lock);
	if (seq->state == KVC_ROW_OPENING)
		ret = kvc_wait(client, deadline_ns, is_answered, seq);
	if (ret == -ETIMEDOUT)
		ret = kvc_fail(EAGAIN, "the open is not answered yet");
	else if (!ret && seq->state == KVC_ROW_FAILED)
		ret = kvc_open_failure(client, seq);
	else if (!ret && seq->state != KVC_ROW_OPEN)
		ret = kvc_fail(KVP_ESTATE, "the sequence is closed");
	pthread_mutex_unlock(&client->lock);
	if (!ret)
		learn_writers(seq, deadline_ns);
	return ret;
}
