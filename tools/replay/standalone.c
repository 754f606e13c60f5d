/* SPDX-License-Identifier: Apache-2.0 */
/* Starts and stops a kvpoold of the replay's own. */
#include "standalone.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../ctl.h"

/* Lines of the log that are shown after a failure. */
#define LOG_SHOWN_BYTES 4096

/* How long one that failed has to end by itself. */
#define END_WAIT_MS 1000

/* Most arguments of the daemon's command line. */
#define MAX_ARGS 24
#define ARG_BYTES 256

struct arguments {
	char text[MAX_ARGS][ARG_BYTES];
	char *argv[MAX_ARGS + 1];
	int count;
};

static void add(struct arguments *args, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(struct arguments *args, const char *format, ...)
{
	va_list list;

	if (args->count == MAX_ARGS)
		return;
	va_start(list, format);
	vsnprintf(args->text[args->count], ARG_BYTES, format, list);
	va_end(list);
	args->argv[args->count] = args->text[args->count];
	args->argv[++args->count] = NULL;
}

/* No configuration of the machine's own is read. */
static void make_arguments(const struct rep_daemon_params *params, const struct rep_daemon *daemon,
			   int ready_fd, struct arguments *args)
{
	memset(args, 0, sizeof(*args));
	add(args, "kvpoold");
	add(args, "--config");
	add(args, "/dev/null");
	add(args, "--socket");
	add(args, "%s", daemon->socket);
	add(args, "--socket-mode");
	add(args, "0600");
	add(args, "--event-loop");
	add(args, "%s", params->event_loop);
	add(args, "--ready-fd");
	add(args, "%d", ready_fd);
	add(args, "--set");
	add(args, "pool.replay.blocks=%u", params->blocks);
	add(args, "--set");
	add(args, "pool.replay.block_tokens=%u", params->block_tokens);
	add(args, "--set");
	add(args, "pool.replay.planes=%s", params->planes);
	add(args, "--set");
	add(args, "pool.replay.policy=%s", params->policy);
	add(args, "--set");
	add(args, "pool.replay.devices=%s", params->device);
	add(args, "--set");
	add(args, "pool.replay.share=%s", params->share);
}

/* In the child. The daemon ends when this program does, even by a kill. */
static void exec_daemon(const char *program, const struct rep_daemon_params *params,
			const struct rep_daemon *daemon, int ready_fd)
{
	struct arguments args;
	int log = open(daemon->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

	/* Not in this program's group: an interrupt of the terminal ends the engines first. */
	setpgid(0, 0);
	signal(SIGPIPE, SIG_DFL);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != daemon->parent)
		_exit(127);
	if (log < 0 || dup2(log, STDERR_FILENO) < 0 || dup2(log, STDOUT_FILENO) < 0)
		_exit(127);
	if (fcntl(ready_fd, F_SETFD, 0))
		_exit(127);
	make_arguments(params, daemon, ready_fd, &args);
	execv(program, args.argv);
	dprintf(STDERR_FILENO, "cannot run '%s': %s\n", program, strerror(errno));
	_exit(127);
}

static int make_folder(struct rep_daemon *daemon)
{
	int ret = rep_folder_make(&daemon->folder);

	if (ret)
		return ret;
	snprintf(daemon->socket, sizeof(daemon->socket), "%s/socket", daemon->folder.path);
	snprintf(daemon->log, sizeof(daemon->log), "%s/log", daemon->folder.path);
	return 0;
}

/* The end of the daemon's log, which is why it failed. */
static void show_log(const struct rep_daemon *daemon)
{
	char text[LOG_SHOWN_BYTES + 1];
	FILE *file = fopen(daemon->log, "re");
	size_t length;

	if (!file)
		return;
	if (fseek(file, -LOG_SHOWN_BYTES, SEEK_END))
		rewind(file);
	length = fread(text, 1, LOG_SHOWN_BYTES, file);
	text[length] = '\0';
	fclose(file);
	if (length)
		fprintf(stderr, "kvpoolctl: kvpoold said:\n%s", text);
}

/* Populating takes its time. */
static uint32_t ready_timeout_ms(const struct rep_daemon_params *params)
{
	uint64_t ms = params->timeout_ms * (1 + params->pool_bytes / 1000000000);

	return ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
}

static int spawn(const char *program, const struct rep_daemon_params *params, struct rep_daemon *daemon)
{
	int fds[2];
	int ret;

	if (pipe2(fds, O_CLOEXEC))
		return -errno;
	fflush(NULL);
	daemon->parent = getpid();
	daemon->pid = fork();
	if (daemon->pid == 0)
		exec_daemon(program, params, daemon, fds[1]);
	close(fds[1]);
	ret = daemon->pid < 0 ? -errno : rep_daemon_wait(fds[0], daemon->socket, ready_timeout_ms(params));
	close(fds[0]);
	return ret;
}

static bool is_readable_within(int fd, uint32_t timeout_ms)
{
	struct pollfd entry = {.fd = fd, .events = POLLIN};
	int ready;

	do {
		ready = poll(&entry, 1, (int)timeout_ms);
	} while (ready < 0 && errno == EINTR);
	return ready == 1;
}

/* Whether the process ends within timeout_ms; it stays to be reaped. */
static bool ends_within(pid_t pid, uint32_t timeout_ms)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	bool ended = fd >= 0 && is_readable_within(fd, timeout_ms);

	if (fd >= 0)
		close(fd);
	return ended;
}

