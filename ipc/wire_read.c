/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reader: strict, without allocation, without recursion, linear in the bytes.
 *
 * Refused: a map that does not begin with type and sequence, or has more entries than fields; unknown, repeated
 * and mistyped values; negative numbers for U, numbers above INT64_MAX for I; text with NUL or not UTF-8; what
 * is longer than its field; items that are not maps; cut and trailing bytes. Accepted: every width of integers
 * and lengths, any order of the fields, zero and empty fields.
 *
 * No count is believed: a loop over `n` elements ends at the first one for which no byte is left.
 */
#include "wire_tables.h"

#include <errno.h>
#include <string.h>

#include <kvpool/error.h>

struct cursor {
	const uint8_t *at;
	const uint8_t *end;
};

static size_t left(const struct cursor *cursor)
{
	return (size_t)(cursor->end - cursor->at);
}

static bool take_byte(struct cursor *cursor, uint8_t *out)
{
	if (left(cursor) == 0)
		return false;
	*out = *cursor->at++;
	return true;
}

/* A big-endian number of 1, 2, 4 or 8 bytes. */
static bool take_big(struct cursor *cursor, uint32_t bytes, uint64_t *out)
{
	uint64_t value = 0;
	uint32_t i;

	if (left(cursor) < bytes)
		return false;
	for (i = 0; i < bytes; i++)
		value = value << 8 | cursor->at[i];
	cursor->at += bytes;
	*out = value;
	return true;
}

/* An integer of any width: its two's complement and whether it is below zero. */
static bool take_integer(struct cursor *cursor, uint64_t *bits, bool *negative)
{
	uint8_t tag;
	uint32_t bytes;

	if (!take_byte(cursor, &tag))
		return false;
	*negative = false;
	if (tag <= 0x7f) {
		*bits = tag;
		return true;
	}
	if (tag >= 0xe0) {
		*bits = (uint64_t)(int64_t)(int8_t)tag;
		*negative = true;
		return true;
	}
	if (tag < 0xcc || tag > 0xd3)
		return false;
	bytes = 1u << (tag & 3);
	if (!take_big(cursor, bytes, bits))
		return false;
	if (tag >= 0xd0) {
		uint32_t unused = 64 - 8 * bytes;

		*bits = (uint64_t)((int64_t)(*bits << unused) >> unused);
		*negative = (int64_t)*bits < 0;
	}
	return true;
}

static bool take_unsigned(struct cursor *cursor, uint64_t *out)
{
	uint64_t bits;
	bool negative;

	if (!take_integer(cursor, &bits, &negative) || negative)
		return false;
	*out = bits;
	return true;
}

static bool take_signed(struct cursor *cursor, int64_t *out)
{
	uint64_t bits;
	bool negative;

	if (!take_integer(cursor, &bits, &negative) || (!negative && bits > INT64_MAX))
		return false;
	*out = (int64_t)bits;
	return true;
}

/*
 * Tags of a kind that carries a length: a short form whose low bits are the length, then forms of 1, 2 and 4
 * bytes.
 */
struct length_tags {
	uint8_t fix_first, fix_last;    /* fix_first > fix_last: none */
	uint8_t with_1, with_2, with_4; /* 0: none */
};
static const struct length_tags text_tags = {0xa0, 0xbf, 0xd9, 0xda, 0xdb};
static const struct length_tags bytes_tags = {0xff, 0, 0xc4, 0xc5, 0xc6};
static const struct length_tags array_tags = {0x90, 0x9f, 0, 0xdc, 0xdd};
static const struct length_tags map_tags = {0x80, 0x8f, 0, 0xde, 0xdf};

/* The length that opens a value of the kind `tags`, at most `max`. */
static bool take_length(struct cursor *cursor, const struct length_tags *tags, uint32_t max, uint32_t *out)
{
	uint64_t length;
	uint8_t tag;

	if (!take_byte(cursor, &tag))
		return false;
	if (tag >= tags->fix_first && tag <= tags->fix_last) {
		length = tag - tags->fix_first;
	} else if (tag == 0 || (tag != tags->with_1 && tag != tags->with_2 && tag != tags->with_4)) {
		return false;
	} else if (!take_big(cursor, tag == tags->with_1 ? 1 : tag == tags->with_2 ? 2 : 4, &length)) {
		return false;
	}
	if (length > max)
		return false;
	*out = (uint32_t)length;
	return true;
}

static bool take_text(struct cursor *cursor, uint32_t max, struct kvw_text *out)
{
	uint32_t length;

	if (!take_length(cursor, &text_tags, max, &length) || length > left(cursor))
		return false;
	out->at = (const char *)cursor->at;
	out->length = length;
	cursor->at += length;
	return kvw_text_valid(out->at, length) == length;
}

static bool take_bytes(struct cursor *cursor, uint32_t max, struct kvw_bytes *out)
{
	uint32_t length;

	if (!take_length(cursor, &bytes_tags, max, &length) || length > left(cursor))
		return false;
	out->at = cursor->at;
	out->length = length;
	cursor->at += length;
	return true;
}

