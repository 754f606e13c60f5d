/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpoolctl replay when something is in its way: a full pool, other users of it, signals, a daemon that does
 * not start. It must end, say why, and leave nothing behind. argv[1] is kvpoolctl, argv[2] kvpoold.
 */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kvpool/kvpool.h>

#include "program.h"
#include "support.h"

static char *ctl;
static const char *daemon_program;
static char *folder;
static char trace_path[256];

/* One request of eight blocks of 64 tokens, the ninth only begun: nine. */
static const char nine_blocks[] =
	"{\"timestamp\": 0, \"input_length\": 512, \"output_length\": 8, \"hash_ids\": [1]}\n";

static uint32_t entries_of(const char *path)
{
	DIR *dir = opendir(path);
	uint32_t count = 0;

	assert_non_null(dir);
	for (const struct dirent *entry; (entry = readdir(dir));)
		count += strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..");
	closedir(dir);
	return count;
}

static void assert_ends(struct kvt_output *output, int code, const char *word)
{
	if (output->code != code || !strstr(output->err, word))
		fail_msg("code %d:\n%s", output->code, output->err);
	kvt_output_free(output);
}

static struct kvt_output replay(const char *blocks, const char *engines)
{
	return kvt_run_words(ctl, "replay", "--standalone", "--json", "--blocks", blocks, "--engines",
			     engines, trace_path, NULL);
}

/* An engine's lease takes blocks that nobody gives back while it lives. */
static void the_longest_request_fits_beside_the_leases_or_is_refused(void **state)
{
	struct kvt_output output = replay("9", "1");

	(void)state;
	assert_ends(&output, 2, "needs 9 blocks, and each engine (1) one more");
	output = replay("10", "1");
	assert_ends(&output, 0, "");
	output = replay("11", "3");
	assert_ends(&output, 2, "each engine (3)");
	output = replay("12", "3");
	assert_ends(&output, 0, "");
}

/* 20 blocks, of which this process leases 15: what nobody sees beforehand. */
static void without_progress_it_ends_and_says_so(void **state)
{
	static const char *const sets[] = {"pool.main.blocks=20", NULL};
	struct kvp_attach_params attach = {.size = sizeof(attach),
					   .max_seqs = 1,
					   .flags = KVP_ATTACH_LEASE_MARKS,
					   .lease_low = 15,
					   .lease_high = 15};
	struct kvp_connect_params connect = {.size = sizeof(connect)};
	pid_t daemon = kvt_start_daemon(daemon_program, folder, sets);
	struct kvp_client *client;
	struct kvt_output output;
	char socket[256];

	(void)state;
	snprintf(socket, sizeof(socket), "%s/socket", folder);
	connect.path = socket;
	assert_int_equal(kvp_connect(&connect, &client), 0);
	assert_int_equal(kvp_attach(client, &attach), 0);
	assert_int_equal(kvp_lease_wait(client, 15, 5000), 0);
	output = kvt_run_words(ctl, "--socket", socket, "replay", "--timeout-ms", "200", "--engines", "1",
			       trace_path, NULL);
	assert_ends(&output, 1, "1 s without progress");
	kvp_close(client);
	assert_int_equal(kvt_stop_daemon(daemon), 0);
}

static void two_replays_of_one_pool_do_not_find_fault_with_each_other(void **state)
{
	static const char *const sets[] = {"pool.main.blocks=3000", NULL};
	pid_t daemon = kvt_start_daemon(daemon_program, folder, sets);
	char socket[256];
	char *argv[] = {ctl,      "--socket",          socket, "replay",
			"--json", "--engines",         "2",    "--generate",
			"100",    "--attention-every", "0",    NULL};
	struct kvt_running first;
	struct kvt_output outputs[2];

	(void)state;
	snprintf(socket, sizeof(socket), "%s/socket", folder);
	first = kvt_start_until(argv, "work ");
	outputs[0] = kvt_run(argv);
	outputs[1] = kvt_finish(&first);
	for (int i = 0; i < 2; i++) {
		json_t *root = kvt_output_json(&outputs[i]);

		assert_true(kvt_json_number(root, "requests") == 100);
		json_decref(root);
		assert_ends(&outputs[i], 0, "");
	}
	assert_int_equal(kvt_stop_daemon(daemon), 0);
}

static void kernels_that_cannot_be_had_are_refused_before_anything_runs(void **state)
{
	struct kvt_output output;

	(void)state;
	setenv("KVPOOL_KERNELS", "foo", 1);
	output = kvt_run_words(ctl, "replay", "--standalone", "--blocks", "20", trace_path, NULL);
	assert_null(strstr(output.err, "engine 0"));
	assert_non_null(strstr(output.err, "set it to one of "));
	assert_non_null(strstr(output.err, "scalar, or unset it"));
	assert_ends(&output, 2, "$KVPOOL_KERNELS is 'foo', which is no level of kernels");
	output = kvt_run_words(ctl, "replay", "--standalone", "--blocks", "20", "--attention-every", "0",
			       trace_path, NULL);
	assert_ends(&output, 0, "");
	unsetenv("KVPOOL_KERNELS");
}

