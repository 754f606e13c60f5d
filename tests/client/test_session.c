/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The session: attach and what it refuses to map, deadlines, a daemon that dies, revokes or lies, forked children.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fixture.h"

#define SHORT_MS 30u

static const struct fake_options lease_of_8 = {.low = 4, .critical = 2, .high = 8};
static const uint32_t tokens[64] = {1, 2, 3, 4, 5, 6, 7, 8, 9};

static void connect_says_who_answered(void **state)
{
	struct fixture *fixture = fixture_open(&lease_of_8, NULL);
	struct kvp_pool_info info = {.size = sizeof(info)};

	(void)state;
	assert_int_equal(kvp_session_id(fixture->client), FAKE_SESSION);
	assert_int_equal(kvp_incarnation(fixture->client), FAKE_INCARNATION);
	assert_ok(kvp_pool_info(fixture->client, NULL, WAIT_MS, &info));
	assert_string_equal(info.name, "main");
	assert_int_equal(info.block_tokens, 4);
	assert_int_equal(info.blocks, info.data_blocks + FAKE_FIRST_DATA);
	assert_int_equal(info.planes, 2);
	assert_int_equal(info.ready, 1);
	assert_int_equal(kvp_check(fixture->client), 0);
	assert_int_equal(kvp_sink_block(fixture->client), FAKE_SINK);
	assert_error(kvp_attach(fixture->client, NULL), KVP_ESTATE);
	fixture_close(fixture);
}

static void views_are_strided_over_all_blocks(void **state)
{
	struct fixture *fixture = fixture_open(&lease_of_8, NULL);
	const struct kvw_plane *heads = &fixture->fake->geometry.planes[1];
	struct kvp_view latent = {.size = sizeof(latent)};
	struct kvp_view k = {.size = sizeof(k)};
	int plane = kvp_plane_find(fixture->client, KVP_ROLE_K, 0);

	(void)state;
	assert_int_equal(plane, 1);
	assert_error(kvp_plane_find(fixture->client, KVP_ROLE_V, 0), ENOENT);
	assert_ok(kvp_plane_view(fixture->client, 0, KVP_LAYOUT_HND, &latent));
	assert_int_equal(latent.dtype, KVP_DTYPE_F32);
	assert_int_equal(latent.shape[0], fixture->fake->geometry.blocks);
	assert_int_equal(latent.shape[1], 1);
	assert_int_equal(latent.shape[2], 4);
	assert_int_equal(latent.strides[2], 4);
	assert_int_equal(latent.strides[3], 1);
	assert_ok(kvp_plane_view(fixture->client, 1, KVP_LAYOUT_NATIVE, &k));
	assert_int_equal(k.shape[1], 4);
	assert_int_equal(k.shape[2], 2);
	assert_int_equal(k.strides[0] * 2, heads->stride);
	assert_int_equal(k.strides[1], 16);
	assert_int_equal(k.strides[2], 8);
	/* Two heads: as HND it would be other bytes. */
	assert_error(kvp_plane_view(fixture->client, 1, KVP_LAYOUT_HND, &k), EINVAL);
	assert_error(kvp_plane_view(fixture->client, 2, KVP_LAYOUT_NATIVE, &k), EINVAL);
	memset((char *)k.data + (uint64_t)(fixture->fake->geometry.blocks - 1) * heads->stride, 1,
	       heads->page_bytes);
	fixture_close(fixture);
}

/* ------------------------------------------------------------------ attach */

static void attach_refuses(const struct fake_options *options, const struct kvp_attach_params *params,
			   int error)
{
	struct kvp_attach_params small = {.size = sizeof(small), .max_seqs = 4, .max_seq_tokens = 64};
	int fds = kvt_count_fds();
	struct fake_daemon *fake = fake_start(options);
	struct kvp_client *client = fixture_connect(fake);

	assert_int_equal(kvp_attach(client, params ? params : &small), -error);
	assert_error(kvp_sync(client, WAIT_MS), error == KVP_EPROTO ? KVP_EPROTO : KVP_ESTATE);
	kvp_close(client);
	fake_stop(fake);
	assert_int_equal(kvt_count_fds(), fds);
}

static void a_segment_that_could_shrink_is_not_mapped(void **state)
{
	uint32_t kind;

	(void)state;
	for (kind = KVW_SEGMENT_DIRECTORY; kind <= KVW_SEGMENT_POOL; kind++) {
		struct fake_options options = {.unsealed_kind = kind};

		if (kind != KVW_SEGMENT_DOORBELL)
			attach_refuses(&options, NULL, KVP_ELAYOUT);
	}
}

