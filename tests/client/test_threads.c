/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several threads of one client, each with sequences of its own, all with the same prompts now and then: for ThreadSanitizer, and for the books
 * at the end.
 */
#include <stdlib.h>

#include "fixture.h"

#define THREADS 4u
#define ROUNDS 120u
#define PROMPT 22u

struct worker {
	struct kvp_client *client;
	pthread_t thread;
	struct kvt_rng rng;
	uint32_t number;
	uint32_t finished; /* rounds */
	int error;
};

static uint32_t below(struct worker *worker, uint32_t bound)
{
	return (uint32_t)kvt_rng_below(&worker->rng, bound);
}

static int step(struct worker *worker, struct kvp_seq *seq, uint32_t n, const uint32_t *tokens)
{
	/* A timeline of its own: steps end in the order in which its thread ends them. */
	uint64_t number = kvp_step_next(worker->client, worker->number);
	int ret = kvp_seq_stage(seq, n, worker->number, number);

	if (!ret && below(worker, 2))
		kvp_step_done(worker->client, worker->number, number);
	if (!ret)
		ret = kvp_seq_settle(seq, n, tokens, 1, worker->number, number);
	kvp_step_done(worker->client, worker->number, number);
	return ret;
}

static int decode(struct worker *worker, struct kvp_seq *seq)
{
	const uint32_t token = below(worker, 3);
	uint32_t i;
	int ret = 0;

	for (i = 0; i < 6 && !ret; i++) {
		do
			ret = kvp_lease_wait(worker->client, 1, WAIT_MS);
		while (!ret && (ret = kvp_seq_reserve(seq, 1)) == -KVP_ELEASE);
		if (!ret)
			ret = step(worker, seq, 1, &token);
	}
	return ret;
}

static int fork_and_close(struct kvp_seq *seq)
{
	struct kvp_seq *child = NULL;
	int ret = kvp_seq_fork(seq, WAIT_MS, &child);

	return ret ? ret : kvp_seq_close(child);
}

static int close_seq(struct worker *worker, struct kvp_seq *seq)
{
	int ret;

	while ((ret = kvp_seq_close(seq)) == -KVP_EBACKLOG)
		if (kvp_sync(worker->client, WAIT_MS))
			return ret;
	return ret;
}

static int one_life(struct worker *worker)
{
	uint32_t prompt[PROMPT];
	struct kvp_open_request request = {.size = sizeof(request), .tokens = prompt, .token_count = PROMPT};
	struct kvp_seq_info info = {.size = sizeof(info)};
	struct kvp_lease_info lease = {.size = sizeof(lease)};
	uint32_t base = below(worker, 6) * 100;
	struct kvp_seq *seq = NULL;
	uint32_t i;
	int result = 0;
	int ret;

	for (i = 0; i < PROMPT; i++)
		prompt[i] = base + i;
	ret = kvp_probe(worker->client, &request);
	if (ret >= 0 || ret == -EAGAIN)
		ret = kvp_open(worker->client, &request, 1, WAIT_MS, &result, &seq);
	if (ret || result)
		return ret ? ret : result;
	ret = kvp_seq_info(seq, &info);
	if (!ret)
		ret = step(worker, seq, PROMPT - info.settled, NULL);
	/* 0: a sequence of another thread still writes what was matched. */
	if (!ret && kvp_seq_ready(seq) < 0)
		ret = -EIO;
	if (!ret)
		ret = decode(worker, seq);
	if (!ret && below(worker, 4) == 0)
		ret = fork_and_close(seq);
	if (!ret)
		ret = kvp_lease_info(worker->client, &lease);
	if (!ret && below(worker, 8) == 0)
		ret = kvp_sync(worker->client, WAIT_MS);
	return ret ? ret : close_seq(worker, seq);
}

static void *work(void *arg)
{
	struct worker *worker = arg;
	uint32_t i;

	for (i = 0; i < ROUNDS && !worker->error; i++)
		worker->error = one_life(worker);
	worker->finished = i;
	if (worker->error)
		print_error("thread %u: %s: %s\n", worker->number, kvp_error_name(worker->error),
			    kvp_last_error());
	return NULL;
}

static void threads_share_a_client(void **state)
{
	const struct fake_options options = {.low = 16, .critical = 8, .high = 48, .data_blocks = 400};
	struct fixture *fixture = fixture_open(&options, NULL);
	struct worker workers[THREADS];
	uint64_t seed = kvt_seed();
	uint32_t i;

	(void)state;
	for (i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){.client = fixture->client, .number = i, .rng = {seed + i}};
		assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	}
	for (i = 0; i < THREADS; i++) {
		pthread_join(workers[i].thread, NULL);
		assert_int_equal(workers[i].error, 0);
		assert_int_equal(workers[i].finished, ROUNDS);
	}
	assert_ok(kvp_sync(fixture->client, WAIT_MS));
	assert_int_equal(fake_count(fixture->fake, KVW_BLOCK_LEASED), fixture_lease(fixture).blocks);
	assert_true(fixture->fake->books.duplicates > 0);
	fixture_close(fixture);
}

static void *look_until_attached(void *arg)
{
	struct worker *worker = arg;
	struct kvp_lease_info lease = {.size = sizeof(lease)};

	do {
		worker->error = kvp_check(worker->client);
		if (!worker->error)
			worker->error = kvp_lease_info(worker->client, &lease);
	} while (worker->error == -KVP_ESTATE);
	return NULL;
}

static void a_thread_sees_an_engine_that_another_attaches_whole_or_not_at_all(void **state)
{
	struct kvp_attach_params params = {.size = sizeof(params), .max_seqs = 4, .max_seq_tokens = 64};
	struct fake_daemon *fake = fake_start(NULL);
	struct worker looker = {.client = fixture_connect(fake)};

	(void)state;
	assert_int_equal(pthread_create(&looker.thread, NULL, look_until_attached, &looker), 0);
	assert_ok(kvp_attach(looker.client, &params));
	pthread_join(looker.thread, NULL);
	assert_int_equal(looker.error, 0);
	kvp_close(looker.client);
	fake_stop(fake);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(threads_share_a_client),
		cmocka_unit_test(a_thread_sees_an_engine_that_another_attaches_whole_or_not_at_all),
	};

	kvt_watchdog(110);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
