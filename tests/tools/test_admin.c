/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The administration verbs against a daemon with an engine in it: this process. argv[1] is kvpoolctl,
 * argv[2] kvpoold.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvpool/kvpool.h>

#include "ipc/hash.h"
#include "program.h"
#include "support.h"
#include "tools/text.h"

#define BLOCK_TOKENS 16u
#define PROMPT (4 * BLOCK_TOKENS + 3)

static const char *ctl;
static const char *daemon_program;
static char *folder;
static char socket_path[200];
static pid_t daemon_pid;
static struct kvp_client *client;
static uint32_t tokens[PROMPT];

static struct kvt_output verb(const char *a, const char *b, const char *c, const char *d)
{
	return kvt_run_words(ctl, "--socket", socket_path, a, b, c, d, NULL);
}

static json_t *verb_json(const char *a, const char *b, const char *c)
{
	struct kvt_output output = verb("--json", a, b, c);
	json_t *root;

	if (output.code)
		fail_msg("code %d: %s", output.code, output.err);
	root = kvt_output_json(&output);
	kvt_output_free(&output);
	return root;
}

static int start_all(void **state)
{
	static const char *const sets[] = {"pool.main.blocks=100", "pool.main.block_tokens=16",
					   "pool.main.planes=latent bf16", NULL};
	struct kvp_connect_params connect = {
		.size = sizeof(connect), .path = socket_path, .name = "te\x1bst"};
	struct kvp_attach_params attach = {.size = sizeof(attach), .max_seqs = 4, .max_seq_tokens = 1024};

	(void)state;
	folder = kvt_mkdtemp();
	snprintf(socket_path, sizeof(socket_path), "%s/socket", folder);
	daemon_pid = kvt_start_daemon(daemon_program, folder, sets);
	for (uint32_t i = 0; i < PROMPT; i++)
		tokens[i] = i + 1;
	return kvp_connect(&connect, &client) || kvp_attach(client, &attach);
}

static int stop_all(void **state)
{
	(void)state;
	kvp_close(client);
	if (kvt_stop_daemon(daemon_pid))
		return -1;
	kvt_rmdir(folder);
	return 0;
}

/* A sequence with its prompt written and published. */
static struct kvp_seq *open_published(void)
{
	struct kvp_open_request request = {.size = sizeof(request), .tokens = tokens, .token_count = PROMPT};
	struct kvp_seq_info info = {.size = sizeof(info)};
	struct kvp_seq *seq = NULL;
	uint64_t step;
	int result;

	assert_int_equal(kvp_open(client, &request, 1, 5000, &result, &seq), 0);
	assert_int_equal(result, 0);
	assert_int_equal(kvp_seq_info(seq, &info), 0);
	step = kvp_step_next(client, 0);
	assert_int_equal(kvp_seq_stage(seq, PROMPT - info.cached_tokens, 0, step), 0);
	kvp_step_done(client, 0, step);
	assert_int_equal(kvp_seq_settle(seq, PROMPT - info.cached_tokens, NULL, 1, 0, step), 0);
	assert_int_equal(kvp_sync(client, 5000), 0);
	return seq;
}

static void status_and_pools_show_the_daemon(void **state)
{
	json_t *status = verb_json("status", NULL, NULL);
	json_t *root = verb_json("pools", NULL, NULL);
	const json_t *pool = json_array_get(json_object_get(root, "pools"), 0);
	struct kvt_output output = verb("pools", NULL, NULL, NULL);

	(void)state;
	assert_true(kvt_json_number(status, "pools") == 1);
	assert_true(kvt_json_number(status, "pid") == daemon_pid);
	assert_string_equal(json_string_value(json_object_get(status, "socket")), socket_path);
	assert_string_equal(json_string_value(json_object_get(pool, "name")), "main");
	assert_true(kvt_json_number(pool, "blocks") == 100);
	assert_true(kvt_json_number(pool, "block_tokens") == BLOCK_TOKENS);
	assert_true(kvt_json_number(json_object_get(pool, "counters"), "lookup_blocks") >= 0);
	assert_non_null(strstr(output.out, "EVICTABLE"));
	json_decref(status);
	json_decref(root);
	kvt_output_free(&output);
}

static void clients_shows_the_engine_and_makes_its_name_harmless(void **state)
{
	struct kvp_seq *seq = open_published();
	json_t *root = verb_json("clients", NULL, NULL);
	struct kvt_output output = verb("clients", NULL, NULL, NULL);
	const json_t *found = NULL;
	size_t index;
	json_t *entry;

	(void)state;
	json_array_foreach(json_object_get(root, "clients"), index,
			   entry) if (kvt_json_number(entry, "session") == (double)kvp_session_id(client))
		found = entry;
	assert_non_null(found);
	assert_string_equal(json_string_value(json_object_get(found, "pool")), "main");
	assert_true(kvt_json_number(found, "references") == 4);
	assert_true(kvt_json_number(found, "holds") == 1);
	assert_true(json_is_null(json_object_get(found, "since_ms")));
	assert_non_null(strstr(output.out, "te?st"));
	assert_null(strchr(output.out, '\x1b'));
	json_decref(root);
	kvt_output_free(&output);
	assert_int_equal(kvp_seq_close(seq), 0);
}