static void a_segment_that_is_too_short_is_not_mapped(void **state)
{
	uint32_t kind;

	(void)state;
	for (kind = KVW_SEGMENT_DIRECTORY; kind <= KVW_SEGMENT_POOL; kind++) {
		struct fake_options options = {.short_kind = kind};

		if (kind != KVW_SEGMENT_DOORBELL)
			attach_refuses(&options, NULL, KVP_ELAYOUT);
	}
}

static void a_segment_with_another_magic_is_refused(void **state)
{
	struct fake_options directory = {.wrong_magic_kind = KVW_SEGMENT_DIRECTORY};
	struct fake_options channel = {.wrong_magic_kind = KVW_SEGMENT_CHANNEL};

	(void)state;
	attach_refuses(&directory, NULL, KVP_ELAYOUT);
	attach_refuses(&channel, NULL, KVP_ELAYOUT);
}

static void attach_parameters_are_checked_before_the_daemon_is_asked(void **state)
{
	const struct kvp_identity twice[2] = {{"weights", "a"}, {"weights", "b"}};
	struct kvp_attach_params params = {.size = sizeof(params)};

	(void)state;
	params.max_seqs = KVW_MAX_SEQS + 1;
	attach_refuses(NULL, &params, KVP_ELIMIT);
	params.max_seqs = 4;
	params.slots = 1;
	attach_refuses(NULL, &params, EINVAL);
	params.slots = 2;
	params.grace_ms = 1;
	attach_refuses(NULL, &params, KVP_ERESERVED);
	params.grace_ms = 0;
	params.lease_low = 1;
	attach_refuses(NULL, &params, EINVAL);
	params.flags = KVP_ATTACH_LEASE_MARKS;
	attach_refuses(NULL, &params, EINVAL);
	params.lease_low = 0;
	params.flags = 1u << 31;
	attach_refuses(NULL, &params, EINVAL);
	params.flags = 0;
	params.identity = twice;
	params.identity_count = 2;
	attach_refuses(NULL, &params, EINVAL);
	params.identity_count = 0;
	params.max_seq_tokens = INT32_MAX;
	attach_refuses(NULL, &params, KVP_ELIMIT);
}

/* ------------------------------------------------------------------ messages that lie */

struct lie {
	uint32_t type;
	uint32_t variant;
};

static int tell_lie(void *arg, uint32_t type, union kvw_any *reply)
{
	const struct lie *lie = arg;

	if (type != lie->type)
		return 0;
	switch (type << 8 | lie->variant) {
	case KVW_MSG_POOL_OK << 8 | 0:
		reply->POOL_OK.blocks = 1ull << 40;
		break;
	case KVW_MSG_POOL_OK << 8 | 1:
		reply->POOL_OK.bytes += 4096;
		break;
	case KVW_MSG_POOL_OK << 8 | 2:
		reply->POOL_OK.block_tokens = 0;
		break;
	case KVW_MSG_ATTACH_OK << 8 | 0:
		reply->ATTACH_OK.sink = 1ull << 33;
		break;
	case KVW_MSG_ATTACH_OK << 8 | 1:
		reply->ATTACH_OK.lease_high = KVW_LEASE_ENTRIES + 1;
		break;
	case KVW_MSG_ATTACH_OK << 8 | 2:
		reply->ATTACH_OK.segments.count--;
		break;
	case KVW_MSG_ATTACH_OK << 8 | 3:
		((struct kvw_item_SEGMENT *)(uintptr_t)reply->ATTACH_OK.segments.items)[0].kind =
			KVW_SEGMENT_POOL;
		break;
	case KVW_MSG_FDS_OK << 8 | 0:
		reply->FDS_OK.count = 3;
		break;
	default:
		reply->FDS_OK.first = 7;
	}
	return 0;
}

