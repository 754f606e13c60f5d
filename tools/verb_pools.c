/* SPDX-License-Identifier: Apache-2.0 */
/* kvpoolctl pools: geometry, blocks by state, counters since the daemon's start. */
#include <stdio.h>

#include "admin.h"
#include "counters.h"
#include "json.h"
#include "table.h"
#include "text.h"

/* States in the order of the words "Blocks". X(field, title). */
#define STATE_MAP(X)                                                                                         \
	X(free, "FREE")                                                                                      \
	X(leased, "LEASED")                                                                                  \
	X(pending, "PENDING")                                                                                \
	X(cached, "CACHED")                                                                                  \
	X(orphan, "ORPHAN")                                                                                  \
	X(draining, "DRAINING")                                                                              \
	X(frozen, "FROZEN")                                                                                  \
	X(quarantined, "QUARANTINED")                                                                        \
	X(referenced, "REFERENCED")                                                                          \
	X(evictable, "EVICTABLE")

static json_t *counters_json(struct kvw_bytes bytes)
{
	uint64_t counters[KVW_COUNTERS];
	json_t *object = json_object();

	ctl_counters_read(bytes, counters);
	for (uint32_t i = 0; i < KVW_COUNTERS; i++)
		ctl_json_u64(object, ctl_counter_name(i), counters[i]);
	return object;
}

static void add_geometry_json(json_t *object, const struct kvw_item_POOL_ITEM *pool)
{
	ctl_json_u64(object, "id", pool->id);
	ctl_json_text(object, "name", pool->name);
	ctl_json_u64(object, "blocks", pool->blocks);
	ctl_json_u64(object, "block_tokens", pool->block_tokens);
	ctl_json_u64(object, "bytes", pool->bytes);
	ctl_json_u64(object, "populated_bytes", pool->populated_bytes);
	json_object_set_new(object, "ready", json_boolean(pool->ready != 0));
}

static json_t *pool_json(const struct kvw_item_POOL_ITEM *pool)
{
	json_t *object = json_object();

	add_geometry_json(object, pool);
	ctl_json_text(object, "device", pool->device);
	ctl_json_text(object, "memory", pool->memory);
	ctl_json_text(object, "why", pool->why);
	json_object_set_new(object, "lost", json_boolean(pool->lost != 0));
	ctl_json_text(object, "policy", pool->policy);
	ctl_json_u64(object, "epoch", pool->epoch);
	ctl_json_u64(object, "engines", pool->engines);
	ctl_json_quota(object, pool->quota_blocks);
#define X(field, title) ctl_json_u64(object, #field, pool->field);
	STATE_MAP(X)
#undef X
	json_object_set_new(object, "counters", counters_json(pool->counters));
	return object;
}

static int print_json(struct kvw_list pools)
{
	struct kvw_item_POOL_ITEM pool;
	json_t *array = json_array();

	while (kvw_list_next(&pools, KVW_ITEM_POOL_ITEM, &pool))
		json_array_append_new(array, pool_json(&pool));
	return ctl_json_print(json_pack("{s:o}", "pools", array));
}

static void add_name(struct ctl_table *table, struct kvw_text name)
{
	char text[KVW_MAX_NAME_BYTES + 1];

	ctl_table_text(table, ctl_safe(name, text, sizeof(text)));
}

static void add_quota(struct ctl_table *table, uint64_t blocks)
{
	if (blocks && blocks != UINT64_MAX)
		ctl_table_number(table, blocks);
	else
		ctl_table_text(table, "none");
}

static void add_ready(struct ctl_table *table, const struct kvw_item_POOL_ITEM *pool)
{
	char text[CTL_TEXT_BYTES];

	ctl_table_text(table, pool->ready ? "yes"
			      : pool->why.length
				      ? "off"
				      : ctl_percent(pool->populated_bytes, pool->bytes, text, sizeof(text)));
}

