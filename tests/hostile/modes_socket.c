/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hostile by the socket: what is no message, what is nearly one, and messages without an end.
 */
#include <stdlib.h>
#include <string.h>

#include <kvpool/error.h>

#include "foe.h"

#define STRETCH_MS 200u
#define BIG_BYTES 150000u

void kvt_mode_random_bytes(struct kvt_foe *foe)
{
	uint8_t bytes[2048];

	kvt_foe_begin(foe, STRETCH_MS);
	while (kvt_foe_goes_on(foe)) {
		size_t length = 1 + kvt_foe_pick(foe, sizeof(bytes));

		kvt_foe_random(foe, bytes, length);
		/* Half of them begin as a message does. */
		if (kvt_foe_pick(foe, 2)) {
			bytes[0] = 0x82;
			bytes[1] = 0;
			bytes[2 % length] = (uint8_t)(2 * kvt_foe_pick(foe, 40));
		}
		kvt_foe_send(foe, bytes, length);
		kvt_foe_read(foe, 50);
	}
}

/* One of the requests, its fields at random. */
static int random_request(struct kvt_foe *foe, uint8_t *out, size_t capacity)
{
	static const uint32_t types[] = {KVW_MSG_HELLO,    KVW_MSG_POOL,   KVW_MSG_ATTACH, KVW_MSG_FDS,
					 KVW_MSG_DRAIN,    KVW_MSG_STATUS, KVW_MSG_POOLS,  KVW_MSG_CLIENTS,
					 KVW_MSG_BLOCKS,   KVW_MSG_PROBE,  KVW_MSG_CHECK,  KVW_MSG_FLUSH,
					 KVW_MSG_POOL_OK,  KVW_MSG_ERROR,  KVW_MSG_FDS_OK, KVW_MSG_MAPPED,
					 KVW_MSG_TIMELINES};
	uint32_t type = types[kvt_foe_pick(foe, sizeof(types) / sizeof(types[0]))];
	const struct kvw_msg_HELLO hello = kvt_hello_message();
	const struct kvw_msg_ATTACH attach = kvt_foe_attach_message();
	union kvw_any any;

	memset(&any, 0, sizeof(any));
	if (type == KVW_MSG_HELLO)
		any.HELLO = hello;
	else if (type == KVW_MSG_ATTACH)
		any.ATTACH = attach;
	else if (type == KVW_MSG_POOL || type == KVW_MSG_BLOCKS)
		any.POOL.name = kvw_text_of(KVT_FOE_POOL);
	else if (type == KVW_MSG_DRAIN || type == KVW_MSG_FDS)
		any.DRAIN.tail = kvt_rng_next(&foe->rng);
	else if (type == KVW_MSG_TIMELINES)
		any.TIMELINES.session = kvt_foe_pick(foe, 64);
	return kvw_encode(type, kvt_rng_next(&foe->rng), &any, out, capacity);
}

void kvt_mode_mutated_messages(struct kvt_foe *foe)
{
	uint8_t bytes[4096];

	kvt_foe_begin(foe, STRETCH_MS);
	while (kvt_foe_goes_on(foe)) {
		int length = random_request(foe, bytes, sizeof(bytes));
		uint32_t flips = kvt_foe_pick(foe, 4);

		if (length <= 0)
			continue;
		while (flips--)
			bytes[kvt_foe_pick(foe, (uint32_t)length)] ^= (uint8_t)(1u << kvt_foe_pick(foe, 8));
		/* Some are cut, some have something behind. */
		if (!kvt_foe_pick(foe, 8))
			length = 1 + (int)kvt_foe_pick(foe, (uint32_t)length + 16);
		kvt_foe_send(foe, bytes, (size_t)length);
		kvt_foe_read(foe, 20);
	}
}

void kvt_mode_oversized(struct kvt_foe *foe)
{
	static uint8_t bytes[BIG_BYTES];
	size_t length = KVW_MAX_MESSAGE_BYTES + 1 + kvt_foe_pick(foe, BIG_BYTES - KVW_MAX_MESSAGE_BYTES - 1);

	kvt_foe_begin(foe, STRETCH_MS);
	kvt_foe_random(foe, bytes, 64);
	while (kvt_foe_goes_on(foe)) {
		/* The largest that is allowed, too: it is no message either. */
		if (!kvt_foe_pick(foe, 4))
			length = KVW_MAX_MESSAGE_BYTES;
		kvt_foe_send(foe, bytes, length);
		kvt_foe_read(foe, 50);
	}
}

/* An empty datagram reads like the end of file. */
void kvt_mode_zero_length(struct kvt_foe *foe)
{
	kvt_foe_begin(foe, STRETCH_MS);
	while (kvt_foe_goes_on(foe)) {
		kvt_foe_send(foe, "", 0);
		kvt_foe_read(foe, 50);
	}
}

void kvt_mode_half_conversation(struct kvt_foe *foe)
{
	const struct kvw_msg_POOL request = {.name = kvw_text_of(KVT_FOE_POOL)};

	kvt_foe_begin(foe, STRETCH_MS);
	while (kvt_foe_goes_on(foe))
		kvt_foe_send_message(foe, KVW_MSG_POOL, &request);
}

void kvt_mode_request_flood(struct kvt_foe *foe)
{
	const struct kvw_msg_POOL request = {.name = kvw_text_of(KVT_FOE_POOL)};
	uint32_t sent = 0;

	kvt_foe_begin(foe, STRETCH_MS);
	foe->answers = 0;
	while (kvt_foe_goes_on(foe)) {
		/* As many as may be unanswered. */
		if (sent - foe->answers < 4 && !kvt_foe_send_message(foe, KVW_MSG_POOL, &request))
			sent++;
		else
			kvt_foe_read(foe, 50);
	}
}

/* What an administrator may, a stranger may not. */
void kvt_mode_admin_as_stranger(struct kvt_foe *foe)
{
	static const uint32_t types[] = {KVW_MSG_STATUS, KVW_MSG_POOLS, KVW_MSG_CLIENTS, KVW_MSG_BLOCKS,
					 KVW_MSG_PROBE,  KVW_MSG_CHECK, KVW_MSG_FLUSH};
	const union kvw_any nothing = {.POOL = {.unused = 0}};
	uint32_t i;

	kvt_foe_begin(foe, STRETCH_MS);
	while (kvt_foe_goes_on(foe)) {
		for (i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
			int ret = kvt_foe_ask(foe, types[i], &nothing);

			if (foe->stranger && ret != -KVP_EDENIED)
				kvt_foe_breach(foe, "uid %u asked %s and was answered %d", KVT_FOE_ID,
					       kvw_message_name(types[i]), ret);
		}
	}
}
