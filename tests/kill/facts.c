/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looking at a daemon from outside.
 */
#include "facts.h"

#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool names_pool(const char *fd_path)
{
	char target[128];
	ssize_t length = readlink(fd_path, target, sizeof(target) - 1);

	if (length < 0)
		return false;
	target[length] = '\0';
	return strstr(target, "memfd:kvpool-pool-") != NULL;
}

/* All of them, or those of a pool's memory. */
static int count_fds(pid_t pid, bool of_pools)
{
	char path[64];
	char fd_path[512];
	const struct dirent *entry;
	int count = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		snprintf(fd_path, sizeof(fd_path), "%s/%s", path, entry->d_name);
		if (entry->d_name[0] != '.' && (!of_pools || names_pool(fd_path)))
			count++;
	}
	closedir(dir);
	return count;
}

/* One page of CLIENTS: how many it has and the last id; true when there are more. */
static bool count_page(struct kvt_raw *admin, uint64_t *after, uint32_t *sessions)
{
	const struct kvw_msg_CLIENTS request = {.after = *after};
	struct kvw_item_CLIENT item;
	struct kvw_list clients;

	assert_int_equal(kvt_raw_ask(admin, KVW_MSG_CLIENTS, &request), 0);
	clients = admin->answer.CLIENTS_OK.clients;
	while (kvw_list_next(&clients, KVW_ITEM_CLIENT, &item)) {
		*after = item.session;
		++*sessions;
	}
	return admin->answer.CLIENTS_OK.more != 0;
}

uint32_t kvt_sessions(struct kvt_raw *admin)
{
	uint32_t sessions = 0;
	uint64_t after = 0;

	while (count_page(admin, &after, &sessions))
		;
	return sessions;
}

/* Of the first page: a test has no more. */
static void print_sessions(struct kvt_raw *admin)
{
	const struct kvw_msg_CLIENTS request = {.after = 0};
	struct kvw_item_CLIENT item;
	struct kvw_list clients;

	assert_int_equal(kvt_raw_ask(admin, KVW_MSG_CLIENTS, &request), 0);
	clients = admin->answer.CLIENTS_OK.clients;
	while (kvw_list_next(&clients, KVW_ITEM_CLIENT, &item))
		fprintf(stderr,
			"session %llu of process %llu, '%.*s', is %.*s since %llu ms and waits for '%.*s'; "
			"leased %llu, pending %llu, draining %llu, holds %llu\n",
			(unsigned long long)item.session, (unsigned long long)item.pid, (int)item.name.length,
			item.name.at, (int)item.state.length, item.state.at,
			(unsigned long long)item.since_ms, (int)item.waits_for.length, item.waits_for.at,
			(unsigned long long)item.leased, (unsigned long long)item.pending,
			(unsigned long long)item.draining, (unsigned long long)item.holds);
}

void kvt_wait_sessions(struct kvt_raw *admin, uint32_t sessions)
{
	uint64_t until_ns = kvt_now_ns() + KVT_PATIENCE_NS;

	while (kvt_sessions(admin) != sessions) {
		if (kvt_now_ns() < until_ns)
			continue;
		print_sessions(admin);
		fail_msg("%u sessions were to be left", sessions);
	}
}

static void print_fds(pid_t pid)
{
	char command[64];

	snprintf(command, sizeof(command), "ls -l /proc/%d/fd >&2", (int)pid);
	(void)!system(command);
}

static void wait_count(const struct kvt_daemon *daemon, bool of_pools, int fds)
{
	uint64_t until_ns = kvt_now_ns() + KVT_PATIENCE_NS;

	while (count_fds(daemon->pid, of_pools) != fds) {
		sched_yield();
		if (kvt_now_ns() < until_ns)
			continue;
		print_fds(daemon->pid);
		fail_msg("%d descriptors%s were to be left", fds, of_pools ? " of pools" : "");
	}
}

void kvt_wait_fds(const struct kvt_daemon *daemon, int fds)
{
	wait_count(daemon, false, fds);
}

void kvt_wait_lent_fds(const struct kvt_daemon *daemon, int pools)
{
	wait_count(daemon, true, pools);
}

struct kvt_facts kvt_facts(const struct kvt_daemon *daemon, struct kvt_raw *admin)
{
	return (struct kvt_facts){
		.sessions = kvt_sessions(admin),
		.fds = count_fds(daemon->pid, false),
		.rss_kib = kvt_rss_kib(daemon->pid),
	};
}

uint64_t kvt_tenant_blocks(struct kvt_raw *admin, uint64_t session)
{
	const struct kvw_msg_CLIENTS request = {.after = session - 1};
	struct kvw_item_CLIENT item;
	struct kvw_list clients;

	assert_int_equal(kvt_raw_ask(admin, KVW_MSG_CLIENTS, &request), 0);
	clients = admin->answer.CLIENTS_OK.clients;
	assert_int_equal(kvw_list_next(&clients, KVW_ITEM_CLIENT, &item), 1);
	assert_int_equal(item.session, session);
	return item.tenant_blocks;
}

void kvt_limit_quarantine(void)
{
	const char *old = getenv("ASAN_OPTIONS");
	char text[512];

	snprintf(text, sizeof(text), "%s%squarantine_size_mb=1:thread_local_quarantine_size_kb=64",
		 old ? old : "", old ? ":" : "");
	setenv("ASAN_OPTIONS", text, 1);
}

uint64_t kvt_flush(struct kvt_raw *admin)
{
	const struct kvw_msg_FLUSH request = {.unused = 0};

	assert_int_equal(kvt_raw_ask(admin, KVW_MSG_FLUSH, &request), 0);
	return admin->answer.FLUSH_OK.freed;
}
