/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library against kvpoold itself: what engines share, how duplicates converge, what the lease does, and what a death leaves.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/client.h"
#include "libclient/post.h"
#include "tests/system/harness.h"
#include "tests/system/raw.h"

#include "fixture.h"

#define BLOCK_TOKENS 16u
#define ALL UINT32_MAX
#define NONE UINT32_MAX

struct engine {
	struct kvp_client *client;
	uint8_t *plane;
	int64_t block_bytes;
};

static struct kvt_daemon *start(void)
{
	static const char *const options[] = {"--set=pool.p.blocks=256",
					      "--set=pool.p.block_tokens=16",
					      "--set=pool.p.planes=k bf16 1x64",
					      "--set=pool.p.pages=4k",
					      "--poll-ms=1",
					      NULL};

	return kvt_daemon_start(options);
}

static struct engine attach_as(const struct kvt_daemon *daemon, const char *model, uint32_t flags,
			       uint32_t high)
{
	struct kvp_connect_params connect = {
		.size = sizeof(connect), .path = daemon->socket, .timeout_ms = WAIT_MS};
	const struct kvp_identity identity[2] = {{"weights", model}, {"kv_dtype", "bf16"}};
	struct kvp_attach_params params = {.size = sizeof(params),
					   .max_seqs = 12,
					   .max_seq_tokens = 512,
					   .flags = flags,
					   .lease_high = high,
					   .identity = identity,
					   .identity_count = 2};
	struct kvp_view view = {.size = sizeof(view)};
	struct engine engine = {0};

	assert_ok(kvp_connect(&connect, &engine.client));
	assert_ok(kvp_attach(engine.client, &params));
	assert_ok(kvp_plane_view(engine.client, 0, KVP_LAYOUT_NATIVE, &view));
	engine.plane = view.data;
	engine.block_bytes = view.strides[0] * 2;
	return engine;
}

static struct engine attach(const struct kvt_daemon *daemon)
{
	return attach_as(daemon, "model", 0, 0);
}

static struct kvp_seq *open_seq(const struct engine *engine, uint32_t base, uint32_t count,
				uint32_t max_cached, uint32_t reserve)
{
	struct fixture fixture = {.client = engine->client};

	return fixture_seq(&fixture, base, count, max_cached, reserve);
}

static void advance(const struct engine *engine, struct kvp_seq *seq, uint32_t base, uint32_t n)
{
	struct fixture fixture = {.client = engine->client};

	fixture_advance(&fixture, seq, base, n);
}

/* The KV of a block: its first token's id in every byte. */
static void write_block(const struct engine *engine, const struct kvp_seq *seq, uint32_t index, uint8_t byte)
{
	memset(engine->plane + fixture_block(seq, index).id * engine->block_bytes, byte,
	       BLOCK_TOKENS * 64 * 2);
}

static uint8_t read_block(const struct engine *engine, const struct kvp_seq *seq, uint32_t index)
{
	return engine->plane[fixture_block(seq, index).id * engine->block_bytes + 77];
}

/* Everything was given back: the daemon's deep check finds no fault, and no block is owned. */
static void check_and_stop(struct kvt_daemon *daemon)
{
	struct kvt_raw *admin = kvt_raw_hello(daemon);
	struct kvt_pool_state pool;

	kvt_must_check(admin);
	do
		pool = kvt_pool_state(admin);
	while (pool.leased || pool.pending || pool.draining || pool.orphan || pool.frozen ||
	       pool.quarantined || pool.referenced);
	kvt_must_check(admin);
	assert_int_equal(pool.counters[KVW_COUNTER_stale_refusals], 0);
	kvt_raw_close(admin);
	kvt_daemon_stop(daemon);
}

