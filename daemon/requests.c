/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which request is allowed when and to whom, and who answers it.
 */
#include <inttypes.h>

#include <kvpool/error.h>

#include "admin.h"
#include "session.h"

typedef int (*request_fn)(struct kvd_session *session, const struct kvw_envelope *request,
			  const union kvw_any *message);

struct request_rule {
	request_fn answer;
	bool attached; /* only when attached */
	bool admin;
};

/* Requests have even types. */
#define RULE(NAME) [KVW_MSG_##NAME / 2]
static const struct request_rule rules[] = {
	RULE(HELLO) = {kvd_request_hello, false, false},
	RULE(POOL) = {kvd_request_pool, false, false},
	RULE(ATTACH) = {kvd_request_attach, false, false},
	RULE(FDS) = {kvd_request_fds, true, false},
	RULE(MAPPED) = {kvd_request_mapped, true, false},
	RULE(DRAIN) = {kvd_request_drain, true, false},
	RULE(STATUS) = {kvd_request_status, false, true},
	RULE(POOLS) = {kvd_request_pools, false, true},
	RULE(CLIENTS) = {kvd_request_clients, false, true},
	RULE(BLOCKS) = {kvd_request_blocks, false, true},
	RULE(PROBE) = {kvd_request_probe, false, true},
	RULE(CHECK) = {kvd_request_check, false, true},
	RULE(FLUSH) = {kvd_request_flush, false, true},
	RULE(TIMELINES) = {kvd_request_timelines, true, false},
};
#define RULES (sizeof(rules) / sizeof(rules[0]))

static const struct request_rule *find_rule(uint32_t type)
{
	if (type % 2 || type / 2 >= RULES || !rules[type / 2].answer)
		return NULL;
	return &rules[type / 2];
}

int kvd_request_dispatch(struct kvd_session *session, const struct kvw_envelope *request,
			 const union kvw_any *message)
{
	const struct request_rule *rule = find_rule(request->type);
	const char *name = kvw_message_name(request->type);

	if (!rule) {
		kvd_session_violate(session, request, -KVP_EPROTO,
				    "message type %" PRIu32 " (%s) is no request", request->type,
				    name ? name : "unknown");
		return 0;
	}
	if (rule->attached && session->state != KVD_SESSION_ATTACHED) {
		kvd_session_refuse(session, request, -KVP_ESTATE,
				   "%s: the session is not attached to a pool; send ATTACH first", name);
		return 0;
	}
	if (rule->admin && !session->admin) {
		kvd_session_refuse(session, request, -KVP_EDENIED,
				   "%s: uid %u may not administer this daemon; add it to 'admin_users'", name,
				   session->peer.uid);
		return 0;
	}
	kvd_turn_part(&session->server->clock, name);
	return rule->answer(session, request, message);
}
