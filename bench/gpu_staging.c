/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the host pays to bring a decode step's arrays to the device: kvp_batch_stage() alone, by rows, one token more in
 * each of the sequences, which are at random phases. A daemon of our own with a pool on the host: staging is the same.
 */
#include "gpu_case.h"

#include <stdio.h>
#include <stdlib.h>

#include <kvpool/kvpool.h>

#include "bench.h"
#include "pool.h"

#define BLOCK_TOKENS 64u
#define BLOCKS 128u
#define MAX_SEQS 128u
#define STEPS 400u
#define WARM_UP 8u
#define SLOTS 4u
#define WAIT_MS 20000u

struct engine {
	struct bench_gpu *gpu;
	struct kvp_client *client;
	struct kvp_batch *batch;
	struct kvp_seq *seqs[MAX_SEQS];
	uint32_t count, blocks;
};

static void check(int ret, const char *what)
{
	if (ret < 0)
		bench_gpu_fail(what, kvp_last_error());
}

static void attach(struct engine *engine, const char *socket_path)
{
	const struct kvp_connect_params connect = {
		.size = sizeof(connect), .path = socket_path, .name = "bench_gpu"};
	const struct kvp_attach_params attach = {.size = sizeof(attach),
						 .max_seqs = engine->count,
						 .max_seq_tokens = (engine->blocks + 16) * BLOCK_TOKENS,
						 .slots = SLOTS,
						 .cuda_context = engine->gpu->context};
	const struct kvp_batch_params batch = {.size = sizeof(batch), .staging = KVP_STAGING_ROWS};

	check(kvp_connect(&connect, &engine->client), "connecting");
	check(kvp_attach(engine->client, &attach), "attaching");
	check(kvp_batch_create(engine->client, &batch, &engine->batch), "making a batch");
}

static void open_one(struct engine *engine, uint32_t i, uint32_t *prompt)
{
	const uint32_t tokens = (engine->blocks - 1) * BLOCK_TOKENS + bench_random(BLOCK_TOKENS);
	const struct kvp_open_request request = {
		.size = sizeof(request), .tokens = prompt, .token_count = tokens};
	const uint64_t step = kvp_step_next(engine->client, 0);
	int result;

	for (uint32_t j = 0; j < tokens; j++)
		prompt[j] = bench_random(UINT32_MAX);
	check(kvp_open(engine->client, &request, 1, WAIT_MS, &result, &engine->seqs[i]), "opening");
	check(result, "opening");
	check(kvp_seq_stage(engine->seqs[i], tokens, 0, step), "staging a prompt");
	check(kvp_seq_settle(engine->seqs[i], tokens, NULL, 1, 0, step), "settling a prompt");
	kvp_step_done(engine->client, 0, step);
}

static double one_step(struct engine *engine)
{
	struct kvp_batch_view host = {.size = sizeof(host)}, device = {.size = sizeof(device)};
	const uint64_t step = kvp_step_next(engine->client, 0);
	uint32_t tokens[MAX_SEQS];
	uint64_t begin, end;

	for (uint32_t i = 0; i < engine->count; i++)
		tokens[i] = bench_random(UINT32_MAX);
	check(kvp_lease_wait(engine->client, 8, WAIT_MS), "waiting for the lease");
	check(kvp_batch_reserve(engine->batch, NULL), "reserving");
	check(kvp_batch_begin(engine->batch, NULL, 0, step, &host), "beginning a step");
	begin = bench_now_ns();
	check(kvp_batch_stage(engine->batch, engine->gpu->stream, &device), "staging a step");
	end = bench_now_ns();
	/* Here the model runs. */
	check(kvp_step_done_on(engine->client, 0, step, engine->gpu->stream), "ending a step");
	GPU_CALL(engine->gpu, cuStreamSynchronize, engine->gpu->stream);
	check(kvp_batch_settle(engine->batch, NULL, tokens, 0, step), "settling");
	return (double)(end - begin) * 1e-3;
}

static double run(struct engine *engine)
{
	uint32_t *prompt = bench_memory((size_t)engine->blocks * BLOCK_TOKENS * sizeof(*prompt));
	const uint32_t steps = engine->gpu->rehearsal ? 4 : STEPS;
	double *samples = calloc(steps, sizeof(*samples));
	double median;

	for (uint32_t i = 0; i < engine->count; i++)
		open_one(engine, i, prompt);
	check(kvp_batch_set(engine->batch, engine->seqs, engine->count), "filling the batch");
	for (uint32_t i = 0; i < WARM_UP; i++)
		(void)one_step(engine);
	for (uint32_t i = 0; i < steps; i++)
		samples[i] = one_step(engine);
	median = bench_median(samples, steps);
	free(samples);
	free(prompt);
	return engine->gpu->rehearsal ? 0 : median;
}

double gpu_staging_us(struct bench_gpu *gpu, uint32_t seqs)
{
	static const char *const settings[] = {"--set=pool.bench.blocks=40000",
					       "--set=pool.bench.block_tokens=64",
					       "--set=pool.bench.planes=opaque 16", NULL};
	struct engine engine = {.gpu = gpu,
				.count = (uint32_t)bench_gpu_size(gpu, (int32_t)seqs, 4),
				.blocks = (uint32_t)bench_gpu_size(gpu, (int32_t)BLOCKS, 4)};
	struct bench_daemon daemon;
	double us;

	bench_daemon_start(&daemon, settings);
	attach(&engine, daemon.socket);
	us = run(&engine);
	kvp_batch_destroy(engine.batch);
	kvp_close(engine.client);
	bench_daemon_stop(&daemon);
	return us;
}
