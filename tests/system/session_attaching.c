/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ATTACH and what comes with it: validation, marks, namespaces, descriptors, waiting for a pool.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <kvpool/error.h>

#include "ipc/frame.h"
#include "raw.h"
#include "session_groups.h"

/* An attach that must be refused, naming this; the session can still attach. */
static void refuse_attach(void **state, const struct kvw_msg_ATTACH *attach, int error, const char *named)
{
	const struct kvw_msg_ATTACH good = kvt_attach_message();
	struct kvt_raw *raw = kvt_raw_hello(*state);

	assert_int_equal(kvt_raw_ask(raw, KVW_MSG_ATTACH, attach), error);
	if (!strstr(raw->error, named))
		fail_msg("'%s' does not name '%s'", raw->error, named);
	assert_int_equal(kvt_raw_attach(raw, &good), 0);
	kvt_raw_close(raw);
}

static void attach_to_an_unknown_pool_is_refused(void **state)
{
	struct kvw_msg_ATTACH attach = kvt_attach_message();

	attach.pool = kvw_text_of("q");
	refuse_attach(state, &attach, -KVP_ENOPOOL, "'p'");
}

static void attach_with_reserved_fields_is_refused(void **state)
{
	const struct kvw_msg_ATTACH good = kvt_attach_message();
	struct kvw_msg_ATTACH attach = good;

	attach.role = 2;
	refuse_attach(state, &attach, -KVP_ERESERVED, "role");
	attach = good;
	attach.token = kvw_bytes_of("x", 1);
	refuse_attach(state, &attach, -KVP_ERESERVED, "token");
	attach = good;
	attach.read_only = 1;
	refuse_attach(state, &attach, -KVP_ERESERVED, "read_only");
	attach = good;
	attach.grace_ms = 1;
	refuse_attach(state, &attach, -KVP_ERESERVED, "grace_ms");
	attach = good;
	attach.numerics = 2;
	refuse_attach(state, &attach, -KVP_ERESERVED, "numerics");
}

static void attach_beyond_a_limit_is_refused(void **state)
{
	const struct kvw_msg_ATTACH good = kvt_attach_message();
	struct kvw_msg_ATTACH attach = good;

	attach.rows = 0;
	refuse_attach(state, &attach, -EINVAL, "rows");
	attach = good;
	attach.rows = KVW_MAX_SEQS + 1;
	refuse_attach(state, &attach, -KVP_ELIMIT, "rows");
	attach = good;
	attach.max_seqs = 1ull << 40;
	refuse_attach(state, &attach, -KVP_ELIMIT, "max_seqs");
	attach = good;
	attach.row_blocks = KVW_MAX_ROW_BLOCKS + 1;
	refuse_attach(state, &attach, -KVP_ELIMIT, "row_blocks");
	attach = good;
	attach.hash_bytes = 65;
	refuse_attach(state, &attach, -KVP_ELIMIT, "hash_bytes");
	attach = good;
	attach.slots = 17;
	refuse_attach(state, &attach, -KVP_ELIMIT, "slots");
	attach = good;
	attach.slots = 1;
	refuse_attach(state, &attach, -EINVAL, "slots");
	attach = good;
	attach.answers = 0;
	refuse_attach(state, &attach, -EINVAL, "answers");
	attach = good;
	attach.answers = KVW_MAX_ANSWERS + 1;
	refuse_attach(state, &attach, -KVP_ELIMIT, "answers");
	attach = good;
	attach.slot_bytes = 100;
	refuse_attach(state, &attach, -EINVAL, "slot_bytes");
}

static void tables_beyond_the_limit_name_both_numbers(void **state)
{
	struct kvw_msg_ATTACH attach = kvt_attach_message();
	struct kvw_tables_layout layout;
	char bytes[32];

	attach.rows = 4096;
	attach.row_blocks = 65536;
	assert_int_equal(kvw_tables_layout(&(struct kvw_tables_params){.rows = 4096,
								       .row_blocks = 65536,
								       .block_tokens = 16,
								       .hash_bytes = 32,
								       .slots = 2,
								       .slot_bytes = KVW_PAGE_BYTES},
					   &layout),
			 0);
	snprintf(bytes, sizeof(bytes), "%llu",
		 (unsigned long long)(layout.bytes + kvw_answers_bytes((uint32_t)attach.answers)));
	refuse_attach(state, &attach, -KVP_ELIMIT, bytes);
	refuse_attach(state, &attach, -KVP_ELIMIT, "1073741824");
	refuse_attach(state, &attach, -KVP_ELIMIT, "tables_limit");
}

