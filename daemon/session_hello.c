/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HELLO: version, incarnation, and the same hash of the same block on both sides. POOL: the geometry of a
 * pool.
 */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <kvpool/error.h>
#include <kvpool/version.h>

#include "log.h"
#include "session.h"

/* What goes to the log and to tables: nothing that could forge a line of either. */
static void copy_name(struct kvw_text text, char *out, size_t capacity)
{
	char *at;

	for (at = kvw_text_copy(text, out, capacity); *at; at++) {
		if (iscntrl((unsigned char)*at))
			*at = '?';
	}
}

/*
 * A hello that can't be served ends the session: nothing else could follow. 0, or -1 after it was answered.
 */
static int check_hello(struct kvd_session *session, const struct kvw_envelope *request,
		       const struct kvw_msg_HELLO *hello)
{
	const struct kvd_server *server = session->server;

	if (session->state != KVD_SESSION_GREETING)
		kvd_session_violate(session, request, -KVP_EPROTO, "a second HELLO");
	else if (hello->version_min > KVW_VERSION_MAX || hello->version_max < KVW_VERSION_MIN)
		kvd_session_violate(session, request, -KVP_EVERSION,
				    "the client speaks versions %" PRIu64 " to %" PRIu64
				    " of the protocol, the daemon %u to %u; "
				    "update the older one",
				    hello->version_min, hello->version_max, KVW_VERSION_MIN, KVW_VERSION_MAX);
	else if (hello->features)
		kvd_session_violate(session, request, -KVP_ERESERVED,
				    "HELLO field 'features' is %" PRIu64 "; it is reserved and must be 0",
				    hello->features);
	else if (hello->incarnation && hello->incarnation != server->incarnation)
		kvd_session_violate(session, request, -KVP_EINCARNATION,
				    "the daemon runs as incarnation %" PRIu64 ", not %" PRIu64
				    ": it was restarted and its blocks are new; connect again without one",
				    server->incarnation, hello->incarnation);
	else if (hello->hash_algorithm != KVW_HASH_SHA256)
		kvd_session_violate(session, request, -KVP_EHASH,
				    "hash algorithm %" PRIu64 " is unknown; the daemon has %u (SHA-256)",
				    hello->hash_algorithm, KVW_HASH_SHA256);
	else if (hello->probe.length != sizeof(server->probe) ||
		 memcmp(hello->probe.at, server->probe, sizeof(server->probe)) != 0)
		kvd_session_violate(session, request, -KVP_EHASH,
				    "the client's hash of the fixed block differs from the daemon's; client "
				    "and daemon must "
				    "be of versions that hash alike");
	else
		return 0;
	return -1;
}

int kvd_request_hello(struct kvd_session *session, const struct kvw_envelope *request,
		      const union kvw_any *message)
{
	const struct kvw_msg_HELLO *hello = &message->HELLO;
	struct kvd_server *server = session->server;
	struct kvw_msg_HELLO_OK reply = {
		.version = KVW_VERSION_MAX,
		.features = KVW_FEATURE_TIMELINES,
		.incarnation = server->incarnation,
		.session = session->id,
		.hash_algorithm = KVW_HASH_SHA256,
		.daemon_version = kvw_text_of(KVP_VERSION_STRING),
		.poll_ms = server->config->poll_ms,
		.admin = session->admin,
	};

	copy_name(hello->name, session->name, sizeof(session->name));
	if (check_hello(session, request, hello))
		return 0;
	session->state = KVD_SESSION_GREETED;
	server->greeting--;
	if (hello->version_max < KVW_VERSION_MAX)
		reply.version = hello->version_max;
	kvd_log_peer(KVD_LOG_DEBUG, "session %" PRIu64 ": process %d of uid %u, '%s'", session->id,
		     (int)session->peer.pid, session->peer.uid, session->name);
	kvd_session_reply(session, request, &reply);
	return 0;
}

static struct kvd_served_pool *find_by_name(struct kvd_server *server, const char *name)
{
	uint32_t i;

