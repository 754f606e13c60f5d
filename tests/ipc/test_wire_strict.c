/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the reader refuses and accepts, one case each. The cases are written in msgpack by hand; messages used:
 * DRAIN (10: U tail), HELLO (2: B nonce, S name), CHECK_OK (43: U, U, list of TEXT), BLOCKS_OK (39: BLOCK holds
 * the only signed field).
 */
#include "support.h"

#include "ipc/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kvpool/error.h"

struct strict_case {
	const char *what;
	const char *bytes;
	size_t length;
};
#define CASE(what, literal)                                                                                  \
	{                                                                                                    \
		what, literal, sizeof(literal) - 1                                                           \
	}

/* Decodes from memory that ends where the message does. */
static int decode(const void *bytes, size_t length, struct kvw_envelope *envelope, union kvw_any *message)
{
	uint8_t *exact = malloc(length ? length : 1);
	int ret;

	assert_non_null(exact);
	memcpy(exact, bytes, length);
	ret = kvw_decode(exact, length, envelope, message);
	free(exact);
	return ret;
}

/* Nothing is written, the envelope apart. */
static void check_refused(const struct strict_case *cases, size_t count, bool envelope_known)
{
	size_t i;

	for (i = 0; i < count; i++) {
		struct kvw_envelope envelope = {.type = 77, .sequence = 78};
		union kvw_any message, before;

		memset(&message, 0xa5, sizeof(message));
		memset(&before, 0xa5, sizeof(before));
		if (decode(cases[i].bytes, cases[i].length, &envelope, &message) != -KVP_EPROTO)
			fail_msg("accepted: %s", cases[i].what);
		assert_memory_equal(&message, &before, sizeof(message));
		if (envelope_known)
			assert_true(envelope.type != 77 && envelope.sequence == 5);
		else
			assert_true(envelope.type == 77 && envelope.sequence == 78);
	}
}
#define CHECK_REFUSED(cases, envelope_known)                                                                 \
	check_refused(cases, sizeof(cases) / sizeof((cases)[0]), envelope_known)

static void refuses_what_does_not_begin_with_type_and_sequence(void **state)
{
	static const struct strict_case cases[] = {
		CASE("nothing", ""),
		CASE("an integer", "\x0a"),
		CASE("nil", "\xc0"),
		CASE("a tag that is never used", "\xc1"),
		CASE("an array", "\x94\x00\x0a\x01\x05"),
		CASE("an array of 2^27 elements in five bytes", "\xdd\x07\xff\xff\xff"),
		CASE("a map of 2^32 entries in five bytes", "\xdf\xff\xff\xff\xff"),
		CASE("an empty map", "\x80"),
		CASE("a type without a sequence", "\x81\x00\x0a"),
		CASE("a sequence without a type", "\x81\x01\x05"),
		CASE("the sequence first", "\x82\x01\x05\x00\x0a"),
		CASE("a field before the sequence", "\x83\x00\x0a\x02\x05\x01\x05"),
		CASE("the type twice", "\x82\x00\x0a\x00\x0a"),
		CASE("a negative type", "\x82\x00\xff\x01\x05"),
		CASE("a type above 32 bits", "\x82\x00\xcf\x00\x00\x00\x01\x00\x00\x00\x0a\x01\x05"),
		CASE("a type in text", "\x82\x00\xa1\x0a\x01\x05"),
		CASE("a key in text", "\x82\xa1\x00\x0a\x01\x05"),
		CASE("a negative sequence", "\x82\x00\x0a\x01\xff"),
		CASE("a sequence that is a float", "\x82\x00\x0a\x01\xca\x3f\x80\x00\x00"),
	};

	(void)state;
	CHECK_REFUSED(cases, false);
}

static void refuses_unknown_types_and_tells_which(void **state)
{
	static const struct strict_case cases[] = {
		CASE("type 0", "\x82\x00\x00\x01\x05"),
		CASE("type 16", "\x82\x00\x10\x01\x05"),
		CASE("the answer to a reserved request", "\x82\x00\x41\x01\x05"),
		CASE("type 2^32 - 1", "\x82\x00\xce\xff\xff\xff\xff\x01\x05"),
	};

	(void)state;
	CHECK_REFUSED(cases, true);
}

