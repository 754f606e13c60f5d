/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ATTACH: a session becomes an engine of a pool. Planned (validated) from the message alone; waits for the
 * pool to be populated and for the worker to make the engine's memory; then everything is owned and
 * registered before the client is told of it.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <kvpool/error.h>

#include "attach_plan.h"
#include "log.h"
#include "session.h"

/* -------------------------------------------------------------- parts of an attachment */

static void on_doorbell(void *arg)
{
	/* Nothing else: the work of this turn looks at every ring. */
	kvd_turn_part(&((struct kvd_session *)arg)->server->clock, "a doorbell");
}

static int open_doorbell(struct kvd_session *session, struct kvd_attachment *attachment)
{
	int ret;

	attachment->doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (attachment->doorbell < 0)
		return -errno;
	ret = kvd_loop_watch(session->server->loop, attachment->doorbell, on_doorbell, session,
			     &attachment->doorbell_watch);
	if (ret) {
		close(attachment->doorbell);
		attachment->doorbell = -1;
	}
	return ret;
}

void kvd_attachment_close_doorbell(struct kvd_server *server, struct kvd_attachment *attachment)
{
	if (attachment->doorbell < 0)
		return;
	kvd_loop_forget(server->loop, attachment->doorbell_watch);
	kvd_closer_add(&server->closer, attachment->doorbell);
	attachment->doorbell = -1;
}

static void open_channel(struct kvd_session *session, struct kvd_attachment *attachment)
{
	struct kvw_channel_header *channel = attachment->memory->channel.memory;
	uint8_t *base = attachment->memory->channel.memory;

	channel->magic = KVW_MAGIC_CHANNEL;
	channel->layout_version = KVW_LAYOUT_VERSION;
	channel->session = session->id;
	kvw_ring_init(&attachment->requests, &channel->requests, base + KVW_CHANNEL_REQUESTS);
	kvw_ring_init(&attachment->completions, &channel->completions, base + KVW_CHANNEL_COMPLETIONS);
}

static int open_engine(struct kvd_session *session, const struct kvd_attach_plan *plan,
		       struct kvd_attachment *attachment)
{
	const struct kvd_engine_params params = {
		.session = session->id,
		.engine = session->server->last_engine_id + 1,
		.namespace_id = attachment->namespace_id,
		.hash_bytes = plan->tables.hash_bytes,
		.max_holds = plan->max_holds,
		.max_hold_blocks = plan->tables.row_blocks,
		.tenant = attachment->tenant,
	};
	int ret = kvd_engine_create(attachment->pool->pool, &params, &attachment->engine);

	if (!ret)
		session->server->last_engine_id++;
	return ret;
}

static void register_session(const struct kvd_session *session, const struct kvd_attachment *attachment)
{
	const struct kvw_session_record record = {
		.session = session->id,
		.engine = attachment->engine->engine,
		.uid = session->peer.uid,
		.pid = (uint32_t)session->peer.pid,
		.lock_byte = attachment->lock_byte,
	};

	kvd_session_record_write(attachment->pool, attachment->lock_byte, &record);
}

static void register_importer(const struct kvd_session *session, struct kvd_attachment *attachment)
{
	const struct kvd_served_pool *pool = attachment->pool;

	if (kvd_pool_config_is_cuda(pool->config))
		attachment->importer =
			kvd_importers_add(&session->server->importers, session->peer.pid,
					  pool->device->bytes(pool->memory), pool->config->name);
}

/* -------------------------------------------------------------- attaching */

/* Takes the session's memory over on success. On failure *out_what says what could not be had. */
static int create(struct kvd_session *session, const struct kvd_attach_plan *plan,
		  struct kvd_attachment **out, const char **out_what)
{
	struct kvd_server *server = session->server;
	struct kvd_attachment *attachment = calloc(1, sizeof(*attachment));
	int ret;

