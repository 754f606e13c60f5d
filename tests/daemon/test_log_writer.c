/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread that writes the log: nobody waits for a standard error that takes nothing, what that loses is told, and last words
 * are never lost. Each case is a process of its own, since how a process ends is part of it. Also run under ThreadSanitizer.
 */
#include "daemon/assert.h"
#include "daemon/log.h"
#include "daemon/log_ring.h"
#include "daemon/log_writer.h"

#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define PIPE_BYTES 4096
#define TEXT_BYTES (1u << 20)

/* -------------------------------------------------------------- the ring alone */

#define WRITERS 3u
#define WRITER_LINES 20000u

static struct kvd_log_ring shared_ring;
static _Atomic unsigned writers_left;
static _Atomic uint64_t refused;

static void *write_many(void *arg)
{
	uint32_t line[2] = {*(const uint32_t *)arg, 0};

	for (line[1] = 0; line[1] < WRITER_LINES; line[1]++) {
		if (!kvd_log_ring_put(&shared_ring, (const char *)line, sizeof(line)))
			atomic_fetch_add(&refused, 1);
	}
	atomic_fetch_sub(&writers_left, 1);
	return NULL;
}

static void read_line(uint32_t next[WRITERS], uint64_t *lines, uint64_t *lost)
{
	const struct kvd_log_slot *slot = kvd_log_ring_first(&shared_ring);
	uint32_t line[2];

	if (!slot) {
		sched_yield();
		return;
	}
	assert_int_equal(slot->length, sizeof(line));
	memcpy(line, slot->text, sizeof(line));
	assert_true(line[0] < WRITERS);
	assert_true(line[1] >= next[line[0]]);
	next[line[0]] = line[1] + 1;
	*lost += slot->lost;
	++*lines;
	kvd_log_ring_next(&shared_ring);
}

static void ring_keeps_each_writers_order_and_counts_every_loss(void **state)
{
	static const uint32_t names[WRITERS] = {0, 1, 2};
	pthread_t threads[WRITERS];
	uint32_t next[WRITERS] = {0};
	uint64_t lines = 0;
	uint64_t lost = 0;

	(void)state;
	kvd_log_ring_init(&shared_ring);
	writers_left = WRITERS;
	for (unsigned i = 0; i < WRITERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, write_many, (void *)(uintptr_t)&names[i]),
				 0);
	while (writers_left || !kvd_log_ring_empty(&shared_ring))
		read_line(next, &lines, &lost);
	for (unsigned i = 0; i < WRITERS; i++)
		pthread_join(threads[i], NULL);
	lost += kvd_log_ring_take_lost(&shared_ring);
	assert_int_equal(lost, refused);
	assert_int_equal(lines + lost, WRITERS * WRITER_LINES);
}

static void full_ring_takes_no_line_and_the_next_one_knows(void **state)
{
	const struct kvd_log_slot *slot;
	unsigned i;

	(void)state;
	kvd_log_ring_init(&shared_ring);
	for (i = 0; i < KVD_LOG_RING_LINES; i++)
		assert_true(kvd_log_ring_put(&shared_ring, "a", 1));
	for (i = 0; i < 3; i++)
		assert_false(kvd_log_ring_put(&shared_ring, "b", 1));
	kvd_log_ring_next(&shared_ring);
	assert_true(kvd_log_ring_put(&shared_ring, "c", 1));
	assert_int_equal(kvd_log_ring_take_lost(&shared_ring), 0);
	for (i = 1; i < KVD_LOG_RING_LINES; i++) {
		slot = kvd_log_ring_first(&shared_ring);
		assert_int_equal(slot->text[0], 'a');
		assert_int_equal(slot->lost, 0);
		kvd_log_ring_next(&shared_ring);
	}
	slot = kvd_log_ring_first(&shared_ring);
	assert_int_equal(slot->text[0], 'c');
	assert_int_equal(slot->lost, 3);
	kvd_log_ring_next(&shared_ring);
	assert_null(kvd_log_ring_first(&shared_ring));
	assert_true(kvd_log_ring_empty(&shared_ring));
	assert_int_equal(shared_ring.lost_ever, 3);
}

/* -------------------------------------------------------------- a process that logs into a pipe */

