/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hostile client against a daemon, in every mode, with two well-behaved clients beside it.
 *
 *   hostile [--seconds N] [--mode NAME]... [--judge] [--json] [EVENT_LOOP]
 *
 * The judged run, with the daemon under AddressSanitizer and UndefinedBehaviorSanitizer: cmake --preset asan
 * && cmake --build --preset asan --target hostile && build/asan/tests/hostile/hostile --seconds 60 --judge
 *
 * The seconds are those of the hostile client; two thirds of them more go by while it rests, so that the
 * well-behaved ones are seen alone and beside a process that only spins. Each mode has its share of the time
 * in a process of its own (of another user, when root starts it), attaches properly, misbehaves, and begins
 * anew when its session has ended. After each the books are checked deeply. In the end nothing may be left
 * of any of them, the log must have a reason for each ended session, and the well-behaved clients must not
 * have seen one error. With --judge their p99 must also be at most twice of what it is alone.
 *
 * Who gets how much of the processors is not the daemon's to say, but the operator's, by cgroups. So every
 * process here is a session of its own, which the scheduler gives shares by (autogroup), as it does to services;
 * and the hostile one may run on half of the processors, with as many threads as it likes.
 */
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "foe.h"
#include "friend.h"
#include "program.h"
#include "report.h"

/*
 * What a daemon's memory may grow by, whatever was done to it: 150 sessions at once leave their traces in
 * its heap.
 */
#define RSS_SLACK_KIB (KVT_SANITIZED ? 131072 : 16384)
#define MOST_RATIO 2.0
/* The target's. */
#define POOLS 2
/* What the hostile process may take beyond its share: its own waits for answers are bounded far below. */
#define FOE_PATIENCE_MS 40000u
/* From here on the daemon's own time-outs are waited for. */
#define THOROUGH_SECONDS 15u

struct options {
	uint32_t seconds;
	bool judge;
	bool json;
	bool all;
};

struct run {
	struct options options;
	uint64_t seed;
	struct kvt_board *board;
	struct kvt_daemon *daemon;
	struct kvt_raw *admin;
	pid_t friends[KVT_FRIENDS];
	struct kvt_report report;
};

/* -------------------------------------------------------------- processes */

/* The upper half of those that we may run on. */
static void leave_half(cpu_set_t *set)
{
	int leave = CPU_COUNT(set) / 2;
	int cpu;

	for (cpu = 0; leave; cpu++) {
		if (!CPU_ISSET(cpu, set))
			continue;
		CPU_CLR(cpu, set);
		leave--;
	}
}

static void keep_to_half(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set))
		_exit(127);
	leave_half(&set);
	if (sched_setaffinity(0, sizeof(set), &set))
		_exit(127);
}

/* A process of a session of its own, which ends with us. */
static pid_t fork_apart(void)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setsid();
	return 0;
}

static pid_t start_self(const char *const *arguments, void (*prepare)(void))
{
	pid_t pid = fork_apart();

	if (pid)
		return pid;
	if (prepare)
		prepare();
	execv("/proc/self/exe", (char *const *)(uintptr_t)arguments);
	_exit(127);
}

static pid_t start_friend(const struct run *run, enum kvt_friend number)
{
	const char *const arguments[] = {"hostile",
					 "--friend",
					 run->daemon->socket,
					 number == KVT_FRIEND_OWN_POOL ? KVT_FRIEND_POOL : KVT_FOE_POOL,
					 number == KVT_FRIEND_OWN_POOL ? "0" : "1",
					 NULL};

	return start_self(arguments, NULL);
}

static pid_t start_foe(const struct run *run, const char *mode, uint32_t share_ms)
{
	bool thorough = run->options.seconds >= THOROUGH_SECONDS;
	char seed[32];
	char share[16];
	const char *const arguments[] = {"hostile", "--foe", run->daemon->socket,  mode,
					 seed,      share,   thorough ? "1" : "0", NULL};

	snprintf(seed, sizeof(seed), "%llu", (unsigned long long)run->seed);
	snprintf(share, sizeof(share), "%u", share_ms);
	return start_self(arguments, keep_to_half);
}

static pid_t start_hungry(void)
{
	pid_t pid = fork_apart();
	volatile uint64_t spent = 0;

	if (pid)
		return pid;
	for (;;)
		spent++;
}