static void two_engines_share_a_prefix_without_a_copy(void **state)
{
	struct kvt_daemon *daemon = start();
	struct engine a = attach(daemon);
	struct engine b = attach(daemon);
	struct kvp_seq *writer = open_seq(&a, 1000, 50, 0, 0);
	struct kvp_seq *reader;
	uint32_t i;

	(void)state;
	for (i = 0; i < 3; i++)
		write_block(&a, writer, i, (uint8_t)(0x40 + i));
	advance(&a, writer, 1000, 50);
	assert_ok(kvp_sync(a.client, WAIT_MS));
	reader = open_seq(&b, 1000, 50, 0, 0);
	assert_int_equal(fixture_info(reader).cached_tokens, 48);
	for (i = 0; i < 3; i++) {
		assert_int_equal(read_block(&b, reader, i), 0x40 + i);
		assert_int_equal(fixture_block(reader, i).writer, kvp_session_id(a.client));
		assert_int_equal(fixture_block(reader, i).flags, KVP_BLOCK_MATCHED);
	}
	assert_int_equal(fixture_block(reader, 3).writer, kvp_session_id(b.client));
	assert_ok(kvp_seq_close(writer));
	assert_ok(kvp_seq_close(reader));
	kvp_close(a.client);
	kvp_close(b.client);
	check_and_stop(daemon);
}

static void engines_of_another_identity_share_nothing(void **state)
{
	struct kvt_daemon *daemon = start();
	struct engine a = attach_as(daemon, "one", 0, 0);
	struct engine b = attach_as(daemon, "two", 0, 0);
	struct kvp_seq *writer = open_seq(&a, 1000, 50, 0, 0);
	struct kvp_seq *reader;

	(void)state;
	advance(&a, writer, 1000, 50);
	assert_ok(kvp_sync(a.client, WAIT_MS));
	reader = open_seq(&b, 1000, 50, 0, NONE);
	assert_int_equal(fixture_info(reader).cached_tokens, 0);
	assert_ok(kvp_seq_close(writer));
	assert_ok(kvp_seq_close(reader));
	kvp_close(a.client);
	kvp_close(b.client);
	check_and_stop(daemon);
}

static void probe_sees_what_is_complete(void **state)
{
	struct kvt_daemon *daemon = start();
	struct engine a = attach(daemon);
	struct kvp_seq *seq = open_seq(&a, 1000, 50, 0, 0);
	uint32_t tokens[50];
	struct kvp_open_request request = {.size = sizeof(request), .tokens = tokens, .token_count = 50};
	uint32_t i;

	(void)state;
	for (i = 0; i < 50; i++)
		tokens[i] = 1000 + i;
	assert_int_equal(kvp_probe(a.client, &request), 0);
	assert_ok(kvp_seq_stage(seq, 50, 0, 1));
	assert_ok(kvp_seq_settle(seq, 50, NULL, 1, 0, 1));
	assert_ok(kvp_sync(a.client, WAIT_MS));
	/* Its step is not done. */
	assert_int_equal(kvp_probe(a.client, &request), 0);
	kvp_step_done(a.client, 0, 1);
	while (kvp_probe(a.client, &request) == 0)
		;
	assert_int_equal(kvp_probe(a.client, &request), 3);
	request.max_cached_tokens = 33;
	assert_int_equal(kvp_probe(a.client, &request), 2);
	assert_ok(kvp_seq_close(seq));
	kvp_close(a.client);
	check_and_stop(daemon);
}

static void duplicates_at_start_up_converge_to_the_canonical_blocks(void **state)
{
	struct kvt_daemon *daemon = start();
	struct engine a = attach(daemon);
	struct engine b = attach(daemon);
	/* Both miss, both compute. */
	struct kvp_seq *first = open_seq(&a, 1000, 40, 0, 0);
	struct kvp_seq *second = open_seq(&b, 1000, 40, 0, 0);

	(void)state;
	assert_int_not_equal(fixture_block(first, 0).id, fixture_block(second, 0).id);
	advance(&a, first, 1000, 40);
	assert_ok(kvp_sync(a.client, WAIT_MS));
	advance(&b, second, 1000, 40);
	assert_ok(kvp_sync(b.client, WAIT_MS));
	assert_int_equal(fixture_info(first).duplicates, 0);
	assert_int_equal(fixture_info(second).duplicates, 2);
	assert_ok(kvp_seq_reserve(second, 1));
	assert_int_equal(fixture_block(second, 0).id, fixture_block(first, 0).id);
	assert_int_equal(fixture_block(second, 1).id, fixture_block(first, 1).id);
	assert_int_equal(kvp_seq_blocks(second)[1], fixture_block(first, 1).id);
	assert_ok(kvp_seq_close(first));
	assert_ok(kvp_seq_close(second));
	kvp_close(a.client);
	kvp_close(b.client);
	check_and_stop(daemon);
}