static void refuses_fields_that_the_message_does_not_have(void **state)
{
	static const struct strict_case cases[] = {
		CASE("an unknown key", "\x83\x00\x0a\x01\x05\x03\x01"),
		CASE("the type again", "\x83\x00\x0a\x01\x05\x00\x0a"),
		CASE("the sequence again", "\x83\x00\x0a\x01\x05\x01\x05"),
		CASE("a key above a byte", "\x83\x00\x0a\x01\x05\xcd\x01\x02\x01"),
		CASE("a negative key", "\x83\x00\x0a\x01\x05\xfe\x01"),
		CASE("a key in text", "\x83\x00\x0a\x01\x05\xa1\x02\x01"),
		CASE("a field of a message without any", "\x83\x00\x20\x01\x05\x02\x01"),
		CASE("a field twice, as many entries as fields",
		     "\x84\x00\x2c\x01\x05\x02\xa1\x41\x02\xa1\x41"),
		CASE("a field twice", "\x84\x00\x24\x01\x05\x02\x01\x02\x01"),
		CASE("a field twice, further on", "\x85\x00\x2b\x01\x05\x02\x01\x03\x01\x02\x01"),
		CASE("more entries than fields", "\x84\x00\x0a\x01\x05\x02\x01\x03\x01"),
		CASE("2^32 - 1 entries", "\xdf\xff\xff\xff\xff\x00\x0a\x01\x05\x02\x01"),
		CASE("fewer fields than entries", "\x83\x00\x0a\x01\x05"),
		CASE("a key without its value", "\x83\x00\x0a\x01\x05\x02"),
		CASE("a trailing byte", "\x83\x00\x0a\x01\x05\x02\x01\x00"),
		CASE("a trailing byte after an empty message", "\x82\x00\x20\x01\x05\xc0"),
	};

	(void)state;
	CHECK_REFUSED(cases, true);
}

static void refuses_numbers_of_another_kind(void **state)
{
#define U(literal) "\x83\x00\x0a\x01\x05\x02" literal
#define I(literal) "\x83\x00\x27\x01\x05\x02\x91\x81\x06" literal
	static const struct strict_case cases[] = {
		CASE("nil for U", U("\xc0")),
		CASE("false for U", U("\xc2")),
		CASE("true for U", U("\xc3")),
		CASE("a float for U", U("\xca\x00\x00\x00\x00")),
		CASE("a double for U", U("\xcb\x00\x00\x00\x00\x00\x00\x00\x00")),
		CASE("text for U", U("\xa1\x31")),
		CASE("bytes for U", U("\xc4\x01\x01")),
		CASE("an array for U", U("\x91\x01")),
		CASE("a map for U", U("\x80")),
		CASE("an extension for U", U("\xd4\x01\x00")),
		CASE("a long extension for U", U("\xc7\x01\x01\x00")),
		CASE("-1 for U", U("\xff")),
		CASE("-32 for U", U("\xe0")),
		CASE("-1 in 8 bits for U", U("\xd0\xff")),
		CASE("-1 in 16 bits for U", U("\xd1\xff\xff")),
		CASE("-1 in 32 bits for U", U("\xd2\xff\xff\xff\xff")),
		CASE("-2^63 for U", U("\xd3\x80\x00\x00\x00\x00\x00\x00\x00")),
		CASE("a cut 16-bit number", U("\xcd\x01")),
		CASE("a cut 64-bit number", U("\xcf\x01\x01\x01\x01\x01\x01\x01")),
		CASE("2^63 for I", I("\xcf\x80\x00\x00\x00\x00\x00\x00\x00")),
		CASE("a float for I", I("\xca\x00\x00\x00\x00")),
		CASE("nil for I", I("\xc0")),
	};

	(void)state;
	CHECK_REFUSED(cases, true);
#undef U
#undef I
}

