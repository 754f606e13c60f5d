/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any order of steps of up to four clients against the server: well-formed ones, spoilt ones, and any bytes
 * as messages. In the end all clients are gone, and so must be everything of theirs.
 */
#include <errno.h>

#include "fuzz.h"
#include "inprocess.h"

#define CLIENTS 4u
#define MOST_STEPS 400u
#define LONGEST_MESSAGE 512u

static struct inprocess_client clients[CLIENTS];

/* -------------------------------------------------------------- messages */

static void send_any(struct inprocess_client *client, struct script *script)
{
	uint8_t bytes[LONGEST_MESSAGE];
	size_t length = script_u16(script) % (LONGEST_MESSAGE + 1);

	script_bytes(script, bytes, length);
	inprocess_send(client, bytes, length);
}

/* Sizes of an ATTACH around what is allowed. */
static struct kvw_msg_ATTACH any_attach(struct script *script)
{
	return (struct kvw_msg_ATTACH){
		.role = script_u8(script) % 3,
		.max_seqs = script_number(script),
		.rows = script_number(script),
		.row_blocks = script_number(script),
		.hash_bytes = script_number(script),
		.slots = script_number(script),
		.slot_bytes = script_u8(script) * 2048u,
		.answers = INPROCESS_ANSWERS_WANTED,
		.drafts = script_number(script),
		.lease_set = script_u8(script) % 2,
		.lease_low = script_number(script),
		.lease_critical = script_number(script),
		.lease_high = script_number(script),
		.index_scale = script_u8(script) % 2,
	};
}

/* A well-formed request with fields of the script. */
static void send_request(struct inprocess_client *client, struct script *script)
{
	static const uint32_t types[] = {
		KVW_MSG_HELLO,  KVW_MSG_POOL,     KVW_MSG_ATTACH,  KVW_MSG_FDS,     KVW_MSG_DRAIN,
		KVW_MSG_STATUS, KVW_MSG_POOLS,    KVW_MSG_CLIENTS, KVW_MSG_BLOCKS,  KVW_MSG_PROBE,
		KVW_MSG_CHECK,  KVW_MSG_FLUSH,    KVW_MSG_ERROR,   KVW_MSG_POOL_OK, KVW_MSG_STATUS_OK,
		KVW_MSG_MAPPED, KVW_MSG_TIMELINES};
	uint32_t type = types[script_u8(script) % (sizeof(types) / sizeof(types[0]))];
	union kvw_any message;

	memset(&message, 0, sizeof(message));
	if (type == KVW_MSG_ATTACH)
		message.ATTACH = any_attach(script);
	else if (type == KVW_MSG_DRAIN || type == KVW_MSG_FDS || type == KVW_MSG_CLIENTS ||
		 type == KVW_MSG_TIMELINES)
		message.DRAIN.tail = script_number(script);
	else if (type == KVW_MSG_BLOCKS)
		message.BLOCKS = (struct kvw_msg_BLOCKS){.from = script_number(script),
							 .state = script_u8(script),
							 .session = script_number(script),
							 .limit = script_number(script)};
	inprocess_send_message(client, type, &message);
}

/* -------------------------------------------------------------- memory */

static void post(struct inprocess_client *client, struct script *script, bool raw)
{
	struct kvw_request record;

	if (!client->mapped)
		return;
	if (raw)
		script_bytes(script, &record, sizeof(record));
	else
		record = inprocess_record(client, script);
	kvw_ring_post(&client->requests, &record);
}

static void write_memory(struct inprocess_client *client, struct script *script)
{
	static const int writable[] = {INPROCESS_TABLES, INPROCESS_CHANNEL, INPROCESS_TIMELINES,
				       INPROCESS_POOL};
	int segment = writable[script_u8(script) % 4];
	uint64_t at = script_u64(script);
	uint64_t value = script_u64(script);

	if (!client->mapped)
		return;
	at %= client->bytes[segment] / sizeof(value);
	atomic_store((_Atomic uint64_t *)(void *)client->memory[segment] + at, value);
}

static void reach_step(struct inprocess_client *client, struct script *script)
{
	uint32_t timeline = script_u8(script) % KVW_TIMELINES;
	uint64_t step = script_number(script);
	struct kvw_timelines *timelines = (struct kvw_timelines *)(void *)client->memory[INPROCESS_TIMELINES];

	if (client->mapped)
		atomic_store(&timelines->line[timeline].step, step);
}

/* -------------------------------------------------------------- steps */

static void step(struct inprocess_client *client, struct script *script, uint8_t what)
{
	switch (what) {
	case 0:
		inprocess_connect(client);
		break;
	case 1:
		inprocess_hello(client);
		break;
	case 2:
		inprocess_attach(client);
		break;
	case 3:
		inprocess_map(client);
		break;
	case 4:
		inprocess_open(client);
		break;
	case 5:
		send_any(client, script);
		break;
	case 6:
		send_request(client, script);
		break;
	case 7:
	case 8:
		post(client, script, false);
		break;
	case 9:
		post(client, script, true);
		break;
	case 10:
		write_memory(client, script);
		break;
	case 11:
		reach_step(client, script);
		break;
	case 12:
		inprocess_turn(1 + script_u8(script) % 8);
		inprocess_take_completions(client);
		break;
	case 13:
		inprocess_receive(client);
		break;
	case 14:
		inprocess_set_hashes(client, script_u8(script) % INPROCESS_ROWS, script_u8(script) % 4);
		break;
	default:
		if (script_u8(script) % 2)
			inprocess_unmap(client);
		else
			inprocess_close(client);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	struct script script = {.at = bytes, .left = length};
	uint32_t i;

	inprocess_server();
	for (i = 0; i < CLIENTS; i++)
		inprocess_init(&clients[i]);
	for (i = 0; i < MOST_STEPS && script.left; i++) {
		uint8_t what = script_u8(&script);

		step(&clients[what >> 6], &script, what & 15);
		/* Half of the time the next step comes before the daemon has seen this one. */
		if (what & 32)
			inprocess_turn(1);
	}
	for (i = 0; i < CLIENTS; i++)
		inprocess_close(&clients[i]);
	inprocess_must_be_clean();
	return 0;
}
