/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The deep check from its start to its end. Order: the holds first, so that each block's references
 * are known when its turn comes; then blocks, index slots, buckets; at the end the totals.
 */
#include "check.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "check_internal.h"

/* -------- faults */

void kvd_check_fault(struct kvd_check *check, const char *format, ...)
{
	struct kvd_check_result *result = &check->result;
	char text[sizeof(result->text[0])];
	va_list arguments;
	int length;

	result->faults++;
	if (result->texts == KVD_CHECK_TEXTS)
		return;
	length = snprintf(text, sizeof(text), "pool %u ", check->pool->number);
	va_start(arguments, format);
	vsnprintf(text + length, sizeof(text) - (size_t)length, format, arguments);
	va_end(arguments);
	snprintf(result->text[result->texts++], sizeof(text), "%s", text);
}

bool kvd_check_same(struct kvd_check *check, int32_t id, const char *what, uint64_t found, uint64_t expected)
{
	if (found == expected)
		return true;
	kvd_check_fault(check, "block %d: %s is %lld, should be %lld", id, what, (long long)found,
			(long long)expected);
	return false;
}

bool kvd_check_total(struct kvd_check *check, const char *what, uint64_t found, uint64_t expected)
{
	if (found == expected)
		return true;
	kvd_check_fault(check, "%s is %llu, should be %llu", what, (unsigned long long)found,
			(unsigned long long)expected);
	return false;
}

/* -------- start and end */

int kvd_check_start(struct kvd_pool *pool, struct kvd_check **out)
{
	struct kvd_check *check;
	struct kvd_engine *engine;

	if (pool->check)
		return -EBUSY;
	check = calloc(1, sizeof(*check));
	if (!check)
		return -ENOMEM;
	check->counted = calloc(pool->blocks, sizeof(*check->counted));
	if (!check->counted) {
		free(check);
		return -ENOMEM;
	}
	for (engine = pool->engines; engine; engine = engine->next)
		engine->check = (struct kvd_engine_sums){0};
	/* Holds are created with round 0. */
	if (++pool->check_rounds == 0)
		pool->check_rounds = 1;
	check->pool = pool;
	check->round = pool->check_rounds;
	check->hold = pool->holds;
	pool->check = check;
	*out = check;
	return 0;
}

const struct kvd_check_result *kvd_check_result(const struct kvd_check *check)
{
	return &check->result;
}

void kvd_check_end(struct kvd_check *check)
{
	if (!check)
		return;
	check->pool->check = NULL;
	free(check->counted);
	free(check);
}

/* -------- phases: each does some of its work and says whether it is done */

static bool spend(const struct kvd_check *check, uint32_t *budget)
{
	if (check->full)
		return true;
	if (*budget == 0)
		return false;
	--*budget;
	return true;
}

static void count_reference(struct kvd_check *check, const struct kvd_hold *hold)
{
	int32_t id = hold->blocks[check->position++];

	hold->engine->check.references++;
	if (kvd_check_is_id(check, id))
		check->counted[id]++;
	else
		kvd_check_fault(check, "hold %llu names block %d, which is none",
				(unsigned long long)hold->id, id);
}

static bool check_holds(struct kvd_check *check, uint32_t *budget)
{
	while (check->hold) {
		struct kvd_hold *hold = check->hold;
		bool counted = kvd_check_hold_is_counted(check, hold);

		if (!spend(check, budget))
			return false;
		if (!counted && check->position < hold->length) {
			count_reference(check, hold);
			continue;
		}
		if (!counted)
			kvd_check_hold_done(check, hold);
		check->hold = hold->next;
		check->position = 0;
	}
	return true;
}

static void check_block(struct kvd_check *check, int32_t id)
{
	const struct kvd_block *block = kvd_block(check->pool, id);

	kvd_check_record(check, id);
	if (block->record.state < KVW_BLOCK_STATES && block->list < KVD_LIST_KINDS)
		kvd_check_links(check, id);
	kvd_check_same(check, id, "references", block->references, check->counted[id]);
	kvd_check_sum(check, id, 1);
	check->passed++;
	check->result.blocks++;
}

static bool check_blocks(struct kvd_check *check, uint32_t *budget)
{
	for (; check->next < check->pool->blocks; check->next++) {
		if (!spend(check, budget))
			return false;
		check_block(check, (int32_t)check->next);
	}
	return true;
}

static bool check_slots(struct kvd_check *check, uint32_t *budget)
{
	for (; check->next <= check->pool->index->mask; check->next++) {
		if (!spend(check, budget))
			return false;
		kvd_check_slot(check, check->next);
	}
	return true;
}

static bool check_buckets(struct kvd_check *check, uint32_t *budget)
{
	for (; check->next < check->pool->bucket_count; check->next++) {
		if (!spend(check, budget))
			return false;
		kvd_check_bucket(check, check->next);
	}
	return true;
}

/* -------- totals */

