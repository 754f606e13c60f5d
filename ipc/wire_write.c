/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The writer: msgpack-c's packer into the caller's buffer. Zero and empty fields are left out, so a message
 * has exactly one form, and what the reader would refuse is refused here.
 */
#include "wire_tables.h"

#include <errno.h>
#include <string.h>

#include <msgpack/pack.h>

struct sink {
	uint8_t *out;
	size_t capacity;
	size_t length;
};

static int append(void *data, const char *bytes, size_t length)
{
	struct sink *sink = data;

	if (length > sink->capacity - sink->length)
		return -1;
	if (length > 0)
		memcpy(sink->out + sink->length, bytes, length);
	sink->length += length;
	return 0;
}

/* msgpack-c hands on the result of append(): nothing else can go wrong in it. */
static int packed(int result)
{
	return result ? -EMSGSIZE : 0;
}

static const void *member(const void *structure, const struct kvw_field *field)
{
	return (const char *)structure + field->offset;
}

static bool is_empty(const struct kvw_field *field, const void *value)
{
	switch (field->kind) {
	case 'U':
	case 'I':
		return *(const uint64_t *)value == 0;
	case 'S':
		return ((const struct kvw_text *)value)->length == 0;
	case 'B':
		return ((const struct kvw_bytes *)value)->length == 0;
	default:
		return ((const struct kvw_list *)value)->count == 0;
	}
}

static uint32_t count_entries(const struct kvw_schema *schema, const void *structure)
{
	uint32_t entries = 0;
	uint32_t i;

	for (i = 0; i < schema->count; i++)
		entries += !is_empty(&schema->fields[i], member(structure, &schema->fields[i]));
	return entries;
}

static int write_text(msgpack_packer *packer, const struct kvw_field *field, const struct kvw_text *text)
{
	if (!text->at || text->length > field->max || kvw_text_valid(text->at, text->length) != text->length)
		return -EINVAL;
	if (msgpack_pack_str(packer, text->length))
		return -EMSGSIZE;
	return packed(msgpack_pack_str_body(packer, text->at, text->length));
}

static int write_bytes(msgpack_packer *packer, const struct kvw_field *field, const struct kvw_bytes *bytes)
{
	if (!bytes->at || bytes->length > field->max)
		return -EINVAL;
	if (msgpack_pack_bin(packer, bytes->length))
		return -EMSGSIZE;
	return packed(msgpack_pack_bin_body(packer, bytes->at, bytes->length));
}

static int write_list(msgpack_packer *packer, const struct kvw_field *field, const struct kvw_list *list);

static int write_value(msgpack_packer *packer, const struct kvw_field *field, const void *value)
{
	switch (field->kind) {
	case 'U':
		return packed(msgpack_pack_uint64(packer, *(const uint64_t *)value));
	case 'I':
		return packed(msgpack_pack_int64(packer, *(const int64_t *)value));
	case 'S':
		return write_text(packer, field, value);
	case 'B':
		return write_bytes(packer, field, value);
	default:
		return write_list(packer, field, value);
	}
}

static int write_fields(msgpack_packer *packer, const struct kvw_schema *schema, const void *structure)
{
	uint32_t i;

	for (i = 0; i < schema->count; i++) {
		const struct kvw_field *field = &schema->fields[i];
		const void *value = member(structure, field);
		int ret;

		if (is_empty(field, value))
			continue;
		if (msgpack_pack_uint8(packer, field->key))
			return -EMSGSIZE;
		ret = write_value(packer, field, value);
		if (ret)
			return ret;
	}
	return 0;
}

/* Lists hold items, items hold no lists: the recursion ends after one round. */
static int write_list(msgpack_packer *packer, const struct kvw_field *field, const struct kvw_list *list)
{
	const struct kvw_schema *schema = kvw_item_schema(field->item);
	uint32_t i;

	if (!list->items || list->count > field->max)
		return -EINVAL;
	if (msgpack_pack_array(packer, list->count))
		return -EMSGSIZE;
	for (i = 0; i < list->count; i++) {
		const char *item = (const char *)list->items + (size_t)i * schema->bytes;
		int ret;

		if (msgpack_pack_map(packer, count_entries(schema, item)))
			return -EMSGSIZE;
		ret = write_fields(packer, schema, item);
		if (ret)
			return ret;
	}
	return 0;
}

static int write_envelope(msgpack_packer *packer, uint32_t entries, uint32_t type, uint64_t sequence)
{
	if (msgpack_pack_map(packer, KVW_ENVELOPE_ENTRIES + entries) ||
	    msgpack_pack_uint8(packer, KVW_KEY_TYPE) || msgpack_pack_uint32(packer, type) ||
	    msgpack_pack_uint8(packer, KVW_KEY_SEQUENCE) || msgpack_pack_uint64(packer, sequence))
		return -EMSGSIZE;
	return 0;
}

int kvw_encode(uint32_t type, uint64_t sequence, const void *message, uint8_t *out, size_t capacity)
{
	const struct kvw_schema *schema = kvw_message_schema(type);
	struct sink sink = {.out = out, .capacity = capacity};
	msgpack_packer packer;
	int ret;

	if (!schema)
		return -EINVAL;
	if (sink.capacity > KVW_MAX_MESSAGE_BYTES)
		sink.capacity = KVW_MAX_MESSAGE_BYTES;
	msgpack_packer_init(&packer, &sink, append);
	ret = write_envelope(&packer, count_entries(schema, message), type, sequence);
	if (!ret)
		ret = write_fields(&packer, schema, message);
	return ret ? ret : (int)sink.length;
}
