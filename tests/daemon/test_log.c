/* SPDX-License-Identifier: Apache-2.0 */
/* The log: one escaped, bounded line an event. A process decides once whether a journal reads it: two runs. */
#include "daemon/log.h"

#include "captured.h"
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char text[65536];

static void lines_name_their_level_and_stay_below_the_limit_set(void **state)
{
	(void)state;
	captured_start();
	kvd_log_set_level(KVD_LOG_WARNING);
	kvd_log_error("socket '%s' is taken", "/run/x");
	kvd_log_warning("second");
	kvd_log_info("third");
	kvd_log_set_level(KVD_LOG_DEBUG);
	kvd_log_debug("fourth");
	kvd_log_set_level(KVD_LOG_INFO);
	kvd_log_debug("fifth");
	captured_end(text, sizeof(text));
	assert_string_equal(text, "kvpoold: error: socket '/run/x' is taken\n"
				  "kvpoold: warning: second\n"
				  "kvpoold: debug: fourth\n");
}

static void a_peers_text_can_forge_no_line(void **state)
{
	(void)state;
	captured_start();
	kvd_log_error("name '%s'", "a\nkvpoold: error: b\x1b[0m\\\x7f\xff");
	captured_end(text, sizeof(text));
	assert_string_equal(text, "kvpoold: error: name 'a\\x0akvpoold: error: b\\x1b[0m\\x5c\\x7f\\xff'\n");
}

static void a_line_is_at_most_1024_bytes(void **state)
{
	char longer[4000];

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		memset(longer, i ? '\n' : 'x', sizeof(longer) - 1);
		longer[sizeof(longer) - 1] = '\0';
		captured_start();
		kvd_log_error("%s", longer);
		captured_end(text, sizeof(text));
		assert_in_range(strlen(text), 1020, 1024);
		assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
	}
}

static void escapes_are_never_cut(void **state)
{
	char out[16];

	(void)state;
	kvd_log_escape("ab\ncd", out, 6);
	assert_string_equal(out, "ab");
	kvd_log_escape("ab\ncd", out, 7);
	assert_string_equal(out, "ab\\x0a");
	kvd_log_escape("ab\ncd", out, 8);
	assert_string_equal(out, "ab\\x0ac");
	kvd_log_escape("abc", out, 1);
	assert_string_equal(out, "");
	out[0] = 'q';
	kvd_log_escape("abc", out, 0);
	assert_int_equal(out[0], 'q');
}

static uint32_t count_lines(const char *at, const char *with)
{
	uint32_t count = 0;

	for (at = strstr(at, with); at; at = strstr(at + 1, with))
		count++;
	return count;
}

static time_t this_second(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return now.tv_sec;
}

/* Lines without a pause until the second has changed twice: one whole second is among them. */
static void storm_of_a_peer_is_cut_and_counted(void **state)
{
	time_t end = this_second() + 2;
	unsigned long long left = 0;
	unsigned long long part;
	uint64_t asked = 0;
	const char *at;

	(void)state;
	captured_start();
	for (; this_second() < end; asked++)
		kvd_log_peer(KVD_LOG_WARNING, "peer");
	kvd_log_error("own");
	kvd_log_peer_flush();
	captured_end(text, sizeof(text));
	assert_int_equal(count_lines(text, ": own\n"), 1);
	assert_in_range(count_lines(text, ": peer\n"), KVD_LOG_PEER_LINES, 3 * KVD_LOG_PEER_LINES);
	for (at = strstr(text, "warning: "); at; at = strstr(at + 1, "warning: ")) {
		if (sscanf(at, "warning: %llu lines about clients left out", &part) == 1)
			left += part;
	}
	assert_true(left > 0);
	assert_int_equal(count_lines(text, ": peer\n") + left, asked);
}

static void a_journal_gets_priorities(void **state)
{
	(void)state;
	captured_start();
	kvd_log_error("one");
	kvd_log_warning("two\nlines");
	kvd_log_info("three");
	captured_end(text, sizeof(text));
	assert_string_equal(text, "<3>one\n<4>two\\x0alines\n<6>three\n");
}

/* Points $JOURNAL_STREAM at what standard error is, and keeps that for captured_start(): the look is taken at the first line. */
static void become_journal(void)
{
	struct stat status;
	char stream[64];

	fstat(STDERR_FILENO, &status);
	snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)status.st_dev,
		 (unsigned long long)status.st_ino);
	setenv("JOURNAL_STREAM", stream, 1);
	kvd_log_error("decides");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest plain[] = {
		cmocka_unit_test(lines_name_their_level_and_stay_below_the_limit_set),
		cmocka_unit_test(a_peers_text_can_forge_no_line),
		cmocka_unit_test(a_line_is_at_most_1024_bytes),
		cmocka_unit_test(escapes_are_never_cut),
		cmocka_unit_test(storm_of_a_peer_is_cut_and_counted),
	};
	const struct CMUnitTest journal[] = {cmocka_unit_test(a_journal_gets_priorities)};

	kvt_watchdog(30);
	if (argc == 2 && !strcmp(argv[1], "journal")) {
		become_journal();
		return cmocka_run_group_tests(journal, NULL, NULL);
	}
	/* Of another stream: not ours. */
	setenv("JOURNAL_STREAM", "1:1", 1);
	return cmocka_run_group_tests(plain, NULL, NULL);
}
