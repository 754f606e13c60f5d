/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the host pays before a decode step: 128 sequences of 128 blocks of 64 tokens.
 *
 *   incremental   kvp_batch_reserve + kvp_batch_begin: one token appended to each sequence, every array brought up to date. The
 *                 sequences are at random phases, so that in most steps some cross into a new block
 *   settle        kvp_batch_settle of the step: tokens noted, full blocks hashed and published
 *   full rebuild  the block table alone after the order changed: every row is written again
 *
 * Beside them: memcpy of the same bytes, and NumPy doing the same work (host_prep_numpy.py). Then the functions of
 * kvpool/prep.h against NumPy and against lists (prep_tables.c). Theirs and our rounds take turns on one CPU.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kvpool/kernels.h>
#include <kvpool/kvpool.h>

#include "bench.h"
#include "peer.h"
#include "prep_tables.h"

#define SEQS 128u
#define BLOCKS 128u
#define BLOCK_TOKENS 64u
/* Steps of a round: a sequence grows by less than a block and a half, and is then opened anew. */
#define ROUND_STEPS 80u
#define WAIT_MS 20000u

#define MAX_SAMPLES 200000u
struct samples {
	double *ns;
	size_t count;
};

struct bench {
	struct kvp_client *client;
	struct kvp_batch *batch;
	struct kvp_seq *seqs[SEQS];
	uint32_t prompt[BLOCKS * BLOCK_TOKENS];
	uint32_t accepted[SEQS];
	uint64_t random;
	uint64_t bytes; /* of a step's arrays */
};

static void check(int ret, const char *what)
{
	if (ret < 0) {
		fprintf(stderr, "benchmark: %s: %s: %s\n", what, kvp_error_name(ret), kvp_last_error());
		exit(2);
	}
}

static uint32_t next_random(struct bench *bench)
{
	bench->random ^= bench->random << 13;
	bench->random ^= bench->random >> 7;
	bench->random ^= bench->random << 17;
	return (uint32_t)(bench->random >> 32);
}

static void add(struct samples *samples, uint64_t ns)
{
	if (samples->ns && samples->count < MAX_SAMPLES)
		samples->ns[samples->count++] = (double)ns;
}

static void attach(struct bench *bench, const char *socket_path)
{
	struct kvp_connect_params connect = {
		.size = sizeof(connect), .path = socket_path, .name = "bench_host_prep"};
	struct kvp_attach_params attach = {
		.size = sizeof(attach), .max_seqs = SEQS, .max_seq_tokens = (BLOCKS + 4) * BLOCK_TOKENS};
	struct kvp_batch_params batch = {.size = sizeof(batch), .width = BLOCKS + 4};

	check(kvp_connect(&connect, &bench->client), "connecting");
	check(kvp_attach(bench->client, &attach), "attaching");
	check(kvp_batch_create(bench->client, &batch, &bench->batch), "making a batch");
}

/* Each sequence with a prompt of its own that ends somewhere in its 127th or 128th block. */
static void open_all(struct bench *bench)
{
	struct kvp_open_request request = {.size = sizeof(request), .tokens = bench->prompt};
	uint32_t i, j;
	int result;

	for (i = 0; i < SEQS; i++) {
		request.token_count = (BLOCKS - 1) * BLOCK_TOKENS + next_random(bench) % BLOCK_TOKENS;
		for (j = 0; j < request.token_count; j++)
			bench->prompt[j] = next_random(bench);
		check(kvp_open(bench->client, &request, 1, WAIT_MS, &result, &bench->seqs[i]), "opening");
		check(result, "opening");
	}
}

static void prefill(struct bench *bench)
{
	struct kvp_seq_info info = {.size = sizeof(info)};
	uint64_t step = kvp_step_next(bench->client, 0);
	uint32_t i;

	for (i = 0; i < SEQS; i++) {
		check(kvp_seq_info(bench->seqs[i], &info), "info");
		check(kvp_seq_stage(bench->seqs[i], info.prompt_tokens, 0, step), "staging a prompt");
		check(kvp_seq_settle(bench->seqs[i], info.prompt_tokens, NULL, 1, 0, step),
		      "settling a prompt");
	}
	kvp_step_done(bench->client, 0, step);
}

static void close_all(struct bench *bench)
{
	uint32_t i;

	check(kvp_batch_set(bench->batch, NULL, 0), "emptying the batch");
	for (i = 0; i < SEQS; i++)
		check(kvp_seq_close(bench->seqs[i]), "closing");
	check(kvp_sync(bench->client, WAIT_MS), "waiting for the daemon");
}

static uint64_t view_bytes(const struct kvp_batch_view *view)
{
	return (uint64_t)view->rows * view->table_width * 4 + (uint64_t)view->pages * 4 + view->rows * 24ull +
	       view->tokens * 8ull;
}

