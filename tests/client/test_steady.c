/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steady step: no system call, no allocation, though sequences fill and publish blocks and the lease is refilled behind it.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "faulty_memory.h"
#include "fixture.h"
#include "syscall_count.h"

#define SEQS 8u
#define STEPS 400u
#define PROMPT 6u

static const struct fake_options big_lease = {.low = 128, .critical = 8, .high = 512, .data_blocks = 2000};
static const struct kvp_attach_params params = {
	.size = sizeof(params), .max_seqs = 16, .max_seq_tokens = PROMPT + STEPS + 8};

static struct fixture *open_all(struct kvp_seq **seqs, struct kvp_batch **batch)
{
	struct fixture *fixture = fixture_open(&big_lease, &params);
	uint32_t i;

	for (i = 0; i < SEQS; i++)
		seqs[i] = fixture_seq(fixture, i * 100000, PROMPT - i % 4, 0, 0);
	assert_ok(kvp_batch_create(fixture->client, NULL, batch));
	assert_ok(kvp_batch_set(*batch, seqs, SEQS));
	assert_ok(kvp_lease_wait(fixture->client, 128, WAIT_MS));
	return fixture;
}

/* What a decode loop calls. Returns the first error; no assertion in here, they make system calls. */
static int decode_step(struct kvp_client *client, struct kvp_batch *batch, uint64_t step)
{
	struct kvp_batch_view view = {.size = sizeof(view)};
	uint32_t tokens[SEQS];
	uint32_t i;
	int ret = kvp_check(client);

	for (i = 0; i < SEQS; i++)
		tokens[i] = (uint32_t)step * SEQS + i;
	if (!ret)
		ret = kvp_batch_reserve(batch, NULL);
	if (!ret)
		ret = kvp_batch_begin(batch, NULL, 0, step, &view);
	kvp_step_done(client, 0, step);
	if (!ret)
		ret = kvp_batch_settle(batch, NULL, tokens, 0, step);
	return ret;
}

static void close_everything(struct fixture *fixture, struct kvp_seq **seqs, struct kvp_batch *batch)
{
	uint32_t i;

	kvp_batch_destroy(batch);
	for (i = 0; i < SEQS; i++)
		assert_ok(kvp_seq_close(seqs[i]));
	assert_ok(kvp_sync(fixture->client, WAIT_MS));
	assert_true(fixture->fake->books.published > SEQS * (STEPS / 4 - 2));
	fixture_close(fixture);
}

static void a_decode_step_makes_no_system_call(void **state)
{
	struct kvp_seq *seqs[SEQS];
	struct kvp_batch *batch = NULL;
	struct fixture *fixture = open_all(seqs, &batch);
	uint32_t calls = 0;
	uint32_t control = 0;
	uint32_t i;
	int ret = 0;

	(void)state;
	/* The lease is waited for between the steps: they are shorter than the fake's poll interval. */
	for (i = 1; i <= STEPS / 2 && !ret; i++) {
		assert_ok(kvp_lease_wait(fixture->client, 64, WAIT_MS));
		syscall_count_begin();
		ret = decode_step(fixture->client, batch, i);
		calls += syscall_count_end();
	}
	assert_ok(ret);
	/* The counter counts: the same with one system call a step. */
	for (; i <= STEPS && !ret; i++) {
		assert_ok(kvp_lease_wait(fixture->client, 64, WAIT_MS));
		syscall_count_begin();
		ret = decode_step(fixture->client, batch, i);
		getppid();
		control += syscall_count_end();
	}
	assert_ok(ret);
	assert_int_equal(calls, 0);
	assert_int_equal(control, STEPS / 2);
	close_everything(fixture, seqs, batch);
}

