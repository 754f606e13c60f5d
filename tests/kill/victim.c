/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting victims, and being one. The order goes as bytes in an argument, in hexadecimal: both ends are the
 * same program.
 */
#include "victim.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "content.h"
#include "program.h"

/* Far above what a test has open: the copies that the start of a victim needs must not meet it. */
#define REPORT_FD 200

/* -------------------------------------------------------------- the test's side */

static void to_hex(const void *bytes, size_t length, char *out)
{
	const uint8_t *at = bytes;
	size_t i;

	for (i = 0; i < length; i++)
		snprintf(out + 2 * i, 3, "%02x", at[i]);
}

static _Noreturn void become_victim(const struct kvt_daemon *daemon, const struct kvt_victim_order *order,
				    int hold, int report)
{
	char text[2 * sizeof(*order) + 1];

	to_hex(order, sizeof(*order), text);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (dup2(hold, STDIN_FILENO) >= 0 && dup2(report, REPORT_FD) >= 0)
		execl("/proc/self/exe", "victim", "--victim", daemon->socket, text, NULL);
	_exit(127);
}

struct kvt_victim kvt_victim_start(const struct kvt_daemon *daemon, const struct kvt_victim_order *order)
{
	struct kvt_victim victim = {0};
	int hold[2];
	int report[2];

	assert_return_code(pipe2(hold, O_CLOEXEC), errno);
	assert_return_code(pipe2(report, O_CLOEXEC), errno);
	victim.pid = fork();
	assert_true(victim.pid >= 0);
	if (!victim.pid)
		become_victim(daemon, order, hold[0], report[1]);
	close(hold[0]);
	close(report[1]);
	victim.hold = hold[1];
	victim.report = report[0];
	if (order->trace != KVT_TRACED_START)
		assert_true(kvt_victim_told(&victim));
	return victim;
}

bool kvt_victim_told(struct kvt_victim *victim)
{
	return read(victim->report, &victim->told, sizeof(victim->told)) == sizeof(victim->told);
}

void kvt_victim_reap(struct kvt_victim *victim)
{
	int status = 0;

	assert_int_equal(waitpid(victim->pid, &status, __WALL), victim->pid);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGKILL);
}

void kvt_victim_kill(struct kvt_victim *victim)
{
	assert_return_code(kill(victim->pid, SIGKILL), errno);
	kvt_victim_reap(victim);
}

void kvt_victim_forget(struct kvt_victim *victim)
{
	close(victim->hold);
	close(victim->report);
	victim->hold = -1;
	victim->report = -1;
}

/* -------------------------------------------------------------- the victim's side */

static struct kvt_victim_report told;

static void report_to_test(void)
{
	if (write(REPORT_FD, &told, sizeof(told)) != sizeof(told))
		_exit(1);
}

static void wait_for_end(void)
{
	char byte;

	while (read(STDIN_FILENO, &byte, sizeof(byte)) > 0 || errno == EINTR)
		;
	_exit(0);
}

static void drop_for_child(struct kvt_raw *raw, enum kvt_victim_child child)
{
	if (child == KVT_CHILD_MAPS)
		close(raw->fd);
	else
		kvt_raw_unmap_pool(raw);
}

/* Returns in the victim, when its child is as it will stay. */
static void fork_child(struct kvt_raw *raw, enum kvt_victim_child child)
{
	int ready[2];
	char byte = 0;
	pid_t pid;

	if (child == KVT_NO_CHILD)
		return;
	assert_return_code(pipe2(ready, O_CLOEXEC), errno);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		/* The report's pipe too: its end must mean that the victim is dead. */
		close(REPORT_FD);
		drop_for_child(raw, child);
		if (write(ready[1], &byte, sizeof(byte)) == sizeof(byte))
			wait_for_end();
		_exit(1);
	}
	assert_int_equal(read(ready[0], &byte, sizeof(byte)), sizeof(byte));
	close(ready[0]);
	close(ready[1]);
	told.child = (uint64_t)pid;
}

static void be_traced(void)
{
	assert_return_code(ptrace(PTRACE_TRACEME, 0, NULL, NULL), errno);
	raise(SIGSTOP);
}