	*out_what = "memory of the daemon";
	if (!attachment)
		return -ENOMEM;
	attachment->pool = plan->pool;
	attachment->importer = KVD_IMPORTER_NONE;
	attachment->lease = plan->lease;
	attachment->memory = session->attach_memory;
	attachment->lock = (struct kvd_lock_job){.fd = -1, .told = kvd_session_lock_told, .arg = session};
	*out_what = "an engine's place: engines that wait for their end count too; raise the pool's "
		    "'max_engines'";
	ret = kvd_lock_byte_take(plan->pool, &attachment->lock_byte);
	if (ret)
		goto err_free;
	attachment->lock.lock_byte = attachment->lock_byte;
	*out_what = "a namespace: too many differing identities are attached";
	ret = kvd_namespace_acquire(&server->namespaces, &plan->identity, &attachment->namespace_id);
	if (ret)
		goto err_lock_byte;
	*out_what = "memory for its tenant";
	ret = kvd_tenant_acquire(&plan->pool->tenants, session->peer.uid, &attachment->tenant);
	if (ret)
		goto err_namespace;
	*out_what = "a doorbell: the daemon's limit of descriptors (LimitNOFILE) may be too low";
	ret = open_doorbell(session, attachment);
	if (ret)
		goto err_tenant;
	*out_what = "its books: memory, or a sink block of the pool (one each of 'max_engines')";
	ret = open_engine(session, plan, attachment);
	if (ret)
		goto err_doorbell;
	register_session(session, attachment);
	register_importer(session, attachment);
	open_channel(session, attachment);
	*out = attachment;
	return 0;

err_doorbell:
	kvd_attachment_close_doorbell(server, attachment);
err_tenant:
	kvd_tenant_release(&plan->pool->tenants, attachment->tenant);
err_namespace:
	kvd_namespace_release(&server->namespaces, attachment->namespace_id);
err_lock_byte:
	kvd_lock_byte_give(plan->pool, attachment->lock_byte);
err_free:
	free(attachment);
	return ret;
}

void kvd_attachment_destroy(struct kvd_session *session)
{
	struct kvd_attachment *attachment = session->attachment;
	struct kvd_served_pool *pool = attachment->pool;

	kvd_engine_destroy(attachment->engine);
	kvd_attachment_close_doorbell(session->server, attachment);
	kvd_tenant_release(&pool->tenants, attachment->tenant);
	kvd_namespace_release(&session->server->namespaces, attachment->namespace_id);
	kvd_session_record_write(pool, attachment->lock_byte, NULL);
	kvd_importers_remove(&session->server->importers, attachment->importer);
	kvd_lock_byte_give(pool, attachment->lock_byte);
	kvd_attach_memory_drop(attachment->memory);
	free(attachment);
	session->attachment = NULL;
}

static void log_attached(const struct kvd_session *session)
{
	const struct kvd_attachment *attachment = session->attachment;

	kvd_log_peer(KVD_LOG_INFO,
		     "session %" PRIu64 ": process %d of uid %u, '%s', is engine %" PRIu64
		     " of pool '%s', namespace %" PRIu32,
		     session->id, (int)session->peer.pid, session->peer.uid, session->name,
		     attachment->engine->engine, attachment->pool->config->name, attachment->namespace_id);
}

static void become_attached(struct kvd_session *session, struct kvd_attachment *attachment)
{
	session->attachment = attachment;
	session->attach_memory = NULL;
	session->state = KVD_SESSION_ATTACHED;
	session->server->attached++;
	attachment->pool->engines++;
	log_attached(session);
}

