/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FDS: the client pulls its descriptors, in order, each once. MAPPED: it has mapped them. DRAIN: the ring is
 * consumed up to a point.
 *
 * Descriptors in flight count against the daemon's user, so a session may have one message of them unread.
 */
#include <errno.h>
#include <inttypes.h>
#include <linux/sockios.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <kvpool/error.h>

#include "session.h"

/* Nothing that we sent waits to be read. */
static bool all_read(const struct kvd_session *session)
{
	int unread = 1;

	return !ioctl(session->socket, SIOCOUTQ, &unread) && unread == 0;
}

/* Of all that the session is given. */
static uint32_t fd_count(const struct kvd_attachment *attachment)
{
	struct kvd_cuda_sharing sharing;

	return KVD_ATTACH_SEGMENTS +
	       (kvd_served_pool_sharing(attachment->pool, &sharing) ? sharing.chunk_count : 0);
}

/* Those from `first` on that one message takes. */
static uint32_t collect_fds(const struct kvd_attachment *attachment, uint32_t first,
			    int out[KVW_MAX_FDS_PER_MESSAGE])
{
	const struct kvd_attach_memory *memory = attachment->memory;
	const int segments[KVD_ATTACH_SEGMENTS] = {
		attachment->pool->directory.send_fd,
		memory->tables.send_fd,
		memory->channel.send_fd,
		memory->timelines.send_fd,
		attachment->doorbell,
		memory->answers.send_fd,
		attachment->lock.fd,
	};
	struct kvd_cuda_sharing sharing = {.chunk_count = 0};
	uint32_t count = 0;
	uint32_t at;

	kvd_served_pool_sharing(attachment->pool, &sharing);
	for (at = first; at < KVD_ATTACH_SEGMENTS + sharing.chunk_count && count < KVW_MAX_FDS_PER_MESSAGE;
	     at++)
		out[count++] =
			at < KVD_ATTACH_SEGMENTS ? segments[at] : sharing.fds[at - KVD_ATTACH_SEGMENTS];
	return count;
}

/* Ours of the pool is closed after it: its lock would be one that is left. */
static void send_descriptors(struct kvd_session *session, const struct kvw_envelope *request)
{
	struct kvd_attachment *attachment = session->attachment;
	uint32_t first = attachment->fds_sent;
	int fds[KVW_MAX_FDS_PER_MESSAGE];
	uint32_t count = collect_fds(attachment, first, fds);
	const struct kvw_msg_FDS_OK reply = {.first = first, .count = count};

	attachment->fds_sent += count;
	session->fds_sent_unread = true;
	if (first <= KVD_ATTACH_LOCK)
		kvd_lock_queue_add(&attachment->pool->locks, &attachment->lock, KVD_LOCK_CLOSE);
	kvd_session_reply_fds(session, request, &reply, fds, count);
}

/* 1: the worker makes the pool's descriptor; 0: it is there, or the request was refused. */
static int make_pool_fd(struct kvd_session *session, const struct kvw_envelope *request)
{
	struct kvd_attachment *attachment = session->attachment;
	struct kvd_lock_job *lock = &attachment->lock;
	int ret = lock->result;

	if (!ret) {
		kvd_lock_queue_add(&attachment->pool->locks, lock, KVD_LOCK_MAKE);
		return 1;
	}
	lock->result = 0;
	kvd_session_refuse(session, request, ret,
			   "no descriptor of the pool can be made: %s; the daemon's limit of descriptors "
			   "(LimitNOFILE) may be too low",
			   strerror(-ret));
	return 0;
}

static_assert(KVD_ATTACH_SEGMENTS <= KVW_MAX_FDS_PER_MESSAGE, "all descriptors fit one message");

int kvd_request_fds(struct kvd_session *session, const struct kvw_envelope *request,
		    const union kvw_any *message)
{
	const struct kvd_attachment *attachment = session->attachment;
	uint64_t first = message->FDS.first;

	if (session->fds_sent_unread && !all_read(session)) {
		kvd_session_violate(session, request, -KVP_EPROTO,
				    "it asks for descriptors before it has read those that were sent");
		return 0;
	}
	session->fds_sent_unread = false;
	if (first != attachment->fds_sent || first >= fd_count(attachment)) {
		kvd_session_refuse(session, request, first < attachment->fds_sent ? -KVP_ESTATE : -EINVAL,
				   "FDS asks for segments from %" PRIu64 " on; the next of %u is %" PRIu32
				   ", each is given once",
				   first, fd_count(attachment), attachment->fds_sent);
		return 0;
	}
	if (attachment->lock.queued)
		return 1;
	if (first <= KVD_ATTACH_LOCK && attachment->lock.fd < 0)
		return make_pool_fd(session, request);
	send_descriptors(session, request);
	return 0;
}

/* 1: the worker is at it, or its queue is full. */
static int guard(struct kvd_session *session, const struct kvw_envelope *request)
{
	struct kvd_attachment *attachment = session->attachment;
	int ret = kvd_attach_memory_guard(attachment->memory);

	attachment->guarding = !ret;
	if (!ret || ret == -EAGAIN)
		return 1;
	kvd_session_refuse(session, request, ret, "channel and timelines can't be sealed: %s",
			   strerror(-ret));
	return 0;
}

int kvd_request_mapped(struct kvd_session *session, const struct kvw_envelope *request,
		       const union kvw_any *message)
{
	struct kvd_attachment *attachment = session->attachment;
	const struct kvw_msg_MAPPED_OK reply = {.unused = 0};

	(void)message;
	if (attachment->live || attachment->fds_sent < fd_count(attachment)) {
		kvd_session_refuse(session, request, -KVP_ESTATE,
				   "MAPPED is said once, when all of %u segments were pulled; %" PRIu32
				   " were",
				   fd_count(attachment), attachment->fds_sent);
		return 0;
	}
	if (!attachment->guarding)
		return guard(session, request);
	if (!attachment->memory->done)
		return 1;
	if (attachment->memory->result) {
		kvd_session_violate(session, request, attachment->memory->result,
				    "its channel and timelines can't be sealed: %s",
				    strerror(-attachment->memory->result));
		return 0;
	}
	attachment->live = true;
	kvd_session_reply(session, request, &reply);
	return 0;
}

/* Called when the ring is consumed up to the tail that stood when the request came. */
int kvd_request_drain(struct kvd_session *session, const struct kvw_envelope *request,
		      const union kvw_any *message)
{
	uint32_t head = session->attachment->requests.own;
	const struct kvw_msg_DRAIN_OK reply = {.head = head};

	if (!session->attachment->live)
		kvd_session_refuse(session, request, -KVP_ESTATE,
				   "DRAIN before MAPPED: the ring is not looked at");
	else if (message->DRAIN.tail > UINT32_MAX || (int32_t)(head - (uint32_t)message->DRAIN.tail) < 0)
		kvd_session_refuse(session, request, -EINVAL,
				   "DRAIN names tail %" PRIu64 ", but nothing was posted after %" PRIu32,
				   message->DRAIN.tail, head);
	else
		kvd_session_reply(session, request, &reply);
	return 0;
}
