/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>

void assert_ok_at(int ret, const char *call, const char *file, int line)
{
	if (ret < 0) {
		print_error("%s: %s (%s)\n", call, kvp_error_name(ret), kvp_last_error());
		_fail(file, line);
	}
}

struct kvp_client *fixture_connect(struct fake_daemon *fake)
{
	struct kvp_connect_params params = {
		.size = sizeof(params), .path = fake->path, .timeout_ms = WAIT_MS};
	struct kvp_client *client = NULL;

	assert_ok(kvp_connect(&params, &client));
	return client;
}

struct fixture *fixture_open(const struct fake_options *options, const struct kvp_attach_params *params)
{
	struct kvp_attach_params own = {.size = sizeof(own), .max_seqs = 16, .max_seq_tokens = 128};
	struct fixture *fixture = calloc(1, sizeof(*fixture));

	assert_non_null(fixture);
	fixture->fds = kvt_count_fds();
	fixture->fake = fake_start(options);
	fixture->client = fixture_connect(fixture->fake);
	assert_ok(kvp_attach(fixture->client, params ? params : &own));
	return fixture;
}

void fixture_close(struct fixture *fixture)
{
	kvp_close(fixture->client);
	if (fixture->fake->books.faults)
		print_error("the fake daemon saw: %s\n", fixture->fake->books.fault);
	assert_int_equal(fixture->fake->books.faults, 0);
	fake_stop(fixture->fake);
	assert_int_equal(kvt_count_fds(), fixture->fds);
	free(fixture);
}

struct kvp_seq *fixture_seq(struct fixture *fixture, uint32_t base, uint32_t tokens, uint32_t max_cached,
			    uint32_t reserve)
{
	uint32_t *prompt = calloc(tokens + 1, sizeof(*prompt));
	struct kvp_open_request request = {
		.size = sizeof(request),
		.tokens = prompt,
		.token_count = tokens,
		.max_cached_tokens = max_cached,
		.reserve_tokens = reserve,
	};
	struct kvp_seq *seq = NULL;
	uint32_t i;
	int result;

	for (i = 0; i < tokens; i++)
		prompt[i] = base + i;
	assert_ok(kvp_open(fixture->client, &request, 1, WAIT_MS, &result, &seq));
	free(prompt);
	assert_ok(result);
	return seq;
}

void fixture_advance(struct fixture *fixture, struct kvp_seq *seq, uint32_t base, uint32_t n)
{
	uint32_t first = fixture_info(seq).staged;
	uint32_t *tokens = calloc(n + 1, sizeof(*tokens));
	uint64_t step = kvp_step_next(fixture->client, 0);
	uint32_t i;

	for (i = 0; i < n; i++)
		tokens[i] = base + first + i;
	assert_ok(kvp_seq_stage(seq, n, 0, step));
	assert_ok(kvp_seq_settle(seq, n, tokens, 1, 0, step));
	kvp_step_done(fixture->client, 0, step);
	free(tokens);
}

static bool has_taken_all(void *arg)
{
	struct fake_daemon *fake = arg;
	bool all;

	pthread_mutex_lock(&fake->lock);
	all = kvw_ring_waiting(&fake->requests) == 0;
	pthread_mutex_unlock(&fake->lock);
	return all;
}

void fixture_extend_late(struct fixture *fixture, struct kvp_seq *seq, uint32_t tokens)
{
	fake_pause(fixture->fake, true);
	assert_error(kvp_seq_extend(seq, tokens, 0), ETIMEDOUT);
	fake_pause(fixture->fake, false);
	kvt_wait_until(has_taken_all, fixture->fake);
}

void fixture_hash(uint32_t base, uint32_t count, uint8_t out[][KVW_SHA256_BYTES])
{
	struct kvw_hasher *hasher;
	uint32_t tokens[4];
	uint32_t i, j;

	assert_ok(kvw_hasher_create(&hasher));
	for (i = 0; i < count; i++) {
		for (j = 0; j < 4; j++)
			tokens[j] = base + i * 4 + j;
		assert_ok(kvw_hash_block(hasher, i ? out[i - 1] : NULL, tokens, 4, NULL, 0, out[i]));
	}
	kvw_hasher_destroy(hasher);
}

struct kvp_seq_info fixture_info(const struct kvp_seq *seq)
{
	struct kvp_seq_info info = {.size = sizeof(info)};

	assert_ok(kvp_seq_info(seq, &info));
	return info;
}

struct kvp_lease_info fixture_lease(struct fixture *fixture)
{
	struct kvp_lease_info info = {.size = sizeof(info)};

	assert_ok(kvp_lease_info(fixture->client, &info));
	return info;
}

struct kvp_block_info fixture_block(const struct kvp_seq *seq, uint32_t index)
{
	struct kvp_block_info info = {.size = sizeof(info)};

	assert_ok(kvp_seq_block(seq, index, &info));
	return info;
}
