/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting and ending a private kvpoold.
 */
#include "harness.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/io_uring.h>
#include <linux/seccomp.h>
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

#define MAX_OPTIONS 64
/* A line is written by a thread that nobody waits for. */
#define LOG_WAIT_NS UINT64_C(10000000000)

const char *kvt_lane = "auto";

/* Asked of the kernel itself, not of the code under test. */
static bool kernel_grants_io_uring(unsigned flags)
{
	struct io_uring_params params = {.flags = flags};
	long fd = syscall(SYS_io_uring_setup, 4, &params);

	if (fd < 0)
		return false;
	close((int)fd);
	return true;
}

void kvt_take_lane(int argc, char **argv, unsigned watchdog_seconds)
{
	kvt_watchdog(watchdog_seconds);
	if (argc > 1)
		kvt_lane = argv[1];
	if ((!strcmp(kvt_lane, "io_uring") &&
	     !kernel_grants_io_uring(IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN)) ||
	    (!strcmp(kvt_lane, "io_uring_plain") && !kernel_grants_io_uring(0))) {
		fprintf(stderr, "skipped: this kernel does not grant %s\n", kvt_lane);
		exit(KVT_SKIP);
	}
}

static int io_uring_errno;

void kvt_refuse_io_uring(int error)
{
	io_uring_errno = error;
}

static int log_fd = -1;

void kvt_log_to(int fd)
{
	log_fd = fd;
}

static void install_filter(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, SYS_io_uring_setup, 0, 2),
		BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, SYS_io_uring_register, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)io_uring_errno),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = {.len = sizeof(filter) / sizeof(filter[0]), .filter = filter};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		_exit(126);
}

static _Noreturn void become_daemon(const struct kvt_daemon *daemon, int ready_fd, const char *const *options)
{
	char socket[176];
	char event_loop[64];
	char ready[32];
	const char *moved = getenv("KVT_KVPOOLD"); /* where the programs lie elsewhere than they were built */
	const char *program = moved ? moved : KVT_KVPOOLD;
	const char *argv[MAX_OPTIONS + 8] = {program, "--config=/dev/null", socket, event_loop,
					     ready,   "--log-level=debug"};
	int log = log_fd >= 0 ? log_fd : open(daemon->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	int n = 6;
	int i;

	snprintf(socket, sizeof(socket), "--socket=%s", daemon->socket);
	snprintf(event_loop, sizeof(event_loop), "--event-loop=%s", kvt_lane);
	snprintf(ready, sizeof(ready), "--ready-fd=%d", ready_fd);
	for (i = 0; options && options[i] && i < MAX_OPTIONS; i++)
		argv[n++] = options[i];
	/* Never outlives a test that is killed by its watchdog. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (log >= 0)
		dup2(log, STDERR_FILENO);
	if (io_uring_errno)
		install_filter();
	execv(program, (char *const *)(uintptr_t)argv);
	_exit(127);
}

static void launch(struct kvt_daemon *daemon, const char *const *options)
{
	int ends[2];

	assert_return_code(pipe2(ends, O_CLOEXEC), errno);
	daemon->pid = fork();
	assert_true(daemon->pid >= 0);
	if (!daemon->pid) {
		fcntl(ends[1], F_SETFD, 0);
		become_daemon(daemon, ends[1], options);
	}
	close(ends[1]);
	daemon->ready_fd = ends[0];
}

struct kvt_daemon *kvt_daemon_launch(const char *const *options)
{
	struct kvt_daemon *daemon = calloc(1, sizeof(*daemon));

	assert_non_null(daemon);
	daemon->dir = kvt_mkdtemp();
	snprintf(daemon->socket, sizeof(daemon->socket), "%s/sock", daemon->dir);
	snprintf(daemon->log, sizeof(daemon->log), "%s/log", daemon->dir);
	launch(daemon, options);
	return daemon;
}

static void show_log(const struct kvt_daemon *daemon)
{
	char line[512];
	FILE *file = fopen(daemon->log, "re");

	while (file && fgets(line, sizeof(line), file))
		fprintf(stderr, "    kvpoold: %s", line);
	if (file)
		fclose(file);
}

void kvt_daemon_wait_ready(struct kvt_daemon *daemon)
{
	char text[16] = "";
	ssize_t got = read(daemon->ready_fd, text, sizeof(text) - 1);

	if (got != 6 || strcmp(text, "ready\n") != 0) {
		show_log(daemon);
		fail_msg("kvpoold did not become ready");
	}
	close(daemon->ready_fd);
	daemon->ready_fd = -1;
}

struct kvt_daemon *kvt_daemon_start(const char *const *options)
{
	struct kvt_daemon *daemon = kvt_daemon_launch(options);

	kvt_daemon_wait_ready(daemon);
	return daemon;
}

void kvt_daemon_launch_again(struct kvt_daemon *daemon, const char *const *options)
{
	launch(daemon, options);
}

void kvt_daemon_restart(struct kvt_daemon *daemon, const char *const *options)
{
	launch(daemon, options);
	kvt_daemon_wait_ready(daemon);
}

int kvt_daemon_wait(struct kvt_daemon *daemon)
{
	int status = 0;

	assert_int_equal(waitpid(daemon->pid, &status, 0), daemon->pid);
	daemon->pid = 0;
	if (daemon->ready_fd >= 0)
		close(daemon->ready_fd);
	daemon->ready_fd = -1;
	return status;
}

/* Names in its directory, beside the log. */
static int count_leftovers(const struct kvt_daemon *daemon)
{
	DIR *dir = opendir(daemon->dir);
	struct dirent *entry;
	int count = 0;

	assert_non_null(dir);
	while ((entry = readdir(dir)))
		count += entry->d_name[0] != '.' && strcmp(entry->d_name, "log") != 0;
	closedir(dir);
	return count;
}

static void free_daemon(struct kvt_daemon *daemon)
{
	kvt_rmdir(daemon->dir);
	free(daemon);
}

void kvt_daemon_stop(struct kvt_daemon *daemon)
{
	int status;

	kill(daemon->pid, SIGTERM);
	status = kvt_daemon_wait(daemon);
	if (status)
		show_log(daemon);
	assert_int_equal(status, 0);
	assert_int_equal(count_leftovers(daemon), 0);
	free_daemon(daemon);
}

void kvt_daemon_kill(struct kvt_daemon *daemon)
{
	if (daemon->pid) {
		kill(daemon->pid, SIGKILL);
		kvt_daemon_wait(daemon);
	}
	free_daemon(daemon);
}

static bool is_logged(const struct kvt_daemon *daemon, const char *text)
{
	char line[1024];
	bool found = false;
	FILE *file = fopen(daemon->log, "re");

	while (file && !found && fgets(line, sizeof(line), file))
		found = strstr(line, text) != NULL;
	if (file)
		fclose(file);
	return found;
}

bool kvt_daemon_logged(const struct kvt_daemon *daemon, const char *text)
{
	uint64_t until_ns = kvt_now_ns() + LOG_WAIT_NS;
	bool found = is_logged(daemon, text);

	while (!found && daemon->pid && kvt_now_ns() < until_ns) {
		sched_yield();
		found = is_logged(daemon, text);
	}
	return found;
}