static void refuses_text_that_is_none(void **state)
{
#define S(literal) "\x83\x00\x02\x01\x05\x08" literal
#define A63 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	static const struct strict_case cases[] = {
		CASE("bytes for text", S("\xc4\x01\x41")),
		CASE("a number for text", S("\x41")),
		CASE("nil for text", S("\xc0")),
		CASE("a NUL", S("\xa3\x41\x00\x42")),
		CASE("a NUL at the end", S("\xa2\x41\x00")),
		CASE("a lone continuation byte", S("\xa1\x80")),
		CASE("an overlong NUL", S("\xa2\xc0\x80")),
		CASE("an overlong letter", S("\xa2\xc1\x81")),
		CASE("an overlong character of three bytes", S("\xa3\xe0\x9f\xbf")),
		CASE("an overlong character of four bytes", S("\xa4\xf0\x8f\xbf\xbf")),
		CASE("a surrogate", S("\xa3\xed\xa0\x80")),
		CASE("the last surrogate", S("\xa3\xed\xbf\xbf")),
		CASE("a character above U+10FFFF", S("\xa4\xf4\x90\x80\x80")),
		CASE("a lead byte that no character has", S("\xa4\xf5\x80\x80\x80")),
		CASE("0xff", S("\xa1\xff")),
		CASE("a character cut by the text's end", S("\xa2\x41\xc3")),
		CASE("a character cut in its middle", S("\xa3\xe2\x82\x41")),
		CASE("text longer than the message", S("\xa5\x41\x42")),
		CASE("2^32 - 1 bytes of text", S("\xdb\xff\xff\xff\xff\x41")),
		CASE("a cut length", S("\xda\x01")),
		CASE("64 bytes where 63 are the most", S("\xd9\x40") A63 "a"),
	};

	(void)state;
	CHECK_REFUSED(cases, true);
}

static void refuses_bytes_that_are_none(void **state)
{
#define B(literal) "\x83\x00\x02\x01\x05\x09" literal
	static const struct strict_case cases[] = {
		CASE("text for bytes", B("\xa1\x41")),
		CASE("an array for bytes", B("\x91\x41")),
		CASE("17 bytes where 16 are the most", B("\xc4\x11") "0123456789abcdefg"),
		CASE("17 bytes in a longer form", B("\xc5\x00\x11") "0123456789abcdefg"),
		CASE("bytes longer than the message", B("\xc4\x10") "0123"),
		CASE("2^32 - 1 bytes", B("\xc6\xff\xff\xff\xff\x00")),
	};

	(void)state;
	CHECK_REFUSED(cases, true);
}

static void refuses_lists_that_are_none(void **state)
{
#define L(literal) "\x83\x00\x2b\x01\x05\x04" literal
	static const struct strict_case cases[] = {
		CASE("a map for a list", L("\x80")),
		CASE("nil for a list", L("\xc0")),
		CASE("an item that is a number", L("\x91\x01")),
		CASE("an item that is nil", L("\x91\xc0")),
		CASE("an item that is a list", L("\x91\x91\x80")),
		CASE("a list inside an item", L("\x91\x81\x00\x90")),
		CASE("a map inside an item", L("\x91\x81\x00\x80")),
		CASE("an unknown key in an item", L("\x91\x81\x01\xa1\x41")),
		CASE("a key twice in an item", L("\x91\x82\x00\xa1\x41\x00\xa1\x41")),
		CASE("2^32 - 1 entries in an item", L("\x91\xdf\xff\xff\xff\xff\x00\xa1\x41")),
		CASE("an item without its value", L("\x91\x81\x00")),
		CASE("fewer items than said", L("\x92\x80")),
		CASE("more items than said", L("\x91\x80\x80")),
		CASE("2^32 - 1 items", L("\xdd\xff\xff\xff\xff\x80")),
		CASE("65 items where 64 are the most",
		     L("\xdc\x00\x41") "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80"
				       "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80"
				       "\x80\x80\x80"
				       "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80"
				       "\x80\x80\x80"
				       "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80"),
		CASE("31 arrays in each other",
		     L("\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91"
		       "\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x90")),
	};

	(void)state;
	CHECK_REFUSED(cases, true);
}

static void refuses_messages_above_the_limit(void **state)
{
	uint8_t *bytes = calloc(1, KVW_MAX_MESSAGE_BYTES + 1);
	struct kvw_envelope envelope;
	union kvw_any message;

	(void)state;
	assert_non_null(bytes);
	memcpy(bytes, "\x82\x00\x20\x01\x05", 5);
	assert_int_equal(kvw_decode(bytes, 5, &envelope, &message), 0);
	assert_int_equal(kvw_decode(bytes, KVW_MAX_MESSAGE_BYTES + 1, &envelope, &message), -KVP_EPROTO);
	assert_int_equal(kvw_decode(NULL, 0, &envelope, &message), -KVP_EPROTO);
	free(bytes);
}

