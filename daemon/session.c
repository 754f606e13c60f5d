/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections: accepting, receiving, queueing what can't be answered at once, answering.
 */
#include "session.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <kvpool/error.h>

#include "ipc/frame.h"

#include "admin.h"
#include "log.h"

/* -------------------------------------------------------------- list of sessions */

static void link_session(struct kvd_server *server, struct kvd_session *session)
{
	session->previous = server->last;
	if (server->last)
		server->last->next = session;
	else
		server->first = session;
	server->last = session;
}

static void unlink_session(struct kvd_server *server, struct kvd_session *session)
{
	if (server->cursor == session)
		server->cursor = session->next;
	if (session->previous)
		session->previous->next = session->next;
	else
		server->first = session->next;
	if (session->next)
		session->next->previous = session->previous;
	else
		server->last = session->previous;
}

/* -------------------------------------------------------------- receiving */

static void forget_waiting(struct kvd_session *session)
{
	struct kvd_waiting_request *request = session->waiting;

	session->waiting = request->next;
	session->waiting_count--;
	session->waiting_bytes -= request->length;
	free(request);
}

/* 0, or -KVP_ELIMIT, -ENOMEM. */
static int queue_request(struct kvd_session *session, uint32_t mark, const uint8_t *bytes, size_t length)
{
	struct kvd_waiting_request **link = &session->waiting;
	struct kvd_waiting_request *request;

	if (session->waiting_count == KVD_MAX_WAITING_REQUESTS ||
	    session->waiting_bytes + length > KVD_MAX_WAITING_BYTES)
		return -KVP_ELIMIT;
	request = malloc(sizeof(*request) + length);
	if (!request)
		return -ENOMEM;
	request->next = NULL;
	request->mark = mark;
	request->length = (uint32_t)length;
	memcpy(request->bytes, bytes, length);
	while (*link)
		link = &(*link)->next;
	*link = request;
	session->waiting_count++;
	session->waiting_bytes += request->length;
	return 0;
}

static bool ring_passed(const struct kvd_session *session, uint32_t mark)
{
	const struct kvd_attachment *attachment = session->attachment;

	if (session->state != KVD_SESSION_ATTACHED)
		return true;
	return !attachment->verb.ops && (int32_t)(attachment->requests.own - mark) >= 0;
}

int kvd_session_mark(struct kvd_session *session, uint32_t *out_mark)
{
	struct kvd_attachment *attachment = session->attachment;
	int waiting = attachment->live ? kvw_ring_waiting(&attachment->requests) : 0;

	if (waiting < 0)
		return waiting;
	*out_mark = attachment->requests.own + (uint32_t)waiting;
	return 0;
}

static void queue_or_violate(struct kvd_session *session, const struct kvw_envelope *request, uint32_t mark,
			     const uint8_t *bytes, size_t length)
{
	int ret = queue_request(session, mark, bytes, length);

	if (ret)
		kvd_session_violate(
			session, request, ret,
			"more than %u requests or %u bytes of them unanswered; wait for the answers",
			KVD_MAX_WAITING_REQUESTS, KVD_MAX_WAITING_BYTES);
}

static void take_request(struct kvd_session *session, const struct kvw_envelope *request,
			 const union kvw_any *message, const uint8_t *bytes, size_t length)
{
	uint32_t mark = 0;

	if (session->state == KVD_SESSION_ATTACHED && kvd_session_mark(session, &mark)) {
		kvd_session_violate(session, request, -KVP_EPROTO,
				    "the request ring's tail is more than %u records "
				    "ahead",
				    KVW_RING_RECORDS);
		return;
	}
	if (!session->waiting && ring_passed(session, mark) &&
	    !kvd_request_dispatch(session, request, message))
		return;
	queue_or_violate(session, request, mark, bytes, length);
}

static void take_message(struct kvd_session *session, const uint8_t *bytes, size_t length)
{
	struct kvw_envelope request = {0};
	union kvw_any message;
	int ret = kvw_decode(bytes, length, &request, &message);

	if (session->state == KVD_SESSION_GREETING && request.type != KVW_MSG_HELLO)
		kvd_session_violate(session, &request, -KVP_EPROTO,
				    "its first message is no well-formed HELLO");
	else if (ret == -KVP_ERESERVED)
		kvd_session_refuse(session, &request, ret,
				   "message %s (type %" PRIu32 ") is reserved for a later version",
				   kvw_message_name(request.type), request.type);
	else if (ret)
		kvd_session_violate(session, &request, ret,
				    "a malformed message of %zu bytes and type %" PRIu32, length,
				    request.type);
	else
		take_request(session, &request, &message, bytes, length);
}