static void index_scale_needs_whole_pages(void **state)
{
	static const char *const options[] = {"--set=pool.p.blocks=64", "--set=pool.p.block_tokens=16",
					      "--set=pool.p.planes=k f16 1x128, v f16 1x96",
					      "--set=pool.p.pages=4k", NULL};
	struct kvt_daemon *daemon = kvt_daemon_start(options);
	struct kvw_msg_ATTACH attach = kvt_attach_message();
	struct kvt_raw *raw = kvt_raw_hello(daemon);

	(void)state;
	attach.index_scale = 1;
	assert_int_equal(kvt_raw_ask(raw, KVW_MSG_ATTACH, &attach), -KVP_EINDEXSCALE);
	assert_non_null(strstr(raw->error, "7168"));
	assert_non_null(strstr(raw->error, "4096"));
	attach.index_scale = 0;
	assert_int_equal(kvt_raw_attach(raw, &attach), 0);
	kvt_raw_close(raw);
	kvt_daemon_stop(daemon);
}

static void second_attach_is_refused(void **state)
{
	const struct kvw_msg_ATTACH attach = kvt_attach_message();
	struct kvt_raw *raw = kvt_raw_engine(*state);

	assert_int_equal(kvt_raw_ask(raw, KVW_MSG_ATTACH, &attach), -KVP_ESTATE);
	kvt_raw_close(raw);
}

static void lease_marks_fit_the_pool_or_are_as_given(void **state)
{
	struct kvw_msg_ATTACH attach = kvt_attach_message();
	struct kvt_raw *raw = kvt_raw_hello(*state);

	/* 2 slots of 8 rows want 16 and 64 blocks; an eighth of 64 blocks is 8. */
	assert_int_equal(kvt_raw_attach(raw, &attach), 0);
	assert_int_equal(raw->answer.ATTACH_OK.lease_low, 4);
	assert_int_equal(raw->answer.ATTACH_OK.lease_critical, 2);
	assert_int_equal(raw->answer.ATTACH_OK.lease_high, 8);
	kvt_raw_close(raw);
	attach.lease_set = 1;
	raw = kvt_raw_hello(*state);
	assert_int_equal(kvt_raw_attach(raw, &attach), 0);
	assert_int_equal(raw->answer.ATTACH_OK.lease_high, 0);
	kvt_raw_close(raw);
	attach.lease_low = 3;
	attach.lease_high = 2;
	refuse_attach(state, &attach, -EINVAL, "low 3");
}

static uint32_t namespace_of(void **state, const struct kvw_item_PAIR *pairs, uint32_t count,
			     uint64_t numerics)
{
	struct kvw_msg_ATTACH attach = kvt_attach_message();
	struct kvt_raw *raw = kvt_raw_hello(*state);
	uint32_t id;

	attach.identity = kvw_list_of(pairs, count);
	attach.numerics = numerics;
	assert_int_equal(kvt_raw_attach(raw, &attach), 0);
	id = raw->namespace_id;
	kvt_raw_close(raw);
	return id;
}

static void namespace_follows_identity_and_numerics(void **state)
{
	const struct kvw_item_PAIR first[] = {{kvw_text_of("kv_dtype"), kvw_text_of("bf16")},
					      {kvw_text_of("weights"), kvw_text_of("abc")}};
	const struct kvw_item_PAIR second[] = {{kvw_text_of("kv_dtype"), kvw_text_of("bf16")},
					       {kvw_text_of("weights"), kvw_text_of("abd")}};
	uint32_t id = namespace_of(state, first, 2, 0);

	assert_int_not_equal(id, 0);
	assert_int_equal(namespace_of(state, first, 2, 0), id);
	assert_int_not_equal(namespace_of(state, second, 2, 0), id);
	assert_int_not_equal(namespace_of(state, first, 1, 0), id);
	assert_int_not_equal(namespace_of(state, first, 2, 1), id);
}

