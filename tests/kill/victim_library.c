/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine's work through libkvpool, at random: sequences opened, staged, settled, extended, truncated and
 * closed, until it is killed.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvpool/kvpool.h>

#include "victim.h"

#define SEQS 8u
#define CHAINS 24u
#define MOST_TOKENS 192u
#define WAIT_MS 20000u

struct worker {
	struct kvp_client *client;
	struct kvt_rng rng;
	struct kvp_seq *seqs[SEQS];
	uint64_t step;
};

static _Noreturn void die(const char *what, int error)
{
	fprintf(stderr, "victim: %s: %s (%s)\n", what, kvp_error_name(error), kvp_last_error());
	exit(1);
}

static void must(const char *what, int error)
{
	if (error < 0)
		die(what, error);
}

static uint32_t pick(struct worker *worker, uint32_t bound)
{
	return (uint32_t)kvt_rng_below(&worker->rng, bound);
}

static void open_seq(struct worker *worker, uint32_t at)
{
	uint32_t tokens[MOST_TOKENS];
	uint32_t count = 1 + pick(worker, MOST_TOKENS);
	uint32_t chain = pick(worker, CHAINS);
	struct kvp_open_request request = {
		.size = sizeof(request),
		.flags = pick(worker, 4) ? 0 : KVP_OPEN_COMING,
		.tokens = tokens,
		.token_count = count,
	};
	int result = 0;
	uint32_t i;

	for (i = 0; i < count; i++)
		tokens[i] = chain << 16 | i;
	must("open", kvp_open(worker->client, &request, 1, WAIT_MS, &result, &worker->seqs[at]));
	if (result && result != -KVP_ENOBLOCKS)
		die("open's result", result);
}

static void stage_and_settle(struct worker *worker, struct kvp_seq *seq, uint32_t tokens)
{
	uint32_t ids[MOST_TOKENS];
	uint32_t i;
	int ret = kvp_seq_reserve(seq, tokens);

	if (ret == -KVP_ELEASE)
		ret = kvp_seq_extend(seq, tokens, WAIT_MS);
	if (ret == -KVP_ENOBLOCKS || ret == -KVP_ELIMIT)
		return;
	must("reserve", ret);
	worker->step = kvp_step_next(worker->client, 0);
	must("stage", kvp_seq_stage(seq, tokens, 0, worker->step));
	for (i = 0; i < tokens; i++)
		ids[i] = i;
	ret = kvp_seq_settle(seq, tokens, ids, 1, 0, worker->step);
	if (ret != -KVP_EBACKLOG && ret != -KVP_ELOST)
		must("settle", ret);
	if (pick(worker, 2))
		kvp_step_done(worker->client, 0, worker->step);
}

static void close_seq(struct worker *worker, uint32_t at)
{
	int ret = kvp_seq_close(worker->seqs[at]);

	if (ret == -KVP_EBACKLOG) {
		must("sync", kvp_sync(worker->client, WAIT_MS));
		ret = kvp_seq_close(worker->seqs[at]);
	}
	must("close", ret);
	worker->seqs[at] = NULL;
}

static void grow(struct worker *worker, uint32_t at)
{
	struct kvp_seq_info info = {.size = sizeof(info)};

	must("info", kvp_seq_info(worker->seqs[at], &info));
	if (info.settled + MOST_TOKENS / 2 > MOST_TOKENS)
		close_seq(worker, at);
	else
		stage_and_settle(worker, worker->seqs[at], 1 + pick(worker, MOST_TOKENS / 2));
}

static void operate(struct worker *worker)
{
	uint32_t at = pick(worker, SEQS);

	if (!worker->seqs[at])
		open_seq(worker, at);
	else if (!pick(worker, 4))
		close_seq(worker, at);
	else
		grow(worker, at);
}

void kvt_victim_library(const char *socket, const struct kvt_victim_order *order,
			void (*report)(uint64_t session))
{
	const struct kvp_connect_params where = {
		.size = sizeof(where), .path = socket, .name = "library", .timeout_ms = WAIT_MS};
	const struct kvp_attach_params attach = {
		.size = sizeof(attach), .max_seqs = SEQS, .max_seq_tokens = 512, .timeout_ms = WAIT_MS};
	struct worker worker = {.rng = {.state = order->seed}};
	uint64_t ops;

	must("connect", kvp_connect(&where, &worker.client));
	must("attach", kvp_attach(worker.client, &attach));
	report(kvp_session_id(worker.client));
	for (ops = 0; !order->ops || ops < order->ops; ops++)
		operate(&worker);
	raise(SIGKILL);
}
