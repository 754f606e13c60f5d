/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for answers: a futex word in the channel, in slices, with a look at the socket between them, so that neither a lost
 * wake-up nor a dead daemon holds a caller beyond its deadline.
 *
 *   client: client_waiting = 1; fence; look at the completion ring; sleep while the futex word is what it was before the look
 *   daemon: post the completion; fence; if client_waiting: raise the futex word and wake
 */
#include <errno.h>

#include "ipc/frame.h"
#include "ipc/ring.h"

#include "client.h"
#include "control.h"
#include "error.h"
#include "post.h"
#include "pump.h"

#define SLICE_MS 100u
/* While a refused lease is asked for again and again. */
#define RETRY_SLICE_MS 5u

static uint32_t slice_ms(const struct kvc_lease *lease, uint64_t now_ns, uint64_t deadline_ns)
{
	uint64_t left = (deadline_ns - now_ns + 999999) / 1000000;
	uint32_t slice = lease->wanted && lease->refusal ? RETRY_SLICE_MS : SLICE_MS;

	return left > slice ? slice : (uint32_t)left;
}

static void begin_waiting(struct kvc_engine *engine)
{
	if (engine->waiters++ == 0)
		atomic_store_explicit(&engine->channel->client_waiting, 1, memory_order_relaxed);
}

static void end_waiting(struct kvc_engine *engine)
{
	if (--engine->waiters == 0)
		atomic_store_explicit(&engine->channel->client_waiting, 0, memory_order_relaxed);
}

/* Sleeps without the lock until an answer may be there; then looks at the socket. */
static int sleep_once(struct kvp_client *client, uint32_t seen, uint64_t now_ns, uint64_t deadline_ns)
{
	uint32_t wait_ms = slice_ms(&client->engine->lease, now_ns, deadline_ns);
	int ret;

	pthread_mutex_unlock(&client->lock);
	kvw_futex_wait(&client->engine->channel->completion_futex, seen, wait_ms);
	ret = kvc_control_look(client);
	pthread_mutex_lock(&client->lock);
	return ret;
}

static int fail_late(struct kvp_client *client)
{
	int ret = kvc_control_look(client);

	return ret ? ret : kvc_fail(ETIMEDOUT, "the daemon did not answer in time: wait longer");
}

int kvc_wait(struct kvp_client *client, uint64_t deadline_ns,
	     int (*done)(struct kvp_client *client, void *arg), void *arg)
{
	struct kvc_engine *engine = client->engine;
	int lost = 0;
	uint64_t now_ns;
	uint32_t seen;
	int ret;

	begin_waiting(engine);
	for (;;) {
		seen = atomic_load_explicit(&engine->channel->completion_futex, memory_order_acquire);
		kvw_store_load_fence();
		kvc_pump(client);
		/* An answer that broke the protocol is no answer. */
		ret = kvc_enter(client);
		if (!ret)
			ret = done(client, arg);
		if (!ret)
			ret = lost ? lost : kvc_need_daemon(client);
		if (ret)
			break;
		now_ns = kvw_now_ns();
		if (now_ns >= deadline_ns) {
			ret = fail_late(client);
			break;
		}
		kvc_ring_doorbell(engine);
		/* What came before the end still counts: one more round. */
		lost = sleep_once(client, seen, now_ns, deadline_ns);
	}
	end_waiting(engine);
	return ret > 0 ? 0 : ret;
}