static void identity_must_be_sorted(void **state)
{
	const struct kvw_item_PAIR twice[] = {{kvw_text_of("a"), kvw_text_of("1")},
					      {kvw_text_of("a"), kvw_text_of("1")}};
	const struct kvw_item_PAIR unsorted[] = {{kvw_text_of("weights"), kvw_text_of("1")},
						 {kvw_text_of("adapter"), kvw_text_of("1")}};
	struct kvw_msg_ATTACH attach = kvt_attach_message();

	attach.identity = kvw_list_of(twice, 2);
	refuse_attach(state, &attach, -EINVAL, "'a'");
	attach.identity = kvw_list_of(unsorted, 2);
	refuse_attach(state, &attach, -EINVAL, "'adapter'");
}

/* Before that the daemon does not look at it: a client could make it wait there. */
static void ring_is_served_once_it_is_said_to_be_mapped(void **state)
{
	const struct kvw_msg_MAPPED mapped = {.unused = 0};
	const struct kvw_msg_DRAIN drain = {.tail = 0};
	const struct kvw_msg_ATTACH attach = kvt_attach_message();
	struct kvt_raw *raw = kvt_raw_hello(*state);
	uint64_t ticket;

	assert_int_equal(kvt_raw_ask(raw, KVW_MSG_MAPPED, &mapped), -KVP_ESTATE);
	assert_int_equal(kvt_raw_attach(raw, &attach), 0);
	assert_int_equal(kvt_raw_ask(raw, KVW_MSG_MAPPED, &mapped), -KVP_ESTATE);
	kvt_raw_map_silently(raw);
	ticket = kvt_raw_post(raw, &(struct kvw_request){.type = KVW_REQUEST_LEASE, .count = 1});
	kvt_raw_ring(raw);
	assert_int_equal(kvt_raw_ask(raw, KVW_MSG_DRAIN, &drain), -KVP_ESTATE);
	assert_int_equal(kvw_ring_waiting(&raw->completions), 0);
	assert_int_equal(kvt_raw_ask(raw, KVW_MSG_MAPPED, &mapped), 0);
	assert_int_equal(kvt_raw_completion(raw, ticket).granted, 1);
	assert_int_equal(kvt_raw_ask(raw, KVW_MSG_MAPPED, &mapped), -KVP_ESTATE);
	kvt_raw_close(raw);
}

/* Nothing of it can be guarded: that is the end of the session. */
static void sealed_channel_ends_the_session(void **state)
{
	const struct kvw_msg_MAPPED mapped = {.unused = 0};
	const struct kvw_msg_ATTACH attach = kvt_attach_message();
	struct kvt_raw *raw = kvt_raw_hello(*state);

	assert_int_equal(kvt_raw_attach(raw, &attach), 0);
	kvt_raw_map_silently(raw);
	assert_int_equal(fcntl(raw->fds[KVT_CHANNEL], F_ADD_SEALS, F_SEAL_SEAL), 0);
	kvt_raw_send_message(raw, KVW_MSG_MAPPED, &mapped);
	kvt_raw_must_be_revoked(raw, -EPERM);
	kvt_raw_close(raw);
}

/* Newer kernels refuse them at the sender; from older ones they are dropped. The session goes on. */
static void descriptors_sent_to_the_daemon_are_refused(void **state)
{
	const struct kvw_msg_POOL request = {.name = kvw_text_of("p")};
	struct kvt_raw *raw = kvt_raw_engine(*state);
	uint8_t bytes[256];
	int ends[2];
	int length = kvw_encode(KVW_MSG_POOL, raw->sequence + 1, &request, bytes, sizeof(bytes));
	int ret;
	char byte;

	assert_return_code(pipe2(ends, O_CLOEXEC), errno);
	ret = kvw_send(raw->fd, bytes, (size_t)length, &ends[1], 1);
	close(ends[1]);
	if (ret != -EPERM) {
		assert_int_equal(ret, 0);
		raw->sequence++;
		assert_int_equal(kvt_raw_receive(raw), KVW_MSG_POOL + 1);
	}
	/* Nobody keeps the pipe's other end. */
	assert_int_equal(read(ends[0], &byte, 1), 0);
	close(ends[0]);
	assert_int_equal(kvt_raw_ask(raw, KVW_MSG_POOL, &request), 0);
	kvt_raw_close(raw);
}