static void on_message(void *arg, const uint8_t *bytes, int length)
{
	struct kvd_session *session = arg;

	kvd_turn_part(&session->server->clock, "a message");
	if (length > 0)
		take_message(session, bytes, (size_t)length);
	else if (length == -EMSGSIZE)
		kvd_session_violate(session, NULL, -EMSGSIZE, "a message of more than %u bytes",
				    KVW_MAX_MESSAGE_BYTES);
	else
		kvd_session_end(session, false, length ? strerror(-length) : "end of file");
}

static void on_peer_ended(void *arg)
{
	struct kvd_session *session = arg;

	kvd_turn_part(&session->server->clock, "a process's end");
	kvd_session_peer_ended(session);
}

/* -------------------------------------------------------------- accepting */

/* Says why, to one that has no session. */
static void turn_away(struct kvd_server *server, int socket, int error, const char *text)
{
	const struct kvw_msg_ERROR message = {.error = (uint64_t)-error, .text = kvw_text_of(text)};
	int length = kvw_encode(KVW_MSG_ERROR, 0, &message, server->message, sizeof(server->message));

	if (length > 0)
		kvw_send(socket, server->message, (size_t)length, NULL, 0);
	kvd_closer_add(&server->closer, socket);
	kvd_log_peer(KVD_LOG_WARNING, "connection refused: %s", text);
}

static bool is_admin(const struct kvd_config *config, uid_t uid)
{
	uint32_t i;

	if (uid == 0 || uid == geteuid())
		return true;
	for (i = 0; i < config->admin_count; i++) {
		if (config->admins[i] == uid)
			return true;
	}
	return false;
}

static int watch_session(struct kvd_session *session)
{
	struct kvd_loop *loop = session->server->loop;
	int ret = kvd_loop_receive(loop, session->socket, on_message, session, &session->socket_watch);

	if (!ret && session->peer.pidfd >= 0) {
		ret = kvd_loop_watch(loop, session->peer.pidfd, on_peer_ended, session, &session->peer_watch);
		if (ret)
			kvd_loop_forget(loop, session->socket_watch);
	}
	return ret;
}

/* Takes `peer` over on success. */
static int create_session(struct kvd_server *server, int socket, const struct kvd_peer *peer)
{
	struct kvd_session *session = calloc(1, sizeof(*session));
	int ret;

	if (!session)
		return -ENOMEM;
	session->server = server;
	session->socket = socket;
	session->peer = *peer;
	session->admin = is_admin(server->config, peer->uid);
	session->accepted_us = kvd_now_us();
	ret = watch_session(session);
	if (ret) {
		free(session);
		return ret;
	}
	session->id = ++server->last_session_id;
	link_session(server, session);
	server->connections++;
	server->greeting++;
	return 0;
}

static const char *remedy(int error)
{
	if (error == -EMFILE)
		return "; raise the daemon's limit of descriptors (LimitNOFILE), or lower 'max_sessions'";
	if (error == -EACCES)
		return "; its uid stands for all that the daemon's user namespace doesn't map: use a mapped "
		       "one";
	return "";
}

void kvd_session_accept(struct kvd_server *server, int socket)
{
	struct kvd_peer peer;
	char text[256];
	int ret;

	if (server->connections >= server->config->max_sessions) {
		snprintf(text, sizeof(text),
			 "all %" PRIu32 " sessions are taken; raise 'max_sessions' or end some",
			 server->config->max_sessions);
		turn_away(server, socket, -KVP_ELIMIT, text);
		return;
	}
	ret = kvd_peer_identify(socket, &peer);
	if (ret) {
		snprintf(text, sizeof(text), "who connects can't be told: %s%s", strerror(-ret), remedy(ret));
		turn_away(server, socket, ret == -EACCES ? -KVP_EDENIED : ret, text);
		return;
	}
	ret = create_session(server, socket, &peer);
	if (ret) {
		kvd_closer_add(&server->closer, peer.pidfd);
		snprintf(text, sizeof(text), "no room for a session of process %d: %s%s", (int)peer.pid,
			 strerror(-ret), remedy(ret));
		turn_away(server, socket, ret, text);
	}
}

/* -------------------------------------------------------------- answering */

static void send_message(struct kvd_session *session, int length, const int *fds, uint32_t fd_count)
{
	int ret;

	if (length < 0) {
		kvd_session_end(session, true, "an answer that can't be written");
		return;
	}
	ret = kvw_send(session->socket, session->server->message, (size_t)length, fds, fd_count);
	if (ret == -EAGAIN)
		kvd_session_end(session, true, "it does not read its answers");
	else if (ret)
		kvd_session_end(session, false, strerror(-ret));
}

void kvd_session_reply_fds(struct kvd_session *session, const struct kvw_envelope *request,
			   const void *message, const int *fds, uint32_t fd_count)
{
	struct kvd_server *server = session->server;

	if (session->state == KVD_SESSION_ENDING)
		return;
	send_message(session,
		     kvw_encode(request->type + 1, request->sequence, message, server->message,
				sizeof(server->message)),
		     fds, fd_count);
}

