/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a first message must be, what is refused and goes on, what ends the session.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <kvpool/error.h>

#include "ipc/frame.h"
#include "ipc/hash.h"
#include "raw.h"
#include "session_groups.h"

static void hello_names_session_and_incarnation(void **state)
{
	struct kvt_raw *first = kvt_raw_hello(*state);
	struct kvt_raw *second = kvt_raw_hello(*state);
	struct kvw_msg_HELLO again = kvt_hello_message();
	struct kvt_raw *third = kvt_raw_connect(*state);

	assert_int_not_equal(first->incarnation, 0);
	assert_int_equal(first->incarnation, second->incarnation);
	assert_true(second->session > first->session);
	again.incarnation = first->incarnation;
	assert_int_equal(kvt_raw_ask(third, KVW_MSG_HELLO, &again), 0);
	kvt_raw_close(first);
	kvt_raw_close(second);
	kvt_raw_close(third);
}

/* A hello that must end its session with this error. */
static void refuse_hello(void **state, const struct kvw_msg_HELLO *hello, int error)
{
	struct kvt_raw *raw = kvt_raw_connect(*state);

	kvt_raw_send_message(raw, KVW_MSG_HELLO, hello);
	kvt_raw_must_be_revoked(raw, error);
	kvt_raw_close(raw);
}

static void hello_of_another_version_is_refused(void **state)
{
	struct kvw_msg_HELLO hello = kvt_hello_message();

	hello.version_min = KVW_VERSION_MAX + 1;
	hello.version_max = KVW_VERSION_MAX + 5;
	refuse_hello(state, &hello, -KVP_EVERSION);
}

static void hello_with_reserved_features_is_refused(void **state)
{
	struct kvw_msg_HELLO hello = kvt_hello_message();

	hello.features = 1;
	refuse_hello(state, &hello, -KVP_ERESERVED);
}

static void hello_to_another_incarnation_is_refused(void **state)
{
	struct kvw_msg_HELLO hello = kvt_hello_message();

	hello.incarnation = 12345;
	refuse_hello(state, &hello, -KVP_EINCARNATION);
}

static void hello_with_another_hash_is_refused(void **state)
{
	uint8_t probe[KVW_SHA256_BYTES];
	struct kvw_msg_HELLO hello = kvt_hello_message();

	memcpy(probe, hello.probe.at, sizeof(probe));
	probe[31] ^= 1;
	hello.probe = kvw_bytes_of(probe, sizeof(probe));
	refuse_hello(state, &hello, -KVP_EHASH);
	hello.probe = kvw_bytes_of(probe, 31);
	refuse_hello(state, &hello, -KVP_EHASH);
	hello = kvt_hello_message();
	hello.hash_algorithm = 2;
	refuse_hello(state, &hello, -KVP_EHASH);
}

static void first_message_must_be_hello(void **state)
{
	struct kvt_raw *raw = kvt_raw_connect(*state);
	const struct kvw_msg_STATUS status = {.unused = 0};

	kvt_raw_send_message(raw, KVW_MSG_STATUS, &status);
	kvt_raw_must_be_revoked(raw, -KVP_EPROTO);
	kvt_raw_close(raw);
}

static void second_hello_ends_the_session(void **state)
{
	struct kvt_raw *raw = kvt_raw_hello(*state);
	const struct kvw_msg_HELLO hello = kvt_hello_message();

	kvt_raw_send_message(raw, KVW_MSG_HELLO, &hello);
	kvt_raw_must_be_revoked(raw, -KVP_EPROTO);
	kvt_raw_close(raw);
}

static void silence_ends_the_session(void **state)
{
	struct kvt_raw *raw = kvt_raw_connect(*state);

	kvt_raw_must_be_revoked(raw, -ETIMEDOUT);
	kvt_raw_close(raw);
}

/* {0: type, 1: 7}, and what else the bytes are made to be. */
static void malformed_messages_end_the_session(void **state)
{
	static const struct {
		uint8_t bytes[12];
		size_t length;
	} messages[] = {
		{{0xc1}, 1},                                     /* no msgpack at all */
		{{0x82, 0x00, 0x20, 0x01}, 4},                   /* cut */
		{{0x82, 0x00, 0x20, 0x01, 0x07, 0x00}, 6},       /* a byte too many */
		{{0x83, 0x00, 0x20, 0x01, 0x07, 0x63, 0x01}, 7}, /* unknown key */
		{{0x83, 0x00, 0x20, 0x01, 0x07, 0x01, 0x07}, 7}, /* a key twice */
		{{0x82, 0x00, 0xa1, 0x61, 0x01, 0x07}, 6},       /* type as text */
		{{0x82, 0x00, 0x7f, 0x01, 0x07}, 5},             /* unknown type */
		{{0x82, 0x00, 0x21, 0x01, 0x07}, 5},             /* an answer */
		{{0x90}, 1},                                     /* a list */
	};
	size_t i;

	for (i = 0; i < sizeof(messages) / sizeof(messages[0]); i++) {
		struct kvt_raw *raw = kvt_raw_hello(*state);

		kvt_raw_send(raw, messages[i].bytes, messages[i].length);
		kvt_raw_must_be_revoked(raw, -KVP_EPROTO);
		kvt_raw_close(raw);
	}
}

