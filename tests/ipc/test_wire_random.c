/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random messages: written by kvw_encode(), read by msgpack-c's own unpacker and by our reader, and all three
 * say the same. Then the other way: packed by msgpack-c in any order and with zero fields, read by ours.
 */
#include "support.h"
#include "wire_samples.h"

#include <errno.h>
#include <string.h>

#include <msgpack.h>

#include "kvpool/error.h"

#define ROUNDS 400

/* ---------------------------------------- a message against msgpack-c's view of it */

static const msgpack_object *find(const msgpack_object_map *map, uint64_t key)
{
	uint32_t i;

	for (i = 0; i < map->size; i++)
		if (map->ptr[i].key.type == MSGPACK_OBJECT_POSITIVE_INTEGER && map->ptr[i].key.via.u64 == key)
			return &map->ptr[i].val;
	return NULL;
}

/* Absent means zero or empty, and only then. Counts what is present. */
static void match_unsigned(const msgpack_object_map *map, uint32_t key, uint64_t value, uint32_t *present)
{
	const msgpack_object *object = find(map, key);

	assert_int_equal(object != NULL, value != 0);
	if (!object)
		return;
	assert_int_equal(object->type, MSGPACK_OBJECT_POSITIVE_INTEGER);
	assert_true(object->via.u64 == value);
	++*present;
}

static void match_signed(const msgpack_object_map *map, uint32_t key, int64_t value, uint32_t *present)
{
	const msgpack_object *object = find(map, key);

	if (value >= 0) {
		match_unsigned(map, key, (uint64_t)value, present);
		return;
	}
	assert_non_null(object);
	assert_int_equal(object->type, MSGPACK_OBJECT_NEGATIVE_INTEGER);
	assert_true(object->via.i64 == value);
	++*present;
}

static void match_text(const msgpack_object_map *map, uint32_t key, struct kvw_text value, uint32_t *present)
{
	const msgpack_object *object = find(map, key);

	assert_int_equal(object != NULL, value.length != 0);
	if (!object)
		return;
	assert_int_equal(object->type, MSGPACK_OBJECT_STR);
	assert_int_equal(object->via.str.size, value.length);
	assert_memory_equal(object->via.str.ptr, value.at, value.length);
	++*present;
}

static void match_bytes(const msgpack_object_map *map, uint32_t key, struct kvw_bytes value,
			uint32_t *present)
{
	const msgpack_object *object = find(map, key);

	assert_int_equal(object != NULL, value.length != 0);
	if (!object)
		return;
	assert_int_equal(object->type, MSGPACK_OBJECT_BIN);
	assert_int_equal(object->via.bin.size, value.length);
	assert_memory_equal(object->via.bin.ptr, value.at, value.length);
	++*present;
}

static const msgpack_object_array *match_array(const msgpack_object_map *map, uint32_t key, uint32_t count,
					       uint32_t *present)
{
	const msgpack_object *object = find(map, key);

	assert_int_equal(object != NULL, count != 0);
	if (!object)
		return NULL;
	assert_int_equal(object->type, MSGPACK_OBJECT_ARRAY);
	assert_int_equal(object->via.array.size, count);
	++*present;
	return &object->via.array;
}

/* An item may wait for its first message. */
#define LIST_OF __attribute__((unused))

#define MATCH_U(key, name) match_unsigned(map, key, m->name, &present);
#define MATCH_I(key, name) match_signed(map, key, m->name, &present);
#define MATCH_S(key, name, max) match_text(map, key, m->name, &present);
#define MATCH_B(key, name, max) match_bytes(map, key, m->name, &present);
#define MATCH_L(key, name, item, max)                                                                        \
	match_list_##item(match_array(map, key, m->name.count, &present), &m->name);