/* The child of a case, its standard error, and what else it tells: a byte for each time it says something. */
struct child {
	pid_t pid;
	int log;
	int word;
	char *text;
};

static int child_word;

static void say(void)
{
	if (write(child_word, "x", 1) != 1)
		_exit(99);
}

static struct child start_child(void (*run)(void))
{
	struct child child = {.text = calloc(1, TEXT_BYTES)};
	static const struct rlimit no_core = {0};
	int log[2];
	int word[2];

	assert_non_null(child.text);
	assert_return_code(pipe2(log, O_CLOEXEC), errno);
	assert_return_code(pipe2(word, O_CLOEXEC), errno);
	assert_return_code(fcntl(log[1], F_SETPIPE_SZ, PIPE_BYTES), errno);
	child.pid = fork();
	assert_return_code(child.pid, errno);
	if (!child.pid) {
		close(log[0]);
		setrlimit(RLIMIT_CORE, &no_core);
		signal(SIGABRT, SIG_DFL);
		dup2(log[1], STDERR_FILENO);
		close(log[1]);
		child_word = word[1];
		if (kvd_log_writer_start())
			_exit(98);
		run();
		_exit(0);
	}
	close(log[1]);
	close(word[1]);
	child.log = log[0];
	child.word = word[0];
	return child;
}

static void hear(const struct child *child)
{
	char byte;

	assert_int_equal(read(child->word, &byte, 1), 1);
}

static void read_log(const struct child *child)
{
	size_t used = 0;
	ssize_t got;

	do {
		got = read(child->log, child->text + used, TEXT_BYTES - 1 - used);
		assert_true(got >= 0);
		used += (size_t)got;
	} while (got > 0);
}

static int end_child(struct child *child)
{
	int status = 0;

	assert_int_equal(waitpid(child->pid, &status, 0), child->pid);
	close(child->log);
	close(child->word);
	free(child->text);
	return status;
}

/* Lines "number N" with growing N, and of others only that lines were lost; how many there are of each. */
static void count_lines(char *text, uint64_t *out_lines, uint64_t *out_lost)
{
	unsigned long long lost;
	unsigned number;
	unsigned next = 0;
	char *rest = text;
	char *line;

	*out_lines = 0;
	*out_lost = 0;
	while ((line = strsep(&rest, "\n")) && *line) {
		if (sscanf(line, "kvpoold: warning: %llu lines of the log lost here", &lost) == 1) {
			*out_lost += lost;
			next += (unsigned)lost;
			continue;
		}
		assert_int_equal(sscanf(line, "kvpoold: info: number %u", &number), 1);
		assert_int_equal(number, next);
		next++;
		++*out_lines;
	}
}

/* -------------------------------------------------------------- order and loss */

#define FEW 200u
#define MANY 2000u

static void log_numbers(unsigned from, unsigned to)
{
	for (; from < to; from++)
		kvd_log_info("number %u", from);
}

static void log_few_and_stop(void)
{
	log_numbers(0, FEW);
	kvd_log_writer_stop();
	log_numbers(FEW, FEW + 1);
}

static void orderly_end_writes_every_line_in_order(void **state)
{
	struct child child = start_child(log_few_and_stop);
	uint64_t lines;
	uint64_t lost;

	(void)state;
	read_log(&child);
	count_lines(child.text, &lines, &lost);
	assert_int_equal(lines, FEW + 1);
	assert_int_equal(lost, 0);
	assert_int_equal(end_child(&child), 0);
}

/* Says first that none of it waited for the reader. */
static void log_many_and_stop(void)
{
	log_numbers(0, MANY);
	if (!kvd_log_writer_lost())
		_exit(97);
	say();
	kvd_log_writer_stop();
}

static void lines_that_nobody_reads_are_lost_in_place_and_counted(void **state)
{
	struct child child = start_child(log_many_and_stop);
	uint64_t lines;
	uint64_t lost;

	(void)state;
	hear(&child);
	read_log(&child);
	count_lines(child.text, &lines, &lost);
	assert_true(lost > 0);
	assert_true(lines >= KVD_LOG_RING_LINES);
	assert_int_equal(lines + lost, MANY);
	assert_int_equal(end_child(&child), 0);
}

