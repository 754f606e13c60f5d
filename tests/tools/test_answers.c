/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpoolctl against answers that no good daemon gives, or seldom: faults, a dead client's wait, pages without
 * end, garbage, silence. A child process plays the daemon. argv[1] is kvpoolctl.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kvpool/error.h>

#include "ipc/frame.h"
#include "ipc/shm.h"
#include "ipc/wire.h"
#include "program.h"
#include "support.h"
#include "tools/replay/standalone.h"

static const char *ctl;
static char *folder;
static char path[200];
static int listener;

/*
 * Answers request number `round` behind hello; returns how many bytes of out to send: 0 closes, -1 says
 * nothing.
 */
typedef int (*answer_fn)(uint32_t round, const struct kvw_envelope *asked, uint8_t *out, size_t capacity);

static int hello_ok(uint64_t sequence, uint8_t *out, size_t capacity)
{
	struct kvw_msg_HELLO_OK ok = {.version = 1, .hash_algorithm = KVW_HASH_SHA256, .admin = 1};

	return kvw_encode(KVW_MSG_HELLO_OK, sequence, &ok, out, capacity);
}

/* In the child: one connection, until the other side or the answers end it. */
static void serve(answer_fn answer)
{
	static uint8_t bytes[KVW_MAX_MESSAGE_BYTES];
	struct kvw_envelope asked;
	union kvw_any message;
	int fd = accept(listener, NULL, NULL);
	int length;

	for (uint32_t round = 0;; round++) {
		length = kvw_receive(fd, UINT64_MAX, bytes, sizeof(bytes), NULL, NULL);
		if (length <= 0 || kvw_decode(bytes, (size_t)length, &asked, &message))
			_exit(length ? 1 : 0);
		length = round ? answer(round - 1, &asked, bytes, sizeof(bytes))
			       : hello_ok(asked.sequence, bytes, sizeof(bytes));
		if (length == 0)
			_exit(0);
		if (length > 0 && kvw_send(fd, bytes, (size_t)length, NULL, 0))
			_exit(1);
	}
}

static struct kvt_output ask(answer_fn answer, const char *a, const char *b, const char *c)
{
	struct kvt_output output;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		serve(answer);
	}
	output = kvt_run_words(ctl, "--socket", path, "--timeout-ms", "300", a, b, c, NULL);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return output;
}

static int two_faults(uint32_t round, const struct kvw_envelope *asked, uint8_t *out, size_t capacity)
{
	struct kvw_item_TEXT texts[] = {{kvw_text_of("block 7: \x1b[31mred")},
					{kvw_text_of("block 9: lost")}};
	struct kvw_msg_CHECK_OK ok = {.blocks = 61000, .faults = 5, .texts = kvw_list_of(texts, 2)};

	(void)round;
	return kvw_encode(KVW_MSG_CHECK_OK, asked->sequence, &ok, out, capacity);
}

static void faults_end_with_code_one_and_are_told(void **state)
{
	struct kvt_output output = ask(two_faults, "check", NULL, NULL);

	(void)state;
	assert_int_equal(output.code, 1);
	assert_string_equal(output.out, "61,000 blocks checked, 5 faults\n"
					"  block 7: ?[31mred\n"
					"  block 9: lost\n"
					"  and 3 more\n");
	kvt_output_free(&output);
	output = ask(two_faults, "check", "--json", NULL);
	assert_int_equal(output.code, 1);
	kvt_output_free(&output);
}

/* Two pages; the dead one is on the second. */
static int a_dead_client(uint32_t round, const struct kvw_envelope *asked, uint8_t *out, size_t capacity)
{
	struct kvw_item_CLIENT client = {
		.session = round + 1, .pid = 100 + round, .name = kvw_text_of("engine")};
	struct kvw_msg_CLIENTS_OK ok = {.clients = kvw_list_of(&client, 1), .more = !round};

	if (round) {
		client.state = kvw_text_of("dead");
		client.waits_for = kvw_text_of("the lock of pool 'main'");
		client.since_ms = 65000;
		client.waiting = 1234;
	}
	return kvw_encode(KVW_MSG_CLIENTS_OK, asked->sequence, &ok, out, capacity);
}

static void clients_tells_what_a_dead_one_waits_for_and_since_when(void **state)
{
	struct kvt_output output = ask(a_dead_client, "clients", NULL, NULL);
	const json_t *client;
	json_t *root;

	(void)state;
	assert_int_equal(output.code, 0);
	assert_non_null(strstr(output.out, "the lock of pool 'main'"));
	assert_non_null(strstr(output.out, "1 min 05 s"));
	assert_non_null(strstr(output.out, "1,234"));
	kvt_output_free(&output);
	output = ask(a_dead_client, "clients", "--json", NULL);
	root = kvt_output_json(&output);
	assert_int_equal(json_array_size(json_object_get(root, "clients")), 2);
	client = json_array_get(json_object_get(root, "clients"), 0);
	assert_true(json_is_null(json_object_get(client, "since_ms")));
	client = json_array_get(json_object_get(root, "clients"), 1);
	assert_true(kvt_json_number(client, "since_ms") == 65000);
	json_decref(root);
	kvt_output_free(&output);
}