static void too_long_message_ends_the_session(void **state)
{
	static uint8_t bytes[KVW_MAX_MESSAGE_BYTES + 1];
	struct kvt_raw *raw = kvt_raw_hello(*state);

	assert_int_equal(send(raw->fd, bytes, sizeof(bytes), 0), sizeof(bytes));
	kvt_raw_must_be_revoked(raw, -EMSGSIZE);
	kvt_raw_close(raw);
}

static void reserved_messages_are_refused_by_name(void **state)
{
	static const struct {
		uint8_t type;
		const char *name;
	} reserved[] = {{KVW_MSG_JOIN, "JOIN"},       {KVW_MSG_DRAINED, "DRAINED"},
			{KVW_MSG_RECALL, "RECALL"},   {KVW_MSG_POOL_OPEN, "POOL_OPEN"},
			{KVW_MSG_COPY_IN, "COPY_IN"}, {KVW_MSG_NS_ADVANCE, "NS_ADVANCE"}};
	struct kvt_raw *raw = kvt_raw_hello(*state);
	size_t i;

	for (i = 0; i < sizeof(reserved) / sizeof(reserved[0]); i++) {
		const uint8_t bytes[] = {0x82, 0x00, reserved[i].type, 0x01, 0x07};

		kvt_raw_send(raw, bytes, sizeof(bytes));
		assert_int_equal(kvt_raw_receive(raw), KVW_MSG_ERROR);
		assert_int_equal(raw->answer.ERROR.error, KVP_ERESERVED);
		assert_non_null(strstr(raw->error, reserved[i].name));
	}
	kvt_pool_state(raw);
	kvt_raw_close(raw);
}

/* What the daemon's answers find no room for ends the session; it never blocks the loop. */
static void peer_that_does_not_read_is_ended(void **state)
{
	struct kvt_raw *deaf = kvt_raw_hello(*state);
	struct kvt_raw *other = kvt_raw_hello(*state);
	const uint8_t status[] = {0x82, 0x00, KVW_MSG_STATUS, 0x01, 0x07};
	int ret;

	do {
		ret = kvw_send(deaf->fd, status, sizeof(status), NULL, 0);
		kvt_pool_state(other);
	} while (!ret || ret == -EAGAIN);
	assert_true(kvt_daemon_logged(*state, "does not read its answers"));
	kvt_raw_close(deaf);
	kvt_raw_close(other);
}

static void sessions_are_limited(void **state)
{
	static const char *const options[] = {KVT_SMALL_POOL, "--max-sessions=3", NULL};
	struct kvt_daemon *daemon = kvt_daemon_start(options);
	struct kvt_raw *raws[3];
	struct kvt_raw *fourth;
	int i;

	(void)state;
	for (i = 0; i < 3; i++)
		raws[i] = kvt_raw_hello(daemon);
	fourth = kvt_raw_connect(daemon);
	kvt_raw_must_be_revoked(fourth, -KVP_ELIMIT);
	assert_non_null(strstr(fourth->error, "max_sessions"));
	kvt_raw_close(fourth);
	kvt_raw_close(raws[2]);
	while (kvt_client_state(raws[0], raws[1]->session + 1).found)
		;
	raws[2] = kvt_raw_hello(daemon);
	for (i = 0; i < 3; i++)
		kvt_raw_close(raws[i]);
	kvt_daemon_stop(daemon);
}

int kvt_group_greeting(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hello_names_session_and_incarnation),
		cmocka_unit_test(hello_of_another_version_is_refused),
		cmocka_unit_test(hello_with_reserved_features_is_refused),
		cmocka_unit_test(hello_to_another_incarnation_is_refused),
		cmocka_unit_test(hello_with_another_hash_is_refused),
		cmocka_unit_test(first_message_must_be_hello),
		cmocka_unit_test(second_hello_ends_the_session),
		cmocka_unit_test(silence_ends_the_session),
		cmocka_unit_test(malformed_messages_end_the_session),
		cmocka_unit_test(too_long_message_ends_the_session),
		cmocka_unit_test(reserved_messages_are_refused_by_name),
		cmocka_unit_test(peer_that_does_not_read_is_ended),
		cmocka_unit_test(sessions_are_limited),
	};

	return cmocka_run_group_tests_name("greeting", tests, kvt_start_small, kvt_stop_small);
}
