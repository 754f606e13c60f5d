/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpoolctl replay as a user runs it: argv[1] is kvpoolctl, argv[2] kvpoold. Small traces and pools; what
 * matters is that nothing is found, that what was put in is found, and that the counts are right.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kvpool/kernels.h>

#include "program.h"
#include "support.h"

static const char *ctl;
static const char *daemon_program;

/* Sanitizers make system calls of their own. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

/* Attention is rare in it: sanitizers make it slow. */
#define SMALL                                                                                                \
	"replay", "--standalone", "--json", "--generate", "60", "--engines", "2", "--batch", "4",            \
		"--blocks", "1500", "--attention-every", "200", "--compare-every", "4"

static json_t *good(struct kvt_output *output)
{
	if (output->code)
		fail_msg("code %d:\n%s", output->code, output->err);
	return kvt_output_json(output);
}

static void two_engines_share_blocks_and_nothing_is_wrong(void **state)
{
	struct kvt_output output = kvt_run_words(ctl, SMALL, NULL);
	json_t *root = good(&output);

	(void)state;
	assert_true(kvt_json_number(root, "requests") == 60);
	assert_string_equal(json_string_value(json_object_get(root, "kernels")), kvk_level_name());
	assert_true(kvt_json_number(root, "verification_failures") == 0);
	assert_true(kvt_json_number(root, "cross_engine_blocks") > 0);
	assert_true(kvt_json_number(root, "verified_blocks") == kvt_json_number(root, "hit_blocks"));
	assert_true(kvt_json_number(root, "daemon_hit_blocks") == kvt_json_number(root, "hit_blocks"));
	assert_true(kvt_json_number(root, "daemon_lookup_blocks") == kvt_json_number(root, "lookup_blocks"));
	assert_true(kvt_json_number(root, "hit_blocks") <= kvt_json_number(root, "ideal_hit_blocks"));
	assert_true(kvt_json_number(root, "compared_rows") > 0);
	assert_true(kvt_json_number(root, "steady_steps") >= 0.8 * kvt_json_number(root, "decode_steps"));
	assert_true(kvt_json_number(root, "records_per_step") > 0);
	assert_true(kvt_json_number(root, "leased_at_end") == 0);
	json_decref(root);
	kvt_output_free(&output);
}

static void assert_calls(const char *how, const char *control, double wanted)
{
	struct kvt_output output =
		kvt_run_words(ctl, SMALL, "--attention-every", "16", "--count-syscalls", how, control, NULL);
	json_t *root = good(&output);

	if (json_is_null(json_object_get(root, "syscalls_per_step")))
		print_message("%s is not to be had here\n", how);
	else
		assert_true(kvt_json_number(root, "syscalls_per_step") == wanted);
	json_decref(root);
	kvt_output_free(&output);
}

static void a_steady_step_makes_no_system_call(void **state)
{
	(void)state;
	if (SANITIZED)
		skip();
	assert_calls("dispatch", NULL, 0);
	assert_calls("ptrace", NULL, 0);
}

static void the_control_run_counts_its_one_call(void **state)
{
	(void)state;
	if (SANITIZED)
		skip();
	assert_calls("dispatch", "--control-syscall", 1);
	assert_calls("ptrace", "--control-syscall", 1);
}

static void a_flipped_byte_is_found_and_block_writer_and_reader_are_named(void **state)
{
	struct kvt_output output = kvt_run_words(ctl, SMALL, "--inject", "flip", NULL);
	json_t *root = kvt_output_json(&output);
	const json_t *found = NULL;
	size_t index;
	json_t *event;

	(void)state;
	assert_int_equal(output.code, 1);
	assert_true(kvt_json_number(root, "injected") == 1);
	assert_true(kvt_json_number(root, "verification_failures") >= 1);
	json_array_foreach(json_object_get(root, "events"), index, event) if (json_object_get(event, "block"))
		found = event;
	assert_non_null(found);
	assert_true(kvt_json_number(found, "block") > 0);
	assert_true(kvt_json_number(found, "writer_session") > 0);
	assert_true(kvt_json_number(found, "reader_session") > 0);
	assert_non_null(strstr(output.err, "written by session"));
	assert_non_null(strstr(output.err, "read by session"));
	json_decref(root);
	kvt_output_free(&output);
}

