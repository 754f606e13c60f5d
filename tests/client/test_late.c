/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What comes late, and what a daemon may not say: answers after their deadline, floods of them, blocks that are not the pool's; and arrays of
 * requests whose size is garbage.
 */
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "ipc/frame.h"

#include "fixture.h"

static const struct fake_options lease_of_8 = {.low = 4, .critical = 2, .high = 8};

/* ------------------------------------------------------------------ extends */

static void reserve_goes_on_behind_the_blocks_of_a_late_extend(void **state)
{
	struct fixture *fixture = fixture_open(&lease_of_8, NULL);
	struct kvp_seq *seq = fixture_seq(fixture, 100, 4, 0, 0);
	struct kvp_seq_info info;

	(void)state;
	assert_ok(kvp_lease_wait(fixture->client, 4, WAIT_MS));
	fixture_extend_late(fixture, seq, 12);
	/* Two of the three blocks came by the extend. */
	assert_ok(kvp_seq_reserve(seq, 16));
	assert_int_equal(fixture_info(seq).blocks, 4);
	assert_ok(kvp_seq_reserve(seq, 0));
	info = fixture_info(seq);
	assert_int_equal(info.blocks, 4);
	assert_int_equal(info.reserved, 16);
	assert_ok(kvp_seq_close(seq));
	assert_ok(kvp_sync(fixture->client, WAIT_MS));
	assert_int_equal(fake_count(fixture->fake, KVW_BLOCK_LEASED), fixture_lease(fixture).blocks);
	fixture_close(fixture);
}

static void a_cut_gives_back_what_a_late_extend_brought(void **state)
{
	struct fixture *fixture = fixture_open(&lease_of_8, NULL);
	struct kvp_seq *seq = fixture_seq(fixture, 100, 7, 0, 0);

	(void)state;
	assert_ok(kvp_seq_stop_publish(seq));
	fixture_advance(fixture, seq, 100, 7);
	fixture_extend_late(fixture, seq, 9);
	assert_ok(kvp_seq_truncate(seq, 2));
	assert_int_equal(fixture_info(seq).blocks, 1);
	assert_ok(kvp_seq_reserve(seq, 0));
	assert_int_equal(fixture_info(seq).blocks, 1);
	assert_ok(kvp_seq_close(seq));
	assert_ok(kvp_sync(fixture->client, WAIT_MS));
	assert_int_equal(fake_count(fixture->fake, KVW_BLOCK_LEASED), fixture_lease(fixture).blocks);
	fixture_close(fixture);
}

/* ------------------------------------------------------------------ floods */

struct flood {
	struct fake_daemon *fake;
	_Atomic bool on;
};

/* Instead of the answer: late ones, until the client has gone. */
static int send_late_ones(void *arg, uint32_t type, union kvw_any *reply)
{
	const struct flood *flood = arg;
	struct pollfd entry = {.events = POLLOUT};
	uint8_t bytes[256];
	int length, ret;

	if (type != KVW_MSG_DRAIN_OK || !flood->on)
		return 0;
	length = kvw_encode(type, 1, reply, bytes, sizeof(bytes));
	entry.fd = flood->fake->socket_fd;
	do {
		ret = kvw_send(entry.fd, bytes, (size_t)length, NULL, 0);
		if (ret == -EAGAIN)
			poll(&entry, 1, 1000);
	} while (ret >= 0 || ret == -EAGAIN);
	return 1;
}

static void a_flood_of_late_answers_does_not_move_the_deadline(void **state)
{
	struct flood flood = {.on = false};
	struct fake_options options = {.on_message = send_late_ones, .arg = &flood};
	struct fixture *fixture = fixture_open(&options, NULL);

	(void)state;
	flood.fake = fixture->fake;
	flood.on = true;
	assert_error(kvp_sync(fixture->client, 20), ETIMEDOUT);
	fixture_close(fixture);
}

/* ------------------------------------------------------------------ places of answers */

/* Each open may be answered for a whole row, and two rows take all places that there are: the third waits. */
static void opens_that_find_no_places_for_their_answers_wait_for_each_other(void **state)
{
	const struct kvp_attach_params params = {
		.size = sizeof(params), .max_seqs = 4, .max_seq_tokens = 4 * KVW_MAX_ROW_BLOCKS};
	const struct kvp_open_request huge = {.size = sizeof(huge), .reserve_tokens = params.max_seq_tokens};
	const struct kvp_open_request requests[] = {huge, huge, huge, huge};
	struct fixture *fixture = fixture_open(NULL, &params);
	struct kvp_seq *seqs[4] = {NULL};
	struct kvp_seq *seq;
	int results[4];
	uint32_t i;

	(void)state;
	assert_int_equal(fixture->fake->answer_count, KVW_MAX_ANSWERS);
	assert_ok(kvp_open(fixture->client, requests, 4, WAIT_MS, results, seqs));
	for (i = 0; i < 4; i++)
		assert_error(results[i], KVP_ENOBLOCKS);
	seq = fixture_seq(fixture, 100, 12, 0, 0);
	assert_int_equal(fixture_info(seq).blocks, 3);
	assert_ok(kvp_seq_close(seq));
	fixture_close(fixture);
}

