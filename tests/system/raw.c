/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages and attaching of the raw client.
 */
#include "raw.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <kvpool/error.h>

#include "ipc/frame.h"
#include "ipc/hash.h"

#define ANSWER_MS 20000u

struct kvt_raw *kvt_raw_connect(const struct kvt_daemon *daemon)
{
	struct kvt_raw *raw = calloc(1, sizeof(*raw));
	int i;

	assert_non_null(raw);
	raw->fd = kvw_connect(daemon->socket);
	assert_true(raw->fd >= 0);
	for (i = 0; i < KVT_SEGMENTS; i++)
		raw->fds[i] = -1;
	return raw;
}

struct kvw_msg_HELLO kvt_hello_message(void)
{
	static uint8_t probe[KVW_SHA256_BYTES];
	struct kvw_hasher *hasher;

	assert_int_equal(kvw_hasher_create(&hasher), 0);
	assert_int_equal(kvw_hash_probe(hasher, probe), 0);
	kvw_hasher_destroy(hasher);
	return (struct kvw_msg_HELLO){
		.version_min = KVW_VERSION_MIN,
		.version_max = KVW_VERSION_MAX,
		.hash_algorithm = KVW_HASH_SHA256,
		.probe = kvw_bytes_of(probe, sizeof(probe)),
		.name = kvw_text_of("raw"),
	};
}

void kvt_raw_send(struct kvt_raw *raw, const void *bytes, size_t length)
{
	assert_int_equal(kvw_send(raw->fd, bytes, length, NULL, 0), 0);
}

void kvt_raw_send_message(struct kvt_raw *raw, uint32_t type, const void *message)
{
	uint8_t bytes[KVW_MAX_MESSAGE_BYTES];
	int length = kvw_encode(type, ++raw->sequence, message, bytes, sizeof(bytes));

	assert_true(length > 0);
	kvt_raw_send(raw, bytes, (size_t)length);
}

uint32_t kvt_raw_receive(struct kvt_raw *raw)
{
	struct kvw_envelope envelope;
	uint32_t fd_count = KVW_MAX_FDS_PER_MESSAGE;
	int fds[KVW_MAX_FDS_PER_MESSAGE];
	uint32_t first;
	uint32_t i;
	int got = kvw_receive(raw->fd, kvw_deadline_ns(ANSWER_MS), raw->received, sizeof(raw->received), fds,
			      &fd_count);

	assert_true(got >= 0);
	if (!got)
		return 0;
	assert_int_equal(kvw_decode(raw->received, (size_t)got, &envelope, &raw->answer), 0);
	if (envelope.type == KVW_MSG_ERROR)
		kvw_text_copy(raw->answer.ERROR.text, raw->error, sizeof(raw->error));
	if (envelope.type == KVW_MSG_TIMELINES_OK) {
		assert_int_equal(fd_count, 1);
		raw->lent_fd = fds[0];
		return envelope.type;
	}
	first = envelope.type == KVW_MSG_FDS_OK ? (uint32_t)raw->answer.FDS_OK.first : 0;
	for (i = 0; i < fd_count; i++) {
		assert_true(first + i < KVT_SEGMENTS + raw->device.chunks);
		if (first + i < KVT_SEGMENTS)
			raw->fds[first + i] = fds[i];
		else
			raw->device.fds[first + i - KVT_SEGMENTS] = fds[i];
	}
	return envelope.type;
}

int kvt_raw_ask(struct kvt_raw *raw, uint32_t type, const void *message)
{
	uint32_t answer;

	kvt_raw_send_message(raw, type, message);
	answer = kvt_raw_receive(raw);
	if (!answer)
		return -KVP_EDAEMON;
	if (answer == KVW_MSG_ERROR)
		return -(int)raw->answer.ERROR.error;
	assert_int_equal(answer, type + 1);
	return 0;
}

struct kvt_raw *kvt_raw_hello(const struct kvt_daemon *daemon)
{
	struct kvt_raw *raw = kvt_raw_connect(daemon);
	const struct kvw_msg_HELLO hello = kvt_hello_message();

	assert_int_equal(kvt_raw_ask(raw, KVW_MSG_HELLO, &hello), 0);
	raw->session = raw->answer.HELLO_OK.session;
	raw->incarnation = raw->answer.HELLO_OK.incarnation;
	return raw;
}

void kvt_raw_must_be_revoked(struct kvt_raw *raw, int error)
{
	assert_int_equal(kvt_raw_receive(raw), KVW_MSG_ERROR);
	assert_int_equal(-(int)raw->answer.ERROR.error, error);
	assert_int_equal(kvt_raw_receive(raw), 0);
}

/* -------------------------------------------------------------- attaching */

struct kvw_msg_ATTACH kvt_attach_message(void)
{
	return (struct kvw_msg_ATTACH){
		.role = 1,
		.max_seqs = 8,
		.rows = 8,
		.row_blocks = 16,
		.hash_bytes = 32,
		.slots = 2,
		.slot_bytes = KVW_PAGE_BYTES,
		.step_tokens = 8,
		.answers = KVT_LEASED + 8 * 16,
	};
}

