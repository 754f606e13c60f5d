/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ideal against a naive model: every request is compared with all before it, token by token; and the
 * quantiles of a histogram.
 */
#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "tools/replay/content.h"
#include "tools/replay/histogram.h"
#include "tools/replay/ideal.h"

#define REQUESTS 60u
#define MAX_IDS 6u
#define TRACE_TOKENS 8u

static uint64_t ids[REQUESTS * MAX_IDS];
static struct rep_request requests[REQUESTS];
static uint32_t tokens[REQUESTS][MAX_IDS * TRACE_TOKENS];
static struct rep_trace trace = {
	.requests = requests, .ids = ids, .count = REQUESTS, .block_tokens = TRACE_TOKENS};

/* Chained ids: an id is a number in base 3 of the choices so far, so that prefixes meet often. */
static void make_trace(struct kvt_rng *rng)
{
	trace.id_count = 0;
	for (uint32_t i = 0; i < REQUESTS; i++) {
		uint32_t count = 1 + (uint32_t)kvt_rng_below(rng, MAX_IDS);
		uint64_t chain = 1;

		requests[i] = (struct rep_request){.first_id = trace.id_count,
						   .id_count = count,
						   .input_length = count * TRACE_TOKENS -
								   (uint32_t)kvt_rng_below(rng, TRACE_TOKENS),
						   .line = i + 1};
		for (uint32_t j = 0; j < count; j++) {
			chain = chain * 3 + kvt_rng_below(rng, 3);
			ids[trace.id_count++] = chain;
		}
		rep_tokens(&trace, i, requests[i].input_length, tokens[i]);
	}
}

/* Blocks at the front of `request` that request `other` has too. */
static uint32_t common(uint32_t request, uint32_t other, uint32_t block_tokens, uint32_t limit)
{
	uint32_t blocks = 0;

	while (blocks < limit && (blocks + 1) * block_tokens <= requests[other].input_length &&
	       !memcmp(tokens[request], tokens[other], (blocks + 1) * block_tokens * sizeof(tokens[0][0])))
		blocks++;
	return blocks;
}

static void token_ideal_is_the_naive_one(void **state)
{
	struct kvt_rng rng = {kvt_seed()};

	(void)state;
	for (int round = 0; round < 200; round++) {
		uint32_t block_tokens = 1 + (uint32_t)kvt_rng_below(&rng, 12);
		uint64_t lookups = 0;
		uint64_t hits = 0;
		struct rep_ideal ideal;

		make_trace(&rng);
		for (uint32_t i = 0; i < REQUESTS; i++) {
			uint32_t asked = (requests[i].input_length - 1) / block_tokens;
			uint32_t best = 0;

			for (uint32_t j = 0; j < i; j++) {
				uint32_t run = common(i, j, block_tokens, asked);

				best = run > best ? run : best;
			}
			lookups += asked;
			hits += best;
		}
		assert_int_equal(rep_ideal_tokens(&trace, block_tokens, &ideal), 0);
		assert_int_equal(ideal.lookup_blocks, lookups);
		assert_int_equal(ideal.hit_blocks, hits);
	}
}

static bool seen_before(uint32_t request, uint64_t id, uint32_t max_blocks)
{
	for (uint32_t j = 0; j < request; j++)
		for (uint32_t k = 0; k < requests[j].id_count && k < max_blocks; k++)
			if (rep_request_ids(&trace, j)[k] == id)
				return true;
	return false;
}

static void id_ideal_is_the_naive_one_and_cuts_long_requests(void **state)
{
	struct kvt_rng rng = {kvt_seed()};

	(void)state;
	for (int round = 0; round < 200; round++) {
		uint32_t max_blocks = 1 + (uint32_t)kvt_rng_below(&rng, MAX_IDS + 2);
		uint64_t lookups = 0;
		uint64_t hits = 0;
		struct rep_ideal ideal;

		make_trace(&rng);
		for (uint32_t i = 0; i < REQUESTS; i++) {
			uint32_t k = 0;
			uint32_t blocks =
				requests[i].id_count < max_blocks ? requests[i].id_count : max_blocks;

			while (k < blocks && seen_before(i, rep_request_ids(&trace, i)[k], max_blocks))
				k++;
			lookups += blocks;
			hits += k;
		}
		assert_int_equal(rep_ideal_ids(&trace, max_blocks, &ideal), 0);
		assert_int_equal(ideal.lookup_blocks, lookups);
		assert_int_equal(ideal.hit_blocks, hits);
	}
}