/* Always the same page, and always more. */
static int endless_clients(uint32_t round, const struct kvw_envelope *asked, uint8_t *out, size_t capacity)
{
	struct kvw_item_CLIENT client = {.session = 5};
	struct kvw_msg_CLIENTS_OK ok = {.clients = kvw_list_of(&client, 1), .more = 1};

	(void)round;
	return kvw_encode(KVW_MSG_CLIENTS_OK, asked->sequence, &ok, out, capacity);
}

static int endless_blocks(uint32_t round, const struct kvw_envelope *asked, uint8_t *out, size_t capacity)
{
	struct kvw_item_BLOCK block = {.id = 3, .state = 99, .parent = -1};
	struct kvw_msg_BLOCKS_OK ok = {.blocks = kvw_list_of(&block, 1), .next = 4};

	(void)round;
	return kvw_encode(KVW_MSG_BLOCKS_OK, asked->sequence, &ok, out, capacity);
}

static void pages_without_end_end(void **state)
{
	struct kvt_output output = ask(endless_clients, "clients", NULL, NULL);

	(void)state;
	assert_int_equal(output.code, 0);
	kvt_output_free(&output);
	output = ask(endless_blocks, "blocks", NULL, NULL);
	assert_int_equal(output.code, 0);
	kvt_output_free(&output);
}

static int refusal(uint32_t round, const struct kvw_envelope *asked, uint8_t *out, size_t capacity)
{
	struct kvw_msg_ERROR error = {.error = KVP_EDENIED, .text = kvw_text_of("only \x07root may")};

	(void)round;
	return kvw_encode(KVW_MSG_ERROR, asked->sequence, &error, out, capacity);
}

static int unasked_refusal(uint32_t round, const struct kvw_envelope *asked, uint8_t *out, size_t capacity)
{
	struct kvw_msg_ERROR error = {.error = KVP_EREVOKED, .text = kvw_text_of("kicked")};

	(void)round;
	(void)asked;
	return kvw_encode(KVW_MSG_ERROR, 0, &error, out, capacity);
}

static int other_sequence(uint32_t round, const struct kvw_envelope *asked, uint8_t *out, size_t capacity)
{
	struct kvw_msg_FLUSH_OK ok = {.freed = 1};

	(void)round;
	return kvw_encode(KVW_MSG_FLUSH_OK, asked->sequence + 1, &ok, out, capacity);
}

static int other_type(uint32_t round, const struct kvw_envelope *asked, uint8_t *out, size_t capacity)
{
	struct kvw_msg_STATUS_OK ok = {.pid = 1};

	(void)round;
	return kvw_encode(KVW_MSG_STATUS_OK, asked->sequence, &ok, out, capacity);
}

static int garbage(uint32_t round, const struct kvw_envelope *asked, uint8_t *out, size_t capacity)
{
	(void)round;
	(void)asked;
	memset(out, 0xc1, 100);
	return capacity > 100 ? 100 : 0;
}

static int hang_up(uint32_t round, const struct kvw_envelope *asked, uint8_t *out, size_t capacity)
{
	(void)round;
	(void)asked;
	(void)out;
	(void)capacity;
	return 0;
}

static int silence(uint32_t round, const struct kvw_envelope *asked, uint8_t *out, size_t capacity)
{
	(void)hang_up(round, asked, out, capacity);
	return -1;
}

static int no_such_pool(uint32_t round, const struct kvw_envelope *asked, uint8_t *out, size_t capacity)
{
	struct kvw_msg_ERROR error = {.error = KVP_ENOPOOL, .text = kvw_text_of("there are two")};

	(void)round;
	return kvw_encode(KVW_MSG_ERROR, asked->sequence, &error, out, capacity);
}

static void with_several_pools_it_is_told_how_to_name_one(void **state)
{
	struct kvt_output output = ask(no_such_pool, "blocks", NULL, NULL);

	(void)state;
	assert_int_equal(output.code, 3);
	assert_non_null(strstr(output.err, "--pool"));
	kvt_output_free(&output);
	output = ask(no_such_pool, "probe", "00", NULL);
	assert_int_equal(output.code, 3);
	assert_non_null(strstr(output.err, "--pool"));
	kvt_output_free(&output);
	output = ask(no_such_pool, "blocks", "--pool", "absent");
	assert_int_equal(output.code, 3);
	assert_null(strstr(output.err, "--pool"));
	kvt_output_free(&output);
}

static void a_socket_that_may_not_be_used_is_told_from_none(void **state)
{
	static char setpriv[] = "/usr/bin/setpriv";
	struct kvt_output output;
	int code;

	(void)state;
	if (geteuid() != 0 || access(setpriv, X_OK))
		skip();
	/* Another user must be able to run the program at all. */
	output = kvt_run_words(setpriv, "--reuid=4711", "--clear-groups", ctl, "--version", NULL);
	code = output.code;
	kvt_output_free(&output);
	if (code)
		skip();
	assert_int_equal(chmod(path, 0600), 0);
	assert_int_equal(chmod(folder, 0755), 0);
	output = kvt_run_words(setpriv, "--reuid=4711", "--clear-groups", ctl, "--socket", path, "status",
			       NULL);
	assert_int_equal(output.code, 3);
	assert_non_null(strstr(output.err, "may not connect"));
	assert_non_null(strstr(output.err, "socket_mode"));
	kvt_output_free(&output);
}