static void a_decode_step_allocates_nothing(void **state)
{
	struct kvp_seq *seqs[SEQS];
	struct kvp_batch *batch = NULL;
	struct fixture *fixture = open_all(seqs, &batch);
	uint64_t requests;
	uint32_t i;
	int ret = 0;

	(void)state;
	faulty_memory_watch(0);
	for (i = 1; i <= STEPS && !ret; i++) {
		ret = kvp_lease_wait(fixture->client, 64, WAIT_MS);
		if (!ret)
			ret = decode_step(fixture->client, batch, i);
	}
	requests = faulty_memory_end();
	assert_ok(ret);
	assert_int_equal(requests, 0);
	close_everything(fixture, seqs, batch);
}

/* Calls on one sequence that the header promises to neither wait nor allocate. */
static int single_calls(struct kvp_client *client, struct kvp_seq *seq,
			const struct kvp_open_request *request)
{
	const uint32_t tokens[4] = {1, 2, 3, 4};
	int ret = kvp_seq_reserve(seq, 4);

	if (!ret)
		ret = kvp_seq_stage(seq, 4, 1, 1);
	if (!ret)
		ret = kvp_seq_settle(seq, 4, tokens, 1, 1, 1);
	kvp_step_done(client, 1, kvp_step_next(client, 1));
	if (!ret)
		ret = kvp_probe(client, request) < 0;
	if (!ret)
		ret = kvp_seq_ready(seq) != 1;
	if (!ret)
		ret = kvp_seq_stop_publish(seq);
	if (!ret)
		ret = kvp_seq_truncate(seq, 9);
	return ret ? ret : kvp_seq_close(seq);
}

static void calls_on_one_sequence_neither_enter_the_kernel_nor_allocate(void **state)
{
	static const uint32_t prompt[16];
	const struct kvp_open_request request = {
		.size = sizeof(request), .tokens = prompt, .token_count = 16};
	struct fixture *fixture = fixture_open(&big_lease, &params);
	struct kvp_seq *seq = fixture_seq(fixture, 1, 6, 0, 0);
	uint64_t requests;
	bool called;
	int ret;

	(void)state;
	assert_ok(kvp_lease_wait(fixture->client, 128, WAIT_MS));
	fixture_advance(fixture, seq, 1, 6);
	assert_ok(kvp_sync(fixture->client, WAIT_MS));
	faulty_memory_watch(0);
	syscall_count_begin();
	ret = single_calls(fixture->client, seq, &request);
	called = syscall_count_end();
	requests = faulty_memory_end();
	assert_ok(ret);
	assert_false(called);
	assert_int_equal(requests, 0);
	fixture_close(fixture);
}

static void a_lease_below_its_critical_mark_rings_once_a_request(void **state)
{
	const struct fake_options options = {.low = 16, .critical = 15, .high = 16};
	struct fixture *fixture = fixture_open(&options, &params);
	struct kvp_seq *seq = fixture_seq(fixture, 1, 4, 0, 0);
	bool first, again;
	uint32_t i;
	int ret;

	(void)state;
	assert_ok(kvp_lease_wait(fixture->client, 16, WAIT_MS));
	fake_pause(fixture->fake, true);
	syscall_count_begin();
	ret = kvp_seq_reserve(seq, 12);
	first = syscall_count_end();
	syscall_count_begin();
	for (i = 0; i < 10 && !ret; i++)
		ret = kvp_seq_reserve(seq, 12);
	again = syscall_count_end();
	assert_ok(ret);
	assert_true(first);
	assert_false(again);
	fake_pause(fixture->fake, false);
	assert_ok(kvp_lease_wait(fixture->client, 16, WAIT_MS));
	assert_true(atomic_load(&fixture->fake->doorbells) > 0);
	assert_ok(kvp_seq_close(seq));
	fixture_close(fixture);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_decode_step_makes_no_system_call),
		cmocka_unit_test(a_decode_step_allocates_nothing),
		cmocka_unit_test(calls_on_one_sequence_neither_enter_the_kernel_nor_allocate),
		cmocka_unit_test(a_lease_below_its_critical_mark_rings_once_a_request),
	};

	faulty_memory_init();
	kvt_watchdog(110);
	if (!syscall_count_init())
		return KVT_SKIP;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
