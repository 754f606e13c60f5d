/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients of the server in this process.
 */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "inprocess.h"
#include "ipc/frame.h"
#include "ipc/hash.h"

/* Turns for one answer: the worker has a part in an attach. */
#define ANSWER_TURNS 50000u

/* -------------------------------------------------------------- messages */

void inprocess_init(struct inprocess_client *client)
{
	int i;

	memset(client, 0, sizeof(*client));
	client->fd = -1;
	for (i = 0; i < (int)INPROCESS_SEGMENTS; i++)
		client->fds[i] = -1;
}

void inprocess_connect(struct inprocess_client *client)
{
	if (client->fd >= 0)
		return;
	/* What is left of a session that the daemon ended. */
	inprocess_unmap(client);
	client->fd = kvw_connect(inprocess_server()->config->socket);
	if (client->fd < 0)
		client->fd = -1;
	inprocess_turn(2);
}

void inprocess_send(struct inprocess_client *client, const void *bytes, size_t length)
{
	if (client->fd >= 0)
		(void)!send(client->fd, bytes, length, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void inprocess_send_message(struct inprocess_client *client, uint32_t type, const void *message)
{
	static uint8_t bytes[KVW_MAX_MESSAGE_BYTES];
	int length = kvw_encode(type, ++client->sequence, message, bytes, sizeof(bytes));

	if (length > 0)
		inprocess_send(client, bytes, (size_t)length);
}

static void keep_fds(struct inprocess_client *client, uint32_t type, const int *fds, uint32_t count)
{
	uint32_t first = type == KVW_MSG_FDS_OK ? (uint32_t)client->answer.FDS_OK.first : INPROCESS_SEGMENTS;
	uint32_t i;

	for (i = 0; i < count; i++) {
		if (first + i < INPROCESS_SEGMENTS && client->fds[first + i] < 0)
			client->fds[first + i] = fds[i];
		else
			close(fds[i]);
	}
}

uint32_t inprocess_receive(struct inprocess_client *client)
{
	struct kvw_envelope envelope;
	uint32_t count = INPROCESS_SEGMENTS;
	int fds[INPROCESS_SEGMENTS];
	int got;

	if (client->fd < 0)
		return 0;
	got = kvw_receive(client->fd, 0, client->received, sizeof(client->received), fds, &count);
	if (got == -EAGAIN || got == -ETIMEDOUT)
		return 0;
	if (got <= 0) {
		close(client->fd);
		client->fd = -1;
		return 0;
	}
	if (kvw_decode(client->received, (size_t)got, &envelope, &client->answer))
		inprocess_fail("the daemon's message can't be read");
	keep_fds(client, envelope.type, fds, count);
	return envelope.type;
}

uint32_t inprocess_await(struct inprocess_client *client)
{
	uint32_t type = 0;
	uint32_t turns;

	for (turns = 0; !type && client->fd >= 0 && turns < ANSWER_TURNS; turns++) {
		inprocess_turn(1);
		type = inprocess_receive(client);
		sched_yield();
	}
	return type;
}

/* -------------------------------------------------------------- attaching */

void inprocess_hello(struct inprocess_client *client)
{
	const struct kvw_msg_HELLO hello = {
		.version_min = KVW_VERSION_MIN,
		.version_max = KVW_VERSION_MAX,
		.hash_algorithm = KVW_HASH_SHA256,
		.probe = kvw_bytes_of(inprocess_server()->probe, KVW_SHA256_BYTES),
		.name = kvw_text_of("fuzz"),
	};

	inprocess_send_message(client, KVW_MSG_HELLO, &hello);
	inprocess_await(client);
}

static void take_attach(struct inprocess_client *client, const struct kvw_msg_ATTACH *attach)
{
	struct kvw_list segments = client->answer.ATTACH_OK.segments;
	struct kvw_item_SEGMENT segment;
	uint32_t n = 0;

	client->namespace_id = (uint32_t)client->answer.ATTACH_OK.namespace_id;
	client->params = (struct kvw_tables_params){
		.rows = (uint32_t)attach->rows,
		.row_blocks = (uint32_t)attach->row_blocks,
		.block_tokens = 16,
		.hash_bytes = (uint32_t)attach->hash_bytes,
		.slots = (uint32_t)attach->slots,
		.slot_bytes = attach->slot_bytes,
	};
	if (kvw_tables_layout(&client->params, &client->layout))
		inprocess_fail("an attach was accepted whose tables have no layout");
	while (n < INPROCESS_SEGMENTS && kvw_list_next(&segments, KVW_ITEM_SEGMENT, &segment))
		client->bytes[n++] = segment.bytes;
}

void inprocess_attach(struct inprocess_client *client)
{
	const struct kvw_msg_ATTACH attach = {
		.role = 1,
		.max_seqs = INPROCESS_ROWS,
		.rows = INPROCESS_ROWS,
		.row_blocks = INPROCESS_ROW_BLOCKS,
		.hash_bytes = 16,
		.slots = 2,
		.slot_bytes = KVW_PAGE_BYTES,
		.step_tokens = 4,
		.answers = INPROCESS_ANSWERS_WANTED,
	};

	inprocess_send_message(client, KVW_MSG_ATTACH, &attach);
	if (inprocess_await(client) == KVW_MSG_ATTACH_OK)
		take_attach(client, &attach);
}

static void *map_one(struct inprocess_client *client, int segment)
{
	bool read_only = segment == INPROCESS_DIRECTORY || segment == INPROCESS_ANSWERS;
	int protection = read_only ? PROT_READ : PROT_READ | PROT_WRITE;
	void *memory = mmap(NULL, client->bytes[segment], protection, MAP_SHARED, client->fds[segment], 0);

	return memory == MAP_FAILED ? NULL : memory;
}

void inprocess_map(struct inprocess_client *client)
{
	const struct kvw_msg_FDS request = {.first = 0};
	const struct kvw_msg_MAPPED mapped = {.unused = 0};
	struct kvw_channel_header *channel;
	int segment;

	if (client->mapped)
		return;
	inprocess_send_message(client, KVW_MSG_FDS, &request);
	if (inprocess_await(client) != KVW_MSG_FDS_OK)
		return;
	for (segment = 0; segment < (int)INPROCESS_SEGMENTS; segment++) {
		if (segment == INPROCESS_DOORBELL)
			continue;
		client->memory[segment] = map_one(client, segment);
		if (!client->memory[segment])
			return;
	}
	inprocess_send_message(client, KVW_MSG_MAPPED, &mapped);
	if (inprocess_await(client) != KVW_MSG_MAPPED_OK)
		return;
	channel = (struct kvw_channel_header *)(void *)client->memory[INPROCESS_CHANNEL];
	kvw_ring_init(&client->requests, &channel->requests,
		      client->memory[INPROCESS_CHANNEL] + KVW_CHANNEL_REQUESTS);
	kvw_ring_init(&client->completions, &channel->completions,
		      client->memory[INPROCESS_CHANNEL] + KVW_CHANNEL_COMPLETIONS);
	client->mapped = true;
}

void inprocess_open(struct inprocess_client *client)
{
	inprocess_connect(client);
	inprocess_hello(client);
	inprocess_attach(client);
	inprocess_map(client);
}

void inprocess_unmap(struct inprocess_client *client)
{
	int segment;

	for (segment = 0; segment < (int)INPROCESS_SEGMENTS; segment++) {
		if (client->memory[segment])
			munmap(client->memory[segment], client->bytes[segment]);
		client->memory[segment] = NULL;
		if (client->fds[segment] >= 0)
			close(client->fds[segment]);
		client->fds[segment] = -1;
	}
	client->mapped = false;
}

void inprocess_close(struct inprocess_client *client)
{
	/* Descriptors that were sent and not taken go with the socket. */
	inprocess_unmap(client);
	if (client->fd >= 0)
		close(client->fd);
	client->fd = -1;
}

/* -------------------------------------------------------------- the ring */

struct kvw_request inprocess_record(const struct inprocess_client *client, struct script *script)
{
	uint8_t kind = script_u8(script);
	uint8_t hold = script_u8(script);
	struct kvw_request record = {
		.type = 1 + kind % 7,
		.row = (uint32_t)script_number(script),
		.first = (uint32_t)script_number(script),
		.count = (uint32_t)script_number(script),
		.hold = hold == 255 ? script_u64(script) : client->holds[hold % 8],
		.timeline = kind >> 5,
		.step = script_number(script),
	};

	record.answers = record.row * INPROCESS_ROW_BLOCKS + record.first;
	if (record.type == KVW_REQUEST_OPEN) {
		record.flags = kind & 16 ? KVW_REQUEST_COMING : 0;
		record.want = (uint32_t)script_number(script);
		record.most = (uint32_t)script_number(script);
		record.answers -= record.first;
	} else if (record.type == KVW_REQUEST_LEASE) {
		record.answers = INPROCESS_LEASED + record.first;
	}
	return record;
}

static const struct kvw_answer *answers_at(const struct inprocess_client *client, uint32_t first)
{
	return (const struct kvw_answer *)(const void *)client->memory[INPROCESS_ANSWERS] + first;
}

static void accept_row(struct inprocess_client *client, uint32_t row)
{
	uint8_t *tables = client->memory[INPROCESS_TABLES];
	uint64_t first = (uint64_t)row * client->params.row_blocks;
	const struct kvw_answer *answers = answers_at(client, row * INPROCESS_ROW_BLOCKS);
	int32_t *ids = (int32_t *)(void *)(tables + client->layout.ids) + first;
	uint64_t *generations = (uint64_t *)(void *)(tables + client->layout.generations) + first;
	uint32_t i;

	for (i = 0; i < client->params.row_blocks; i++) {
		ids[i] = answers[i].id;
		generations[i] = answers[i].generation;
	}
}

/* What a returning client would name: the answers of the lease and of the first row. */
static void fill_returns(struct inprocess_client *client)
{
	uint8_t *tables = client->memory[INPROCESS_TABLES];
	const struct kvw_answer *lease = answers_at(client, INPROCESS_LEASED);
	const struct kvw_answer *row = answers_at(client, 0);
	struct kvw_block_ref *returns = (struct kvw_block_ref *)(void *)(tables + client->layout.returns);
	uint32_t i;

	for (i = 0; i < 2 * INPROCESS_ROW_BLOCKS; i++) {
		const struct kvw_answer *answer =
			i < INPROCESS_ROW_BLOCKS ? &lease[i] : &row[i - INPROCESS_ROW_BLOCKS];

		returns[i] = (struct kvw_block_ref){.id = answer->id, .generation = answer->generation};
	}
}

void inprocess_take_completions(struct inprocess_client *client)
{
	struct kvw_completion completion;
	uint32_t row;

	if (!client->mapped)
		return;
	while (kvw_ring_take(&client->completions, &completion) == 1)
		if (completion.type == KVW_REQUEST_OPEN && !completion.status)
			client->holds[client->hold_count++ % 8] = completion.hold;
	for (row = 0; row < client->params.rows && row < INPROCESS_ROWS; row++)
		accept_row(client, row);
	fill_returns(client);
}

void inprocess_set_hashes(struct inprocess_client *client, uint32_t row, uint8_t chain)
{
	uint8_t *at = client->memory[INPROCESS_TABLES];
	uint32_t hash_bytes = client->params.hash_bytes;
	uint32_t i;

	if (!client->mapped || row >= client->params.rows)
		return;
	at += client->layout.hashes + (uint64_t)row * client->params.row_blocks * hash_bytes;
	for (i = 0; i < client->params.row_blocks; i++, at += hash_bytes) {
		memset(at, 0, hash_bytes);
		at[0] = chain;
		at[hash_bytes - 1] = (uint8_t)(i + 1);
	}
}