static void messages_with_impossible_numbers_end_the_client(void **state)
{
	static const struct {
		struct lie lie;
		int error;
	} cases[] = {
		{{KVW_MSG_POOL_OK, 0}, KVP_EPROTO},   {{KVW_MSG_POOL_OK, 1}, KVP_ELAYOUT},
		{{KVW_MSG_POOL_OK, 2}, KVP_EPROTO},   {{KVW_MSG_ATTACH_OK, 0}, KVP_EPROTO},
		{{KVW_MSG_ATTACH_OK, 1}, KVP_EPROTO}, {{KVW_MSG_ATTACH_OK, 2}, KVP_EPROTO},
		{{KVW_MSG_ATTACH_OK, 3}, KVP_EPROTO}, {{KVW_MSG_FDS_OK, 0}, KVP_EPROTO},
		{{KVW_MSG_FDS_OK, 1}, KVP_EPROTO},
	};
	uint32_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct lie lie = cases[i].lie;
		struct fake_options options = {.on_message = tell_lie, .arg = &lie};

		attach_refuses(&options, NULL, cases[i].error);
	}
}

static int stay_silent(void *arg, uint32_t type, union kvw_any *reply)
{
	(void)reply;
	return type == *(const uint32_t *)arg;
}

static void every_wait_for_a_message_has_a_deadline(void **state)
{
	uint32_t silent = KVW_MSG_POOL_OK;
	struct fake_options options = {.on_message = stay_silent, .arg = &silent};
	struct kvp_attach_params params = {
		.size = sizeof(params), .max_seqs = 4, .max_seq_tokens = 64, .timeout_ms = SHORT_MS};
	struct kvp_pool_info info = {.size = sizeof(info)};
	struct fake_daemon *fake = fake_start(&options);
	struct kvp_client *client = fixture_connect(fake);
	struct kvp_connect_params connect = {
		.size = sizeof(connect), .path = fake->path, .timeout_ms = SHORT_MS};
	struct kvp_client *second = NULL;

	(void)state;
	assert_error(kvp_pool_info(client, NULL, SHORT_MS, &info), ETIMEDOUT);
	assert_error(kvp_pool_info(client, NULL, 0, &info), ETIMEDOUT);
	assert_error(kvp_attach(client, &params), ETIMEDOUT);
	/* The fake serves one client at a time: the second connects, and nobody says hello. */
	assert_error(kvp_connect(&connect, &second), ETIMEDOUT);
	assert_null(second);
	/* Refused for want of an answer to POOL, not to ATTACH: it may be tried again. */
	pthread_mutex_lock(&fake->lock);
	silent = 0;
	pthread_mutex_unlock(&fake->lock);
	params.timeout_ms = WAIT_MS;
	assert_ok(kvp_attach(client, &params));
	kvp_close(client);
	fake_stop(fake);
}

/* ------------------------------------------------------------------ completions that lie */

struct twist {
	uint32_t type; /* of the request */
	uint32_t variant;
};

static int twist_completion(void *arg, const struct kvw_request *request, struct kvw_completion *completion)
{
	const struct twist *twist = arg;

	if (request->type != twist->type)
		return 0;
	switch (twist->variant) {
	case 0:
		completion->ticket += 12345;
		break;
	case 1:
		completion->granted += 1000;
		break;
	case 2:
		completion->matched = UINT32_MAX;
		break;
	case 3:
		completion->status = 1;
		break;
	case 4:
		completion->type = KVW_REQUEST_RETURN;
		break;
	case 5:
		completion->hold = 0;
		break;
	case 6:
		completion->ticket = 0;
		break;
	default:
		completion->granted = 0;
	}
	return 0;
}

static void twist_answer(void *arg, const struct kvw_request *request, uint32_t index,
			 struct kvw_answer *answer)
{
	const struct twist *twist = arg;

	(void)index;
	if (request->type != twist->type)
		return;
	switch (twist->variant) {
	case 100:
		answer->id = INT32_MAX;
		break;
	case 101:
		answer->id = -1;
		break;
	case 102:
		answer->id = 0;
		break;
	case 103:
		answer->generation = 0;
		break;
	case 104:
		answer->id = FAKE_SINK;
		break;
	case 105:
		answer->flags |= KVW_ANSWER_DUPLICATE;
		answer->id = 1 << 30;
		break;
	default:
		answer->flags |= KVW_ANSWER_DUPLICATE;
	}
}

