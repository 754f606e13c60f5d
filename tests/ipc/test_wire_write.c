/* SPDX-License-Identifier: Apache-2.0 */
/* What the writer refuses: what the reader would, what does not fit; and the helpers for text. */
#include "support.h"

#include "ipc/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int encode_name(struct kvw_text name)
{
	struct kvw_msg_POOL message = {.name = name};
	uint8_t out[256];

	return kvw_encode(KVW_MSG_POOL, 1, &message, out, sizeof(out));
}

static void the_writer_refuses_what_the_reader_would(void **state)
{
	char longest[KVW_MAX_NAME_BYTES + 1];
	uint8_t nonce[17] = {1};
	struct kvw_msg_HELLO hello = {.nonce = kvw_bytes_of(nonce, 17)};
	struct kvw_item_TEXT texts[65] = {0};
	struct kvw_msg_CHECK_OK check = {.texts = kvw_list_of(texts, 65)};
	uint8_t out[256];

	(void)state;
	memset(longest, 'x', sizeof(longest));
	assert_true(encode_name((struct kvw_text){longest, KVW_MAX_NAME_BYTES}) > 0);
	assert_int_equal(encode_name((struct kvw_text){longest, KVW_MAX_NAME_BYTES + 1}), -EINVAL);
	assert_int_equal(encode_name((struct kvw_text){"a\0b", 3}), -EINVAL);
	assert_int_equal(encode_name((struct kvw_text){"\xc3", 1}), -EINVAL);
	assert_int_equal(encode_name((struct kvw_text){NULL, 1}), -EINVAL);
	assert_true(encode_name((struct kvw_text){NULL, 0}) > 0);
	assert_int_equal(kvw_encode(KVW_MSG_HELLO, 1, &hello, out, sizeof(out)), -EINVAL);
	hello.nonce = kvw_bytes_of(nonce, 16);
	assert_true(kvw_encode(KVW_MSG_HELLO, 1, &hello, out, sizeof(out)) > 0);
	hello.nonce = kvw_bytes_of(NULL, 16);
	assert_int_equal(kvw_encode(KVW_MSG_HELLO, 1, &hello, out, sizeof(out)), -EINVAL);
	assert_int_equal(kvw_encode(KVW_MSG_CHECK_OK, 1, &check, out, sizeof(out)), -EINVAL);
	check.texts = kvw_list_of(texts, 64);
	assert_true(kvw_encode(KVW_MSG_CHECK_OK, 1, &check, out, sizeof(out)) > 0);
	check.texts = kvw_list_of(NULL, 1);
	assert_int_equal(kvw_encode(KVW_MSG_CHECK_OK, 1, &check, out, sizeof(out)), -EINVAL);
	assert_int_equal(kvw_encode(0, 1, &check, out, sizeof(out)), -EINVAL);
	assert_int_equal(kvw_encode(999, 1, &check, out, sizeof(out)), -EINVAL);
}

static void a_small_buffer_is_never_overrun(void **state)
{
	struct kvw_item_TEXT texts[3] = {{kvw_text_of("one")}, {{0}}, {kvw_text_of("three")}};
	struct kvw_msg_CHECK_OK message = {.blocks = 300, .faults = 2, .texts = kvw_list_of(texts, 3)};
	uint8_t whole[128];
	int length = kvw_encode(KVW_MSG_CHECK_OK, 1, &message, whole, sizeof(whole));
	int capacity;

	(void)state;
	assert_true(length > 20);
	for (capacity = 0; capacity <= length; capacity++) {
		uint8_t *exact = malloc(capacity ? (size_t)capacity : 1);
		int ret;

		assert_non_null(exact);
		ret = kvw_encode(KVW_MSG_CHECK_OK, 1, &message, exact, (size_t)capacity);
		assert_int_equal(ret, capacity < length ? -EMSGSIZE : length);
		if (ret > 0)
			assert_memory_equal(exact, whole, (size_t)length);
		free(exact);
	}
}

/* However large the buffer: the peer would refuse it. */
static void nothing_above_the_limit_is_written(void **state)
{
	static struct kvw_item_PLANE planes[KVW_MAX_PLANES];
	static uint8_t out[4 * KVW_MAX_MESSAGE_BYTES];
	struct kvw_msg_POOL_OK message = {.planes = kvw_list_of(planes, KVW_MAX_PLANES)};
	size_t i;

	(void)state;
	assert_true(kvw_encode(KVW_MSG_POOL_OK, 1, &message, out, sizeof(out)) > 0);
	for (i = 0; i < KVW_MAX_PLANES; i++)
		memset(&planes[i], 0xff, sizeof(planes[i]));
	assert_int_equal(kvw_encode(KVW_MSG_POOL_OK, 1, &message, out, sizeof(out)), -EMSGSIZE);
}

static void text_helpers_cut_at_whole_characters_and_at_capacity(void **state)
{
	char out[8] = "before";

	(void)state;
	assert_int_equal(kvw_text_of("name").length, 4);
	assert_int_equal(kvw_text_of("").length, 0);
	assert_int_equal(kvw_text_of(NULL).length, 0);
	assert_int_equal(kvw_text_of("ab\xe2\x82").length, 2);
	assert_int_equal(kvw_text_of("ab\xe2\x82\xac").length, 5);
	assert_string_equal(kvw_text_copy(kvw_text_of("0123456789"), out, sizeof(out)), "0123456");
	assert_string_equal(kvw_text_copy(kvw_text_of("abc"), out, sizeof(out)), "abc");
	assert_string_equal(kvw_text_copy((struct kvw_text){0}, out, sizeof(out)), "");
	memcpy(out, "before", 7);
	kvw_text_copy(kvw_text_of("abc"), out, 0);
	assert_string_equal(out, "before");
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_writer_refuses_what_the_reader_would),
		cmocka_unit_test(a_small_buffer_is_never_overrun),
		cmocka_unit_test(nothing_above_the_limit_is_written),
		cmocka_unit_test(text_helpers_cut_at_whole_characters_and_at_capacity),
	};

	kvt_watchdog(60);
	return cmocka_run_group_tests_name("unit.wire_write", tests, NULL, NULL);
}
