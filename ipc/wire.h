/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control messages: one struct a message, made from wire.def; a packer (msgpack-c into a caller's buffer) and
 * a strict reader that allocates nothing.
 *
 * Decoded text and bytes point into the message, which must outlive them; text is not NUL-terminated
 * (kvw_text_copy() makes a string). A list keeps the validated bytes of its items; kvw_list_next() decodes
 * one at a time.
 */
#ifndef KVPOOL_IPC_WIRE_H
#define KVPOOL_IPC_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "limits.h"

#define KVW_VERSION_MIN 1u
#define KVW_VERSION_MAX 1u

/* Hash algorithms of hello. */
#define KVW_HASH_SHA256 1u

/* HELLO_OK.features */
#define KVW_FEATURE_TIMELINES 1u /* the request TIMELINES, and the timeline in the answers of an OPEN */

struct kvw_text {
	const char *at;
	uint32_t length;
};
struct kvw_bytes {
	const uint8_t *at;
	uint32_t length;
};
/*
 * Reading: validated msgpack of `count` items. Writing: `items` is the caller's array of the item's struct.
 */
struct kvw_list {
	const void *items;
	const uint8_t *at;
	uint32_t length;
	uint32_t count;
};

#define KVW_STRUCT_U(key, name) uint64_t name;
#define KVW_STRUCT_I(key, name) int64_t name;
#define KVW_STRUCT_S(key, name, max) struct kvw_text name;
#define KVW_STRUCT_B(key, name, max) struct kvw_bytes name;
#define KVW_STRUCT_L(key, name, item, max) struct kvw_list name;
#define KVW_EMPTY_FIELDS(U, I, S, B, L)

/* struct kvw_item_<NAME>, struct kvw_msg_<NAME>: an unused first byte keeps empty messages legal C. */
#define KVW_ITEM(NAME, FIELDS)                                                                               \
	struct kvw_item_##NAME {                                                                             \
		FIELDS(KVW_STRUCT_U, KVW_STRUCT_I, KVW_STRUCT_S, KVW_STRUCT_B, KVW_STRUCT_L)                 \
	};
#define KVW_MESSAGE(NAME, type, FIELDS)                                                                      \
	struct kvw_msg_##NAME {                                                                              \
		uint8_t unused;                                                                              \
		FIELDS(KVW_STRUCT_U, KVW_STRUCT_I, KVW_STRUCT_S, KVW_STRUCT_B, KVW_STRUCT_L)                 \
	};
#define KVW_RESERVED(NAME, type)
#include "wire.def"
#undef KVW_ITEM
#undef KVW_MESSAGE
#undef KVW_RESERVED

enum kvw_message_type {
#define KVW_ITEM(NAME, FIELDS)
#define KVW_MESSAGE(NAME, type, FIELDS) KVW_MSG_##NAME = type,
#define KVW_RESERVED(NAME, type) KVW_MSG_##NAME = type,
#include "wire.def"
#undef KVW_ITEM
#undef KVW_MESSAGE
#undef KVW_RESERVED
};

enum kvw_item_type {
#define KVW_ITEM(NAME, FIELDS) KVW_ITEM_##NAME,
#define KVW_MESSAGE(NAME, type, FIELDS)
#define KVW_RESERVED(NAME, type)
#include "wire.def"
#undef KVW_ITEM
#undef KVW_MESSAGE
#undef KVW_RESERVED
	KVW_ITEMS
};

/* Room for any message's struct. */
union kvw_any {
#define KVW_ITEM(NAME, FIELDS)
#define KVW_MESSAGE(NAME, type, FIELDS) struct kvw_msg_##NAME NAME;
#define KVW_RESERVED(NAME, type)
#include "wire.def"
#undef KVW_ITEM
#undef KVW_MESSAGE
#undef KVW_RESERVED
};

/*
 * What a descriptor in FDS is. X(NAME, number). POOL: of a pool on the host. LOCK: of a cuda pool; not to be
 * mapped, but to be kept open for as long as anything of the pool is mapped or used, and by nobody else.
 */
#define KVW_SEGMENT_MAP(X)                                                                                   \
	X(DIRECTORY, 1)                                                                                      \
	X(TABLES, 2)                                                                                         \
	X(CHANNEL, 3)                                                                                        \
	X(TIMELINES, 4)                                                                                      \
	X(DOORBELL, 5)                                                                                       \
	X(ANSWERS, 6)                                                                                        \
	X(POOL, 7)                                                                                           \
	X(LOCK, 8)
enum kvw_segment_kind {
#define X(name, number) KVW_SEGMENT_##name = number,
	KVW_SEGMENT_MAP(X)
#undef X
};

/* How a shard in a CUDA device's memory is mapped. Part of the wire. */
enum kvw_share { KVW_SHARE_IPC = 1, KVW_SHARE_FD = 2 };

/* Name of a message type, reserved ones included; NULL when there is none. */
const char *kvw_message_name(uint32_t type);

/*
 * Packs message `type` from its struct into out[0..capacity). Returns the length; -EMSGSIZE when it does not
 * fit, -EINVAL for an unknown type, a field above its maximum, or text that kvw_decode() would refuse.
 */
int kvw_encode(uint32_t type, uint64_t sequence, const void *message, uint8_t *out, size_t capacity);

struct kvw_envelope {
	uint32_t type;
	uint64_t sequence;
};
/*
 * Reads bytes[0..length) strictly. *envelope is written as soon as type and sequence are known (so that an
 * error can be answered), *message only on success. -KVP_EPROTO: malformed; -KVP_ERESERVED: a reserved type
 * (envelope is set).
 */
int kvw_decode(const uint8_t *bytes, size_t length, struct kvw_envelope *envelope, union kvw_any *message);

/*
 * Decodes the next item of a list into its struct and steps on; 1, or 0 at the end. Cannot fail on a decoded
 * list.
 */
int kvw_list_next(struct kvw_list *list, enum kvw_item_type type, void *item);

/* A list for writing. */
static inline struct kvw_list kvw_list_of(const void *items, uint32_t count)
{
	return (struct kvw_list){.items = items, .count = count};
}
/*
 * Text and bytes for writing. Text ends at its first byte that is not UTF-8, so that one cut in mid-character
 * can be sent.
 */
struct kvw_text kvw_text_of(const char *string);
static inline struct kvw_bytes kvw_bytes_of(const void *at, size_t length)
{
	return (struct kvw_bytes){.at = (const uint8_t *)at, .length = (uint32_t)length};
}
/* NUL-terminated copy, cut at capacity - 1. Returns out. */
char *kvw_text_copy(struct kvw_text text, char *out, size_t capacity);

#endif