/* 110 blocks for two engines of four: they cannot all run at once. */
static void a_pool_that_is_too_small_for_all_preempts_and_still_ends(void **state)
{
	struct kvt_output output =
		kvt_run_words(ctl, "replay", "--standalone", "--json", "--generate", "60", "--engines", "2",
			      "--batch", "4", "--blocks", "110", "--attention-every", "0", NULL);
	json_t *root = good(&output);

	(void)state;
	assert_true(kvt_json_number(root, "requests") == 60);
	assert_true(kvt_json_number(root, "evictions") > 0);
	assert_true(kvt_json_number(root, "refused_opens") + kvt_json_number(root, "preemptions") > 0);
	assert_true(kvt_json_number(root, "verification_failures") == 0);
	/* A lease that is always short rings the doorbell, but no step that does is called steady. */
	if (!SANITIZED && !json_is_null(json_object_get(root, "syscalls_per_step")))
		assert_true(kvt_json_number(root, "syscalls_per_step") == 0);
	json_decref(root);
	kvt_output_free(&output);
}

static void every_kind_of_plane_is_verified(void **state)
{
	static const char *const planes[] = {"latent f16", "latent f32", "latent fp8_v32",
					     "k bf16 2x64, v f16 2x64 hnd, index_k e4m3 1x128"};

	(void)state;
	for (size_t i = 0; i < sizeof(planes) / sizeof(planes[0]); i++) {
		struct kvt_output output =
			kvt_run_words(ctl, SMALL, "--planes", planes[i], "--block-tokens", "48", NULL);
		json_t *root = good(&output);

		assert_true(kvt_json_number(root, "verified_blocks") > 0);
		assert_true(json_is_null(json_object_get(root, "compared_rows")) == (planes[i][0] == 'k'));
		json_decref(root);
		kvt_output_free(&output);
	}
}

static void a_running_daemon_is_used_and_left_running(void **state)
{
	static const char *const sets[] = {"pool.main.blocks=1500", "pool.other.blocks=10", NULL};
	char *folder = kvt_mkdtemp();
	pid_t pid = kvt_start_daemon(daemon_program, folder, sets);
	struct kvt_output output;
	char socket[200];
	json_t *root;

	(void)state;
	snprintf(socket, sizeof(socket), "%s/socket", folder);
	for (int round = 0; round < 2; round++) {
		output = kvt_run_words(ctl, "--socket", socket, "replay", "--json", "--pool", "main",
				       "--generate", "40", "--engines", "2", "--batch", "4", NULL);
		root = good(&output);
		assert_true(kvt_json_number(root, "requests") == 40);
		/* What the first round left is found by the second. */
		assert_true((kvt_json_number(root, "hit_blocks") >
			     kvt_json_number(root, "ideal_hit_blocks")) == round);
		json_decref(root);
		kvt_output_free(&output);
	}
	output = kvt_run_words(ctl, "--socket", socket, "replay", "--generate", "40", NULL);
	assert_int_equal(output.code, 3);
	assert_non_null(strstr(output.err, "--pool"));
	kvt_output_free(&output);
	output =
		kvt_run_words(ctl, "--socket", socket, "replay", "--pool", "other", "--generate", "40", NULL);
	assert_int_equal(output.code, 2);
	assert_non_null(strstr(output.err, "blocks, and each engine (3) one more"));
	kvt_output_free(&output);
	assert_int_equal(kvt_stop_daemon(pid), 0);
	kvt_rmdir(folder);
}

static void a_daemon_that_does_not_come_up_is_told_with_its_log(void **state)
{
	struct kvt_output output = kvt_run_words(ctl, "replay", "--standalone", "--generate", "10",
						 "--policy", "nonsense", NULL);

	(void)state;
	assert_int_equal(output.code, 3);
	assert_non_null(strstr(output.err, "nonsense"));
	kvt_output_free(&output);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(two_engines_share_blocks_and_nothing_is_wrong),
		cmocka_unit_test(a_steady_step_makes_no_system_call),
		cmocka_unit_test(the_control_run_counts_its_one_call),
		cmocka_unit_test(a_flipped_byte_is_found_and_block_writer_and_reader_are_named),
		cmocka_unit_test(a_pool_that_is_too_small_for_all_preempts_and_still_ends),
		cmocka_unit_test(every_kind_of_plane_is_verified),
		cmocka_unit_test(a_running_daemon_is_used_and_left_running),
		cmocka_unit_test(a_daemon_that_does_not_come_up_is_told_with_its_log),
	};

	if (argc < 3)
		return 2;
	kvt_watchdog(280);
	ctl = argv[1];
	daemon_program = argv[2];
	setenv("KVPOOLD", daemon_program, 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