static void check_states(struct kvd_check *check)
{
	static const char *const names[KVW_BLOCK_STATES] = {
#define NAME(name, number, text) [number] = "count of " text " blocks",
		KVW_BLOCK_STATE_MAP(NAME)
#undef NAME
	};
	uint32_t state;

	for (state = 0; state < KVW_BLOCK_STATES; state++)
		kvd_check_total(check, names[state], check->pool->counts[state], check->states[state]);
}

static void check_lengths(struct kvd_check *check)
{
	const struct kvd_pool *pool = check->pool;

	kvd_check_total(check, "length of the free list", pool->free.length, check->lists[KVD_LIST_FREE]);
	kvd_check_total(check, "length of the list of sinks", pool->sinks.length,
			check->lists[KVD_LIST_SINKS]);
	kvd_check_total(check, "length of the list of orphans", pool->orphans.length,
			check->lists[KVD_LIST_ORPHANS]);
	kvd_check_total(check, "length of the list of ripe blocks", pool->ripe.length,
			check->lists[KVD_LIST_RIPE]);
	kvd_check_total(check, "count of evictable blocks", pool->evictable,
			(uint64_t)check->lists[KVD_LIST_RIPE] + check->lists[KVD_LIST_POLICY]);
	kvd_check_total(check, "count of indexed blocks", pool->index->count, check->indexed);
	kvd_check_total(check, "count of blocks left out of their buckets", pool->left_out_blocks,
			check->left_out);
}

static void check_engine(struct kvd_check *check, const struct kvd_engine *engine)
{
	char what[96];
	uint32_t state;

	for (state = 0; state < KVW_BLOCK_STATES; state++) {
		snprintf(what, sizeof(what), "engine %llu: length of the list of state %u",
			 (unsigned long long)engine->engine, state);
		kvd_check_total(check, what, engine->owned[state].length, engine->check.owned[state]);
	}
	snprintf(what, sizeof(what), "engine %llu: references", (unsigned long long)engine->engine);
	kvd_check_total(check, what, engine->references, engine->check.references);
	snprintf(what, sizeof(what), "engine %llu: hold_count", (unsigned long long)engine->engine);
	kvd_check_total(check, what, engine->hold_count, engine->check.holds);
}

/* What a tenant pays for one engine. */
static uint64_t engine_share(const struct kvd_pool *pool, const struct kvd_engine *engine)
{
	uint64_t share = engine->check.references;
	uint32_t state;

	for (state = 0; state < KVW_BLOCK_STATES; state++)
		if (kvd_state_is_owned(state))
			share += engine->check.owned[state];
	return share - (pool->block[engine->sink].owner == engine);
}

static void check_tenant(struct kvd_check *check, const struct kvd_tenant *tenant)
{
	const struct kvd_engine *engine;
	uint64_t sum = 0;
	char what[64];

	for (engine = check->pool->engines; engine; engine = engine->next)
		if (engine->tenant == tenant)
			sum += engine_share(check->pool, engine);
	snprintf(what, sizeof(what), "tenant of uid %u: used_blocks", tenant->uid);
	kvd_check_total(check, what, tenant->used_blocks, sum);
}

/* Whether it is the first engine of its tenant: there are few, and each tenant is checked once. */
static bool leads_tenant(const struct kvd_pool *pool, const struct kvd_engine *engine)
{
	const struct kvd_engine *other = pool->engines;

	while (other->tenant != engine->tenant)
		other = other->next;
	return other == engine;
}

static bool check_totals(struct kvd_check *check)
{
	const struct kvd_engine *engine;

	check_states(check);
	check_lengths(check);
	for (engine = check->pool->engines; engine; engine = engine->next) {
		check_engine(check, engine);
		if (leads_tenant(check->pool, engine))
			check_tenant(check, engine->tenant);
	}
	if (check->full)
		kvd_check_lists(check);
	return true;
}

static bool run_phase(struct kvd_check *check, uint32_t *budget)
{
	switch (check->phase) {
	case KVD_CHECK_HOLDS:
		return check_holds(check, budget);
	case KVD_CHECK_BLOCKS:
		return check_blocks(check, budget);
	case KVD_CHECK_SLOTS:
		return check_slots(check, budget);
	case KVD_CHECK_BUCKETS:
		return check_buckets(check, budget);
	default:
		return check_totals(check);
	}
}

int kvd_check_step(struct kvd_check *check, uint32_t budget)
{
	check->full = budget == UINT32_MAX;
	for (; check->phase != KVD_CHECK_DONE; check->phase++) {
		if (!run_phase(check, &budget))
			return 0;
		check->next = 0;
	}
	return 1;
}

int64_t kvd_check_now(struct kvd_pool *pool, char *out_text, size_t capacity)
{
	struct kvd_check *check;
	int64_t faults;
	int ret = kvd_check_start(pool, &check);

	if (ret)
		return ret;
	kvd_check_step(check, UINT32_MAX);
	faults = (int64_t)check->result.faults;
	if (out_text)
		snprintf(out_text, capacity, "%s", faults ? check->result.text[0] : "");
	kvd_check_end(check);
	return faults;
}