/* A value that is not a list. */
static bool take_plain(struct cursor *cursor, const struct kvw_field *field, void *value)
{
	switch (field->kind) {
	case 'U':
		return take_unsigned(cursor, value);
	case 'I':
		return take_signed(cursor, value);
	case 'S':
		return take_text(cursor, field->max, value);
	case 'B':
		return take_bytes(cursor, field->max, value);
	default:
		return false;
	}
}

/* Which fields came already; `next` is where a writer that keeps the order goes on. */
struct progress {
	uint64_t seen;
	uint32_t next;
};

/* The field of the key that comes now; NULL when it is unknown or came before. */
static const struct kvw_field *take_key(struct cursor *cursor, const struct kvw_schema *schema,
					struct progress *progress)
{
	uint64_t key;
	uint32_t i;

	if (!take_unsigned(cursor, &key))
		return NULL;
	for (i = 0; i < schema->count; i++) {
		uint32_t index = (progress->next + i) % schema->count;

		if (schema->fields[index].key != key)
			continue;
		if (progress->seen >> index & 1)
			return NULL;
		progress->seen |= 1ull << index;
		progress->next = index + 1;
		return &schema->fields[index];
	}
	return NULL;
}

static bool take_item(struct cursor *cursor, const struct kvw_schema *schema, void *item)
{
	struct progress progress = {0};
	uint32_t entries;
	uint32_t i;

	if (!take_length(cursor, &map_tags, schema->count, &entries))
		return false;
	memset(item, 0, schema->bytes);
	for (i = 0; i < entries; i++) {
		const struct kvw_field *field = take_key(cursor, schema, &progress);

		if (!field || !take_plain(cursor, field, (char *)item + field->offset))
			return false;
	}
	return true;
}

static bool take_list(struct cursor *cursor, const struct kvw_field *field, struct kvw_list *out)
{
	const struct kvw_schema *schema = kvw_item_schema(field->item);
	union kvw_any_item scratch;
	uint32_t count;
	uint32_t i;

	if (!take_length(cursor, &array_tags, field->max, &count))
		return false;
	out->at = cursor->at;
	for (i = 0; i < count; i++)
		if (!take_item(cursor, schema, &scratch))
			return false;
	out->length = (uint32_t)(cursor->at - out->at);
	out->count = count;
	return true;
}

static bool take_message(struct cursor *cursor, const struct kvw_schema *schema, uint32_t entries,
			 void *message)
{
	struct progress progress = {0};
	uint32_t i;

	for (i = 0; i < entries; i++) {
		const struct kvw_field *field = take_key(cursor, schema, &progress);
		void *value;

		if (!field)
			return false;
		value = (char *)message + field->offset;
		if (field->kind == 'L' ? !take_list(cursor, field, value) : !take_plain(cursor, field, value))
			return false;
	}
	return left(cursor) == 0;
}

/* Type and sequence stand first, in this order, so that an error about the rest can be answered. */
static bool take_envelope(struct cursor *cursor, uint32_t *entries, struct kvw_envelope *out)
{
	uint64_t key_type, type, key_sequence, sequence;

	if (!take_length(cursor, &map_tags, UINT32_MAX, entries) || *entries < KVW_ENVELOPE_ENTRIES)
		return false;
	if (!take_unsigned(cursor, &key_type) || key_type != KVW_KEY_TYPE)
		return false;
	if (!take_unsigned(cursor, &type) || type > UINT32_MAX)
		return false;
	if (!take_unsigned(cursor, &key_sequence) || key_sequence != KVW_KEY_SEQUENCE)
		return false;
	if (!take_unsigned(cursor, &sequence))
		return false;
	*entries -= KVW_ENVELOPE_ENTRIES;
	out->type = (uint32_t)type;
	out->sequence = sequence;
	return true;
}

int kvw_decode(const uint8_t *bytes, size_t length, struct kvw_envelope *envelope, union kvw_any *message)
{
	const struct kvw_schema *schema;
	struct cursor cursor;
	union kvw_any local;
	uint32_t entries;

	if (length == 0 || length > KVW_MAX_MESSAGE_BYTES)
		return -KVP_EPROTO;
	cursor = (struct cursor){.at = bytes, .end = bytes + length};
	if (!take_envelope(&cursor, &entries, envelope))
		return -KVP_EPROTO;
	if (kvw_message_is_reserved(envelope->type))
		return -KVP_ERESERVED;
	schema = kvw_message_schema(envelope->type);
	if (!schema || entries > schema->count)
		return -KVP_EPROTO;
	memset(&local, 0, sizeof(local));
	if (!take_message(&cursor, schema, entries, &local))
		return -KVP_EPROTO;
	*message = local;
	return 0;
}

int kvw_list_next(struct kvw_list *list, enum kvw_item_type type, void *item)
{
	const struct kvw_schema *schema = kvw_item_schema(type);
	struct cursor cursor;

	if (list->count == 0 || list->length == 0 || !schema)
		return 0;
	cursor = (struct cursor){.at = list->at, .end = list->at + list->length};
	if (!take_item(&cursor, schema, item))
		return 0;
	list->length = (uint32_t)left(&cursor);
	list->at = cursor.at;
	list->count--;
	return 1;
}
