/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The schemas of all messages and items. Each is a function with its rows inside, because a field's macro
 * does not know which struct it stands in: `current` names it.
 */
#include "wire_tables.h"

#include <assert.h>
#include <stddef.h>

#define ROW(letter, number, name, limit, list_item)                                                          \
	{.kind = (letter),                                                                                   \
	 .key = (number),                                                                                    \
	 .offset = offsetof(current, name),                                                                  \
	 .max = (limit),                                                                                     \
	 .item = (list_item)},
#define ROW_U(key, name) ROW('U', key, name, 0, 0)
#define ROW_I(key, name) ROW('I', key, name, 0, 0)
#define ROW_S(key, name, max) ROW('S', key, name, max, 0)
#define ROW_B(key, name, max) ROW('B', key, name, max, 0)
#define ROW_L(key, name, item, max) ROW('L', key, name, max, KVW_ITEM_##item)
/* An item holds no list: this does not compile, and so nothing nests deeper than KVW_MAX_DEPTH_MSGPACK. */
#define ROW_NO_LIST(key, name, item, max) {an_item_cannot_hold_a_list},

/* The last row only keeps an empty message's array legal C. */
#define SCHEMA(function, type_name, FIELDS, LIST)                                                            \
	static const struct kvw_schema *function(void)                                                       \
	{                                                                                                    \
		typedef struct type_name current;                                                            \
		static const struct kvw_field rows[] = {                                                     \
			FIELDS(ROW_U, ROW_I, ROW_S, ROW_B, LIST){.kind = 0}};                                \
		static const struct kvw_schema schema = {                                                    \
			.fields = rows,                                                                      \
			.count = sizeof(rows) / sizeof(rows[0]) - 1,                                         \
			.bytes = sizeof(current),                                                            \
		};                                                                                           \
		static_assert(sizeof(rows) / sizeof(rows[0]) <= 65, "a bit for each field");                 \
		return &schema;                                                                              \
	}

#define KVW_ITEM(NAME, FIELDS) SCHEMA(schema_of_item_##NAME, kvw_item_##NAME, FIELDS, ROW_NO_LIST)
#define KVW_MESSAGE(NAME, type, FIELDS) SCHEMA(schema_of_##NAME, kvw_msg_##NAME, FIELDS, ROW_L)
#define KVW_RESERVED(NAME, type)
#include "wire.def"
#undef KVW_ITEM
#undef KVW_MESSAGE
#undef KVW_RESERVED

const struct kvw_schema *kvw_message_schema(uint32_t type)
{
	switch (type) {
#define KVW_ITEM(NAME, FIELDS)
#define KVW_MESSAGE(NAME, type, FIELDS)                                                                      \
	case type:                                                                                           \
		return schema_of_##NAME();
#define KVW_RESERVED(NAME, type)
#include "wire.def"
#undef KVW_ITEM
#undef KVW_MESSAGE
#undef KVW_RESERVED
	default:
		return NULL;
	}
}

const struct kvw_schema *kvw_item_schema(uint32_t item)
{
	switch (item) {
#define KVW_ITEM(NAME, FIELDS)                                                                               \
	case KVW_ITEM_##NAME:                                                                                \
		return schema_of_item_##NAME();
#define KVW_MESSAGE(NAME, type, FIELDS)
#define KVW_RESERVED(NAME, type)
#include "wire.def"
#undef KVW_ITEM
#undef KVW_MESSAGE
#undef KVW_RESERVED
	default:
		return NULL;
	}
}

bool kvw_message_is_reserved(uint32_t type)
{
	switch (type) {
#define KVW_ITEM(NAME, FIELDS)
#define KVW_MESSAGE(NAME, type, FIELDS)
#define KVW_RESERVED(NAME, type) case type:
#include "wire.def"
#undef KVW_ITEM
#undef KVW_MESSAGE
#undef KVW_RESERVED
		return true;
	default:
		return false;
	}
}

const char *kvw_message_name(uint32_t type)
{
	switch (type) {
#define KVW_ITEM(NAME, FIELDS)
#define KVW_MESSAGE(NAME, type, FIELDS)                                                                      \
	case type:                                                                                           \
		return #NAME;
#define KVW_RESERVED(NAME, type)                                                                             \
	case type:                                                                                           \
		return #NAME;
#include "wire.def"
#undef KVW_ITEM
#undef KVW_MESSAGE
#undef KVW_RESERVED
	default:
		return NULL;
	}
}