	for (i = 0; i < server->config->pool_count; i++) {
		if (!strcmp(server->pools[i].config->name, name))
			return &server->pools[i];
	}
	return NULL;
}

/* "'a', 'b'", cut when there are many. */
static const char *pool_names(const struct kvd_server *server, char *out, size_t capacity)
{
	size_t used = 0;
	uint32_t i;

	out[0] = '\0';
	for (i = 0; i < server->config->pool_count && used < capacity; i++)
		used += (size_t)snprintf(out + used, capacity - used, "%s'%s'", i ? ", " : "",
					 server->pools[i].config->name);
	return out;
}

struct kvd_served_pool *kvd_session_find_pool(struct kvd_session *session, const struct kvw_envelope *request,
					      struct kvw_text name)
{
	struct kvd_server *server = session->server;
	char wanted[KVW_MAX_NAME_BYTES + 1];
	char names[256];
	struct kvd_served_pool *pool;

	if (!name.length && server->config->pool_count == 1)
		return &server->pools[0];
	kvw_text_copy(name, wanted, sizeof(wanted));
	pool = find_by_name(server, wanted);
	if (!pool)
		kvd_session_refuse(session, request, -KVP_ENOPOOL, "there is no pool '%s'; the daemon has %s",
				   wanted, pool_names(server, names, sizeof(names)));
	return pool;
}

void kvd_session_refuse_pool(struct kvd_session *session, const struct kvw_envelope *request,
			     const struct kvd_served_pool *pool)
{
	kvd_session_refuse(session, request, -KVP_EDEVICE, "pool '%s' %s: %.400s", pool->config->name,
			   pool->lost ? "has lost its device" : "is switched off",
			   kvd_served_pool_fault(pool));
}

static struct kvw_item_PLANE plane_item(const struct kvw_plane *plane)
{
	return (struct kvw_item_PLANE){
		.layer = plane->layer,
		.role = plane->role,
		.dtype = plane->dtype,
		.layout = plane->layout,
		.heads = plane->heads,
		.dim = plane->dim,
		.group = plane->group,
		.plane_set = plane->plane_set,
		.placement = plane->placement,
		.kernel_page_tokens = plane->kernel_page_tokens,
		.base = plane->base,
		.stride = plane->stride,
		.page_bytes = plane->page_bytes,
		.token_stride = plane->token_stride,
		.head_stride = plane->head_stride,
	};
}

int kvd_request_pool(struct kvd_session *session, const struct kvw_envelope *request,
		     const union kvw_any *message)
{
	const struct kvd_served_pool *pool = kvd_session_find_pool(session, request, message->POOL.name);
	struct kvw_item_PLANE planes[KVW_MAX_PLANES];
	const struct kvw_geometry *geometry;
	struct kvd_cuda_sharing sharing;
	struct kvw_item_MEMORY memory;
	uint32_t i;

	if (!pool)
		return 0;
	if (*kvd_served_pool_fault(pool)) {
		kvd_session_refuse_pool(session, request, pool);
		return 0;
	}
	geometry = &pool->config->geometry;
	for (i = 0; i < geometry->plane_count; i++)
		planes[i] = plane_item(&geometry->planes[i]);
	const struct kvw_msg_POOL_OK reply = {
		.pool = pool->number,
		.name = kvw_text_of(pool->config->name),
		.blocks = geometry->blocks,
		.block_tokens = geometry->block_tokens,
		.pool_layout = geometry->pool_layout,
		.record_bytes = geometry->record_bytes,
		.bytes = geometry->bytes,
		.shards = 1,
		.groups = 1,
		.epoch = pool->pool->epoch,
		.data_blocks = pool->config->data_blocks,
		.memory = kvw_text_of(pool->device->backing(pool->memory)),
		.planes = kvw_list_of(planes, geometry->plane_count),
		.ready = pool->ready,
		.memories = kvw_list_of(&memory, kvd_served_pool_memory(pool, &memory, &sharing)),
	};
	kvd_session_reply(session, request, &reply);
	return 0;
}
