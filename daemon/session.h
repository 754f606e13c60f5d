/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection of one process, from accept until nothing of it is left.
 *
 *   GREETING --hello--> GREETED --attach--> ATTACHED
 *   any --end of file, violation, death--> ENDING --engine proved gone and empty, or none--> freed
 *
 * A request is answered at once, or stays at the head of the session's queue until it can be: an attach
 * until its pool is populated and its memory made, a check until it is done, any request of an attached
 * session until the ring is consumed up to where it was when the request came. The others wait behind it, in
 * order; each is answered exactly once.
 *
 * A session that ends in the middle of something stays in the server's list, ENDING, until the sweep at the
 * end of the turn.
 */
#ifndef KVPOOL_DAEMON_SESSION_H
#define KVPOOL_DAEMON_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ipc/wire.h"

#include "attachment.h"
#include "peer.h"
#include "server.h"

/* Unanswered requests of one session, and the bytes of those that wait. */
#define KVD_MAX_WAITING_REQUESTS 4u
#define KVD_MAX_WAITING_BYTES KVW_MAX_MESSAGE_BYTES

enum kvd_session_state {
	KVD_SESSION_GREETING,
	KVD_SESSION_GREETED,
	KVD_SESSION_ATTACHED,
	KVD_SESSION_ENDING
};

/* A request that could not be answered at once. */
struct kvd_waiting_request {
	struct kvd_waiting_request *next;
	uint32_t mark; /* ring index to be consumed first */
	uint32_t length;
	uint8_t bytes[];
};

struct kvd_admin_job;

struct kvd_session {
	struct kvd_server *server;
	struct kvd_session *next;
	struct kvd_session *previous;
	uint64_t id;
	enum kvd_session_state state;
	char name[KVW_MAX_NAME_BYTES + 1]; /* its own word, printable */
	struct kvd_peer peer;
	bool admin;
	int socket; /* -1: ended */
	struct kvd_watch *socket_watch;
	struct kvd_watch *peer_watch;
	uint64_t accepted_us;
	struct kvd_waiting_request *waiting;
	uint32_t waiting_count;
	uint32_t waiting_bytes;
	bool fds_sent_unread;                    /* descriptors were sent and not yet known to be read */
	struct kvd_admin_job *admin_job;         /* what its waiting request asked for */
	struct kvd_attach_memory *attach_memory; /* being made for its waiting attach */
	struct kvd_attachment *attachment;       /* ATTACHED, and ENDING until its engine is gone */
	/* ENDING */
	uint64_t ended_us;
	bool revoked;         /* ended by the daemon */
	bool died;            /* its process was gone before its blocks were */
	bool gone;            /* to be freed by the sweep */
	uint64_t proof_round; /* of its pool, when it last had the proof asked for */
};

/* A new connection: counts it, or says why not and closes it. */
void kvd_session_accept(struct kvd_server *server, int socket);
/*
 * Everything that waits for time: greetings, waiting requests, ring, timelines, teardown. True when more is
 * ready now.
 */
bool kvd_session_work(struct kvd_session *session, uint64_t until_us);
/* Drops what waits for an answer: the session has ended. */
void kvd_session_forget_requests(struct kvd_session *session);
/* Frees a session whose `gone` is set. */
void kvd_session_free(struct kvd_session *session);

/*
 * The ring index up to which records must be consumed before a request that comes now is answered. Attached
 * sessions only.
 */
int kvd_session_mark(struct kvd_session *session, uint32_t *out_mark);

/* Answers: a message of the request's type + 1 .. */
void kvd_session_reply(struct kvd_session *session, const struct kvw_envelope *request, const void *message);
/* .. the same, with descriptors beside it; the caller keeps them .. */
void kvd_session_reply_fds(struct kvd_session *session, const struct kvw_envelope *request,
			   const void *message, const int *fds, uint32_t fd_count);
/* .. or ERROR with a negative `error` and a sentence. The session goes on. */
void kvd_session_refuse(struct kvd_session *session, const struct kvw_envelope *request, int error,
			const char *format, ...) __attribute__((format(printf, 4, 5)));
/*
 * ERROR, when there is a request to answer (NULL: sequence 0), and the end of the session with this reason
 * in the log.
 */
void kvd_session_violate(struct kvd_session *session, const struct kvw_envelope *request, int error,
			 const char *format, ...) __attribute__((format(printf, 4, 5)));

/*
 * Answers one request: 0 done (also when refused or the session ended), 1 when it must wait. Called again
 * with the same message until it is done.
 */
int kvd_request_dispatch(struct kvd_session *session, const struct kvw_envelope *request,
			 const union kvw_any *message);

/* The requests of wire.def, by file: session_hello.c, session_attach.c, session_fds.c, session_timelines.c, admin*.c. */
int kvd_request_hello(struct kvd_session *session, const struct kvw_envelope *request,
		      const union kvw_any *message);
int kvd_request_pool(struct kvd_session *session, const struct kvw_envelope *request,
		     const union kvw_any *message);
int kvd_request_attach(struct kvd_session *session, const struct kvw_envelope *request,
		       const union kvw_any *message);
int kvd_request_fds(struct kvd_session *session, const struct kvw_envelope *request,
		    const union kvw_any *message);
int kvd_request_mapped(struct kvd_session *session, const struct kvw_envelope *request,
		       const union kvw_any *message);
int kvd_request_drain(struct kvd_session *session, const struct kvw_envelope *request,
		      const union kvw_any *message);
int kvd_request_timelines(struct kvd_session *session, const struct kvw_envelope *request,
			  const union kvw_any *message);

/* The pool of this name, "" being the only one; NULL after the request was refused. */
struct kvd_served_pool *kvd_session_find_pool(struct kvd_session *session, const struct kvw_envelope *request,
					      struct kvw_text name);

/* ERROR of a pool whose device can't be had or is lost. */
void kvd_session_refuse_pool(struct kvd_session *session, const struct kvw_envelope *request,
			     const struct kvd_served_pool *pool);

/* -------- teardown.c: the end of a session */

/* Its socket is closed (end of file), or is being closed by us (`revoked`). `cause` goes to the log. */
void kvd_session_end(struct kvd_session *session, bool revoked, const char *cause);
/* The process has ended: with or without end of file. */
void kvd_session_peer_ended(struct kvd_session *session);
/* What the worker did for a session's lock; kvd_lock_job.arg is the session. */
void kvd_session_lock_told(struct kvd_lock_job *job);
/* At a poll: the pools whose ending sessions have all asked for their proofs begin another round. */
void kvd_session_next_proofs(struct kvd_server *server);
/* One stretch of the way to the end: true when more can be done now. */
bool kvd_session_teardown(struct kvd_session *session);
/*
 * At the daemon's end: frees the session, whatever its state. Its engine is not awaited: the pool's memory
 * goes too.
 */
void kvd_session_abandon(struct kvd_session *session);
/* What its blocks wait for, one phrase, "" when nothing. */
void kvd_session_waits_for(const struct kvd_session *session, char *out, size_t capacity);

#endif