/* How many requests have the block of `request` that ends at (index + 1) * block_tokens. */
static int sharers(uint32_t request, uint32_t index, uint32_t block_tokens)
{
	int count = 0;

	for (uint32_t j = 0; j < REQUESTS; j++)
		count += common(request, j, block_tokens, index + 1) == index + 1 &&
			 (requests[j].input_length - 1) / block_tokens > index;
	return count;
}

static void the_most_shared_block_is_shared_by_as_many_as_any(void **state)
{
	struct kvt_rng rng = {kvt_seed()};
	uint8_t readers[REQUESTS];

	(void)state;
	for (int round = 0; round < 50; round++) {
		uint32_t block_tokens = 4 + (uint32_t)kvt_rng_below(&rng, 6);
		uint64_t key = 0;
		uint32_t index = 0;
		int most = 0;
		int marked = 0;
		int found;

		make_trace(&rng);
		found = rep_most_shared(&trace, block_tokens, &key, &index, readers);
		for (uint32_t i = 0; i < REQUESTS; i++) {
			for (uint32_t k = 0; k < (requests[i].input_length - 1) / block_tokens; k++) {
				int count = sharers(i, k, block_tokens);

				most = count > most ? count : most;
			}
			marked += readers[i];
		}
		assert_int_equal(found, most - 1);
		assert_int_equal(marked, found);
		for (uint32_t i = 0; i < REQUESTS; i++)
			if (readers[i]) {
				assert_int_equal(sharers(i, index, block_tokens), most);
				assert_true(rep_prefix_over(REP_PREFIX_START, tokens[i],
							    (index + 1) * block_tokens) == key);
			}
	}
}

static int by_value(const void *a, const void *b)
{
	const uint64_t *x = a;
	const uint64_t *y = b;

	return *x < *y ? -1 : *x > *y;
}

static void quantiles_are_right_to_three_percent(void **state)
{
	static struct rep_histogram histogram;
	static struct rep_histogram merged;
	static uint64_t values[10000];
	static const uint32_t per_mille[] = {1, 100, 500, 900, 990, 999, 1000};
	struct kvt_rng rng = {kvt_seed()};

	(void)state;
	assert_int_equal(rep_histogram_quantile(&histogram, 500), 0);
	for (size_t i = 0; i < 10000; i++) {
		values[i] = kvt_rng_next(&rng) >> kvt_rng_below(&rng, 63);
		values[i] %= (uint64_t)1 << 60;
		rep_histogram_add(&histogram, values[i]);
	}
	rep_histogram_merge(&merged, &histogram);
	assert_int_equal(rep_histogram_count(&merged), 10000);
	qsort(values, 10000, sizeof(values[0]), by_value);
	for (size_t i = 0; i < sizeof(per_mille) / sizeof(per_mille[0]); i++) {
		double want = (double)values[(per_mille[i] * 10000 + 999) / 1000 - 1];
		double got = (double)rep_histogram_quantile(&merged, per_mille[i]);

		if (got < want * 0.97 - 1 || got > want * 1.03 + 1)
			fail_msg("quantile %u is %g, must be near %g", per_mille[i], got, want);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(token_ideal_is_the_naive_one),
		cmocka_unit_test(id_ideal_is_the_naive_one_and_cuts_long_requests),
		cmocka_unit_test(the_most_shared_block_is_shared_by_as_many_as_any),
		cmocka_unit_test(quantiles_are_right_to_three_percent),
	};

	kvt_watchdog(110);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