static void names_reserved_requests(void **state)
{
	static const uint32_t types[] = {KVW_MSG_JOIN,      KVW_MSG_DRAINED, KVW_MSG_RECALL,
					 KVW_MSG_POOL_OPEN, KVW_MSG_COPY_IN, KVW_MSG_NS_ADVANCE};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		/* A later version's fields are behind the envelope: they don't matter. */
		const uint8_t bytes[] = {0x83, 0x00, (uint8_t)types[i], 0x01, 0x05, 0x02, 0x93, 0x01};
		struct kvw_envelope envelope = {0};
		union kvw_any message;

		assert_int_equal(decode(bytes, sizeof(bytes), &envelope, &message), -KVP_ERESERVED);
		assert_int_equal(envelope.type, types[i]);
		assert_int_equal(envelope.sequence, 5);
		assert_non_null(kvw_message_name(types[i]));
		assert_int_equal(kvw_encode(types[i], 1, &message, (uint8_t[64]){0}, 64), -EINVAL);
	}
	assert_string_equal(kvw_message_name(KVW_MSG_HELLO), "HELLO");
	assert_string_equal(kvw_message_name(KVW_MSG_JOIN), "JOIN");
	assert_null(kvw_message_name(0));
	assert_null(kvw_message_name(65));
}

static void accepts_every_width(void **state)
{
#define U(literal) CASE(literal, "\x83\x00\x0a\x01\x05\x02" literal)
	static const struct strict_case cases[] = {
		U("\x07"),
		U("\xcc\x07"),
		U("\xcd\x00\x07"),
		U("\xce\x00\x00\x00\x07"),
		U("\xcf\x00\x00\x00\x00\x00\x00\x00\x07"),
		U("\xd0\x07"),
		U("\xd1\x00\x07"),
		U("\xd2\x00\x00\x00\x07"),
		U("\xd3\x00\x00\x00\x00\x00\x00\x00\x07"),
		CASE("map16", "\xde\x00\x03\x00\x0a\x01\x05\x02\x07"),
		CASE("map32", "\xdf\x00\x00\x00\x03\x00\x0a\x01\x05\x02\x07"),
		CASE("wide keys",
		     "\x83\xcd\x00\x00\xcc\x0a\xd0\x01\xcc\x05\xcf\x00\x00\x00\x00\x00\x00\x00\x02\x07"),
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct kvw_envelope envelope;
		union kvw_any message;

		if (decode(cases[i].bytes, cases[i].length, &envelope, &message))
			fail_msg("refused: case %zu", i);
		assert_true(message.DRAIN.tail == 7 && envelope.type == KVW_MSG_DRAIN &&
			    envelope.sequence == 5);
	}
#undef U
}

static int64_t decode_parent(const char *bytes, size_t length)
{
	struct kvw_envelope envelope;
	struct kvw_item_BLOCK block;
	union kvw_any message;
	uint8_t copy[64];

	memcpy(copy, bytes, length);
	assert_int_equal(kvw_decode(copy, length, &envelope, &message), 0);
	assert_int_equal(kvw_list_next(&message.BLOCKS_OK.blocks, KVW_ITEM_BLOCK, &block), 1);
	return block.parent;
}

static void reads_signed_numbers_of_every_width(void **state)
{
#define PARENT(literal)                                                                                      \
	decode_parent("\x83\x00\x27\x01\x05\x02\x91\x81\x06" literal,                                        \
		      sizeof("\x83\x00\x27\x01\x05\x02\x91\x81\x06" literal) - 1)
	(void)state;
	assert_true(PARENT("\xff") == -1);
	assert_true(PARENT("\xe0") == -32);
	assert_true(PARENT("\xd0\x80") == -128);
	assert_true(PARENT("\xd1\xff\xff") == -1);
	assert_true(PARENT("\xd1\x80\x00") == -32768);
	assert_true(PARENT("\xd2\x80\x00\x00\x00") == INT32_MIN);
	assert_true(PARENT("\xd3\x80\x00\x00\x00\x00\x00\x00\x00") == INT64_MIN);
	assert_true(PARENT("\xcf\x7f\xff\xff\xff\xff\xff\xff\xff") == INT64_MAX);
	assert_true(PARENT("\xcc\xff") == 255);
	assert_true(PARENT("\x05") == 5);
#undef PARENT
}