static void descriptors_are_given_once_and_in_order(void **state)
{
	const struct kvw_msg_ATTACH attach = kvt_attach_message();
	struct kvt_raw *raw = kvt_raw_hello(*state);
	struct kvw_msg_FDS fds = {.first = 0};

	assert_int_equal(kvt_raw_ask(raw, KVW_MSG_FDS, &fds), -KVP_ESTATE);
	assert_int_equal(kvt_raw_attach(raw, &attach), 0);
	fds.first = 3;
	assert_int_equal(kvt_raw_ask(raw, KVW_MSG_FDS, &fds), -EINVAL);
	kvt_raw_map(raw);
	fds.first = 0;
	assert_int_equal(kvt_raw_ask(raw, KVW_MSG_FDS, &fds), -KVP_ESTATE);
	fds.first = KVT_SEGMENTS;
	assert_int_equal(kvt_raw_ask(raw, KVW_MSG_FDS, &fds), -EINVAL);
	kvt_raw_close(raw);
}

static void directory_can_only_be_read(void **state)
{
	static const enum kvt_segment read_only[] = {KVT_DIRECTORY, KVT_ANSWERS};
	struct kvt_raw *raw = kvt_raw_engine(*state);
	uint32_t i;

	for (i = 0; i < sizeof(read_only) / sizeof(read_only[0]); i++)
		assert_ptr_equal(mmap(NULL, raw->bytes[read_only[i]], PROT_READ | PROT_WRITE, MAP_SHARED,
				      raw->fds[read_only[i]], 0),
				 MAP_FAILED);
	assert_int_equal(ftruncate(raw->fds[KVT_TABLES], 0), -1);
	assert_int_equal(ftruncate(raw->fds[KVT_POOL], 0), -1);
	kvt_raw_close(raw);
}

/* Two requests without reading: the second finds the first answer's descriptors unread. */
static void unread_descriptors_end_the_session(void **state)
{
	const struct kvw_msg_ATTACH attach = kvt_attach_message();
	struct kvt_raw *raw = kvt_raw_hello(*state);
	const struct kvw_msg_FDS fds = {.first = 0};

	assert_int_equal(kvt_raw_attach(raw, &attach), 0);
	kvt_raw_send_message(raw, KVW_MSG_FDS, &fds);
	kvt_raw_send_message(raw, KVW_MSG_FDS, &fds);
	assert_int_equal(kvt_raw_receive(raw), KVW_MSG_FDS_OK);
	/* Read in time it is only a second request for the same ones. */
	if (kvt_raw_receive(raw) == KVW_MSG_ERROR && raw->answer.ERROR.error == KVP_EPROTO)
		assert_int_equal(kvt_raw_receive(raw), 0);
	else
		assert_int_equal(raw->answer.ERROR.error, KVP_ESTATE);
	kvt_raw_close(raw);
}

static void engines_of_a_pool_are_limited(void **state)
{
	static const char *const options[] = {KVT_SMALL_POOL, "--set=pool.p.max_engines=2", NULL};
	struct kvt_daemon *daemon = kvt_daemon_start(options);
	const struct kvw_msg_ATTACH attach = kvt_attach_message();
	struct kvt_raw *first = kvt_raw_engine(daemon);
	struct kvt_raw *second = kvt_raw_engine(daemon);
	struct kvt_raw *third = kvt_raw_hello(daemon);
	uint64_t session = second->session;

	(void)state;
	assert_true(first->sink > 0 && second->sink > 0 && first->sink != second->sink);
	assert_int_equal(kvt_raw_ask(third, KVW_MSG_ATTACH, &attach), -KVP_ELIMIT);
	assert_non_null(strstr(third->error, "max_engines"));
	kvt_raw_close(second);
	kvt_wait_gone(third, session);
	assert_int_equal(kvt_raw_attach(third, &attach), 0);
	kvt_raw_close(first);
	kvt_raw_close(third);
	kvt_daemon_stop(daemon);
}

static struct kvt_daemon *launch_slow_pool(void)
{
	/* 512 MiB in 4 KiB pages: long enough to connect meanwhile. */
	static const char *const options[] = {"--set=pool.p.blocks=131072", "--set=pool.p.block_tokens=16",
					      "--set=pool.p.planes=k f16 1x128", "--set=pool.p.pages=4k",
					      NULL};
	struct kvt_daemon *daemon = kvt_daemon_launch(options);
	int fd;

	do
		fd = kvw_connect(daemon->socket);
	while (fd < 0);
	close(fd);
	return daemon;
}