#define KVW_ITEM(NAME, FIELDS)                                                                               \
	LIST_OF static void match_list_##NAME(const msgpack_object_array *array,                             \
					      const struct kvw_list *list)                                   \
	{                                                                                                    \
		uint32_t i;                                                                                  \
                                                                                                             \
		for (i = 0; array && i < array->size; i++) {                                                 \
			const struct kvw_item_##NAME *m = (const struct kvw_item_##NAME *)list->items + i;   \
			const msgpack_object_map *map = &array->ptr[i].via.map;                              \
			uint32_t present = 0;                                                                \
                                                                                                             \
			assert_int_equal(array->ptr[i].type, MSGPACK_OBJECT_MAP);                            \
			FIELDS(MATCH_U, MATCH_I, MATCH_S, MATCH_B, MATCH_L)                                  \
			assert_int_equal(map->size, present);                                                \
		}                                                                                            \
	}
#define KVW_MESSAGE(NAME, type, FIELDS)                                                                      \
	static uint32_t match_##NAME(const msgpack_object_map *map, const void *message)                     \
	{                                                                                                    \
		const struct kvw_msg_##NAME *m = message;                                                    \
		uint32_t present = 0;                                                                        \
                                                                                                             \
		(void)map;                                                                                   \
		(void)m;                                                                                     \
		FIELDS(MATCH_U, MATCH_I, MATCH_S, MATCH_B, MATCH_L)                                          \
		return present;                                                                              \
	}
#define KVW_RESERVED(NAME, type)
#include "ipc/wire.def"
#undef KVW_ITEM
#undef KVW_MESSAGE

static uint32_t match_message(uint32_t type, const msgpack_object_map *map, const void *message)
{
	switch (type) {
#define KVW_ITEM(NAME, FIELDS)
#define KVW_MESSAGE(NAME, number, FIELDS)                                                                    \
	case number:                                                                                         \
		return match_##NAME(map, message);
#include "ipc/wire.def"
#undef KVW_ITEM
#undef KVW_MESSAGE
	default:
		fail_msg("no message of type %u", type);
		return 0;
	}
}

static void check_unpacked(uint32_t type, uint64_t sequence, const uint8_t *bytes, size_t length,
			   const void *message)
{
	msgpack_unpacked unpacked;
	const msgpack_object_map *map;
	size_t end = 0;

	msgpack_unpacked_init(&unpacked);
	assert_int_equal(msgpack_unpack_next(&unpacked, (const char *)bytes, length, &end),
			 MSGPACK_UNPACK_SUCCESS);
	assert_int_equal(end, length);
	assert_int_equal(unpacked.data.type, MSGPACK_OBJECT_MAP);
	map = &unpacked.data.via.map;
	assert_true(find(map, 0)->via.u64 == type && find(map, 1)->via.u64 == sequence);
	assert_int_equal(map->size, match_message(type, map, message) + 2);
	msgpack_unpacked_destroy(&unpacked);
}

static void check_read_back(const struct wire_type *type, uint64_t sequence, const uint8_t *bytes,
			    size_t length, const union kvw_any *expected, struct wire_arena *arena)
{
	struct kvw_envelope envelope;
	union kvw_any message;

	assert_int_equal(kvw_decode(bytes, length, &envelope, &message), 0);
	assert_int_equal(envelope.type, type->type);
	assert_true(envelope.sequence == sequence);
	type->own(&message, arena);
	assert_true(type->equal(expected, &message));
}

static void random_messages_read_alike_by_both_readers(void **state)
{
	struct kvt_rng rng = {.state = kvt_seed()};
	static uint8_t out[KVW_MAX_MESSAGE_BYTES];
	uint32_t written = 0;
	uint32_t i, round;

	(void)state;
	for (round = 0; round < ROUNDS; round++) {
		for (i = 0; i < wire_type_count; i++) {
			struct wire_arena arena = {0};
			struct wire_source source = {.arena = &arena, .rng = &rng};
			uint64_t sequence = kvt_rng_next(&rng);
			union kvw_any message;
			int length;

			wire_types[i].fill(&message, &source);
			length = kvw_encode(wire_types[i].type, sequence, &message, out, sizeof(out));
			if (length > 0) {
				check_unpacked(wire_types[i].type, sequence, out, (size_t)length, &message);
				check_read_back(&wire_types[i], sequence, out, (size_t)length, &message,
						&arena);
				written++;
			} else {
				assert_int_equal(length, -EMSGSIZE);
			}
			wire_free(&arena);
		}
	}
	/* Some long lists do not fit; most messages do. */
	assert_true(written > ROUNDS * wire_type_count * 9 / 10);
}

