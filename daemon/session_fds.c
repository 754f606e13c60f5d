/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FDS: the client pulls its descriptors, in order, each once. DRAIN: the ring is consumed up to a point.
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

/* The descriptor of segment `index`; *out_close: made for this message, to be closed after it. */
static int descriptor(struct kvd_attachment *attachment, uint32_t index, int *out_fd, bool *out_close)
{
	struct kvd_served_pool *pool = attachment->pool;
	const struct kvd_attach_memory *memory = attachment->memory;
	const int shared[KVD_ATTACH_SEGMENTS - 1] = {pool->directory.send_fd, memory->tables.send_fd,
						     memory->channel.send_fd, memory->timelines.send_fd,
						     attachment->doorbell};

	*out_close = index == KVD_ATTACH_SEGMENTS - 1;
	if (*out_close)
		return kvd_served_pool_session_fd(pool, attachment->lock_byte, out_fd);
	*out_fd = shared[index];
	return 0;
}

static void send_descriptors(struct kvd_session *session, const struct kvw_envelope *request)
{
	struct kvd_attachment *attachment = session->attachment;
	uint32_t first = attachment->segments_sent;
	int fds[KVD_ATTACH_SEGMENTS];
	bool owned[KVD_ATTACH_SEGMENTS] = {false};
	uint32_t count = 0;
	uint32_t i;
	int ret = 0;

	while (!ret && first + count < KVD_ATTACH_SEGMENTS) {
		ret = descriptor(attachment, first + count, &fds[count], &owned[count]);
		count += !ret;
	}
	if (ret) {
		kvd_session_refuse(session, request, ret,
				   "no descriptor of the pool can be made: %s; the daemon's limit of "
				   "descriptors (LimitNOFILE) may be too low",
				   strerror(-ret));
	} else {
		const struct kvw_msg_FDS_OK reply = {.first = first, .count = count};

		attachment->segments_sent += count;
		session->fds_sent_unread = true;
		kvd_session_reply_fds(session, request, &reply, fds, count);
	}
	for (i = 0; i < count; i++) {
		if (owned[i])
			close(fds[i]);
	}
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
	if (first != attachment->segments_sent || first >= KVD_ATTACH_SEGMENTS) {
		kvd_session_refuse(session, request,
				   first < attachment->segments_sent ? -KVP_ESTATE : -EINVAL,
				   "FDS asks for segments from %" PRIu64 " on; the next of %u is %" PRIu32
				   ", each is given once",
				   first, KVD_ATTACH_SEGMENTS, attachment->segments_sent);
		return 0;
	}
	/* Its lock is dear when there are many: see proofs.h. */
	if (!kvd_proofs_allowed(&attachment->pool->proofs, kvd_now_us()))
		return 1;
	send_descriptors(session, request);
	return 0;
}

/* Called when the ring is consumed up to the tail that stood when the request came. */
int kvd_request_drain(struct kvd_session *session, const struct kvw_envelope *request,
		      const union kvw_any *message)
{
	uint32_t head = session->attachment->requests.own;
	const struct kvw_msg_DRAIN_OK reply = {.head = head};

	if (message->DRAIN.tail > UINT32_MAX || (int32_t)(head - (uint32_t)message->DRAIN.tail) < 0)
		kvd_session_refuse(session, request, -EINVAL,
				   "DRAIN names tail %" PRIu64 ", but nothing was posted after %" PRIu32,
				   message->DRAIN.tail, head);
	else
		kvd_session_reply(session, request, &reply);
	return 0;
}
