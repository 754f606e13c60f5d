/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests ask the daemon about itself.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "raw.h"

struct kvt_pool_state kvt_pool_state(struct kvt_raw *admin)
{
	const struct kvw_msg_POOLS request = {0};
	struct kvw_item_POOL_ITEM item;
	struct kvt_pool_state state;
	struct kvw_list pools;

	assert_int_equal(kvt_raw_ask(admin, KVW_MSG_POOLS, &request), 0);
	pools = admin->answer.POOLS_OK.pools;
	assert_int_equal(kvw_list_next(&pools, KVW_ITEM_POOL_ITEM, &item), 1);
	state = (struct kvt_pool_state){
		.free = item.free,
		.leased = item.leased,
		.pending = item.pending,
		.cached = item.cached,
		.orphan = item.orphan,
		.draining = item.draining,
		.frozen = item.frozen,
		.quarantined = item.quarantined,
		.referenced = item.referenced,
		.evictable = item.evictable,
		.engines = item.engines,
		.blocks = item.blocks,
	};
	assert_int_equal(item.counters.length, sizeof(state.counters));
	memcpy(state.counters, item.counters.at, sizeof(state.counters));
	assert_int_equal(state.free + state.leased + state.pending + state.cached + state.orphan +
				 state.draining + state.frozen + state.quarantined,
			 state.blocks);
	return state;
}

struct kvt_client_state kvt_client_state(struct kvt_raw *admin, uint64_t session)
{
	const struct kvw_msg_CLIENTS request = {.after = session - 1};
	struct kvt_client_state state = {.found = false};
	struct kvw_item_CLIENT item;
	struct kvw_list clients;

	assert_int_equal(kvt_raw_ask(admin, KVW_MSG_CLIENTS, &request), 0);
	clients = admin->answer.CLIENTS_OK.clients;
	if (!kvw_list_next(&clients, KVW_ITEM_CLIENT, &item) || item.session != session)
		return state;
	state.found = true;
	kvw_text_copy(item.state, state.state, sizeof(state.state));
	kvw_text_copy(item.waits_for, state.waits_for, sizeof(state.waits_for));
	state.waiting = item.waiting;
	state.leased = item.leased;
	state.references = item.references;
	state.holds = item.holds;
	return state;
}

void kvt_must_check(struct kvt_raw *admin)
{
	const struct kvw_msg_CHECK request = {.unused = 0};
	struct kvw_item_TEXT text;
	struct kvw_list texts;

	assert_int_equal(kvt_raw_ask(admin, KVW_MSG_CHECK, &request), 0);
	texts = admin->answer.CHECK_OK.texts;
	while (kvw_list_next(&texts, KVW_ITEM_TEXT, &text))
		fprintf(stderr, "check: %.*s\n", (int)text.text.length, text.text.at);
	assert_int_equal(admin->answer.CHECK_OK.faults, 0);
	assert_true(admin->answer.CHECK_OK.blocks > 0);
}

/* This wait and the next two end by themselves, and say what they have seen last. */
void kvt_wait_gone(struct kvt_raw *admin, uint64_t session)
{
	uint64_t until_ns = kvt_now_ns() + KVT_PATIENCE_NS;
	struct kvt_client_state state;

	while ((state = kvt_client_state(admin, session)).found)
		if (kvt_now_ns() > until_ns)
			fail_msg("session %" PRIu64 " is still there: it waits for '%s'", session,
				 state.waits_for);
}

void kvt_wait_state(struct kvt_raw *admin, uint64_t session, const char *waits_for_part)
{
	uint64_t until_ns = kvt_now_ns() + KVT_PATIENCE_NS;
	struct kvt_client_state state = kvt_client_state(admin, session);

	while (state.found && !strstr(state.waits_for, waits_for_part) && kvt_now_ns() <= until_ns)
		state = kvt_client_state(admin, session);
	if (!state.found || !strstr(state.waits_for, waits_for_part))
		fail_msg("session %" PRIu64 " %s '%s' instead of '%s'", session,
			 state.found ? "waits for" : "is gone and no more waits for", state.waits_for,
			 waits_for_part);
}

void kvt_wait_free(struct kvt_raw *admin, uint64_t blocks)
{
	uint64_t until_ns = kvt_now_ns() + KVT_PATIENCE_NS;
	uint64_t seen;

	while ((seen = kvt_pool_state(admin).free) != blocks)
		if (kvt_now_ns() > until_ns)
			fail_msg("%" PRIu64 " blocks are free instead of %" PRIu64, seen, blocks);
}
