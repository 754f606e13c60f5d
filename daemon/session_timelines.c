/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TIMELINES: an engine that was given a block which another one is still writing may wait for that one's step on its device. For that it
 * gets the writer's timelines, to read. Nothing of another namespace is ever found, and so nothing of it is coming: such a session is as
 * unknown here as one that never was.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/sockios.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>

#include <kvpool/error.h>

#include "memfd.h"
#include "session.h"

/* Engines from MAPPED on: then nobody can map the page anew for writing, whatever the descriptor. */
static bool may_see(const struct kvd_session *session, const struct kvd_session *other)
{
	const struct kvd_attachment *theirs = other->attachment;

	return other->state == KVD_SESSION_ATTACHED && theirs->live &&
	       theirs->pool == session->attachment->pool &&
	       theirs->namespace_id == session->attachment->namespace_id;
}

static struct kvd_session *find_writer(const struct kvd_session *session, uint64_t id)
{
	struct kvd_session *other = session->server->first;

	while (other && other->id != id)
		other = other->next;
	return other && may_see(session, other) ? other : NULL;
}

/* Descriptors in flight count against the daemon's user: one message of them a session. A client that gave an answer up reads it before the next. */
static bool is_unread(struct kvd_session *session)
{
	int unread = 0;

	if (session->fds_sent_unread && !ioctl(session->socket, SIOCOUTQ, &unread) && unread == 0)
		session->fds_sent_unread = false;
	return session->fds_sent_unread;
}

static void send_timelines(struct kvd_session *session, const struct kvw_envelope *request,
			   const struct kvd_session *writer)
{
	const struct kvd_segment *timelines = &writer->attachment->memory->timelines;
	const struct kvw_msg_TIMELINES_OK reply = {.session = writer->id, .bytes = timelines->bytes};
	int fd;
	int ret = kvd_memfd_reopen(timelines->fd, O_RDONLY, &fd);

	if (ret) {
		kvd_session_refuse(session, request, ret,
				   "no descriptor of the timelines can be made: %s; the daemon's limit of "
				   "descriptors (LimitNOFILE) may be too low",
				   strerror(-ret));
		return;
	}
	session->fds_sent_unread = true;
	kvd_session_reply_fds(session, request, &reply, &fd, 1);
	kvd_closer_add(&session->server->closer, fd);
}

int kvd_request_timelines(struct kvd_session *session, const struct kvw_envelope *request,
			  const union kvw_any *message)
{
	const struct kvd_session *writer;

	if (is_unread(session))
		return 1;
	writer = find_writer(session, message->TIMELINES.session);
	if (writer)
		send_timelines(session, request, writer);
	else
		kvd_session_refuse(session, request, -ENOENT,
				   "no engine of this pool and namespace is session %" PRIu64,
				   message->TIMELINES.session);
	return 0;
}
