/* SPDX-License-Identifier: Apache-2.0 */
/* kvpoolctl status: the daemon in one look. */
#include <stdio.h>

#include "admin.h"
#include "json.h"
#include "table.h"
#include "text.h"

static void add_loop(json_t *root, const struct kvw_msg_STATUS_OK *status)
{
	ctl_json_text(root, "event_loop", status->event_loop);
	ctl_json_u64(root, "longest_turn_us", status->longest_turn_us);
	ctl_json_text(root, "longest_part", status->longest_part);
	ctl_json_u64(root, "longest_part_us", status->longest_part_us);
	ctl_json_u64(root, "turns", status->turns);
	ctl_json_u64(root, "poll_ms", status->poll_ms);
	ctl_json_u64(root, "worker_busy_ms", status->worker_busy_ms);
	ctl_json_text(root, "worker_job", status->worker_job);
}

static int print_json(const struct kvw_msg_STATUS_OK *status)
{
	json_t *root = json_object();

	ctl_json_text(root, "daemon_version", status->daemon_version);
	ctl_json_u64(root, "incarnation", status->incarnation);
	ctl_json_u64(root, "pid", status->pid);
	ctl_json_u64(root, "uptime_ms", status->uptime_ms);
	ctl_json_u64(root, "sessions", status->sessions);
	ctl_json_u64(root, "pools", status->pools);
	ctl_json_text(root, "health", status->health);
	ctl_json_text(root, "off", status->off);
	ctl_json_text(root, "socket", status->socket);
	add_loop(root, status);
	return ctl_json_print(root);
}

static void add_text(struct ctl_table *table, const char *name, struct kvw_text value)
{
	ctl_table_text(table, name);
	ctl_table_value(table, value);
}

static void add_number(struct ctl_table *table, const char *name, uint64_t value, const char *unit)
{
	char text[CTL_TEXT_BYTES];

	ctl_table_text(table, name);
	ctl_table_format(table, "%s%s", ctl_number(value, text, sizeof(text)), unit);
}

static void add_worker(struct ctl_table *table, const struct kvw_msg_STATUS_OK *status)
{
	char job[KVW_MAX_NAME_BYTES + 1];
	char time[CTL_TEXT_BYTES];

	ctl_table_text(table, "worker");
	if (status->worker_job.length)
		ctl_table_format(table, "%s, for %s", ctl_safe(status->worker_job, job, sizeof(job)),
				 ctl_duration(status->worker_busy_ms, time, sizeof(time)));
	else
		ctl_table_text(table, "idle");
}

static void add_longest_turn(struct ctl_table *table, const struct kvw_msg_STATUS_OK *status)
{
	char part[KVW_MAX_NAME_BYTES + 1];
	char turn_us[CTL_TEXT_BYTES];
	char part_us[CTL_TEXT_BYTES];

	ctl_table_text(table, "longest turn");
	ctl_table_format(table, "%s us, of them %s us in: %s",
			 ctl_number(status->longest_turn_us, turn_us, sizeof(turn_us)),
			 ctl_number(status->longest_part_us, part_us, sizeof(part_us)),
			 ctl_safe(status->longest_part, part, sizeof(part)));
}

static void add_process(struct ctl_table *table, const struct kvw_msg_STATUS_OK *status)
{
	char time[CTL_TEXT_BYTES];

	ctl_table_text(table, "pid");
	ctl_table_format(table, "%llu", (unsigned long long)status->pid);
	ctl_table_text(table, "up for");
	ctl_table_text(table, ctl_duration(status->uptime_ms, time, sizeof(time)));
	ctl_table_text(table, "incarnation");
	ctl_table_format(table, "%016llx", (unsigned long long)status->incarnation);
}

static int print_table(const struct kvw_msg_STATUS_OK *status)
{
	struct ctl_table *table = ctl_table_create("|");

	add_text(table, "version", status->daemon_version);
	add_text(table, "health", status->health);
	add_text(table, "switched off", status->off);
	add_text(table, "socket", status->socket);
	add_process(table, status);
	add_number(table, "pools", status->pools, "");
	add_number(table, "sessions", status->sessions, "");
	add_text(table, "event loop", status->event_loop);
	add_number(table, "looks at rings every", status->poll_ms, " ms");
	add_number(table, "turns of the loop", status->turns, "");
	add_longest_turn(table, status);
	add_worker(table, status);
	return ctl_table_finish(table);
}

static int show(const union kvw_any *reply, bool json)
{
	return json ? print_json(&reply->STATUS_OK) : print_table(&reply->STATUS_OK);
}

static int run(const void *options, char *const *operands)
{
	struct kvw_msg_STATUS request = {0};

	(void)operands;
	return ctl_admin_show(options, KVW_MSG_STATUS, &request, show);
}

const struct ctl_verb ctl_verb_status = {
	.name = "status",
	.operands = "",
	.summary = "Show the daemon: health, event loop, longest turn",
	.options_bytes = sizeof(struct ctl_global),
	.run = run,
};
