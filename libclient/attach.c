/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Becoming an engine: ask, pull the descriptors, check each, map what they are, keep only the doorbell.
 */
#include "attach.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ipc/frame.h"

#include "attach_cuda.h"
#include "batch.h"
#include "client.h"
#include "control.h"
#include "engine.h"
#include "error.h"
#include "map.h"
#include "plan.h"
#include "pool_info.h"
#include "pump.h"
#include "stage_cuda.h"

/* Between looks while the daemon still populates a pool. */
#define READY_WAIT_MS 20

#define MAX_SEGMENTS 32u

/* The segments that an answer announced, in its order; behind their descriptors come those of a pool's pieces. */
struct announced {
	uint32_t count;
	struct kvw_item_SEGMENT segments[MAX_SEGMENTS];
	uint32_t chunk_count;
	uint32_t chunks_pulled;
	int chunk_fds[KVW_MAX_CHUNKS];
};

static bool is_known(const struct kvw_item_SEGMENT *segment)
{
	return segment->kind >= KVW_SEGMENT_DIRECTORY && segment->kind <= KVW_SEGMENT_LOCK && !segment->shard;
}

/* A pool on a device has a lock instead of a segment. */
static uint32_t expected_count(const struct kvp_client *client, uint32_t kind)
{
	bool on_device = client->pool->shard.share != 0;

	if (kind == KVW_SEGMENT_POOL)
		return !on_device;
	return kind == KVW_SEGMENT_LOCK ? on_device : 1;
}

static int check_announced(struct kvp_client *client, const struct announced *announced)
{
	uint32_t seen[KVW_SEGMENT_LOCK + 1] = {0};
	uint32_t i;

	for (i = 0; i < announced->count; i++) {
		if (!is_known(&announced->segments[i]))
			return kvc_break(client, "a segment of an unknown kind");
		seen[announced->segments[i].kind]++;
	}
	for (i = KVW_SEGMENT_DIRECTORY; i <= KVW_SEGMENT_LOCK; i++)
		if (seen[i] != expected_count(client, i))
			return kvc_break(client,
					 "an attach answer in which a segment is missing or repeated");
	return 0;
}

static uint64_t expected_bytes(const struct kvp_client *client, const struct kvc_engine *engine,
			       uint64_t kind)
{
	struct kvw_directory_layout layout;

	switch (kind) {
	case KVW_SEGMENT_DIRECTORY:
		kvw_directory_layout(client->pool->geometry.blocks, &layout);
		return layout.bytes;
	case KVW_SEGMENT_TABLES:
		return engine->tables.bytes;
	case KVW_SEGMENT_ANSWERS:
		return kvw_answers_bytes(engine->answer_count);
	case KVW_SEGMENT_CHANNEL:
		return KVW_CHANNEL_BYTES;
	case KVW_SEGMENT_TIMELINES:
		return sizeof(struct kvw_timelines);
	default:
		return client->pool->geometry.bytes;
	}
}

static const struct {
	enum kvc_map map;
	int writable;
	const char *name;
} segment_kinds[] = {
	[KVW_SEGMENT_DIRECTORY] = {KVC_MAP_DIRECTORY, 0, "directory"},
	[KVW_SEGMENT_TABLES] = {KVC_MAP_TABLES, 1, "tables"},
	[KVW_SEGMENT_CHANNEL] = {KVC_MAP_CHANNEL, 1, "channel"},
	[KVW_SEGMENT_TIMELINES] = {KVC_MAP_TIMELINES, 1, "timelines"},
	[KVW_SEGMENT_ANSWERS] = {KVC_MAP_ANSWERS, 0, "answers"},
	[KVW_SEGMENT_POOL] = {KVC_MAP_POOL, 1, "pool"},
};