/* One decode step; returns what was measured only after warm-up. */
static void one_step(struct bench *bench, struct samples *prepare, struct samples *settle,
		     struct samples *both)
{
	struct kvp_batch_view view = {.size = sizeof(view)};
	uint32_t tokens[SEQS];
	uint64_t step = kvp_step_next(bench->client, 0);
	uint64_t begin, prepared, settled, start;
	uint32_t i;

	for (i = 0; i < SEQS; i++)
		tokens[i] = next_random(bench);
	begin = bench_now_ns();
	check(kvp_batch_reserve(bench->batch, NULL), "reserving");
	check(kvp_batch_begin(bench->batch, NULL, 0, step, &view), "beginning a step");
	prepared = bench_now_ns();
	/* Here the model runs. */
	kvp_step_done(bench->client, 0, step);
	start = bench_now_ns();
	check(kvp_batch_settle(bench->batch, NULL, tokens, 0, step), "settling");
	settled = bench_now_ns();
	add(prepare, prepared - begin);
	add(settle, settled - start);
	add(both, prepared - begin + settled - start);
	bench->bytes = view_bytes(&view);
}

/* The daemon's part is done between steps that are not measured, as the model's time would have it. */
static void run_round(struct bench *bench, struct samples *prepare, struct samples *settle,
		      struct samples *both)
{
	struct samples none = {0};
	uint32_t i;

	check(kvp_batch_set(bench->batch, bench->seqs, SEQS), "filling the batch");
	for (i = 0; i < ROUND_STEPS; i++) {
		check(kvp_lease_wait(bench->client, 8, WAIT_MS), "waiting for the lease");
		if (i < 4)
			one_step(bench, &none, &none, &none);
		else
			one_step(bench, prepare, settle, both);
	}
}

/* The order turns by one: every row of both slots differs. The lists and lengths are part of it. */
static void run_rebuild(struct bench *bench, struct samples *rebuild)
{
	struct kvp_batch_view view = {.size = sizeof(view)};
	struct kvp_seq *turned[SEQS];
	uint64_t step, begin;
	uint32_t i, k;

	for (k = 0; k < 16; k++) {
		for (i = 0; i < SEQS; i++)
			turned[i] = bench->seqs[(i + k + 1) % SEQS];
		check(kvp_batch_set(bench->batch, turned, SEQS), "filling the batch");
		check(kvp_lease_wait(bench->client, 8, WAIT_MS), "waiting for the lease");
		check(kvp_batch_reserve(bench->batch, NULL), "reserving");
		step = kvp_step_next(bench->client, 0);
		begin = bench_now_ns();
		check(kvp_batch_begin(bench->batch, NULL, 0, step, &view), "beginning a step");
		add(rebuild, bench_now_ns() - begin);
		kvp_step_done(bench->client, 0, step);
		for (i = 0; i < SEQS; i++)
			check(kvp_seq_settle(turned[i], 0, NULL, 1, 0, step), "cutting");
	}
}

/* What a copy of as many bytes costs, from memory that was touched as recently. */
static double memcpy_ns(uint64_t bytes, size_t rounds)
{
	double *samples = calloc(rounds, sizeof(*samples));
	char *from = malloc(bytes);
	char *to = malloc(bytes);
	double median;
	uint64_t begin;
	size_t i;

	memset(from, 1, bytes);
	memset(to, 2, bytes);
	for (i = 0; i < rounds; i++) {
		begin = bench_now_ns();
		memcpy(to, from, bytes);
		__asm__ volatile("" : : "r"(to) : "memory");
		samples[i] = (double)(bench_now_ns() - begin);
	}
	median = bench_median(samples, rounds);
	free(samples);
	free(from);
	free(to);
	return median;
}

/* ------------------------------------------------------------------ peers */

/* Once the daemon runs: it shall not share our CPU, the peer shall. */
static void pin(void)
{
	cpu_set_t allowed, one;
	int cpu = CPU_SETSIZE - 1;

	if (sched_getaffinity(0, sizeof(allowed), &allowed))
		return;
	while (cpu > 0 && !CPU_ISSET(cpu, &allowed))
		cpu--;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	sched_setaffinity(0, sizeof(one), &one);
}

/* What the peer needs for the same tables as ours. */
static void start_peer(struct bench_peer *peer, const struct bench_tables *tables, const char *dir)
{
	char path[128];
	uint64_t sum;
	double us;

	snprintf(path, sizeof(path), "%s/tables", dir);
	bench_tables_write(tables, path);
	bench_peer_start(peer, KVP_BENCH_DIR "/host_prep_numpy.py", path);
	if (!bench_peer_ask(peer, "incremental", &us, &sum))
		fprintf(stderr, "benchmark: /usr/bin/python3 has no NumPy: not compared\n");
	unlink(path);
}