static void drafts_truncate_and_fork_keep_the_books_right(void **state)
{
	struct kvt_daemon *daemon = start();
	struct engine a = attach(daemon);
	struct kvp_seq *seq = open_seq(&a, 1000, 40, 0, 0);
	struct kvp_seq *child = NULL;
	const uint32_t tokens[8] = {1040, 1041, 7, 7, 7, 7, 7, 7};

	(void)state;
	advance(&a, seq, 1000, 40);
	assert_ok(kvp_lease_wait(a.client, 2, WAIT_MS));
	assert_ok(kvp_seq_reserve(seq, 8));
	assert_ok(kvp_seq_stage(seq, 8, 0, kvp_step_next(a.client, 0)));
	assert_ok(kvp_seq_settle(seq, 2, tokens, 1, 0, 2));
	kvp_step_done(a.client, 0, 2);
	assert_int_equal(fixture_info(seq).settled, 42);
	assert_ok(kvp_seq_fork(seq, WAIT_MS, &child));
	assert_int_equal(fixture_info(child).cached_tokens, 32);
	assert_ok(kvp_lease_wait(a.client, 2, WAIT_MS));
	assert_ok(kvp_seq_truncate(child, 20));
	assert_int_equal(fixture_info(child).settled, 16);
	assert_int_equal(fixture_info(child).blocks, 2);
	advance(&a, child, 5000, 16);
	assert_ok(kvp_sync(a.client, WAIT_MS));
	assert_int_equal(fixture_info(child).committed, 32);
	assert_int_not_equal(fixture_block(child, 1).id, fixture_block(seq, 1).id);
	assert_ok(kvp_seq_close(seq));
	assert_ok(kvp_seq_close(child));
	assert_ok(kvp_sync(a.client, WAIT_MS));
	kvp_close(a.client);
	check_and_stop(daemon);
}

static void the_lease_keeps_to_its_marks(void **state)
{
	struct kvt_daemon *daemon = start();
	struct engine a = attach(daemon);
	struct engine none = attach_as(daemon, "model", KVP_ATTACH_LEASE_MARKS, 0);
	struct fixture fixture = {.client = a.client};
	struct kvt_raw *admin = kvt_raw_hello(daemon);
	struct kvp_lease_info lease = fixture_lease(&fixture);
	struct kvp_seq *seq;

	(void)state;
	assert_true(lease.critical <= lease.low && lease.low <= lease.high && lease.high > 0);
	assert_ok(kvp_lease_wait(a.client, lease.high, WAIT_MS));
	seq = open_seq(&none, 1, 400, 0, 0);
	assert_error(kvp_seq_reserve(seq, 401), KVP_ELEASE);
	assert_ok(kvp_seq_close(seq));
	assert_ok(kvp_sync(none.client, WAIT_MS));
	/* Only the first one's lease is left. */
	while (kvt_pool_state(admin).leased + kvt_pool_state(admin).draining != lease.high)
		;
	assert_int_equal(fixture_lease(&fixture).blocks, lease.high);
	kvt_raw_close(admin);
	kvp_close(none.client);
	kvp_close(a.client);
	check_and_stop(daemon);
}

