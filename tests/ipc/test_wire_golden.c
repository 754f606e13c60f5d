/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Golden bytes: what version 1 sends, written by make_wire_golden.py. Old and new sides of the wire meet in
 * these. Then everything that is almost a golden message: each beginning and each byte changed.
 */
#include "support.h"
#include "wire_samples.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvpool/error.h"

struct golden {
	uint8_t *bytes; /* exactly as long as the message: a read past its end is seen by the sanitizer */
	size_t length;
};

static struct golden load(const char *name)
{
	struct golden golden = {0};
	char path[512];
	char digits[3] = "";
	uint8_t buffer[KVW_MAX_MESSAGE_BYTES];
	FILE *file;

	snprintf(path, sizeof(path), "%s/wire/%s.hex", KVP_GOLDEN_DIR, name);
	file = fopen(path, "re");
	if (!file)
		fail_msg("%s is missing: run tests/ipc/make_wire_golden.py", path);
	while (golden.length < sizeof(buffer) && fscanf(file, " %2[0-9a-f]", digits) == 1)
		buffer[golden.length++] = (uint8_t)strtoul(digits, NULL, 16);
	assert_true(feof(file));
	fclose(file);
	golden.bytes = malloc(golden.length);
	assert_non_null(golden.bytes);
	memcpy(golden.bytes, buffer, golden.length);
	return golden;
}

static void fill_sample(const struct wire_type *type, union kvw_any *message, struct wire_arena *arena)
{
	struct wire_source source = {.arena = arena, .index = type->type};

	type->fill(message, &source);
}

static void every_message_has_its_golden_bytes(void **state)
{
	uint32_t i;

	(void)state;
	for (i = 0; i < wire_type_count; i++) {
		const struct wire_type *type = &wire_types[i];
		struct golden golden = load(type->name);
		struct wire_arena arena = {0};
		uint8_t out[KVW_MAX_MESSAGE_BYTES];
		union kvw_any message;
		int length;

		fill_sample(type, &message, &arena);
		length = kvw_encode(type->type, WIRE_GOLDEN_SEQUENCE, &message, out, sizeof(out));
		if (length != (int)golden.length || memcmp(out, golden.bytes, golden.length))
			fail_msg("%s: %d bytes differ from the %zu golden ones", type->name, length,
				 golden.length);
		wire_free(&arena);
		free(golden.bytes);
	}
}

static void golden_bytes_read_as_their_message(void **state)
{
	uint32_t i;

	(void)state;
	for (i = 0; i < wire_type_count; i++) {
		const struct wire_type *type = &wire_types[i];
		struct golden golden = load(type->name);
		struct wire_arena arena = {0};
		struct kvw_envelope envelope = {0};
		union kvw_any expected, message;

		fill_sample(type, &expected, &arena);
		assert_int_equal(kvw_decode(golden.bytes, golden.length, &envelope, &message), 0);
		assert_int_equal(envelope.type, type->type);
		assert_true(envelope.sequence == WIRE_GOLDEN_SEQUENCE);
		type->own(&message, &arena);
		if (!type->equal(&expected, &message))
			fail_msg("%s: the golden bytes read as another message", type->name);
		wire_free(&arena);
		free(golden.bytes);
	}
}

/* Zero fields are not sent: nothing but {0: type, 1: 7} is left. */
static void empty_messages_are_their_envelope(void **state)
{
	uint32_t i;

	(void)state;
	for (i = 0; i < wire_type_count; i++) {
		const struct wire_type *type = &wire_types[i];
		const uint8_t expected[5] = {0x82, 0x00, (uint8_t)type->type, 0x01, 0x07};
		struct wire_arena arena = {0};
		struct kvw_envelope envelope;
		union kvw_any zero, message;
		uint8_t out[16];

		memset(&zero, 0, sizeof(zero));
		assert_in_range(type->type, 1, 127);
		assert_int_equal(kvw_encode(type->type, 7, &zero, out, sizeof(out)), 5);
		assert_memory_equal(out, expected, sizeof(expected));
		assert_int_equal(kvw_decode(out, 5, &envelope, &message), 0);
		type->own(&message, &arena);
		assert_true(type->equal(&zero, &message));
		wire_free(&arena);
	}
}

static void every_truncation_is_refused(void **state)
{
	uint32_t i;

	(void)state;
	for (i = 0; i < wire_type_count; i++) {
		struct golden golden = load(wire_types[i].name);
		size_t length;

		for (length = 0; length < golden.length; length++) {
			uint8_t *cut = malloc(length ? length : 1);
			struct kvw_envelope envelope;
			union kvw_any message;

			assert_non_null(cut);
			memcpy(cut, golden.bytes, length);
			assert_int_equal(kvw_decode(cut, length, &envelope, &message), -KVP_EPROTO);
			free(cut);
		}
		free(golden.bytes);
	}
}

/* What was read must be written and read again as the same. */
static void check_accepted(const struct kvw_envelope *envelope, union kvw_any *message)
{
	const struct wire_type *type = wire_type_of(envelope->type);
	struct wire_arena arena = {0};
	static uint8_t out[KVW_MAX_MESSAGE_BYTES];
	struct kvw_envelope again_envelope;
	union kvw_any again;
	int length;

	assert_non_null(type);
	type->own(message, &arena);
	length = kvw_encode(envelope->type, envelope->sequence, message, out, sizeof(out));
	assert_true(length > 0);
	assert_int_equal(kvw_decode(out, (size_t)length, &again_envelope, &again), 0);
	assert_int_equal(again_envelope.type, envelope->type);
	assert_true(again_envelope.sequence == envelope->sequence);
	type->own(&again, &arena);
	assert_true(type->equal(message, &again));
	wire_free(&arena);
}

static void every_changed_byte_is_refused_or_means_something(void **state)
{
	uint32_t accepted = 0, refused = 0;
	uint32_t i, flip;

	(void)state;
	for (i = 0; i < wire_type_count; i++) {
		struct golden golden = load(wire_types[i].name);
		size_t at;

		for (at = 0; at < golden.length; at++) {
			for (flip = 1; flip < 256; flip++) {
				struct kvw_envelope envelope;
				union kvw_any message;
				int ret;

				golden.bytes[at] ^= (uint8_t)flip;
				ret = kvw_decode(golden.bytes, golden.length, &envelope, &message);
				if (ret == 0)
					check_accepted(&envelope, &message);
				else
					assert_true(ret == -KVP_EPROTO || ret == -KVP_ERESERVED);
				accepted += ret == 0;
				refused += ret != 0;
				golden.bytes[at] ^= (uint8_t)flip;
			}
		}
		free(golden.bytes);
	}
	/* Both happen, or the loop looked at something else. */
	assert_true(accepted > 1000 && refused > 1000);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_message_has_its_golden_bytes),
		cmocka_unit_test(golden_bytes_read_as_their_message),
		cmocka_unit_test(empty_messages_are_their_envelope),
		cmocka_unit_test(every_truncation_is_refused),
		cmocka_unit_test(every_changed_byte_is_refused_or_means_something),
	};

	kvt_watchdog(100);
	return cmocka_run_group_tests_name("wire.golden", tests, NULL, NULL);
}