static void ask_us(struct bench_peer *peer, const char *task, struct samples *samples)
{
	uint64_t sum;
	double us;

	if (bench_peer_ask(peer, task, &us, &sum))
		add(samples, (uint64_t)(us * 1000));
}

/* ------------------------------------------------------------------ all of it */

/* Indices of the series of samples. */
enum { PREPARE, SETTLE, BOTH, REBUILD, NUMPY_STEP, NUMPY_REBUILD, SETS };

static double median_us(struct samples *samples)
{
	return samples->count ? bench_median(samples->ns, samples->count) / 1000 : 0;
}

/* Times that must be within a limit. */
static struct bench_result limited(const char *name, double us, double limit)
{
	return (struct bench_result){
		.name = name, .unit = "us", .value = us, .limit = limit, .ratio = limit / us, .threads = 1};
}

/* What `ours` is compared with. */
static struct bench_result beside(const char *name, double us, double ours)
{
	return (struct bench_result){
		.name = name, .unit = "us", .value = us, .ratio = ours > 0 ? us / ours : 0, .threads = 1};
}

static bool report(struct bench *bench, struct bench_tables *tables, struct samples sets[SETS], bool json)
{
	double prepare = median_us(&sets[PREPARE]);
	double rebuild = median_us(&sets[REBUILD]);
	struct bench_result results[8 + BENCH_TABLES_RESULTS];
	size_t n = 0;

	results[n++] =
		limited("incremental step (append one token to each sequence, bring every array up to date)",
			prepare, 4);
	results[n++] = beside("settle of that step (tokens noted, full blocks hashed and published)",
			      median_us(&sets[SETTLE]), 0);
	results[n++] = beside("incremental step and settle together", median_us(&sets[BOTH]), 0);
	results[n++] = limited("full rebuild (block table and every other array)", rebuild, 20);
	results[n++] =
		beside("memcpy of all the step's bytes", memcpy_ns(bench->bytes, 2001) / 1000, prepare);
	results[n++] = beside("memcpy of the block table's bytes",
			      memcpy_ns((uint64_t)SEQS * BLOCKS * 4, 2001) / 1000, rebuild);
	if (sets[NUMPY_STEP].count) {
		results[n++] = beside("NumPy: incremental step", median_us(&sets[NUMPY_STEP]), prepare);
		results[n++] = beside("NumPy: full rebuild", median_us(&sets[NUMPY_REBUILD]), rebuild);
	}
	bench_tables_results(tables, results + n);
	return bench_report(results, n + BENCH_TABLES_RESULTS, json);
}

static void run(struct bench *bench, struct bench_tables *tables, struct bench_peer *peer,
		struct samples sets[SETS])
{
	open_all(bench);
	prefill(bench);
	check(kvp_sync(bench->client, WAIT_MS), "waiting for the daemon");
	run_round(bench, &sets[PREPARE], &sets[SETTLE], &sets[BOTH]);
	run_rebuild(bench, &sets[REBUILD]);
	close_all(bench);
	ask_us(peer, "incremental", &sets[NUMPY_STEP]);
	ask_us(peer, "rebuild", &sets[NUMPY_REBUILD]);
	bench_tables_round(tables, peer);
}

int main(int argc, char **argv)
{
	static const char *const settings[] = {"--set=pool.bench.blocks=40000",
					       "--set=pool.bench.block_tokens=64",
					       "--set=pool.bench.planes=opaque 16", NULL};
	struct bench *bench = calloc(1, sizeof(*bench));
	struct bench_tables *tables = bench_tables_open();
	struct samples sets[SETS] = {0};
	struct bench_daemon daemon;
	struct bench_peer peer;
	bool json = false;
	uint32_t rounds = 40;
	uint32_t i;
	bool met;

	if (kvk_level_error()) {
		fprintf(stderr, "benchmark: %s\n", kvk_level_error());
		return 2;
	}
	for (i = 1; i < (uint32_t)argc; i++) {
		json |= !strcmp(argv[i], "--json");
		rounds = !strcmp(argv[i], "--quick") ? 8 : rounds;
	}
	for (i = 0; i < SETS; i++)
		sets[i].ns = calloc(MAX_SAMPLES, sizeof(double));
	bench->random = 0x9e3779b97f4a7c15u;
	bench_daemon_start(&daemon, settings);
	pin();
	start_peer(&peer, tables, daemon.dir);
	attach(bench, daemon.socket);
	for (i = 0; i < rounds; i++)
		run(bench, tables, &peer, sets);
	kvp_close(bench->client);
	bench_daemon_stop(&daemon);
	bench_peer_stop(&peer);
	met = report(bench, tables, sets, json);
	for (i = 0; i < SETS; i++)
		free(sets[i].ns);
	bench_tables_close(tables);
	free(bench);
	return met ? 0 : 1;
}