/* Opens, writes and publishes one sequence; the lie comes in somewhere and every call from then on says so. */
static void expect_broken(const struct twist *twist)
{
	struct fake_options options = {.low = 4,
				       .critical = 2,
				       .high = 8,
				       .on_completion = twist_completion,
				       .on_answer = twist_answer,
				       .arg = (void *)(uintptr_t)twist};
	struct kvp_attach_params params = {.size = sizeof(params), .max_seqs = 4, .max_seq_tokens = 64};
	struct kvp_open_request request = {
		.size = sizeof(request), .tokens = tokens, .token_count = 8, .max_cached_tokens = UINT32_MAX};
	struct fake_daemon *fake = fake_start(&options);
	struct kvp_client *client = fixture_connect(fake);
	struct kvp_seq *seq = NULL;
	int result = 0;
	int ret = kvp_attach(client, &params);

	if (!ret)
		ret = kvp_open(client, &request, 1, 2000, &result, &seq);
	if (!ret)
		ret = kvp_lease_wait(client, 4, 2000);
	if (!ret)
		ret = kvp_seq_stage(seq, 8, 0, 1);
	if (!ret)
		ret = kvp_seq_settle(seq, 8, NULL, 1, 0, 1);
	if (!ret)
		ret = kvp_seq_extend(seq, 4, 2000);
	if (!ret)
		ret = kvp_sync(client, 2000);
	if (!ret)
		ret = kvp_sync(client, 2000);
	if (ret != -KVP_EPROTO)
		print_error("verb %u, variant %u: %s\n", twist->type, twist->variant, kvp_error_name(ret));
	assert_int_equal(ret, -KVP_EPROTO);
	assert_error(kvp_check(client), KVP_EPROTO);
	assert_error(kvp_sync(client, WAIT_MS), KVP_EPROTO);
	if (seq)
		assert_ok(kvp_seq_close(seq));
	kvp_close(client);
	fake_stop(fake);
}

static void answers_that_fit_no_question_end_the_client(void **state)
{
	static const struct twist twists[] = {
		{KVW_REQUEST_OPEN, 0},      {KVW_REQUEST_OPEN, 1},      {KVW_REQUEST_OPEN, 2},
		{KVW_REQUEST_OPEN, 3},      {KVW_REQUEST_OPEN, 4},      {KVW_REQUEST_OPEN, 5},
		{KVW_REQUEST_OPEN, 6},      {KVW_REQUEST_OPEN, 7},      {KVW_REQUEST_OPEN, 100},
		{KVW_REQUEST_OPEN, 101},    {KVW_REQUEST_OPEN, 102},    {KVW_REQUEST_OPEN, 103},
		{KVW_REQUEST_OPEN, 104},    {KVW_REQUEST_LEASE, 0},     {KVW_REQUEST_LEASE, 1},
		{KVW_REQUEST_LEASE, 7},     {KVW_REQUEST_LEASE, 100},   {KVW_REQUEST_LEASE, 101},
		{KVW_REQUEST_LEASE, 102},   {KVW_REQUEST_EXTEND, 1},    {KVW_REQUEST_EXTEND, 100},
		{KVW_REQUEST_EXTEND, 104},  {KVW_REQUEST_PUBLISH, 0},   {KVW_REQUEST_PUBLISH, 1},
		{KVW_REQUEST_PUBLISH, 2},   {KVW_REQUEST_PUBLISH, 3},   {KVW_REQUEST_PUBLISH, 7},
		{KVW_REQUEST_PUBLISH, 105}, {KVW_REQUEST_PUBLISH, 106},
	};
	uint32_t i;

	(void)state;
	for (i = 0; i < sizeof(twists) / sizeof(*twists); i++)
		expect_broken(&twists[i]);
}

static void a_lying_ring_index_ends_the_client(void **state)
{
	struct fake_options options = {.tail_lie = KVW_RING_RECORDS + 1};
	struct kvp_attach_params params = {.size = sizeof(params), .max_seqs = 4, .max_seq_tokens = 64};
	struct kvp_open_request request = {.size = sizeof(request), .tokens = tokens, .token_count = 8};
	struct fake_daemon *fake = fake_start(&options);
	struct kvp_client *client = fixture_connect(fake);
	struct kvp_seq *seq = NULL;
	int result;

	(void)state;
	assert_ok(kvp_attach(client, &params));
	assert_error(kvp_open(client, &request, 1, WAIT_MS, &result, &seq), KVP_EPROTO);
	assert_null(seq);
	kvp_close(client);
	fake_stop(fake);
}

static int refuse_publish(void *arg, const struct kvw_request *request, struct kvw_completion *completion)
{
	(void)arg;
	if (request->type == KVW_REQUEST_PUBLISH) {
		completion->status = -KVP_ELOST;
		completion->granted = completion->matched = 0;
	}
	return 0;
}