static void answer(struct kvd_session *session, const struct kvw_envelope *request,
		   const struct kvd_attachment *attachment)
{
	const struct kvd_served_pool *pool = attachment->pool;
	struct kvd_cuda_sharing sharing;
	struct kvw_item_MEMORY memory;
	bool cuda = kvd_served_pool_memory(pool, &memory, &sharing);
	const struct kvw_item_SEGMENT segments[KVD_ATTACH_SEGMENTS] = {
		{.kind = KVW_SEGMENT_DIRECTORY, .bytes = pool->directory.bytes},
		{.kind = KVW_SEGMENT_TABLES, .bytes = attachment->memory->tables.bytes},
		{.kind = KVW_SEGMENT_CHANNEL, .bytes = attachment->memory->channel.bytes},
		{.kind = KVW_SEGMENT_TIMELINES, .bytes = attachment->memory->timelines.bytes},
		{.kind = KVW_SEGMENT_DOORBELL},
		{.kind = KVW_SEGMENT_ANSWERS, .bytes = attachment->memory->answers.bytes},
		cuda ? (struct kvw_item_SEGMENT){.kind = KVW_SEGMENT_LOCK}
		     : (struct kvw_item_SEGMENT){.kind = KVW_SEGMENT_POOL,
						 .bytes = pool->device->bytes(pool->memory)},
	};
	const struct kvw_msg_ATTACH_OK reply = {
		.engine = attachment->engine->engine,
		.namespace_id = attachment->namespace_id,
		.epoch = pool->pool->epoch,
		.lease_low = attachment->lease.low,
		.lease_critical = attachment->lease.critical,
		.lease_high = attachment->lease.high,
		.sink = (uint64_t)attachment->engine->sink,
		.sink_generation = pool->pool->block[attachment->engine->sink].record.generation,
		.quota_blocks = attachment->tenant->quota_blocks,
		.tables_bytes = attachment->memory->tables.bytes,
		.directory_bytes = pool->directory.bytes,
		.segments = kvw_list_of(segments, KVD_ATTACH_SEGMENTS),
		.memories = kvw_list_of(&memory, cuda),
	};

	if (cuda && sharing.share == KVD_SHARE_IPC)
		memory.handle = kvw_bytes_of(sharing.handle, sizeof(sharing.handle));
	kvd_session_reply(session, request, &reply);
}

static void finish(struct kvd_session *session, const struct kvw_envelope *request,
		   const struct kvd_attach_plan *plan)
{
	struct kvd_attachment *attachment;
	const char *what = "memory for its tables, answers and rings";
	int ret = session->attach_memory->result;

	if (!ret)
		ret = create(session, plan, &attachment, &what);
	if (ret) {
		kvd_attach_memory_drop(session->attach_memory);
		session->attach_memory = NULL;
		kvd_session_refuse(session, request, ret, "pool '%s' has no room for another engine: %s (%s)",
				   plan->pool->config->name, what, ret <= -4096 ? "limit" : strerror(-ret));
		return;
	}
	become_attached(session, attachment);
	answer(session, request, attachment);
}

/* 1: the worker is at it (or its queue is full: next turn); 0: refused. */
static int make_memory(struct kvd_session *session, const struct kvw_envelope *request,
		       const struct kvd_attach_plan *plan)
{
	int ret = kvd_attach_memory_make(session->server, plan, &session->attach_memory);

	if (!ret || ret == -EAGAIN)
		return 1;
	kvd_session_refuse(session, request, ret, "no memory for an engine's %" PRIu64 " bytes of tables: %s",
			   plan->layout.bytes, strerror(-ret));
	return 0;
}

/* A device's work ends some time after its process, and nothing else tells of that. */
static void refuse_unseen(struct kvd_session *session, const struct kvw_envelope *request)
{
	kvd_session_refuse(
		session, request, -KVP_EDENIED,
		"the daemon can't see when this process ends, which a pool on a CUDA device needs: run "
		"both in one PID namespace, or the daemon on Linux 6.5 or later");
}

int kvd_request_attach(struct kvd_session *session, const struct kvw_envelope *request,
		       const union kvw_any *message)
{
	struct kvd_attach_plan plan;

	if (session->state == KVD_SESSION_ATTACHED) {
		kvd_session_refuse(
			session, request, -KVP_ESTATE,
			"the session is an engine of pool '%s' already; connect again for another one",
			session->attachment->pool->config->name);
		return 0;
	}
	if (kvd_attach_plan(session, request, &message->ATTACH, &plan))
		return 0;
	if (*kvd_served_pool_fault(plan.pool)) {
		kvd_attach_memory_drop(session->attach_memory);
		session->attach_memory = NULL;
		kvd_session_refuse_pool(session, request, plan.pool);
		return 0;
	}
	if (!plan.pool->ready)
		return 1;
	if (kvd_pool_config_is_cuda(plan.pool->config) && session->peer.pidfd < 0) {
		refuse_unseen(session, request);
		return 0;
	}
	if (!session->attach_memory)
		return make_memory(session, request, &plan);
	if (!session->attach_memory->done)
		return 1;
	finish(session, request, &plan);
	return 0;
}
