/* SPDX-License-Identifier: Apache-2.0 */
#include "control.h"

#include "support.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROLE_VARIABLE "KVT_CUDA_ROLE"
#define PATH_VARIABLE "LD_LIBRARY_PATH"
#define MACHINE_VARIABLE "FAKECUDA_MACHINE"

static const char *const functions[] = {
#define KVW_CUDA_FUNCTION(name, version, arguments) #name,
#include "ipc/cuda_driver.def"
#undef KVW_CUDA_FUNCTION
};

static const char *const kinds[] = {
#define FAKE_KIND(name, text) text,
	FAKE_KIND_MAP(FAKE_KIND)
#undef FAKE_KIND
};

static struct fake_machine *machine;
static char machine_path[256];
static pid_t machine_owner;

static void die(const char *what)
{
	perror(what);
	abort();
}

/* The loader reads its path only at the start of a program. */
static void start_with_double(char **argv)
{
	const char *path = getenv(PATH_VARIABLE);
	char *joined;

	if (path && strstr(path, FAKECUDA_DIR))
		return;
	if (asprintf(&joined, "%s%s%s", FAKECUDA_DIR, path ? ":" : "", path ? path : "") < 0 ||
	    setenv(PATH_VARIABLE, joined, 1))
		die("setenv");
	execv("/proc/self/exe", argv);
	die("/proc/self/exe");
}

static void remove_machine(void)
{
	if (getpid() == machine_owner)
		unlink(machine_path);
}

static void make_machine(void)
{
	const char *base = getenv("TMPDIR");
	int fd;

	snprintf(machine_path, sizeof(machine_path), "%s/fakecuda-machine-XXXXXX", base ? base : "/tmp");
	fd = mkostemp(machine_path, O_CLOEXEC);
	if (fd < 0 || close(fd) || setenv(MACHINE_VARIABLE, machine_path, 1))
		die(machine_path);
	machine_owner = getpid();
	atexit(remove_machine);
}

void kvt_cuda_start(char **argv)
{
	if (kvt_cuda_role())
		return;
	start_with_double(argv);
	make_machine();
}

struct fake_machine *kvt_cuda_machine(void)
{
	const char *path = getenv(MACHINE_VARIABLE);
	int fd;

	if (machine)
		return machine;
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 || ftruncate(fd, sizeof(*machine)))
		die(path);
	machine = mmap(NULL, sizeof(*machine), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (machine == MAP_FAILED)
		die(path);
	return machine;
}

struct fake_process *kvt_cuda_process(pid_t pid)
{
	struct fake_process *newest = NULL;

	for (unsigned i = 0; i < FAKE_MAX_PROCESSES; i++) {
		struct fake_process *process = &kvt_cuda_machine()->processes[i];

		if (process->pid == pid && (!newest || process->start_time >= newest->start_time))
			newest = process;
	}
	assert_non_null(newest);
	return newest;
}

static unsigned function_index(const char *name)
{
	unsigned i = 0;

	while (i < sizeof(functions) / sizeof(functions[0]) && strcmp(functions[i], name))
		i++;
	assert_true(i < sizeof(functions) / sizeof(functions[0]));
	return i;
}

uint64_t kvt_cuda_calls(pid_t pid, const char *function)
{
	return kvt_cuda_process(pid)->function_calls[function_index(function)];
}

int64_t kvt_cuda_live(pid_t pid, char *text, size_t bytes)
{
	const struct fake_process *process = kvt_cuda_process(pid);
	int64_t total = 0;
	size_t used = 0;

	if (text && bytes)
		text[0] = 0;
	for (unsigned i = 0; i < FAKE_KINDS; i++) {
		int64_t live = process->live[i];

		total += live;
		if (live && text && used < bytes)
			used += (size_t)snprintf(text + used, bytes - used, "%lld x %s; ", (long long)live,
						 kinds[i]);
	}
	return total;
}