static void a_full_pool_is_told_with_its_numbers_and_the_sequence_goes_on(void **state)
{
	struct kvt_daemon *daemon = start();
	struct engine a = attach_as(daemon, "model", KVP_ATTACH_LEASE_MARKS, 0);
	static const uint32_t tokens[16];
	struct kvp_open_request request = {.size = sizeof(request), .tokens = tokens, .token_count = 16};
	struct kvp_seq *seqs[8];
	struct kvp_seq *more = NULL;
	uint32_t i;
	int result;

	(void)state;
	/* 7 * 32 + 31 of 256 blocks. */
	for (i = 0; i < 8; i++)
		seqs[i] = open_seq(&a, 10000 * i, i < 7 ? 500 : 490, 0, 0);
	assert_ok(kvp_open(a.client, &request, 1, WAIT_MS, &result, &more));
	assert_ok(result);
	assert_error(kvp_seq_extend(seqs[7], 512, WAIT_MS), KVP_ENOBLOCKS);
	assert_non_null(strstr(kvp_last_error(), "0 blocks free"));
	assert_int_equal(fixture_info(seqs[7]).blocks, 31);
	advance(&a, seqs[7], 70000, 490);
	assert_ok(kvp_seq_close(more));
	assert_ok(kvp_sync(a.client, WAIT_MS));
	assert_ok(kvp_seq_extend(seqs[7], 22, WAIT_MS));
	assert_int_equal(fixture_info(seqs[7]).blocks, 32);
	assert_error(kvp_seq_extend(seqs[7], 23, WAIT_MS), KVP_ELIMIT);
	for (i = 0; i < 8; i++)
		assert_ok(kvp_seq_close(seqs[i]));
	kvp_close(a.client);
	check_and_stop(daemon);
}

static void a_killed_daemon_is_told_and_what_is_held_stays_readable(void **state)
{
	struct kvt_daemon *daemon = start();
	struct engine a = attach(daemon);
	struct kvp_seq *seq = open_seq(&a, 1000, 40, 0, 0);
	struct kvp_seq *posted = NULL;
	static const uint32_t tokens[4];
	struct kvp_open_request request = {.size = sizeof(request), .tokens = tokens, .token_count = 4};
	struct kvp_connect_params connect = {.size = sizeof(connect), .timeout_ms = 50};
	struct kvp_client *again = NULL;
	char path[160];

	(void)state;
	write_block(&a, seq, 0, 0x55);
	assert_ok(kvp_lease_wait(a.client, 1, WAIT_MS));
	snprintf(path, sizeof(path), "%s", daemon->socket);
	connect.path = path;
	kvt_daemon_kill(daemon);
	assert_ok(kvp_open_post(a.client, &request, &posted));
	assert_error(kvp_open_collect(posted, WAIT_MS), KVP_EDAEMON);
	assert_error(kvp_sync(a.client, WAIT_MS), KVP_EDAEMON);
	assert_int_equal(read_block(&a, seq, 0), 0x55);
	assert_int_equal(kvp_check(a.client), 0);
	assert_ok(kvp_seq_reserve(seq, 41));
	advance(&a, seq, 1000, 41);
	assert_ok(kvp_seq_close(posted));
	assert_ok(kvp_seq_close(seq));
	kvp_close(a.client);
	assert_true(kvp_connect(&connect, &again) < 0);
}

static void a_stopped_daemon_costs_no_more_than_the_deadline(void **state)
{
	struct kvt_daemon *daemon = start();
	struct engine a = attach(daemon);
	static const uint32_t tokens[40];
	struct kvp_open_request request = {.size = sizeof(request), .tokens = tokens, .token_count = 40};
	struct kvp_pool_info info = {.size = sizeof(info)};
	struct kvp_seq *seq = NULL;
	int result;

	(void)state;
	assert_ok(kvp_sync(a.client, WAIT_MS));
	kill(daemon->pid, SIGSTOP);
	assert_error(kvp_open(a.client, &request, 1, 30, &result, &seq), ETIMEDOUT);
	assert_error(kvp_pool_info(a.client, NULL, 30, &info), ETIMEDOUT);
	kill(daemon->pid, SIGCONT);
	/* The late answers are not taken for those of the next questions. */
	assert_ok(kvp_pool_info(a.client, NULL, WAIT_MS, &info));
	assert_int_equal(info.data_blocks, 256);
	assert_ok(kvp_open(a.client, &request, 1, WAIT_MS, &result, &seq));
	assert_ok(result);
	assert_ok(kvp_seq_close(seq));
	kvp_close(a.client);
	check_and_stop(daemon);
}