static void add_geometry(struct ctl_table *table, const struct kvw_item_POOL_ITEM *pool)
{
	add_name(table, pool->name);
	ctl_table_number(table, pool->blocks);
	ctl_table_number(table, pool->block_tokens);
	ctl_table_bytes(table, pool->bytes);
	add_name(table, pool->device);
	add_name(table, pool->memory);
	add_name(table, pool->policy);
	ctl_table_number(table, pool->engines);
	add_quota(table, pool->quota_blocks);
	add_ready(table, pool);
}

static void add_states(struct ctl_table *table, const struct kvw_item_POOL_ITEM *pool)
{
	add_name(table, pool->name);
#define X(field, title) ctl_table_number(table, pool->field);
	STATE_MAP(X)
#undef X
}

static void add_counters(struct ctl_table *table, const struct kvw_item_POOL_ITEM *pool)
{
	uint64_t counters[KVW_COUNTERS];
	char text[CTL_TEXT_BYTES];

	ctl_counters_read(pool->counters, counters);
	add_name(table, pool->name);
	ctl_table_number(table, counters[KVW_COUNTER_lookup_blocks]);
	ctl_table_number(table, counters[KVW_COUNTER_hit_blocks]);
	ctl_table_text(table, ctl_percent(counters[KVW_COUNTER_hit_blocks],
					  counters[KVW_COUNTER_lookup_blocks], text, sizeof(text)));
	ctl_table_number(table, counters[KVW_COUNTER_published_blocks]);
	ctl_table_number(table, counters[KVW_COUNTER_duplicate_blocks]);
	ctl_table_number(table, counters[KVW_COUNTER_evicted_blocks]);
	ctl_table_number(table, counters[KVW_COUNTER_no_blocks]);
	ctl_table_number(table, counters[KVW_COUNTER_quota_refusals]);
}

static int print_one(const char *titles, struct kvw_list pools,
		     void (*add)(struct ctl_table *table, const struct kvw_item_POOL_ITEM *pool))
{
	struct ctl_table *table = ctl_table_create(titles);
	struct kvw_item_POOL_ITEM pool;

	while (kvw_list_next(&pools, KVW_ITEM_POOL_ITEM, &pool))
		add(table, &pool);
	return ctl_table_finish(table);
}

#define X(field, title) "|>" title
static const char state_titles[] = "POOL" STATE_MAP(X);
#undef X
static const char geometry_titles[] = "POOL|>BLOCKS|>TOKENS|>SIZE|DEVICE|MEMORY|POLICY|>ENGINES|>QUOTA|READY";
static const char counter_titles[] =
	"POOL|>LOOK-UPS|>HITS|>RATE|>PUBLISHED|>DUPLICATES|>EVICTED|>NO BLOCKS|>OVER QUOTA";

/* Why a pool is shared as it is, or why it is off; those of the host have nothing to say. */
static void print_reasons(struct kvw_list pools)
{
	struct kvw_item_POOL_ITEM pool;

	while (kvw_list_next(&pools, KVW_ITEM_POOL_ITEM, &pool)) {
		char name[KVW_MAX_NAME_BYTES + 1];
		char why[256];

		if (pool.why.length)
			printf("%s: %s%s\n", ctl_safe(pool.name, name, sizeof(name)),
			       pool.lost ? "its device is lost: " : "", ctl_safe(pool.why, why, sizeof(why)));
	}
}

static int print_tables(struct kvw_list pools)
{
	int code = print_one(geometry_titles, pools, add_geometry);

	print_reasons(pools);
	putchar('\n');
	code = code ? code : print_one(state_titles, pools, add_states);
	putchar('\n');
	return code ? code : print_one(counter_titles, pools, add_counters);
}

static int show(const union kvw_any *reply, bool json)
{
	return json ? print_json(reply->POOLS_OK.pools) : print_tables(reply->POOLS_OK.pools);
}

static int run(const void *options, char *const *operands)
{
	struct kvw_msg_POOLS request = {0};

	(void)operands;
	return ctl_admin_show(options, KVW_MSG_POOLS, &request, show);
}

const struct ctl_verb ctl_verb_pools = {
	.name = "pools",
	.operands = "",
	.summary = "Show every pool: size, blocks by state, look-ups and hits",
	.options_bytes = sizeof(struct ctl_global),
	.run = run,
};
