/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a session and what must be proved before its blocks are anybody's again.
 *
 *   end of file, violation    its engine is frozen: the process may live and still read and write
 *   process ended (pidfd)     its references drop, its blocks are quarantined; a child may still map the pool
 *   lock byte free            no descriptor and no mapping of the pool that came from this session is left:
 *                             its blocks are freed, and the byte is another session's to have
 *
 * The three are asked for at the end itself, when the pidfd is ready, and at every poll (proofs.h says when
 * less often), the last one by the worker (lock_queue.h); no timeout ever stands for one of them. What a CUDA
 * device needs beyond them, and what takes the place of the first two there, stands in device_proof.h. A client
 * that unmaps before it closes is proved gone at its end of file.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <kvpool/error.h>

#include "device_proof.h"
#include "log.h"
#include "session.h"

/* The proof was not asked for yet, or must be at once. */
#define ASK_NOW UINT64_MAX

static void close_socket(struct kvd_session *session)
{
	struct kvd_server *server = session->server;

	kvd_loop_forget(server->loop, session->socket_watch);
	kvd_closer_add(&server->closer, session->socket);
	session->socket = -1;
	session->socket_watch = NULL;
	server->connections--;
}

/*
 * Told by a word of the channel: the client looks at it before it gives a step's result away. One that never
 * said that it has mapped it has no step.
 */
static void tell_revoked(struct kvd_attachment *attachment)
{
	struct kvw_channel_header *channel = kvd_attachment_channel(attachment);

	if (!attachment->live)
		return;
	atomic_store_explicit(&channel->revoked, attachment->pool->lost ? -KVP_EDEVICE : -KVP_EREVOKED,
			      memory_order_release);
	atomic_fetch_add_explicit(&channel->completion_futex, 1, memory_order_release);
	kvw_futex_wake(&channel->completion_futex, KVW_MAX_WOKEN);
}

/* Made for a client that did not take it. One that is still being made is closed when it is told. */
static void close_pool_fd(struct kvd_attachment *attachment)
{
	if (!attachment->lock.queued && attachment->lock.fd >= 0)
		kvd_lock_queue_add(&attachment->pool->locks, &attachment->lock, KVD_LOCK_CLOSE);
}

static void freeze(struct kvd_session *session)
{
	struct kvd_server *server = session->server;
	struct kvd_attachment *attachment = session->attachment;

	kvd_verbs_abort(session);
	kvd_attachment_close_doorbell(server, attachment);
	tell_revoked(attachment);
	kvd_attachment_latch(attachment, true);
	kvd_engine_freeze(attachment->engine);
	close_pool_fd(attachment);
	attachment->pool->engines--;
	server->attached--;
	server->ending++;
}

void kvd_session_end(struct kvd_session *session, bool revoked, const char *cause)
{
	struct kvd_server *server = session->server;
	enum kvd_session_state state = session->state;

	if (state == KVD_SESSION_ENDING)
		return;
	session->state = KVD_SESSION_ENDING;
	session->revoked = revoked;
	session->ended_us = kvd_now_us();
	session->proof_round = ASK_NOW;
	server->busy = true;
	if (state == KVD_SESSION_GREETING)
		server->greeting--;
	close_socket(session);
	kvd_session_forget_requests(session);
	if (state == KVD_SESSION_ATTACHED)
		freeze(session);
	kvd_log_peer(revoked                         ? KVD_LOG_WARNING
		     : state == KVD_SESSION_ATTACHED ? KVD_LOG_INFO
						     : KVD_LOG_DEBUG,
		     "session %" PRIu64 ": process %d of uid %u, '%s', %s: %s", session->id,
		     (int)session->peer.pid, session->peer.uid, session->name,
		     revoked ? "is revoked" : "has ended", cause);
}

