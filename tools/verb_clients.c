/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpoolctl clients: every session, the dead ones whose blocks still wait included, with what they wait for.
 */
#include <stdio.h>

#include "admin.h"
#include "json.h"
#include "table.h"
#include "text.h"

static const char titles[] =
	"SESSION|>PID|>UID|NAME|POOL|STATE|>LEASED|>PENDING|>DRAINING|>REFERENCES|>WAITING"
	"|WAITS FOR|>SINCE";

/* Far more than a daemon has sessions: what ends the loop with one that has always more. */
#define MAX_PAGES 65536u

/* What is done with each client. */
struct sink {
	json_t *array;
	struct ctl_table *table;
};

static void add_owner(json_t *object, const struct kvw_item_CLIENT *client)
{
	ctl_json_u64(object, "session", client->session);
	ctl_json_u64(object, "engine", client->engine);
	ctl_json_u64(object, "pid", client->pid);
	ctl_json_u64(object, "uid", client->uid);
	ctl_json_text(object, "name", client->name);
	ctl_json_text(object, "pool", client->pool);
	ctl_json_text(object, "state", client->state);
	ctl_json_u64(object, "namespace", client->namespace_id);
}

static void add_blocks(json_t *object, const struct kvw_item_CLIENT *client)
{
	ctl_json_u64(object, "leased", client->leased);
	ctl_json_u64(object, "pending", client->pending);
	ctl_json_u64(object, "draining", client->draining);
	ctl_json_u64(object, "waiting", client->waiting);
	ctl_json_u64(object, "references", client->references);
	ctl_json_u64(object, "holds", client->holds);
	ctl_json_u64(object, "ring_waiting", client->ring_waiting);
	ctl_json_u64(object, "tenant_blocks", client->tenant_blocks);
	ctl_json_quota(object, client->quota_blocks);
}

static json_t *client_json(const struct kvw_item_CLIENT *client)
{
	json_t *object = json_object();

	add_owner(object, client);
	add_blocks(object, client);
	ctl_json_text(object, "waits_for", client->waits_for);
	ctl_json_number_or_null(object, "since_ms", client->waits_for.length > 0, client->since_ms);
	return object;
}

static void add_row(struct ctl_table *table, const struct kvw_item_CLIENT *client)
{
	char since[CTL_TEXT_BYTES];

	ctl_table_format(table, "%llu", (unsigned long long)client->session);
	ctl_table_format(table, "%llu", (unsigned long long)client->pid);
	ctl_table_format(table, "%llu", (unsigned long long)client->uid);
	ctl_table_value(table, client->name);
	ctl_table_value(table, client->pool);
	ctl_table_value(table, client->state);
	ctl_table_number(table, client->leased);
	ctl_table_number(table, client->pending);
	ctl_table_number(table, client->draining);
	ctl_table_number(table, client->references);
	ctl_table_number(table, client->waiting);
	ctl_table_value(table, client->waits_for);
	ctl_table_text(table,
		       client->waits_for.length ? ctl_duration(client->since_ms, since, sizeof(since)) : "-");
}

/*
 * All pages of the answer. Session ids only grow, so that `after` ends the loop even with a daemon that says
 * `more` for ever.
 */
static int collect(struct ctl_admin *admin, struct sink *sink)
{
	struct kvw_msg_CLIENTS request = {0};
	struct kvw_item_CLIENT client;
	union kvw_any reply;
	uint32_t pages = 0;
	uint64_t after;
	int ret;

	do {
		after = request.after;
		ret = ctl_admin_call(admin, KVW_MSG_CLIENTS, &request, &reply);
		if (ret)
			return ret;
		while (kvw_list_next(&reply.CLIENTS_OK.clients, KVW_ITEM_CLIENT, &client)) {
			if (sink->array)
				json_array_append_new(sink->array, client_json(&client));
			else
				add_row(sink->table, &client);
			request.after = client.session > request.after ? client.session : request.after;
		}
	} while (reply.CLIENTS_OK.more && request.after > after && ++pages < MAX_PAGES);
	return 0;
}

static int print(struct sink *sink)
{
	if (sink->array)
		return ctl_json_print(json_pack("{s:O}", "clients", sink->array));
	return ctl_table_print(sink->table, stdout) ? CTL_FAULT : CTL_OK;
}

static int run_connected(struct ctl_admin *admin, struct sink *sink)
{
	int code = collect(admin, sink) ? CTL_DAEMON : print(sink);

	ctl_table_destroy(sink->table);
	json_decref(sink->array);
	return code;
}

static int run(const void *options, char *const *operands)
{
	const struct ctl_global *global = options;
	struct sink sink = {0};
	struct ctl_admin *admin;
	int code;

	(void)operands;
	if (ctl_admin_open(global, &admin))
		return CTL_DAEMON;
	sink.array = global->json ? json_array() : NULL;
	sink.table = global->json ? NULL : ctl_table_create(titles);
	code = run_connected(admin, &sink);
	ctl_admin_close(admin);
	return code;
}

const struct ctl_verb ctl_verb_clients = {
	.name = "clients",
	.operands = "",
	.summary = "Show every session, and what a dead one's blocks wait for",
	.options_bytes = sizeof(struct ctl_global),
	.run = run,
};
