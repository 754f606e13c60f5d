/* SPDX-License-Identifier: Apache-2.0 */
#include "plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "batch_layout.h"
#include "client.h"
#include "error.h"
#include "params.h"

#define DEFAULT_TIMEOUT_MS 10000u
#define DEFAULT_MAX_SEQS 256u
#define DEFAULT_MAX_SEQ_TOKENS 32768u
#define ROLE_LEADER 1u
#define LEAST_ANSWERS 4096u
static_assert(KVW_MAX_ANSWERS % LEAST_ANSWERS == 0 && !(KVW_MAX_ANSWERS & (KVW_MAX_ANSWERS - 1)),
	      "a ring of answers, in powers of two");
#define NUMERICS_EXACT 1u
#define ALL_FLAGS (KVP_ATTACH_LEASE_MARKS | KVP_ATTACH_EXACT | KVP_ATTACH_INDEX_SCALE)

static int check_range(const char *name, uint64_t value, uint64_t min, uint64_t max)
{
	if (value < min || value > max)
		return kvc_fail(value < min ? EINVAL : KVP_ELIMIT,
				"kvp_attach_params.%s is %llu, allowed are %llu to %llu", name,
				(unsigned long long)value, (unsigned long long)min, (unsigned long long)max);
	return 0;
}

static void set_default(uint32_t *field, uint32_t value)
{
	if (!*field)
		*field = value;
}

static void set_defaults(struct kvp_attach_params *params)
{
	uint64_t step_tokens;

	set_default(&params->timeout_ms, DEFAULT_TIMEOUT_MS);
	set_default(&params->max_seqs, DEFAULT_MAX_SEQS);
	set_default(&params->max_seq_tokens, DEFAULT_MAX_SEQ_TOKENS);
	set_default(&params->slots, KVW_MIN_SLOTS);
	step_tokens = (uint64_t)params->max_seqs * (1 + (uint64_t)params->drafts);
	set_default(&params->batch_tokens, step_tokens > UINT32_MAX ? UINT32_MAX : (uint32_t)step_tokens);
}

static int check_lease(const struct kvp_attach_params *params)
{
	if (!(params->flags & KVP_ATTACH_LEASE_MARKS)) {
		if (params->lease_low || params->lease_critical || params->lease_high)
			return kvc_fail(EINVAL, "lease marks are given without KVP_ATTACH_LEASE_MARKS");
		return 0;
	}
	if (params->lease_critical > params->lease_low || params->lease_low > params->lease_high)
		return kvc_fail(EINVAL, "lease marks must rise: critical %u, low %u, high %u",
				params->lease_critical, params->lease_low, params->lease_high);
	return check_range("lease_high", params->lease_high, 0, KVW_LEASE_ENTRIES);
}

static int check_numbers(const struct kvp_attach_params *params)
{
	int ret = 0;

	if (params->flags & ~ALL_FLAGS)
		return kvc_fail(EINVAL, "kvp_attach_params.flags has unknown bits %#x",
				params->flags & ~ALL_FLAGS);
	if (params->grace_ms)
		return kvc_fail(KVP_ERESERVED, "kvp_attach_params.grace_ms is reserved: set it to 0");
	ret = check_range("max_seqs", params->max_seqs, 1, KVW_MAX_SEQS);
	if (!ret)
		ret = check_range("max_seq_tokens", params->max_seq_tokens, 1, INT32_MAX);
	if (!ret)
		ret = check_range("drafts", params->drafts, 0, 1024);
	if (!ret)
		ret = check_range("batch_tokens", params->batch_tokens, 1, KVW_MAX_SLOT_BYTES / 16);
	if (!ret)
		ret = check_range("slots", params->slots, KVW_MIN_SLOTS, KVW_MAX_SLOTS);
	if (!ret)
		ret = check_range("hash_bytes", params->hash_bytes, 0, KVW_MAX_HASH_BYTES);
	if (!ret)
		ret = check_range("identity_count", params->identity_count, 0, KVW_MAX_IDENTITY);
	return ret ? ret : check_lease(params);
}

static int compare_pairs(const void *a, const void *b)
{
	const struct kvp_identity *left = a;
	const struct kvp_identity *right = b;

	return strcmp(left->key, right->key);
}

static int check_pair(const struct kvp_identity *pair)
{
	if (!pair->key || !pair->value || !pair->key[0])
		return kvc_fail(EINVAL, "an identity entry has no key or no value");
	if (strlen(pair->key) > KVW_MAX_NAME_BYTES)
		return kvc_fail(KVP_ELIMIT, "identity key '%.80s' is longer than %u bytes", pair->key,
				KVW_MAX_NAME_BYTES);
	if (strlen(pair->value) > KVW_MAX_TEXT_BYTES)
		return kvc_fail(KVP_ELIMIT,
				"the value of identity key '%s' is longer than %u bytes: give a digest",
				pair->key, KVW_MAX_TEXT_BYTES);
	return 0;
}