void kvd_session_peer_ended(struct kvd_session *session)
{
	/* A child may keep the socket: no end of file comes then, and none is needed. */
	kvd_session_end(session, false, "its process has ended");
	session->proof_round = ASK_NOW;
	session->server->busy = true;
}

/* Its engine's blocks wait for the proof, or its lock byte for those whose it still is. */
static bool proof_awaited(const struct kvd_session *session)
{
	const struct kvd_attachment *attachment = session->attachment;

	return session->state == KVD_SESSION_ENDING && attachment &&
	       (attachment->engine->state != KVD_ENGINE_GONE || !attachment->lock_free);
}

void kvd_session_next_proofs(struct kvd_server *server)
{
	struct kvd_session *session;
	uint32_t i;

	for (i = 0; i < server->config->pool_count; i++)
		server->pools[i].locks.proofs.due = false;
	for (session = server->first; session; session = session->next) {
		struct kvd_attachment *attachment = session->attachment;

		if (proof_awaited(session) &&
		    (attachment->lock.queued || session->proof_round != attachment->pool->locks.proofs.round))
			attachment->pool->locks.proofs.due = true;
	}
	for (i = 0; i < server->config->pool_count; i++)
		server->pools[i].locks.proofs.round += !server->pools[i].locks.proofs.due;
}

/*
 * At its pidfd its references drop. That waits for no answer of the worker: locks that somebody set make those
 * late.
 */
static void look_for_death(struct kvd_session *session)
{
	struct kvd_attachment *attachment = session->attachment;
	struct kvd_engine *engine = attachment->engine;

	if (engine->state != KVD_ENGINE_FROZEN || !kvd_peer_ended(&session->peer))
		return;
	session->died = kvd_engine_waiting(engine) > 0 || engine->hold_count > 0;
	kvd_attachment_latch(attachment, true);
	kvd_engine_die(engine);
	attachment->died_us = kvd_now_us();
}

/* Whatever was launched has ended: what it has completed counts, and its blocks wait for nothing else. */
static void look_for_word(struct kvd_session *session)
{
	struct kvd_attachment *attachment = session->attachment;

	if (attachment->engine->state == KVD_ENGINE_GONE || !kvd_device_drained(session))
		return;
	kvd_attachment_latch(attachment, true);
	kvd_engine_prove_gone(attachment->engine);
	kvd_importers_remove(&session->server->importers, attachment->importer);
	attachment->importer = -1;
}

static void ask_for_proof(struct kvd_session *session)
{
	struct kvd_attachment *attachment = session->attachment;

	session->proof_round = attachment->pool->locks.proofs.round;
	kvd_lock_queue_add(&attachment->pool->locks, &attachment->lock, KVD_LOCK_PROOF);
}

/* Everything that has become known since the last look. */
static void look_for_proof(struct kvd_session *session)
{
	const struct kvd_attachment *attachment = session->attachment;

	if (!proof_awaited(session) || session->proof_round == attachment->pool->locks.proofs.round)
		return;
	look_for_death(session);
	look_for_word(session);
	if (!proof_awaited(session))
		return;
	if (!attachment->lock.queued)
		ask_for_proof(session);
}

static void found_free(struct kvd_session *session)
{
	struct kvd_attachment *attachment = session->attachment;

	attachment->lock_free = true;
	if (attachment->engine->state != KVD_ENGINE_GONE && kvd_device_proves_gone(session, kvd_now_us()))
		kvd_engine_prove_gone(attachment->engine);
}

/*
 * An attachment is not destroyed while its job is queued, but by the daemon's end. An answer that came too early
 * is no harm: what is gone stays gone, and what was not will be asked about again.
 */
void kvd_session_lock_told(struct kvd_lock_job *job)
{
	struct kvd_session *session = job->arg;

	if (session->state != KVD_SESSION_ENDING)
		return;
	if (job->kind == KVD_LOCK_PROOF && job->result == 1)
		found_free(session);
	else if (job->kind == KVD_LOCK_MAKE)
		close_pool_fd(session->attachment);
}