static void tell_not_found(void)
{
	const char *given = getenv("KVPOOLD");

	if (given && *given)
		ctl_complain("$KVPOOLD is '%s', which is no program that can be run", given);
	else
		ctl_complain(
			"cannot find kvpoold: not beside kvpoolctl, not in $PATH; set $KVPOOLD to its path");
}

/* How the process ended, which has been waited for. */
static void tell_end(const char *program, int status)
{
	if (WIFSIGNALED(status))
		ctl_complain("'%s' was ended by signal %d (%s)", program, WTERMSIG(status),
			     strsignal(WTERMSIG(status)));
	else
		ctl_complain("'%s' ended with code %d", program, WEXITSTATUS(status));
}

static void tell_failed_start(const char *program, const struct rep_daemon *daemon, int error, int status)
{
	if (error == -EINTR)
		ctl_complain("interrupted while waiting for kvpoold");
	else if (error == -EPIPE)
		tell_end(program, status);
	else if (error == -ETIMEDOUT)
		ctl_complain("'%s' was not ready in time; --timeout-ms gives it longer", program);
	else
		ctl_complain("cannot start '%s': %s", program, strerror(-error));
	if (error != -EINTR)
		show_log(daemon);
}

/* One that has hung up is about to end, and then how it did so is of interest. */
static int end_failed_start(const struct rep_daemon *daemon, int error)
{
	int status = 0;

	if (daemon->pid <= 0)
		return 0;
	if (error != -EPIPE || !ends_within(daemon->pid, END_WAIT_MS))
		kill(daemon->pid, SIGKILL);
	while (waitpid(daemon->pid, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

int rep_daemon_start(const struct rep_daemon_params *params, struct rep_daemon *out)
{
	struct rep_daemon daemon = {.pid = -1};
	char program[PATH_MAX];
	int ret = rep_daemon_find(program, sizeof(program));

	if (ret) {
		tell_not_found();
		return ret;
	}
	ret = make_folder(&daemon);
	if (ret) {
		ctl_complain("cannot make '%s': %s; set $TMPDIR to a folder that can be written",
			     daemon.folder.path, strerror(-ret));
		return ret;
	}
	ret = spawn(program, params, &daemon);
	if (!ret) {
		*out = daemon;
		return 0;
	}
	tell_failed_start(program, &daemon, ret, end_failed_start(&daemon, ret));
	rep_folder_remove(&daemon.folder);
	return ret;
}

int rep_daemon_stop(struct rep_daemon *daemon, uint32_t timeout_ms)
{
	int status = 0;
	bool in_time;

	kill(daemon->pid, SIGTERM);
	in_time = ends_within(daemon->pid, timeout_ms);
	if (!in_time)
		kill(daemon->pid, SIGKILL);
	while (waitpid(daemon->pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!in_time)
		ctl_complain("kvpoold did not end within %u ms after TERM and was killed", timeout_ms);
	else if (status)
		tell_end("kvpoold", status);
	if (status)
		show_log(daemon);
	rep_folder_remove(&daemon->folder);
	return status ? -EIO : 0;
}