static void a_refused_publish_ends_the_publishing_and_not_the_sequence(void **state)
{
	struct fake_options options = {.low = 4, .critical = 2, .high = 8, .on_completion = refuse_publish};
	struct fixture *fixture = fixture_open(&options, NULL);
	struct kvp_seq *seq = fixture_seq(fixture, 1, 8, 0, 0);

	(void)state;
	fixture_advance(fixture, seq, 1, 4);
	assert_int_equal(fixture_info(seq).committed, 4);
	assert_ok(kvp_sync(fixture->client, WAIT_MS));
	assert_int_equal(fixture_info(seq).committed, 0);
	assert_ok(kvp_seq_reserve(seq, 1));
	assert_non_null(strstr(kvp_last_error(), "refused"));
	fixture_advance(fixture, seq, 1, 4);
	assert_int_equal(fixture_info(seq).settled, 8);
	assert_int_equal(fixture_info(seq).committed, 0);
	/* The fake did publish: its books and ours differ from here on. */
	kvp_close(fixture->client);
	fake_stop(fixture->fake);
	free(fixture);
}

/* ------------------------------------------------------------------ ends */

static void a_dead_daemon_is_noticed_at_once_and_held_blocks_stay_usable(void **state)
{
	struct fixture *fixture = fixture_open(&lease_of_8, NULL);
	struct kvp_seq *seq = fixture_seq(fixture, 1, 8, 0, 0);
	struct kvp_open_request request = {.size = sizeof(request), .tokens = tokens, .token_count = 8};
	struct kvp_view view = {.size = sizeof(view)};
	struct kvp_seq *other = NULL;
	uint64_t begin = kvt_now_ns();
	int result;

	(void)state;
	assert_ok(kvp_lease_wait(fixture->client, 8, WAIT_MS));
	fake_hang_up(fixture->fake);
	assert_error(kvp_open(fixture->client, &request, 1, WAIT_MS, &result, &other), KVP_EDAEMON);
	assert_true(kvt_now_ns() - begin < 5000000000u);
	assert_null(other);
	assert_int_equal(kvp_check(fixture->client), 0);
	assert_error(kvp_open_post(fixture->client, &request, &other), KVP_EDAEMON);
	assert_error(kvp_sync(fixture->client, WAIT_MS), KVP_EDAEMON);
	assert_error(kvp_seq_extend(seq, 100, WAIT_MS), KVP_EDAEMON);
	/* What is there goes on. */
	assert_ok(kvp_seq_reserve(seq, 12));
	fixture_advance(fixture, seq, 1, 12);
	assert_int_equal(fixture_info(seq).settled, 12);
	assert_ok(kvp_plane_view(fixture->client, 0, KVP_LAYOUT_NATIVE, &view));
	memset(view.data, 0, 64);
	assert_error(kvp_seq_reserve(seq, 100), KVP_ELEASE);
	assert_ok(kvp_seq_close(seq));
	fixture_close(fixture);
}

static void what_waits_when_the_daemon_dies_is_told_before_its_deadline(void **state)
{
	struct fixture *fixture = fixture_open(&lease_of_8, NULL);

	(void)state;
	assert_ok(kvp_lease_wait(fixture->client, 8, WAIT_MS));
	fake_hang_up(fixture->fake);
	assert_error(kvp_lease_wait(fixture->client, 8, 0), 0);
	assert_ok(kvp_attach(fixture->client, NULL) == -KVP_ESTATE ? 0 : -1);
	{
		struct kvp_seq *seq = NULL;
		struct kvp_open_request request = {
			.size = sizeof(request), .tokens = tokens, .token_count = 8};

		assert_ok(kvp_open_post(fixture->client, &request, &seq));
		assert_error(kvp_open_collect(seq, UINT32_MAX), KVP_EDAEMON);
		assert_ok(kvp_seq_close(seq));
	}
	fixture_close(fixture);
}