void kvt_cuda_fail_in(pid_t pid, const char *function, uint64_t call, unsigned code)
{
	struct fake_process *self = kvt_cuda_process(pid);
	unsigned index = function ? function_index(function) : 0;
	uint64_t before = function ? self->function_calls[index] : self->calls;

	self->fail_call = 0;
	self->fail_code = code;
	self->fail_function = function ? index + 1 : 0;
	self->fail_call = call && code ? before + call : 0;
}

void kvt_cuda_fail(const char *function, uint64_t call, unsigned code)
{
	kvt_cuda_fail_in(getpid(), function, call, code);
}

void kvt_cuda_hang(pid_t pid, const char *function)
{
	kvt_cuda_process(pid)->hang_function = function ? function_index(function) + 1 : 0;
}

unsigned kvt_cuda_hanging(pid_t pid)
{
	return kvt_cuda_process(pid)->hanging;
}

const char *kvt_cuda_role(void)
{
	return getenv(ROLE_VARIABLE);
}

/* Between fork() and exec(): only what a child of a program with threads may do. */
static void become_role(int socket_fd, char *const *environment)
{
	static char name[] = "role";
	char *const arguments[] = {name, NULL};

	if (dup2(socket_fd, KVT_CUDA_ROLE_SOCKET) < 0 || fcntl(KVT_CUDA_ROLE_SOCKET, F_SETFD, 0) < 0)
		_exit(126);
	execve("/proc/self/exe", arguments, environment);
	_exit(127);
}

/* True when a later entry of the same variable stands in `more`. */
static bool replaced(const char *entry, const char *const *more)
{
	size_t name = strcspn(entry, "=") + 1;

	for (; more && *more; more++)
		if (!strncmp(entry, *more, name))
			return true;
	return !strncmp(entry, ROLE_VARIABLE "=", name);
}

static char **make_environment(const char *role, const char *const *more)
{
	size_t count = 2;
	size_t used = 0;
	char **all;

	for (char **at = environ; *at; at++)
		count++;
	for (const char *const *at = more; at && *at; at++)
		count++;
	all = calloc(count, sizeof(*all));
	if (!all || asprintf(&all[used++], ROLE_VARIABLE "=%s", role) < 0)
		die("environment");
	for (char **at = environ; *at; at++)
		if (!replaced(*at, more))
			all[used++] = strdup(*at);
	for (const char *const *at = more; at && *at; at++)
		all[used++] = strdup(*at);
	return all;
}

pid_t kvt_cuda_spawn(const char *role, const char *const *environment, int *out_socket)
{
	char **all = make_environment(role, environment);
	int sockets[2];
	pid_t pid;

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
	pid = fork();
	if (!pid)
		become_role(sockets[1], all);
	assert_true(pid > 0);
	close(sockets[1]);
	for (char **at = all; *at; at++)
		free(*at);
	free(all);
	*out_socket = sockets[0];
	return pid;
}

void kvt_cuda_send(int socket_fd, const void *bytes, size_t length, int fd)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec part = {(void *)(uintptr_t)bytes, length};
	struct msghdr packet = {.msg_iov = &part, .msg_iovlen = 1};

	if (fd >= 0) {
		packet.msg_control = &control;
		packet.msg_controllen = sizeof(control);
		control.header = (struct cmsghdr){
			.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
		memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
	}
	assert_int_equal(sendmsg(socket_fd, &packet, MSG_NOSIGNAL), length);
}

void kvt_cuda_receive(int socket_fd, void *bytes, size_t length, int *out_fd)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec part = {bytes, length};
	struct msghdr packet = {.msg_iov = &part,
				.msg_iovlen = 1,
				.msg_control = &control,
				.msg_controllen = sizeof(control)};
	int fd = -1;

	assert_int_equal(recvmsg(socket_fd, &packet, MSG_CMSG_CLOEXEC), length);
	if (packet.msg_controllen >= CMSG_LEN(sizeof(int)))
		memcpy(&fd, CMSG_DATA(&control.header), sizeof(fd));
	if (out_fd)
		*out_fd = fd;
	else if (fd >= 0)
		close(fd);
}

int kvt_cuda_reap(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
