/* SPDX-License-Identifier: Apache-2.0 */
/* The file of who maps device memory: whose records are free, and what is said when none is. */
#include "daemon/importers.h"

#include "captured.h"
#include "support.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct kvd_importers importers;
static char *dir;
static char socket_path[96];

static int setup(void **state)
{
	(void)state;
	dir = kvt_mkdtemp();
	snprintf(socket_path, sizeof(socket_path), "%s/sock", dir);
	assert_int_equal(kvd_importers_open(socket_path, &importers), 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	kvd_importers_close(&importers);
	kvt_rmdir(dir);
	return 0;
}

static pid_t start_process(void)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid) {
		pause();
		_exit(0);
	}
	return pid;
}

static void end_process(pid_t pid)
{
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void fill(pid_t pid)
{
	for (int32_t i = 0; i < (int32_t)KVW_MAX_SESSIONS; i++)
		assert_int_equal(kvd_importers_add(&importers, pid, 4096, "p"), i);
}

/* As the next daemon finds it. */
static void open_again(void)
{
	kvd_importers_close(&importers);
	assert_int_equal(kvd_importers_open(socket_path, &importers), 0);
}

/* Guards go_unrecorded(): a full file was silent. */
static void a_full_file_is_said_once_and_counted(void **state)
{
	char text[4096];

	(void)state;
	fill(getpid());
	captured_start();
	assert_int_equal(kvd_importers_add(&importers, getpid(), 4096, "p"), KVD_IMPORTER_UNRECORDED);
	assert_int_equal(kvd_importers_add(&importers, getpid(), 4096, "p"), KVD_IMPORTER_UNRECORDED);
	captured_end(text, sizeof(text));
	assert_non_null(strstr(text, "pool 'p'"));
	assert_non_null(strstr(text, "all records are in use"));
	assert_null(strstr(strstr(text, "all records are in use") + 1, "all records are in use"));
	assert_int_equal(importers.unrecorded, 2);
	kvd_importers_remove(&importers, KVD_IMPORTER_UNRECORDED);
	kvd_importers_remove(&importers, KVD_IMPORTER_UNRECORDED);
	assert_int_equal(importers.unrecorded, 0);
	kvd_importers_remove(&importers, 77);
	assert_int_equal(kvd_importers_add(&importers, getpid(), 4096, "p"), 77);
}

/* Guards the second loop of find_place(), and the start beside the number in lives(). */
static void a_dead_ones_record_is_taken_over(void **state)
{
	pid_t pid = start_process();
	uint64_t bytes;
	char text[256];

	(void)state;
	fill(pid);
	open_again();
	assert_int_equal(kvd_importers_left(&importers, &bytes, text, sizeof(text)), KVW_MAX_SESSIONS);
	assert_int_equal(kvd_importers_add(&importers, getpid(), 4096, "q"), KVD_IMPORTER_UNRECORDED);
	/* Another process of the same number: the start tells. */
	importers.records[500].start_time++;
	importers.next_old = 500;
	assert_int_equal(kvd_importers_add(&importers, getpid(), 4096, "q"), 500);
	end_process(pid);
	assert_in_range(kvd_importers_add(&importers, getpid(), 4096, "q"), 0, KVW_MAX_SESSIONS - 1);
	assert_int_equal(kvd_importers_left(&importers, &bytes, text, sizeof(text)), 0);
}

/* Guards `ours` in find_place(): the engine that has ended would give its successor's record back. */
static void a_record_of_a_session_is_not_taken_over(void **state)
{
	pid_t pid = start_process();

	(void)state;
	fill(pid);
	end_process(pid);
	assert_int_equal(kvd_importers_add(&importers, getpid(), 4096, "p"), KVD_IMPORTER_UNRECORDED);
	kvd_importers_remove(&importers, 3);
	assert_int_equal(kvd_importers_add(&importers, getpid(), 4096, "p"), 3);
	assert_int_equal(importers.records[3].pid, getpid());
}

static void who_has_no_number_here_is_counted_and_the_dead_are_not(void **state)
{
	pid_t pid = start_process();
	char text[1024];

	(void)state;
	end_process(pid);
	assert_int_equal(kvd_importers_add(&importers, pid, 4096, "p"), KVD_IMPORTER_NONE);
	assert_int_equal(importers.unrecorded, 0);
	captured_start();
	assert_int_equal(kvd_importers_add(&importers, 0, 4096, "p"), KVD_IMPORTER_UNRECORDED);
	captured_end(text, sizeof(text));
	assert_non_null(strstr(text, "not known here"));
	kvd_importers_remove(&importers, KVD_IMPORTER_NONE);
	assert_int_equal(importers.unrecorded, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_full_file_is_said_once_and_counted, setup, teardown),
		cmocka_unit_test_setup_teardown(a_dead_ones_record_is_taken_over, setup, teardown),
		cmocka_unit_test_setup_teardown(a_record_of_a_session_is_not_taken_over, setup, teardown),
		cmocka_unit_test_setup_teardown(who_has_no_number_here_is_counted_and_the_dead_are_not, setup,
						teardown),
	};

	kvt_watchdog(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