static void opaque_planes_are_refused_before_anything_runs(void **state)
{
	struct kvt_output output = kvt_run_words(ctl, "replay", "--standalone", "--planes", "opaque 16",
						 "--blocks", "20", trace_path, NULL);

	(void)state;
	assert_null(strstr(output.err, "engine 0"));
	assert_ends(&output, 2, "opaque planes only");
}

/* Long enough for any signal to come while it runs. */
static struct kvt_running start_long_replay(const char *word)
{
	char *argv[] = {ctl,     "replay",   "--standalone", "--json", "--generate",
			"20000", "--blocks", "2000",         NULL};

	return kvt_start_until(argv, word);
}

static void a_signal_ends_it_in_order_and_nothing_stays_behind(void **state)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP};

	(void)state;
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
		struct kvt_running running = start_long_replay("work ");
		struct kvt_output output;
		json_t *problems;
		json_t *root;

		assert_int_equal(kill(running.pid, signals[i]), 0);
		output = kvt_finish(&running);
		root = kvt_output_json(&output);
		problems = json_object_get(root, "problems");
		/* Counts that an interrupt tore apart are no fault of their own. */
		assert_int_equal(json_array_size(problems), 1);
		assert_string_equal(json_string_value(json_array_get(problems, 0)), "interrupted");
		json_decref(root);
		assert_ends(&output, 1, "interrupted");
		assert_int_equal(entries_of(getenv("TMPDIR")), 0);
	}
}

/* A terminal sends it to the engines too. */
static void an_interrupt_of_all_its_processes_is_one_interrupt(void **state)
{
	struct kvt_running running = start_long_replay("work ");
	struct kvt_output output;

	(void)state;
	assert_int_equal(kill(-running.pid, SIGINT), 0);
	output = kvt_finish(&running);
	assert_null(strstr(output.err, "ended by signal"));
	assert_ends(&output, 1, "interrupted");
	assert_int_equal(entries_of(getenv("TMPDIR")), 0);
}

/* One that is killed can't clean up; the next one does, and leaves alone what is still used. */
static void what_a_killed_one_left_goes_with_the_next(void **state)
{
	struct kvt_running killed = start_long_replay("work ");
	struct kvt_running living = start_long_replay("work ");
	struct kvt_output output;

	(void)state;
	assert_int_equal(entries_of(getenv("TMPDIR")), 2);
	assert_int_equal(kill(killed.pid, SIGKILL), 0);
	output = kvt_finish(&killed);
	assert_int_equal(output.code, 256 + SIGKILL);
	kvt_output_free(&output);
	assert_int_equal(entries_of(getenv("TMPDIR")), 2);
	output = kvt_run_words(ctl, "replay", "--standalone", "--generate", "20", "--blocks", "2000", NULL);
	assert_int_equal(output.code, 0);
	kvt_output_free(&output);
	assert_int_equal(entries_of(getenv("TMPDIR")), 1);
	assert_int_equal(kill(living.pid, SIGINT), 0);
	output = kvt_finish(&living);
	assert_ends(&output, 1, "interrupted");
	assert_int_equal(entries_of(getenv("TMPDIR")), 0);
}

static void a_daemon_that_does_not_start_is_told_with_how_it_ended(void **state)
{
	struct kvt_output output;

	(void)state;
	setenv("KVPOOLD", "/bin/false", 1);
	output = replay("20", "1");
	assert_null(strstr(output.err, "said:"));
	assert_ends(&output, 3, "'/bin/false' ended with code 1");
	setenv("KVPOOLD", "/nowhere/kvpoold", 1);
	output = replay("20", "1");
	assert_ends(&output, 3, "$KVPOOLD is '/nowhere/kvpoold'");
	setenv("KVPOOLD", daemon_program, 1);
	assert_int_equal(entries_of(getenv("TMPDIR")), 0);
}

static int write_trace(void)
{
	FILE *file = fopen(trace_path, "we");

	return !file || fputs(nine_blocks, file) < 0 || fclose(file);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_longest_request_fits_beside_the_leases_or_is_refused),
		cmocka_unit_test(without_progress_it_ends_and_says_so),
		cmocka_unit_test(two_replays_of_one_pool_do_not_find_fault_with_each_other),
		cmocka_unit_test(kernels_that_cannot_be_had_are_refused_before_anything_runs),
		cmocka_unit_test(opaque_planes_are_refused_before_anything_runs),
		cmocka_unit_test(a_signal_ends_it_in_order_and_nothing_stays_behind),
		cmocka_unit_test(an_interrupt_of_all_its_processes_is_one_interrupt),
		cmocka_unit_test(what_a_killed_one_left_goes_with_the_next),
		cmocka_unit_test(a_daemon_that_does_not_start_is_told_with_how_it_ended),
	};
	char *temporary;
	int failed;

	if (argc < 3)
		return 2;
	kvt_watchdog(280);
	ctl = argv[1];
	daemon_program = argv[2];
	setenv("KVPOOLD", daemon_program, 1);
	folder = kvt_mkdtemp();
	temporary = kvt_mkdtemp();
	setenv("TMPDIR", temporary, 1);
	unsetenv("XDG_RUNTIME_DIR");
	snprintf(trace_path, sizeof(trace_path), "%s/trace", folder);
	failed = write_trace() ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
	kvt_rmdir(temporary);
	kvt_rmdir(folder);
	return failed;
}