/* The fake daemon counts it as a fault when a place is named again before its answer was taken. */
static void places_of_answers_are_used_again_when_they_were_read(void **state)
{
	const struct kvp_attach_params params = {
		.size = sizeof(params), .max_seqs = 4, .max_seq_tokens = 128};
	struct fixture *fixture = fixture_open(NULL, &params);
	uint32_t turns = 3 * fixture->fake->answer_count / 32;

	(void)state;
	while (turns--) {
		struct kvp_seq *seq = fixture_seq(fixture, 100 * turns, 100, 0, 100 + turns % 29);

		assert_int_equal(fixture_info(seq).blocks, (100 + turns % 29 + 3) / 4);
		assert_ok(kvp_seq_close(seq));
	}
	fixture_close(fixture);
}

/* ------------------------------------------------------------------ deaths */

struct death {
	struct fake_daemon *fake;
	uint32_t type;
	uint32_t answers; /* of the type, before it dies */
};

static int die_in_between(void *arg, uint32_t type, union kvw_any *reply)
{
	struct death *death = arg;

	(void)reply;
	if (type != death->type || death->answers--)
		return 0;
	shutdown(death->fake->socket_fd, SHUT_RDWR);
	return 1;
}

static void a_daemon_that_dies_in_the_middle_of_attach_leaves_nothing_behind(void **state)
{
	static const struct death deaths[] = {{NULL, KVW_MSG_POOL_OK, 0},
					      {NULL, KVW_MSG_ATTACH_OK, 0},
					      {NULL, KVW_MSG_FDS_OK, 0},
					      {NULL, KVW_MSG_FDS_OK, 2}};
	uint32_t i;

	(void)state;
	for (i = 0; i < sizeof(deaths) / sizeof(*deaths); i++) {
		struct death death = deaths[i];
		struct fake_options options = {.on_message = die_in_between, .arg = &death};
		int fds = kvt_count_fds();
		struct kvp_client *client;

		death.fake = fake_start(&options);
		client = fixture_connect(death.fake);
		assert_error(kvp_attach(client, NULL), KVP_EDAEMON);
		assert_error(kvp_sink_block(client), KVP_ESTATE);
		kvp_close(client);
		fake_stop(death.fake);
		assert_int_equal(kvt_count_fds(), fds);
	}
}

/* ------------------------------------------------------------------ whose blocks */

static void replace_matched(void *arg, const struct kvw_request *request, uint32_t index,
			    struct kvw_answer *answer)
{
	(void)index;
	if (request->type == KVW_REQUEST_OPEN && answer->flags & KVW_ANSWER_MATCHED)
		answer->id = *(const _Atomic int32_t *)arg;
}

/* Opens what is published, and is told `id` in its place. */
static void expect_refused_match(const int32_t *const id, bool own)
{
	struct fake_options options = {.low = 4, .critical = 2, .high = 8, .on_answer = replace_matched};
	_Atomic int32_t told = *id;
	struct fixture *fixture;
	struct kvp_seq *writer;
	struct kvp_seq *reader = NULL;
	const uint32_t tokens[4] = {100, 101, 102, 103};
	struct kvp_open_request request = {
		.size = sizeof(request), .tokens = tokens, .token_count = 4, .max_cached_tokens = UINT32_MAX};
	int result;

	options.arg = &told;
	fixture = fixture_open(&options, NULL);
	writer = fixture_seq(fixture, 100, 9, 0, 0);
	fixture_advance(fixture, writer, 100, 5);
	assert_ok(kvp_sync(fixture->client, WAIT_MS));
	if (own)
		told = kvp_seq_blocks(writer)[1];
	assert_error(kvp_open(fixture->client, &request, 1, WAIT_MS, &result, &reader), KVP_EPROTO);
	assert_null(reader);
	fixture_close(fixture);
}

static void a_match_is_never_a_sink_nor_a_block_that_this_engine_writes(void **state)
{
	const int32_t sink = FAKE_SINK;

	(void)state;
	expect_refused_match(&sink, false);
	expect_refused_match(&sink, true);
}

/* ------------------------------------------------------------------ requests */

static void an_array_of_requests_of_a_garbage_size_is_refused_as_a_whole(void **state)
{
	static const uint32_t sizes[] = {0, 3, 41, 0x40000000, UINT32_MAX};
	struct fixture *fixture = fixture_open(&lease_of_8, NULL);
	struct kvp_open_request requests[2] = {{.size = 0}};
	struct kvp_seq *seqs[2] = {NULL};
	int results[2];
	uint32_t i;

	(void)state;
	for (i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		requests[0].size = requests[1].size = sizes[i];
		assert_true(kvp_open(fixture->client, requests, 2, WAIT_MS, results, seqs) < 0);
		assert_non_null(strstr(kvp_last_error(), "kvp_open_request.size"));
		assert_null(seqs[0]);
	}
	fixture_close(fixture);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reserve_goes_on_behind_the_blocks_of_a_late_extend),
		cmocka_unit_test(a_cut_gives_back_what_a_late_extend_brought),
		cmocka_unit_test(a_flood_of_late_answers_does_not_move_the_deadline),
		cmocka_unit_test(opens_that_find_no_places_for_their_answers_wait_for_each_other),
		cmocka_unit_test(places_of_answers_are_used_again_when_they_were_read),
		cmocka_unit_test(a_daemon_that_dies_in_the_middle_of_attach_leaves_nothing_behind),
		cmocka_unit_test(a_match_is_never_a_sink_nor_a_block_that_this_engine_writes),
		cmocka_unit_test(an_array_of_requests_of_a_garbage_size_is_refused_as_a_whole),
	};

	kvt_watchdog(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