static void a_session_that_breaks_the_protocol_is_revoked_and_learns_it(void **state)
{
	struct kvt_daemon *daemon = start();
	struct engine a = attach(daemon);
	struct engine b = attach(daemon);
	struct kvp_seq *seq = open_seq(&a, 1000, 40, 0, 0);
	struct kvp_seq *other = open_seq(&b, 1000, 40, 0, 0);
	struct kvw_request record = {.type = 99};

	(void)state;
	pthread_mutex_lock(&a.client->lock);
	assert_int_equal(kvc_post_telling(a.client, &record), 0);
	kvc_ring_doorbell(a.client->engine);
	pthread_mutex_unlock(&a.client->lock);
	while (kvp_check(a.client) == 0)
		;
	assert_error(kvp_check(a.client), KVP_EREVOKED);
	assert_error(kvp_seq_reserve(seq, 1), KVP_EREVOKED);
	assert_error(kvp_sync(a.client, WAIT_MS), KVP_EREVOKED);
	assert_ok(kvp_seq_close(seq));
	/* Nobody else notices. */
	advance(&b, other, 1000, 40);
	assert_ok(kvp_sync(b.client, WAIT_MS));
	assert_ok(kvp_seq_close(other));
	kvp_close(a.client);
	kvp_close(b.client);
	check_and_stop(daemon);
}

static void the_daemons_refusals_are_told_in_its_words(void **state)
{
	static const char *const options[] = {KVT_SMALL_POOL, "--max-sessions=1", NULL};
	struct kvt_daemon *daemon = kvt_daemon_start(options);
	struct kvp_connect_params connect = {
		.size = sizeof(connect), .path = daemon->socket, .timeout_ms = WAIT_MS};
	struct kvp_pool_info info = {.size = sizeof(info)};
	struct kvp_client *first = NULL;
	struct kvp_client *second = NULL;

	(void)state;
	assert_ok(kvp_connect(&connect, &first));
	assert_error(kvp_connect(&connect, &second), KVP_ELIMIT);
	assert_non_null(strstr(kvp_last_error(), "session"));
	assert_error(kvp_pool_info(first, "nowhere", WAIT_MS, &info), KVP_ENOPOOL);
	assert_non_null(strstr(kvp_last_error(), "nowhere"));
	connect.incarnation = kvp_incarnation(first) + 1;
	kvp_close(first);
	while ((first = NULL, kvp_connect(&connect, &first)) == -KVP_ELIMIT)
		;
	assert_error(kvp_connect(&connect, &first), KVP_EINCARNATION);
	kvt_daemon_stop(daemon);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(two_engines_share_a_prefix_without_a_copy),
		cmocka_unit_test(engines_of_another_identity_share_nothing),
		cmocka_unit_test(probe_sees_what_is_complete),
		cmocka_unit_test(duplicates_at_start_up_converge_to_the_canonical_blocks),
		cmocka_unit_test(drafts_truncate_and_fork_keep_the_books_right),
		cmocka_unit_test(the_lease_keeps_to_its_marks),
		cmocka_unit_test(a_full_pool_is_told_with_its_numbers_and_the_sequence_goes_on),
		cmocka_unit_test(a_killed_daemon_is_told_and_what_is_held_stays_readable),
		cmocka_unit_test(a_stopped_daemon_costs_no_more_than_the_deadline),
		cmocka_unit_test(a_session_that_breaks_the_protocol_is_revoked_and_learns_it),
		cmocka_unit_test(the_daemons_refusals_are_told_in_its_words),
	};

	kvt_take_lane(argc, argv, 110);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