static void take_memory(struct kvt_raw *raw)
{
	struct kvw_list memories = raw->answer.ATTACH_OK.memories;
	struct kvw_item_MEMORY memory;

	if (!kvw_list_next(&memories, KVW_ITEM_MEMORY, &memory))
		return;
	raw->device.share = (uint32_t)memory.share;
	raw->device.chunks = (uint32_t)memory.chunks;
	raw->device.bytes = memory.bytes;
	raw->device.offset = memory.offset;
	raw->device.chunk_bytes = memory.chunk_bytes;
	assert_true(raw->device.chunks <= KVW_MAX_CHUNKS);
	assert_int_equal(memory.uuid.length, sizeof(raw->device.uuid));
	memcpy(raw->device.uuid, memory.uuid.at, sizeof(raw->device.uuid));
	assert_int_equal(memory.handle.length,
			 memory.share == KVW_SHARE_IPC ? sizeof(raw->device.handle) : 0);
	if (memory.handle.length)
		memcpy(raw->device.handle, memory.handle.at, sizeof(raw->device.handle));
	assert_int_equal(kvw_list_next(&memories, KVW_ITEM_MEMORY, &memory), 0);
}

void kvt_raw_take_attach(struct kvt_raw *raw, const struct kvw_msg_ATTACH *attach)
{
	struct kvw_list segments = raw->answer.ATTACH_OK.segments;
	struct kvw_item_SEGMENT segment;
	int n = 0;

	take_memory(raw);
	raw->engine = raw->answer.ATTACH_OK.engine;
	raw->namespace_id = (uint32_t)raw->answer.ATTACH_OK.namespace_id;
	raw->sink = (int32_t)raw->answer.ATTACH_OK.sink;
	raw->params = (struct kvw_tables_params){
		.rows = (uint32_t)attach->rows,
		.row_blocks = (uint32_t)attach->row_blocks,
		.block_tokens = 16,
		.hash_bytes = (uint32_t)attach->hash_bytes,
		.slots = (uint32_t)attach->slots,
		.slot_bytes = attach->slot_bytes,
	};
	assert_int_equal(kvw_tables_layout(&raw->params, &raw->layout), 0);
	raw->answer_count = (uint32_t)attach->answers;
	while (kvw_list_next(&segments, KVW_ITEM_SEGMENT, &segment)) {
		assert_true(n < KVT_SEGMENTS);
		raw->bytes[n++] = segment.bytes;
	}
	assert_int_equal(n, KVT_SEGMENTS);
	assert_int_equal(segment.kind, raw->device.share ? KVW_SEGMENT_LOCK : KVW_SEGMENT_POOL);
}

int kvt_raw_attach(struct kvt_raw *raw, const struct kvw_msg_ATTACH *attach)
{
	int ret = kvt_raw_ask(raw, KVW_MSG_ATTACH, attach);

	if (!ret)
		kvt_raw_take_attach(raw, attach);
	return ret;
}

static void map_segment(struct kvt_raw *raw, enum kvt_segment segment, int protection)
{
	raw->memory[segment] = mmap(NULL, raw->bytes[segment], protection, MAP_SHARED, raw->fds[segment], 0);
	assert_ptr_not_equal(raw->memory[segment], MAP_FAILED);
}

void kvt_raw_map_silently(struct kvt_raw *raw)
{
	struct kvw_msg_FDS request = {.first = 0};
	struct kvw_channel_header *channel;

	while (request.first < KVT_SEGMENTS + raw->device.chunks) {
		assert_int_equal(kvt_raw_ask(raw, KVW_MSG_FDS, &request), 0);
		request.first += raw->answer.FDS_OK.count;
	}
	map_segment(raw, KVT_DIRECTORY, PROT_READ);
	map_segment(raw, KVT_TABLES, PROT_READ | PROT_WRITE);
	map_segment(raw, KVT_CHANNEL, PROT_READ | PROT_WRITE);
	map_segment(raw, KVT_TIMELINES, PROT_READ | PROT_WRITE);
	map_segment(raw, KVT_ANSWERS, PROT_READ);
	if (!raw->device.share)
		map_segment(raw, KVT_POOL, PROT_READ | PROT_WRITE);
	channel = kvt_channel(raw);
	assert_int_equal(channel->magic, KVW_MAGIC_CHANNEL);
	assert_int_equal(channel->layout_version, KVW_LAYOUT_VERSION);
	assert_int_equal(channel->session, raw->session);
	kvw_ring_init(&raw->requests, &channel->requests,
		      (uint8_t *)raw->memory[KVT_CHANNEL] + KVW_CHANNEL_REQUESTS);
	kvw_ring_init(&raw->completions, &channel->completions,
		      (uint8_t *)raw->memory[KVT_CHANNEL] + KVW_CHANNEL_COMPLETIONS);
}

void kvt_raw_map(struct kvt_raw *raw)
{
	const struct kvw_msg_MAPPED mapped = {.unused = 0};

	kvt_raw_map_silently(raw);
	assert_int_equal(kvt_raw_ask(raw, KVW_MSG_MAPPED, &mapped), 0);
}

static void drop_segment(struct kvt_raw *raw, int segment)
{
	if (raw->memory[segment])
		munmap(raw->memory[segment], raw->bytes[segment]);
	raw->memory[segment] = NULL;
	if (raw->fds[segment] >= 0)
		close(raw->fds[segment]);
	raw->fds[segment] = -1;
}

void kvt_raw_unmap_pool(struct kvt_raw *raw)
{
	drop_segment(raw, KVT_POOL);
}

struct kvt_raw *kvt_raw_engine(const struct kvt_daemon *daemon)
{
	const struct kvw_msg_ATTACH attach = kvt_attach_message();
	struct kvt_raw *raw = kvt_raw_hello(daemon);

	assert_int_equal(kvt_raw_attach(raw, &attach), 0);
	kvt_raw_map(raw);
	return raw;
}

void kvt_raw_close(struct kvt_raw *raw)
{
	int segment;

	for (segment = KVT_SEGMENTS - 1; segment >= 0; segment--)
		drop_segment(raw, segment);
	if (raw->fd >= 0)
		close(raw->fd);
	free(raw);
}