static void log_many_and_leave(void)
{
	uint64_t begin_ns = kvt_now_ns();

	log_numbers(0, MANY);
	kvd_log_writer_stop();
	if (kvt_now_ns() - begin_ns < KVD_LOG_WAIT_MS * UINT64_C(1000000))
		_exit(96);
	log_numbers(0, MANY);
	kvd_log_writer_stop();
}

/* By itself: nobody reads the pipe, and the watchdog is what would end a wait for that. */
static void end_does_not_wait_for_a_reader_that_never_comes(void **state)
{
	struct child child = start_child(log_many_and_leave);

	(void)state;
	assert_int_equal(end_child(&child), 0);
}

/* The child logs so many lines, in order, and ends well. */
static void assert_logs(void (*run)(void), uint64_t count)
{
	struct child child = start_child(run);
	uint64_t lines;
	uint64_t lost;

	read_log(&child);
	count_lines(child.text, &lines, &lost);
	assert_int_equal(lines, count);
	assert_int_equal(end_child(&child), 0);
}

static void log_again(void)
{
	log_numbers(0, 10);
	kvd_log_writer_stop();
	if (kvd_log_writer_start() || kvd_log_writer_start())
		_exit(95);
	log_numbers(10, 20);
	kvd_log_writer_stop();
	kvd_log_writer_stop();
}

static void writer_can_be_started_and_stopped_again(void **state)
{
	(void)state;
	assert_logs(log_again, 20);
}

/* -------------------------------------------------------------- ends that are none */

static void fail_assertion(void)
{
	log_numbers(0, FEW);
	say();
	kvd_assert(FEW == 0);
}

static void abort_at_once(void)
{
	log_numbers(0, FEW);
	say();
	abort();
}

static void must_abort(struct child *child)
{
	int status = end_child(child);

	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGABRT);
}

/* The pipe holds less than what was logged: the rest waits in the ring when the process fails. */
static void assertion_is_the_last_line_after_all_others(void **state)
{
	struct child child = start_child(fail_assertion);
	uint64_t lines;
	uint64_t lost;
	char *last;

	(void)state;
	hear(&child);
	read_log(&child);
	last = strstr(child.text, "kvpoold: error: ");
	assert_non_null(last);
	assert_non_null(strstr(last, "'FEW == 0' does not hold"));
	assert_ptr_equal(strchr(last, '\n'), child.text + strlen(child.text) - 1);
	*last = '\0';
	count_lines(child.text, &lines, &lost);
	assert_int_equal(lines, FEW);
	must_abort(&child);
}

static void lines_before_a_crash_are_written(void **state)
{
	struct child child = start_child(abort_at_once);
	uint64_t lines;
	uint64_t lost;

	(void)state;
	hear(&child);
	read_log(&child);
	count_lines(child.text, &lines, &lost);
	assert_int_equal(lines, FEW);
	must_abort(&child);
}

static void assertion_that_nobody_reads_ends_all_the_same(void **state)
{
	struct child child = start_child(fail_assertion);

	(void)state;
	must_abort(&child);
}

static void log_from_a_child(void)
{
	int status;
	pid_t pid;

	log_numbers(0, 1);
	kvd_log_writer_flush();
	pid = fork();
	if (!pid) {
		log_numbers(1, 2);
		kvd_log_writer_stop();
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		_exit(94);
	log_numbers(2, 3);
	kvd_log_writer_stop();
}

static void forked_child_writes_its_own_lines(void **state)
{
	(void)state;
	assert_logs(log_from_a_child, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(full_ring_takes_no_line_and_the_next_one_knows),
		cmocka_unit_test(ring_keeps_each_writers_order_and_counts_every_loss),
		cmocka_unit_test(orderly_end_writes_every_line_in_order),
		cmocka_unit_test(lines_that_nobody_reads_are_lost_in_place_and_counted),
		cmocka_unit_test(end_does_not_wait_for_a_reader_that_never_comes),
		cmocka_unit_test(writer_can_be_started_and_stopped_again),
		cmocka_unit_test(assertion_is_the_last_line_after_all_others),
		cmocka_unit_test(lines_before_a_crash_are_written),
		cmocka_unit_test(assertion_that_nobody_reads_ends_all_the_same),
		cmocka_unit_test(forked_child_writes_its_own_lines),
	};

	kvt_watchdog(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
