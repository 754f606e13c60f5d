/* SPDX-License-Identifier: Apache-2.0 */
/* The best a trace allows, by the chain over tokens at each block's end: equal chains are equal prefixes. */
#include "ideal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "content.h"
#include "set.h"

/* Longest prompt of the trace. */
static uint32_t longest_prompt(const struct rep_trace *trace)
{
	uint32_t longest = 0;

	for (uint32_t i = 0; i < trace->count; i++)
		if (trace->requests[i].input_length > longest)
			longest = trace->requests[i].input_length;
	return longest;
}

/* Keys of a prompt's full blocks. Returns how many. */
static uint32_t prompt_keys(const struct rep_trace *trace, uint32_t request, uint32_t block_tokens,
			    uint32_t *tokens, uint64_t *keys)
{
	uint32_t blocks = trace->requests[request].input_length / block_tokens;
	uint64_t prefix = REP_PREFIX_START;

	rep_tokens(trace, request, blocks * block_tokens, tokens);
	for (uint32_t i = 0; i < blocks; i++) {
		prefix = rep_prefix_over(prefix, tokens + (size_t)i * block_tokens, block_tokens);
		keys[i] = prefix;
	}
	return blocks;
}

/* Leading run of keys that are in the set, of at most `limit`. */
static uint32_t leading_run(const struct rep_set *set, const uint64_t *keys, uint32_t limit)
{
	uint32_t run = 0;

	while (run < limit && rep_set_count(set, keys[run]))
		run++;
	return run;
}

static int add_all(struct rep_set *set, const uint64_t *keys, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (rep_set_add(set, keys[i], i) < 0)
			return -ENOMEM;
	return 0;
}

/* Room for the longest prompt's tokens and keys, in one piece. */
struct scratch {
	uint32_t *tokens;
	uint64_t *keys;
};

static int scratch_init(struct scratch *scratch, const struct rep_trace *trace)
{
	uint32_t longest = longest_prompt(trace);

	scratch->tokens = calloc(longest, sizeof(*scratch->tokens));
	scratch->keys = calloc(longest, sizeof(*scratch->keys));
	return scratch->tokens && scratch->keys ? 0 : -ENOMEM;
}

static void scratch_free(struct scratch *scratch)
{
	free(scratch->tokens);
	free(scratch->keys);
}

int rep_ideal_tokens(const struct rep_trace *trace, uint32_t block_tokens, struct rep_ideal *out)
{
	struct rep_ideal ideal = {0};
	struct rep_set seen = {0};
	struct scratch scratch;
	int ret = scratch_init(&scratch, trace);

	for (uint32_t i = 0; i < trace->count && !ret; i++) {
		uint32_t blocks = prompt_keys(trace, i, block_tokens, scratch.tokens, scratch.keys);
		uint32_t asked = (trace->requests[i].input_length - 1) / block_tokens;

		ideal.lookup_blocks += asked;
		ideal.hit_blocks += leading_run(&seen, scratch.keys, asked);
		ret = add_all(&seen, scratch.keys, blocks);
	}
	scratch_free(&scratch);
	rep_set_free(&seen);
	if (!ret)
		*out = ideal;
	return ret;
}

int rep_ideal_ids(const struct rep_trace *trace, uint32_t max_blocks, struct rep_ideal *out)
{
	struct rep_ideal ideal = {0};
	struct rep_set seen = {0};
	int ret = 0;

	for (uint32_t i = 0; i < trace->count && !ret; i++) {
		const uint64_t *ids = rep_request_ids(trace, i);
		uint32_t blocks = trace->requests[i].id_count;

		blocks = blocks < max_blocks ? blocks : max_blocks;
		ideal.lookup_blocks += blocks;
		ideal.hit_blocks += leading_run(&seen, ids, blocks);
		ret = add_all(&seen, ids, blocks);
	}
	rep_set_free(&seen);
	if (!ret)
		*out = ideal;
	return ret;
}

/* The entry that was added most often; of equals the one nearest to the front of a prompt. */
static const struct rep_set_entry *most_added(const struct rep_set *set)
{
	const struct rep_set_entry *best = NULL;

	for (uint64_t i = 0; i < set->capacity; i++) {
		const struct rep_set_entry *entry = &set->entries[i];

		if (entry->count && (!best || entry->count > best->count ||
				     (entry->count == best->count && entry->value < best->value)))
			best = entry;
	}
	return best;
}

/* Marks every request but the first that has `key` at `index`; returns how many. */
static int mark(const struct rep_trace *trace, uint32_t block_tokens, struct scratch *scratch, uint64_t key,
		uint32_t index, uint8_t *requests)
{
	int found = 0;

	for (uint32_t i = 0; i < trace->count; i++) {
		uint32_t asked = (trace->requests[i].input_length - 1) / block_tokens;

		requests[i] = 0;
		if (asked <= index)
			continue;
		prompt_keys(trace, i, block_tokens, scratch->tokens, scratch->keys);
		if (scratch->keys[index] == key)
			requests[i] = found++ > 0;
	}
	return found ? found - 1 : 0;
}

int rep_most_shared(const struct rep_trace *trace, uint32_t block_tokens, uint64_t *key, uint32_t *index,
		    uint8_t *requests)
{
	const struct rep_set_entry *best;
	struct rep_set seen = {0};
	struct scratch scratch;
	int ret = scratch_init(&scratch, trace);

	for (uint32_t i = 0; i < trace->count && !ret; i++) {
		uint32_t asked = (trace->requests[i].input_length - 1) / block_tokens;

		prompt_keys(trace, i, block_tokens, scratch.tokens, scratch.keys);
		ret = add_all(&seen, scratch.keys, asked);
	}
	best = ret ? NULL : most_added(&seen);
	if (best) {
		*key = best->key;
		*index = best->value;
		ret = mark(trace, block_tokens, &scratch, best->key, best->value, requests);
	}
	scratch_free(&scratch);
	rep_set_free(&seen);
	return ret;
}
