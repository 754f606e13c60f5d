/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Administration: what is told, page by page, and to whom.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kvpool/error.h>

#include "raw.h"
#include "session_groups.h"

static void status_describes_the_daemon(void **state)
{
	const struct kvt_daemon *daemon = *state;
	struct kvt_raw *admin = kvt_raw_hello(daemon);
	const struct kvw_msg_STATUS status = {.unused = 0};
	char text[KVW_MAX_TEXT_BYTES + 1];

	assert_int_equal(kvt_raw_ask(admin, KVW_MSG_STATUS, &status), 0);
	kvw_text_copy(admin->answer.STATUS_OK.event_loop, text, sizeof(text));
	if (strcmp(kvt_lane, "auto") != 0)
		assert_string_equal(text, kvt_lane);
	kvw_text_copy(admin->answer.STATUS_OK.socket, text, sizeof(text));
	assert_string_equal(text, daemon->socket);
	assert_int_equal(admin->answer.STATUS_OK.pid, daemon->pid);
	assert_int_equal(admin->answer.STATUS_OK.incarnation, admin->incarnation);
	assert_int_equal(admin->answer.STATUS_OK.sessions, 1);
	assert_int_equal(admin->answer.STATUS_OK.pools, 1);
	assert_true(admin->answer.STATUS_OK.turns > 0);
	kvt_raw_close(admin);
}

static void clients_come_in_pages(void **state)
{
	struct kvt_raw *raws[140];
	struct kvw_msg_CLIENTS request = {.after = 0};
	struct kvw_item_CLIENT item;
	struct kvw_list clients;
	uint32_t found = 0;
	uint32_t pages = 0;
	int i;

	for (i = 0; i < 140; i++)
		raws[i] = kvt_raw_hello(*state);
	do {
		assert_int_equal(kvt_raw_ask(raws[0], KVW_MSG_CLIENTS, &request), 0);
		clients = raws[0]->answer.CLIENTS_OK.clients;
		while (kvw_list_next(&clients, KVW_ITEM_CLIENT, &item)) {
			assert_true(item.session > request.after);
			request.after = item.session;
			assert_int_equal(item.pid, getpid());
			found++;
		}
		pages++;
	} while (raws[0]->answer.CLIENTS_OK.more);
	assert_int_equal(found, 140);
	assert_int_equal(pages, 2);
	for (i = 0; i < 140; i++)
		kvt_raw_close(raws[i]);
}

static uint32_t count_blocks(struct kvt_raw *admin, struct kvw_msg_BLOCKS request)
{
	struct kvw_item_BLOCK item;
	struct kvw_list blocks;
	uint32_t found = 0;

	do {
		assert_int_equal(kvt_raw_ask(admin, KVW_MSG_BLOCKS, &request), 0);
		blocks = admin->answer.BLOCKS_OK.blocks;
		while (kvw_list_next(&blocks, KVW_ITEM_BLOCK, &item)) {
			assert_true(item.id >= request.from);
			assert_true(!request.state || item.state == request.state - 1);
			assert_true(!request.session || item.session == request.session);
			found++;
		}
		request.from = admin->answer.BLOCKS_OK.next;
	} while (request.from);
	return found;
}

static void blocks_are_listed_by_state_and_session(void **state)
{
	struct kvt_raw *raw = kvt_raw_engine(*state);
	struct kvw_completion open = kvt_open(raw, 0, 400, 4, 7);

	kvt_publish(raw, 0, open.hold, 0, 4, 0, 0);
	assert_int_equal(count_blocks(raw, (struct kvw_msg_BLOCKS){.state = 1 + KVW_BLOCK_LEASED}), 3 + 1);
	assert_int_equal(count_blocks(raw, (struct kvw_msg_BLOCKS){.session = raw->session}), 7 + 1);
	assert_int_equal(count_blocks(raw, (struct kvw_msg_BLOCKS){.session = raw->session, .limit = 2}),
			 7 + 1);
	/* 64 data blocks, 64 sinks, the null block. */
	assert_int_equal(count_blocks(raw, (struct kvw_msg_BLOCKS){.limit = 10}), 129);
	kvt_raw_close(raw);
}

static void probe_finds_a_hash_and_says_why_it_stays(void **state)
{
	struct kvt_raw *raw = kvt_raw_engine(*state);
	struct kvw_completion open = kvt_open(raw, 0, 401, 1, 1);
	uint8_t hash[32] = {0};
	struct kvw_msg_PROBE probe = {.hash = kvw_bytes_of(hash, sizeof(hash))};
	struct kvw_item_BLOCK item;
	struct kvw_list blocks;

	memcpy(hash, &(uint64_t){401}, 8);
	memcpy(hash + 8, &(uint64_t){1}, 8);
	kvt_publish(raw, 0, open.hold, 0, 1, 0, 0);
	assert_int_equal(kvt_raw_ask(raw, KVW_MSG_PROBE, &probe), 0);
	blocks = raw->answer.PROBE_OK.blocks;
	assert_int_equal(kvw_list_next(&blocks, KVW_ITEM_BLOCK, &item), 1);
	assert_int_equal(item.id, kvt_answers(raw, 0)[0].id);
	assert_int_equal(item.references, 1);
	assert_true(item.why.length > 0);
	probe.namespace_id = raw->namespace_id + 1;
	assert_int_equal(kvt_raw_ask(raw, KVW_MSG_PROBE, &probe), 0);
	assert_int_equal(raw->answer.PROBE_OK.blocks.count, 0);
	kvt_raw_close(raw);
}