static void attach_waits_until_the_pool_is_populated(void **state)
{
	struct kvt_daemon *daemon = launch_slow_pool();
	struct kvt_raw *raw = kvt_raw_hello(daemon);
	struct kvt_raw *gone = kvt_raw_hello(daemon);
	const struct kvw_msg_ATTACH attach = kvt_attach_message();
	const struct kvw_msg_POOL pool = {.unused = 0};

	(void)state;
	assert_int_equal(kvt_raw_ask(raw, KVW_MSG_POOL, &pool), 0);
	assert_int_equal(raw->answer.POOL_OK.ready, 0);
	kvt_raw_send_message(gone, KVW_MSG_ATTACH, &attach);
	kvt_raw_close(gone);
	kvt_raw_send_message(raw, KVW_MSG_ATTACH, &attach);
	kvt_raw_send_message(raw, KVW_MSG_POOL, &pool);
	assert_int_equal(kvt_raw_receive(raw), KVW_MSG_ATTACH_OK);
	kvt_raw_take_attach(raw, &attach);
	assert_int_equal(kvt_raw_receive(raw), KVW_MSG_POOL_OK);
	assert_int_equal(raw->answer.POOL_OK.ready, 1);
	kvt_raw_map(raw);
	kvt_daemon_wait_ready(daemon);
	kvt_must_check(raw);
	kvt_raw_close(raw);
	kvt_daemon_stop(daemon);
}

static void attach_does_not_wait_for_another_pool(void **state)
{
	static const char *const options[] = {KVT_SMALL_POOL,
					      "--set=pool.slow.blocks=131072",
					      "--set=pool.slow.block_tokens=16",
					      "--set=pool.slow.planes=k f16 1x128",
					      "--set=pool.slow.pages=4k",
					      NULL};
	struct kvt_daemon *daemon = kvt_daemon_launch(options);
	struct kvw_msg_ATTACH attach = kvt_attach_message();
	const struct kvw_msg_POOL slow = {.name = kvw_text_of("slow")};
	struct kvt_raw *raw;
	int fd;

	(void)state;
	do
		fd = kvw_connect(daemon->socket);
	while (fd < 0);
	close(fd);
	raw = kvt_raw_hello(daemon);
	attach.pool = kvw_text_of("p");
	assert_int_equal(kvt_raw_attach(raw, &attach), 0);
	kvt_raw_map(raw);
	assert_int_equal(kvt_open(raw, 0, 0, 0, 4).granted, 4);
	assert_int_equal(kvt_raw_ask(raw, KVW_MSG_POOL, &slow), 0);
	assert_int_equal(raw->answer.POOL_OK.ready, 0);
	kvt_raw_close(raw);
	kvt_daemon_stop(daemon);
}

static void daemon_ends_while_a_pool_is_populated(void **state)
{
	struct kvt_daemon *daemon = launch_slow_pool();

	(void)state;
	kvt_daemon_stop(daemon);
}

int kvt_group_attach(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(attach_to_an_unknown_pool_is_refused),
		cmocka_unit_test(attach_with_reserved_fields_is_refused),
		cmocka_unit_test(attach_beyond_a_limit_is_refused),
		cmocka_unit_test(tables_beyond_the_limit_name_both_numbers),
		cmocka_unit_test(index_scale_needs_whole_pages),
		cmocka_unit_test(second_attach_is_refused),
		cmocka_unit_test(lease_marks_fit_the_pool_or_are_as_given),
		cmocka_unit_test(namespace_follows_identity_and_numerics),
		cmocka_unit_test(identity_must_be_sorted),
		cmocka_unit_test(ring_is_served_once_it_is_said_to_be_mapped),
		cmocka_unit_test(sealed_channel_ends_the_session),
		cmocka_unit_test(descriptors_sent_to_the_daemon_are_refused),
		cmocka_unit_test(descriptors_are_given_once_and_in_order),
		cmocka_unit_test(directory_can_only_be_read),
		cmocka_unit_test(unread_descriptors_end_the_session),
		cmocka_unit_test(engines_of_a_pool_are_limited),
		cmocka_unit_test(attach_waits_until_the_pool_is_populated),
		cmocka_unit_test(attach_does_not_wait_for_another_pool),
		cmocka_unit_test(daemon_ends_while_a_pool_is_populated),
	};

	return cmocka_run_group_tests_name("attach", tests, kvt_start_small, kvt_stop_small);
}
