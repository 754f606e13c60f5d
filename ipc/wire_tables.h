/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages as data: wire.def turned into one schema a message and one an item. The writer and the reader walk
 * these, so that no message has code of its own. Private to ipc/.
 */
#ifndef KVPOOL_IPC_WIRE_TABLES_H
#define KVPOOL_IPC_WIRE_TABLES_H

#include <stdbool.h>
#include <stdint.h>

#include "wire.h"

/* Keys of every message that are not in its struct. */
#define KVW_KEY_TYPE 0u
#define KVW_KEY_SEQUENCE 1u
#define KVW_ENVELOPE_ENTRIES 2u

/* One field: `kind` is the letter that wire.def gives it. */
struct kvw_field {
	char kind;
	uint8_t key;
	uint16_t offset; /* in the struct */
	uint32_t max;    /* bytes of text and bytes, items of a list */
	uint32_t item;   /* enum kvw_item_type of a list */
};

struct kvw_schema {
	const struct kvw_field *fields; /* keys ascending */
	uint32_t count;                 /* at most 64: the reader keeps a bit for each */
	uint32_t bytes;                 /* of the struct */
};

/* NULL when the type has no struct: unknown or reserved. */
const struct kvw_schema *kvw_message_schema(uint32_t type);
bool kvw_message_is_reserved(uint32_t type);
const struct kvw_schema *kvw_item_schema(uint32_t item);

/* Room for any item's struct. */
union kvw_any_item {
#define KVW_ITEM(NAME, FIELDS) struct kvw_item_##NAME NAME;
#define KVW_MESSAGE(NAME, type, FIELDS)
#define KVW_RESERVED(NAME, type)
#include "wire.def"
#undef KVW_ITEM
#undef KVW_MESSAGE
#undef KVW_RESERVED
};

/* Bytes from at[0] that are valid UTF-8 without NUL: `length` when all are. Both sides hold text to this. */
uint32_t kvw_text_valid(const char *at, uint32_t length);

#endif