static void what_is_no_answer_is_code_three_with_the_reason(void **state)
{
	static const struct {
		answer_fn answer;
		const char *word;
	} cases[] = {
		{refusal, "only ?root may"},
		{unasked_refusal, "kicked"},
		{other_sequence, "another request"},
		{other_type, "another request"},
		{garbage, "cannot be read"},
		{hang_up, "closed the connection before it answered (FLUSH): it has died or ended; start it"},
		{silence, "within 300 ms"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct kvt_output output = ask(cases[i].answer, "flush", NULL, NULL);

		if (output.code != 3 || !strstr(output.err, cases[i].word) || *output.out)
			fail_msg("code %d: %s", output.code, output.err);
		kvt_output_free(&output);
	}
}

/* A daemon a third of whose pool is populated; it is ready once that was asked for. */
static int ready_fd;

static int a_third(uint32_t round, const struct kvw_envelope *asked, uint8_t *out, size_t capacity)
{
	struct kvw_item_POOL_ITEM pool = {.name = kvw_text_of("main"),
					  .memory = kvw_text_of("4k"),
					  .block_tokens = 64,
					  .bytes = 3000000000,
					  .populated_bytes = 1000000000};
	struct kvw_msg_STATUS_OK status = {.pid = 1};
	struct kvw_msg_POOLS_OK pools = {.pools = kvw_list_of(&pool, 1)};
	struct kvw_msg_POOL_OK geometry = {.bytes = 3000000000, .block_tokens = 64};

	(void)round;
	if (asked->type == KVW_MSG_STATUS)
		return kvw_encode(KVW_MSG_STATUS_OK, asked->sequence, &status, out, capacity);
	if (asked->type == KVW_MSG_POOLS)
		return kvw_encode(KVW_MSG_POOLS_OK, asked->sequence, &pools, out, capacity);
	assert_int_equal(write(ready_fd, "r", 1), 1);
	return kvw_encode(KVW_MSG_POOL_OK, asked->sequence, &geometry, out, capacity);
}

static void wait_with_error_at(int err, int fd)
{
	int kept = dup(STDERR_FILENO);

	dup2(err, STDERR_FILENO);
	assert_int_equal(rep_daemon_wait(fd, path, 30000), 0);
	dup2(kept, STDERR_FILENO);
	close(kept);
}

static void a_terminal_sees_how_far_the_pool_is_populated(void **state)
{
	int terminal = posix_openpt(O_RDWR | O_NOCTTY);
	char text[1024];
	int fds[2];
	int side;
	pid_t pid;

	(void)state;
	if (terminal < 0 || grantpt(terminal) || unlockpt(terminal))
		skip();
	side = open(ptsname(terminal), O_RDWR | O_NOCTTY);
	assert_true(side >= 0);
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	ready_fd = fds[1];
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		serve(a_third);
	wait_with_error_at(side, fds[0]);
	memset(text, 0, sizeof(text));
	assert_true(read(terminal, text, sizeof(text) - 1) > 0);
	assert_non_null(strstr(text, "populating the pool: 1.0 GB of 3.0 GB"));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(side);
	close(terminal);
	close(fds[0]);
	close(fds[1]);
}

static void a_result_that_cannot_be_written_is_no_success(void **state)
{
	char command[512];
	int status;
	pid_t pid = fork();

	(void)state;
	assert_true(pid >= 0);
	if (pid == 0)
		serve(a_dead_client);
	snprintf(command, sizeof(command), "'%s' --socket '%s' clients >/dev/full 2>/dev/null", ctl, path);
	status = system(command);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 1);
}

static void listen_at(const char *name)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	snprintf(address.sun_path, sizeof(address.sun_path), "%.100s", name);
	listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(listener, 8), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(faults_end_with_code_one_and_are_told),
		cmocka_unit_test(clients_tells_what_a_dead_one_waits_for_and_since_when),
		cmocka_unit_test(pages_without_end_end),
		cmocka_unit_test(with_several_pools_it_is_told_how_to_name_one),
		cmocka_unit_test(a_socket_that_may_not_be_used_is_told_from_none),
		cmocka_unit_test(what_is_no_answer_is_code_three_with_the_reason),
		cmocka_unit_test(a_terminal_sees_how_far_the_pool_is_populated),
		cmocka_unit_test(a_result_that_cannot_be_written_is_no_success),
	};
	int failed;

	if (argc < 2)
		return 2;
	kvt_watchdog(60);
	ctl = argv[1];
	folder = kvt_mkdtemp();
	snprintf(path, sizeof(path), "%s/socket", folder);
	listen_at(path);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	close(listener);
	kvt_rmdir(folder);
	return failed;
}