static void keep_refs(const struct kvw_answer *answers, uint32_t count)
{
	uint32_t i;

	for (i = 0; i < count && i < sizeof(told.blocks) / sizeof(told.blocks[0]); i++)
		told.blocks[i] =
			(struct kvw_block_ref){.id = answers[i].id, .generation = answers[i].generation};
}

static void write_answers(struct kvt_raw *raw, uint64_t block_bytes, const struct kvw_answer *answers,
			  uint64_t chain, uint32_t first, uint32_t count)
{
	uint32_t i;

	for (i = 0; i < count; i++)
		kvt_write_block(raw, block_bytes, answers[i].id, chain, first + i);
}

static void publish(struct kvt_raw *raw, uint64_t block_bytes, const struct kvt_victim_order *order,
		    uint32_t count)
{
	struct kvw_completion open =
		kvt_open(raw, 0, order->chain, order->matched + count, order->matched + count);
	struct kvw_completion done;

	assert_int_equal(open.status, 0);
	told.matched = open.matched;
	write_answers(raw, block_bytes, kvt_answers(raw, 0) + open.matched, order->chain, open.matched,
		      open.granted);
	done = kvt_publish(raw, 0, open.hold, open.matched, open.granted, 0, order->step);
	assert_int_equal(done.status, 0);
	keep_refs(kvt_answers(raw, 0) + open.matched, open.granted);
}

static void lease(struct kvt_raw *raw, uint64_t block_bytes, const struct kvt_victim_order *order)
{
	const struct kvw_answer *answers = kvt_leased(raw);
	struct kvw_completion done =
		kvt_raw_do(raw, (struct kvw_request){.type = KVW_REQUEST_LEASE, .count = order->blocks});

	assert_int_equal(done.status, 0);
	assert_int_equal(done.granted, order->blocks);
	write_answers(raw, block_bytes, answers, order->chain, 0, done.granted);
	told.leased = done.granted;
	keep_refs(answers, done.granted);
}

static void report_library(uint64_t session)
{
	told.session = session;
	report_to_test();
}

static void work_raw(const struct kvt_daemon *daemon, const struct kvt_victim_order *order)
{
	struct kvt_raw *raw = kvt_raw_engine(daemon);
	uint64_t block_bytes = kvt_block_bytes(raw, "");

	told.session = raw->session;
	if (order->work == KVT_VICTIM_PUBLISH)
		publish(raw, block_bytes, order, order->blocks);
	if (order->work == KVT_VICTIM_LEASE) {
		publish(raw, block_bytes, order, order->published);
		lease(raw, block_bytes, order);
	}
	fork_child(raw, order->child);
	report_to_test();
	if (order->trace == KVT_TRACED_READY)
		be_traced();
	if (order->work == KVT_VICTIM_RANDOM)
		kvt_victim_random(raw, order);
	wait_for_end();
}

static void from_hex(const char *text, void *out, size_t length)
{
	uint8_t *at = out;
	unsigned byte;
	size_t i;

	for (i = 0; i < length; i++) {
		if (sscanf(text + 2 * i, "%2x", &byte) != 1)
			_exit(126);
		at[i] = (uint8_t)byte;
	}
}

struct life {
	struct kvt_daemon daemon;
	struct kvt_victim_order order;
};

static void live(void *arg)
{
	struct life *life = arg;

	if (life->order.trace == KVT_TRACED_START)
		be_traced();
	if (life->order.work == KVT_VICTIM_LIBRARY)
		kvt_victim_library(life->daemon.socket, &life->order, report_library);
	else
		work_raw(&life->daemon, &life->order);
	wait_for_end();
}

void kvt_victim_main(int argc, char **argv)
{
	struct life life = {0};

	if (argc != 4 || strcmp(argv[1], "--victim") != 0)
		return;
	kvt_watchdog(300);
	snprintf(life.daemon.socket, sizeof(life.daemon.socket), "%s", argv[2]);
	from_hex(argv[3], &life.order, sizeof(life.order));
	exit(kvt_run_body(live, &life));
}