static void a_revoked_session_learns_it_by_one_load(void **state)
{
	struct fixture *fixture = fixture_open(&lease_of_8, NULL);
	struct kvp_seq *seq = fixture_seq(fixture, 1, 8, 0, 0);
	struct kvp_seq_info info = {.size = sizeof(info)};

	(void)state;
	fake_revoke(fixture->fake);
	assert_error(kvp_check(fixture->client), KVP_EREVOKED);
	assert_non_null(strstr(kvp_last_error(), "revoked"));
	assert_error(kvp_seq_reserve(seq, 1), KVP_EREVOKED);
	assert_error(kvp_seq_stage(seq, 1, 0, 1), KVP_EREVOKED);
	assert_error(kvp_seq_info(seq, &info), KVP_EREVOKED);
	assert_error(kvp_sync(fixture->client, WAIT_MS), KVP_EREVOKED);
	assert_ok(kvp_seq_close(seq));
	fixture_close(fixture);
}

static void a_wait_ends_by_its_deadline_and_what_comes_late_is_not_lost(void **state)
{
	struct fixture *fixture = fixture_open(&lease_of_8, NULL);
	struct kvp_open_request request = {.size = sizeof(request), .tokens = tokens, .token_count = 8};
	struct kvp_seq *seq = fixture_seq(fixture, 1, 8, 0, 0);
	struct kvp_seq *other = NULL;
	int result;

	(void)state;
	assert_ok(kvp_lease_wait(fixture->client, 8, WAIT_MS));
	fake_pause(fixture->fake, true);
	assert_error(kvp_open(fixture->client, &request, 1, SHORT_MS, &result, &other), ETIMEDOUT);
	assert_null(other);
	assert_error(kvp_seq_extend(seq, 12, SHORT_MS), ETIMEDOUT);
	/* Its blocks are on their way; none is taken from the lease into their places. */
	assert_error(kvp_seq_reserve(seq, 12), KVP_ELEASE);
	assert_error(kvp_seq_truncate(seq, 0), KVP_ESTATE);
	fake_pause(fixture->fake, false);
	assert_ok(kvp_sync(fixture->client, WAIT_MS));
	assert_ok(kvp_seq_reserve(seq, 12));
	assert_int_equal(fixture_info(seq).blocks, 3);
	assert_int_equal(fixture_lease(fixture).blocks, 8);
	assert_ok(kvp_seq_close(seq));
	assert_ok(kvp_sync(fixture->client, WAIT_MS));
	/* The open that came late was closed by itself. */
	assert_int_equal(fake_count(fixture->fake, KVW_BLOCK_LEASED), fixture_lease(fixture).blocks);
	fixture_close(fixture);
}

static void an_empty_pool_is_told_at_the_deadline_with_its_reason(void **state)
{
	const struct fake_options options = {.data_blocks = 4};
	const struct kvp_attach_params params = {.size = sizeof(params),
						 .max_seqs = 4,
						 .max_seq_tokens = 64,
						 .flags = KVP_ATTACH_LEASE_MARKS,
						 .lease_high = 8};
	struct fixture *fixture = fixture_open(&options, &params);

	(void)state;
	assert_ok(kvp_lease_wait(fixture->client, 3, WAIT_MS));
	assert_error(kvp_lease_wait(fixture->client, 5, SHORT_MS), KVP_ENOBLOCKS);
	assert_error(kvp_lease_wait(fixture->client, 9, SHORT_MS), EINVAL);
	fixture_close(fixture);
}

/* ------------------------------------------------------------------ fork */