/* Maps one descriptor, or keeps it when it is the doorbell or the lock. Takes *fd over when it does. */
static int take_segment(struct kvp_client *client, struct kvc_engine *engine,
			const struct kvw_item_SEGMENT *segment, int *fd)
{
	uint64_t bytes = segment->bytes;
	uint64_t expected;

	if (segment->kind == KVW_SEGMENT_DOORBELL || segment->kind == KVW_SEGMENT_LOCK) {
		*(segment->kind == KVW_SEGMENT_LOCK ? &engine->lock_fd : &engine->doorbell_fd) = *fd;
		*fd = -1;
		return 0;
	}
	expected = expected_bytes(client, engine, segment->kind);
	/* A pool in huge pages is rounded up to one; the rest is exact, up to a page. */
	if (bytes < expected || (segment->kind != KVW_SEGMENT_POOL && bytes - expected >= KVW_PAGE_BYTES))
		return kvc_fail(KVP_ELAYOUT,
				"the %s segment has %llu bytes, expected are %llu: library and daemon differ",
				segment_kinds[segment->kind].name, (unsigned long long)bytes,
				(unsigned long long)expected);
	return kvc_map_segment(*fd, bytes, segment_kinds[segment->kind].writable,
			       segment_kinds[segment->kind].name,
			       &client->maps[segment_kinds[segment->kind].map]);
}

