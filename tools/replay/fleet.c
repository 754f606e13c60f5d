/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the engine processes, listens to their events, and waits for their ends. */
#include "fleet.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine.h"
#include "progress.h"
#include "syscalls.h"

/* How often the progress bar is drawn. */
#define PROGRESS_MS 200

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number)
{
	(void)signal_number;
	interrupted = 1;
}

bool rep_interrupted(void)
{
	return interrupted != 0;
}

void rep_catch_interrupts(void)
{
	struct sigaction action = {.sa_handler = on_interrupt};

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	/* Ignored under nohup(1), and then it stays so. */
	if (signal(SIGHUP, SIG_IGN) != SIG_IGN)
		sigaction(SIGHUP, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
}

int rep_engine_of_session(const struct rep_run *run, uint64_t session)
{
	for (uint32_t i = 0; i < run->engines; i++)
		if (session && rep_stat(&run->shared->stats[i].session) == session)
			return (int)i;
	return -1;
}

/*
 * In a child: exits with the engine's code. exit() and not _exit(), so that a sanitizer's leak check runs. What
 * a terminal sends to all of the group is for the main process to answer, which ends the engines in order.
 */
static void run_engine(const struct rep_run *run, uint32_t index, int event_fd)
{
	signal(SIGINT, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGTERM, SIG_DFL);
	exit(rep_engine_main(run, index, event_fd));
}

/* In a child: the engine is its child, so that it may trace it wherever tracing of children is allowed. */
static void run_traced_engine(const struct rep_run *run, uint32_t index, int event_fd)
{
	int status = 0;
	pid_t pid;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	pid = fork();
	if (pid == 0)
		run_engine(run, index, event_fd);
	close(event_fd);
	if (pid < 0 || rep_ptrace_serve(pid, &run->shared->stats[index], &status))
		_exit(CTL_FAULT);
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : CTL_FAULT);
}

/* 0 or a negative errno; in the child it does not return. */
static int start_engine(const struct rep_run *run, uint32_t index, const int fds[2], pid_t *out)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0) {
		close(fds[0]);
		if (run->counting == REP_COUNT_PTRACE)
			run_traced_engine(run, index, fds[1]);
		run_engine(run, index, fds[1]);
	}
	*out = pid;
	return 0;
}

static void take_event(const struct rep_run *run, struct rep_fleet_result *result,
		       const struct rep_event *event)
{
	char text[REP_EVENT_TEXT_BYTES];

	rep_event_text(event, rep_engine_of_session(run, event->writer), text, sizeof(text));
	rep_progress_clear();
	ctl_complain("%s", text);
	if (result->event_count < REP_EVENTS_KEPT)
		result->events[result->event_count++] = *event;
}

/* The engine processes; 0 in the place of one that has ended. */
struct crew {
	pid_t pids[REP_MAX_ENGINES];
	uint32_t count;
};

static void tell_end(uint32_t index, int status)
{
	rep_progress_clear();
	if (WIFSIGNALED(status))
		ctl_complain("engine %u was ended by signal %d (%s)", index, WTERMSIG(status),
			     strsignal(WTERMSIG(status)));
	else
		ctl_complain("engine %u ended with code %d", index, WEXITSTATUS(status));
}

/* Takes the ends of engines, as they come (WNOHANG) or until all have ended (0). */
static void reap(struct crew *crew, int flags, struct rep_fleet_result *result)
{
	for (uint32_t i = 0; i < crew->count; i++) {
		int status = 0;
		pid_t got = 0;

		if (!crew->pids[i])
			continue;
		do {
			got = waitpid(crew->pids[i], &status, flags);
		} while (got < 0 && errno == EINTR);
		if (!got)
			continue;
		crew->pids[i] = 0;
		if (got > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0)
			continue;
		result->engines_failed++;
		tell_end(i, status);
	}
}

/* Whether there may be more. */
static bool read_event(const struct rep_run *run, int fd, struct rep_fleet_result *result)
{
	struct rep_event event;
	ssize_t length = read(fd, &event, sizeof(event));

	if (length == sizeof(event))
		take_event(run, result, &event);
	return length == sizeof(event) || (length < 0 && (errno == EINTR || errno == EAGAIN));
}

/* Reads events until every engine has closed its end. */
static void watch(const struct rep_run *run, int fd, struct crew *crew, struct rep_fleet_result *result)
{
	struct pollfd entry = {.fd = fd, .events = POLLIN};
	struct rep_progress progress;
	bool more = true;

	rep_progress_init(&progress, run);
	while (more) {
		int ready = poll(&entry, 1, PROGRESS_MS);

		if (interrupted)
			atomic_store(&run->shared->stop, 1);
		rep_progress_draw(&progress, run);
		if (ready > 0)
			more = read_event(run, fd, result);
		else
			reap(crew, WNOHANG, result);
	}
	rep_progress_clear();
}

int rep_fleet_run(struct rep_run *run, struct rep_fleet_result *result)
{
	struct crew crew = {.count = 0};
	int fds[2];
	int ret = 0;

	memset(result, 0, sizeof(*result));
	if (pipe2(fds, O_CLOEXEC))
		return -errno;
	while (crew.count < run->engines && !ret) {
		ret = start_engine(run, crew.count, fds, &crew.pids[crew.count]);
		crew.count += !ret;
	}
	close(fds[1]);
	if (ret)
		atomic_store(&run->shared->stop, 1);
	watch(run, fds[0], &crew, result);
	reap(&crew, 0, result);
	close(fds[0]);
	result->interrupted = interrupted != 0;
	return ret;
}
