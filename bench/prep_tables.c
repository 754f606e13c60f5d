/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two functions that take a microsecond or so: a sample is the mean of CALLS calls, a round's time the median of its
 * samples, the result the median of the rounds.
 *
 *   block_ids     128 sequences of 128 blocks, in rows at random places, 6 layers, index scale 6, kv_factor 2: floor(slot / 2), 1.5 % of the
 *                 entries none. What get_block_ids_per_seq does
 *   slot_mapping  6,600 tokens of 8 prompts, pages of 64
 */
#include "prep_tables.h"

#include <stdlib.h>
#include <string.h>

#include <kvpool/prep.h>

#define SEQS 128
#define BLOCKS 128
#define SCALE 6
#define KV_FACTOR 2
#define LAYERS 6
#define REQUESTS 8
#define QUERIES 825
#define TOKENS (REQUESTS * QUERIES)
#define PAGE 64
#define WIDTH 32
#define CALLS 20
#define SAMPLES 51
#define MAX_ROUNDS 1000

/* Rounds of one comparison. */
struct series {
	double ours[MAX_ROUNDS], peer[MAX_ROUNDS];
	size_t rounds, peer_rounds;
};

/* Arrays begin on a cache line, as those of an engine's pinned memory do. */
struct bench_tables {
	_Alignas(64) int32_t rows[SEQS * BLOCKS];
	int32_t row_of[SEQS], num_blocks[SEQS];
	_Alignas(64) int32_t ids[SEQS * BLOCKS];
	int32_t qo_lens[REQUESTS], qo_offset[REQUESTS];
	_Alignas(64) int32_t pages[REQUESTS * WIDTH];
	_Alignas(64) int32_t slots[TOKENS];
	struct series block_ids, lists, slot_mapping;
};

static uint32_t next_random(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*state >> 33);
}

struct bench_tables *bench_tables_open(void)
{
	struct bench_tables *tables = aligned_alloc(64, sizeof(*tables));
	uint64_t random = 1;

	if (!tables)
		exit(2);
	memset(tables, 0, sizeof(*tables));
	for (int i = 0; i < SEQS * BLOCKS; i++)
		tables->rows[i] =
			next_random(&random) % 1000 < 15 ? -1 : (int32_t)(next_random(&random) % 40000);
	for (int i = 0; i < SEQS; i++) {
		int32_t other = (int32_t)(next_random(&random) % (uint32_t)(i + 1));

		tables->row_of[i] = tables->row_of[other];
		tables->row_of[other] = i;
		tables->num_blocks[i] = BLOCKS;
	}
	for (int i = 0; i < REQUESTS * WIDTH; i++)
		tables->pages[i] = (int32_t)(next_random(&random) % 40000);
	for (int r = 0; r < REQUESTS; r++) {
		tables->qo_lens[r] = QUERIES;
		tables->qo_offset[r] = (int32_t)(next_random(&random) % 1000);
	}
	return tables;
}

void bench_tables_close(struct bench_tables *tables)
{
	free(tables);
}

void bench_tables_write(const struct bench_tables *tables, const char *path)
{
	static const int32_t ids_head[] = {SEQS, BLOCKS, SCALE, KV_FACTOR, LAYERS};
	static const int32_t slots_head[] = {REQUESTS, WIDTH, PAGE};
	FILE *file = fopen(path, "wb");

	if (!file || fwrite(ids_head, sizeof(ids_head), 1, file) != 1 ||
	    fwrite(tables->rows, sizeof(tables->rows), 1, file) != 1 ||
	    fwrite(tables->row_of, sizeof(tables->row_of), 1, file) != 1 ||
	    fwrite(slots_head, sizeof(slots_head), 1, file) != 1 ||
	    fwrite(tables->qo_lens, sizeof(tables->qo_lens), 1, file) != 1 ||
	    fwrite(tables->qo_offset, sizeof(tables->qo_offset), 1, file) != 1 ||
	    fwrite(tables->pages, sizeof(tables->pages), 1, file) != 1 || fclose(file)) {
		perror(path);
		exit(2);
	}
}