/* ---------------------------------------- another writer: msgpack-c, order and width mixed */

static void swap_entries(msgpack_object_map *map, uint32_t a, uint32_t b)
{
	msgpack_object_kv kept = map->ptr[a];

	map->ptr[a] = map->ptr[b];
	map->ptr[b] = kept;
}

/* Every order of fields after the envelope means the same. */
static void fields_in_any_order_read_alike(void **state)
{
	struct kvt_rng rng = {.state = kvt_seed()};
	static uint8_t out[KVW_MAX_MESSAGE_BYTES];
	uint32_t i, k;

	(void)state;
	for (i = 0; i < wire_type_count * 40; i++) {
		const struct wire_type *type = &wire_types[i % wire_type_count];
		struct wire_arena arena = {0};
		struct wire_source source = {.arena = &arena, .index = type->type};
		union kvw_any message;
		msgpack_unpacked unpacked;
		msgpack_object_map *map;
		msgpack_sbuffer buffer;
		msgpack_packer packer;
		int length;

		type->fill(&message, &source);
		length = kvw_encode(type->type, 9, &message, out, sizeof(out));
		msgpack_unpacked_init(&unpacked);
		msgpack_unpack_next(&unpacked, (const char *)out, (size_t)length, NULL);
		map = &unpacked.data.via.map;
		for (k = 2; k + 1 < map->size; k++)
			swap_entries(map, k, k + (uint32_t)kvt_rng_below(&rng, map->size - k));
		msgpack_sbuffer_init(&buffer);
		msgpack_packer_init(&packer, &buffer, msgpack_sbuffer_write);
		msgpack_pack_object(&packer, unpacked.data);
		check_read_back(type, 9, (const uint8_t *)buffer.data, buffer.size, &message, &arena);
		msgpack_sbuffer_destroy(&buffer);
		msgpack_unpacked_destroy(&unpacked);
		wire_free(&arena);
	}
}

/* Bytes of no meaning: our reader accepts nothing that msgpack-c calls malformed. */
static void what_is_accepted_is_msgpack(void **state)
{
	struct kvt_rng rng = {.state = kvt_seed()};
	uint32_t accepted = 0;
	uint32_t i;

	(void)state;
	for (i = 0; i < 200000; i++) {
		/*
		 * The envelope of a message with two number fields, then six random bytes from the tags that
		 * matter.
		 */
		static const uint8_t tags[] = {0x02, 0x03, 0x04, 0xa0, 0xa1, 0x41, 0x90, 0x91,
					       0x80, 0x81, 0xcc, 0xcd, 0xd0, 0x00, 0xff, 0xc4};
		uint8_t bytes[11] = {0x82, 0x00, 0x2b, 0x01, 0x05};
		size_t length = 5 + (size_t)kvt_rng_below(&rng, 7);
		struct kvw_envelope envelope;
		union kvw_any message;
		size_t k;

		for (k = 5; k < length; k++)
			bytes[k] = tags[kvt_rng_below(&rng, sizeof(tags))];
		bytes[0] = (uint8_t)(0x82 + kvt_rng_below(&rng, 4));
		if (kvw_decode(bytes, length, &envelope, &message) == 0) {
			msgpack_unpacked unpacked;
			size_t end = 0;

			msgpack_unpacked_init(&unpacked);
			assert_int_equal(msgpack_unpack_next(&unpacked, (const char *)bytes, length, &end),
					 MSGPACK_UNPACK_SUCCESS);
			assert_int_equal(end, length);
			msgpack_unpacked_destroy(&unpacked);
			accepted++;
		}
	}
	assert_true(accepted > 100);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_messages_read_alike_by_both_readers),
		cmocka_unit_test(fields_in_any_order_read_alike),
		cmocka_unit_test(what_is_accepted_is_msgpack),
	};

	kvt_watchdog(100);
	return cmocka_run_group_tests_name("wire.random", tests, NULL, NULL);
}