static void close_fds(int *fds, uint32_t count)
{
	uint32_t i;

	for (i = 0; i < count; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

/* Descriptor number `index` of the answer. Takes *fd over when it keeps it. */
static int take_fd(struct kvp_client *client, struct kvc_engine *engine, struct announced *announced,
		   uint32_t index, int *fd)
{
	if (index < announced->count)
		return take_segment(client, engine, &announced->segments[index], fd);
	announced->chunk_fds[announced->chunks_pulled++] = *fd;
	*fd = -1;
	return 0;
}

/* Pulls the next descriptors and takes them. */
static int pull_some(struct kvp_client *client, struct kvc_engine *engine, struct announced *announced,
		     uint64_t deadline_ns, uint32_t *first)
{
	struct kvw_msg_FDS request = {.first = *first};
	int fds[KVW_MAX_FDS_PER_MESSAGE];
	uint32_t count = KVW_MAX_FDS_PER_MESSAGE;
	union kvw_any answer;
	uint32_t i;
	int ret = kvc_control_call(client, deadline_ns, KVW_MSG_FDS, &request, &answer, fds, &count);

	if (ret)
		return ret;
	if (answer.FDS_OK.first != *first || answer.FDS_OK.count != count || !count ||
	    count > announced->count + announced->chunk_count - *first)
		ret = kvc_break(client, "other descriptors than it announced");
	for (i = 0; !ret && i < count; i++)
		ret = take_fd(client, engine, announced, *first + i, &fds[i]);
	close_fds(fds, count);
	if (!ret)
		*first += count;
	return ret;
}

static int check_magic(uint32_t magic, uint32_t version, uint32_t expected_magic, const char *what)
{
	if (magic != expected_magic)
		return kvc_fail(KVP_ELAYOUT, "the %s segment begins with %#x, not %#x", what, magic,
				expected_magic);
	if (version != KVW_LAYOUT_VERSION)
		return kvc_fail(KVP_ELAYOUT,
				"the %s segment has layout %u, this library knows %u: update the older one",
				what, version, KVW_LAYOUT_VERSION);
	return 0;
}

static bool lies_as_expected(const struct kvw_directory_header *directory, uint32_t blocks)
{
	struct kvw_directory_layout layout;

	kvw_directory_layout(blocks, &layout);
	return directory->blocks == blocks && directory->block_words == layout.block_words &&
	       directory->buckets == layout.buckets && directory->bucket_count == layout.bucket_count;
}

static int check_headers(struct kvp_client *client)
{
	const struct kvw_directory_header *directory = client->maps[KVC_MAP_DIRECTORY].memory;
	const struct kvw_channel_header *channel = client->maps[KVC_MAP_CHANNEL].memory;
	int ret = check_magic(directory->magic, directory->layout_version, KVW_MAGIC_DIRECTORY, "directory");

	if (!ret)
		ret = check_magic(channel->magic, channel->layout_version, KVW_MAGIC_CHANNEL, "channel");
	if (ret)
		return ret;
	if (directory->incarnation != client->incarnation || channel->session != client->session ||
	    !lies_as_expected(directory, client->pool->geometry.blocks))
		return kvc_fail(KVP_ELAYOUT,
				"the segments' headers do not fit the pool: library and daemon differ");
	return 0;
}

static bool ids_are_possible(const struct kvc_pool *pool, const struct kvw_msg_ATTACH_OK *told)
{
	return told->engine && told->namespace_id && told->namespace_id <= UINT32_MAX && told->sink &&
	       told->sink < pool->geometry.blocks;
}

static bool marks_are_possible(const struct kvw_msg_ATTACH_OK *told)
{
	return told->lease_critical <= told->lease_low && told->lease_low <= told->lease_high &&
	       told->lease_high <= KVW_LEASE_ENTRIES;
}

/* The shard as it is now, with what maps it. */
static int read_memories(struct kvp_client *client, const struct kvw_msg_ATTACH_OK *told,
			 struct announced *announced)
{
	struct kvc_shard shard;
	int ret = kvc_shard_read(client, told->memories, client->pool->geometry.bytes, true, &shard);

	if (ret)
		return ret;
	if (!kvc_shard_same(&shard, &client->pool->shard))
		return kvc_break(client, "an attach answer that speaks of other memory than the pool's");
	client->pool->shard = shard;
	announced->chunk_count = shard.share == KVW_SHARE_FD ? shard.chunks : 0;
	announced->chunks_pulled = 0;
	return 0;
}

static int read_segments(struct kvp_client *client, const struct kvw_msg_ATTACH_OK *told,
			 struct announced *announced)
{
	struct kvw_list segments = told->segments;

	announced->count = 0;
	while (announced->count < MAX_SEGMENTS &&
	       kvw_list_next(&segments, KVW_ITEM_SEGMENT, &announced->segments[announced->count]))
		announced->count++;
	return check_announced(client, announced);
}

static int read_answer(struct kvp_client *client, struct kvc_engine *engine,
		       const struct kvw_msg_ATTACH_OK *told, struct announced *announced)
{
	struct kvc_lease *lease = &engine->lease;
	int ret;

	if (!ids_are_possible(client->pool, told))
		return kvc_break(client, "an attach answer with impossible ids");
	if (!marks_are_possible(told))
		return kvc_break(client, "an attach answer with impossible lease marks");
	engine->engine = told->engine;
	engine->namespace_id = (uint32_t)told->namespace_id;
	engine->sink = (int32_t)told->sink;
	lease->low = (uint32_t)told->lease_low;
	lease->critical = (uint32_t)told->lease_critical;
	lease->high = (uint32_t)told->lease_high;
	ret = read_memories(client, told, announced);
	return ret ? ret : read_segments(client, told, announced);
}

/* Every descriptor, and everything mapped that they or the answer stand for. */
static int map_all(struct kvp_client *client, struct kvc_engine *engine, struct announced *announced,
		   uint64_t deadline_ns)
{
	uint32_t pulled = 0;
	int ret = 0;

	while (!ret && pulled < announced->count + announced->chunk_count)
		ret = pull_some(client, engine, announced, deadline_ns, &pulled);
	if (!ret)
		ret = check_headers(client);
	if (!ret)
		ret = kvc_device_bind(client, announced->chunk_fds);
	/* The driver has references of its own. */
	close_fds(announced->chunk_fds, announced->chunks_pulled);
	return ret;
}

/*
 * The conversation from ATTACH to the last mapped segment. The daemon looks at the ring when it is told of
 * that.
 */
static int become_engine(struct kvp_client *client, const struct kvc_plan *plan, struct kvc_engine *engine,
			 uint64_t deadline_ns)
{
	const struct kvw_msg_MAPPED mapped = {.unused = 0};
	struct kvw_msg_ATTACH request;
	struct announced announced;
	union kvw_any answer;
	int ret;

	kvc_plan_message(plan, client->pool, &request);
	ret = kvc_control_call(client, deadline_ns, KVW_MSG_ATTACH, &request, &answer, NULL, NULL);
	/* Refused, it may be tried again; answered or not known, it may not. */
	client->attach_tried = ret == 0 || ret == -ETIMEDOUT;
	if (!ret)
		ret = read_answer(client, engine, &answer.ATTACH_OK, &announced);
	if (!ret)
		ret = map_all(client, engine, &announced, deadline_ns);
	return ret ? ret
		   : kvc_control_call(client, deadline_ns, KVW_MSG_MAPPED, &mapped, &answer, NULL, NULL);
}

/* The pool's geometry, once the pool is ready. */
static int fetch_pool(struct kvp_client *client, const struct kvc_plan *plan, uint64_t deadline_ns)
{
	struct pollfd entry = {.fd = client->control.socket_fd, .events = POLLIN};
	int ret;

	client->pool = malloc(sizeof(*client->pool));
	if (!client->pool)
		return kvc_fail_plain(ENOMEM, "a pool's geometry");
	for (;;) {
		ret = kvc_pool_fetch(client, plan->params.pool, deadline_ns, client->pool);
		if (ret || client->pool->ready)
			return ret;
		if (kvw_now_ns() >= deadline_ns)
			return kvc_fail(ETIMEDOUT, "pool '%s' is still being populated: wait longer",
					client->pool->name);
		poll(&entry, 1, READY_WAIT_MS);
	}
}

/* Undoes what `attach` has built. A client whose ATTACH was answered is of no further use but for questions. */
static void undo(struct kvp_client *client, struct kvc_engine *engine, bool forked)
{
	uint32_t i;

	/* Before the memory that it has pinned, and before the lock. */
	kvc_device_close(client, engine, forked);
	kvc_engine_destroy(engine, forked);
	for (i = 0; i < KVC_MAPS && !forked; i++)
		kvc_unmap(&client->maps[i]);
	free(client->pool);
	client->pool = NULL;
}

static int attach(struct kvp_client *client, struct kvc_plan *plan, uint64_t deadline_ns)
{
	struct kvc_engine *engine = NULL;
	int ret = fetch_pool(client, plan, deadline_ns);

	if (!ret)
		ret = kvc_plan_pool(client->pool, plan);
	if (!ret)
		ret = kvc_device_open(client, plan);
	if (!ret)
		ret = kvc_engine_create(client, plan, &engine);
	if (!ret)
		ret = become_engine(client, plan, engine, deadline_ns);
	if (ret) {
		undo(client, engine, false);
		return ret;
	}
	kvc_engine_bind(client, engine);
	client->engine = engine;
	atomic_store_explicit(&client->attached, true, memory_order_release);
	return 0;
}

int kvp_attach(struct kvp_client *client, const struct kvp_attach_params *params)
{
	struct kvc_plan *plan;
	uint64_t deadline_ns;
	int ret = kvc_enter(client);

	if (ret)
		return ret;
	plan = malloc(sizeof(*plan));
	if (!plan)
		return kvc_fail_plain(ENOMEM, "an attach");
	ret = kvc_plan_params(params, plan);
	if (ret)
		goto free_plan;
	deadline_ns = kvw_deadline_ns(plan->params.timeout_ms);
	ret = kvc_control_begin(client, deadline_ns);
	if (ret)
		goto free_plan;
	if (client->engine || client->attach_tried)
		ret = kvc_fail(KVP_ESTATE, "a client attaches once: connect another for another pool or try");
	else
		ret = attach(client, plan, deadline_ns);
	kvc_control_end(client);
	if (!ret)
		kvc_first_lease(client);
free_plan:
	free(plan);
	return ret;
}

void kvc_detach(struct kvp_client *client, bool forked)
{
	struct kvc_engine *engine = client->engine;

	if (engine)
		kvc_batch_free(engine->batch);
	kvc_stage_free(client);
	client->engine = NULL;
	undo(client, engine, forked);
}
