/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Validating an ATTACH, field by field, each refusal naming the field, its value and the limit.
 */
#include "attach_plan.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include <kvpool/error.h>

struct named_value {
	const char *name;
	uint64_t value;
	uint64_t max;
};

static int refuse_reserved(struct kvd_session *session, const struct kvw_envelope *request,
			   const struct kvw_msg_ATTACH *attach)
{
	const struct named_value fields[] = {
		{"token", attach->token.length, 0},  {"read_only", attach->read_only, 0},
		{"grace_ms", attach->grace_ms, 0},   {"numerics", attach->numerics, 1},
		{"lease_set", attach->lease_set, 1}, {"index_scale", attach->index_scale, 1},
	};
	size_t i;

	for (i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		if (fields[i].value <= fields[i].max)
			continue;
		kvd_session_refuse(session, request, -KVP_ERESERVED,
				   "ATTACH field '%s' is %" PRIu64 "; above %" PRIu64
				   " it is reserved for a later version",
				   fields[i].name, fields[i].value, fields[i].max);
		return -1;
	}
	return 0;
}

static int check_role(struct kvd_session *session, const struct kvw_envelope *request, uint64_t role)
{
	if (role == 1)
		return 0;
	kvd_session_refuse(session, request, role == 2 ? -KVP_ERESERVED : -EINVAL,
			   "ATTACH field 'role' is %" PRIu64 "; 1 (leader) is served, 2 (worker) is reserved",
			   role);
	return -1;
}

/* Every size is a u64 on the wire and a u32 from here on. */
static int check_limits(struct kvd_session *session, const struct kvw_envelope *request,
			const struct kvw_msg_ATTACH *attach)
{
	const struct named_value fields[] = {
		{"max_seqs", attach->max_seqs, KVW_MAX_SEQS},
		{"rows", attach->rows, KVW_MAX_SEQS},
		{"row_blocks", attach->row_blocks, KVW_MAX_ROW_BLOCKS},
		{"hash_bytes", attach->hash_bytes, KVW_MAX_HASH_BYTES},
		{"slots", attach->slots, KVW_MAX_SLOTS},
		{"slot_bytes", attach->slot_bytes, KVW_MAX_SLOT_BYTES},
		{"answers", attach->answers, KVW_MAX_ANSWERS},
	};
	size_t i;

	for (i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		if (fields[i].value && fields[i].value <= fields[i].max)
			continue;
		kvd_session_refuse(session, request, fields[i].value ? -KVP_ELIMIT : -EINVAL,
				   "ATTACH field '%s' is %" PRIu64 "; it must be from 1 to %" PRIu64,
				   fields[i].name, fields[i].value, fields[i].max);
		return -1;
	}
	if (attach->drafts <= UINT32_MAX && attach->step_tokens <= UINT32_MAX)
		return 0;
	kvd_session_refuse(session, request, -KVP_ELIMIT,
			   "ATTACH fields 'drafts' and 'step_tokens' are %" PRIu64 " and %" PRIu64
			   "; they must be below 2^32",
			   attach->drafts, attach->step_tokens);
	return -1;
}

static int plan_tables(struct kvd_session *session, const struct kvw_envelope *request,
		       const struct kvw_msg_ATTACH *attach, struct kvd_attach_plan *plan)
{
	const struct kvd_pool_config *config = plan->pool->config;
	uint64_t bytes;
	int ret;

	plan->answers = (uint32_t)attach->answers;
	plan->tables = (struct kvw_tables_params){
		.rows = (uint32_t)attach->rows,
		.row_blocks = (uint32_t)attach->row_blocks,
		.block_tokens = config->geometry.block_tokens,
		.hash_bytes = (uint32_t)attach->hash_bytes,
		.slots = (uint32_t)attach->slots,
		.slot_bytes = attach->slot_bytes,
	};
	ret = kvw_tables_layout(&plan->tables, &plan->layout);
	if (ret) {
		kvd_session_refuse(session, request, ret,
				   "ATTACH asks for tables that can't be laid out: slots %" PRIu64
				   " (%u to %u), slot_bytes %" PRIu64
				   " (a multiple of %u), at most %llu bytes in all",
				   attach->slots, KVW_MIN_SLOTS, KVW_MAX_SLOTS, attach->slot_bytes,
				   KVW_PAGE_BYTES, KVW_MAX_TABLES_BYTES);
		return -1;
	}
	bytes = plan->layout.bytes + kvw_answers_bytes(plan->answers);
	if (bytes <= config->tables_limit_bytes)
		return 0;
	kvd_session_refuse(session, request, -KVP_ELIMIT,
			   "the engine's tables and answers would take %" PRIu64
			   " bytes, pool '%s' allows %" PRIu64 "; ask for fewer rows (%" PRIu64
			   ") or shorter ones (%" PRIu64 " blocks), or raise 'tables_limit'",
			   bytes, config->name, config->tables_limit_bytes, attach->rows, attach->row_blocks);
	return -1;
}

static uint64_t at_most(uint64_t value, uint64_t limit)
{
	return value < limit ? value : limit;
}

/*
 * low: what all rows take when they cross into new blocks in every step in flight; critical: half; high:
 * four times low. No lease takes more than an eighth of the pool, so that several engines still find blocks
 * in a small one; at least one block, or nothing could be reserved.
 */