void kvd_session_reply(struct kvd_session *session, const struct kvw_envelope *request, const void *message)
{
	kvd_session_reply_fds(session, request, message, NULL, 0);
}

static void send_error(struct kvd_session *session, const struct kvw_envelope *request, int error,
		       const char *text)
{
	const struct kvw_msg_ERROR message = {.error = (uint64_t)-error, .text = kvw_text_of(text)};
	struct kvd_server *server = session->server;

	if (session->state == KVD_SESSION_ENDING)
		return;
	send_message(session,
		     kvw_encode(KVW_MSG_ERROR, request ? request->sequence : 0, &message, server->message,
				sizeof(server->message)),
		     NULL, 0);
}

/* ERROR with a sentence, which stays in `text`. */
static void __attribute__((format(printf, 4, 0)))
say(struct kvd_session *session, const struct kvw_envelope *request, int error, const char *format,
    va_list args, char text[KVW_MAX_TEXT_BYTES + 1])
{
	vsnprintf(text, KVW_MAX_TEXT_BYTES + 1, format, args);
	send_error(session, request, error, text);
}

void kvd_session_refuse(struct kvd_session *session, const struct kvw_envelope *request, int error,
			const char *format, ...)
{
	char text[KVW_MAX_TEXT_BYTES + 1];
	va_list args;

	va_start(args, format);
	say(session, request, error, format, args, text);
	va_end(args);
	kvd_log_peer(KVD_LOG_DEBUG, "session %" PRIu64 ": refused: %s", session->id, text);
}

void kvd_session_violate(struct kvd_session *session, const struct kvw_envelope *request, int error,
			 const char *format, ...)
{
	char text[KVW_MAX_TEXT_BYTES + 1];
	va_list args;

	va_start(args, format);
	say(session, request, error, format, args, text);
	va_end(args);
	kvd_session_end(session, true, text);
}

/* -------------------------------------------------------------- work */

/* 0: answered, or the session is no more. */
static int retry_waiting(struct kvd_session *session)
{
	const struct kvd_waiting_request *waiting = session->waiting;
	struct kvw_envelope request = {0};
	union kvw_any message;

	/* It was decoded when it came: this only finds the fields again. */
	if (kvw_decode(waiting->bytes, waiting->length, &request, &message))
		return 0;
	return kvd_request_dispatch(session, &request, &message);
}

static void serve_waiting(struct kvd_session *session)
{
	kvd_turn_part(&session->server->clock, "a request that waited");
	while (session->state != KVD_SESSION_ENDING && session->waiting &&
	       ring_passed(session, session->waiting->mark) && !retry_waiting(session)) {
		if (session->waiting)
			forget_waiting(session);
	}
}

static bool serve_engine(struct kvd_session *session, uint64_t until_us)
{
	struct kvd_attachment *attachment = session->attachment;
	bool more;

	kvd_turn_part(&session->server->clock, "steps reached");
	kvd_attachment_latch(attachment, false);
	more = !kvd_engine_progress(attachment->engine, KVD_STRETCH_BLOCKS);
	kvd_turn_part(&session->server->clock, "a ring");
	return (attachment->live && kvd_verbs_serve(session, until_us)) || more;
}

/* Its blocks are as unreachable as everybody's, and no step of it can end. */
static void end_without_device(struct kvd_session *session)
{
	const struct kvd_served_pool *pool = session->attachment->pool;

	kvd_session_violate(session, NULL, -KVP_EDEVICE, "pool '%s' has lost its device: %.400s",
			    pool->config->name, kvd_served_pool_fault(pool));
}

bool kvd_session_work(struct kvd_session *session, uint64_t until_us)
{
	bool more = false;

	if (session->state == KVD_SESSION_GREETING && kvd_now_us() - session->accepted_us > KVD_HELLO_US)
		kvd_session_violate(session, NULL, -ETIMEDOUT, "no HELLO within %u ms", KVD_HELLO_US / 1000u);
	if (session->state == KVD_SESSION_ATTACHED && session->attachment->pool->lost)
		end_without_device(session);
	if (session->state == KVD_SESSION_ATTACHED)
		more = serve_engine(session, until_us);
	if (session->waiting)
		serve_waiting(session);
	if (session->state == KVD_SESSION_ENDING) {
		kvd_turn_part(&session->server->clock, "a session's end");
		more = kvd_session_teardown(session);
	}
	return more;
}

void kvd_session_forget_requests(struct kvd_session *session)
{
	while (session->waiting)
		forget_waiting(session);
	kvd_admin_job_cancel(session);
	kvd_attach_memory_drop(session->attach_memory);
	session->attach_memory = NULL;
}

void kvd_session_free(struct kvd_session *session)
{
	if (session->peer_watch)
		kvd_loop_forget(session->server->loop, session->peer_watch);
	unlink_session(session->server, session);
	kvd_closer_add(&session->server->closer, session->peer.pidfd);
	free(session);
}
