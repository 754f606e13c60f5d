/* SPDX-License-Identifier: Apache-2.0 */
/* What proves that a device is done with a session. */
#include "device_proof.h"

#include "session.h"

#include <inttypes.h>
#include <stdio.h>

static bool is_cuda(const struct kvd_attachment *attachment)
{
	return kvd_pool_config_is_cuda(attachment->pool->config);
}

static bool grace_has_passed(const struct kvd_attachment *attachment, uint64_t now_us)
{
	return now_us - attachment->died_us >= attachment->pool->config->device_grace_ms * UINT64_C(1000);
}

bool kvd_device_drained(const struct kvd_session *session)
{
	const struct kvd_attachment *attachment = session->attachment;

	/* Pairs with the release of the client, which stores it when its device has ended. */
	return is_cuda(attachment) && attachment->live &&
	       atomic_load_explicit(&kvd_attachment_channel(attachment)->drained, memory_order_acquire) == 1;
}

bool kvd_device_proves_gone(const struct kvd_session *session, uint64_t now_us)
{
	const struct kvd_attachment *attachment = session->attachment;

	/* Nothing is granted before MAPPED: an attach that went no further has nothing that a device could write. */
	if (!is_cuda(attachment) || !attachment->live)
		return true;
	return attachment->engine->state == KVD_ENGINE_DEAD && grace_has_passed(attachment, now_us);
}

void kvd_device_waits_for(const struct kvd_session *session, char *out, uint64_t capacity)
{
	const struct kvd_attachment *attachment = session->attachment;
	const char *pool = attachment->pool->config->name;
	int pid = (int)session->peer.pid;

	if (!is_cuda(attachment))
		snprintf(out, capacity,
			 "the last mapping of pool '%s' from process %d (lock byte %" PRIu64 ")", pool, pid,
			 attachment->lock_byte);
	else if (attachment->engine->state == KVD_ENGINE_DEAD && !grace_has_passed(attachment, kvd_now_us()))
		snprintf(out, capacity,
			 "device_grace_ms of pool '%s' after process %d's end: its device may still write",
			 pool, pid);
	else
		snprintf(out, capacity,
			 "children of process %d that have its descriptors of pool '%s' (lock byte %" PRIu64
			 ")",
			 pid, pool, attachment->lock_byte);
}