static int in_child(struct fixture *fixture, struct kvp_seq *seq, struct kvp_batch *batch)
{
	struct kvp_open_request request = {.size = sizeof(request), .tokens = tokens, .token_count = 8};
	struct kvp_pool_info pool = {.size = sizeof(pool)};
	struct kvp_batch_view batch_view = {.size = sizeof(batch_view)};
	struct kvp_seq_info info = {.size = sizeof(info)};
	struct kvp_lease_info lease = {.size = sizeof(lease)};
	struct kvp_view view = {.size = sizeof(view)};
	struct kvp_client *client = fixture->client;
	struct kvp_seq *other = NULL;
	int forked = 0;
	int fds = kvt_count_fds();
	int result;

	forked += kvp_check(client) == -KVP_EFORKED;
	forked += kvp_pool_info(client, NULL, WAIT_MS, &pool) == -KVP_EFORKED;
	forked += kvp_attach(client, NULL) == -KVP_EFORKED;
	forked += kvp_plane_view(client, 0, KVP_LAYOUT_NATIVE, &view) == -KVP_EFORKED;
	forked += kvp_sink_block(client) == -KVP_EFORKED;
	forked += kvp_open(client, &request, 1, WAIT_MS, &result, &other) == -KVP_EFORKED;
	forked += kvp_open_post(client, &request, &other) == -KVP_EFORKED;
	forked += kvp_seq_reserve(seq, 1) == -KVP_EFORKED;
	forked += kvp_seq_extend(seq, 1, WAIT_MS) == -KVP_EFORKED;
	forked += kvp_seq_stage(seq, 1, 0, 1) == -KVP_EFORKED;
	forked += kvp_seq_settle(seq, 0, NULL, 1, 0, 1) == -KVP_EFORKED;
	forked += kvp_seq_truncate(seq, 0) == -KVP_EFORKED;
	forked += kvp_seq_fork(seq, WAIT_MS, &other) == -KVP_EFORKED;
	forked += kvp_seq_info(seq, &info) == -KVP_EFORKED;
	forked += kvp_seq_ready(seq) == -KVP_EFORKED;
	forked += kvp_seq_close(seq) == -KVP_EFORKED;
	forked += kvp_probe(client, &request) == -KVP_EFORKED;
	forked += kvp_lease_info(client, &lease) == -KVP_EFORKED;
	forked += kvp_lease_wait(client, 1, WAIT_MS) == -KVP_EFORKED;
	forked += kvp_sync(client, WAIT_MS) == -KVP_EFORKED;
	forked += kvp_batch_set(batch, &seq, 1) == -KVP_EFORKED;
	forked += kvp_batch_reserve(batch, NULL) == -KVP_EFORKED;
	forked += kvp_batch_begin(batch, NULL, 0, 1, &batch_view) == -KVP_EFORKED;
	forked += kvp_batch_settle(batch, NULL, NULL, 0, 1) == -KVP_EFORKED;
	forked += kvp_session_id(client) == 0 && kvp_incarnation(client) == 0;
	forked += kvp_step_next(client, 0) == 0 && kvp_step_reached(client, 0) == 0;
	forked += kvp_seq_blocks(seq) == NULL;
	kvp_step_done(client, 0, 1);
	kvp_close(client);
	/* The socket and the doorbell. */
	return forked == 27 && kvt_count_fds() == fds - 2 ? 0 : 1;
}

static void in_a_forked_child_every_call_says_so_and_close_frees(void **state)
{
	struct fixture *fixture = fixture_open(&lease_of_8, NULL);
	struct kvp_seq *seq = fixture_seq(fixture, 1, 8, 0, 0);
	struct kvp_batch *batch = NULL;
	int status = -1;
	pid_t child;

	(void)state;
	assert_ok(kvp_batch_create(fixture->client, NULL, &batch));
	child = fork();
	assert_true(child >= 0);
	if (!child)
		_exit(in_child(fixture, seq, batch));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	/* The parent did not notice. */
	assert_ok(kvp_sync(fixture->client, WAIT_MS));
	fixture_advance(fixture, seq, 1, 8);
	kvp_batch_destroy(batch);
	assert_ok(kvp_seq_close(seq));
	fixture_close(fixture);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(connect_says_who_answered),
		cmocka_unit_test(views_are_strided_over_all_blocks),
		cmocka_unit_test(a_segment_that_could_shrink_is_not_mapped),
		cmocka_unit_test(a_segment_that_is_too_short_is_not_mapped),
		cmocka_unit_test(a_segment_with_another_magic_is_refused),
		cmocka_unit_test(attach_parameters_are_checked_before_the_daemon_is_asked),
		cmocka_unit_test(messages_with_impossible_numbers_end_the_client),
		cmocka_unit_test(every_wait_for_a_message_has_a_deadline),
		cmocka_unit_test(answers_that_fit_no_question_end_the_client),
		cmocka_unit_test(a_lying_ring_index_ends_the_client),
		cmocka_unit_test(a_refused_publish_ends_the_publishing_and_not_the_sequence),
		cmocka_unit_test(a_dead_daemon_is_noticed_at_once_and_held_blocks_stay_usable),
		cmocka_unit_test(what_waits_when_the_daemon_dies_is_told_before_its_deadline),
		cmocka_unit_test(a_revoked_session_learns_it_by_one_load),
		cmocka_unit_test(a_wait_ends_by_its_deadline_and_what_comes_late_is_not_lost),
		cmocka_unit_test(an_empty_pool_is_told_at_the_deadline_with_its_reason),
		cmocka_unit_test(in_a_forked_child_every_call_says_so_and_close_frees),
	};

	kvt_watchdog(110);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
