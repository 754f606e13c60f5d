/* SPDX-License-Identifier: Apache-2.0 */
/* The pool's numbers, by the administration verbs. */
#include "pool_state.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#include <kvpool/error.h>

#include "../admin.h"
#include "../counters.h"
#include "../text.h"
#include "ipc/frame.h"
#include "ipc/geometry.h"

#define SETTLE_POLL_MS 5

static void read_item(const struct kvw_item_POOL_ITEM *item, struct rep_pool_state *out)
{
	ctl_safe(item->name, out->name, sizeof(out->name));
	ctl_safe(item->memory, out->memory, sizeof(out->memory));
	ctl_safe(item->policy, out->policy, sizeof(out->policy));
	out->blocks = item->blocks;
	out->block_tokens = item->block_tokens;
	out->bytes = item->bytes;
	out->populated_bytes = item->populated_bytes;
	out->engines = item->engines;
	out->leased = item->leased;
	out->draining = item->draining;
	out->waiting = item->frozen + item->quarantined;
	ctl_counters_read(item->counters, out->counters);
}

/* -KVP_ENOPOOL: none of that name, or no name and several. */
static int find_item(struct kvw_list pools, const char *name, struct rep_pool_state *out)
{
	struct kvw_item_POOL_ITEM item;
	char item_name[KVW_MAX_NAME_BYTES + 1];
	uint32_t found = 0;

	while (kvw_list_next(&pools, KVW_ITEM_POOL_ITEM, &item)) {
		kvw_text_copy(item.name, item_name, sizeof(item_name));
		if (name && strcmp(item_name, name) != 0)
			continue;
		read_item(&item, out);
		found++;
	}
	if (found == 1)
		return 0;
	if (name)
		ctl_complain("the daemon has no pool '%s'", name);
	else
		ctl_complain("the daemon has %u pools; name one by --pool", found);
	return -KVP_ENOPOOL;
}

static int read_counted(struct ctl_admin *admin, const char *name, struct rep_pool_state *out)
{
	struct kvw_msg_STATUS status = {0};
	struct kvw_msg_POOLS pools = {0};
	union kvw_any reply;
	int ret = ctl_admin_call(admin, KVW_MSG_STATUS, &status, &reply);

	if (ret)
		return ret;
	ctl_safe(reply.STATUS_OK.event_loop, out->event_loop, sizeof(out->event_loop));
	ctl_safe(reply.STATUS_OK.off, out->off, sizeof(out->off));
	out->longest_turn_us = reply.STATUS_OK.longest_turn_us;
	ret = ctl_admin_call(admin, KVW_MSG_POOLS, &pools, &reply);
	if (!ret)
		ret = find_item(reply.POOLS_OK.pools, name, out);
	out->counted = !ret;
	return ret;
}

static void read_planes(struct kvw_list planes, struct rep_pool_state *out)
{
	struct kvw_item_PLANE plane;

	out->kv_planes = 0;
	out->has_latent = false;
	while (kvw_list_next(&planes, KVW_ITEM_PLANE, &plane)) {
		out->kv_planes += plane.role != KVW_ROLE_OPAQUE;
		out->has_latent |= plane.role == KVW_ROLE_LATENT;
	}
}

/* What every client may ask. */
static int read_geometry(struct ctl_admin *admin, const char *name, struct rep_pool_state *out)
{
	struct kvw_msg_POOL pool = {.name = kvw_text_of(name ? name : "")};
	union kvw_any reply;
	int ret = ctl_admin_call(admin, KVW_MSG_POOL, &pool, &reply);

	if (ret)
		return ret;
	ctl_safe(reply.POOL_OK.name, out->name, sizeof(out->name));
	ctl_safe(reply.POOL_OK.memory, out->memory, sizeof(out->memory));
	out->blocks = reply.POOL_OK.data_blocks;
	out->block_tokens = reply.POOL_OK.block_tokens;
	out->bytes = reply.POOL_OK.bytes;
	read_planes(reply.POOL_OK.planes, out);
	return 0;
}

static int read_with(struct ctl_admin *admin, const char *name, struct rep_pool_state *out)
{
	int ret = ctl_admin_is_admin(admin) ? read_counted(admin, name, out) : 0;

	if (!ret)
		ret = read_geometry(admin, name, out);
	/* Both divide by it. */
	if (!ret && (!out->block_tokens || out->block_tokens > KVW_MAX_BLOCK_TOKENS))
		ret = -KVP_EPROTO;
	return ret;
}

int rep_pool_state_read(const struct ctl_global *global, const char *name, struct rep_pool_state *out)
{
	struct rep_pool_state state = {0};
	struct ctl_admin *admin;
	int ret = ctl_admin_open(global, &admin);

	if (ret)
		return ret;
	ret = read_with(admin, name, &state);
	ctl_admin_close(admin);
	if (!ret)
		*out = state;
	return ret;
}

uint64_t rep_pool_state_over(const struct rep_pool_state *state)
{
	return state->counters[KVW_COUNTER_sessions_ended] + state->counters[KVW_COUNTER_sessions_died] +
	       state->counters[KVW_COUNTER_sessions_revoked];
}

/* An engine that holds nothing is over a moment after its end: its proof takes that long. */
static bool settled(const struct rep_pool_state *state, const struct rep_pool_state *before, uint32_t ended)
{
	if (state->engines > before->engines)
		return false;
	if (state->engines || !state->counted)
		return true;
	return rep_pool_state_over(state) - rep_pool_state_over(before) >= ended &&
	       !(state->leased || state->draining || state->waiting);
}

int rep_pool_state_settle(const struct ctl_global *global, const char *name,
			  const struct rep_pool_state *before, uint32_t ended, struct rep_pool_state *out)
{
	uint64_t deadline_ns = kvw_deadline_ns(global->timeout_ms);
	struct rep_pool_state state = {0};
	struct ctl_admin *admin;
	int ret = ctl_admin_open(global, &admin);

	if (ret)
		return ret;
	while (!(ret = read_with(admin, name, &state)) && !settled(&state, before, ended) &&
	       kvw_now_ns() < deadline_ns)
		poll(NULL, 0, SETTLE_POLL_MS);
	ctl_admin_close(admin);
	if (!ret)
		*out = state;
	return ret;
}