static void blocks_says_why_one_is_not_evictable(void **state)
{
	struct kvp_seq *seq = open_published();
	json_t *root = verb_json("blocks", "--state", "cached");
	const json_t *blocks = json_object_get(root, "blocks");

	(void)state;
	assert_int_equal(json_array_size(blocks), 4);
	for (size_t i = 0; i < 4; i++) {
		const json_t *block = json_array_get(blocks, i);

		assert_true(kvt_json_number(block, "references") == 1);
		assert_true(*json_string_value(json_object_get(block, "not_evictable_because")));
		assert_int_equal(strlen(json_string_value(json_object_get(block, "hash"))), 64);
	}
	json_decref(root);
	assert_int_equal(kvp_seq_close(seq), 0);
	assert_int_equal(kvp_sync(client, 5000), 0);
	root = verb_json("blocks", "--limit", "3");
	assert_int_equal(json_array_size(json_object_get(root, "blocks")), 3);
	assert_true(kvt_json_number(root, "next") > 0);
	json_decref(root);
}

/* Every block once, whatever the size of the pages in which the daemon answers. */
static void blocks_lists_every_block_once(void **state)
{
	json_t *root = verb_json("blocks", "--limit", "100000");
	const json_t *blocks = json_object_get(root, "blocks");
	double before = -1;
	size_t index;
	json_t *block;

	(void)state;
	assert_true(json_array_size(blocks) > 100);
	json_array_foreach(blocks, index, block)
	{
		assert_true(kvt_json_number(block, "id") > before);
		before = kvt_json_number(block, "id");
	}
	json_decref(root);
}

static void probe_finds_a_hash_and_a_prompt(void **state)
{
	struct kvp_seq *seq = open_published();
	uint8_t hash[KVW_SHA256_BYTES];
	char hex[2 * KVW_SHA256_BYTES + 1];
	char path[256];
	struct kvw_hasher *hasher;
	FILE *file;
	json_t *root;

	(void)state;
	assert_int_equal(kvw_hasher_create(&hasher), 0);
	assert_int_equal(kvw_hash_block(hasher, NULL, tokens, BLOCK_TOKENS, NULL, 0, hash), 0);
	kvw_hasher_destroy(hasher);
	root = verb_json("probe", ctl_hex(hash, sizeof(hash), hex, sizeof(hex)), NULL);
	assert_true(kvt_json_number(root, "found") == 1);
	json_decref(root);
	hex[0] = hex[0] == '0' ? '1' : '0';
	root = verb_json("probe", hex, NULL);
	assert_true(kvt_json_number(root, "found") == 0);
	json_decref(root);
	snprintf(path, sizeof(path), "%s/tokens", folder);
	file = fopen(path, "we");
	for (uint32_t i = 0; i < PROMPT; i++)
		fprintf(file, "%u%s", tokens[i], i % 7 ? ", " : "\n");
	for (uint32_t i = 0; i < 2 * BLOCK_TOKENS; i++)
		fprintf(file, " 9");
	fclose(file);
	root = verb_json("probe", "--tokens", path);
	assert_true(kvt_json_number(root, "found") == 4);
	assert_true(kvt_json_number(root, "asked") == 6);
	json_decref(root);
	assert_int_equal(kvp_seq_close(seq), 0);
}

static void probe_refuses_what_is_no_hash_or_no_token(void **state)
{
	struct kvt_output output = verb("probe", "xyz", NULL, NULL);
	char path[256];
	FILE *file;

	(void)state;
	assert_int_equal(output.code, 2);
	kvt_output_free(&output);
	snprintf(path, sizeof(path), "%s/large", folder);
	file = fopen(path, "we");
	fprintf(file, "1 2 4294967296 3");
	fclose(file);
	output = verb("probe", "--tokens", path, NULL);
	assert_int_equal(output.code, 2);
	assert_non_null(strstr(output.err, "token 3"));
	kvt_output_free(&output);
	output = verb("probe", "--tokens", folder, NULL);
	assert_int_equal(output.code, 2);
	assert_non_null(strstr(output.err, "directory"));
	kvt_output_free(&output);
}

static void check_finds_no_fault_and_names_an_unknown_pool(void **state)
{
	struct kvt_output output = verb("check", "main", NULL, NULL);
	json_t *root = verb_json("check", NULL, NULL);

	(void)state;
	assert_int_equal(output.code, 0);
	assert_non_null(strstr(output.out, "no faults"));
	kvt_output_free(&output);
	assert_true(kvt_json_number(root, "faults") == 0);
	assert_true(kvt_json_number(root, "blocks") >= 100);
	json_decref(root);
	output = verb("check", "absent", NULL, NULL);
	assert_int_equal(output.code, 3);
	assert_non_null(strstr(output.err, "absent"));
	kvt_output_free(&output);
}

static void flush_frees_the_unreferenced_and_tells_the_rest(void **state)
{
	struct kvp_seq *seq = open_published();
	json_t *root = verb_json("flush", NULL, NULL);

	(void)state;
	assert_true(kvt_json_number(root, "still_referenced") == 4);
	json_decref(root);
	assert_int_equal(kvp_seq_close(seq), 0);
	assert_int_equal(kvp_sync(client, 5000), 0);
	root = verb_json("flush", "main", NULL);
	assert_true(kvt_json_number(root, "freed") == 4);
	assert_true(kvt_json_number(root, "still_referenced") == 0);
	json_decref(root);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(status_and_pools_show_the_daemon),
		cmocka_unit_test(clients_shows_the_engine_and_makes_its_name_harmless),
		cmocka_unit_test(blocks_says_why_one_is_not_evictable),
		cmocka_unit_test(blocks_lists_every_block_once),
		cmocka_unit_test(probe_finds_a_hash_and_a_prompt),
		cmocka_unit_test(probe_refuses_what_is_no_hash_or_no_token),
		cmocka_unit_test(check_finds_no_fault_and_names_an_unknown_pool),
		cmocka_unit_test(flush_frees_the_unreferenced_and_tells_the_rest),
	};

	if (argc < 3)
		return 2;
	kvt_watchdog(110);
	ctl = argv[1];
	daemon_program = argv[2];
	return cmocka_run_group_tests(tests, start_all, stop_all);
}