static int sort_identity(struct kvc_plan *plan)
{
	struct kvp_identity sorted[KVW_MAX_IDENTITY];
	uint32_t count = plan->params.identity_count;
	uint32_t i;
	int ret;

	if (count && !plan->params.identity)
		return kvc_fail(EINVAL, "kvp_attach_params.identity is NULL, identity_count is %u", count);
	for (i = 0; i < count; i++) {
		sorted[i] = plan->params.identity[i];
		ret = check_pair(&sorted[i]);
		if (ret)
			return ret;
	}
	if (count)
		qsort(sorted, count, sizeof(*sorted), compare_pairs);
	for (i = 0; i < count; i++) {
		if (i && !strcmp(sorted[i].key, sorted[i - 1].key))
			return kvc_fail(EINVAL, "identity key '%s' is given twice", sorted[i].key);
		plan->identity[i].key = kvw_text_of(sorted[i].key);
		plan->identity[i].value = kvw_text_of(sorted[i].value);
	}
	return 0;
}

int kvc_plan_params(const struct kvp_attach_params *given, struct kvc_plan *plan)
{
	int ret;

	memset(plan, 0, sizeof(*plan));
	plan->params.size = sizeof(plan->params);
	ret = given ? kvc_params_read(&plan->params, sizeof(plan->params), given, "kvp_attach_params") : 0;
	if (ret)
		return ret;
	set_defaults(&plan->params);
	ret = check_numbers(&plan->params);
	return ret ? ret : sort_identity(plan);
}

/* Twice the sequences: closed rows wait for their last answers. */
static uint32_t rows_of(uint32_t max_seqs)
{
	return max_seqs > KVW_MAX_SEQS / 2 ? KVW_MAX_SEQS : 2 * max_seqs;
}

/*
 * A power of two of at least LEAST_ANSWERS: for all rows opened at once and a whole lease, as far as the
 * limit goes. Fewer make opens wait for each other, and no more.
 */
static uint32_t answers_of(const struct kvw_tables_params *tables, const struct kvp_attach_params *params)
{
	uint64_t wish = (uint64_t)tables->rows * tables->row_blocks + 2 * (uint64_t)params->lease_high;
	uint32_t answers = LEAST_ANSWERS;

	while (answers < wish && answers < KVW_MAX_ANSWERS)
		answers *= 2;
	return answers;
}

int kvc_plan_pool(const struct kvc_pool *pool, struct kvc_plan *plan)
{
	const struct kvp_attach_params *params = &plan->params;
	uint32_t block_tokens = pool->geometry.block_tokens;
	uint32_t row_blocks =
		(uint32_t)(((uint64_t)params->max_seq_tokens + block_tokens - 1) / block_tokens);
	uint64_t slot_bytes;
	int ret = check_range("max_seq_tokens", params->max_seq_tokens, 1,
			      (uint64_t)KVW_MAX_ROW_BLOCKS * block_tokens);

	if (ret)
		return ret;
	slot_bytes = kvc_slot_bytes(params->max_seqs, params->batch_tokens, row_blocks);
	if (slot_bytes > KVW_MAX_SLOT_BYTES)
		return kvc_fail(KVP_ELIMIT,
				"a step's arrays need %llu bytes, above %u: lower max_seqs, max_seq_tokens "
				"or batch_tokens",
				(unsigned long long)slot_bytes, KVW_MAX_SLOT_BYTES);
	plan->tables = (struct kvw_tables_params){
		.rows = rows_of(params->max_seqs),
		.row_blocks = row_blocks,
		.block_tokens = block_tokens,
		.hash_bytes = params->hash_bytes ? params->hash_bytes : KVW_SHA256_BYTES,
		.slots = params->slots,
		.slot_bytes = slot_bytes,
	};
	plan->answers = answers_of(&plan->tables, params);
	ret = kvw_tables_layout(&plan->tables, &plan->layout);
	if (ret)
		return kvc_fail(
			ret,
			"the tables of %u rows of %u blocks are too big: lower max_seqs or max_seq_tokens",
			plan->tables.rows, row_blocks);
	return 0;
}

void kvc_plan_message(const struct kvc_plan *plan, const struct kvc_pool *pool, struct kvw_msg_ATTACH *out)
{
	const struct kvp_attach_params *params = &plan->params;

	*out = (struct kvw_msg_ATTACH){
		.pool = kvw_text_of(pool->name),
		.role = ROLE_LEADER,
		.max_seqs = params->max_seqs,
		.rows = plan->tables.rows,
		.row_blocks = plan->tables.row_blocks,
		.hash_bytes = plan->tables.hash_bytes,
		.slots = plan->tables.slots,
		.slot_bytes = plan->tables.slot_bytes,
		.step_tokens = params->batch_tokens,
		.drafts = params->drafts,
		.lease_set = params->flags & KVP_ATTACH_LEASE_MARKS ? 1 : 0,
		.lease_low = params->lease_low,
		.lease_critical = params->lease_critical,
		.lease_high = params->lease_high,
		.numerics = params->flags & KVP_ATTACH_EXACT ? NUMERICS_EXACT : 0,
		.identity = kvw_list_of(plan->identity, params->identity_count),
		.index_scale = params->flags & KVP_ATTACH_INDEX_SCALE ? 1 : 0,
		.answers = plan->answers,
	};
}