static void accepts_text_and_bytes_in_every_form(void **state)
{
	static const struct strict_case cases[] = {
		CASE("fixstr, bin8", "\x84\x00\x02\x01\x05\x08\xa2\xc3\xa9\x09\xc4\x02\x00\xff"),
		CASE("str8, bin16", "\x84\x00\x02\x01\x05\x08\xd9\x02\xc3\xa9\x09\xc5\x00\x02\x00\xff"),
		CASE("str16, bin32",
		     "\x84\x00\x02\x01\x05\x08\xda\x00\x02\xc3\xa9\x09\xc6\x00\x00\x00\x02\x00\xff"),
		CASE("str32, other order",
		     "\x84\x00\x02\x01\x05\x09\xc4\x02\x00\xff\x08\xdb\x00\x00\x00\x02\xc3\xa9"),
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct kvw_envelope envelope;
		union kvw_any message;
		char name[3];

		assert_int_equal(
			kvw_decode((const uint8_t *)cases[i].bytes, cases[i].length, &envelope, &message), 0);
		assert_string_equal(kvw_text_copy(message.HELLO.name, name, sizeof(name)), "\xc3\xa9");
		assert_int_equal(message.HELLO.nonce.length, 2);
		assert_memory_equal(message.HELLO.nonce.at, "\x00\xff", 2);
	}
}

static void absent_and_explicit_zero_are_the_same(void **state)
{
	static const struct strict_case cases[] = {
		CASE("absent", "\x82\x00\x2b\x01\x05"),
		CASE("zero", "\x85\x00\x2b\x01\x05\x02\x00\x03\xcd\x00\x00\x04\x90"),
		CASE("an empty list in a wide form", "\x83\x00\x2b\x01\x05\x04\xdd\x00\x00\x00\x00"),
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct kvw_envelope envelope;
		struct kvw_item_TEXT item;
		union kvw_any message;

		assert_int_equal(decode(cases[i].bytes, cases[i].length, &envelope, &message), 0);
		assert_true(message.CHECK_OK.blocks == 0 && message.CHECK_OK.faults == 0);
		assert_int_equal(message.CHECK_OK.texts.count, 0);
		assert_int_equal(kvw_list_next(&message.CHECK_OK.texts, KVW_ITEM_TEXT, &item), 0);
	}
}

static void items_are_read_in_order_and_start_from_zero(void **state)
{
	static const uint8_t bytes[] =
		"\x83\x00\x2b\x01\x05\x04\xdc\x00\x03\x81\x00\xa1\x41\x80\x81\x00\xa1\x42";
	struct kvw_envelope envelope;
	struct kvw_item_TEXT item;
	union kvw_any message;
	char text[8];

	(void)state;
	assert_int_equal(kvw_decode(bytes, sizeof(bytes) - 1, &envelope, &message), 0);
	assert_int_equal(message.CHECK_OK.texts.count, 3);
	assert_int_equal(kvw_list_next(&message.CHECK_OK.texts, KVW_ITEM_TEXT, &item), 1);
	assert_string_equal(kvw_text_copy(item.text, text, sizeof(text)), "A");
	assert_int_equal(kvw_list_next(&message.CHECK_OK.texts, KVW_ITEM_TEXT, &item), 1);
	assert_int_equal(item.text.length, 0);
	assert_int_equal(kvw_list_next(&message.CHECK_OK.texts, KVW_ITEM_TEXT, &item), 1);
	assert_string_equal(kvw_text_copy(item.text, text, sizeof(text)), "B");
	assert_int_equal(kvw_list_next(&message.CHECK_OK.texts, KVW_ITEM_TEXT, &item), 0);
	assert_int_equal(kvw_list_next(&message.CHECK_OK.texts, KVW_ITEM_TEXT, &item), 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(refuses_what_does_not_begin_with_type_and_sequence),
		cmocka_unit_test(refuses_unknown_types_and_tells_which),
		cmocka_unit_test(refuses_fields_that_the_message_does_not_have),
		cmocka_unit_test(refuses_numbers_of_another_kind),
		cmocka_unit_test(refuses_text_that_is_none),
		cmocka_unit_test(refuses_bytes_that_are_none),
		cmocka_unit_test(refuses_lists_that_are_none),
		cmocka_unit_test(refuses_messages_above_the_limit),
		cmocka_unit_test(names_reserved_requests),
		cmocka_unit_test(accepts_every_width),
		cmocka_unit_test(reads_signed_numbers_of_every_width),
		cmocka_unit_test(accepts_text_and_bytes_in_every_form),
		cmocka_unit_test(absent_and_explicit_zero_are_the_same),
		cmocka_unit_test(items_are_read_in_order_and_start_from_zero),
	};

	kvt_watchdog(60);
	return cmocka_run_group_tests_name("wire.strict", tests, NULL, NULL);
}