static void must_end_well(pid_t pid)
{
	int status = 0;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* Where a process's threads stand in the kernel; what may not be read of another user's is left out. */
static void print_threads(pid_t pid)
{
	char command[160];

	snprintf(command, sizeof(command),
		 "for t in /proc/%d/task/*; do cat $t/comm $t/wchan $t/syscall 2>/dev/null; echo; done >&2",
		 (int)pid);
	(void)!system(command);
}

static void foe_must_end_well(const struct run *run, pid_t foe, const struct kvt_mode_row *row,
			      uint32_t share_ms)
{
	struct pollfd end = {.fd = (int)syscall(SYS_pidfd_open, foe, 0u), .events = POLLIN};

	assert_true(end.fd >= 0);
	if (poll(&end, 1, (int)(share_ms + FOE_PATIENCE_MS)) == 1) {
		close(end.fd);
		must_end_well(foe);
		return;
	}
	fprintf(stderr,
		"the hostile process: %llu sessions, %llu refused; last refusal '%s', last error '%s'\n",
		(unsigned long long)row->sessions, (unsigned long long)row->refused, row->refusal,
		row->error);
	print_threads(foe);
	print_threads(run->daemon->pid);
	fail_msg("the hostile process did not end");
}

/* A well-behaved client that ends by itself has seen an error, and has said which. */
static void friends_must_live(const struct run *run)
{
	uint32_t number;

	for (number = 0; number < KVT_FRIENDS; number++)
		assert_int_equal(waitpid(run->friends[number], NULL, WNOHANG), 0);
}

static void daemon_must_live(const struct run *run)
{
	assert_int_equal(waitpid(run->daemon->pid, NULL, WNOHANG), 0);
}

/* -------------------------------------------------------------- phases */

/* For so long, or until the daemon ends. */
static void watch_daemon(const struct run *run, uint32_t ms)
{
	struct pollfd end = {.fd = (int)syscall(SYS_pidfd_open, run->daemon->pid, 0u), .events = POLLIN};

	assert_true(end.fd >= 0);
	assert_int_equal(poll(&end, 1, (int)ms), 0);
	close(end.fd);
}

/* Between the modes, so that whatever else this machine does disturbs all three alike. */
static void measure_quiet(struct run *run, uint32_t ms)
{
	pid_t hungry;

	atomic_store(&run->board->phase, KVT_PHASE_ALONE);
	watch_daemon(run, ms);
	hungry = start_hungry();
	atomic_store(&run->board->phase, KVT_PHASE_HUNGRY);
	watch_daemon(run, ms);
	kill(hungry, SIGKILL);
	waitpid(hungry, NULL, 0);
}

static void run_mode(struct run *run, uint32_t mode, uint32_t share_ms)
{
	pid_t foe;

	atomic_store(&run->board->phase, KVT_PHASE_MODES + mode);
	foe = start_foe(run, kvt_modes[mode].name, share_ms);
	if (!run->options.json)
		fprintf(stderr, "%s\n", kvt_modes[mode].name);
	foe_must_end_well(run, foe, &run->board->modes[mode], share_ms);
	daemon_must_live(run);
	friends_must_live(run);
	/* The two clients, and this connection: nothing is left of the mode. */
	kvt_wait_sessions(run->admin, 1 + KVT_FRIENDS);
	kvt_must_check(run->admin);
}

static void run_modes(struct run *run)
{
	uint32_t count = 0;
	uint32_t share_ms;
	uint32_t mode;

	for (mode = 0; mode < kvt_mode_count; mode++)
		count += run->report.chosen[mode];
	share_ms = run->options.seconds * 1000 / count;
	for (mode = 0; mode < kvt_mode_count; mode++) {
		if (!run->report.chosen[mode])
			continue;
		measure_quiet(run, share_ms / 3);
		run_mode(run, mode, share_ms);
	}
}

/* -------------------------------------------------------------- beginning and end */

static void begin(struct run *run)
{
	uint32_t number;

	run->daemon = kvt_target_start();
	run->admin = kvt_raw_hello(run->daemon);
	for (number = 0; number < KVT_FRIENDS; number++)
		run->friends[number] = start_friend(run, number);
	while (atomic_load(&run->board->ready) < KVT_FRIENDS)
		friends_must_live(run);
	/* Else the descriptor that a friend got of its pool may be counted, which the worker closes. */
	kvt_wait_lent_fds(run->daemon, POOLS);
	run->report.before = kvt_facts(run->daemon, run->admin);
}

static void look_at_turns(struct run *run)
{
	const struct kvw_msg_STATUS request = {.unused = 0};

	assert_int_equal(kvt_raw_ask(run->admin, KVW_MSG_STATUS, &request), 0);
	kvw_text_copy(run->admin->answer.STATUS_OK.event_loop, run->report.event_loop,
		      sizeof(run->report.event_loop));
	run->report.longest_turn_us = run->admin->answer.STATUS_OK.longest_turn_us;
	run->report.longest_part_us = run->admin->answer.STATUS_OK.longest_part_us;
	kvw_text_copy(run->admin->answer.STATUS_OK.longest_part, run->report.longest_part,
		      sizeof(run->report.longest_part));
}

static void end(struct run *run)
{
	uint32_t number;

	kvt_wait_fds(run->daemon, run->report.before.fds);
	run->report.after = kvt_facts(run->daemon, run->admin);
	look_at_turns(run);
	atomic_store(&run->board->end, 1);
	for (number = 0; number < KVT_FRIENDS; number++)
		must_end_well(run->friends[number]);
	kvt_wait_sessions(run->admin, 1);
	kvt_must_check(run->admin);
	run->report.audit = kvt_target_audit(run->daemon);
	kvt_raw_close(run->admin);
	kvt_daemon_stop(run->daemon);
}

static void run_all(void *arg)
{
	struct run *run = arg;

	begin(run);
	run_modes(run);
	end(run);
}

static void must_be_clean(void *arg)
{
	const struct kvt_report *report = &((struct run *)arg)->report;

	assert_int_equal(kvt_report_breaches(report), 0);
	assert_in_range(report->after.rss_kib, 1, report->before.rss_kib + RSS_SLACK_KIB);
	assert_int_equal(report->audit.without_reason, 0);
	assert_int_equal(report->audit.twice, 0);
	/* In a storm the daemon writes no line for some of them, and says for how many. */
	assert_in_range(report->audit.ended + report->audit.left_out, report->audit.attached, UINT64_MAX);
	assert_in_range(report->audit.ended, 1, report->audit.attached);
}

static bool judged_well(const struct kvt_report *report)
{
	bool well = true;
	uint32_t number;

	for (number = 0; number < KVT_FRIENDS; number++)
		well &= kvt_report_ratio(report, number) <= MOST_RATIO;
	return well;
}

/* -------------------------------------------------------------- options */

static void choose(struct run *run, const char *name)
{
	uint32_t mode;

	run->options.all = false;
	for (mode = 0; mode < kvt_mode_count; mode++) {
		if (strcmp(kvt_modes[mode].name, name) != 0)
			continue;
		run->report.chosen[mode] = true;
		return;
	}
	fprintf(stderr, "hostile: no mode '%s'; there are:", name);
	for (mode = 0; mode < kvt_mode_count; mode++)
		fprintf(stderr, " %s", kvt_modes[mode].name);
	fprintf(stderr, "\n");
	exit(2);
}

static void choose_all(struct run *run)
{
	uint32_t mode;

	for (mode = 0; mode < kvt_mode_count; mode++)
		run->report.chosen[mode] = true;
}

static void parse(struct run *run, int argc, char **argv)
{
	static const struct option table[] = {
		{"seconds", required_argument, NULL, 's'},
		{"mode", required_argument, NULL, 'm'},
		{"judge", no_argument, NULL, 'j'},
		{"json", no_argument, NULL, 'o'},
		{NULL, 0, NULL, 0},
	};
	int option;

	run->options = (struct options){.seconds = 60, .all = true};
	while ((option = getopt_long(argc, argv, "", table, NULL)) != -1) {
		if (option == 's')
			run->options.seconds = (uint32_t)atoi(optarg);
		else if (option == 'm')
			choose(run, optarg);
		else if (option == 'j')
			run->options.judge = true;
		else if (option == 'o')
			run->options.json = true;
		else
			exit(2);
	}
	if (!run->options.seconds || run->options.seconds > 3600)
		exit(2);
	if (run->options.all)
		choose_all(run);
}

int main(int argc, char **argv)
{
	static struct run run;
	int failed;

	kvt_foe_main(argc, argv);
	kvt_friend_main(argc, argv);
	parse(&run, argc, argv);
	kvt_take_lane(argc - optind + 1, argv + optind - 1, run.options.seconds * 2 + 120);
	kvt_limit_quarantine();
	run.seed = kvt_seed();
	run.board = kvt_board_create();
	run.report.board = run.board;
	if (!run.board)
		return 1;
	failed = kvt_run_body(run_all, &run);
	kvt_report_sum(&run.report);
	if (run.options.json)
		kvt_report_json(&run.report);
	else
		kvt_report_table(&run.report);
	failed |= kvt_run_body(must_be_clean, &run);
	if (run.options.judge && !judged_well(&run.report)) {
		fprintf(stderr, "hostile: a well-behaved client's p99 is above %.0f times its own\n",
			MOST_RATIO);
		failed = 1;
	}
	return failed;
}
