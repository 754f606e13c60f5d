/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a client can do to the rings that it shares: each ends its own session, with a reason in the log and
 * in the revoked word, and nobody else's.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <kvpool/error.h>

#include "raw.h"
#include "session_groups.h"

/* The violator's session has ended; its neighbour finds nothing changed. */
static void must_end_alone(struct kvt_daemon *daemon, struct kvt_raw *raw, struct kvt_raw *neighbour)
{
	struct kvw_channel_header *channel = kvt_channel(raw);
	char line[64];

	kvt_raw_ring(raw);
	kvt_raw_must_be_revoked(raw, -KVP_EPROTO);
	while (!atomic_load(&channel->revoked))
		;
	assert_int_equal(atomic_load(&channel->revoked), -KVP_EREVOKED);
	snprintf(line, sizeof(line), "session %llu: process %d of uid %u", (unsigned long long)raw->session,
		 (int)getpid(), getuid());
	assert_true(kvt_daemon_logged(daemon, line));
	assert_int_equal(kvt_open(neighbour, 7, 0, 0, 1).granted, 1);
	kvt_accept(neighbour, 7, 0, 1);
	kvt_return_blocks(neighbour, 7, 0, 1);
	kvt_must_check(neighbour);
	kvt_raw_close(raw);
}

static void post_and_end(void **state, const struct kvw_request *request)
{
	struct kvt_raw *raw = kvt_raw_engine(*state);
	struct kvt_raw *neighbour = kvt_raw_engine(*state);

	assert_int_equal(kvt_open(raw, 0, 0, 0, 3).granted, 3);
	kvt_raw_post(raw, request);
	must_end_alone(*state, raw, neighbour);
	kvt_raw_close(neighbour);
}

static void unknown_verb_ends_the_session(void **state)
{
	post_and_end(state, &(struct kvw_request){.type = 0});
	post_and_end(state, &(struct kvw_request){.type = 8});
	post_and_end(state, &(struct kvw_request){.type = UINT32_MAX});
}

static void reserved_flags_end_the_session(void **state)
{
	post_and_end(state, &(struct kvw_request){.type = KVW_REQUEST_OPEN, .flags = 2});
	post_and_end(state, &(struct kvw_request){.type = KVW_REQUEST_OPEN, .flags = 1u << 16});
	post_and_end(state, &(struct kvw_request){.type = KVW_REQUEST_RELEASE, .flags = KVW_REQUEST_COMING});
	post_and_end(state, &(struct kvw_request){.type = KVW_REQUEST_LEASE,
						  .flags = 1u << KVW_REQUEST_PLANE_SET_SHIFT});
}

static void lying_tail_ends_the_session(void **state)
{
	struct kvt_raw *raw = kvt_raw_engine(*state);
	struct kvt_raw *neighbour = kvt_raw_engine(*state);

	atomic_store(&kvt_channel(raw)->requests.tail, KVW_RING_RECORDS + 1);
	must_end_alone(*state, raw, neighbour);
	raw = kvt_raw_engine(*state);
	kvt_raw_do(raw, (struct kvw_request){.type = KVW_REQUEST_LEASE});
	atomic_store(&kvt_channel(raw)->requests.tail, 0);
	must_end_alone(*state, raw, neighbour);
	kvt_raw_close(neighbour);
}

static void lying_head_ends_the_session(void **state)
{
	struct kvt_raw *raw = kvt_raw_engine(*state);
	struct kvt_raw *neighbour = kvt_raw_engine(*state);

	atomic_store(&kvt_channel(raw)->completions.head, 5);
	kvt_raw_post(raw, &(struct kvw_request){.type = KVW_REQUEST_LEASE});
	must_end_alone(*state, raw, neighbour);
	kvt_raw_close(neighbour);
}

/* What the daemon wrote there is nothing to it: it keeps its own index. */
static void torn_words_of_the_daemon_harm_the_client_only(void **state)
{
	struct kvt_raw *raw = kvt_raw_engine(*state);
	struct kvw_channel_header *channel = kvt_channel(raw);
	struct kvt_raw *neighbour = kvt_raw_engine(*state);

	atomic_store(&channel->requests.head, 77);
	atomic_store(&channel->completions.tail, 99);
	atomic_store(&channel->revoked, 3);
	channel->magic = 0;
	kvt_raw_post(neighbour, &(struct kvw_request){.type = KVW_REQUEST_LEASE});
	kvt_drain(neighbour);
	kvt_must_check(raw);
	kvt_raw_close(raw);
	kvt_raw_close(neighbour);
}

/* Tables with holes read as zeros: stale ids, hashes of zeros. Nobody dies of them. */
static void punched_tables_read_as_zeros(void **state)
{
	struct kvt_raw *raw = kvt_raw_engine(*state);
	struct kvw_completion open = kvt_open(raw, 0, 200, 4, 4);

	assert_int_equal(open.granted, 4);
	assert_int_equal(fallocate(raw->fds[KVT_TABLES], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
				   (off_t)raw->bytes[KVT_TABLES]),
			 0);
	/* What the daemon looks at by a mapping can't be punched. */
	assert_int_equal(fallocate(raw->fds[KVT_CHANNEL], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				   KVW_CHANNEL_COMPLETIONS, KVW_PAGE_BYTES),
			 -1);
	assert_int_equal(errno, EPERM);
	assert_int_equal(kvt_publish(raw, 0, open.hold, 0, 4, 0, 0).status, -KVP_ESTALE);
	kvt_must_check(raw);
	kvt_raw_close(raw);
}

static void stolen_doorbell_counts_are_harmless(void **state)
{
	struct kvt_raw *raw = kvt_raw_engine(*state);
	uint64_t count = UINT64_MAX - 1;

	assert_int_equal(write(raw->fds[KVT_DOORBELL], &count, sizeof(count)), sizeof(count));
	assert_int_equal(kvt_open(raw, 0, 0, 0, 1).granted, 1);
	assert_int_equal(read(raw->fds[KVT_DOORBELL], &count, sizeof(count)), sizeof(count));
	assert_int_equal(kvt_open(raw, 1, 0, 0, 1).granted, 1);
	kvt_raw_close(raw);
}

int kvt_group_violations(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(unknown_verb_ends_the_session),
		cmocka_unit_test(reserved_flags_end_the_session),
		cmocka_unit_test(lying_tail_ends_the_session),
		cmocka_unit_test(lying_head_ends_the_session),
		cmocka_unit_test(torn_words_of_the_daemon_harm_the_client_only),
		cmocka_unit_test(punched_tables_read_as_zeros),
		cmocka_unit_test(stolen_doorbell_counts_are_harmless),
	};

	return cmocka_run_group_tests_name("violations", tests, kvt_start_small, kvt_stop_small);
}