/* ------------------------------------------------------------------ ours */

static int call_block_ids(struct bench_tables *tables)
{
	return kvk_prep_block_ids(
		&(const struct kvk_prep_block_ids_params){.size = sizeof(struct kvk_prep_block_ids_params),
							  .batch = SEQS,
							  .rows = SEQS,
							  .row_width = BLOCKS,
							  .scale = SCALE,
							  .divisor = KV_FACTOR,
							  .layers = LAYERS,
							  .slots = tables->rows,
							  .row_of = tables->row_of,
							  .num_blocks = tables->num_blocks,
							  .out = tables->ids,
							  .out_room = SEQS * BLOCKS});
}

static int call_slots(struct bench_tables *tables)
{
	return kvk_prep_slots(
		&(const struct kvk_prep_slots_params){.size = sizeof(struct kvk_prep_slots_params),
						      .batch = REQUESTS,
						      .table_width = WIDTH,
						      .page_tokens = PAGE,
						      .room = TOKENS,
						      .slot_bytes = 4,
						      .block_ids = tables->pages,
						      .qo_lens = tables->qo_lens,
						      .qo_offset = tables->qo_offset,
						      .out = tables->slots});
}

static double round_us(struct bench_tables *tables, int (*call)(struct bench_tables *tables))
{
	double samples[SAMPLES];

	for (int i = 0; i < SAMPLES; i++) {
		uint64_t begin = bench_now_ns();

		for (int j = 0; j < CALLS; j++)
			if (call(tables))
				exit(2);
		samples[i] = (double)(bench_now_ns() - begin) / CALLS / 1000;
	}
	return bench_median(samples, SAMPLES);
}

static uint64_t checksum(const int32_t *numbers, size_t count)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < count; i++)
		sum += (uint64_t)(int64_t)numbers[i] * (i + 1);
	return sum;
}

/* ------------------------------------------------------------------ in turn */

static void take_turns(struct series *series, double ours, struct bench_peer *peer, const char *task,
		       uint64_t own_sum)
{
	uint64_t sum = 0;
	double us = 0;

	if (series->rounds == MAX_ROUNDS)
		return;
	series->ours[series->rounds++] = ours;
	if (!bench_peer_ask(peer, task, &us, &sum))
		return;
	if (sum != own_sum) {
		fprintf(stderr, "benchmark: %s: the peer computes something else\n", task);
		exit(2);
	}
	series->peer[series->peer_rounds++] = us;
}

void bench_tables_round(struct bench_tables *tables, struct bench_peer *peer)
{
	double us = round_us(tables, call_block_ids);
	uint64_t sum = checksum(tables->ids, SEQS * BLOCKS);

	take_turns(&tables->block_ids, us, peer, "block_ids", sum);
	us = round_us(tables, call_block_ids);
	take_turns(&tables->lists, us, peer, "block_ids_lists", sum);
	us = round_us(tables, call_slots);
	take_turns(&tables->slot_mapping, us, peer, "slot_mapping", checksum(tables->slots, TOKENS));
}

static struct bench_result result_of(struct series *series, const char *name, double least_ratio)
{
	struct bench_result result = {.name = name, .unit = "us", .threads = 1, .least_ratio = least_ratio};

	result.value = bench_median(series->ours, series->rounds);
	if (series->peer_rounds) {
		result.limit = bench_median(series->peer, series->peer_rounds);
		result.ratio = result.limit / result.value;
	}
	return result;
}

void bench_tables_results(struct bench_tables *tables, struct bench_result out[BENCH_TABLES_RESULTS])
{
	out[0] = result_of(&tables->block_ids, "block_ids", 10);
	out[1] = result_of(&tables->lists, "block_ids_lists", 150);
	out[2] = result_of(&tables->slot_mapping, "slot_mapping", 20);
}