static void flush_says_what_is_still_referenced(void **state)
{
	struct kvt_raw *raw = kvt_raw_engine(*state);
	struct kvw_completion kept = kvt_open(raw, 0, 402, 3, 3);
	struct kvw_completion released = kvt_open(raw, 1, 403, 4, 4);
	const struct kvw_msg_FLUSH flush = {.pool = kvw_text_of("p")};

	kvt_publish(raw, 0, kept.hold, 0, 3, 0, 0);
	kvt_publish(raw, 1, released.hold, 0, 4, 0, 0);
	kvt_release(raw, released.hold);
	assert_int_equal(kvt_raw_ask(raw, KVW_MSG_FLUSH, &flush), 0);
	assert_true(raw->answer.FLUSH_OK.freed >= 4);
	assert_int_equal(raw->answer.FLUSH_OK.still_referenced, 3);
	assert_int_equal(raw->answer.FLUSH_OK.pending, 0);
	assert_int_equal(kvt_open(raw, 2, 403, 4, 0).matched, 0);
	assert_int_equal(kvt_open(raw, 3, 402, 3, 0).matched, 3);
	kvt_raw_close(raw);
}

static void check_of_a_pool_that_is_not_there_is_refused(void **state)
{
	struct kvt_raw *admin = kvt_raw_hello(*state);
	const struct kvw_msg_CHECK check = {.pool = kvw_text_of("q")};

	assert_int_equal(kvt_raw_ask(admin, KVW_MSG_CHECK, &check), -KVP_ENOPOOL);
	kvt_raw_close(admin);
}

/* Two at once: the second waits for the first; one whose asker left is dropped. */
static void checks_queue(void **state)
{
	struct kvt_raw *first = kvt_raw_hello(*state);
	struct kvt_raw *second = kvt_raw_hello(*state);
	struct kvt_raw *leaver = kvt_raw_hello(*state);
	const struct kvw_msg_CHECK check = {.unused = 0};

	kvt_raw_send_message(leaver, KVW_MSG_CHECK, &check);
	kvt_raw_send_message(first, KVW_MSG_CHECK, &check);
	kvt_raw_send_message(second, KVW_MSG_CHECK, &check);
	kvt_raw_close(leaver);
	assert_int_equal(kvt_raw_receive(second), KVW_MSG_CHECK_OK);
	assert_int_equal(kvt_raw_receive(first), KVW_MSG_CHECK_OK);
	kvt_raw_close(first);
	kvt_raw_close(second);
}

/* In a child of another uid. Its exit status is the number of what went wrong. */
static int ask_as_stranger(const struct kvt_daemon *daemon)
{
	const struct kvw_msg_STATUS status = {.unused = 0};
	const struct kvw_msg_POOL pool = {.unused = 0};
	struct kvt_raw *raw;

	if (setgid(12345) || setuid(12345))
		return 1;
	raw = kvt_raw_hello(daemon);
	if (raw->answer.HELLO_OK.admin)
		return 2;
	if (kvt_raw_ask(raw, KVW_MSG_STATUS, &status) != -KVP_EDENIED || !strstr(raw->error, "admin_users"))
		return 3;
	return kvt_raw_ask(raw, KVW_MSG_POOL, &pool) ? 4 : 0;
}

static int run_as_stranger(const char *const *options)
{
	struct kvt_daemon *daemon = kvt_daemon_start(options);
	int status = 0;
	pid_t pid;

	chmod(daemon->dir, 0755);
	pid = fork();
	if (!pid)
		_exit(ask_as_stranger(daemon));
	waitpid(pid, &status, 0);
	kvt_daemon_stop(daemon);
	return status;
}

static void strangers_may_not_administer(void **state)
{
	static const char *const strict[] = {KVT_SMALL_POOL, "--socket-mode=0666", NULL};
	static const char *const listed[] = {KVT_SMALL_POOL, "--socket-mode=0666", "--admin-users=12345",
					     NULL};

	(void)state;
	if (getuid())
		skip();
	assert_int_equal(run_as_stranger(strict), 0);
	assert_int_equal(WEXITSTATUS(run_as_stranger(listed)), 2);
}

int kvt_group_admin(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(status_describes_the_daemon),
		cmocka_unit_test(clients_come_in_pages),
		cmocka_unit_test(blocks_are_listed_by_state_and_session),
		cmocka_unit_test(probe_finds_a_hash_and_says_why_it_stays),
		cmocka_unit_test(flush_says_what_is_still_referenced),
		cmocka_unit_test(check_of_a_pool_that_is_not_there_is_refused),
		cmocka_unit_test(checks_queue),
		cmocka_unit_test(strangers_may_not_administer),
	};

	return cmocka_run_group_tests_name("admin", tests, kvt_start_small, kvt_stop_small);
}