static void count_end(const struct kvd_session *session)
{
	kvd_pool_count(session->attachment->pool->pool,
		       session->revoked ? KVW_COUNTER_sessions_revoked
		       : session->died  ? KVW_COUNTER_sessions_died
					: KVW_COUNTER_sessions_ended,
		       1);
}

static void become_gone(struct kvd_session *session)
{
	session->gone = true;
	session->server->dead = true;
}

static void finish(struct kvd_session *session)
{
	kvd_log_peer(KVD_LOG_DEBUG, "session %" PRIu64 ": nothing is left of it after %" PRIu64 " us",
		     session->id, kvd_now_us() - session->ended_us);
	count_end(session);
	kvd_attachment_destroy(session);
	session->server->ending--;
	become_gone(session);
}

/* What its process, which still runs, completes is everybody's. */
static bool progress_frozen(struct kvd_attachment *attachment)
{
	if (attachment->engine->state != KVD_ENGINE_FROZEN)
		return false;
	kvd_attachment_latch(attachment, false);
	return !kvd_engine_progress(attachment->engine, KVD_STRETCH_BLOCKS);
}

/*
 * A child may have the descriptors of a session whose word proved it gone: the next one with that byte could not be proved gone before the
 * child ends. What the queue of the locks has is the attachment's; when it is told there is another turn.
 */
static bool lock_byte_is_back(const struct kvd_attachment *attachment)
{
	return attachment->lock_free && !attachment->lock.queued;
}

bool kvd_session_teardown(struct kvd_session *session)
{
	struct kvd_engine *engine;
	bool more;

	if (session->gone)
		return false;
	if (!session->attachment) {
		become_gone(session);
		return false;
	}
	engine = session->attachment->engine;
	look_for_proof(session);
	more = progress_frozen(session->attachment);
	more |= !kvd_engine_teardown_step(engine, KVD_STRETCH_BLOCKS);
	if (engine->state >= KVD_ENGINE_DEAD)
		kvd_attachment_poison(session->attachment);
	if (more)
		return true;
	if (engine->state == KVD_ENGINE_GONE && kvd_engine_empty(engine) &&
	    lock_byte_is_back(session->attachment))
		finish(session);
	return false;
}

/* The worker of the locks has stopped: a queue would keep the job beyond its attachment. */
static void close_pool_fd_now(struct kvd_attachment *attachment)
{
	if (attachment->lock.fd >= 0)
		close(attachment->lock.fd);
	attachment->lock.fd = -1;
}

void kvd_session_abandon(struct kvd_session *session)
{
	if (session->attachment)
		close_pool_fd_now(session->attachment);
	kvd_session_end(session, true, "the daemon ends");
	if (session->attachment) {
		struct kvd_engine *engine = session->attachment->engine;

		kvd_engine_prove_gone(engine);
		while (!kvd_engine_teardown_step(engine, UINT32_MAX))
			;
		/* Nobody would do it later. Its readers know that their own sessions have ended too. */
		kvd_attachment_poison(session->attachment);
		kvd_attachment_destroy(session);
	}
	kvd_session_free(session);
}

void kvd_session_waits_for(const struct kvd_session *session, char *out, size_t capacity)
{
	const struct kvd_attachment *attachment = session->attachment;

	out[0] = '\0';
	if (session->state != KVD_SESSION_ENDING || !attachment)
		return;
	if (attachment->engine->state == KVD_ENGINE_FROZEN)
		snprintf(out, capacity, "process %d to end, or to unmap pool '%s'", (int)session->peer.pid,
			 attachment->pool->config->name);
	else if (attachment->engine->state == KVD_ENGINE_DEAD ||
		 (kvd_engine_empty(attachment->engine) && !attachment->lock_free))
		kvd_device_waits_for(session, out, capacity);
	else
		snprintf(out, capacity, "its blocks to be freed");
}
