/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a caller can see of the lease, and waiting for it or for the daemon.
 */
#include <errno.h>

#include "ipc/frame.h"

#include "client.h"
#include "control.h"
#include "error.h"
#include "params.h"
#include "pump.h"

/* A window of the pace is closed when it is at least this old. */
#define PACE_NS 2000000000ull
/* A refused lease asks again and again: kvp_sync() does not wait for the end of that. */
#define SYNC_ROUNDS 4u

static uint32_t seconds_left(struct kvc_lease *lease)
{
	uint64_t now_ns = kvw_now_ns();
	uint64_t elapsed_us = (now_ns - lease->pace_since_ns) / 1000;
	uint64_t taken = lease->taken - lease->pace_taken;
	uint64_t pace = elapsed_us ? taken * 1024 * 1000000 / elapsed_us : 0;

	if (elapsed_us * 1000 >= PACE_NS) {
		lease->pace_per_1024s = pace;
		lease->pace_since_ns = now_ns;
		lease->pace_taken = lease->taken;
	}
	if (pace < lease->pace_per_1024s)
		pace = lease->pace_per_1024s;
	return pace ? (uint32_t)((uint64_t)lease->free_count * 1024 / pace) : UINT32_MAX;
}

int kvp_lease_info(struct kvp_client *client, struct kvp_lease_info *out)
{
	struct kvp_lease_info info = {0};
	struct kvc_lease *lease;
	int ret = kvc_enter_engine(client);

	if (ret)
		return ret;
	lease = &client->engine->lease;
	pthread_mutex_lock(&client->lock);
	kvc_pump(client);
	info.blocks = lease->free_count;
	info.coming = lease->coming;
	info.draining = lease->draining_count;
	info.low = lease->low;
	info.critical = lease->critical;
	info.high = lease->high;
	info.seconds_left = seconds_left(lease);
	pthread_mutex_unlock(&client->lock);
	return kvc_params_write(out, &info, sizeof(info), "kvp_lease_info");
}

static int lease_holds(struct kvp_client *client, void *arg)
{
	struct kvc_lease *lease = &client->engine->lease;
	uint32_t blocks = *(const uint32_t *)arg;

	if (lease->free_count >= blocks)
		return 1;
	lease->wanted = kvc_max(lease->wanted, blocks);
	kvc_lease_pump(client);
	return 0;
}

static int fail_wait(const struct kvc_lease *lease, uint32_t blocks, uint32_t timeout_ms)
{
	int why = lease->refusal;

	return kvc_fail(why ? why : ETIMEDOUT, "the lease holds %u of %u blocks after %u ms%s%s",
			lease->free_count, blocks, timeout_ms, why ? ": " : "",
			why ? kvp_error_text(why) : "");
}

int kvp_lease_wait(struct kvp_client *client, uint32_t blocks, uint32_t timeout_ms)
{
	uint64_t deadline_ns = kvw_deadline_ns(timeout_ms);
	struct kvc_lease *lease;
	int ret = kvc_enter_engine(client);

	if (ret)
		return ret;
	lease = &client->engine->lease;
	if (blocks > lease->high)
		return kvc_fail(
			EINVAL,
			"%u blocks are more than the lease's high mark of %u: raise lease_high at attach",
			blocks, lease->high);
	pthread_mutex_lock(&client->lock);
	ret = kvc_wait(client, deadline_ns, lease_holds, &blocks);
	/* Another waiter sets it again at its next look. */
	lease->wanted = 0;
	if (ret == -ETIMEDOUT)
		ret = fail_wait(lease, blocks, timeout_ms);
	pthread_mutex_unlock(&client->lock);
	return ret;
}

/* One DRAIN: the daemon answers when it has taken the ring up to `tail`. */
static int drain_once(struct kvp_client *client, uint64_t deadline_ns, uint32_t tail)
{
	const struct kvw_msg_DRAIN ask = {.tail = tail};
	union kvw_any answer;
	int ret = kvc_control_begin(client, deadline_ns);

	if (ret)
		return ret;
	ret = kvc_control_call(client, deadline_ns, KVW_MSG_DRAIN, &ask, &answer, NULL, NULL);
	kvc_control_end(client);
	return ret;
}

/*
 * Takes in what came and posts what is due; says whether there is more to wait for behind *tail: records that found no room,
 * and for a few rounds those that an answer gave rise to (blocks of a closed sequence are returned when its last publish is answered).
 */
static bool pump_more(struct kvp_client *client, uint32_t round, uint32_t *tail)
{
	struct kvc_engine *engine = client->engine;
	bool more;

	pthread_mutex_lock(&client->lock);
	kvc_pump(client);
	more = engine->owed_head >= 0 || (engine->requests.own != *tail && round < SYNC_ROUNDS) || !round;
	*tail = engine->requests.own;
	pthread_mutex_unlock(&client->lock);
	return more;
}

int kvp_sync(struct kvp_client *client, uint32_t timeout_ms)
{
	uint64_t deadline_ns = kvw_deadline_ns(timeout_ms);
	uint32_t tail = 0;
	uint32_t round = 0;
	int ret = kvc_enter_engine(client);

	while (!ret && pump_more(client, round++, &tail))
		ret = drain_once(client, deadline_ns, tail);
	return ret;
}