struct kvd_lease_marks kvd_lease_marks_for(uint64_t max_seqs, uint64_t drafts, uint64_t slots,
					   uint32_t block_tokens, uint32_t data_blocks)
{
	uint64_t limit = at_most(data_blocks / 8 ? data_blocks / 8 : 1, KVW_LEASE_ENTRIES);
	uint64_t low = slots * max_seqs * ((1 + drafts + block_tokens - 1) / block_tokens);
	uint64_t high = at_most(4 * low, limit);

	low = at_most(low, limit / 2 ? limit / 2 : 1);
	return (struct kvd_lease_marks){
		.low = (uint32_t)low,
		.critical = (uint32_t)(low / 2),
		.high = (uint32_t)high,
	};
}

static int plan_lease(struct kvd_session *session, const struct kvw_envelope *request,
		      const struct kvw_msg_ATTACH *attach, struct kvd_attach_plan *plan)
{
	const struct kvd_pool_config *config = plan->pool->config;

	if (!attach->lease_set) {
		plan->lease = kvd_lease_marks_for(attach->max_seqs, attach->drafts, attach->slots,
						  config->geometry.block_tokens, config->data_blocks);
		return 0;
	}
	if (attach->lease_critical > attach->lease_low || attach->lease_low > attach->lease_high ||
	    attach->lease_high > KVW_LEASE_ENTRIES) {
		kvd_session_refuse(
			session, request, attach->lease_high > KVW_LEASE_ENTRIES ? -KVP_ELIMIT : -EINVAL,
			"the lease's marks are critical %" PRIu64 ", low %" PRIu64 ", high %" PRIu64
			"; they must not fall in this order, nor pass %u",
			attach->lease_critical, attach->lease_low, attach->lease_high, KVW_LEASE_ENTRIES);
		return -1;
	}
	plan->lease = (struct kvd_lease_marks){
		.low = (uint32_t)attach->lease_low,
		.critical = (uint32_t)attach->lease_critical,
		.high = (uint32_t)attach->lease_high,
	};
	return 0;
}

static int check_index_scale(struct kvd_session *session, const struct kvw_envelope *request, uint64_t asked,
			     const struct kvd_pool_config *config)
{
	const struct kvw_geometry *geometry = &config->geometry;
	uint32_t i;

	for (i = 0; asked && i < geometry->plane_count; i++) {
		const struct kvw_plane *plane = &geometry->planes[i];

		if (plane->stride % plane->page_bytes == 0)
			continue;
		kvd_session_refuse(session, request, -KVP_EINDEXSCALE,
				   "pool '%s', plane %" PRIu32 " (%s of layer %" PRIu32
				   "): a block's stride of %" PRIu64
				   " bytes is no whole number of its pages of %" PRIu64
				   " bytes; use layout layer_major, or planes of equal size",
				   config->name, i, kvw_role_name(plane->role), plane->layer, plane->stride,
				   plane->page_bytes);
		return -1;
	}
	return 0;
}

/* Strings of an identity, as the hash wants them. */
struct identity_text {
	char key[KVW_MAX_NAME_BYTES + 1];
	char value[KVW_MAX_TEXT_BYTES + 1];
};

/* 0; -EIO; -EINVAL: not sorted by key, or a key twice; *out_key is the one. */
static int digest_identity(struct kvw_hasher *hasher, struct kvw_list list, uint8_t *digest,
			   struct identity_text texts[KVW_MAX_IDENTITY], uint32_t *out_key)
{
	struct kvw_pair pairs[KVW_MAX_IDENTITY];
	struct kvw_item_PAIR item;
	uint32_t count = 0;

	while (count < KVW_MAX_IDENTITY && kvw_list_next(&list, KVW_ITEM_PAIR, &item)) {
		struct identity_text *text = &texts[count];

		pairs[count].key = kvw_text_copy(item.key, text->key, sizeof(text->key));
		pairs[count].value = kvw_text_copy(item.value, text->value, sizeof(text->value));
		*out_key = count;
		if (!text->key[0] || (count && strcmp(texts[count - 1].key, text->key) >= 0))
			return -EINVAL;
		count++;
	}
	return kvw_hash_identity(hasher, pairs, count, digest);
}

static int plan_identity(struct kvd_session *session, const struct kvw_envelope *request,
			 const struct kvw_msg_ATTACH *attach, struct kvd_attach_plan *plan)
{
	struct identity_text texts[KVW_MAX_IDENTITY];
	uint32_t key = 0;
	int ret;

	plan->identity =
		(struct kvd_identity){.uid = session->peer.uid, .numerics = (uint32_t)attach->numerics};
	ret = digest_identity(session->server->hasher, attach->identity, plan->identity.digest, texts, &key);
	if (ret == -EINVAL)
		kvd_session_refuse(
			session, request, ret,
			"identity key '%s' is empty, comes twice or is not in ascending order; sort the keys",
			texts[key].key);
	else if (ret)
		kvd_session_refuse(session, request, ret, "the identity can't be hashed: %s", strerror(-ret));
	return ret ? -1 : 0;
}

int kvd_attach_plan(struct kvd_session *session, const struct kvw_envelope *request,
		    const struct kvw_msg_ATTACH *attach, struct kvd_attach_plan *out)
{
	struct kvd_attach_plan plan = {0};

	if (check_role(session, request, attach->role) || refuse_reserved(session, request, attach) ||
	    check_limits(session, request, attach))
		return -1;
	plan.pool = kvd_session_find_pool(session, request, attach->pool);
	if (!plan.pool)
		return -1;
	plan.max_holds = (uint32_t)attach->max_seqs * KVD_HOLDS_PER_SEQUENCE;
	if (plan_tables(session, request, attach, &plan) || plan_lease(session, request, attach, &plan) ||
	    check_index_scale(session, request, attach->index_scale, plan.pool->config) ||
	    plan_identity(session, request, attach, &plan))
		return -1;
	*out = plan;
	return 0;
}
